"""The one place that reads a clock, and how a clock that is driven learns what is going on.

Theory of operation. A clock that is driven (`drumbeat.testing.ManualClock`) moves only while
nothing is going on, so it has to know what is. Everything that leaves the host's loop or waits for
somebody else (a store call, a child process, a turn, a delivery) runs inside
`holding(clock, "what it is")`, which costs nothing on a real clock. What happens between two of
these is a task that is ready to run, and the driven clock sees that for itself.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Generic, Protocol, TypeVar, runtime_checkable

import anyio
import attrs

from drumbeat.core.asked import check_span
from drumbeat.protocols import Clock

T = TypeVar("T")


class SystemClock(Clock):
    """The machine's own clock."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; a step of the wall clock does not move it."""
        return monotonic()

    async def sleep(self, delay: timedelta, /) -> None:
        """Sleep for `delay` of real time; a checkpoint at least.

        Raises:
            TypeError: `delay` is no timedelta.
        """
        await anyio.sleep(max(0.0, check_span("delay", delay).total_seconds()))


@runtime_checkable
class Driven(Protocol):
    """What a clock offers besides `Clock` when it is moved by hand."""

    def holding(self, what: str) -> AbstractContextManager[None]:
        """Keep time still while the block runs, except while it sleeps on this clock."""
        ...

    async def nap(self, delay: timedelta) -> None:
        """Sleep without pulling time: wake at the first stop at or after `delay`."""
        ...

    async def watch(self, delay: timedelta) -> None:
        """Sleep, but let the blocks of `holding` around it go on holding."""
        ...


def holding(clock: Clock, what: str) -> AbstractContextManager[None]:
    """Say that `what` is going on, so that a driven clock stands still meanwhile."""
    return clock.holding(what) if isinstance(clock, Driven) else nullcontext()


async def nap(clock: Clock, delay: timedelta) -> None:
    """Sleep for a look around that nobody waits for: a driven clock makes no stop for it."""
    if isinstance(clock, Driven):
        await clock.nap(delay)
    else:
        await clock.sleep(delay)


async def watch(clock: Clock, delay: timedelta) -> None:
    """Sleep beside somebody else's work, whose time limit this is.

    On a driven clock it does not look like rest: while that work is going on inside `holding`, time
    stands still and the limit cannot pass.
    """
    if isinstance(clock, Driven):
        await clock.watch(delay)
    else:
        await clock.sleep(delay)


@attrs.define
class _Box(Generic[T]):
    value: T | None = None
    error: BaseException | None = None
    done: bool = False
    late: bool = False


class OverTime(Exception):  # noqa: N818  a signal between rooms, never shown to a host
    """`bounded` ended its call because the time was up."""


class SelfCancelled(Exception):  # noqa: N818  a signal between rooms, never shown to a host
    """The call of `bounded` ended in a cancellation that nobody had asked for."""


def is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C, or a group with one in it: nobody's failure, and the host's end."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(KeyboardInterrupt) is not None
    return isinstance(error, KeyboardInterrupt)


async def bounded(
    clock: Clock,
    limit: timedelta | None,
    call: Callable[[], Awaitable[T]],
    *,
    stuck_after: timedelta | None = None,
    stuck: Callable[[], Awaitable[None]] | None = None,
) -> T:
    """Await `call()` in a task of its own and return what it returns.

    Args:
        clock: what the limit is measured on.
        limit: cancel the call after this long; None for never.
        call: what to await.
        stuck_after: how long a cancelled call may go on before `stuck` is awaited.
        stuck: told once when the call ignores its cancellation.

    Raises:
        OverTime: the limit ended the call.
        SelfCancelled: the call cancelled itself.
        BaseExceptionGroup: a `KeyboardInterrupt` met the call (`is_interrupt`). On asyncio the loop
            ends by it before that.
        BaseException: whatever else the call raised, as it is, never wrapped in a group.
    """
    box: _Box[T] = _Box()

    async def work(scope: anyio.CancelScope) -> None:
        try:
            with scope:
                box.value = await call()
                box.done = True
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise  # asyncio's loop lets it through at once, and a group goes up to the host
            box.error = error
        finally:
            group.cancel_scope.cancel()

    async def guard(scope: anyio.CancelScope) -> None:
        if limit is not None:
            await watch(clock, limit)
            box.late = True
            scope.cancel()
            if stuck is not None and stuck_after is not None:
                await watch(clock, stuck_after)
                await stuck()

    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()
        group.start_soon(work, scope)
        group.start_soon(guard, scope)
    if box.done:
        return box.value  # type: ignore[return-value]  # set just before `done`
    if box.error is not None:
        raise box.error
    await anyio.lowlevel.checkpoint_if_cancelled()
    if box.late:
        raise OverTime
    raise SelfCancelled


async def attended(
    clock: Clock,
    patience: timedelta,
    call: Callable[[], Awaitable[T]],
    report: Callable[[], Awaitable[None]],
) -> T:
    """Await `call()`, and `report()` beside it when it goes on for long after it was cancelled.

    Args:
        clock: what `patience` is measured on.
        patience: how long a cancelled call may go on.
        call: what to await, in this task.
        report: awaited once at most.

    Raises:
        Exception: whatever the call raised, as it is, never wrapped in a group.
    """
    over = anyio.CancelScope(shield=True)

    async def attend() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with over:
                await watch(clock, patience)
                await report()

    async with anyio.create_task_group() as group:
        group.start_soon(attend)
        try:
            return await call()
        except Exception as error:  # noqa: BLE001  raised outside: a group would wrap it
            raised = error
        finally:
            over.cancel()
            group.cancel_scope.cancel()
    raise raised
