"""Which slots are due, decided without a clock."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.core.model import Due
from drumbeat.core.planner import REMEMBERED, Planner
from drumbeat.core.schedule import parse_schedule
from drumbeat.errors import ScheduleError

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  what is refused
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)

EVERY_30 = parse_schedule("every 30 minutes")
HOURLY = parse_schedule("0 * * * *")
DAILY_9 = parse_schedule("daily at 09:00")


def planner(catch_up: timedelta = DAY) -> Planner:
    """A planner in UTC."""
    return Planner(zone=UTC, catch_up=catch_up)


def due(
    slug: str, slot: datetime, *, folded: int = 0, missed: bool = False, every: timedelta = HOUR
) -> Due:
    """A `Due`, short to write: the slots that are folded into it lie `every` so long before."""
    since = slot - folded * every
    return Due(slug=slug, slot=slot, folded=folded, missed=missed, since=since)


def drained(plan: Planner, now: datetime) -> list[Due]:
    """Everything that is due at `now`."""
    found = []
    while (one := plan.take(now)) is not None:
        found.append(one)
    return found


# ---- wall clock


def test_a_slot_is_due_at_its_instant_and_once() -> None:
    """Not a microsecond early, and not again."""
    plan = planner()
    plan.set("a", HOURLY, now=NOON)
    assert plan.next_due() == plan.due_of("a") == NOON + HOUR
    assert plan.take(NOON + HOUR - timedelta(microseconds=1)) is None
    assert plan.take(NOON + HOUR) == due("a", NOON + HOUR)
    assert plan.take(NOON + HOUR) is None
    assert plan.next_due() == NOON + 2 * HOUR


def test_what_was_missed_folds_into_the_newest_slot() -> None:
    """One catch-up, and the count of the others."""
    plan = planner()
    plan.set("a", HOURLY, now=NOON, last_slot=NOON - 10 * HOUR)
    assert drained(plan, NOON + MINUTE) == [due("a", NOON, folded=9)]


def test_what_is_older_than_catch_up_is_missed() -> None:
    """The newest slot decides."""
    plan = planner()
    plan.set("a", DAILY_9, now=NOON, last_slot=NOON - 5 * DAY)
    plan.set("b", parse_schedule("0 9 1-5 * *"), now=NOON + 10 * DAY, first_seen=NOON - 10 * DAY)
    assert plan.take(NOON) == due("a", NOON - 3 * HOUR, folded=4, every=DAY)
    later = NOON + 10 * DAY
    assert plan.take(later) == due("b", NOON + 4 * DAY - 3 * HOUR, folded=4, missed=True, every=DAY)


def test_without_catch_up_a_slot_in_time_is_not_missed() -> None:
    """A scheduler that wakes a moment late is on time."""
    plan = planner(timedelta(0))
    plan.set("a", HOURLY, now=NOON)
    assert plan.take(NOON + HOUR + 30 * timedelta(seconds=1)) == due("a", NOON + HOUR)
    assert plan.take(NOON + 2 * HOUR + 2 * MINUTE) == due("a", NOON + 2 * HOUR, missed=True)


def test_a_first_sight_later_than_the_last_slot_wins() -> None:
    """A schedule that was edited while nobody looked owes nothing from before its edit."""
    plan = planner()
    plan.set("a", HOURLY, now=NOON, last_slot=NOON - 9 * HOUR, first_seen=NOON - 90 * MINUTE)
    assert plan.take(NOON) == due("a", NOON, folded=1)


def test_a_slug_has_its_own_zone_when_it_is_given_one() -> None:
    """The planner's zone rules the others."""
    plan = planner()
    plan.set("utc", DAILY_9, now=NOON)
    plan.set("berlin", DAILY_9, now=NOON, zone=ZoneInfo("Europe/Berlin"))
    assert plan.due_of("utc") == NOON + 21 * HOUR
    assert plan.due_of("berlin") == NOON + 19 * HOUR


# ---- intervals


