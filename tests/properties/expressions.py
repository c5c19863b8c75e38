"""Random schedule expressions of every form, and what each of them says, read without drumbeat."""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from zoneinfo import ZoneInfo

from minutes import Change, Meaning

__all__ = ["expression", "meaning"]

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def expression(chance: random.Random, change: Change) -> str:
    """One expression, of a kind and with dates and times that likely have slots near a change."""
    zone = ZoneInfo(change.zone)
    near = [
        (change.at + timedelta(minutes=minutes)).astimezone(zone)
        for minutes in (-1441, -61, -31, -1, 0, 1, 30, 60, 1440)
    ]
    last = (change.at - timedelta(minutes=1)).astimezone(zone).replace(tzinfo=None)
    # What the clocks would show if they were not set: in a gap, the times that are skipped.
    near += [last + timedelta(minutes=minutes) for minutes in (1, 31)]
    wall = chance.choice(near)
    kind = chance.random()
    if kind < 0.04:
        return chance.choice(
            (
                "every minute",
                "every hour",
                f"every {chance.randint(1, 5000)} minutes",
                f"every {chance.randint(1, 100)} hours",
            )
        )
    if kind < 0.14:
        hour, minute = wall.hour, chance.choice((0, 15, 30, 45, wall.minute, chance.randrange(60)))
        return f"{chance.choice(('daily', 'every day', 'Daily  '))} at {hour:02}:{minute:02}"
    minute = _field(chance, 0, 59, [each.minute for each in near], star=0.15)
    hour = _field(chance, 0, 23, [each.hour for each in near], star=0.2)
    day = _days(chance, wall.day)
    month = _field(chance, 1, 12, [wall.month], star=0.75, names=MONTHS)
    weekday = _weekdays(chance, wall.isoweekday() % 7)
    return f"{minute} {hour} {day} {month} {weekday}"


def _field(
    chance: random.Random,
    low: int,
    high: int,
    near: Sequence[int],
    *,
    star: float,
    names: Sequence[str] = (),
) -> str:
    def number() -> int:
        return chance.choice(near) if chance.random() < 0.6 else chance.randint(low, high)

    def written(value: int) -> str:
        name = names[value - low] if names else ""
        return chance.choice((name, name.lower())) if name and chance.random() < 0.5 else str(value)

    def span() -> tuple[int, int]:
        first, last = sorted((number(), number()))
        return first, last

    def stepped() -> str:
        first, last = span()
        if last - first < 2:
            return written(first)
        return f"{written(first)}-{written(last)}/{chance.randint(1, last - first)}"

    def from_on() -> str:
        first = chance.randint(low, high - 2)
        return f"{first}/{chance.randint(1, high - first)}"

    if chance.random() < star:
        return "*"
    forms: tuple[Callable[[], str], ...] = (
        lambda: written(number()),
        lambda: written(number()),
        lambda: f"*/{chance.randint(1, (high - low) // 2)}",
        lambda: "{}-{}".format(*map(written, span())),
        stepped,
        from_on,
    )
    terms = [chance.choice(forms)() for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    return ",".join(terms)


def _days(chance: random.Random, near: int) -> str:
    kind = chance.random()
    if kind < 0.6:
        return "*"
    if kind < 0.66:
        return "L"
    if kind < 0.7:
        return f"{near},L"
    return _field(chance, 1, 31, [near], star=0)


def _weekdays(chance: random.Random, near: int) -> str:
    def word(value: int) -> str:
        return chance.choice((str(value), WEEKDAYS[value % 7], WEEKDAYS[value % 7].title()))

    kind = chance.random()
    one = near if chance.random() < 0.6 else chance.randrange(7)
    if kind < 0.55:
        return "*"
    if kind < 0.6:
        return f"{word(one)}#{chance.randint(1, 5)}"
    if kind < 0.64:
        return (
            f"{word(one)}#{chance.randint(1, 4)},{word(chance.randrange(7))}#{chance.randint(1, 4)}"
        )
    if kind < 0.7:
        return chance.choice((f"L{one}", f"{one}L", f"{WEEKDAYS[one]}L", f"L{WEEKDAYS[one]}"))
    if kind < 0.76:
        return chance.choice(
            ("MON-FRI", "1-5", "fri-SUN", "6-7", "0-2", "1-5/2", "*/2", "*/3", "5-5")
        )
    if kind < 0.82:
        return "7"
    return ",".join(
        word(chance.choice((one, chance.randrange(7)))) for _ in range(chance.choice((1, 2)))
    )


# ---- what they say


def meaning(text: str) -> Meaning | timedelta:
    """What an expression says; the length of an interval."""
    words = text.split()
    lowered = [word.lower() for word in words]
    if lowered[-2] == "at":
        hour, minute = map(int, words[-1].split(":"))
        return Meaning(times=(hour * 60 + minute,), elapsed=False)
    if lowered[0] == "every":
        count = 1 if len(words) == 2 else int(words[1])
        return timedelta(minutes=count * (60 if lowered[-1].startswith("hour") else 1))
    minute, hour, day, month, weekday = (word.upper() for word in words)
    minutes, hours = _values(minute, 0, 59), _values(hour, 0, 23)
    nth = {_nth(term) for term in weekday.split(",") if "#" in term or _is_last(term)}
    return Meaning(
        times=frozenset(60 * h + m for h in hours for m in minutes),
        elapsed=any(sign in part for part in (minute, hour) for sign in "*/"),
        days=_values(",".join(term for term in day.split(",") if term != "L"), 1, 31),
        last_day="L" in day.split(","),
        months=_values(month, 1, 12, MONTHS),
        weekdays=frozenset() if nth else {value % 7 for value in _values(weekday, 0, 7, WEEKDAYS)},
        nth=nth,
        any_day=_any(day),
        any_weekday=_any(weekday),
    )


def _any(text: str) -> bool:
    return any(term in ("*", "*/1") for term in text.split(","))


def _is_last(term: str) -> bool:
    return len(term) > 1 and (term.startswith("L") or term.endswith("L"))


def _nth(term: str) -> tuple[int, int]:
    day, _, count = term.partition("#")
    if count:
        return _number(day, WEEKDAYS, 0) % 7, int(count)
    return _number(
        day.removeprefix("L") if day.startswith("L") else day.removesuffix("L"), WEEKDAYS, 0
    ) % 7, -1


def _number(word: str, names: Sequence[str], low: int) -> int:
    return names.index(word) + low if word in names else int(word)


def _values(text: str, low: int, high: int, names: Sequence[str] = ()) -> frozenset[int]:
    found: set[int] = set()
    top = 6 if names is WEEKDAYS else high
    for term in filter(None, text.split(",")):
        span, _, step = term.partition("/")
        if span == "*":
            first, last = low, top
        else:
            begin, dash, end = span.partition("-")
            first = _number(begin, names, low)
            last = _number(end, names, low) if dash else (top if step else first)
            if names is WEEKDAYS and dash and last == 0 < first:
                last = 7
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)
