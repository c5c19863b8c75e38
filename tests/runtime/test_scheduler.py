"""The scheduler: slots fall due one by one, on a clock that is driven."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import anyio
import pytest
import structlog

from drumbeat.core.model import Due
from drumbeat.core.schedule import parse_schedule
from drumbeat.errors import ScheduleError
from drumbeat.protocols import Clock
from drumbeat.runtime.scheduler import Scheduler
from drumbeat.testing import ManualClock

pytestmark = pytest.mark.anyio

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

EVERY_30 = parse_schedule("every 30 minutes")
HOURLY = parse_schedule("0 * * * *")


def due(
    slug: str, slot: datetime, *, folded: int = 0, missed: bool = False, every: timedelta = HOUR
) -> Due:
    """A `Due`, short to write: the slots that are folded into it lie `every` so long before."""
    since = slot - folded * every
    return Due(slug=slug, slot=slot, folded=folded, missed=missed, since=since)


class Rig:
    """A scheduler on a driven clock, with a task that collects what falls due."""

    def __init__(self, **options: timedelta) -> None:
        self.clock = ManualClock(START)
        self.jumps: list[timedelta] = []
        self.scheduler = Scheduler(zone=UTC, clock=self.clock, on_jump=self.jumps.append, **options)
        self.found: list[Due] = []
        self.at: list[datetime] = []
        self.ended = False

    async def collect(self) -> None:
        async for one in self.scheduler:
            self.found.append(one)
            self.at.append(self.clock.now())
        self.ended = True


@asynccontextmanager
async def rig(**options: timedelta) -> AsyncIterator[Rig]:
    """A `Rig` that is running; its iteration ends with the scheduler."""
    made = Rig(**options)
    async with anyio.create_task_group() as group, made.scheduler:
        group.start_soon(made.collect)
        await made.clock.advance(timedelta(0))
        yield made
    assert made.ended


async def test_slots_are_given_out_at_their_instants() -> None:
    """Each once, in order of time, to the microsecond."""
    async with rig() as r:
        r.scheduler.set("hourly", HOURLY)
        r.scheduler.set("daily", parse_schedule("daily at 14:00"))
        await r.clock.advance(3 * HOUR)
        assert r.found == [
            due("hourly", START + HOUR),
            due("daily", START + 2 * HOUR),
            due("hourly", START + 2 * HOUR),
            due("hourly", START + 3 * HOUR),
        ]
        assert r.at == [one.slot for one in r.found]


async def test_a_month_passes_without_a_slot_lost() -> None:
    """Through a change of the clocks."""
    async with rig() as r:
        r.scheduler.set("a", parse_schedule("daily at 02:30"), zone=ZoneInfo("America/New_York"))
        await r.clock.advance(timedelta(days=180))
        assert len(r.found) == 180
        assert all(one.folded == 0 and not one.missed for one in r.found)


async def test_an_interval_waits_for_finished_and_wakes_at_once() -> None:
    """It counts from the finish."""
    async with rig() as r:
        r.scheduler.set("a", EVERY_30)
        await r.clock.advance(3 * HOUR)
        assert r.found == [due("a", START + 30 * MINUTE)]
        assert r.scheduler.next_due() is None
        r.scheduler.finished("a", r.clock.now())
        assert r.scheduler.next_due() == r.scheduler.due_of("a") == START + 210 * MINUTE
        await r.clock.advance(30 * MINUTE)
        assert r.at[-1] == START + 210 * MINUTE


async def test_a_slot_within_a_minute_is_met_to_the_instant() -> None:
    """The sleep ends with the slot, not with the next look around."""
    async with rig() as r:
        r.scheduler.set("a", parse_schedule("* * * * *"))
        await r.clock.advance(timedelta(seconds=150))
        assert r.at == [START + MINUTE, START + 2 * MINUTE]


async def test_set_and_remove_take_effect_while_it_sleeps() -> None:
    """An earlier slot is not slept over; a removed one does not come."""
    async with rig() as r:
        r.scheduler.set("late", parse_schedule("daily at 11:00"))
        await r.clock.advance(MINUTE)
        r.scheduler.set("soon", parse_schedule("every minute"))
        r.scheduler.set("owed", HOURLY, last_slot=START - 2 * HOUR)
        await r.clock.advance(timedelta(0))
        assert r.found == [due("owed", START, folded=1)]
        r.scheduler.remove("soon")
        r.scheduler.remove("owed")
        await r.clock.advance(2 * HOUR)
        assert len(r.found) == 1


async def test_marks_of_an_earlier_process_are_taken() -> None:
    """What was missed while nobody ran is one catch-up, or one `missed`."""
    async with rig(catch_up=2 * HOUR) as r:
        r.scheduler.set("a", HOURLY, first_seen=START - 10 * HOUR, last_slot=START - 5 * HOUR)
        r.scheduler.set("b", parse_schedule("daily at 09:00"), first_seen=START - timedelta(days=3))
        r.scheduler.set("c", EVERY_30, last_finish=START - 10 * MINUTE)
        await r.clock.advance(20 * MINUTE)
        assert r.found == [
            due("b", START - 3 * HOUR, folded=2, missed=True, every=24 * HOUR),
            due("a", START, folded=4),
            due("c", START + 20 * MINUTE),
        ]


async def test_a_suspend_is_noticed_reported_and_caught_up_without_a_burst() -> None:
    """The wall clock moved, the monotonic one did not."""
    async with rig() as r:
        r.scheduler.set("a", parse_schedule("*/15 * * * *"))
        await r.clock.advance(MINUTE)
        r.clock.jump(3 * HOUR)
        await r.clock.advance(MINUTE)
        assert r.jumps == [3 * HOUR]
        assert r.found == [due("a", START + 3 * HOUR, folded=11, every=15 * MINUTE)]


async def test_going_back_is_reported_and_gives_no_slot_twice() -> None:
    """The slots that were given out are passed over."""
    async with rig() as r:
        r.scheduler.set("a", HOURLY)
        await r.clock.advance(2 * HOUR)
        r.clock.jump(-90 * MINUTE)
        await r.clock.advance(150 * MINUTE)
        assert r.jumps == [-90 * MINUTE]
        assert [one.slot for one in r.found] == [START + n * HOUR for n in (1, 2, 3)]


async def test_a_jump_without_a_hook_is_logged() -> None:
    """Nothing that moves time is silent."""
    clock = ManualClock(START)
    async with Scheduler(zone=UTC, clock=clock) as scheduler:
        for slug in "abc":
            scheduler.set(slug, parse_schedule("daily at 11:00"), last_slot=START - 25 * HOUR)
        with structlog.testing.capture_logs() as logs:
            await anext(scheduler)
            clock.jump(timedelta(seconds=4))
            await anext(scheduler)
            assert logs == []
            clock.jump(timedelta(seconds=-20))
            await anext(scheduler)
    assert [(entry["event"], entry["seconds"]) for entry in logs] == [("clock_jumped", -20.0)]


class Plain(Clock):
    """A clock that can only do what every clock can, and notes its sleeps."""

    def __init__(self, driven: ManualClock) -> None:
        self.driven = driven
        self.slept: list[timedelta] = []

    def now(self) -> datetime:
        return self.driven.now()

    def monotonic(self) -> float:
        return self.driven.monotonic()

    async def sleep(self, delay: timedelta, /) -> None:
        self.slept.append(delay)
        await self.driven.sleep(delay)


async def test_it_looks_at_the_clock_every_minute_though_nothing_is_due() -> None:
    """A sleep is bounded, so that a jump is noticed."""
    clock = Plain(ManualClock(START))
    jumps: list[timedelta] = []
    scheduler = Scheduler(zone=UTC, clock=clock, on_jump=jumps.append)
    found: list[Due] = []

    async def collect() -> None:
        found.extend([one async for one in scheduler])

    async with anyio.create_task_group() as group, scheduler:
        group.start_soon(collect)
        await clock.driven.advance(3 * MINUTE)
        assert clock.slept == [MINUTE] * 4
        scheduler.set("a", parse_schedule("daily at 11:00"))
        clock.driven.jump(timedelta(hours=23))
        await clock.driven.advance(MINUTE)
        assert jumps == [timedelta(hours=23)]
    assert found == [due("a", START + timedelta(hours=23))]


async def test_cancelling_a_wait_loses_no_slot() -> None:
    """The next one who asks gets it."""
    clock = ManualClock(START)
    async with Scheduler(zone=UTC, clock=clock) as scheduler:
        scheduler.set("a", HOURLY, last_slot=START - HOUR)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anext(aiter(scheduler))
        assert scope.cancelled_caught
        assert await anext(aiter(scheduler)) == due("a", START)


async def test_it_is_entered_once_and_iterated_by_one_task_after_that() -> None:
    """Misuse says what to do."""
    async with rig() as r:
        with pytest.raises(RuntimeError, match="another task"):
            await anext(aiter(r.scheduler))
        with pytest.raises(RuntimeError, match="entered once"):
            await r.scheduler.__aenter__()
    fresh = Scheduler(zone=UTC)
    with pytest.raises(RuntimeError, match="enter the Scheduler first"):
        await anext(aiter(fresh))


async def test_a_schedule_that_cannot_be_refuses_and_wakes_the_sleeper() -> None:
    """The slug has no schedule afterwards."""
    async with rig() as r:
        r.scheduler.set("a", HOURLY)
        with pytest.raises(ScheduleError):
            r.scheduler.set("a", parse_schedule("*/30 2 * 3 L0"), zone=ZoneInfo("Europe/Berlin"))
        await r.clock.advance(2 * HOUR)
        assert r.found == []


async def test_a_slug_may_be_changed_by_whoever_iterates() -> None:
    """The next slot follows the change."""
    clock = ManualClock(START)
    async with Scheduler(zone=UTC, clock=clock) as scheduler:
        scheduler.set("a", HOURLY, last_slot=START - HOUR)
        scheduler.set("b", HOURLY, last_slot=START - HOUR)
        async for one in scheduler:
            assert one.slug == "a"
            scheduler.remove("b")
            break
        assert scheduler.next_due() == START + HOUR