def test_an_interval_that_never_ran_counts_from_first_sight() -> None:
    """And, without a mark, from now."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON, first_seen=NOON - 10 * MINUTE)
    plan.set("b", EVERY_30, now=NOON)
    assert plan.due_of("a") == NOON + 20 * MINUTE
    assert plan.due_of("b") == NOON + 30 * MINUTE


def test_an_interval_waits_for_the_finish_of_its_run() -> None:
    """Elapsed time after the finish, never a grid."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON)
    assert drained(plan, NOON + HOUR) == [due("a", NOON + 30 * MINUTE)]
    assert plan.next_due() is None
    assert plan.due_of("a") is None
    assert plan.take(NOON + DAY) is None
    plan.finished("a", NOON + 95 * MINUTE)
    assert plan.next_due() == NOON + 125 * MINUTE


def test_a_run_by_hand_moves_an_interval() -> None:
    """Any cause counts."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON)
    plan.finished("a", NOON + 20 * MINUTE)
    assert plan.next_due() == NOON + 50 * MINUTE


def test_a_missed_interval_counts_from_now_by_itself() -> None:
    """Nothing runs for it, so nothing would finish."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON, last_finish=NOON - 3 * DAY)
    slot = NOON - 3 * DAY + 30 * MINUTE
    assert drained(plan, NOON) == [due("a", slot, missed=True)]
    assert plan.next_due() == NOON + 30 * MINUTE


def test_an_overdue_interval_is_given_out_once() -> None:
    """There is no grid to count missed slots on."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON, last_finish=NOON - 3 * HOUR)
    assert drained(plan, NOON) == [due("a", NOON - 150 * MINUTE)]


def test_a_slot_whose_finish_is_unknown_counts_as_finished_at_its_slot() -> None:
    """After a crash the slug goes on, and its slot is not given out again."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON, last_slot=NOON - MINUTE, last_finish=NOON - HOUR)
    assert plan.next_due() == NOON + 29 * MINUTE


def test_finishes_of_others_are_kept_or_ignored() -> None:
    """A wall-clock slug is not moved; an unknown one is no error."""
    plan = planner()
    plan.set("a", HOURLY, now=NOON)
    plan.finished("a", NOON + MINUTE)
    plan.finished("gone", NOON)
    assert plan.next_due() == NOON + HOUR
    plan.set("a", parse_schedule("every 90 minutes"), now=NOON + 2 * MINUTE)
    assert plan.next_due() == NOON + 91 * MINUTE


# ---- set and remove


def test_set_again_with_an_equal_schedule_changes_nothing() -> None:
    """Whatever the marks."""
    plan = planner()
    assert plan.set("a", EVERY_30, now=NOON)
    assert not plan.set("a", EVERY_30, now=NOON + MINUTE, last_finish=NOON + MINUTE)
    assert plan.next_due() == NOON + 30 * MINUTE


def test_an_edited_wall_clock_counts_from_now() -> None:
    """Slots of the day that are past under the edit are not owed; those owed before are dropped."""
    plan = planner()
    plan.set("a", HOURLY, now=NOON, last_slot=NOON - 5 * HOUR)
    plan.set("a", parse_schedule("daily at 11:00"), now=NOON)
    assert plan.next_due() == NOON + 23 * HOUR
    assert plan.set("a", parse_schedule("daily at 11:00"), now=NOON, zone=ZoneInfo("Asia/Tokyo"))
    assert plan.next_due() == NOON + 14 * HOUR


def test_an_edited_interval_is_due_at_the_later_of_now_and_finish_plus_interval() -> None:
    """Shortening fires at once at most."""
    plan = planner()
    plan.set("a", parse_schedule("every 4 hours"), now=NOON, last_finish=NOON - 2 * HOUR)
    plan.set("a", parse_schedule("every 3 hours"), now=NOON)
    assert plan.next_due() == NOON + HOUR
    plan.set("a", parse_schedule("every 30 minutes"), now=NOON)
    assert plan.next_due() == NOON


def test_an_interval_edited_during_its_run_still_waits() -> None:
    """And one that becomes a wall clock does not."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON)
    assert plan.take(NOON + 30 * MINUTE)
    plan.set("a", parse_schedule("every minute"), now=NOON + 31 * MINUTE)
    assert plan.next_due() is None
    plan.set("a", HOURLY, now=NOON + 32 * MINUTE)
    assert plan.next_due() == NOON + HOUR


def test_adding_editing_or_removing_one_moves_no_other() -> None:
    """Each slug stands alone."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON)
    plan.set("b", HOURLY, now=NOON + MINUTE)
    plan.set("b", DAILY_9, now=NOON + 2 * MINUTE)
    plan.remove("b")
    plan.remove("never there")
    assert plan.due_of("a") == NOON + 30 * MINUTE
    assert plan.due_of("b") is None
    assert drained(plan, NOON + 2 * DAY) == [due("a", NOON + 30 * MINUTE, missed=True)]


