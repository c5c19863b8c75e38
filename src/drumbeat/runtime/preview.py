"""What the schedules of a workspace bring, said beforehand. Writes nothing."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from drumbeat.core.model import Automation, Due, Interval, Workspace
from drumbeat.core.planner import Planner
from drumbeat.core.schedule import next_fire
from drumbeat.errors import ScheduleError
from drumbeat.protocols import Store
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
        threads: where the moments are computed.
    """
    planner, _ = await _planned(
        workspace,
        store=store,
        zones=zones,
        now=now,
        catch_up=catch_up,
        last_good=last_good,
        slug=slug,
    )
    # A file may say `* * * * *`, and whoever asks may look years ahead.
    return await threads.run(lambda: planner.upcoming(until=until, now=now, limit=limit))


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
) -> datetime | None:
    """The first moment at or after `since`, and not past, at which `slug` is due; None for none.

    An interval has one such moment, its next; whether another follows is decided by its run. Where
    nobody has taken it up yet, it is one that is past.
    """
    planner, schedules = await _planned(
        workspace,
        store=store,
        zones=zones,
        now=now,
        catch_up=catch_up,
        last_good=last_good,
        slug=slug,
    )
    due = planner.due_of(slug)
    if due is None or due >= since:
        return due
    declared = schedules[slug]
    if isinstance(declared.schedule, Interval):
        return due if due <= now else None
    try:
        return next_fire(declared.schedule, after=since - _INSTANT, zone=declared.zone)
    except ScheduleError:
        return None  # the last moment that its zone leaves lies before


async def unseen_moment(
    store: Store, slug: str, at: datetime, *, zones: Zones, within: timedelta, now: datetime
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

    Raises:
        StoreError: the store could not be read.
    """
    mark = (await read_marks(store)).get(slug)
    if mark is None or at - within > now:
        return None
    rule = kept_rule(mark, zones)
    if rule is not None and isinstance(rule[0], Interval):
        backlog = await store.backlog(slug=slug, now=now)
        if any(waiting.due <= now for waiting in backlog):
            return None
    finish = (await read_finishes(store, slug)).get(slug)
    return owed_near(mark, at, zones=zones, last_finish=finish, within=within, now=now)


async def _planned(
    workspace: Workspace,
    *,
    store: Store | None,
    zones: Zones,
    now: datetime,
    catch_up: timedelta,
    last_good: Mapping[str, Automation] | None,
    slug: str | None,
) -> tuple[Planner, Mapping[str, Standing]]:
    marks = {} if store is None else await read_marks(store)
    finishes = {} if store is None else await read_finishes(store)
    backlog = [] if store is None else await store.backlog(slug=slug, now=now)
    unsettled = {waiting.slug for waiting in backlog if waiting.due <= now}
    planner = Planner(zone=zones["automation"][0], catch_up=catch_up)
    schedules = standing(workspace, last_good=last_good or {}, marks=marks, zones=zones)
    for declared in schedules.values():
        name, schedule = declared.slug, declared.schedule
        waits = isinstance(schedule, Interval) and name in unsettled
        if not declared.enabled or waits or slug not in (None, name):
            continue
        mark = marks.get(name)
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
                **accounted(schedule, value, finishes.get(name), zone=declared.zone),
            )
    return planner, schedules
