"""Which slots are due: the scheduler's memory and rules, with `now` passed in.

Theory of operation. An entry knows up to which instant its slots are accounted for (`base`), the
slots it gave out (`given`) and its next slot (`due`). `take` gives out what is due, one `Due` per
entry: every slot between `base` and now is folded into the newest, so however long the machine
slept there is one catch-up and no burst.

An interval has no grid. Its slot is the last finish (or the first sight) plus the interval; once
given out it has no next slot until `finished` says when the run ended. What a restart cannot know,
a slot that was given out and whose finish was not recorded, counts as finished at its slot.

The wall clock can be set. A slot that was given out is never given out again. After going back by
up to a day, wall-clock schedules wait until time has caught up, so that folded slots stay folded.
Going back further means that the later time was never real: they count from the present instant,
without the slots that are remembered as given out.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice

import attrs

from drumbeat.core.asked import check_aware, check_span
from drumbeat.core.model import Due, Interval, Schedule
from drumbeat.core.schedule import missed_slots, next_fire
from drumbeat.errors import ScheduleError

__all__ = ["Planner"]

GRACE = timedelta(minutes=1)
"""A slot that is given out within this time is on time, however short `catch_up` is."""

NEVER_REAL = timedelta(days=1)
"""A clock that goes back further than this had been wrong before."""

REMEMBERED = 2000
"""How many slots of a slug are remembered as given out."""

_TICK = timedelta(microseconds=1)


@attrs.define(kw_only=True)
class _Entry:
    slug: str
    schedule: Schedule
    zone: tzinfo
    base: datetime
    first_seen: datetime
    finish: datetime | None
    given: deque[datetime]
    waiting: bool = False
    due: datetime | None = None


class Planner:
    """The schedules of many slugs, and what is due of them. Reads no clock and does no I/O.

    Args:
        zone: rules wall-clock schedules that are set without a zone of their own.
        catch_up: a slot that is given out later than this (and later than a minute) is `missed`.

    Raises:
        TypeError: `catch_up` is no timedelta.
    """

    def __init__(self, *, zone: tzinfo, catch_up: timedelta = timedelta(hours=24)) -> None:
        self._zone = zone
        self._tolerance = max(check_span("catch_up", catch_up), GRACE)
        self._entries: dict[str, _Entry] = {}
        self._heap: list[tuple[datetime, str]] = []

    def set(
        self,
        slug: str,
        schedule: Schedule,
        *,
        now: datetime,
        zone: tzinfo | None = None,
        first_seen: datetime | None = None,
        last_slot: datetime | None = None,
        last_finish: datetime | None = None,
    ) -> bool:
        """Put a schedule in, or in the place of another one; return whether anything changed.

        The first `set` of a slug owes what its marks say: a wall-clock schedule the slots later
        than `last_slot` and `first_seen`, an interval `last_finish` (else `first_seen`) plus the
        interval. Without marks everything counts from `now`.

        A later `set` with an equal schedule and zone changes nothing. With another one the slug
        counts from `now`: wall clock, the first slot after it; an interval, the later of `now` and
        the last finish plus the interval. No other slug is touched in any case.

        Raises:
            ScheduleError: `schedule` is none, or has no slot in its zone. The slug has no schedule
                then.
            TypeError: an instant is no datetime.
            ValueError: an instant is not aware.
        """
        zone = self._zone if zone is None else zone
        now = _utc(now)
        marks = [
            None if mark is None else _utc(mark) for mark in (first_seen, last_slot, last_finish)
        ]
        seen, slot, finish = marks
        old = self._entries.get(slug)
        if old is not None and old.schedule == schedule and old.zone == zone:
            return False
        self._entries.pop(slug, None)
        floor: datetime | None = None
        if old is None:
            base = max((mark for mark in (seen, slot) if mark is not None), default=now)
            entry = _Entry(
                slug=slug,
                schedule=schedule,
                zone=zone,
                base=_real(base, now),
                first_seen=now if seen is None else seen,
                finish=_latest(finish, slot),
                given=deque([] if slot is None else [slot], maxlen=REMEMBERED),
            )
        else:
            floor = now
            entry = attrs.evolve(
                old,
                schedule=schedule,
                zone=zone,
                base=max([now, *(_real(slot, now) for slot in old.given)]),
                finish=_latest(old.finish, finish, *old.given),
                waiting=old.waiting and isinstance(schedule, Interval),
            )
        _plan(entry, now, floor=floor)
        if entry.due is None and not isinstance(schedule, Interval):
            next_fire(schedule, after=entry.base, zone=zone)  # raises, and says why
        self._entries[slug] = entry
        self._push(entry)
        return True

    def finished(self, slug: str, at: datetime) -> None:
        """Say that a run of `slug` ended, whatever caused it; an interval counts from `at`.

        Also for a slot that somebody chose to skip: it counts from the moment it was skipped. An
        unknown slug is ignored.

        Raises:
            TypeError: `at` is no datetime.
            ValueError: `at` is not aware.
        """
        at = _utc(at)
        entry = self._entries.get(slug)
        if entry is None:
            return
        entry.finish = at
        if isinstance(entry.schedule, Interval):
            entry.waiting = False
            _plan(entry, at)
            self._push(entry)

    def remove(self, slug: str) -> None:
        """Forget `slug`; an unknown one is ignored."""
        self._entries.pop(slug, None)

    def next_due(self) -> datetime | None:
        """The earliest next slot of all slugs, which may be past; None when nothing will be due."""
        heap = self._heap
        while heap:
            due, slug = heap[0]
            entry = self._entries.get(slug)
            if entry is not None and entry.due == due:
                return due
            heapq.heappop(heap)
        return None

    def due_of(self, slug: str) -> datetime | None:
        """The next slot of `slug`; None if it is unknown or waits for a run to finish."""
        entry = self._entries.get(slug)
        return None if entry is None else entry.due

    def take(self, now: datetime) -> Due | None:
        """Give out the slug that is due longest; None when nothing is due at `now`.

        Raises:
            TypeError: `now` is no datetime.
            ValueError: `now` is not aware.
        """
        now = _utc(now)
        due = self.next_due()
        if due is None or due > now:
            return None
        entry = self._entries[heapq.heappop(self._heap)[1]]
        answer = self._answer(entry, due, now)
        entry.base = answer.slot
        entry.given.append(answer.slot)
        if isinstance(entry.schedule, Interval):
            entry.waiting = not answer.missed
            if answer.missed:
                entry.finish = now
        _plan(entry, now)
        self._push(entry)
        return answer

    def upcoming(self, until: datetime, now: datetime, *, limit: int = 1000) -> list[Due]:
        """What `take` would give out up to `until`, earliest first; changes nothing.

        What is overdue at `now` stands as one `Due` per slug, as it would be given out. An interval
        shows its next slot only: the one after depends on when the run ends. At most `limit`.

        Raises:
            TypeError: an instant is no datetime.
            ValueError: an instant is not aware.
        """
        until, now = _utc(until), _utc(now)
        plans = [self._coming(entry, until, now) for entry in self._entries.values()]
        merged = heapq.merge(*plans, key=lambda due: (due.slot, due.slug))
        return list(islice(merged, limit))

    def clock_went_back(self, now: datetime) -> None:
        """Say that the wall clock was set back, and stands at `now`.

        No interval then waits longer than its length. After more than a day, wall-clock schedules
        count from `now` too.

        Raises:
            TypeError: `now` is no datetime.
            ValueError: `now` is not aware.
        """
        now = _utc(now)
        for entry in self._entries.values():
            if isinstance(entry.schedule, Interval):
                entry.finish = None if entry.finish is None else min(entry.finish, now)
                entry.first_seen = min(entry.first_seen, now)
            elif entry.base - now > NEVER_REAL:
                forgotten = len(entry.given) == REMEMBERED
                entry.base = max(now, entry.given[0]) if forgotten else now
            else:
                continue
            _plan(entry, now)
            self._push(entry)

    def _coming(self, entry: _Entry, until: datetime, now: datetime) -> Iterator[Due]:
        due = entry.due
        if due is not None and due <= now:
            overdue = self._answer(entry, due, now)
            yield overdue
            if isinstance(entry.schedule, Interval):
                return
            due = _next_slot(entry, overdue.slot)
        while due is not None and due <= until:
            yield Due(slug=entry.slug, slot=due, folded=0, missed=False)
            if isinstance(entry.schedule, Interval):
                return
            due = _next_slot(entry, due)

    def _answer(self, entry: _Entry, due: datetime, now: datetime) -> Due:
        """What is due of an entry at `now`: from `due` on, all folded into the newest slot."""
        slot, folded = due, 0
        if not isinstance(entry.schedule, Interval):
            folded, newest = missed_slots(entry.schedule, after=due, until=now, zone=entry.zone)
            while newest is not None and newest in entry.given:
                folded, newest = missed_slots(
                    entry.schedule, after=due, until=newest - _TICK, zone=entry.zone
                )
            slot = newest or due
        missed = now - slot > self._tolerance
        return Due(slug=entry.slug, slot=slot, folded=folded, missed=missed, since=due)

    def _push(self, entry: _Entry) -> None:
        if entry.due is not None:
            heapq.heappush(self._heap, (entry.due, entry.slug))


def _plan(entry: _Entry, now: datetime, *, floor: datetime | None = None) -> None:
    """Set the next slot of an entry from all that it knows."""
    if not isinstance(entry.schedule, Interval):
        entry.due = _next_slot(entry, entry.base)
        return
    due = next_fire(
        entry.schedule, after=entry.first_seen, zone=entry.zone, last_finish=entry.finish
    )
    due = min(due, now + entry.schedule.every)
    if floor is not None:
        due = max(due, floor)
    while due in entry.given:
        due += _TICK  # slots are what makes fires unique
    entry.due = None if entry.waiting else due


def _next_slot(entry: _Entry, base: datetime) -> datetime | None:
    """The next slot behind `base`; None when the last one that its zone leaves has passed."""
    try:
        slot = next_fire(entry.schedule, after=base, zone=entry.zone)
        while slot in entry.given:
            slot = next_fire(entry.schedule, after=slot, zone=entry.zone)
    except ScheduleError:
        return None
    return slot


def _real(mark: datetime, now: datetime) -> datetime:
    return now if mark - now > NEVER_REAL else mark


def _latest(*marks: datetime | None) -> datetime | None:
    return max((mark for mark in marks if mark is not None), default=None)


def _utc(value: datetime) -> datetime:
    return check_aware("what a schedule counts from", value).astimezone(UTC)
