"""Asks each inbox for mail, and turns what passes the sender rules into fires.

Theory of operation. Each inbox has a task of its own, so one whose server hangs holds up no other.
What is remembered of it is one mark (`core/inbox.py`), read afresh before each poll: while it names
a fire, that fire is out for a batch and nothing is asked. A poll writes once: the fire with the
mark that names it and the events of what was dropped, or the mark behind a batch of drops. Nothing
that a poll brought is kept in memory, so whatever fails or dies, the same mail is asked for again.
Strangers decide how long it takes to read a header, so long ones are read in a thread.

An inbox of a file that is disabled, or paused, is polled all the same: the dispatcher skips its
fires, so there is a record of what nobody saw. That of a broken file is not polled until the file
loads again, and its mail waits in the mailbox.
"""

from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import anyio.abc
import attrs

from drumbeat.core.inbox import (
    Batch,
    Standing,
    Unreadable,
    inbox_key,
    message_digest,
    shortened,
    sound_batch,
    trigger_payload,
)
from drumbeat.core.messages import exactly
from drumbeat.core.model import (
    Event,
    Fire,
    InboxTrigger,
    MailBatch,
    MailMessage,
    Mark,
    Workspace,
)
from drumbeat.core.senders import MailDecision, decide_mail
from drumbeat.errors import ClaimLost, Problem, StoreError
from drumbeat.runtime.answers import Raised, answered, problem_of, said
from drumbeat.runtime.clock import holding
from drumbeat.runtime.contained import contained, forgotten
from drumbeat.runtime.inbox_faults import LOOK, InboxFaults
from drumbeat.runtime.inbox_marks import moved, read_standing
from drumbeat.runtime.log import log
from drumbeat.runtime.services import Services

_REFUSED = "inbox-refused:"
_SHOWN = 200
"""So much of a sender, a subject or an id stands in an event."""
_AT_HAND = 4 * 1024
"""Headers of so many characters are read on the loop; the worst of them take 20 ms."""


@attrs.define(kw_only=True)
class _Box:
    """One inbox of one file."""

    slug: str
    trigger: InboxTrigger
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)

    @property
    def key(self) -> str:
        return inbox_key(self.slug, self.trigger)

    @property
    def shown(self) -> str:
        return f"{self.trigger.system}:{self.trigger.address}"

    @property
    def facts(self) -> dict[str, str]:
        return {"system": self.trigger.system, "address": self.trigger.address}


@attrs.define(kw_only=True)
class _Sorted:
    """What a batch comes to."""

    passing: list[tuple[MailMessage, MailDecision]] = attrs.field(factory=list)
    dropped: list[Event] = attrs.field(factory=list)
    told: list[str] = attrs.field(factory=list)
    handled: list[str] = attrs.field(factory=list)


