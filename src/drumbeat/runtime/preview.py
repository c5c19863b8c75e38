"""What the schedules of a workspace bring, said beforehand. Writes nothing."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from drumbeat.core.model import Automation, Due, Interval, Workspace
from drumbeat.core.planner import Planner
from drumbeat.protocols import Store
from drumbeat.runtime.schedule_marks import (
    Zones,
    accounted,
    read_finishes,
    read_marks,
    standing,
)

_ALL = 1_000_000


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
    limit: int = _ALL,
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
    """
    marks = {} if store is None else await read_marks(store)
    finishes = {} if store is None else await read_finishes(store)
    open_fires = [] if store is None else await store.fires(slug=slug, open=True, limit=_ALL)
    unsettled = {fire.slug for fire in open_fires if fire.due <= now}
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
        planner.set(
            name,
            schedule,
            now=now,
            zone=declared.zone,
            **accounted(schedule, value, finishes.get(name)),
        )
    return planner.upcoming(until=until, now=now, limit=limit)
