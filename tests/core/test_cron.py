"""Five cron fields: what is read, what is refused and where, and which dates match."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest
from croniter import croniter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drumbeat.core.cron import cron_fields, parse_cron, wide_steps
from drumbeat.core.model import Cron
from drumbeat.core.schedule import next_fire, parse_schedule
from drumbeat.errors import ScheduleError


def refusal(text: str) -> tuple[str, int | None]:
    """The code and column with which an expression is refused."""
    with pytest.raises(ScheduleError) as caught:
        parse_cron(text)
    assert caught.value.problem.remedy
    return caught.value.problem.code, caught.value.problem.column


def test_an_expression_is_kept_as_written_with_single_spaces() -> None:
    """Only the spaces between the fields are put in order."""
    assert parse_cron("  0  7\t* * Mon-fri ") == Cron(expression="0 7 * * Mon-fri")


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("60 * * * *", "cron-out-of-range", 1),
        ("0 24 * * *", "cron-out-of-range", 3),
        ("0  24 * * *", "cron-out-of-range", 4),
        ("0 0 0 * *", "cron-out-of-range", 5),
        ("0 0 32 * *", "cron-out-of-range", 5),
        ("0 0 * 13 *", "cron-out-of-range", 7),
        ("0 0 * 0 *", "cron-out-of-range", 7),
        ("0 0 * * 8", "cron-out-of-range", 9),
        ("0 0 * * 1#6", "cron-out-of-range", 9),
        ("0 0 * * 1#0", "cron-out-of-range", 9),
        ("0 0 * * L8", "cron-out-of-range", 9),
        ("99999 * * * *", "cron-syntax", 1),
        ("0 0 0 * * *", "cron-field-count", 11),
        ("0 0 1 1 * 0 2026", "cron-field-count", 11),
        ("0 7 * *", "cron-field-count", 1),
        ("", "cron-field-count", 1),
        ("0 0 * * " + "1," * 500 + "1", "cron-field-count", 1),
        ("*/90 * * * *", "cron-step", 1),
        ("*/60 * * * *", "cron-step", 1),
        ("*/120 * * * *", "cron-step", 1),
        ("*/0 * * * *", "cron-step", 1),
        ("0 */24 * * *", "cron-step", 3),
        ("0 */9999999999 * * *", "cron-step", 3),
        ("10-20/15 * * * *", "cron-step", 1),
        ("0 0 */31 * *", "cron-step", 5),
        ("0 0 * * */7", "cron-step", 9),
        ("0 0 31 2 *", "cron-never", 5),
        ("0 0 31 4,6,9,11 *", "cron-never", 5),
        ("0 0 30-31 2 *", "cron-never", 5),
        ("0 0 1 * 1#2", "cron-never", 5),
        ("٣ * * * *", "cron-not-ascii", 1),
        ("0 ０ * * *", "cron-not-ascii", 3),
        ("0 7 *\xa0* *", "cron-not-ascii", 6),
        ("@daily", "cron-macro", 1),
        ("  @Hourly", "cron-macro", 3),
        ("@reboot", "cron-macro", 1),
        ("R * * * *", "cron-syntax", 1),
        ("H * * * *", "cron-syntax", 1),
        ("H/15 * * * *", "cron-syntax", 1),
        ("h(0-9) * * * *", "cron-syntax", 1),
        ("0 0 ? * *", "cron-syntax", 5),
        ("0 0 15W * *", "cron-syntax", 5),
        ("0 0 L-2 * *", "cron-syntax", 5),
        ("0 0 * * L", "cron-syntax", 9),
        ("0 0 * * 1-5#2", "cron-syntax", 9),
        ("0 L * * *", "cron-syntax", 3),
        ("0 1,,2 * * *", "cron-syntax", 3),
        ("0 MON * * *", "cron-syntax", 3),
        ("0 0 * MON *", "cron-syntax", 7),
        ("0 0 * * JAN", "cron-syntax", 9),
        ("0 0 * 11-2 *", "cron-wraps", 7),
        ("0 0 * 11-2/3 *", "cron-wraps", 7),
        ("0 22-6 * * *", "cron-wraps", 3),
        ("0 0 * * FRI-MON", "cron-wraps", 9),
        ("0 0 * * 5-0", None, None),
        ("0 0 * * 1#2,3", "cron-mixed-weekdays", 9),
        ("0 0 * * L1,3", "cron-mixed-weekdays", 9),
    ],
)
def test_what_would_mean_something_else_is_refused_at_its_field(
    text: str, code: str | None, column: int | None
) -> None:
    """Each refusal has its code, the column of its field and a remedy."""
    if code is None:
        assert parse_cron(text).expression == text
    else:
        assert refusal(text) == (code, column)


@pytest.mark.parametrize(
    "text",
    [
        "0 \x00 * * *",
        "0 0 31\x1b 2 *",
        "\x7f#1 0 * * *",
        "@\x00",
        "0 0 * * \x00#9",
        "x" * 900 + " * * * *",
    ],
)
def test_a_refusal_can_be_shown_whatever_stands_in_the_expression(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_cron(text)
    assert caught.value.problem.message.isprintable()
    assert len(caught.value.problem.message) < 300


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("*/90 * * * *", "`every 90 minutes`"),
        ("*/60 * * * *", "`0 * * * *`"),
        ("*/120 * * * *", "`0 */2 * * *`"),
        ("0 */48 * * *", "`every 48 hours`"),
        ("10-20/15 * * * *", "`10`"),
        ("@daily", "`0 0 * * *`"),
        ("@reboot", "five fields"),
        ("0 0 * 11-2 *", "`11-12,1-2`"),
        ("0 0 * 12-1 *", "`12,1`"),
        ("0 0 0 * * *", "seconds"),
        ("0 0 * * 1#7", "`L1`"),
        ("0 7 * * 7-2", "`0-2`"),
        ("0 7 * * 5-2", "`5-6,0-2`"),
        ("0 7 * * 5-2/2", "`5,0,2`"),
        ("0 0 * 11-2/3 *", "`11,2`"),
        ("0 22-6/0 * * *", "`22-23,0-6`"),
        ("0 */9999999999 * * *", "`0` alone"),
        ("*/999999 * * * *", "`0` alone"),
        ("0 0 * 1-2-3 *", "a step `*/3`"),
        ("0 0 * FOO *", "`JAN`"),
    ],
)
def test_a_refusal_says_what_to_write(text: str, remedy: str) -> None:
    """The remedy names the expression that was probably meant."""
    with pytest.raises(ScheduleError) as caught:
        parse_cron(text)
    assert remedy in caught.value.problem.remedy


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("5-5 5-5 5-5 5-5 5-5", "5 5 5 5 5"),
        ("*/1 */1 */1 */1 */1", "* * * * *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * SUN", "0 0 * * 0"),
        ("0 0 * * FRI-SUN", "0 0 * * 0,5,6"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * 1-7/2", "0 0 * * 0,1,3,5"),
        ("0 0 * * 0-7", "0 0 * * 0,1,2,3,4,5,6"),
        ("0 0 * * 7/2", "0 0 * * 0,2,4,6"),
        ("0 0 * * sun-sun", "0 0 * * 0"),
        ("0 0 * jan,Dec *", "0 0 * 1,12 *"),
        ("0 0 * * 5L", "0 0 * * L5"),
        ("0 0 * * FRIL", "0 0 * * LFRI"),
        ("0 0 * * 7#2", "0 0 * * SUN#2"),
        ("50/5 * * * *", "50,55 * * * *"),
        ("1,1,1-2 * * * *", "1,2 * * * *"),
        ("*,5 * * * *", "* * * * *"),
    ],
)
def test_spellings_of_one_thing_match_the_same_dates_and_times(text: str, same: str) -> None:
    """Names, equal ranges, both Sundays and `L` on either side mean what their plain form means."""
    left, right = cron_fields(text), cron_fields(same)
    assert (left.minutes, left.hours) == (right.minutes, right.hours)
    for month in range(1, 13):
        assert left.dates(2027, month) == right.dates(2027, month)


@pytest.mark.parametrize(
    ("text", "elapsed"),
    [
        ("0 9 * * *", False),
        ("0,30 9-17 */2 */3 */2", False),
        ("*/30 9 * * *", True),
        ("0 * * * *", True),
        ("0 9-17/2 * * *", True),
        ("5/20 9 * * *", True),
    ],
)
def test_a_star_or_step_in_minute_or_hour_follows_elapsed_time(text: str, elapsed: bool) -> None:
    """Other fields play no part in that."""
    assert cron_fields(text).elapsed is elapsed


@pytest.mark.parametrize(
    ("text", "month", "dates"),
    [
        ("0 0 L * *", 2, (28,)),
        ("0 0 15,L * *", 4, (15, 30)),
        ("0 0 * * 1#2", 6, (8,)),
        ("0 0 * * 1#5", 6, (29,)),
        ("0 0 * * 1#5", 7, ()),
        ("0 0 * * L5", 6, (26,)),
        ("0 0 * * MON#1,FRI#3", 6, (1, 19)),
        ("0 0 15 * 1", 6, (1, 8, 15, 22, 29)),
        ("0 0 16 * 1", 6, (1, 8, 15, 16, 22, 29)),
        ("0 0 L * 1", 6, (1, 8, 15, 22, 29, 30)),
        ("0 0 8-14 * 1#2", 6, (8,)),
        ("0 0 26 * L5", 6, (26,)),
        ("0 0 25 * L5", 6, ()),
        ("0 0 * 7 *", 6, ()),
    ],
)
def test_days_are_joined_by_or_and_narrowed_by_nth(
    text: str, month: int, dates: tuple[int, ...]
) -> None:
    """Day-of-month and day-of-week are joined by OR, except with `#` or `L` weekdays: AND."""
    assert cron_fields(text).dates(2026, month) == dates


def test_the_rarest_date_comes() -> None:
    """A fifth Monday in February is found however many years away."""
    slot = next_fire(parse_cron("0 0 29 2 1#5"), after=datetime(2072, 3, 1, tzinfo=UTC), zone=UTC)
    assert slot == datetime(2112, 2, 29, tzinfo=UTC)
    assert slot.weekday() == 0


def test_uneven_steps_are_found_with_their_columns() -> None:
    """Steps that divide their field, and steps within a range, are not among them."""
    assert wide_steps("*/7 5/5,*/6 */2 */5 */3") == [
        ("minute", 7, 1),
        ("hour", 5, 5),
        ("day-of-month", 2, 13),
        ("month", 5, 17),
        ("day-of-week", 3, 21),
    ]
    assert wide_steps("*/15 9-17/3 L */3 1#2") == []


numbers = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 6),
}


YEARS = (datetime(1990, 1, 1), datetime(2060, 1, 1))  # noqa: DTZ001  hypothesis adds no zone


@st.composite
def terms(draw: st.DrawFn, low: int, high: int) -> tuple[str, set[int]]:
    """One term of a field, and the numbers it stands for by its plain definition."""
    start = draw(st.integers(low, high))
    end = draw(st.integers(start, high))
    kind = draw(st.sampled_from(["number", "range", "step", "star", "start"]))
    if kind == "number":
        return str(start), {start}
    if kind == "range":
        return f"{start}-{end}", set(range(start, end + 1))
    if kind == "step" and end > start:
        step = draw(st.integers(1, end - start))
        return f"{start}-{end}/{step}", set(range(start, end + 1, step))
    if kind == "start" and high > start:
        step = draw(st.integers(1, high - start))
        return f"{start}/{step}", set(range(start, high + 1, step))
    step = draw(st.integers(1, high - low))
    return f"*/{step}", set(range(low, high + 1, step))


@st.composite
def fields(draw: st.DrawFn, name: str) -> tuple[str, set[int]]:
    """A list of terms."""
    drawn = draw(st.lists(terms(*numbers[name]), min_size=1, max_size=3))
    return ",".join(text for text, _ in drawn), set().union(*(values for _, values in drawn))


@pytest.mark.slow
@given(fields("minute"), fields("hour"), fields("month"), fields("weekday"))
@settings(max_examples=100, deadline=None)
def test_a_field_stands_for_the_numbers_of_its_definition(
    minute: tuple[str, set[int]],
    hour: tuple[str, set[int]],
    month: tuple[str, set[int]],
    weekday: tuple[str, set[int]],
) -> None:
    """Ranges, steps and lists expand to what they say, whatever croniter makes of them."""
    read = cron_fields(f"{minute[0]} {hour[0]} * {month[0]} {weekday[0]}")
    assert set(read.minutes) == minute[1]
    assert set(read.hours) == hour[1]
    for number in range(1, 13):
        first = date(2026, number, 1)
        days = ((first + timedelta(days=shift)) for shift in range(31))
        expected = {
            day.day
            for day in days
            if day.month == number and number in month[1] and day.isoweekday() % 7 in weekday[1]
        }
        assert set(read.dates(2026, number)) == expected


@pytest.mark.slow
@given(
    st.sampled_from(["*", "1", "31", "L", "1,15", "10-20", "29-31"]),
    st.sampled_from(["*", "2", "4,6", "1-3", "*/3"]),
    st.sampled_from(["*", "1", "0,6", "1-5", "1#2", "L5"]),
    st.datetimes(*YEARS),
)
@settings(max_examples=100, deadline=None)
def test_dates_agree_with_croniter_where_croniter_is_right(
    day: str, month: str, weekday: str, start: datetime
) -> None:
    """In a zone without changes of the clock both find the same next slots."""
    if day != "*" and ("#" in weekday or "L" in weekday):
        day = "*"  # croniter joins these neither by AND nor by OR
    text = f"7 3 {day} {month} {weekday}"
    try:
        schedule = parse_cron(text)
    except ScheduleError as error:
        assume(error.problem.code != "cron-never")
        raise
    theirs = croniter(text, start)
    after = start.replace(tzinfo=UTC)
    for _ in range(4):
        after = next_fire(schedule, after=after, zone=UTC)
        assert after.replace(tzinfo=None) == theirs.get_next(datetime)


# ---- what remedies offer

NUMBERS = "0 1 2 5 6 7 8 9 12 13 23 24 31 32 59 60 90 480 99999"
WORDS = st.sampled_from([*NUMBERS.split(), "MON", "SUN", "DEC", "L", "*"])
TERMS = st.one_of(
    WORDS,
    st.builds("{}-{}".format, WORDS, WORDS),
    st.builds("{}/{}".format, WORDS, WORDS),
    st.builds("{}-{}/{}".format, WORDS, WORDS, WORDS),
    st.builds("{}#{}".format, WORDS, WORDS),
    st.sampled_from(["", "L5", "5L", "?", "H", "1-2-3", "@daily", "@HOURLY"]),
)


def offers(remedy: str) -> list[str]:
    """What a remedy puts between backticks."""
    return re.findall("`([^`]*)`", remedy)


@given(st.integers(0, 4), TERMS)
@settings(max_examples=1500)
def test_whatever_a_remedy_offers_is_accepted_where_it_is_offered(field: int, term: str) -> None:
    """A whole expression by the grammar of schedules, anything else in place of the field."""

    def whole(word: str) -> str:
        return " ".join(word if at == field else "*" for at in range(5))

    try:
        parse_cron(whole(term))
    except ScheduleError as error:
        remedy = error.problem.remedy
    else:
        return
    assert remedy
    for each in offers(remedy):
        parse_schedule(each if len(each.split()) > 1 else whole(each))


@pytest.mark.parametrize("macro", ["yearly", "annually", "monthly", "weekly", "daily", "midnight"])
def test_a_macro_is_answered_with_five_fields_that_parse(macro: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_cron(f"@{macro}")
    (offered,) = offers(caught.value.problem.remedy)
    assert isinstance(parse_schedule(offered), Cron)