@attrs.define(kw_only=True)
class Inboxes:
    """The inboxes of one engine."""

    services: Services
    _boxes: dict[str, _Box] = attrs.field(factory=dict)
    """By slug, those that are polled."""
    _addresses: frozenset[str] = frozenset()
    """Of all inboxes that the files declare: mail between them starts nothing."""
    _refused: dict[str, str] = attrs.field(factory=dict)
    """By slug, the inbox for which there is an event that nothing serves it."""
    _polled: dict[str, float] = attrs.field(factory=dict)
    """By key, when it was last polled, so that an edit of its file makes no extra poll."""
    _going: dict[str, anyio.Lock] = attrs.field(factory=dict)
    """By key: an inbox is never polled twice at once, also when its file comes and goes."""
    _writing: int = 0
    _group: anyio.abc.TaskGroup | None = None
    _faults: InboxFaults = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._faults = InboxFaults(services=self.services)

    @property
    def idle(self) -> bool:
        """Whether nothing that a poll brought is about to be written."""
        return not self._writing

    # ---- following the files

    async def sync(self, workspace: Workspace) -> None:
        """Follow the files: which inboxes there are, and which of them nothing serves.

        Raises:
            StoreError: an event could not be written; the next call does what is left.
        """
        declared = {
            automation.slug: _Box(slug=automation.slug, trigger=trigger)
            for automation in workspace.automations
            for trigger in automation.triggers
            if isinstance(trigger, InboxTrigger)
        }
        self._addresses = frozenset(box.trigger.address for box in declared.values())
        served = {slug: box for slug, box in declared.items() if self._serves(box)}
        for slug, box in list(self._boxes.items()):
            if slug not in served or served[slug].key != box.key:
                self._leave(box)
        for slug, box in served.items():
            if slug in self._boxes:
                self._boxes[slug].trigger = box.trigger
            else:
                self._boxes[slug] = box
                if self._group is not None:
                    self._group.start_soon(self._watch, box)
        self._tidy()
        await self._refuse([box for slug, box in declared.items() if slug not in served])

    def _tidy(self) -> None:
        """Forget of inboxes that are polled no more what decides nothing about a poll to come."""
        services = self.services
        polled = {box.key for box in self._boxes.values()}
        before = services.clock.monotonic() - services.settings.inbox_poll.total_seconds()
        for key in self._polled.keys() - polled:
            if self._polled[key] <= before:
                del self._polled[key]
        for key in self._going.keys() - polled:
            going = self._going[key].statistics()
            if not going.locked and not going.tasks_waiting:
                del self._going[key]

    def _serves(self, box: _Box) -> bool:
        return box.trigger.system in self.services.mail

    def _leave(self, box: _Box) -> None:
        box.scope.cancel()
        del self._boxes[box.slug]
        self._faults.forget(box.slug)
        forgotten(self.services, "inbox", slug=box.slug)

    async def _refuse(self, boxes: list[_Box]) -> None:
        """Say loudly which inboxes nothing serves, with an event, once per change.

        A host may mean it so, and `status().faults` has it for as long as it is.
        """
        services = self.services
        for slug in self._refused.keys() - {box.slug for box in boxes}:
            del self._refused[slug]
            services.faults.pop(_REFUSED + slug, None)
        for box in boxes:
            names = ", ".join(sorted(services.mail)) or "none"
            problem = Problem(
                code="inbox-system-unknown",
                message=f"the inbox {box.shown} of {box.slug} is not polled: the host has no mail "
                f"system {box.trigger.system!r} (it has: {names})",
                remedy="let the host give it, as in Engine(mail={…}), or write one that it has",
            )
            if self._refused.get(box.slug) != box.key:
                event = services.event(
                    "inbox_refused",
                    services.clock.now(),
                    box.slug,
                    **box.facts,
                    code=problem.code,
                    message=problem.message,
                )
                await services.store.record(events=(event,))
                self._refused[box.slug] = box.key
                log.error(
                    "inbox_refused",
                    slug=box.slug,
                    **box.facts,
                    code=problem.code,
                    message=problem.message,
                    remedy=problem.remedy,
                )
            services.faults[_REFUSED + box.slug] = problem

    # ---- polling

    async def run(self) -> None:
        """Poll every inbox until cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            for box in self._boxes.values():
                group.start_soon(self._watch, box)
            await anyio.sleep_forever()

    async def _watch(self, box: _Box) -> None:
        services = self.services
        with box.scope:
            async with self._going.setdefault(box.key, anyio.Lock()):
                while not services.draining:
                    try:
                        look = partial(self._unmoved, box)
                        if not await contained(services, "inbox", look, slug=box.slug):
                            await services.clock.sleep(services.settings.inbox_poll)
                    except StoreError as error:
                        services.trouble(error)
                        await services.clock.sleep(services.settings.store_probe)

    async def _unmoved(self, box: _Box) -> None:
        try:
            await self._look(box)
        except ClaimLost:
            # Somebody moved the mark meanwhile: what it says by now decides.
            await self.services.clock.sleep(self.services.settings.request_poll)

    async def _look(self, box: _Box) -> None:
        """Wait until the inbox is to be polled, and poll it."""
        services = self.services
        interval = services.settings.inbox_poll
        polled = self._polled.get(box.key)
        if polled is not None:
            ahead = interval - timedelta(seconds=services.clock.monotonic() - polled)
            if ahead > timedelta(0):
                await services.clock.sleep(ahead)
        seen = services.mail_settled.count
        mark, standing = await read_standing(services.store, box.key)
        if isinstance(standing, Unreadable):
            await self._failed(
                box, "inbox-mark-unreadable", standing.reason, remedy=_mark_remedy(box.key)
            )
            self._polled[box.key] = services.clock.monotonic()
            return
        if standing is not None and standing.batch is not None:
            await self._wait_for(box, mark, standing, standing.batch, seen)
            return
        if services.draining:
            return
        try:
            await self._poll(box, mark, standing)
        except (StoreError, ClaimLost):
            raise
        except Exception as error:  # noqa: BLE001  one inbox stops no other
            log.error("mail_poll_fault", slug=box.slug, trace=services.trace(error))
            await self._failed(box, "mail-poll-failed", f"a mistake in the engine: {said(error)}")
        self._polled[box.key] = services.clock.monotonic()

    async def _wait_for(
        self, box: _Box, mark: Mark, standing: Standing, batch: Batch, seen: int
    ) -> None:
        """Wait for the fire that is out for a batch; take the batch back if there is none."""
        services = self.services
        if await services.store.fires(id=batch.fire, open=True, payloads=False):
            await services.mail_settled.wait(
                seen, clock=services.clock, glance=services.settings.inbox_poll
            )
        else:
            await services.store.record(marks=(moved(mark, standing.put_back()),))

    async def _poll(self, box: _Box, mark: Mark, standing: Standing | None) -> None:
        services = self.services
        after = None if standing is None else standing.mark
        source = services.mail[box.trigger.system]

        async def call() -> object:
            return await source.poll(box.trigger.address, after)

        async def report() -> None:
            await self._failed(box, "mail-poll-stuck", "it goes on after it was cancelled")

        answer = await answered(
            services.clock,
            services.settings.inbox_timeout,
            call,
            what=f"mail poll of {box.shown}",
            stuck_after=services.settings.stuck_after,
            stuck=report,
        )
        if isinstance(answer, Raised):
            await self._came_to_nothing(box, answer)
            return
        batch = sound_batch(answer, after=after)
        if isinstance(batch, str):
            await self._failed(box, "mail-batch-invalid", batch, kind=batch)
        else:
            await self._take(box, mark, standing, batch)

    async def _came_to_nothing(self, box: _Box, raised: Raised) -> None:
        services, error = self.services, raised.error
        problem = problem_of(error)
        if raised.how == "over-time":
            limit = services.settings.inbox_timeout
            await self._failed(box, "mail-poll-timeout", f"no answer within {exactly(limit)}")
        elif raised.how == "self-cancelled":
            await self._failed(box, "mail-poll-failed", "the source cancelled its own poll")
        elif problem is None or services.redactor.text(problem.code) != problem.code:
            await self._failed(box, "mail-poll-failed", said(error), kind=type(error).__name__)
        else:
            await self._failed(box, problem.code, problem.message, remedy=problem.remedy)

    async def _failed(
        self, box: _Box, code: str, reason: str, *, kind: str = "", remedy: str = LOOK
    ) -> None:
        await self._faults.failed(
            box.slug,
            box.shown,
            code=code,
            reason=reason,
            remedy=remedy,
            kind=kind,
            facts=box.facts,
        )

    # ---- a poll that brought something

    async def _take(
        self, box: _Box, mark: Mark, standing: Standing | None, batch: MailBatch
    ) -> None:
        await self._faults.over(box.slug, box.facts)
        services, now = self.services, self.services.clock.now()
        self._writing += 1
        try:
            if standing is None:
                event = services.event("inbox_begun", now, box.slug, **box.facts)
                begun = moved(mark, Standing(mark=batch.mark))
                await services.store.record(marks=(begun,), events=(event,))
                log.info("inbox_begun", slug=box.slug, **box.facts)
                return
            found = await self._sort(box, standing, batch, now)
            if found.passing:
                await self._put(box, mark, standing, batch, found, now)
            elif found.handled or batch.mark != standing.mark:
                behind = moved(mark, standing.past(batch.mark, found.handled))
                await services.store.record(marks=(behind,), events=tuple(found.dropped))
        finally:
            self._writing -= 1
            services.state_changed.notify()

    async def _sort(
        self, box: _Box, standing: Standing, batch: MailBatch, now: datetime
    ) -> _Sorted:
        found = _Sorted()
        known = frozenset(standing.handled) if batch.restarted else frozenset[str]()
        for message in batch.messages:
            await anyio.lowlevel.checkpoint()
            digest, decision = await self._judged(box, message, known)
            if decision is None:
                continue
            found.handled.append(digest)
            if decision.passes:
                found.passing.append((message, decision))
                continue
            told = f"{digest} {message.id}"
            found.told.append(told)
            if told not in standing.told:
                found.dropped.append(self._dropped(box, message, decision, now))
        return found

    async def _judged(
        self, box: _Box, message: MailMessage, known: frozenset[str]
    ) -> tuple[str, MailDecision | None]:
        """The digest of a message, and what is decided on it; None for one of the known."""
        services, call = self.services, (message, known, box.trigger, self._addresses)
        if sum(len(name) + len(value) for name, value in message.headers) <= _AT_HAND:
            return _judge(*call)
        with holding(services.clock, f"mail of {box.shown}"):
            return await services.threads.run(_judge, *call)

    def _dropped(
        self, box: _Box, message: MailMessage, decision: MailDecision, now: datetime
    ) -> Event:
        services = self.services

        def cut(text: str) -> str:
            return shortened(services.redactor.text(text), _SHOWN)

        facts: dict[str, Any] = {
            "message": cut(message.id),
            "code": decision.code,
            "reason": decision.reason,
            "sender": cut(decision.sender),
            "subject": cut(decision.subject),
        }
        return services.event("mail_dropped", now, box.slug, **box.facts, **facts)

    async def _put(  # noqa: PLR0917  a fire is these six things
        self,
        box: _Box,
        mark: Mark,
        standing: Standing,
        batch: MailBatch,
        found: _Sorted,
        now: datetime,
    ) -> None:
        services = self.services
        fire = Fire(
            id=f"inbox-{uuid4()}",
            slug=box.slug,
            cause="inbox",
            slot=batch.mark,
            due=now,
            created_at=now,
            payload=trigger_payload(box.trigger, found.passing),
        )
        waiting = attrs.evolve(
            standing,
            told=tuple(found.told),
            batch=Batch(fire=fire.id, mark=batch.mark, handled=tuple(found.handled)),
        )
        (stored,) = await services.store.add_fires(
            (fire,), marks=(moved(mark, waiting),), events=tuple(found.dropped)
        )
        if stored.id != fire.id:
            # The slot is taken: by a fire that was skipped when its file was gone, or by one of
            # another inbox that the file had. A kill before this leaves a batch that no fire is
            # out for, which is taken back.
            again = attrs.evolve(fire, slot=f"{batch.mark} ({mark.version})")
            await services.store.add_fires((again,))
        log.info("mail_arrived", slug=box.slug, **box.facts, messages=len(found.passing))
        services.fires_changed.notify()


def _mark_remedy(key: str) -> str:
    return (
        "use the drumbeat release that wrote it, or a later one, or put back a backup of "
        "drumbeat.db; to pass over what lies in the mailbox instead, stop the engine and delete "
        f"the mark {key!r} from the table `marks`"
    )


def _judge(
    message: MailMessage, known: frozenset[str], trigger: InboxTrigger, others: frozenset[str]
) -> tuple[str, MailDecision | None]:
    digest = message_digest(message)
    if digest in known:
        return digest, None
    address, allow_from = trigger.address, trigger.allow_from
    return digest, decide_mail(message, address=address, allow_from=allow_from, others=others)


__all__ = ["Inboxes"]
