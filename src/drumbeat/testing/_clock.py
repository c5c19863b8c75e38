"""A clock that stands still until it is told to move.

Theory of operation. Time moves from one sleeper's deadline to the next, and only while nothing else
is going on: no block of `holding` is active and every other task of the loop is blocked. A block of
`holding` stops being active while code inside it (its own task, or a task started inside it) sleeps
on the clock. It becomes active again in the same instant in which the sleeper is woken, before the
sleeper's task has run, so there is no moment at which work in progress looks like none.

Deadlines are whole microseconds since the start, so that a sum of delays is exact and a year of
them drifts by nothing.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count

import anyio
import anyio.lowlevel
import attrs

from drumbeat.core.asked import check_instant, check_span
from drumbeat.protocols import Clock
from drumbeat.testing._idle import all_others_blocked, busy_tasks

__all__ = ["ManualClock"]

_MICROSECOND = timedelta(microseconds=1)


@attrs.define(eq=False)
class _Holder:
    clock: "ManualClock"
    what: str
    outer: "_Holder | None"
    asleep: int = 0
    ended: bool = False


@attrs.define(eq=False)
class _Sleeper:
    holders: tuple[_Holder, ...]
    woken: anyio.Event
    gone: bool = False


_innermost: ContextVar[_Holder | None] = ContextVar("drumbeat-innermost-holder", default=None)


class ManualClock(Clock):
    """A clock for tests: time moves through `advance` alone, and a month of it takes seconds.

    Give it to an `Engine` (several may share one) or to anything else that takes a `Clock`:

        >>> clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
        >>> anyio.run(clock.advance, timedelta(days=31))
        >>> clock.now().isoformat()
        '2026-04-01T00:00:00+00:00'

    What can be counted on:

    - Sleepers wake one at a time: the earliest deadline first, equal deadlines in the order in
      which they fell asleep. After each one, everything it set going comes to rest first.
    - While code runs inside `holding`, time stands still, however long that takes in real time
      (up to `patience`). A block in which some task sleeps on this clock lets time pass.
    - `now()` at waking is exactly the deadline, to the microsecond.

    What cannot: a task that waits for a thread, a socket or a child process outside of `holding`
    counts as blocked, and time may move on before it comes back. A clock belongs to one event loop,
    and only that loop's thread may call anything but `now` and `monotonic`.

    Args:
        start: the first `now()`; aware.
        patience: in real time, how long `advance` waits for things to come to rest before it
            raises (spec, section 12: 30 seconds).

    Raises:
        TypeError: `start` is no datetime, or `patience` no timedelta.
        ValueError: `start` is naive.
    """

    def __init__(self, start: datetime, *, patience: timedelta = timedelta(seconds=30)) -> None:
        if check_instant("start", start).tzinfo is None:
            msg = f"start is {start!r}, which has no zone: give it one, such as tzinfo=UTC"
            raise ValueError(msg)
        self._start = start.astimezone(UTC)
        self._jumped = timedelta(0)
        self._elapsed = 0
        self._patience = check_span("patience", patience)
        self._order = count()
        self._sleepers: list[tuple[int, int, _Sleeper]] = []
        self._nappers: list[tuple[int, int, _Sleeper]] = []
        self._holders: dict[_Holder, None] = {}
        self._active = 0
        self._released: anyio.Event | None = None
        self._advancing = False

    def __repr__(self) -> str:
        """Show where the clock stands and how many sleep on it."""
        asleep = sum(not each[2].gone for each in (*self._sleepers, *self._nappers))
        return f"<ManualClock {self.now().isoformat()}, {asleep} asleep>"

    # ---- the Clock

    def now(self) -> datetime:
        """Return the instant at which the clock stands, aware, in UTC."""
        return self._start + self._jumped + self._elapsed * _MICROSECOND

    def monotonic(self) -> float:
        """Return the seconds by which `advance` has moved the clock; `jump` does not count."""
        return (self._elapsed * _MICROSECOND).total_seconds()

    async def sleep(self, delay: timedelta, /) -> None:
        """Return once `advance` has come to `delay` from here; zero or less is a checkpoint.

        Raises:
            TypeError: `delay` is no timedelta.
        """
        await self._sleep(delay, self._sleepers, self._chain())

    # ---- what the engine uses besides (drumbeat.runtime.clock.Driven)

    @contextmanager
    def _hold(self, what: str) -> Iterator[None]:
        holder = _Holder(self, what, _innermost.get())
        _innermost.set(holder)
        self._holders[holder] = None
        self._active += 1
        try:
            yield
        finally:
            holder.ended = True
            del self._holders[holder]
            if not holder.asleep:
                self._less_active()
            # no reset by token: a generator may be closed in another context than it began in
            if _innermost.get() is holder:
                _innermost.set(holder.outer)

    def holding(self, what: str) -> AbstractContextManager[None]:
        """Keep time still while the block runs, except while it sleeps on this clock.

        Whatever waits for a thread, a socket or a child process belongs in such a block; an agent
        of a test that does needs none, as the engine has put one around it.

        Args:
            what: what is going on, for the message of an `advance` that waits in vain.
        """
        return self._hold(what)

    async def nap(self, delay: timedelta) -> None:
        """Sleep without making `advance` stop: wake at the first stop at or after `delay`.

        A stop is the deadline of any `sleep`, or the end of an `advance`. Those whose nap is over
        wake together, and come to rest before the sleeper of that stop is woken.
        """
        await self._sleep(delay, self._nappers, self._chain())

    async def watch(self, delay: timedelta) -> None:
        """Sleep as `sleep` does, but let the blocks of `holding` around it go on holding.

        For a time limit on somebody else's work, whose passing must not look like rest.
        """
        await self._sleep(delay, self._sleepers, ())

    # ---- moving it

    async def advance(self, by: timedelta) -> None:
        """Move time on by `by`, stopping at each sleeper's deadline on the way.

        First, after each stop and at the end it waits until nothing is going on, so that work which
        is ready is done before time moves and before this returns. Code that calls it inside a
        block of `holding` counts as asleep meanwhile. Cancelling it leaves the clock where it is.

        Args:
            by: how far, zero or more; zero waits for rest and wakes who is due.

        Raises:
            TypeError: `by` is no timedelta.
            ValueError: `by` is negative; see `jump`.
            OverflowError: `now()` would pass the year 9999.
            RuntimeError: another `advance` of this clock is under way, or things did not come to
                rest within `patience` of real time. The message names the blocks of `holding` that
                are active and the tasks that keep running; the clock stays at the last stop.
        """
        if check_span("by", by) < timedelta(0):
            msg = f"advance() cannot go back by {-by}: use jump() to set the wall clock back"
            raise ValueError(msg)
        if self._advancing:
            msg = "advance() is under way already: await one before the next"
            raise RuntimeError(msg)
        self.now() + by
        end = self._elapsed + by // _MICROSECOND
        self._advancing = True
        chain = self._chain()
        self._let_go(chain)
        try:
            await self._rest()
            while (deadline := self._next_deadline()) is not None and deadline <= end:
                self._elapsed = max(self._elapsed, deadline)
                if self._wake_nappers():
                    await self._rest()
                if self._wake_sleeper():
                    await self._rest()
            self._elapsed = end
            if self._wake_nappers():
                await self._rest()
        finally:
            self._take_back(chain)
            self._advancing = False

    def jump(self, by: timedelta) -> None:
        """Set the wall clock forward or back, as a correction of the machine's clock does.

        `monotonic()` and everybody's sleep stay as they are, and nobody wakes.

        Raises:
            OverflowError: `now()` would leave the years 1 to 9999.
            TypeError: `by` is no timedelta.
        """
        self.now() + check_span("by", by)
        self._jumped += by

    # ---- inside

    def _chain(self) -> tuple[_Holder, ...]:
        chain: list[_Holder] = []
        holder = _innermost.get()
        while holder is not None:
            if holder.clock is self and not holder.ended:
                chain.append(holder)
            holder = holder.outer
        return tuple(chain)

    def _let_go(self, holders: tuple[_Holder, ...]) -> None:
        for holder in holders:
            holder.asleep += 1
            if holder.asleep == 1 and not holder.ended:
                self._less_active()

    def _take_back(self, holders: tuple[_Holder, ...]) -> None:
        for holder in holders:
            holder.asleep -= 1
            if not holder.asleep and not holder.ended:
                self._active += 1

    def _less_active(self) -> None:
        self._active -= 1
        if not self._active and self._released is not None:
            self._released.set()

    async def _sleep(
        self,
        delay: timedelta,
        room: list[tuple[int, int, _Sleeper]],
        holders: tuple[_Holder, ...],
    ) -> None:
        if check_span("delay", delay) <= timedelta(0):
            await anyio.lowlevel.checkpoint()
            return
        sleeper = _Sleeper(holders, anyio.Event())
        heappush(room, (self._elapsed + delay // _MICROSECOND, next(self._order), sleeper))
        self._let_go(holders)
        try:
            await sleeper.woken.wait()
        finally:
            if not sleeper.woken.is_set():
                sleeper.gone = True
                self._take_back(holders)

    def _wake(self, sleeper: _Sleeper) -> None:
        self._take_back(sleeper.holders)
        sleeper.woken.set()

    def _next_deadline(self) -> int | None:
        while self._sleepers and self._sleepers[0][2].gone:
            heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake_sleeper(self) -> bool:
        deadline = self._next_deadline()
        if deadline is None or deadline > self._elapsed:
            return False
        self._wake(heappop(self._sleepers)[2])
        return True

    def _wake_nappers(self) -> bool:
        woke = False
        while self._nappers and (self._nappers[0][0] <= self._elapsed or self._nappers[0][2].gone):
            sleeper = heappop(self._nappers)[2]
            if not sleeper.gone:
                self._wake(sleeper)
                woke = True
        return woke

    async def _rest(self) -> None:
        with anyio.move_on_after(self._patience.total_seconds()):
            while True:
                if self._active:
                    self._released = anyio.Event()
                    try:
                        await self._released.wait()
                    finally:
                        self._released = None
                await all_others_blocked()
                if not self._active:
                    return
        raise RuntimeError(await self._why_no_rest())

    async def _why_no_rest(self) -> str:
        active = [holder.what for holder in self._holders if not holder.asleep]
        busy = await busy_tasks()
        parts = [f"time cannot move on from {self.now().isoformat()}"]
        if active:
            parts.append("going on: " + ", ".join(active))
        if busy:
            parts.append("tasks that keep running: " + ", ".join(busy))
        return "; ".join(parts) + f" (waited {self._patience} of real time)"
