"""Takes due fires, oldest first, and lets them run: one per slug, so many at once.

Theory of operation. The store hands out a due fire whose slug nobody holds; that claim is the only
thing that makes a run. What the dispatcher knows in memory (who waits, who is going, which slugs
have no file) can be lost at any instant without losing a fire. A claim that ends without a run is
given back or settled whatever happens to the store meanwhile, since a claim that is left would hold
up its automation until the next start.

A fire that was due when it was put in stays due when the clock is set back: its claim is asked for
at its own time, and for it alone.

It looks whenever something changed, when the next fire is due, and now and then for fires that
another process put in.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

import anyio
import anyio.abc
import attrs

from drumbeat.core.attempts import next_attempt
from drumbeat.core.explain import REMOVED, paused_reason
from drumbeat.core.model import Claim, Fire, Mark, RunRecord
from drumbeat.errors import ClaimLost, StoreError
from drumbeat.runtime.conclusion import Ending
from drumbeat.runtime.inbox_marks import after_skip
from drumbeat.runtime.known_files import REMOVED_AFTER
from drumbeat.runtime.log import log
from drumbeat.runtime.requests import paused
from drumbeat.runtime.run import Disabled, Run, Unrecorded, Vanished
from drumbeat.runtime.services import Services
from drumbeat.runtime.settlement import Settlement, unknown
from drumbeat.runtime.waiters import Waiters

_PAGE = 10_000


@attrs.define(kw_only=True)
class Dispatcher:
    """The dispatcher of one engine."""

    services: Services
    settlement: Settlement
    finished: Callable[[str, datetime], None]
    """Told of the slug and the instant of every run that ended."""
    pass_over: Callable[
        [Fire, datetime, Callable[[Sequence[Mark]], Awaitable[None]]], Awaitable[None]
    ]
    """Writes that a fire is skipped, with what this means for its schedule."""
    going: dict[str, Run] = attrs.field(factory=dict)
    """The runs that are going, by their ids."""
    waiters: Waiters = attrs.field(factory=Waiters)
    _claiming: bool = False
    _looked: int = -1
    _next_due: datetime | None = None
    _overdue: set[str] = attrs.field(factory=set)
    """The slugs that have a fire which was due before the clock was set back."""
    _absent: dict[str, int] = attrs.field(factory=dict)
    lapsed: dict[str, int] = attrs.field(factory=dict)
    """By slug, how many fires ended as removed that nobody has been told of yet."""

    @property
    def idle(self) -> bool:
        """Whether nothing is going, and nothing is due that could be taken.

        While the store is in trouble nothing can be.
        """
        services = self.services
        if self.going or self._claiming:
            return False
        if "store" in services.faults:
            return True
        due = self._next_due is not None and self._next_due <= services.clock.now()
        return self._looked == services.fires_changed.count and not due

    def busy(self, slug: str) -> bool:
        """Whether a run of `slug` is going."""
        return any(run.claim.slug == slug for run in self.going.values())

    async def run(self) -> None:
        """Dispatch until cancelled; store trouble pauses it, draining stops further runs."""
        services = self.services
        async with anyio.create_task_group() as group:
            while True:
                seen = services.fires_changed.count
                try:
                    await self._look(group, changed=seen != self._looked)
                except StoreError as error:
                    services.trouble(error)
                    self._settle_for(seen)
                    # Whatever calls meanwhile: the store is left in peace for that long.
                    await services.clock.sleep(services.settings.store_probe)
                    continue
                self._settle_for(seen)
                now, ahead = services.clock.now(), self._next_due
                await services.fires_changed.wait(
                    seen,
                    clock=services.clock,
                    limit=None if ahead is None else ahead - now,
                    glance=services.settings.request_poll,
                )

    def _settle_for(self, seen: int) -> None:
        self._looked = seen
        self.services.state_changed.notify()

    async def _look(self, group: anyio.abc.TaskGroup, *, changed: bool) -> None:
        services = self.services
        await services.probe()
        if not self.settlement.complete:
            await self.settlement.carry_on(self.ended)
        while not services.draining and await self._take(group):
            changed = True
        passed = self._next_due is not None and self._next_due <= services.clock.now()
        if changed or passed:
            await self._look_ahead()
            while self._overdue and not services.draining and await self._take(group):
                pass

    async def _look_ahead(self) -> None:
        """Find out when the next fire is due, and which slugs that have fires have no file."""
        now = self.services.clock.now()
        self._next_due = None
        self._overdue.clear()
        ahead: list[datetime] = []
        backlog = await self.services.store.backlog(now=now)
        for waiting in backlog:
            if not self.services.stands(waiting.slug):
                self._absent.setdefault(waiting.slug, 0)
                continue
            if waiting.overdue is not None:
                self._overdue.add(waiting.slug)
            if waiting.ahead is not None:
                ahead.append(waiting.ahead)
        self._next_due = min(ahead, default=None)

    # ---- taking

    async def _take(self, group: anyio.abc.TaskGroup) -> bool:
        """Take one due fire; say whether there may be another."""
        services = self.services
        now = services.clock.now()
        run_id = services.new_run_id(now)
        if not services.places.take(run_id):
            return False
        self._claiming = True
        try:
            return await self._claim(group, run_id, now)
        finally:
            self._claiming = False
            if run_id not in self.going:
                services.places.leave(run_id)
            services.state_changed.notify()

    async def _claim(self, group: anyio.abc.TaskGroup, run_id: str, now: datetime) -> bool:
        services = self.services
        # Before the claim, since trouble with the store must not leave one that nobody ends.
        reasons = await paused(services.store)
        claim = await services.store.claim_fire(now=now, run_id=run_id, skip=tuple(self._absent))
        if claim is None:
            claim = await self._claim_overdue(run_id, now)
        if claim is None:
            return False
        fire = claim.fire
        if fire is None:
            msg = "claim_fire gave a claim without a fire"
            raise TypeError(msg)
        known = services.find(claim.slug)
        if services.draining:
            await self._give_back(claim)
        elif not services.stands(claim.slug):
            self._absent.setdefault(claim.slug, 0)
            await self._give_back(claim)
        elif claim.slug in reasons and fire.cause != "manual":
            await self._skip(fire, paused_reason(reasons[claim.slug]), claim)
        else:
            run = Run(services=services, claim=claim, fire=fire, known=known or unknown(claim.slug))
            self.going[run_id] = run
            group.start_soon(self._go, run)
        return True

    async def _claim_overdue(self, run_id: str, now: datetime) -> Claim | None:
        """Take a fire that was due before the clock was set back."""
        store = self.services.store
        while self._overdue:
            slug = self._overdue.pop()
            if self.busy(slug):
                continue  # looked for once more when that run has ended
            # Those of the slug that come due before it by the clock have not been due yet.
            pending = await store.fires(slug=slug, open=True, limit=_PAGE, payloads=False)
            overdue = [fire for fire in pending if now < fire.due <= fire.created_at]
            for fire in sorted(overdue, key=lambda fire: (fire.due, fire.created_at)):
                claim = await store.claim_fire(now=fire.due, run_id=run_id, fire=fire.id)
                if claim is not None:
                    return claim
        return None

    async def _go(self, run: Run) -> None:
        record: RunRecord | None = None
        claim_lost = False
        try:
            record = await run.go()
            claim_lost = record is None
        except Vanished:
            self._absent.setdefault(run.claim.slug, 0)
            await self._give_back(run.claim)
        except Disabled:
            await self._skip(run.fire, "disabled", run.claim)
        except Unrecorded:
            await self._give_back(run.claim)
        finally:
            self.going.pop(run.claim.run_id)
            self.services.places.leave(run.claim.run_id)
            if record is not None:
                self.ended(record)
            elif claim_lost:
                self.finished(run.claim.slug, self.services.clock.now())
                self.waiters.tell(run.fire.id)
            self.services.fires_changed.notify()
            self.services.state_changed.notify()

    def ended(self, record: RunRecord) -> None:
        """Tell who waits for it that a run is over."""
        self.finished(record.slug, record.finished_at or record.started_at)
        again = next_attempt(
            record.fire,
            record.state,
            now=record.finished_at or record.started_at,
            inbox_attempts=self.services.settings.inbox_attempts,
        )
        if again is None:
            self.waiters.tell(record.fire.id, run=record)

    # ---- claims that end without a run

    async def _give_back(self, claim: Claim) -> None:
        async def write() -> None:
            await self.services.store.finish(claim, None)

        await self._end(claim, write)

    async def _skip(self, fire: Fire, reason: str, claim: Claim | None = None) -> None:
        services = self.services
        now = services.clock.now()
        settled = attrs.evolve(fire, verdict="skipped", reason=reason)
        event = services.event(
            "fire_settled", now, fire.slug, fire=fire.id, verdict="skipped", reason=reason
        )

        async def write() -> None:
            mail = await after_skip(services.store, fire, removed=reason == REMOVED)

            async def settle(marks: Sequence[Mark]) -> None:
                await services.store.record(
                    claim=claim, settled=(settled,), marks=(*mail, *marks), events=(event,)
                )

            await self.pass_over(fire, now, settle)

        if claim is None:
            await write()
        elif not await self._end(claim, write):
            return
        log.info("fire_skipped", slug=fire.slug, fire=fire.id, reason=reason)
        services.mail_settled.notify()
        self.waiters.tell(fire.id, fire=settled)

    async def _end(self, claim: Claim, write: Callable[[], Awaitable[None]]) -> bool:
        ended = False
        with anyio.CancelScope(shield=True):
            try:
                ended = await self.services.insist(write)
            except ClaimLost as error:
                self.services.claim_lost(claim.slug, claim.run_id, error)
        return ended

    # ---- files that are gone

    def removed(self, slugs: Iterable[str]) -> None:
        """Say that the files of `slugs` are gone, and were at the reload before."""
        for slug in slugs:
            self._absent[slug] = REMOVED_AFTER

    async def workspace_reloaded(self, *, removing: bool) -> None:
        """After a reload: settle what waits for files that are gone, take up what came back.

        Args:
            removing: whether that reload counts towards a file being gone.

        Raises:
            StoreError: a verdict could not be written; the next reload tries again.
        """
        for slug in list(self._absent):
            if self.services.stands(slug):
                del self._absent[slug]
                self.services.fires_changed.notify()
                continue
            if not removing:
                continue
            self._absent[slug] += 1
            if self._absent[slug] >= REMOVED_AFTER:
                await self._end_pending(slug)

    async def _end_pending(self, slug: str) -> None:
        pending = await self.services.store.fires(slug=slug, open=True, limit=_PAGE, payloads=False)
        for fire in pending:
            if fire.run_id not in self.going:
                await self._skip(fire, REMOVED)
                self.lapsed[slug] = self.lapsed.get(slug, 0) + 1
        if not self.busy(slug) and len(pending) < _PAGE:
            del self._absent[slug]

    # ---- the end

    async def drain(self, limit: timedelta, *, time_up: Callable[[], None]) -> None:
        """Let what is going end within `limit` on the clock, then cancel it as interrupted.

        Returns when nothing is going; an agent that ignores its cancellation is waited for.

        Args:
            limit: what it gets.
            time_up: called when that is over, before anything is cancelled.
        """
        services = self.services

        async def cancel_later() -> None:
            if limit > timedelta(0):
                await services.hurried.wait(0, clock=services.clock, limit=limit)
            time_up()
            for run in list(self.going.values()):
                run.stop(Ending(state="interrupted"))

        async with anyio.create_task_group() as group:
            group.start_soon(cancel_later)
            while True:
                seen = services.state_changed.count
                if not self.going and not self._claiming:
                    break
                await services.state_changed.wait(seen)
            group.cancel_scope.cancel()
