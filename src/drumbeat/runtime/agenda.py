"""Keeps the scheduler in step with the workspace, and turns due moments into fires.

Theory of operation. What a schedule has already accounted for is a mark per automation
(`schedule_marks.py`), moved in the transaction that puts the fire in. A fire is unique by its slot,
so a moment that is met twice (a crash between the decision and the transaction, a clock that went
back) adds nothing the second time.

An interval counts from the last finish, so its moment is none while a run of it is going or a fire
of it is about to be taken: it is let go, and the end of that run decides when the next one is.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any, Literal, TypeAlias

import anyio
import attrs
from anyio.lowlevel import checkpoint

from drumbeat.core.identity import slot_of
from drumbeat.core.messages import lasting
from drumbeat.core.model import (
    Automation,
    Due,
    Event,
    Fire,
    Interval,
    Mark,
    Schedule,
    ScheduleTrigger,
    Workspace,
)
from drumbeat.core.schedule import format_schedule, parse_schedule
from drumbeat.errors import ClaimLost, ScheduleError
from drumbeat.runtime.clock import holding
from drumbeat.runtime.contained import contained, fault_of, forgotten
from drumbeat.runtime.log import log
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.schedule_marks import (
    PREFIX,
    Standing,
    accounted,
    given_out,
    read_finishes,
    read_marks,
    standing,
)
from drumbeat.runtime.scheduler import Scheduler
from drumbeat.runtime.services import Services
from drumbeat.runtime.signals import Signal
from drumbeat.runtime.superseded import fire_of, superseded

_Without: TypeAlias = Literal["disabled", "unscheduled"]
"""Why a file makes nothing due."""
_AT_A_STRETCH = 256
"""So many schedules are looked at before others on the loop have their turn."""


@attrs.define(kw_only=True)
class Agenda:
    """What is due when, for one engine."""

    services: Services
    scheduler: Scheduler
    is_going: Callable[[str], bool]
    """Whether a run of a slug is going."""
    _putting: bool = False
    _jumps: list[timedelta] = attrs.field(factory=list)
    _jumped: Signal = attrs.field(factory=Signal)
    _lock: anyio.Lock = attrs.field(factory=anyio.Lock)
    """Held while a mark moves: following an edit and putting a fire in both move it.

    Never while the store is waited for, or whoever looks at the files would wait with it.
    """
    _marks: dict[str, Mark] = attrs.field(factory=dict)
    _set: dict[str, tuple[Schedule, str]] = attrs.field(factory=dict)
    _followed: set[str] = attrs.field(factory=set)
    _never: dict[str, tuple[tuple[Schedule, str], str]] = attrs.field(factory=dict)
    """The schedules that have no moment in their zone, and why."""
    _unschedulable: dict[str, str] = attrs.field(factory=dict)
    """By slug, the expression for which there is an event."""

    def __attrs_post_init__(self) -> None:
        self.scheduler.on_jump = self._clock_jumped

    # ---- a clock that jumps

    def _clock_jumped(self, drift: timedelta) -> None:
        now = self.services.clock.now().isoformat()
        log.warning("clock_jumped", seconds=drift.total_seconds(), now=now)
        self._jumps.append(drift)
        self._jumped.notify()
        # What had been due may be so no more by the clock; it is taken all the same.
        self.services.fires_changed.notify()
        self.services.intents_changed.notify()

    async def report_jumps(self) -> None:
        """Make an event of every jump of the wall clock, until cancelled."""
        services = self.services
        while True:
            seen = self._jumped.count
            while self._jumps:
                event = services.event(
                    "clock_jumped",
                    services.clock.now(),
                    seconds=self._jumps[0].total_seconds(),
                )

                async def write(event: Event = event) -> None:
                    await services.store.record(events=(event,))

                if await contained(services, "jumps", partial(services.insist, write)):
                    del self._jumps[0]
                else:
                    await services.clock.sleep(services.settings.store_probe)
            await self._jumped.wait(seen)

    # ---- following the files

    async def load(self) -> None:
        """Read the marks; before the first `sync`.

        Raises:
            StoreError: the store could not be read.
        """
        self._marks = await read_marks(self.services.store)

    def idle(self, now: datetime) -> bool:
        """Whether nothing is due that has not been made a fire.

        While the store is in trouble nothing can be made one.
        """
        if "store" in self.services.faults:
            return True
        due = self.scheduler.next_due()
        return not self._putting and (due is None or due > now)

    async def sync(self, workspace: Workspace) -> None:
        """Follow the files: what is scheduled, edited, disabled, broken or gone.

        Raises:
            StoreError: a mark could not be written; the next call does what is left.
        """
        services = self.services
        async with self._lock:
            with holding(services.clock, "schedules"):
                declared = await services.threads.run(self._declared, workspace)
            known = self._set.keys() | self._never.keys()
            unscheduled = {each.slug for each in workspace.automations} - declared.keys()
            for slug in list(self._set):
                if slug not in declared or not declared[slug].enabled:
                    self.scheduler.remove(slug)
                    del self._set[slug]
            for slug in list(self._never):
                if slug not in declared or not declared[slug].enabled:
                    del self._never[slug]
            for number, slug in enumerate([*declared, *sorted(unscheduled)]):
                if number % _AT_A_STRETCH == 0:
                    await checkpoint()
                schedule = declared.get(slug)
                if not self._is_followed(slug, schedule):
                    follow = partial(self._follow, slug, schedule, seen=slug in known)
                    await contained(services, "schedule", follow, slug=slug)
            for slug in self._followed - declared.keys():
                forgotten(services, "moment", slug=slug)
            followed = declared.keys() | unscheduled
            for slug in self._followed - followed:
                forgotten(services, "schedule", slug=slug)
            self._followed = followed
            await self._check_schedulable(workspace)

    def _declared(self, workspace: Workspace) -> dict[str, Standing]:
        services = self.services
        return standing(
            workspace,
            last_good=services.workspace.last_good,
            marks=self._marks,
            zones=services.zones,
        )

    def _is_followed(self, slug: str, declared: Standing | None) -> bool:
        """Whether there is nothing to do about a slug, as there mostly is not."""
        if fault_of(self.services, "schedule", slug=slug) is not None:
            return False
        if declared is None or not declared.enabled:
            mark = self._marks.get(slug)
            return mark is None or not mark.value["enabled"]
        return self._is_set(declared)

    def _is_set(self, declared: Standing) -> bool:
        rule, slug = (declared.schedule, declared.ruling), declared.slug
        return rule in (self._set.get(slug), self._never.get(slug, (None, ""))[0])

    async def _follow(self, slug: str, declared: Standing | None, *, seen: bool) -> None:
        """Follow what a file declares; None and what is disabled make nothing due."""
        mark = self._marks.get(slug)
        if declared is None or not declared.enabled:
            if mark is not None and mark.value["enabled"]:
                # What the file says later counts from then on.
                by: _Without = "unscheduled" if declared is None else "disabled"
                await self._replace(mark, by, seen=seen, enabled=False)
            return
        if self._is_set(declared):
            return
        schedule = declared.schedule
        rule = (schedule, declared.ruling)
        self._never.pop(slug, None)
        now = self.services.clock.now()
        if mark is None:
            mark = await self._move(slug, **declared.first_mark(now))
        elif not (mark.value["enabled"] and declared.is_ruled_by(mark)):
            mark = await self._replace(mark, declared, seen=seen, **declared.edited(now))
        last_finish = (await read_finishes(self.services.store, slug)).get(slug)
        try:
            self.scheduler.set(
                slug,
                schedule,
                zone=declared.zone,
                **accounted(schedule, mark.value, last_finish, zone=declared.zone),
            )
        except ScheduleError as error:
            # The grammar allows it, and only its zone says that it never comes.
            self._set.pop(slug, None)
            self._never[slug] = (rule, error.problem.message)
        else:
            self._set[slug] = rule

    async def _replace(
        self,
        mark: Mark,
        by: Standing | _Without,
        *,
        seen: bool,
        **changes: Any,
    ) -> Mark:
        """Change what is kept of a rule, with a verdict on what it made due and nobody saw to.

        Args:
            mark: of the rule.
            by: what the file declares by now.
            seen: whether this engine has followed the rule up to now, so that nothing is left.
            changes: to the mark.
        """
        services, fire = self.services, None
        if not seen and mark.value["enabled"]:
            fire = await superseded(
                mark,
                by,
                store=services.store,
                zones=services.zones,
                catch_up=services.settings.catch_up,
                now=services.clock.now(),
                clock=services.clock,
                threads=services.threads,
            )
        slug = mark.key.removeprefix(PREFIX)
        return await self._move(slug, None if fire is None else partial(self._add, fire), **changes)

    async def _add(self, fire: Fire, mark: Mark) -> None:
        await self.services.store.add_fires((fire,), fold=True, marks=(mark,))

    async def _move(
        self, slug: str, write: Callable[[Mark], Awaitable[object]] | None = None, /, **changes: Any
    ) -> Mark:
        """Change a mark, in the one transaction that `write` makes of it where it is given."""
        store = self.services.store
        mark = self._marks.get(slug) or Mark(key=PREFIX + slug, value={})
        while True:
            moved = attrs.evolve(mark, value={**mark.value, **changes})
            try:
                if write is None:
                    await store.record(marks=(moved,))
                else:
                    await write(moved)
            except ClaimLost:
                # Written before by a call that was cancelled, and so never heard of it.
                await self.load()
                stored = self._marks.get(slug)
                if stored is None or stored.version == mark.version:
                    raise
                mark = stored
            else:
                break
        if moved.version == 0:
            moved = await mark_of(store, moved.key)
        else:
            moved = attrs.evolve(moved, version=moved.version + 1)
        self._marks[slug] = moved
        return moved

    async def _check_schedulable(self, workspace: Workspace) -> None:
        never = {
            automation.slug: (expression, _why_not(expression))
            for automation in workspace.automations
            if automation.enabled and (expression := _unreadable(automation)) is not None
        }
        for slug, ((schedule, _), reason) in self._never.items():
            never[slug] = (format_schedule(schedule), reason)
        for slug in self._unschedulable.keys() - never.keys():
            del self._unschedulable[slug]
        for slug, (expression, reason) in never.items():
            shown = self.services.redactor.text
            log.error(
                "automation_unschedulable",
                slug=slug,
                expression=shown(expression),
                reason=shown(reason),
            )
            if self._unschedulable.get(slug) == expression:
                continue
            event = self.services.event(
                "automation_unschedulable",
                self.services.clock.now(),
                slug,
                expression=expression,
                reason=reason,
            )
            await self.services.store.record(events=(event,))
            self._unschedulable[slug] = expression

    # ---- due moments

    async def run(self) -> None:
        """Put a fire in for every due moment, until cancelled."""
        async for due in self.scheduler:
            self._putting = True
            put = partial(self._put, due)
            try:
                if not await contained(self.services, "moment", put, slug=due.slug):
                    # The next look at the files plans it anew from its mark, this moment included.
                    self.scheduler.remove(due.slug)
                    self._set.pop(due.slug, None)
            finally:
                self._putting = False
                self.services.fires_changed.notify()
                self.services.state_changed.notify()

    async def _put(self, due: Due) -> None:
        services, slug = self.services, due.slug
        now = services.clock.now()
        slot = slot_of(due.slot)
        changes: dict[str, Any] = {}
        reason = ""
        if due.missed:
            changes["passed_over"] = now.isoformat()
            reason = (
                f"{lasting(now - due.slot)} late, and a missed moment is made up for within"
                f" {lasting(services.settings.catch_up)} only"
            )
        fire = fire_of(due, now, verdict="missed" if due.missed else None, why=reason)

        async def write() -> None:
            async with self._lock:
                if slug not in self._set:
                    return  # its file went away, or was disabled, meanwhile
                if isinstance(self._set[slug][0], Interval) and await self._is_overtaken(due, now):
                    log.info("slot_let_go", slug=slug, slot=slot)
                    return
                given = given_out(self._set[slug][0], due.slot, self._zone(slug))
                await self._move(slug, partial(self._add, fire), **given, **changes)
            log.info("slot_due", slug=slug, slot=slot, folded=due.folded, missed=due.missed)

        await services.insist(write)

    def _zone(self, slug: str) -> tzinfo | None:
        """The zone that rules a schedule of the wall clock."""
        ruling = self._set[slug][1]
        found = (zone for zone, name, _ in self.services.zones.values() if name == ruling)
        return next(found, None)

    async def pass_over(
        self, fire: Fire, now: datetime, write: Callable[[Sequence[Mark]], Awaitable[None]]
    ) -> None:
        """Settle a fire that somebody chose to skip, and let its interval count from `now`.

        The fire of something else moves no interval, unless its moment was let go for that one.

        Args:
            fire: what is skipped.
            now: when.
            write: the transaction, given the marks that move in it.

        Raises:
            StoreError: the store does not take it; nothing has moved.
            ClaimLost: the fire is somebody else's by now.
        """
        slug, scheduler = fire.slug, self.scheduler
        async with self._lock:
            rule, _ = self._set.get(slug, (None, ""))
            let_go = isinstance(rule, Interval) and scheduler.due_of(slug) is None
            if slug in self._marks and (fire.cause == "schedule" or let_go):
                await self._move(slug, lambda mark: write((mark,)), passed_over=now.isoformat())
                scheduler.finished(slug, now)
            else:
                await write(())

    async def _is_overtaken(self, due: Due, now: datetime) -> bool:
        """Whether there is a run, over, going or about to go, from whose end to count instead."""
        backlog = await self.services.store.backlog(slug=due.slug, now=now)
        ended = not due.missed and self.scheduler.due_of(due.slug) is not None
        return ended or self.is_going(due.slug) or any(waiting.due <= now for waiting in backlog)


def _unreadable(automation: Automation) -> str | None:
    """The expression of an automation that is outside the grammar."""
    for trigger in automation.triggers:
        if isinstance(trigger, ScheduleTrigger) and trigger.schedule is None:
            return trigger.expression
    return None


def _why_not(expression: str) -> str:
    try:
        parse_schedule(expression)
    except ScheduleError as error:
        return error.problem.message
    # A grammar that changed while a file was known.
    return "outside the grammar"


__all__ = ["Agenda"]
