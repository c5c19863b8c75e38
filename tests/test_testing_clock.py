"""`ManualClock`: how time moves, what holds it, who wakes when."""

import asyncio
import doctest
import threading
from datetime import UTC, datetime, timedelta, timezone

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from drumbeat import testing
from drumbeat.runtime.clock import Driven
from drumbeat.testing import ManualClock, _agents, _checks, _clock, _deliverers, _examples, _idle

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


class Log:
    """Who woke, and after how many minutes."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.lines: list[tuple[str, float]] = []

    def add(self, name: str) -> None:
        self.lines.append((name, self.clock.monotonic() / 60))

    async def sleep(self, name: str, *minutes: float) -> None:
        for each in minutes:
            await self.clock.sleep(each * MINUTE)
            self.add(name)


@pytest.fixture
def log(clock: ManualClock) -> Log:
    return Log(clock)


# ---- reading it


def test_start_must_be_aware() -> None:
    with pytest.raises(ValueError, match="has no zone"):
        ManualClock(datetime(2026, 3, 1))  # noqa: DTZ001  that is what is refused


def test_now_is_utc_whatever_zone_start_was_in() -> None:
    clock = ManualClock(START.astimezone(timezone(5 * HOUR)))
    assert (clock.now(), clock.now().tzinfo, clock.monotonic()) == (START, UTC, 0.0)


@pytest.mark.anyio
async def test_a_year_of_small_steps_is_exact(clock: ManualClock) -> None:
    step = timedelta(days=1, microseconds=1)
    for _ in range(365):
        await clock.advance(step)
    assert clock.now() == START + 365 * step
    assert clock.monotonic() == (365 * step).total_seconds()


@pytest.mark.anyio
async def test_repr_shows_where_it_stands_and_how_many_sleep(clock: ManualClock) -> None:
    async with anyio.create_task_group() as group:
        for sleep in (clock.sleep, clock.nap):
            group.start_soon(sleep, HOUR)
        await clock.advance(MINUTE)
        assert repr(clock) == "<ManualClock 2026-03-01T12:01:00+00:00, 2 asleep>"
        group.cancel_scope.cancel()
    assert repr(clock) == "<ManualClock 2026-03-01T12:01:00+00:00, 0 asleep>"


def test_it_is_the_kind_of_clock_that_the_rooms_drive(clock: ManualClock) -> None:
    driven: Driven = clock
    assert isinstance(driven, Driven)


# ---- waking


@pytest.mark.anyio
async def test_sleepers_wake_by_deadline_then_by_arrival(clock: ManualClock, log: Log) -> None:
    async with anyio.create_task_group() as group:
        for name, minutes in (("c", 3), ("a", 1), ("b", 2), ("A", 1)):
            group.start_soon(log.sleep, name, minutes)
            await anyio.lowlevel.checkpoint()
        await clock.advance(2 * MINUTE)
        assert log.lines == [("a", 1), ("A", 1), ("b", 2)]
        assert clock.now() == START + 2 * MINUTE
        await clock.advance(MINUTE)
    assert log.lines[3:] == [("c", 3)]


@pytest.mark.anyio
async def test_each_sleeper_comes_to_rest_before_the_next_wakes(clock: ManualClock) -> None:
    """Two that wake at one instant never run in each other's midst."""
    steps: list[str] = []

    async def work(name: str) -> None:
        await clock.sleep(MINUTE)
        for part in "123":
            steps.append(name + part)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(work, "a")
        group.start_soon(work, "b")
        await clock.advance(MINUTE)
    assert sorted((steps[:3], steps[3:])) == [["a1", "a2", "a3"], ["b1", "b2", "b3"]]


@pytest.mark.anyio
async def test_one_advance_passes_many_sleeps_of_one_task(clock: ManualClock, log: Log) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(log.sleep, "a", 1, 2, 3)
        await clock.advance(HOUR)
    assert log.lines == [("a", 1), ("a", 3), ("a", 6)]


