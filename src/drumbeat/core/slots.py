"""From local dates and times to instants: what becomes of a slot when the clocks change.

The rules (spec, section 4), for a local date and time of a schedule in a zone:

- It exists once: that instant.
- It exists twice (a fold): the first of the two. A calendar that follows elapsed time has both.
- It does not exist (a gap): the first valid instant after the gap, once, however many times of day
  lie in the gap. A calendar that follows elapsed time has none.
- Its whole local date does not exist: no slot.

Both readings are exact for any `tzinfo` that keeps PEP 495; nothing here knows a zone's rules, it
only asks for offsets. Without a change of the clocks a local date is plain arithmetic, which is why
counting a thousand slots takes milliseconds.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

import attrs

__all__ = [
    "HORIZON_YEARS",
    "Calendar",
    "count_slots",
    "dates_from",
    "next_slot",
    "offsets_of",
    "resolve",
]

HORIZON_YEARS = 50
"""How far ahead a slot is looked for; the rarest date there is, a 29 February that has to be a
certain weekday, comes at least every 40 years."""

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@attrs.frozen(kw_only=True)
class Calendar:
    """Which local dates have slots, and at which times of day.

    `times` are ascending times since the local midnight. `dates` gives the matching days of a year
    and month, ascending. `elapsed` says how changes of the clocks are met (module docstring).
    """

    times: tuple[timedelta, ...]
    dates: Callable[[int, int], Sequence[int]]
    elapsed: bool = False


def next_slot(calendar: Calendar, *, after: datetime, zone: tzinfo) -> datetime | None:
    """The first slot strictly later than `after`, in UTC; None if there is none within 50 years.

    Args:
        calendar: whose slots.
        after: an aware instant.
        zone: the zone that rules the calendar's dates and times.
    """
    best: datetime | None = None
    best_day = date.max
    for day in _days_around(calendar, after, zone):
        if best is not None and day > best_day + _DAY:
            break
        slot = next(_slots_on(calendar, day, zone, after), None)
        if slot is not None and not calendar.elapsed:
            return slot
        if slot is not None and (best is None or slot < best):
            # The clocks can go back over midnight: the next date may hold an earlier instant.
            best, best_day = slot, min(best_day, day)
    return best


def count_slots(
    calendar: Calendar, *, after: datetime, until: datetime, zone: tzinfo, limit: int
) -> tuple[int, datetime | None]:
    """How many slots lie in (after, until], and the newest of them.

    The count stops at `limit`, where it says "at least"; the newest is exact in any case.
    """
    count = 0
    newest: datetime | None = None
    for day in _days_around(calendar, after, zone, until):
        for slot in _slots_on(calendar, day, zone, after):
            if slot > until:
                break
            if slot == newest:
                continue  # two dates that share the end of a gap over midnight
            if count == limit:
                return limit, _newest(calendar, until, zone)
            count += 1
            newest = slot if newest is None else max(newest, slot)
    return count, newest


def _newest(calendar: Calendar, until: datetime, zone: tzinfo) -> datetime:
    """The newest slot at or before `until`, which the caller knows to exist."""
    best: datetime | None = None
    day = until.astimezone(zone).date() + _DAY
    best_day = date.min
    while best is None or day >= best_day - _DAY:
        if day.day in calendar.dates(day.year, day.month):
            slots = [slot for slot in _slots_on(calendar, day, zone) if slot <= until]
            if slots and (best is None or slots[-1] > best):
                best, best_day = slots[-1], max(best_day, day)
        day -= _DAY
    return best


def dates_from(calendar: Calendar, start: date, last: date | None = None) -> Iterator[date]:
    """The matching local dates from `start` to `last`, or for 50 years, ascending."""
    if last is None:
        last = date(start.year + HORIZON_YEARS, start.month, 28)
    for months in range(start.month - 1, 12 * (last.year - start.year) + last.month):
        year, month = start.year + months // 12, months % 12 + 1
        for number in calendar.dates(year, month):
            day = date(year, month, number)
            if start <= day <= last:
                yield day


def _days_around(
    calendar: Calendar, after: datetime, zone: tzinfo, until: datetime | None = None
) -> Iterator[date]:
    # One day early: in a fold over midnight the date before can still have slots to come.
    start = after.astimezone(zone).date() - _DAY
    return dates_from(calendar, start, until and until.astimezone(zone).date() + _DAY)


def _slots_on(
    calendar: Calendar, day: date, zone: tzinfo, after: datetime | None = None
) -> Iterator[datetime]:
    """The slots of one local date, ascending, strictly later than `after`."""
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001  local wall time
    offsets = offsets_of(day, zone)
    if len(offsets) == 1:
        start = (midnight - offsets[0]).replace(tzinfo=UTC)
        first = 0 if after is None else bisect_right(calendar.times, after - start)
        for index in range(first, len(calendar.times)):
            yield start + calendar.times[index]
        return
    slots = _slots_at_a_change(calendar.times, calendar.elapsed, midnight, zone)
    yield from slots[0 if after is None else bisect_right(slots, after) :]


# Who looks at a schedule on such a day looks again soon, and each time of day costs a search.
@lru_cache(maxsize=64)
def _slots_at_a_change(
    times: tuple[timedelta, ...], elapsed: bool, midnight: datetime, zone: tzinfo
) -> tuple[datetime, ...]:
    """The slots of a local date on which the clocks change, ascending."""
    offsets = offsets_of(midnight.date(), zone)
    found: set[datetime] = set()
    for time_of_day in times:
        wall = midnight + time_of_day
        if elapsed:
            for offset in offsets:
                instant = (wall - offset).replace(tzinfo=UTC)
                if instant.astimezone(zone).utcoffset() == offset:
                    found.add(instant)
        else:
            instant, gap = resolve(wall, zone)
            if gap is None or gap[0] > midnight or gap[1] < midnight + _DAY:
                found.add(instant)
    return tuple(sorted(found))


def offsets_of(day: date, zone: tzinfo) -> list[timedelta]:
    """The UTC offsets at both ends of a local date: one, unless the clocks change."""
    offsets: list[timedelta] = []
    start = datetime(day.year, day.month, day.day)  # noqa: DTZ001  local wall time
    for end in (start, start + _DAY):
        for fold in (0, 1):
            offset = _offset(end, zone, fold)
            if offset not in offsets:
                offsets.append(offset)
    return offsets


def resolve(wall: datetime, zone: tzinfo) -> tuple[datetime, tuple[datetime, datetime] | None]:
    """The instant of a local time, and the local start and end of the gap if it lies in one.

    Args:
        wall: a local time without `tzinfo`. In a fold, its first occurrence counts; in a gap, the
            first valid instant after it.
        zone: where the clock hangs.
    """
    before, behind = _offset(wall, zone, 0), _offset(wall, zone, 1)
    if before >= behind:
        return (wall - before).replace(tzinfo=UTC), None
    low, high = (wall - behind).replace(tzinfo=UTC), (wall - before).replace(tzinfo=UTC)
    while high - low > _SECOND:
        middle = low + ((high - low) / 2 // _SECOND) * _SECOND
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    edge = high.replace(tzinfo=None)
    return high, (edge + before, edge + behind)


def _offset(wall: datetime, zone: tzinfo, fold: int) -> timedelta:
    offset = wall.replace(tzinfo=zone, fold=fold).utcoffset()
    if offset is None:
        msg = f"the zone {zone!r} has no offset for {wall}"
        raise ValueError(msg)
    return offset