def test_a_removed_slug_that_comes_back_resumes_from_its_marks() -> None:
    """Its old plan is gone."""
    plan = planner()
    plan.set("a", HOURLY, now=NOON)
    plan.remove("a")
    plan.set("a", HOURLY, now=NOON + 3 * HOUR, last_slot=NOON)
    assert drained(plan, NOON + 3 * HOUR) == [due("a", NOON + 3 * HOUR, folded=2)]


def test_a_schedule_without_slots_is_refused_and_leaves_the_slug_without_one() -> None:
    """An edit that cannot work does not leave the old schedule running."""
    plan = Planner(zone=ZoneInfo("Europe/Berlin"))
    plan.set("a", HOURLY, now=NOON)
    with pytest.raises(ScheduleError):
        plan.set("a", parse_schedule("*/30 2 * 3 L0"), now=NOON)
    assert plan.next_due() is None


def test_a_schedule_that_its_zone_leaves_no_further_slot_is_not_due_again() -> None:
    """Since 1981 the clocks in Berlin skip this hour on the last Sunday of March, its only day."""
    plan = Planner(zone=ZoneInfo("Europe/Berlin"))
    before = datetime(1980, 3, 30, tzinfo=UTC)
    plan.set("a", parse_schedule("*/30 2 * 3 L0"), now=before)
    plan.set("b", parse_schedule("daily at 07:00"), now=before)
    coming = plan.upcoming(before + 2 * DAY, before)
    slots = [(each.slug, each.slot.hour, each.slot.minute) for each in coming]
    assert slots == [("a", 1, 0), ("a", 1, 30), ("b", 6, 0), ("b", 6, 0)]
    assert plan.take(before + 2 * HOUR) == due(
        "a", before + HOUR + 30 * MINUTE, folded=1, every=30 * MINUTE
    )
    assert plan.take(before + 12 * HOUR) == due("b", before + 6 * HOUR)
    assert plan.due_of("a") is None


def test_naive_instants_are_refused() -> None:
    """With a word on what to give."""
    plan = planner()
    with pytest.raises(ValueError, match="aware"):
        plan.set("a", HOURLY, now=NAIVE)
    with pytest.raises(ValueError, match="aware"):
        plan.take(NAIVE)


# ---- the clock is set


def test_going_back_gives_no_slot_twice() -> None:
    """The slug waits until time has caught up."""
    plan = planner()
    plan.set("a", HOURLY, now=NOON)
    plan.set("b", EVERY_30, now=NOON)
    assert len(drained(plan, NOON + 2 * HOUR)) == 2
    back = NOON + 30 * MINUTE
    plan.clock_went_back(back)
    assert drained(plan, back + 90 * MINUTE) == []
    assert drained(plan, NOON + 3 * HOUR) == [due("a", NOON + 3 * HOUR)]