@pytest.mark.anyio
async def test_work_that_is_ready_is_done_before_time_moves(clock: ManualClock) -> None:
    seen: list[datetime] = []

    async def work() -> None:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        seen.append(clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await clock.advance(MINUTE)
        assert seen == [START]


@pytest.mark.anyio
async def test_what_waking_sets_going_is_done_when_advance_returns(clock: ManualClock) -> None:
    seen: list[int] = []
    send, receive = anyio.create_memory_object_stream[int](0)

    async def first() -> None:
        async with send:
            await clock.sleep(MINUTE)
            await send.send(1)

    async def second() -> None:
        async with receive:
            async for item in receive:
                await anyio.lowlevel.checkpoint()
                seen.append(item)

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        group.start_soon(second)
        await clock.advance(MINUTE)
        assert seen == [1]


@pytest.mark.anyio
@pytest.mark.parametrize("delay", [timedelta(0), -MINUTE])
async def test_sleeping_for_nothing_is_a_checkpoint(clock: ManualClock, delay: timedelta) -> None:
    await clock.sleep(delay)
    await clock.nap(delay)
    await clock.watch(delay)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await clock.sleep(delay)
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_a_sleep_without_end_does_not_overflow(clock: ManualClock) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, timedelta.max)
        await clock.advance(HOUR)
        assert clock.now() == START + HOUR
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_cancelled_sleep_makes_no_stop(clock: ManualClock, log: Log) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(log.sleep, "gone", 1)
        group.start_soon(clock.nap, MINUTE)
        await clock.advance(timedelta(0))
        group.cancel_scope.cancel()
    await log.sleep("now", 0)
    async with anyio.create_task_group() as group:
        group.start_soon(log.sleep, "stays", 2)
        await clock.advance(HOUR)
    assert log.lines == [("now", 0), ("stays", 2)]


@pytest.mark.anyio
async def test_a_sleeper_may_cancel_the_next_one(clock: ManualClock, log: Log) -> None:
    async with anyio.create_task_group() as group:

        async def canceller() -> None:
            await log.sleep("first", 1)
            scope.cancel()

        async def cancelled() -> None:
            with scope:
                await log.sleep("second", 1)

        scope = anyio.CancelScope()
        group.start_soon(canceller)
        await clock.advance(timedelta(0))
        group.start_soon(cancelled)
        await clock.advance(HOUR)
    assert log.lines == [("first", 1)]


# ---- naps


@pytest.mark.anyio
async def test_a_nap_makes_no_stop(clock: ManualClock, log: Log) -> None:
    """It ends at the first stop at or after its deadline, before the sleeper of that stop wakes."""

    async def nap() -> None:
        while True:
            await clock.nap(10 * MINUTE)
            log.add("nap")

    async with anyio.create_task_group() as group:
        group.start_soon(log.sleep, "sleep", 5, 20)
        group.start_soon(nap)
        await clock.advance(HOUR)
        group.cancel_scope.cancel()
    assert log.lines == [("sleep", 5), ("nap", 25), ("sleep", 25), ("nap", 60)]


@pytest.mark.anyio
async def test_a_nap_can_call_off_the_sleeper_of_its_stop(clock: ManualClock, log: Log) -> None:
    scope = anyio.CancelScope()

    async def sleeper() -> None:
        with scope:
            await log.sleep("sleeper", 5)

    async def napper() -> None:
        await clock.nap(MINUTE)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(sleeper)
        group.start_soon(napper)
        await clock.advance(HOUR)
    assert log.lines == []


# ---- holding


@pytest.mark.anyio
async def test_time_stands_still_while_a_block_waits_for_a_thread(clock: ManualClock) -> None:
    let_go = threading.Event()
    seen: list[datetime] = []

    async def work() -> None:
        await clock.sleep(MINUTE)
        with clock.holding("a thread"):
            await anyio.to_thread.run_sync(let_go.wait)
        seen.append(clock.now())

    async def release() -> None:
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        let_go.set()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await clock.advance(timedelta(0))
        group.start_soon(clock.advance, HOUR)
        await release()
    assert seen == [START + MINUTE]
    assert clock.now() == START + HOUR


@pytest.mark.anyio
async def test_a_block_that_sleeps_lets_time_pass(clock: ManualClock, log: Log) -> None:
    async def work() -> None:
        with clock.holding("a run"), clock.holding("a turn"):
            await log.sleep("inside", 5)
        log.add("outside")

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await clock.advance(HOUR)
        assert log.lines == [("inside", 5), ("outside", 5)]


@pytest.mark.anyio
async def test_a_child_that_sleeps_lets_go_of_its_parents_block(
    clock: ManualClock, log: Log
) -> None:
    async def work() -> None:
        with clock.holding("a turn"):
            async with anyio.create_task_group() as children:
                children.start_soon(log.sleep, "child", 5)
                children.start_soon(log.sleep, "child", 7)
            await anyio.to_thread.run_sync(int)
        log.add("after")

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await clock.advance(HOUR)
        assert log.lines == [("child", 5), ("child", 7), ("after", 7)]


