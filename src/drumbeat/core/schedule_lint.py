"""What the author of a schedule would want to know about it."""

from datetime import datetime, timedelta, tzinfo

from drumbeat.core.cron import cron_fields, wide_steps
from drumbeat.core.model import Cron, DailyAt, Interval, Kind, Schedule
from drumbeat.core.schedule import calendar_of, next_fire
from drumbeat.core.slots import Calendar, dates_from, next_slot, offsets_of, resolve
from drumbeat.errors import Finding, ScheduleError

__all__ = ["schedule_findings"]

AHEAD = timedelta(days=400)
"""How far ahead changes of the clocks are looked for: every yearly change lies within."""


def schedule_findings(
    schedule: Schedule, *, zone: tzinfo, now: datetime, kind: Kind = "automation"
) -> list[Finding]:
    """Findings about a schedule that is legal (spec, section 3.3).

    Args:
        schedule: made by `parse_schedule`.
        zone: the zone that rules it.
        now: an aware instant; the dates that findings name follow it.
        kind: the kind of file it stands in; only automation files can say it as an interval.

    Returns:
        Findings without path and line; `column` counts within the expression where a field is
        meant. All are warnings, except `schedule-never`, which is an error: in this zone, no slot
        is left.

    Raises:
        ValueError: `now` is not aware, or lies before 1900 or after 8999.
    """
    if isinstance(schedule, Interval):
        return []
    try:
        next_fire(schedule, after=now, zone=zone)
    except ScheduleError as error:
        problem = error.problem
        return [
            Finding(
                code=problem.code,
                message=problem.message,
                remedy=problem.remedy,
                severity="error",
            )
        ]
    findings = _clock_changes(schedule, zone, now)
    if isinstance(schedule, Cron):
        findings = [*_both_days(schedule, zone, now), *_uneven_steps(schedule, kind), *findings]
    return findings


def _both_days(schedule: Cron, zone: tzinfo, now: datetime) -> list[Finding]:
    fields = cron_fields(schedule.expression)
    if fields.any_day or fields.any_weekday:
        return []
    calendar, dates = calendar_of(schedule), list[str]()
    slot = next_slot(calendar, after=now, zone=zone)
    while slot is not None and len(dates) < 3:
        shown = f"{slot.astimezone(zone):%a %Y-%m-%d}"
        if shown not in dates:
            dates.append(shown)
        slot = next_slot(calendar, after=slot, zone=zone)
    # Where the change of the clocks skips its hour from some year on, it comes to an end.
    coming = "the next three are" if len(dates) == 3 else "all that is left:"
    meaning = (
        "a date has to match both, because of the `#` or `L`"
        if fields.nth
        else "a date that matches either one counts (OR)"
    )
    return [
        Finding(
            code="schedule-day-or-weekday",
            message=(
                f"`{schedule.expression}` sets day-of-month and day-of-week: {meaning}; "
                f"{coming} {', '.join(dates)}"
            ),
            remedy="if that is not meant, write `*` in one of the two fields",
            column=_column(schedule, 2),
        )
    ]


def _uneven_steps(schedule: Cron, kind: Kind) -> list[Finding]:
    findings = []
    where = "" if kind == "automation" else " in an automation file"
    for field, step, column in wide_steps(schedule.expression):
        even = {
            "minute": f"use 2, 3, 4, 5, 6, 10, 12, 15, 20 or 30, or `every {step} minutes`{where}",
            "hour": f"use 2, 3, 4, 6, 8 or 12, or `every {step} hours`{where}",
            "month": "use 2, 3, 4 or 6, or list the months",
        }
        findings.append(
            Finding(
                code="schedule-uneven-step",
                message=(
                    f"a step of {step} in the {field} field starts over with each "
                    f"{_AROUND[field]}, so the last distance is shorter than the others"
                ),
                remedy=even.get(field, "list the days that are meant"),
                column=column,
            )
        )
    return findings


_AROUND = {
    "minute": "hour",
    "hour": "day",
    "day-of-month": "month",
    "month": "year",
    "day-of-week": "week",
}


def _column(schedule: Cron, field: int) -> int:
    return len(" ".join(schedule.expression.split()[:field])) + 2


def _clock_changes(schedule: DailyAt | Cron, zone: tzinfo, now: datetime) -> list[Finding]:
    """The next gap and the next fold that a time of the schedule falls into."""
    if isinstance(schedule, Cron):
        fields = cron_fields(schedule.expression)
        if fields.elapsed and len(fields.hours) == 24:
            return []  # goes on at the same distances through any change
    calendar = calendar_of(schedule)
    found: dict[str, Finding] = {}
    today = now.astimezone(zone).date()
    for day in dates_from(calendar, today, today + AHEAD):
        for time_of_day in calendar.times if len(offsets_of(day, zone)) > 1 else ():
            wall = datetime(day.year, day.month, day.day) + time_of_day  # noqa: DTZ001  local
            finding = _at_change(wall, calendar, zone, now)
            if finding is not None:
                found.setdefault(finding.code, finding)
    return list(found.values())


def _at_change(wall: datetime, calendar: Calendar, zone: tzinfo, now: datetime) -> Finding | None:
    instant, gap = resolve(wall, zone)
    twice = wall.replace(tzinfo=zone, fold=1).astimezone(now.tzinfo) != instant
    if instant <= now or not (gap or twice):
        return None
    if gap:
        happens = (
            "has no slot for it"
            if calendar.elapsed
            else f"fires once at {instant.astimezone(zone):%Y-%m-%d %H:%M}, right after the gap"
        )
        what = "does not exist: the clocks go forward"
    else:
        happens = "fires at both" if calendar.elapsed else "fires once, at the first of the two"
        what = "comes twice: the clocks go back"
    return Finding(
        code="schedule-in-gap" if gap else "schedule-in-fold",
        message=f"on {wall:%Y-%m-%d} in {zone}, {wall:%H:%M} {what}; the schedule {happens}",
        remedy="choose a time away from the change if that is not meant",
    )
