"""The slots around a change of the clocks, found by looking at every minute of five days.

Nothing of drumbeat or croniter is used here, and no rule of a zone is known: a zone is only asked
what its clocks show at each minute. The rules are those of the specification, section 4, as they
are written there.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

__all__ = ["ZONES", "Change", "Meaning", "Minutes", "changes_of"]

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

ZONES: dict[str, tuple[int, ...]] = {
    # years before the newest changes in which something odd happened
    "Africa/Cairo": (),
    "Africa/Casablanca": (),
    "Africa/El_Aaiun": (),
    "Africa/Juba": (),
    "Africa/Tripoli": (),
    "America/Asuncion": (),
    "America/Caracas": (),
    "America/Havana": (),
    "America/Los_Angeles": (),
    "America/Mexico_City": (),
    "America/New_York": (),
    "America/Nuuk": (),
    "America/Santiago": (),
    "America/Sao_Paulo": (),
    "America/Scoresbysund": (),
    "America/St_Johns": (2010, 2011),  # a minute past midnight, also back over it
    "America/Whitehorse": (),
    "Antarctica/Casey": (2010,),  # three hours, back over midnight
    "Antarctica/Troll": (),
    "Asia/Amman": (),
    "Asia/Beirut": (),
    "Asia/Colombo": (),
    "Asia/Damascus": (),
    "Asia/Gaza": (2011, 2014),
    "Asia/Jerusalem": (),
    "Asia/Kathmandu": (),
    "Asia/Pyongyang": (),
    "Asia/Tehran": (),
    "Atlantic/Azores": (),
    "Australia/Adelaide": (),
    "Australia/Lord_Howe": (),
    "Australia/Sydney": (),
    "Europe/Berlin": (),
    "Europe/Dublin": (),
    "Europe/Istanbul": (),
    "Europe/Lisbon": (),
    "Europe/London": (),
    "Europe/Moscow": (),
    "Europe/Volgograd": (),
    "Pacific/Apia": (2011,),  # a day is missing
    "Pacific/Auckland": (),
    "Pacific/Bougainville": (),
    "Pacific/Chatham": (),
    "Pacific/Easter": (),
    "Pacific/Fiji": (),
    "Pacific/Kiritimati": (1994, 1995),  # a day is missing
    "Pacific/Kwajalein": (1993,),  # a day is missing
    "Pacific/Norfolk": (),
    "Pacific/Tongatapu": (),
}
_FIRST, _LAST = 1978, 2027


@dataclass(frozen=True)
class Change:
    """An instant at which a zone's clocks are set."""

    zone: str
    at: datetime
    gap: bool

    def __str__(self) -> str:
        return f"{self.zone} {'gap' if self.gap else 'fold'} {self.at:%Y-%m-%d %H:%M}Z"


@cache
def changes_of(zone: str) -> tuple[Change, ...]:
    """The newest gap and the newest fold of a zone, and all changes of the years named for it."""
    info = ZoneInfo(zone)
    found: list[Change] = []
    step = timedelta(days=7)
    at = datetime(_FIRST, 1, 1, tzinfo=UTC)
    while at.year < _LAST:
        before, behind = at.astimezone(info).utcoffset(), (at + step).astimezone(info).utcoffset()
        assert before is not None
        assert behind is not None
        if before != behind:
            low, high = at, at + step
            while high - low > MINUTE:
                middle = low + (high - low) // 2 // MINUTE * MINUTE
                low, high = (
                    (middle, high)
                    if middle.astimezone(info).utcoffset() == before
                    else (low, middle)
                )
            found.append(Change(zone, high, behind > before))
        at += step
    newest = [next((one for one in found[::-1] if one.gap is gap), None) for gap in (True, False)]
    odd = [one for one in found if one.at.year in ZONES[zone]]
    return tuple(dict.fromkeys(one for one in (*newest, *odd) if one is not None))


@dataclass(frozen=True)
class Meaning:
    """What an expression says: times of day in minutes, and a rule for local dates."""

    times: Collection[int]
    elapsed: bool
    days: Collection[int] = ()
    months: Collection[int] = range(1, 13)
    weekdays: Collection[int] = ()
    """Sunday is 0."""
    nth: Collection[tuple[int, int]] = ()
    """A weekday, and 1 to 5, or -1 for the last of the month."""
    last_day: bool = False
    any_day: bool = True
    any_weekday: bool = True

    def on(self, day: date) -> bool:
        """Whether a local date matches."""
        if day.month not in self.months:
            return False
        last = (day + DAY).month != day.month
        weekday = day.isoweekday() % 7
        in_month = self.any_day or day.day in self.days or (self.last_day and last)
        if self.nth:
            count = (day.day - 1) // 7 + 1
            latest = (day + 7 * DAY).month != day.month
            named = (weekday, count) in self.nth or (latest and (weekday, -1) in self.nth)
            return in_month and named
        in_week = self.any_weekday or weekday in self.weekdays
        if self.any_day or self.any_weekday:
            return in_month and in_week
        return in_month or in_week


@dataclass
class Minutes:
    """What the clocks of a zone show at every minute from three days before a change to two behind.

    Slots are compared in (`start`, `end`], two days either way; the day before lets a first
    occurrence be told from a second.
    """

    change: Change
    start: datetime = field(init=False)
    end: datetime = field(init=False)
    shown: dict[date, dict[int, list[datetime]]] = field(init=False)
    """By local date and minute of the day: the instants at which the clocks show that."""
    skipped: list[tuple[date, int, datetime]] = field(init=False)
    """Local dates and minutes of the day that never come, and the first instant behind the gap."""

    def __post_init__(self) -> None:
        zone = ZoneInfo(self.change.zone)
        self.start, self.end = self.change.at - 2 * DAY, self.change.at + 2 * DAY
        self.shown, self.skipped = {}, []
        walls: list[tuple[datetime, datetime]] = []
        instant = self.start - DAY
        while instant <= self.end:
            wall = instant.astimezone(zone).replace(tzinfo=None)
            assert wall.second == 0
            walls.append((instant, wall))
            day = self.shown.setdefault(wall.date(), {})
            day.setdefault(wall.hour * 60 + wall.minute, []).append(instant)
            instant += MINUTE
        for (_, before), (behind_at, behind) in pairwise(walls):
            wall = before + MINUTE
            while wall < behind:
                self.skipped.append((wall.date(), wall.hour * 60 + wall.minute, behind_at))
                wall += MINUTE
        days = {day for day, _, _ in self.skipped}
        self.vanished = {
            day
            for day in days
            if day not in self.shown and sum(1 for one in self.skipped if one[0] == day) == 1440
        }

    def slots(self, meaning: Meaning) -> list[datetime]:
        """Every slot of an expression in (`start`, `end`], ascending."""
        return sorted({each for each in self._slots(meaning) if self.start < each <= self.end})

    def _slots(self, meaning: Meaning) -> Iterator[datetime]:
        for day, minutes in self.shown.items():
            if meaning.on(day):
                for time_of_day in meaning.times:
                    instants = minutes.get(time_of_day, ())
                    yield from instants if meaning.elapsed else instants[:1]
        if meaning.elapsed:
            return
        for day, time_of_day, behind in self.skipped:
            if time_of_day in meaning.times and day not in self.vanished and meaning.on(day):
                yield behind
