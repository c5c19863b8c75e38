"""Schedules: the grammar both ways, the next slot, and the slots that were missed."""

import re
from calendar import monthrange
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache

from drumbeat.core.asked import check_aware, check_span
from drumbeat.core.cron import LONGEST_INTERVAL, cron_fields, parse_cron, schedule_error
from drumbeat.core.model import Cron, DailyAt, Interval, Schedule
from drumbeat.core.schedule_hints import nearest_form
from drumbeat.core.slots import HORIZON_YEARS, Calendar, count_slots, next_slot

__all__ = [
    "calendar_of",
    "format_schedule",
    "is_of_the_wall",
    "missed_slots",
    "next_fire",
    "parse_schedule",
]

LEGAL_FORMS = (
    "`every N minutes`, `every minute`, `every N hours`, `every hour`, `daily at HH:MM`, "
    "`every day at HH:MM`, or five cron fields such as `0 7 * * 1-5`"
)

_EVERY = re.compile(
    r"\s*every\s+(?:(?P<n>\d+)\s+(?P<units>minute|hour)s|(?P<unit>minute|hour))\s*",
    re.ASCII | re.IGNORECASE,
)
_DAILY = re.compile(
    r"\s*(?:daily|every\s+day)\s+at\s+(?P<hour>\d\d):(?P<minute>\d\d)\s*", re.ASCII | re.IGNORECASE
)
_MINUTE = timedelta(minutes=1)
_UNITS = {"minute": _MINUTE, "hour": 60 * _MINUTE}
_FIRST_YEAR, _LAST_YEAR = 1900, 9000


def parse_schedule(text: str) -> Schedule:
    """Read a schedule expression (spec, section 4).

    The forms are `every N minutes`, `every minute`, `every N hours`, `every hour`,
    `daily at HH:MM` and `every day at HH:MM` (24-hour clock), in any case and with extra spaces,
    and five cron fields as `drumbeat.core.cron.parse_cron` takes them.

    >>> parse_schedule("every 2 hours")
    Interval(every=datetime.timedelta(seconds=7200))

    Args:
        text: the expression.

    Raises:
        ScheduleError: it is outside the grammar, or its date never comes. The remedy names the
            nearest form; `problem.column` is the 1-based column within `text`.
    """
    if match := _EVERY.fullmatch(text):
        return _interval(match)
    if match := _DAILY.fullmatch(text):
        hour, minute = int(match["hour"]), int(match["minute"])
        if hour > 23 or minute > 59:
            part = "hour" if hour > 23 else "minute"
            raise schedule_error(
                "schedule-out-of-range",
                f"{match['hour']}:{match['minute']} is no time of day",
                f"use 00:00 to 23:59, such as `{nearest_form(text)}`",
                match.start(part) + 1,
            )
        return DailyAt(at=time(hour, minute))
    if _looks_like_cron(text):
        return parse_cron(text)
    stray = next((at for at, char in enumerate(text) if not char.isascii()), None)
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    why = ""
    if stray is not None:
        why = f": {text[stray]!r} (U+{ord(text[stray]):04X}) is no plain ASCII character"
    raise schedule_error(
        "schedule-unknown-form",
        f"{shown!r} is no schedule{why}",
        f"the nearest form is `{nearest_form(text)}`; the legal forms are {LEGAL_FORMS}",
        1 + (stray if stray is not None else len(text) - len(text.lstrip())),
    )


def format_schedule(schedule: Schedule) -> str:
    """Write a schedule so that `parse_schedule` reads it back as an equal value.

    Raises:
        ScheduleError: the grammar has no words for it: an interval that is not a whole number of
            minutes from 1 minute to 366 days, a time of day with seconds or a zone, a cron
            expression that `parse_schedule` would refuse.
    """
    if isinstance(schedule, Interval):
        text = _every(schedule.every)
    elif isinstance(schedule, DailyAt):
        text = f"daily at {schedule.at:%H:%M}"
    else:
        text = schedule.expression
    if parse_schedule(text) != schedule:
        raise schedule_error(
            "schedule-not-writable",
            f"{schedule!r} cannot be written as an expression",
            f"use what can be: {LEGAL_FORMS}",
            1,
        )
    return text


def next_fire(
    schedule: Schedule, *, after: datetime, zone: tzinfo, last_finish: datetime | None = None
) -> datetime:
    """The next slot of `schedule`, in UTC.

    Wall clock (`DailyAt`, `Cron`): the first slot strictly later than `after`, under the rules of
    `drumbeat.core.slots`. `last_finish` plays no part.

    `Interval`: `last_finish + every`, which lies at or before `after` when the slot is overdue.
    Without `last_finish` it never ran: `after + every`, so `after` has to be the instant at which
    the automation was first seen, not the present one. `zone` plays no part.

    Args:
        schedule: what to look at.
        after: an aware instant, in any zone, from 1900 on and before 9000.
        zone: the zone that rules times of day.
        last_finish: when the last run finished; aware.

    Raises:
        ScheduleError: `schedule` was not made by `parse_schedule` and is none, or (code
            `schedule-never`) has no slot in that zone within 50 years, because each one falls into
            a gap of a zone's clock.
        TypeError: an instant is no datetime, or an interval no timedelta.
        ValueError: an instant is not aware, or out of bounds.
    """
    after = _instant(after, "after")
    if isinstance(schedule, Interval):
        _check_interval(schedule)
        return (
            after if last_finish is None else _instant(last_finish, "last_finish")
        ) + schedule.every
    slot = next_slot(calendar_of(schedule), after=after, zone=zone)
    if slot is None:
        raise schedule_error(
            "schedule-never",
            f"`{_name(schedule)}` has no slot in {zone} in the {HORIZON_YEARS} years "
            f"after {after:%Y-%m-%d}",
            "choose an hour that the change of the clocks does not skip",
            1,
        )
    return slot


