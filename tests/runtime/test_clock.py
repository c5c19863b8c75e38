"""The real clock, what the rooms say to a driven one, and calls with a limit."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from drumbeat.runtime.clock import (
    OverTime,
    SelfCancelled,
    SystemClock,
    bounded,
    holding,
    is_interrupt,
    nap,
    watch,
)
from drumbeat.testing import ManualClock

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


async def returns() -> str:
    await anyio.lowlevel.checkpoint()
    return "value"


async def never() -> str:
    await anyio.sleep_forever()
    raise AssertionError


# ---- the machine's clock


def test_the_system_clock_is_aware_in_utc() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.now() > datetime(2026, 1, 1, tzinfo=UTC)


def test_the_system_clock_does_not_go_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


@pytest.mark.anyio
@pytest.mark.parametrize("delay", [-MINUTE, timedelta(0), timedelta(milliseconds=2)])
async def test_a_real_sleep_lasts_its_delay_at_least(delay: timedelta) -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(delay)
    # a loop's timer may be off by its resolution
    assert clock.monotonic() - before >= delay.total_seconds() - 0.001


@pytest.mark.anyio
@pytest.mark.parametrize("sleep", [SystemClock().sleep, lambda delay: nap(SystemClock(), delay)])
async def test_a_real_sleep_is_a_checkpoint(sleep: Callable[[timedelta], Awaitable[None]]) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await sleep(timedelta(0))
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_on_a_real_clock_a_nap_and_a_watch_are_sleeps() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await nap(clock, timedelta(milliseconds=2))
    await watch(clock, timedelta(milliseconds=2))
    assert clock.monotonic() - before >= 0.003


def test_on_a_real_clock_holding_does_nothing() -> None:
    assert isinstance(holding(SystemClock(), "nothing"), nullcontext)


# ---- a driven clock


@pytest.mark.anyio
async def test_a_driven_clock_hears_of_holding(clock: ManualClock) -> None:
    seen: list[datetime] = []

    async def work() -> None:
        with holding(clock, "a thread"):
            await anyio.to_thread.run_sync(int)
            seen.append(clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await clock.advance(HOUR)
    assert seen == [START]


@pytest.mark.anyio
async def test_a_driven_clock_makes_no_stop_for_a_nap(clock: ManualClock) -> None:
    woke: list[datetime] = []

    async def napper() -> None:
        await nap(clock, MINUTE)
        woke.append(clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(napper)
        await clock.advance(HOUR)
    assert woke == [START + HOUR]


# ---- bounded


@pytest.mark.anyio
@pytest.mark.parametrize("limit", [None, MINUTE])
async def test_bounded_returns_what_the_call_returns(
    clock: ManualClock, limit: timedelta | None
) -> None:
    assert await bounded(clock, limit, returns) == "value"
    await clock.advance(HOUR)


@pytest.mark.anyio
async def test_bounded_returns_none_from_a_call_that_returns_it(clock: ManualClock) -> None:
    answers: list[object] = ["nothing yet"]
    answers.append(await bounded(clock, MINUTE, anyio.lowlevel.checkpoint))
    assert answers[-1] is None


@pytest.mark.anyio
async def test_bounded_raises_what_the_call_raises_as_it_is(clock: ManualClock) -> None:
    error = KeyError("gone")

    async def fails() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await bounded(clock, MINUTE, fails)
    assert caught.value is error


@pytest.mark.anyio
async def test_bounded_raises_a_group_of_the_call_as_it_is(clock: ManualClock) -> None:
    """A call that fails with a group of its own keeps it, and gets no second one around it."""
    group = ExceptionGroup("two", [KeyError("a"), KeyError("b")])

    async def fails() -> None:
        raise group

    with pytest.raises(ExceptionGroup) as caught:
        await bounded(clock, None, fails)
    assert caught.value is group


@pytest.mark.anyio
async def test_bounded_ends_a_call_at_its_limit(clock: ManualClock) -> None:
    ended: list[tuple[str, datetime]] = []

    async def call() -> None:
        with pytest.raises(OverTime):
            await bounded(clock, MINUTE, never)
        ended.append(("over time", clock.now()))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await clock.advance(HOUR)
    assert ended == [("over time", START + MINUTE)]


@pytest.mark.anyio
async def test_the_limit_does_not_pass_while_time_is_held(clock: ManualClock) -> None:
    """A call that waits for a thread under a block around `bounded` is not over time."""
    results: list[str] = []

    async def slow() -> str:
        for _ in range(20):
            await anyio.to_thread.run_sync(int)
        return "value"

    async def call() -> None:
        with holding(clock, "a turn"):
            results.append(await bounded(clock, MINUTE, slow))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await clock.advance(HOUR)
    assert results == ["value"]


@pytest.mark.anyio
async def test_a_value_that_comes_after_the_limit_is_not_lost(clock: ManualClock) -> None:
    async def shielded() -> str:
        with anyio.CancelScope(shield=True):
            await clock.sleep(2 * MINUTE)
        return "late"

    results: list[str] = []

    async def call() -> None:
        results.append(await bounded(clock, MINUTE, shielded))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await clock.advance(HOUR)
    assert results == ["late"]


@pytest.mark.anyio
@pytest.mark.parametrize("ignores_for, told", [(10, True), (1, False)])
async def test_a_call_that_ignores_its_cancellation_is_reported_as_stuck_once(
    clock: ManualClock, ignores_for: int, told: bool
) -> None:
    reports: list[datetime] = []

    async def shielded() -> None:
        with anyio.CancelScope(shield=True):
            await clock.sleep(MINUTE + ignores_for * MINUTE)
        await anyio.sleep_forever()

    async def stuck() -> None:
        reports.append(clock.now())

    async def call() -> None:
        with pytest.raises(OverTime):
            await bounded(clock, MINUTE, shielded, stuck_after=5 * MINUTE, stuck=stuck)

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await clock.advance(HOUR)
    assert reports == ([START + 6 * MINUTE] if told else [])


@pytest.mark.anyio
async def test_cancelling_the_caller_cancels_the_call(clock: ManualClock) -> None:
    ended: list[str] = []

    async def call() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("call")

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(bounded, clock, MINUTE, call)
            await clock.advance(timedelta(0))
            scope.cancel()
    assert ended == ["call"]
    assert scope.cancelled_caught


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_call_that_cancels_itself_is_told_from_one_that_was_cancelled(
    clock: ManualClock,
) -> None:
    """Only asyncio lets a call raise a cancellation that nobody asked for."""

    async def cancels() -> None:
        raise anyio.get_cancelled_exc_class()

    with pytest.raises(SelfCancelled):
        await bounded(clock, MINUTE, cancels)


@pytest.mark.parametrize("grouped", [False, True])
def test_an_interrupt_from_the_keyboard_is_not_taken_for_a_failure(
    clock: ManualClock, grouped: bool
) -> None:
    """It ends the program, also out of a task group of the call's own making.

    On asyncio the loop itself lets it through.
    """

    async def interrupted() -> None:
        if not grouped:
            raise KeyboardInterrupt
        async with anyio.create_task_group() as group:
            group.start_soon(broken)
            raise KeyboardInterrupt

    async def broken() -> None:
        msg = "fell with it"
        raise ValueError(msg)

    with pytest.raises(BaseExceptionGroup) as caught:
        anyio.run(bounded, clock, MINUTE, interrupted, backend="trio")
    assert is_interrupt(caught.value)