@pytest.mark.anyio
async def test_there_is_no_gap_between_waking_and_holding_again(clock: ManualClock) -> None:
    """A sleeper of a block works in a thread right after waking; nobody else wakes meanwhile."""
    seen: list[datetime] = []

    async def work() -> None:
        with clock.holding("a turn"):
            for _ in range(20):
                await clock.sleep(MINUTE)
                before = clock.now()
                await anyio.to_thread.run_sync(int)
                assert clock.now() == before
                seen.append(before)

    async def beat() -> None:
        while True:
            await clock.sleep(timedelta(seconds=1))

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        group.start_soon(beat)
        await clock.advance(20 * MINUTE)
        assert seen == [START + number * MINUTE for number in range(1, 21)]
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_cancelled_sleep_takes_its_block_back(clock: ManualClock) -> None:
    """What a block does after its sleep was cancelled holds time like everything else in it."""
    seen: list[datetime] = []
    scope = anyio.CancelScope()

    async def work() -> None:
        with clock.holding("a turn"):
            with scope:
                await clock.sleep(HOUR)
            await anyio.to_thread.run_sync(int)
            seen.append(clock.now())

    async def cancel() -> None:
        await clock.sleep(MINUTE)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        group.start_soon(cancel)
        await clock.advance(2 * HOUR)
        assert seen == [START + MINUTE]


@pytest.mark.anyio
async def test_an_inner_block_holds_while_a_sibling_sleeps(clock: ManualClock, log: Log) -> None:
    async def work() -> None:
        with clock.holding("a child process"):
            await anyio.to_thread.run_sync(int)
            log.add("work")

    async with anyio.create_task_group() as group:
        with clock.holding("a run"):
            group.start_soon(log.sleep, "sibling", 1)
            group.start_soon(work)
            await clock.advance(MINUTE)
    assert log.lines == [("work", 0), ("sibling", 1)]


@pytest.mark.anyio
async def test_a_watch_lets_nothing_go(clock: ManualClock) -> None:
    """A limit beside work cannot pass while the work is waiting for somebody else."""
    done: list[datetime] = []

    async def work() -> None:
        with clock.holding("a turn"):
            async with anyio.create_task_group() as limited:
                limited.start_soon(clock.watch, MINUTE)
                await anyio.to_thread.run_sync(int)
                done.append(clock.now())
                limited.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await clock.advance(HOUR)
        assert done == [START]


