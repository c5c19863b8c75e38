"""The scheduler: tells, one by one, which slug is due."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta, tzinfo
from typing import Self

import anyio
from anyio.lowlevel import checkpoint

from drumbeat.core.asked import check_span
from drumbeat.core.model import Due, Schedule
from drumbeat.core.planner import Planner
from drumbeat.protocols import Clock
from drumbeat.runtime.clock import SystemClock, nap
from drumbeat.runtime.log import log

__all__ = ["Scheduler"]

JUMP = timedelta(seconds=5)
"""How far wall clock and monotonic clock may part between two looks before it is a jump."""


class Scheduler:
    """Schedules of many slugs, iterated as they fall due. Works alone, without an engine.

    ```python
    async with Scheduler(zone=ZoneInfo("Europe/Berlin")) as scheduler:
        scheduler.set("brief", parse_schedule("daily at 07:00"))
        async for due in scheduler:
            ...
    ```

    What it guarantees (spec, section 4):

    - A slot is given out once, however the clock is set. After a sleep, a stall or downtime all
      slots that a slug missed are folded into one `Due`: the newest, `folded` the number of the
      others (at most 1,000 are counted), `missed` when it is later than `catch_up` allows.
    - An interval's slot is the last finish plus the interval; once given out, the slug has no
      further slot until `finished` is called, except when it was `missed`: then it counts from
      that moment by itself.
    - `set`, `finished` and `remove` take effect at once, also while the iteration sleeps.
    - A sleep never lasts longer than `max_sleep`, so that a jump of the clock is noticed.

    All methods belong to the event loop's thread. One task iterates at a time. Leaving the context
    ends the iteration; nothing is kept on disk.

    Args:
        zone: rules wall-clock schedules that are set without a zone of their own.
        clock: where time comes from; the machine's own when None.
        catch_up: how late a slot may be and still be worth running. Up to a minute late is always
            on time.
        max_sleep: the longest sleep.
        on_jump: called with the distance when wall clock and monotonic clock part, negative when
            the wall clock went back; it may be assigned later. When None, the jump is logged as
            `clock_jumped`. A suspended machine shows as a jump forward.

    Raises:
        TypeError: `catch_up` or `max_sleep` is no timedelta.
    """

    on_jump: Callable[[timedelta], None] | None

    def __init__(
        self,
        *,
        zone: tzinfo,
        clock: Clock | None = None,
        catch_up: timedelta = timedelta(hours=24),
        max_sleep: timedelta = timedelta(seconds=60),
        on_jump: Callable[[timedelta], None] | None = None,
    ) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._planner = Planner(zone=zone, catch_up=catch_up)
        self._max_sleep = check_span("max_sleep", max_sleep)
        self.on_jump = on_jump
        self._seen: tuple[datetime, float] | None = None
        self._changed = anyio.Event()
        self._state: str = "new"
        self._iterating = False

    async def __aenter__(self) -> Self:
        """Open for iteration.

        Raises:
            RuntimeError: it was entered before.
        """
        if self._state != "new":
            msg = "a Scheduler is entered once; make another one"
            raise RuntimeError(msg)
        self._state = "open"
        await checkpoint()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End the iteration: whoever waits for a slot leaves its `async for`."""
        self._state = "closed"
        self._wake()

    def set(
        self,
        slug: str,
        schedule: Schedule,
        *,
        first_seen: datetime | None = None,
        last_slot: datetime | None = None,
        last_finish: datetime | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        """Put a schedule in, or in the place of another one.

        The first time, the marks of an earlier process say what is owed; without them everything
        counts from now. Set again with an equal schedule and zone, nothing changes, whatever the
        marks. Set again with another one: wall clock, the first slot from now on; an interval, the
        later of now and the last finish plus the interval. Other slugs are not touched.

        Args:
            slug: whose schedule.
            schedule: made by `parse_schedule`.
            first_seen: when the slug or its present schedule was first seen. An interval that
                never ran counts from here; wall-clock slots up to it are not owed.
            last_slot: the last slot that was given out; later ones are owed. An interval whose
                finish was not recorded since counts from here.
            last_finish: when its last run finished, whatever caused it.
            zone: rules this schedule in the place of the scheduler's own zone.

        Raises:
            ScheduleError: `schedule` is none, or has no slot in its zone; the slug then has no
                schedule.
            TypeError: an instant is no datetime.
            ValueError: an instant is not aware.
        """
        try:
            self._planner.set(
                slug,
                schedule,
                now=self._clock.now(),
                zone=zone,
                first_seen=first_seen,
                last_slot=last_slot,
                last_finish=last_finish,
            )
        finally:
            self._wake()

    def finished(self, slug: str, at: datetime) -> None:
        """Say that a run of `slug` ended, whatever caused it; an interval counts from `at`.

        Call it as well for a slot that is skipped: it counts from the moment it was skipped. An
        unknown slug is ignored.

        Raises:
            TypeError: `at` is no datetime.
            ValueError: `at` is not aware.
        """
        self._planner.finished(slug, at)
        self._wake()

    def remove(self, slug: str) -> None:
        """Forget `slug`; an unknown one is ignored."""
        self._planner.remove(slug)
        self._wake()

    def next_due(self) -> datetime | None:
        """The earliest next slot of all slugs, past when it is overdue; None when there is none."""
        return self._planner.next_due()

    def due_of(self, slug: str) -> datetime | None:
        """The next slot of `slug`; None if it is unknown or waits for a run to finish."""
        return self._planner.due_of(slug)

    def __aiter__(self) -> AsyncIterator[Due]:
        """Iterate over slots as they fall due, the one that is due longest first."""
        return self

    async def __anext__(self) -> Due:
        """Wait for the next slot; cancelling the wait loses none.

        Raises:
            StopAsyncIteration: the context was left.
            RuntimeError: the context was not entered, or another task iterates.
        """
        if self._state == "new":
            msg = "enter the Scheduler first: `async with scheduler:`"
            raise RuntimeError(msg)
        if self._iterating:
            msg = "another task iterates over this Scheduler"
            raise RuntimeError(msg)
        self._iterating = True
        try:
            while True:
                await (
                    checkpoint()
                )  # before the take: nothing may be lost to a cancellation after it
                if self._state == "closed":
                    raise StopAsyncIteration
                changed = self._changed = anyio.Event()
                now = self._look()
                due = self._planner.take(now)
                if due is not None:
                    return due
                await self._sleep(changed, now)
        finally:
            self._iterating = False

    async def _sleep(self, changed: anyio.Event, now: datetime) -> None:
        """Sleep until the next slot or a change, and no longer than `max_sleep`."""
        due = self._planner.next_due()

        async def until_due(delay: timedelta) -> None:
            await self._clock.sleep(delay)
            changed.set()

        async def look_around() -> None:
            await nap(self._clock, self._max_sleep)
            changed.set()

        async with anyio.create_task_group() as group:
            if due is not None:
                group.start_soon(until_due, due - now)
            if due is None or due - now > self._max_sleep:
                group.start_soon(look_around)
            await changed.wait()
            group.cancel_scope.cancel()

    def _look(self) -> datetime:
        """Read the clock, and notice when it was set."""
        now, steady = self._clock.now(), self._clock.monotonic()
        if self._seen is not None:
            seen, seen_steady = self._seen
            drift = (now - seen) - timedelta(seconds=steady - seen_steady)
            self._seen = (now, steady)
            if abs(drift) > JUMP:
                if drift < timedelta(0):
                    self._planner.clock_went_back(now)
                self._report(drift, now)
        self._seen = (now, steady)
        return now

    def _report(self, drift: timedelta, now: datetime) -> None:
        if self.on_jump is not None:
            self.on_jump(drift)
        else:
            log.warning("clock_jumped", seconds=drift.total_seconds(), now=now.isoformat())

    def _wake(self) -> None:
        self._changed.set()
