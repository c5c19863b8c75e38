"""Five-field cron expressions: read strictly, and which days they match; croniter's only user.

croniter accepts much that would quietly mean other things (six fields, `*/90`, `5-5`, `11-2`), so
every field is checked and spelled out as plain numbers first. Which instants come of the matching
days and times is not asked of croniter at all: `drumbeat.core.slots` holds the rules for that.
"""

import calendar
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache

import attrs
from croniter import CroniterError, croniter

from drumbeat.core.messages import quoted, shown
from drumbeat.core.model import Cron
from drumbeat.errors import Problem, ScheduleError

__all__ = [
    "LONGEST_INTERVAL",
    "CronFields",
    "cron_fields",
    "parse_cron",
    "schedule_error",
    "wide_steps",
]

LONGEST_INTERVAL = timedelta(days=366)
"""The longest distance that the grammar of schedules has a form for."""

LAST = 0
"""Stands for "the last one of the month" where 1 to 5 count from its start."""

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LAYOUT = "five fields (minute hour day-of-month month day-of-week), such as `0 7 * * 1-5`"
_LONGEST = 1000
_TERM = re.compile(
    r"(?P<star>\*)(?:/(?P<every>\d+))?|(?P<low>\w+)(?:-(?P<high>\w+))?(?:/(?P<step>\d+))?", re.ASCII
)
_NTH = re.compile(
    r"L(?P<last>\w+)|(?P<last2>[0-7]|[A-Z]{3})L|(?P<weekday>\w+)#(?P<nth>\d+)", re.ASCII
)


@attrs.frozen(kw_only=True)
class _Field:
    name: str
    low: int
    high: int
    step: str
    names: tuple[str, ...] = ()
    first: int = 0

    @property
    def top(self) -> int:
        """The greatest value that is not another name of the least one: Sunday is 0 and 7."""
        return 6 if self.names is WEEKDAYS else self.high

    def number(self, word: str) -> int | None:
        """The value that a number or a name stands for, or None."""
        if word.isdigit() and len(word) <= 4:
            return int(word)
        return self.names.index(word) + self.first if word in self.names else None


_FIELDS = (
    _Field(name="minute", low=0, high=59, step="*/15"),
    _Field(name="hour", low=0, high=23, step="*/6"),
    _Field(name="day-of-month", low=1, high=31, step="*/10"),
    _Field(name="month", low=1, high=12, step="*/3", names=MONTHS, first=1),
    _Field(name="day-of-week", low=0, high=7, step="1-5/2", names=WEEKDAYS),
)
_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY = _FIELDS


