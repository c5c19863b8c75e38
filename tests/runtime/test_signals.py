"""A call that wakes is never lost, and a wait can have an end."""

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from drumbeat.runtime.signals import Signal
from drumbeat.testing import ManualClock

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def test_a_call_between_looking_and_waiting_is_seen() -> None:
    signal = Signal()
    seen = signal.count
    signal.notify()
    with anyio.fail_after(5):
        await signal.wait(seen)
        await signal.wait(seen, clock=ManualClock(START), limit=MINUTE)
    with anyio.move_on_after(0) as scope:
        await signal.wait(signal.count)
    assert scope.cancelled_caught


async def test_every_waiter_is_woken() -> None:
    signal = Signal()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await signal.wait(seen)
        woken.append(number)

    seen = signal.count
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(wait, number)
        await anyio.wait_all_tasks_blocked()
        assert woken == []
        signal.notify()
    assert sorted(woken) == [0, 1, 2]


@pytest.mark.parametrize("how", ["limit", "glance"])
async def test_a_wait_ends_when_its_time_is_up(how: str) -> None:
    signal, clock = Signal(), ManualClock(START)
    ended: list[datetime] = []

    async def wait() -> None:
        await signal.wait(signal.count, clock=clock, **{how: MINUTE})
        ended.append(clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await clock.advance(MINUTE - timedelta(seconds=1))
        assert ended == []
        await clock.advance(timedelta(seconds=1))
    assert ended == [START + MINUTE]


async def test_a_glance_makes_no_stop_of_a_driven_clock() -> None:
    """The one that looks around wakes at the end, the one with a limit to the point."""
    signal, clock = Signal(), ManualClock(START)
    ended: dict[str, datetime] = {}

    async def wait(how: str) -> None:
        await signal.wait(signal.count, clock=clock, **{how: MINUTE})
        ended[how] = clock.now()

    async with anyio.create_task_group() as group:
        group.start_soon(wait, "glance")
        await clock.advance(10 * MINUTE)
        group.start_soon(wait, "limit")
        await clock.advance(10 * MINUTE)
    assert ended == {"glance": START + 10 * MINUTE, "limit": START + 11 * MINUTE}


async def test_a_call_ends_a_wait_that_has_a_limit() -> None:
    signal, clock = Signal(), ManualClock(START)
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            await signal.wait(signal.count, clock=clock, limit=MINUTE, glance=MINUTE)

        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        signal.notify()
    assert clock.now() == START
