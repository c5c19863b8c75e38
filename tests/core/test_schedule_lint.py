"""What a schedule's author is told."""

from datetime import UTC, datetime, time, timedelta
from typing import get_args
from zoneinfo import ZoneInfo

import pytest

from drumbeat.core.model import DailyAt, Kind
from drumbeat.core.schedule import parse_schedule
from drumbeat.core.schedule_lint import schedule_findings
from drumbeat.errors import Finding

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def findings(text: str, *, now: datetime = NOW, zone: ZoneInfo = BERLIN) -> list[Finding]:
    """The findings on an expression."""
    return schedule_findings(parse_schedule(text), zone=zone, now=now)


@pytest.mark.parametrize(
    "text",
    [
        "every 7 minutes",
        "daily at 07:00",
        "0 7 * * 1-5",
        "*/15 * * * *",
        "0 9-17/3 * * *",
        "1-59/7 * * * *",
        "0 9 * * 1-6/2",
    ],
)
def test_an_ordinary_schedule_has_no_findings(text: str) -> None:
    """Also one that follows elapsed time at every hour, and a step within a range."""
    assert findings(text) == []


def test_both_day_fields_are_said_to_be_joined_by_or_with_the_next_dates() -> None:
    """Spec, section 3.3: says OR and prints the next three dates."""
    (finding,) = findings("0 9,10 15 * 1")
    assert finding.code == "schedule-day-or-weekday"
    assert finding.severity == "warning"
    assert finding.column == 8
    assert "(OR)" in finding.message
    assert "Mon 2026-01-05, Mon 2026-01-12, Thu 2026-01-15" in finding.message
    assert "`*`" in finding.remedy


def test_both_day_fields_with_nth_weekdays_are_said_to_be_joined_by_and() -> None:
    """`#` narrows the day-of-month."""
    (finding,) = findings("0 9 8-14 * 1#2")
    assert "match both" in finding.message
    assert "Mon 2026-01-12, Mon 2026-02-09, Mon 2026-03-09" in finding.message


@pytest.mark.parametrize(
    ("year", "left"), [(2005, "Sun 2005-03-13, Sun 2006-03-12"), (2006, "Sun 2006-03-12")]
)
def test_fewer_than_three_dates_are_said_where_no_others_are_left(year: int, left: str) -> None:
    """From 2007 on, the clocks of New York skip this hour on that very Sunday."""
    now, zone = datetime(year, 1, 1, tzinfo=UTC), ZoneInfo("America/New_York")
    (finding, *_) = findings("*/10 2 8-14 3 0#2", now=now, zone=zone)
    assert finding.code == "schedule-day-or-weekday"
    assert finding.message.endswith(f"; all that is left: {left}")


def test_dates_beyond_the_last_year_that_is_asked_about_are_told_too() -> None:
    (finding,) = findings("0 0 29 2 1#5", now=datetime(8990, 1, 1, tzinfo=UTC))
    assert "Mon 8996-02-29, Mon 9008-02-29, Mon 9036-02-29" in finding.message


@pytest.mark.parametrize(
    ("text", "column", "remedy"),
    [
        ("*/7 * * * *", 1, "`every 7 minutes`"),
        ("0-59/7 * * * *", 1, "`every 7 minutes`"),
        ("0 0-23/5 * * *", 3, "`every 5 hours`"),
        ("0 9 1-31/2 * *", 5, "list the days"),
        ("0 9 1 JAN-DEC/5 *", 7, "list the months"),
        ("0 9 * * 0-6/2", 9, "list the days"),
        ("0 9 * * 1-7/2", 9, "list the days"),
        ("0 9 * * MON-SUN/2", 9, "list the days"),
        ("0 */5 * * *", 3, "`every 5 hours`"),
        ("0 9 */2 * *", 5, "list the days"),
        ("0 9 1 */5 *", 7, "list the months"),
        ("0 9 * * */2", 9, "list the days"),
    ],
)
def test_uneven_steps_are_found(text: str, column: int, remedy: str) -> None:
    """A step that does not divide its field leaves a shorter distance at the end."""
    (finding,) = findings(text)
    assert (finding.code, finding.column) == ("schedule-uneven-step", column)
    assert remedy in finding.remedy


def test_an_interval_is_said_to_be_for_automation_files_only_elsewhere() -> None:
    """Inside an automation file "in an automation file" would point to the file at hand."""
    schedule = parse_schedule("*/7 * * * *")
    here, there = (
        schedule_findings(schedule, zone=BERLIN, now=NOW, kind=kind)[0].remedy
        for kind in get_args(Kind)
    )
    assert here.endswith("or `every 7 minutes`")
    assert there == f"{here} in an automation file"


def test_a_time_in_a_gap_and_in_a_fold_is_found_with_its_date_and_what_happens() -> None:
    """02:30 is skipped in spring and doubled in autumn."""
    gap, fold = findings("daily at 02:30")
    assert gap.code == "schedule-in-gap"
    assert "on 2026-03-29 in Europe/Berlin, 02:30 does not exist" in gap.message
    assert "fires once at 2026-03-29 03:00" in gap.message
    assert fold.code == "schedule-in-fold"
    assert "on 2026-10-25 in Europe/Berlin, 02:30 comes twice" in fold.message
    assert "first of the two" in fold.message
    assert gap.severity == fold.severity == "warning"


def test_a_step_in_some_hours_says_that_a_gap_adds_nothing() -> None:
    """Elapsed time: no slot in the gap, both in the fold."""
    gap, fold = findings("0 */2 * * *")
    assert "has no slot for it" in gap.message
    assert "fires at both" in fold.message


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("30 2 * * 1-5", NOW),
        ("30 2 1 * *", NOW),
        ("30 2 25 10 *", datetime(2026, 10, 25, 0, 45, tzinfo=UTC)),
        ("30 2 29 2 *", NOW),
    ],
)
def test_changes_that_the_schedule_does_not_meet_are_no_findings(text: str, now: datetime) -> None:
    """Other weekdays, other dates, a change that is past or far away."""
    assert findings(text, now=now) == []


def test_a_time_beside_the_gap_is_no_finding_in_the_gap_of_another_zone() -> None:
    """The zone decides."""
    assert findings("daily at 02:30", zone=ZoneInfo("Asia/Tokyo")) == []
    (gap,) = findings("daily at 00:15", zone=ZoneInfo("Africa/Cairo"))
    assert "2026-04-24" in gap.message


def test_a_schedule_without_any_slot_in_its_zone_is_an_error() -> None:
    """It would never run and nothing else would say so."""
    (finding,) = findings("*/30 2 * 3 L0")
    assert (finding.code, finding.severity) == ("schedule-never", "error")


def test_now_may_be_in_any_zone_but_has_to_be_aware() -> None:
    """A naive instant is refused."""
    here = NOW.astimezone(BERLIN) + timedelta(days=1)
    assert len(findings("daily at 02:30", now=here)) == 2
    with pytest.raises(ValueError, match="aware"):
        schedule_findings(DailyAt(at=time(7)), zone=UTC, now=datetime(2026, 1, 1))  # noqa: DTZ001  what is refused
