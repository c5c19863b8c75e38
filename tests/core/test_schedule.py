"""Schedules: the grammar both ways, and slots that are exact through every change of the clocks."""

import csv
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drumbeat.core.model import Cron, DailyAt, Interval, Schedule
from drumbeat.core.schedule import (
    format_schedule,
    is_of_the_wall,
    missed_slots,
    next_fire,
    parse_schedule,
)
from drumbeat.core.schedule_hints import nearest_form
from drumbeat.errors import ScheduleError

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  what is refused
YEARS = (datetime(1975, 1, 1), datetime(2090, 1, 1))  # noqa: DTZ001  hypothesis adds no zone


def at(text: str) -> datetime:
    """A UTC instant."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# ---- the grammar


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("every 30 minutes", Interval(every=timedelta(minutes=30))),
        ("every minute", Interval(every=MINUTE)),
        ("every 1 minutes", Interval(every=MINUTE)),
        ("every 2 hours", Interval(every=timedelta(hours=2))),
        ("every hour", Interval(every=timedelta(hours=1))),
        ("  EVERY   007  Minutes ", Interval(every=timedelta(minutes=7))),
        ("daily at 07:00", DailyAt(at=time(7))),
        ("Every  Day AT 23:59", DailyAt(at=time(23, 59))),
        ("0 7 * * 1-5", Cron(expression="0 7 * * 1-5")),
        (" 0  7 * * MON", Cron(expression="0 7 * * MON")),
    ],
)
def test_every_legal_form_is_read(text: str, schedule: Schedule) -> None:
    """Case and extra spaces do not matter."""
    assert parse_schedule(text) == schedule


@pytest.mark.parametrize(
    ("text", "code", "column", "nearest"),
    [
        ("every 0 minutes", "schedule-zero", 7, "every minute"),
        ("every 00 hours", "schedule-zero", 7, "every hour"),
        ("every 527041 minutes", "schedule-out-of-range", 7, "every 527040 minutes"),
        ("every 99999999999999999999 hours", "schedule-out-of-range", 7, "every 8784 hours"),
        ("daily at 24:00", "schedule-out-of-range", 10, "daily at 00:00"),
        ("daily at 07:60", "schedule-out-of-range", 13, "daily at 07:59"),
        ("every 5 min", "schedule-unknown-form", 1, "every 5 minutes"),
        ("  every 1 minute", "schedule-unknown-form", 3, "every minute"),
        ("5m", "schedule-unknown-form", 1, "every 5 minutes"),
        ("hourly", "schedule-unknown-form", 1, "every hour"),
        ("every 3h", "schedule-unknown-form", 1, "every 3 hours"),
        ("every 2 days", "schedule-unknown-form", 1, "every 48 hours"),
        ("every 1 days", "schedule-unknown-form", 1, "daily at 07:00"),
        ("every 30 seconds", "schedule-unknown-form", 1, "every minute"),
        ("every 300 seconds", "schedule-unknown-form", 1, "every 5 minutes"),
        ("daily at 7:00", "schedule-unknown-form", 1, "daily at 07:00"),
        ("every day at 7pm", "schedule-unknown-form", 1, "daily at 19:00"),
        ("daily at 12 am", "schedule-unknown-form", 1, "daily at 00:00"),
        ("at noon", "schedule-unknown-form", 1, "daily at 12:00"),
        ("at midnight", "schedule-unknown-form", 1, "daily at 00:00"),
        ("daily", "schedule-unknown-form", 1, "daily at 07:00"),
        ("weekdays at 08:30", "schedule-unknown-form", 1, "30 8 * * 1-5"),
        ("every monday", "schedule-unknown-form", 1, "0 7 * * 1"),
        ("weekly", "schedule-unknown-form", 1, "0 7 * * 1"),
        ("monthly", "schedule-unknown-form", 1, "0 7 1 * *"),
        ("every ５ minutes", "schedule-unknown-form", 7, "every 5 minutes"),
        ("every\xa05 minutes", "schedule-unknown-form", 6, "every 5 minutes"),
        ("every -5 minutes", "schedule-unknown-form", 1, "every 5 minutes"),
        ("every * minutes", "schedule-unknown-form", 1, "every minute"),
        ("", "schedule-unknown-form", 1, ""),
        ("x" * 100_000, "schedule-unknown-form", 1, ""),
        ("*/90 * * * *", "cron-step", 1, "every 90 minutes"),
        ("0 7 * *", "cron-field-count", 1, "five fields"),
        ("@daily", "cron-macro", 1, "0 0 * * *"),
        ("H 7 1 1 1", "cron-syntax", 1, ""),
        ("0 0 31 2 *", "cron-never", 5, ""),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_nearest_form(
    text: str, code: str, column: int, nearest: str
) -> None:
    """The refusal says where, and what to write."""
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(text)
    problem = caught.value.problem
    assert (problem.code, problem.column) == (code, column)
    assert nearest in problem.remedy
    assert len(str(problem)) < 500
    if code in {"schedule-unknown-form", "schedule-zero"}:
        assert "`daily at HH:MM`" in problem.remedy
        assert "`every N minutes`" in problem.remedy


@pytest.mark.slow
@given(st.text() | st.text(alphabet="every day at minutes0123456789:*/,-LRH#@ "))
@example("\ud800")
@example("0" * 50)
@settings(max_examples=300, deadline=None)
def test_reading_any_text_raises_only_schedule_errors_whose_hint_is_legal(text: str) -> None:
    """What is read can be written and read back; what is not has a nearest form that can be."""
    try:
        schedule = parse_schedule(text)
    except ScheduleError:
        parse_schedule(nearest_form(text))
    else:
        assert parse_schedule(format_schedule(schedule)) == schedule


schedules = st.one_of(
    st.builds(lambda n: Interval(every=n * MINUTE), st.integers(1, 366 * 1440)),
    st.builds(DailyAt, at=st.times().map(lambda t: t.replace(second=0, microsecond=0))),
    st.builds(
        lambda minute, hour, day: Cron(expression=f"{minute} {hour} * * {day}"),
        st.integers(0, 59) | st.just("*/15"),
        st.integers(0, 23) | st.just("*"),
        st.integers(0, 7) | st.just("*"),
    ),
)


@given(schedules)
def test_a_written_schedule_reads_back_as_itself(schedule: Schedule) -> None:
    """`parse(format(x)) == x`."""
    assert parse_schedule(format_schedule(schedule)) == schedule


@pytest.mark.parametrize(
    "schedule",
    [
        Interval(every=timedelta(seconds=90)),
        Interval(every=timedelta(0)),
        Interval(every=timedelta(days=400)),
        DailyAt(at=time(7, 0, 30)),
        DailyAt(at=time(7, tzinfo=UTC)),
        Cron(expression="0 7 * *"),
        Cron(expression="0  7 * * *"),
        Cron(expression="every hour"),
    ],
)
def test_what_the_grammar_has_no_words_for_is_not_written(schedule: Schedule) -> None:
    """A value that was not read from text is refused rather than changed."""
    with pytest.raises(ScheduleError):
        format_schedule(schedule)


# ---- the next slot

CASES = Path(__file__).parent / "cases/time-vectors.csv"
VECTORS = list(csv.DictReader(CASES.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["note"])
def test_the_time_vectors_hold(case: dict[str, str]) -> None:
    """Spec, section 4: the fixed table of changes of the clocks."""
    slot = next_fire(
        parse_schedule(case["rule"]),
        after=datetime.fromisoformat(case["after_utc"]),
        zone=ZoneInfo(case["zone"]),
    )
    assert slot == datetime.fromisoformat(case["expected_utc"])
    assert slot.tzinfo is UTC


@pytest.mark.parametrize(
    ("zone", "rule", "after", "expected"),
    [
        ("Pacific/Apia", "daily at 09:00", "2011-12-29T20:00", "2011-12-30T19:00"),
        ("Pacific/Apia", "0 0 30 12 *", "2011-12-01T00:00", "2012-12-29T10:00"),
        ("Australia/Lord_Howe", "*/20 * * * *", "2026-04-04T14:40", "2026-04-04T15:10"),
        ("Australia/Lord_Howe", "*/20 * * * *", "2026-04-04T15:10", "2026-04-04T15:30"),
        ("Europe/Berlin", "* */2 * * *", "2026-03-28T23:59", "2026-03-29T02:00"),
        ("Europe/Berlin", "0 * * * *", "2026-03-29T00:30", "2026-03-29T01:00"),
        ("Europe/Berlin", "0,30 2,3 * * *", "2026-03-29T01:00", "2026-03-29T01:30"),
        ("America/St_Johns", "*/30 * * * *", "2006-10-29T02:30", "2006-10-29T03:00"),
        ("UTC", "59 23 31 12 *", "2026-12-31T23:59", "2027-12-31T23:59"),
    ],
)
def test_rare_changes_of_the_clocks_are_exact(
    zone: str, rule: str, after: str, expected: str
) -> None:
    """A day that does not exist, half-hour changes, a fold over midnight, wildcard hours."""
    slot = next_fire(parse_schedule(rule), after=at(after), zone=ZoneInfo(zone))
    assert slot == at(expected)


WINDOWS = [
    ("Europe/Berlin", "2026-03-28"),
    ("Europe/Berlin", "2026-10-24"),
    ("America/New_York", "2026-03-07"),
    ("America/New_York", "2026-10-31"),
    ("Australia/Lord_Howe", "2026-04-04"),
    ("Australia/Lord_Howe", "2026-10-03"),
    ("Africa/Cairo", "2026-04-23"),
    ("Africa/Cairo", "2026-10-29"),
    ("America/Havana", "2026-03-07"),
    ("America/Havana", "2026-10-31"),
    ("America/Nuuk", "2024-03-30"),
    ("America/St_Johns", "2006-04-01"),
    ("America/St_Johns", "2006-10-28"),
    ("Pacific/Apia", "2011-12-29"),
    ("Pacific/Kwajalein", "1993-08-20"),
    ("Asia/Kathmandu", "2026-01-01"),
]


@lru_cache
def scan(zone: str, day: str) -> list[tuple[datetime, datetime]]:
    """Each minute of five days around `day`: the instant and its local wall time."""
    start = at(day) - timedelta(days=2)
    instants = [start + minute * MINUTE for minute in range(5 * 1440)]
    return [(one, one.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for one in instants]


def expected_slots(
    window: tuple[str, str], matches: Callable[[datetime], bool], *, elapsed: bool
) -> set[datetime]:
    """Slots by scanning every minute, straight from the rules of spec, section 4."""
    minutes = scan(*window)
    if elapsed:
        return {instant for instant, wall in minutes if matches(wall)}
    first: dict[datetime, datetime] = {}
    for instant, wall in minutes:
        first.setdefault(wall, instant)
    days = {wall.date() for _, wall in minutes}
    found = {instant for wall, instant in first.items() if matches(wall)}
    for (_, before), (instant, wall) in pairwise(minutes):
        lost = before + MINUTE
        while lost < wall:
            if matches(lost) and lost.date() in days:
                found.add(instant)
            lost += MINUTE
    return found


hour_fields = st.sampled_from(
    ["*", "*/2", "*/5", "0", "1", "2", "3", "23", "0,1", "1-3", "2,3", "0-23/3", "22,23,0", "12"]
)
minute_fields = st.sampled_from(["*", "*/15", "*/20", "0", "1", "30", "0,30", "5,45,59", "10-12"])
weekday_fields = st.sampled_from(["*", "*", "*", "0", "6,0", "1-5", "5"])


def values(field: str, count: int) -> set[int]:
    """The numbers of a field of the strategies above."""
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        low, _, high = (f"0-{count - 1}" if span == "*" else span).partition("-")
        found |= set(range(int(low), int(high or low) + 1, int(step or 1)))
    return found


@pytest.mark.slow
@given(st.sampled_from(WINDOWS), minute_fields, hour_fields, weekday_fields, st.integers(0, 4000))
@settings(max_examples=150, deadline=None)
def test_slots_agree_with_a_scan_of_every_minute(
    window: tuple[str, str], minute: str, hour: str, weekday: str, start: int
) -> None:
    """In zones of every odd kind, next slots and missed slots are those of the rules."""
    minutes, hours, weekdays = values(minute, 60), values(hour, 24), values(weekday, 7)

    def matches(wall: datetime) -> bool:
        return wall.minute in minutes and wall.hour in hours and wall.isoweekday() % 7 in weekdays

    elapsed = any(mark in minute + hour for mark in "*/")
    schedule = parse_schedule(f"{minute} {hour} * * {weekday}")
    zone = ZoneInfo(window[0])
    begin = scan(*window)[0][0] + timedelta(days=1)
    until = begin + timedelta(days=3)
    after = begin + min(start, 3 * 1440 - 1) * MINUTE
    expected = sorted(
        slot for slot in expected_slots(window, matches, elapsed=elapsed) if after < slot <= until
    )
    assert isinstance(schedule, Cron)
    count, newest = missed_slots(schedule, after=after, until=until, zone=zone, limit=10_000)
    assert (count, newest) == (len(expected), expected[-1] if expected else None)
    if expected:
        floor, exact = missed_slots(schedule, after=after, until=until, zone=zone, limit=1)
        assert (floor, exact) == (1, expected[-1])
    for slot in [*expected[:20], *expected[-5:]]:
        before = max([after, *(one for one in expected if one < slot)])
        assert next_fire(schedule, after=before, zone=zone) == slot
        assert next_fire(schedule, after=slot - timedelta(microseconds=1), zone=zone) == slot
    if not expected:
        assert next_fire(schedule, after=after, zone=zone) > until


@given(
    schedules.filter(lambda schedule: not isinstance(schedule, Interval)),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo"]),
    st.datetimes(*YEARS),
)
@settings(max_examples=100, deadline=None)
def test_slots_rise_strictly_and_survive_the_way_through_the_zone(
    schedule: Schedule, zone: str, start: datetime
) -> None:
    """UTC to the zone and back leaves each slot unchanged."""
    after = start.replace(tzinfo=UTC)
    for _ in range(5):
        slot = next_fire(schedule, after=after, zone=ZoneInfo(zone))
        assert slot > after
        assert slot.astimezone(ZoneInfo(zone)).astimezone(UTC) == slot
        after = slot


def test_after_may_be_given_in_any_zone() -> None:
    """An instant is an instant; the answer is in UTC."""
    after = datetime(2026, 6, 1, 6, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    slot = next_fire(DailyAt(at=time(1)), after=after, zone=UTC)
    assert slot == at("2026-06-02T01:00")


def test_an_interval_counts_from_the_last_finish_else_from_first_sight() -> None:
    """An overdue interval answers with its past slot."""
    half = Interval(every=timedelta(minutes=30))
    seen = at("2026-06-01T12:00")
    assert next_fire(half, after=seen, zone=UTC) == at("2026-06-01T12:30")
    finish = at("2026-06-01T09:10")
    assert next_fire(half, after=seen, zone=UTC, last_finish=finish) == at("2026-06-01T09:40")


def test_a_time_of_day_with_seconds_is_kept() -> None:
    """A `DailyAt` that a host makes by hand may be finer than the grammar."""
    slot = next_fire(DailyAt(at=time(7, 0, 30)), after=at("2026-06-01T07:00"), zone=UTC)
    assert slot == datetime(2026, 6, 1, 7, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize("year", [1899, 9000])
def test_instants_without_a_zone_or_out_of_bounds_are_refused(year: int) -> None:
    """The message names the argument."""
    with pytest.raises(ValueError, match="after must be an aware datetime"):
        next_fire(DailyAt(at=time(7)), after=NAIVE, zone=UTC)
    with pytest.raises(ValueError, match="last_finish must be an aware"):
        next_fire(
            Interval(every=MINUTE),
            after=at("2026-01-01"),
            zone=UTC,
            last_finish=NAIVE,
        )
    with pytest.raises(ValueError, match="until must lie in the years"):
        missed_slots(
            DailyAt(at=time(7)),
            after=at("2026-01-01"),
            until=datetime(year, 1, 1, tzinfo=UTC),
            zone=UTC,
        )


def test_schedules_that_are_none_are_refused() -> None:
    """Values that a host made by hand are checked when they are used."""
    with pytest.raises(ScheduleError, match="never passes"):
        next_fire(Interval(every=timedelta(0)), after=at("2026-01-01"), zone=UTC)
    with pytest.raises(ScheduleError, match="cron-step"):
        next_fire(Cron(expression="*/90 * * * *"), after=at("2026-01-01"), zone=UTC)


def test_a_schedule_whose_every_slot_is_skipped_by_the_clocks_is_refused() -> None:
    """The last Sunday of March has no hour from 2 to 3 in Berlin, in any year."""
    with pytest.raises(ScheduleError) as caught:
        next_fire(parse_schedule("*/30 2 * 3 L0"), after=at("2026-01-01"), zone=BERLIN)
    assert caught.value.problem.code == "schedule-never"
    assert "Europe/Berlin" in caught.value.problem.message


def test_a_zone_without_offsets_is_refused() -> None:
    """A tzinfo that does not say where it is cannot rule a schedule."""

    class Nowhere(ZoneInfo):
        def utcoffset(self, dt: datetime | None, /) -> timedelta | None:
            return None if dt is not None and dt.tzinfo is self and dt.hour == 0 else timedelta(0)

    with pytest.raises(ValueError, match="no offset"):
        next_fire(DailyAt(at=time(7)), after=at("2026-01-01T05:00"), zone=Nowhere("UTC"))


def test_a_day_on_which_the_clocks_change_is_worked_out_once() -> None:
    """Each of its 1,440 slots would cost a search through the zone, at every question."""

    class Asked(ZoneInfo):
        times = 0

        def utcoffset(self, dt: datetime | None, /) -> timedelta | None:
            Asked.times += 1
            return super().utcoffset(dt)

    zone, each = Asked.no_cache("Europe/Berlin"), Cron(expression="* * * * *")
    slot = at("2026-03-29T00:00")
    next_fire(each, after=slot, zone=zone)
    Asked.times = 0
    for _ in range(10):
        slot = next_fire(each, after=slot, zone=zone)
    assert slot == at("2026-03-29T00:10")
    assert Asked.times < 500


# ---- missed slots


def test_counting_stops_at_the_limit_but_the_newest_is_exact() -> None:
    """Ten years of every minute are a floor of a thousand and the last minute."""
    count, newest = missed_slots(
        Cron(expression="* * * * *"),
        after=at("2016-01-01"),
        until=at("2026-01-01T00:00:30"),
        zone=BERLIN,
    )
    assert (count, newest) == (1000, at("2026-01-01"))


def test_the_newest_is_found_across_rare_dates() -> None:
    """With a limit of one, the newest leap day is found all the same."""
    answer = missed_slots(
        Cron(expression="0 0 29 2 *"),
        after=at("2016-01-01"),
        until=at("2027-06-01"),
        zone=UTC,
        limit=1,
    )
    assert answer == (1, at("2024-02-29"))


def test_a_span_of_centuries_is_counted_to_its_end() -> None:
    """Counting has no horizon of its own."""
    answer = missed_slots(
        Cron(expression="0 0 29 2 *"), after=at("1900-01-01"), until=at("2400-01-01"), zone=UTC
    )
    assert answer == (121, at("2396-02-29"))


def test_a_slot_at_the_end_counts_and_one_at_the_start_does_not() -> None:
    """The span is open at its start and closed at its end."""
    daily = DailyAt(at=time(7))
    answer = missed_slots(
        daily, after=at("2026-06-01T07:00"), until=at("2026-06-02T07:00"), zone=UTC
    )
    assert answer == (1, at("2026-06-02T07:00"))
    nothing = missed_slots(
        daily, after=at("2026-06-01T07:00"), until=at("2026-06-02T06:59"), zone=UTC
    )
    assert nothing == (0, None)


def test_a_gap_over_midnight_gives_one_slot_to_two_dates() -> None:
    """In Nuuk 23:00 became midnight: slots in the gap and the one at its end are one."""
    zone = ZoneInfo("America/Nuuk")
    found = missed_slots(
        Cron(expression="0,30 0,23 * * *"),
        after=at("2024-03-30T12:00"),
        until=at("2024-03-31T12:00"),
        zone=zone,
    )
    assert found == (2, at("2024-03-31T01:30"))
    assert at("2024-03-31T00:59").astimezone(zone).date() == date(2024, 3, 30)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("every 5 minutes", False),
        ("daily at 07:00", True),
        ("0 7 * * 1-5", True),
        ("*/15 7 * * *", False),
        ("0 * * * *", False),
    ],
)
def test_times_of_day_are_told_from_elapsed_time(text: str, expected: bool) -> None:
    assert is_of_the_wall(parse_schedule(text)) is expected
