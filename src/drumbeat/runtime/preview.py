"""What the schedules of a workspace bring, said beforehand. Writes nothing.

Theory of operation. What is remembered is read from the store first. All that is worked out of it
is worked out in a thread, the plan of each schedule included: a workspace may have thousands.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import attrs

from drumbeat.core.model import Automation, Due, Interval, Mark, Workspace
from drumbeat.core.planner import Planner
from drumbeat.core.schedule import next_fire
from drumbeat.errors import ScheduleError
from drumbeat.protocols import Clock, Store
from drumbeat.runtime.clock import holding
from drumbeat.runtime.schedule_marks import (
    Standing,
    Zones,
    accounted,
    kept_rule,
    owed_near,
    read_finishes,
    read_marks,
    standing,
)
from drumbeat.runtime.threads import Threads

_MOST = 10_000
_INSTANT = timedelta(microseconds=1)


async def preview(
    workspace: Workspace,
    *,
    store: Store | None,
    zones: Zones,
    now: datetime,
    until: datetime,
    catch_up: timedelta,
    last_good: Mapping[str, Automation] | None = None,
    slug: str | None = None,
    limit: int = _MOST,
    clock: Clock,
    threads: Threads,
) -> list[Due]:
    """What the files and the marks make due up to `until`, by time, at most `limit`.

    An interval shows its next moment only, and none while something of it is due or going: when
    that ends decides it.

    Args:
        workspace: as it stands.
        store: the state; None for none.
        zones: by kind of file.
        now: the present instant.
        until: the last instant that counts.
        catch_up: how late a moment may be and still be run.
        last_good: the last versions that loaded of files that are broken.
        slug: only this one.
        limit: at most so many.
        clock: stands still meanwhile, if it is driven.
        threads: where the moments are computed.
    """
    known = await _known(store, slug, now)

    def foresee() -> list[Due]:
        planner, _ = _planned(
            workspace,
            known,
            zones=zones,
            now=now,
            catch_up=catch_up,
            last_good=last_good,
            slug=slug,
        )
        return planner.upcoming(until=until, now=now, limit=limit)

    with holding(clock, "preview"):
        return await threads.run(foresee)


async def next_moment(
    workspace: Workspace,
    *,
    store: Store | None,
    zones: Zones,
    now: datetime,
    since: datetime,
    catch_up: timedelta,
    last_good: Mapping[str, Automation] | None = None,
    slug: str,
    clock: Clock,
    threads: Threads,
) -> datetime | None:
    """The first moment at or after `since` at which `slug` is due; None for none.

    A moment that is past and that nobody has taken up yet is what is asked for as long as `since`
    is not ahead. An interval has one moment, its next; whether another follows is decided by its
    run.

    Args:
        workspace: as for `preview`, like all others that it has.
        store: the state.
        zones: by kind of file.
        now: the present instant.
        since: an aware instant.
        catch_up: how late a moment may be and still be run.
        last_good: the last versions that loaded of files that are broken.
        slug: the automation.
        clock: stands still meanwhile.
        threads: where the moments are computed.
    """
    known = await _known(store, slug, now)

    def foresee() -> datetime | None:
        planner, schedules = _planned(
            workspace,
            known,
            zones=zones,
            now=now,
            catch_up=catch_up,
            last_good=last_good,
            slug=slug,
        )
        due = planner.due_of(slug)
        if due is None or due >= since or since <= now:
            return due
        declared = schedules[slug]
        if isinstance(declared.schedule, Interval):
            return due if due <= now else None
        try:
            return next_fire(declared.schedule, after=since - _INSTANT, zone=declared.zone)
        except ScheduleError:
            return None  # the last moment that its zone leaves lies before

    with holding(clock, "preview"):
        return await threads.run(foresee)


async def unseen_moment(
    store: Store,
    slug: str,
    at: datetime,
    *,
    zones: Zones,
    within: timedelta,
    now: datetime,
    clock: Clock,
    threads: Threads,
) -> datetime | None:
    """The moment around `at` at which `slug` was due and that nobody has accounted for.

    By the rule that an engine saw last, which stands until one sees another; None when there is no
    such moment.

    Args:
        store: the state.
        slug: the automation.
        at: an aware instant.
        zones: by kind of file.
        within: the moment is less than this away from `at`.
        now: the present instant.
        clock: stands still meanwhile.
        threads: where the moment is computed.

    Raises:
        StoreError: the store could not be read.
    """
    known = await _known(store, slug, now)
    mark = known.marks.get(slug)
    if mark is None or at - within > now:
        return None

    def look() -> datetime | None:
        rule = kept_rule(mark, zones)
        if rule is not None and isinstance(rule[0], Interval) and slug in known.unsettled:
            return None
        finish = known.finishes.get(slug)
        return owed_near(mark, at, zones=zones, last_finish=finish, within=within, now=now)

    with holding(clock, "preview"):
        return await threads.run(look)


@attrs.frozen(kw_only=True)
class _Known:
    """What the store remembers, by slug; `unsettled` has a fire that is due or going."""

    marks: Mapping[str, Mark]
    finishes: Mapping[str, datetime]
    unsettled: frozenset[str]


async def _known(store: Store | None, slug: str | None, now: datetime) -> _Known:
    """What is remembered of `slug`, None for all.

    Raises:
        StoreError: the store could not be read.
    """
    if store is None:
        return _Known(marks={}, finishes={}, unsettled=frozenset())
    backlog = await store.backlog(slug=slug, now=now)
    return _Known(
        marks=await read_marks(store, slug or ""),
        finishes=await read_finishes(store, slug or ""),
        unsettled=frozenset(waiting.slug for waiting in backlog if waiting.due <= now),
    )


def _planned(
    workspace: Workspace,
    known: _Known,
    *,
    zones: Zones,
    now: datetime,
    catch_up: timedelta,
    last_good: Mapping[str, Automation] | None,
    slug: str | None,
) -> tuple[Planner, Mapping[str, Standing]]:
    planner = Planner(zone=zones["automation"][0], catch_up=catch_up)
    schedules = standing(workspace, last_good=last_good or {}, marks=known.marks, zones=zones)
    for declared in schedules.values():
        name, schedule = declared.slug, declared.schedule
        waits = isinstance(schedule, Interval) and name in known.unsettled
        if not declared.enabled or waits or slug not in (None, name):
            continue
        mark = known.marks.get(name)
        if mark is None:
            value = declared.first_mark(now)
        elif mark.value["enabled"] and declared.is_ruled_by(mark):
            value = mark.value
        else:
            value = {**mark.value, **declared.edited(now)}
        with suppress(ScheduleError):  # it has no moment in its zone, so nothing is foreseen
            planner.set(
                name,
                schedule,
                now=now,
                zone=declared.zone,
                **accounted(schedule, value, known.finishes.get(name), zone=declared.zone),
            )
    return planner, schedules