@attrs.frozen(kw_only=True)
class CronFields:
    """What a cron expression says, spelled out.

    `weekdays` counts from Sunday, 0. `nth` pairs a weekday with 1 to 5, or with 0 for the last one
    of the month. `elapsed` is true for a `*` or a step in the minute or hour field: such an
    expression follows elapsed time over a change of the clocks (spec, section 4).
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    days: frozenset[int]
    last_day: bool
    weekdays: frozenset[int]
    nth: frozenset[tuple[int, int]]
    any_day: bool
    any_weekday: bool
    elapsed: bool

    def dates(self, year: int, month: int) -> tuple[int, ...]:
        """The days of that month which match, ascending.

        A day-of-month and a day-of-week that are both restricted are joined by OR, as cron has
        always done; a day-of-week with `#` or `L` narrows the day-of-month instead.
        """
        if month not in self.months:
            return ()
        monday_first, length = calendar.monthrange(year, month)
        return tuple(self._matching(length=length, first=(monday_first + 1) % 7))

    @property
    def comes(self) -> bool:
        """Whether any date ever matches: every weekday falls on every date in 400 years."""
        return any(
            any(self._matching(length=length, first=first))
            for month in self.months
            for length in {calendar.monthrange(year, month)[1] for year in (2000, 2001)}
            for first in range(7)
        )

    def _matching(self, *, length: int, first: int) -> Iterator[int]:
        for day in range(1, length + 1):
            weekday = (first + day - 1) % 7
            in_days = self.any_day or day in self.days or (self.last_day and day == length)
            if self.nth:
                in_week = (weekday, (day + 6) // 7) in self.nth or (
                    day > length - 7 and (weekday, LAST) in self.nth
                )
            else:
                in_week = self.any_weekday or weekday in self.weekdays
            either = not (self.nth or self.any_day or self.any_weekday)
            if (in_days or in_week) if either else (in_days and in_week):
                yield day


def parse_cron(text: str) -> Cron:
    """Read a five-field cron expression (spec, section 3.2).

    Names (`MON`, `JAN`, in any case), ranges, lists, steps, `L` (last day of the month; `L5` or
    `5L` for the last Friday) and `#` (`1#2`, the second Monday) are known; Sunday is 0 and 7.

    Args:
        text: the expression; fields may be separated by several spaces.

    Raises:
        ScheduleError: it is none, or its date never comes; `problem.column` is the 1-based column
            in `text` at which the field in question begins. The remedy may be another form of
            schedule, which automation files alone have.
    """
    cron_fields(text)
    return Cron(expression=" ".join(text.split()))


@lru_cache(maxsize=1024)
def cron_fields(expression: str) -> CronFields:
    """What `expression` says, spelled out.

    Raises:
        ScheduleError: as for `parse_cron`.
    """
    return _read(expression)


def wide_steps(expression: str) -> list[tuple[str, int, int]]:
    """Steps over a whole field that do not divide it: (field name, step, column of the field).

    A range from end to end, such as `0-59/7`, is the whole field too.

    Args:
        expression: one that `parse_cron` accepts.
    """
    cycles = (60, 24, None, 12, None)
    found = []
    for field, cycle, match in zip(
        _FIELDS, cycles, re.finditer(r"\S+", expression.upper()), strict=True
    ):
        for term in match.group().split(","):
            parts = _TERM.fullmatch(term)
            if parts is None or not _is_whole(field, parts):
                continue
            step = int(parts["every"] or parts["step"] or 1)
            if step > 1 and (cycle is None or cycle % step):
                found.append((field.name, step, match.start() + 1))
    return found


def _is_whole(field: _Field, term: re.Match[str]) -> bool:
    """Whether a term goes on to the end of its field, or around it."""
    low, high = field.number(term["low"] or ""), field.number(term["high"] or "")
    if low is None or high is None:
        return True
    sunday = field is _WEEKDAY and high == field.low
    return (field.high if sunday else high) - low >= field.top - field.low


def _read(text: str) -> CronFields:
    if not text.isascii():
        stray = next(at for at, char in enumerate(text) if not char.isascii())
        raise schedule_error(
            "cron-not-ascii",
            f"{text[stray]!r} (U+{ord(text[stray]):04X}) is no character of a cron expression",
            "write it with plain digits, letters and spaces",
            stray + 1,
        )
    if len(text) > _LONGEST:
        raise schedule_error(
            "cron-field-count",
            f"a cron expression has at most {_LONGEST} characters, this has {len(text)}",
            f"write {_LAYOUT}",
            1,
        )
    words = list(re.finditer(r"\S+", text))
    if words and words[0].group().startswith("@"):
        macro = words[0].group().lower()
        raise schedule_error(
            "cron-macro",
            f"{quoted(macro)} is no five-field expression",
            f"write `{_MACROS[macro]}`" if macro in _MACROS else f"write {_LAYOUT}",
            words[0].start() + 1,
        )
    if len(words) != len(_FIELDS):
        extra = words[len(_FIELDS)] if len(words) > len(_FIELDS) else None
        hint = "; seconds and years are not known" if len(words) in (6, 7) else ""
        raise schedule_error(
            "cron-field-count",
            f"a cron expression has exactly five fields, this has {len(words)}",
            f"write {_LAYOUT}{hint}",
            extra.start() + 1 if extra else 1,
        )
    columns = [word.start() + 1 for word in words]
    raw = [word.group().upper() for word in words]
    plain = [
        _plain(field, word, column)
        for field, word, column in zip(_FIELDS, raw, columns, strict=True)
    ]
    try:
        expanded, nth = croniter.expand(" ".join(plain))
    except CroniterError as error:
        raise schedule_error(
            "cron-mixed-weekdays",
            f"{quoted(raw[-1])} mixes plain weekdays with `#` or `L`",
            "use one kind in the day-of-week field, or two files",
            columns[-1],
        ) from error
    minutes, hours, days, months, weekdays = (
        frozenset(range(field.low, field.high + 1))
        if "*" in values
        else frozenset(value for value in values if isinstance(value, int))
        for field, values in zip(_FIELDS, expanded, strict=True)
    )
    fields = CronFields(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        months=months,
        days=days,
        last_day="l" in expanded[2],
        weekdays=weekdays,
        nth=frozenset(
            (weekday, count if isinstance(count, int) else LAST)
            for weekday, counts in nth.items()
            for count in counts
        ),
        any_day=plain[2] == "*",
        any_weekday=plain[4] == "*",
        elapsed=any(mark in word for word in raw[:2] for mark in "*/"),
    )
    if not fields.comes:
        raise schedule_error(
            "cron-never",
            f"no date ever matches day-of-month `{shown(raw[2])}`, month `{shown(raw[3])}`, "
            f"day-of-week `{shown(raw[4])}`",
            "choose a day that the month has; `L` is the last day of any month",
            columns[2],
        )
    return fields


def _plain(field: _Field, word: str, column: int) -> str:
    """The field as plain numbers, `*`, `l`, `w#n` and `lw`, of which croniter has one reading."""
    terms: list[str] = []
    for term in word.split(","):
        nth = _NTH.fullmatch(term)
        if term == "L" and field is _DAY:
            terms.append("l")
        elif nth and field is _WEEKDAY:
            terms.append(_nth(nth, term, column))
        else:
            values = _values(field, term, column)
            terms += [str(value) for value in values] if values is not None else ["*"]
    return "*" if "*" in terms else ",".join(dict.fromkeys(terms))


def _nth(match: re.Match[str], term: str, column: int) -> str:
    weekday = _number(
        _WEEKDAY, match["last"] or match["last2"] or match["weekday"], term, column
    ) % len(WEEKDAYS)
    if match["nth"] is None:
        return f"l{weekday}"
    if match["nth"] not in {"1", "2", "3", "4", "5"}:
        raise schedule_error(
            "cron-out-of-range",
            f"`{shown(term)}`: a month has no weekday number {match['nth']}",
            f"count from 1 to 5, or write `L{weekday}` for the last one",
            column,
        )
    return f"{weekday}#{match['nth']}"


def _values(field: _Field, term: str, column: int) -> list[int] | None:
    """The numbers of one term, or None for all of them."""
    match = _TERM.fullmatch(term)
    if match is None:
        raise schedule_error(
            "cron-syntax",
            f"`{shown(term)}` cannot be read in the {field.name} field"
            if term
            else f"the {field.name} field has an empty place in its list",
            f"write `*`, a number, a list `1,2`, a range `1-5` or a step `{field.step}`"
            f"{_specials(field)}",
            column,
        )
    if match["star"]:
        step = _step(field, match["every"], field.low, field.top, column)
        return None if step == 1 else list(range(field.low, field.top + 1, step))
    low = _number(field, match["low"], term, column)
    if match["high"] is None:
        if match["step"] is None:
            return [low % 7 if field is _WEEKDAY else low]
        low = low % 7 if field is _WEEKDAY else low
        step = _step(field, match["step"], low, field.top, column)
        return list(range(low, field.top + 1, step))
    high = _number(field, match["high"], term, column)
    if field is _WEEKDAY and high == 0 and low > 0:
        high = 7  # as the end of a range, Sunday is the seventh day
    if low > high:
        raise schedule_error(
            "cron-wraps",
            f"the range `{shown(term)}` runs backwards",
            f"write `{_unwrapped(field, low, high, match['step'])}`",
            column,
        )
    step = _step(field, match["step"], low, high, column)
    values = range(low, high + 1, step)
    return [value % 7 for value in values] if field is _WEEKDAY else list(values)


def _unwrapped(field: _Field, low: int, high: int, step: str | None) -> str:
    """The values of a range that runs past the end of its field, as the field can say them."""
    if field is _WEEKDAY and low > field.top:
        low = field.low
        parts = [(low, high)]
    else:
        parts = [(low, field.top), (field.low, high)]
    every = int(step or 1)
    if every > 1:
        values = [value for first, last in parts for value in range(first, last + 1)]
        return ",".join(map(str, values[::every]))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _number(field: _Field, word: str, term: str, column: int) -> int:
    value = field.number(word)
    if value is None:
        raise schedule_error(
            "cron-syntax",
            f"`{shown(term)}` cannot be read in the {field.name} field",
            f"use numbers from {field.low} to {field.high}{_specials(field)}",
            column,
        )
    if not field.low <= value <= field.high:
        raise schedule_error(
            "cron-out-of-range",
            f"{value} is outside the {field.name} field",
            f"use {field.low} to {field.high}",
            column,
        )
    return value


def _specials(field: _Field) -> str:
    if field is _DAY:
        return ", or `L` for the last day of the month"
    if field is _WEEKDAY:
        return ", names such as `MON`, `1#2` (second Monday) or `L5` (last Friday)"
    return ", or names such as `JAN`" if field is _MONTH else ""


def _step(field: _Field, word: str | None, low: int, high: int, column: int) -> int:
    if word is None:
        return 1
    step = int(word) if len(word) <= 6 else 10**6
    if step == 0:
        raise schedule_error(
            "cron-step", "a step of 0 never moves on", "use a step of 1 or more", column
        )
    if step > 1 and step > high - low:
        raise schedule_error(
            "cron-step",
            f"the step {word} is larger than the range {low} to {high} of the {field.name} field",
            _instead_of_step(field, step, low),
            column,
        )
    return step


def _instead_of_step(field: _Field, step: int, low: int) -> str:
    if field is _MINUTE and field.high < step <= LONGEST_INTERVAL // timedelta(minutes=1):
        hours, rest = divmod(step, 60)
        other = ""
        if not rest and hours < 24:
            other = f", or `0 {f'*/{hours}' if hours > 1 else '*'} * * *`"
        return f"write `every {step} minutes`{other}"
    if field is _HOUR and field.high < step <= LONGEST_INTERVAL // timedelta(hours=1):
        return f"write `every {step} hours`, or one hour such as `{low}`"
    return f"write `{low}` alone, or a smaller step"


def schedule_error(code: str, message: str, remedy: str, column: int) -> ScheduleError:
    """Make the error of an expression; `column` counts within it, from 1."""
    return ScheduleError(Problem(code=code, message=message, remedy=remedy, column=column))