def missed_slots(
    schedule: DailyAt | Cron,
    *,
    after: datetime,
    until: datetime,
    zone: tzinfo,
    limit: int = 1000,
) -> tuple[int, datetime | None]:
    """How many slots lie in (after, until], and the newest of them, or None.

    The work is bounded by `limit`: the count stops there and then means "at least"; the newest is
    exact in any case.

    Args:
        schedule: a wall-clock schedule; an interval has no slots of its own to miss.
        after: an aware instant; a slot at it does not count.
        until: an aware instant; a slot at it counts.
        zone: the zone that rules times of day.
        limit: where counting stops, 1 or more.

    Raises:
        ScheduleError: `schedule` is none.
        TypeError: an instant is no datetime, or an interval no timedelta.
        ValueError: an instant is not aware, or out of bounds.
    """
    return count_slots(
        calendar_of(schedule),
        after=_instant(after, "after"),
        until=_instant(until, "until"),
        zone=zone,
        limit=limit,
    )


def calendar_of(schedule: DailyAt | Cron) -> Calendar:
    """The dates and times of day of a wall-clock schedule.

    Raises:
        ScheduleError: `schedule` is none.
    """
    if isinstance(schedule, DailyAt):
        at = schedule.at
        return Calendar(
            times=(
                timedelta(
                    hours=at.hour,
                    minutes=at.minute,
                    seconds=at.second,
                    microseconds=at.microsecond,
                ),
            ),
            dates=_all_dates,
        )
    return _cron_calendar(schedule.expression)


@lru_cache(maxsize=1024)
def _cron_calendar(expression: str) -> Calendar:
    fields = cron_fields(expression)
    return Calendar(
        times=tuple(
            timedelta(hours=hour, minutes=minute)
            for hour in fields.hours
            for minute in fields.minutes
        ),
        dates=fields.dates,
        elapsed=fields.elapsed,
    )


def is_of_the_wall(schedule: Schedule) -> bool:
    """Whether its moments are times of day, and not elapsed time (spec, section 4)."""
    return not isinstance(schedule, Interval) and not calendar_of(schedule).elapsed


def _all_dates(year: int, month: int) -> range:
    return range(1, monthrange(year, month)[1] + 1)


def _interval(match: re.Match[str]) -> Interval:
    if match["unit"]:
        return Interval(every=_UNITS[match["unit"].lower()])
    unit = match["units"].lower()
    digits = match["n"].lstrip("0")
    if not digits:
        raise schedule_error(
            "schedule-zero",
            f"an interval of 0 {unit}s never passes",
            f"the nearest form is `every {unit}`; the legal forms are {LEGAL_FORMS}",
            match.start("n") + 1,
        )
    most = LONGEST_INTERVAL // _UNITS[unit]
    if len(digits) > 9 or int(digits) > most:
        raise schedule_error(
            "schedule-out-of-range",
            f"an interval has at most {most} {unit}s (366 days)",
            f"the nearest form is `every {most} {unit}s`; for rare dates use five cron fields, "
            "such as `0 7 1 1 *`",
            match.start("n") + 1,
        )
    return Interval(every=int(digits) * _UNITS[unit])


def _every(every: timedelta) -> str:
    minutes = every // _MINUTE
    if minutes % 60 == 0:
        return "every hour" if minutes == 60 else f"every {minutes // 60} hours"
    return "every minute" if minutes == 1 else f"every {minutes} minutes"


def _looks_like_cron(text: str) -> bool:
    fields = text.split()
    if not fields or fields[0].lower() in {"every", "daily"}:
        return False
    if fields[0].startswith("@") or "*" in fields:
        return True
    return len(fields) in (5, 6, 7) and not re.match(r"[A-Za-z]{2}", fields[0]) and ":" not in text


def _check_interval(schedule: Interval) -> None:
    if check_span("Interval.every", schedule.every) <= timedelta(0):
        raise schedule_error(
            "schedule-zero",
            f"an interval of {schedule.every} never passes",
            "use an interval above zero, such as `every minute`",
            1,
        )


def _name(schedule: DailyAt | Cron) -> str:
    return schedule.expression if isinstance(schedule, Cron) else f"daily at {schedule.at:%H:%M}"


def _instant(value: datetime, name: str) -> datetime:
    check_aware(name, value)
    if not _FIRST_YEAR <= value.year < _LAST_YEAR:
        msg = f"{name} must lie in the years {_FIRST_YEAR} to {_LAST_YEAR - 1}, not {value.year}"
        raise ValueError(msg)
    return value.astimezone(UTC)