@pytest.mark.anyio
async def test_a_watch_wakes_at_its_deadline(clock: ManualClock) -> None:
    woken: list[datetime] = []

    async def watch() -> None:
        await clock.watch(MINUTE)
        woken.append(clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await clock.advance(MINUTE - timedelta(microseconds=1))
        assert woken == []
        await clock.advance(timedelta(microseconds=1))
    assert woken == [START + MINUTE]


@pytest.mark.anyio
async def test_two_clocks_hold_each_for_itself(clock: ManualClock) -> None:
    other = ManualClock(START)
    with other.holding("the other's work"):
        await clock.advance(HOUR)
        async with anyio.create_task_group() as group:
            with clock.holding("work"):
                group.start_soon(other.sleep, HOUR)
            await clock.advance(HOUR)
            group.cancel_scope.cancel()
    assert clock.now() == START + 2 * HOUR
    assert other.now() == START


@pytest.mark.anyio
async def test_a_block_may_end_while_its_child_sleeps_on(clock: ManualClock, log: Log) -> None:
    async with anyio.create_task_group() as group:
        with clock.holding("a run"):
            group.start_soon(log.sleep, "child", 5, 5)
            await anyio.lowlevel.checkpoint()
        await clock.advance(HOUR)
    assert log.lines == [("child", 5), ("child", 10)]


@pytest.mark.anyio
async def test_a_block_may_end_in_another_context_than_it_began(clock: ManualClock) -> None:
    block = clock.holding("a fixture")

    async def enter() -> None:
        block.__enter__()

    async with anyio.create_task_group() as group:
        group.start_soon(enter)
    block.__exit__(None, None, None)
    await clock.advance(HOUR)
    assert clock.now() == START + HOUR


@pytest.mark.anyio
async def test_code_inside_a_block_may_advance_the_clock(clock: ManualClock) -> None:
    with clock.holding("a turn that takes an hour"):
        await clock.advance(HOUR)
    assert clock.now() == START + HOUR


# ---- what advance refuses


@pytest.mark.anyio
async def test_advance_does_not_go_back(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match=r"go back by 0:01:00: use jump\(\)"):
        await clock.advance(-MINUTE)


@pytest.mark.anyio
async def test_two_advances_at_once_are_refused(clock: ManualClock) -> None:
    async def advance_too() -> None:
        await clock.sleep(MINUTE)
        with pytest.raises(RuntimeError, match="under way already"):
            await clock.advance(MINUTE)

    async with anyio.create_task_group() as group:
        group.start_soon(advance_too)
        await clock.advance(HOUR)
    assert clock.now() == START + HOUR


@pytest.mark.anyio
async def test_advance_past_the_year_9999_changes_nothing(clock: ManualClock) -> None:
    with pytest.raises(OverflowError):
        await clock.advance(timedelta.max)
    assert clock.now() == START
    await clock.advance(MINUTE)


@pytest.mark.anyio
async def test_a_block_that_never_ends_is_named() -> None:
    clock = ManualClock(START, patience=timedelta(milliseconds=50))

    async def work() -> None:
        await clock.sleep(MINUTE)
        with clock.holding("the delivery of 42"):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        with pytest.raises(RuntimeError) as caught:
            await clock.advance(HOUR)
        assert str(caught.value) == (
            "time cannot move on from 2026-03-01T12:01:00+00:00; going on: the delivery of 42 "
            "(waited 0:00:00.050000 of real time)"
        )
        assert clock.now() == START + MINUTE
        group.cancel_scope.cancel()
    await clock.advance(HOUR)


@pytest.mark.anyio
async def test_a_task_that_never_rests_is_named() -> None:
    clock = ManualClock(START, patience=timedelta(milliseconds=50))

    async def restless() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(restless, name="the restless one")
        with pytest.raises(RuntimeError, match="tasks that keep running: the restless one"):
            await clock.advance(HOUR)
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_advance_can_be_cancelled(clock: ManualClock) -> None:
    async with anyio.create_task_group() as group:

        async def work() -> None:
            await clock.sleep(MINUTE)
            with clock.holding("work"):
                group.cancel_scope.cancel()
                await anyio.sleep_forever()

        group.start_soon(work)
        await clock.advance(HOUR)
    assert clock.now() == START + MINUTE
    await clock.advance(HOUR)


@pytest.mark.anyio
async def test_a_task_that_ignores_its_cancellation_does_not_hold_time(clock: ManualClock) -> None:
    """On asyncio anyio tries again and again meanwhile, so that the loop is never idle."""
    ended = anyio.Event()

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            await ended.wait()

    async def work() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with anyio.create_task_group() as inner:
                inner.start_soon(stubborn)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await clock.advance(HOUR)
        ended.set()
    assert clock.now() == START + HOUR


# ---- jumps


@pytest.mark.anyio
@pytest.mark.parametrize("by", [timedelta(days=1), -timedelta(days=1)])
async def test_a_jump_moves_the_wall_clock_alone(
    clock: ManualClock, log: Log, by: timedelta
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(log.sleep, "a", 5)
        await clock.advance(MINUTE)
        clock.jump(by)
        assert clock.now() == START + MINUTE + by
        assert clock.monotonic() == 60
        await clock.advance(HOUR)
    assert log.lines == [("a", 5)]
    assert clock.now() == START + MINUTE + by + HOUR


def test_a_jump_out_of_the_calendar_changes_nothing(clock: ManualClock) -> None:
    with pytest.raises(OverflowError):
        clock.jump(-timedelta.max)
    assert clock.now() == START


# ---- seeing that all others are blocked


@pytest.mark.parametrize("shows_queue", [True, False])
def test_callbacks_under_way_are_waited_for(
    shows_queue: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a loop of another make, which shows no queue and is watched task by task."""
    if not shows_queue:
        monkeypatch.setattr(_idle, "_ready_queue", lambda: None)
    seen: list[str] = []

    async def chain() -> None:
        # at each passing from future to future every task looks blocked for a moment
        for _ in range(3):
            await asyncio.gather(asyncio.shield(asyncio.gather(asyncio.sleep(0))))
        seen.append("done")

    async def main() -> None:
        task = asyncio.ensure_future(chain())
        waiting = asyncio.ensure_future(asyncio.Event().wait())
        await _idle.all_others_blocked()
        assert seen == ["done"]
        assert await _idle.busy_tasks() == []
        waiting.cancel()
        await asyncio.wait([task, waiting])

    asyncio.run(main())


def test_a_task_of_another_make_counts_as_blocked() -> None:
    assert not _idle._can_run(object())  # type: ignore[arg-type]  # no Task of CPython's


@pytest.mark.anyio
async def test_all_is_blocked_after_a_chain_of_callbacks() -> None:
    seen: list[str] = []

    async def work(depth: int) -> None:
        if depth:
            async with anyio.create_task_group() as group:
                group.start_soon(work, depth - 1)
        seen.append(str(depth))

    async with anyio.create_task_group() as group:
        group.start_soon(work, 5)
        await _idle.all_others_blocked()
        assert seen == list("012345")


# ---- the documentation


@pytest.mark.parametrize("module", [_clock, _agents, _deliverers, _examples, _checks])
def test_the_examples_of_the_docstrings_run(module: object) -> None:
    names = {name: getattr(testing, name) for name in testing.__all__}
    names |= {"anyio": anyio, "datetime": datetime, "timedelta": timedelta, "UTC": UTC}
    result = doctest.testmod(module, extraglobs=names)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0