def test_an_interval_never_waits_longer_than_its_length() -> None:
    """After going back, and with marks of a time that was never real."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON)
    plan.set("c", EVERY_30, now=NOON)
    plan.finished("a", NOON + 10 * MINUTE)
    plan.clock_went_back(NOON - 5 * HOUR)
    plan.set("b", EVERY_30, now=NOON - 5 * HOUR, last_finish=NOON + 100 * DAY)
    expected = NOON - 5 * HOUR + 30 * MINUTE
    assert [plan.due_of(slug) for slug in "abc"] == [expected] * 3


def test_an_interval_after_going_back_has_slots_that_were_not_given_out() -> None:
    """A slot is what makes a fire unique, so it is never used twice."""
    plan = planner()
    plan.set("a", EVERY_30, now=NOON)
    assert plan.take(NOON + 30 * MINUTE) == due("a", NOON + 30 * MINUTE)
    plan.clock_went_back(NOON)
    plan.finished("a", NOON)
    assert plan.next_due() == NOON + 30 * MINUTE + timedelta(microseconds=1)


def test_a_future_that_was_never_real_does_not_silence_a_wall_clock() -> None:
    """After going back more than a day it counts from now, without what was given out."""
    plan = planner()
    plan.set("a", HOURLY, now=NOON)
    assert drained(plan, NOON + HOUR) == [due("a", NOON + HOUR)]
    assert len(drained(plan, NOON + 400 * DAY)) == 1
    plan.clock_went_back(NOON + 30 * MINUTE)
    assert plan.next_due() == NOON + 2 * HOUR
    plan.set("b", HOURLY, now=NOON, last_slot=NOON + 400 * DAY)
    assert plan.due_of("b") == NOON + HOUR


def test_folding_passes_over_slots_that_were_given_out() -> None:
    """Downtime after a clock that was two days ahead gives the newest slot that was not."""
    plan = planner()
    plan.set("a", HOURLY, now=NOON)
    assert drained(plan, NOON + 50 * HOUR) == [due("a", NOON + 50 * HOUR, folded=49)]
    plan.clock_went_back(NOON)
    assert plan.next_due() == NOON + HOUR
    assert drained(plan, NOON + 50 * HOUR) == [due("a", NOON + 49 * HOUR, folded=48)]


@pytest.mark.slow
def test_more_slots_than_are_remembered_are_not_given_out_again() -> None:
    """What is forgotten counts as given out."""
    plan = planner()
    plan.set("a", parse_schedule("* * * * *"), now=NOON)
    for minute in range(1, REMEMBERED + 11):
        assert plan.take(NOON + minute * MINUTE)
    plan.clock_went_back(NOON)
    assert plan.next_due() == NOON + (REMEMBERED + 11) * MINUTE


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pass"), st.integers(0, 3 * 24 * 60)),
            st.tuples(st.just("back"), st.integers(1, 5 * 24 * 60)),
            st.tuples(st.just("finish"), st.just(0)),
        ),
        max_size=30,
    )
)
@settings(max_examples=100, deadline=None)
def test_no_slot_is_given_out_twice_however_the_clock_is_set(steps: list[tuple[str, int]]) -> None:
    """And what is given out is never in the future."""
    plan = planner()
    now = NOON
    plan.set("wall", parse_schedule("*/30 * * * *"), now=now)
    plan.set("daily", DAILY_9, now=now)
    plan.set("interval", EVERY_30, now=now)
    given_out: set[tuple[str, datetime]] = set()
    for what, minutes in steps:
        if what == "finish":
            plan.finished("interval", now)
        elif what == "back":
            now -= minutes * MINUTE
            plan.clock_went_back(now)
        else:
            now += minutes * MINUTE
        for one in drained(plan, now):
            assert one.slot <= now
            assert (one.slug, one.slot) not in given_out
            given_out.add((one.slug, one.slot))


# ---- previews


def test_upcoming_is_what_take_would_give_out_and_changes_nothing() -> None:
    """Overdue slots stand folded; an interval shows its next slot only."""
    plan = planner()
    plan.set("wall", HOURLY, now=NOON, last_slot=NOON - 3 * HOUR)
    plan.set("interval", EVERY_30, now=NOON)
    plan.set("late", EVERY_30, now=NOON, last_finish=NOON - HOUR)
    before = [plan.due_of(slug) for slug in ("wall", "interval", "late")]
    assert plan.upcoming(NOON + 2 * HOUR, NOON) == [
        due("late", NOON - 30 * MINUTE),
        due("wall", NOON, folded=2),
        due("interval", NOON + 30 * MINUTE),
        due("wall", NOON + HOUR),
        due("wall", NOON + 2 * HOUR),
    ]
    assert [plan.due_of(slug) for slug in ("wall", "interval", "late")] == before


def test_upcoming_is_bounded_and_leaves_out_who_waits_for_a_finish() -> None:
    """A year of minutes is cut at the limit."""
    plan = planner()
    plan.set("wall", parse_schedule("* * * * *"), now=NOON)
    plan.set("interval", EVERY_30, now=NOON - HOUR)
    assert plan.take(NOON)
    found = plan.upcoming(NOON + 365 * DAY, NOON, limit=50)
    assert [one.slot for one in found] == [NOON + minute * MINUTE for minute in range(1, 51)]
    assert plan.upcoming(NOON, NOON) == []
