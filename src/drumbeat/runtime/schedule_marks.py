"""What is remembered of each schedule, and which schedules stand.

Theory of operation. A mark per slug (`schedule:<slug>`) says under which rule and zone the slug is
scheduled, since when, and up to which slot it is accounted for. A file that is broken keeps the
schedule that it had when it last loaded, from memory or else from its mark: its slots fall due and
end as aborted runs, so that somebody hears of it.

What a file says counts from the moment an engine sees it. Until then the rule of the mark stands:
the moments that it made due while no engine ran are `owed` when the rule is replaced.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import attrs

from drumbeat.core.model import Automation, Due, Interval, Kind, Mark, Schedule, Workspace
from drumbeat.core.planner import Planner
from drumbeat.core.schedule import format_schedule, is_of_the_wall, next_fire, parse_schedule
from drumbeat.errors import DrumbeatError, ScheduleError
from drumbeat.protocols import Store
from drumbeat.runtime.conclusion import health_key
from drumbeat.runtime.zones import resolve_zone

PREFIX = "schedule:"

Zones = Mapping[Kind, tuple[tzinfo, str, str]]


@attrs.frozen(kw_only=True)
class Standing:
    """A schedule that a file declares, and the zone that rules it."""

    slug: str
    schedule: Schedule
    zone: tzinfo
    zone_name: str
    enabled: bool = True

    @property
    def ruling(self) -> str:
        """The zone as far as it matters: elapsed time knows none."""
        return "" if isinstance(self.schedule, Interval) else self.zone_name

    def is_ruled_by(self, mark: Mark) -> bool:
        """Whether `mark` was made under this very rule."""
        return (mark.value["rule"], mark.value["zone"]) == (
            format_schedule(self.schedule),
            self.ruling,
        )

    def first_mark(self, now: datetime) -> dict[str, Any]:
        """What to remember of a schedule that was never seen before."""
        return {
            "rule": format_schedule(self.schedule),
            "zone": self.ruling,
            "first_seen": now.isoformat(),
            "since": now.isoformat(),
            "last_slot": None,
            "last_local": None,
            "passed_over": None,
            "enabled": True,
        }

    def edited(self, now: datetime) -> dict[str, Any]:
        """What changes in the mark when the file was edited, or enabled again."""
        return {
            "rule": format_schedule(self.schedule),
            "zone": self.ruling,
            "since": now.isoformat(),
            "enabled": True,
        }


def standing(
    workspace: Workspace,
    *,
    last_good: Mapping[str, Automation],
    marks: Mapping[str, Mark],
    zones: Zones,
) -> dict[str, Standing]:
    """The schedules that the files declare, by slug; broken files keep the one they had.

    Args:
        workspace: as it stands.
        last_good: the last version of each file that loaded, as far as this process saw one.
        marks: the schedules' marks, by slug.
        zones: by kind of file.
    """
    found: dict[str, Standing] = {}

    def declare(slug: str, schedule: Schedule | None, kind: Kind, *, enabled: bool) -> None:
        if schedule is not None:
            zone, name, _ = zones[kind]
            found[slug] = Standing(
                slug=slug, schedule=schedule, zone=zone, zone_name=name, enabled=enabled
            )

    for path in workspace.problems:
        slug = path.stem
        good, mark = last_good.get(slug), marks.get(slug)
        if good is not None:
            declare(slug, good.schedule, good.kind, enabled=good.enabled)
        elif mark is not None:
            kind: Kind = "job" if path.parent.name == "jobs" else "automation"
            declare(slug, _kept(mark), kind, enabled=bool(mark.value["enabled"]))
    for automation in workspace.automations:
        declare(automation.slug, automation.schedule, automation.kind, enabled=automation.enabled)
    return found


def _kept(mark: Mark) -> Schedule | None:
    """The schedule that a mark keeps; None where this release has no such form."""
    try:
        return parse_schedule(mark.value["rule"])
    except ScheduleError:
        return None


def given_out(schedule: Schedule, slot: datetime, zone: tzinfo | None) -> dict[str, Any]:
    """What changes in the mark when a slot is given out."""
    local = None
    if zone is not None and is_of_the_wall(schedule):
        local = slot.astimezone(zone).replace(tzinfo=None).isoformat()
    return {"last_slot": slot.isoformat(), "last_local": local}


def _last_slot(value: Mapping[str, Any], zone: tzinfo) -> datetime | None:
    slot, local = instant(value["last_slot"]), value.get("last_local")
    if slot is None or local is None or slot < datetime.fromisoformat(value["since"]):
        return slot
    # The zone may have other rules by now, so that this time of that day is yet to come.
    return max(slot, datetime.fromisoformat(local).replace(tzinfo=zone).astimezone(UTC))


def accounted(
    schedule: Schedule,
    value: Mapping[str, Any],
    last_finish: datetime | None,
    *,
    zone: tzinfo,
) -> dict[str, datetime | None]:
    """What a mark and the last finish say has been accounted for, as `Scheduler.set` takes it.

    `since` is when the file was last edited or enabled: no slot of the wall clock before it counts,
    and an interval is due no earlier, whatever the last finish was. `passed_over` is when an
    interval's slot was let go: it counts as a finish.
    """
    first_seen = datetime.fromisoformat(value["first_seen"])
    since = datetime.fromisoformat(value["since"])
    if isinstance(schedule, Interval):
        floor = since - schedule.every
        passed_over = instant(value["passed_over"])
        if passed_over is not None and (last_finish is None or passed_over > last_finish):
            last_finish = passed_over
        if since > first_seen:
            if last_finish is not None:
                last_finish = max(last_finish, floor)
            else:
                first_seen = max(first_seen, floor)
    else:
        first_seen = max(first_seen, since)
    return {
        "first_seen": first_seen,
        "last_slot": _last_slot(value, zone),
        "last_finish": last_finish,
    }


def owed(
    mark: Mark, *, zones: Zones, last_finish: datetime | None, catch_up: timedelta, now: datetime
) -> Due | None:
    """What the rule of a mark made due by `now` and nobody has accounted for, as one `Due`.

    Args:
        mark: of one slug.
        zones: by kind of file; a zone that rules none of them any more is looked up.
        last_finish: when the last run of that slug finished.
        catch_up: how late a moment may be and still be run.
        now: the present instant.

    Returns:
        The newest of the moments, the others folded into it. None when there is none, when the
        schedule makes nothing due, and when this machine or release knows its rule no more.
    """
    planner = _planner(mark, zones=zones, last_finish=last_finish, catch_up=catch_up, now=now)
    return None if planner is None else planner.take(now)


def owed_near(
    mark: Mark,
    at: datetime,
    *,
    zones: Zones,
    last_finish: datetime | None,
    within: timedelta,
    now: datetime,
) -> datetime | None:
    """The moment less than `within` away from `at` among those that `owed` folds into one."""
    planner = _planner(mark, zones=zones, last_finish=last_finish, catch_up=within, now=now)
    rule = kept_rule(mark, zones)
    due = None if planner is None else planner.due_of(mark.key.removeprefix(PREFIX))
    if rule is None or due is None:
        return None
    schedule, zone = rule
    if due <= at - within and not isinstance(schedule, Interval):
        try:
            due = next_fire(schedule, after=at - within, zone=zone)
        except ScheduleError:
            return None  # the last one that its zone leaves lies before
    return due if due <= now and abs(due - at) < within else None


def _planner(
    mark: Mark, *, zones: Zones, last_finish: datetime | None, catch_up: timedelta, now: datetime
) -> Planner | None:
    slug, rule = mark.key.removeprefix(PREFIX), kept_rule(mark, zones)
    if rule is None or not mark.value["enabled"]:
        return None
    schedule, zone = rule
    planner = Planner(zone=zone, catch_up=catch_up)
    known = accounted(schedule, mark.value, last_finish, zone=zone)
    try:
        planner.set(slug, schedule, now=now, zone=zone, **known)
    except ScheduleError:
        return None  # it has no moment in its zone
    return planner


def kept_rule(mark: Mark, zones: Zones) -> tuple[Schedule, tzinfo] | None:
    """The schedule that a mark keeps and the zone that rules it; None where one is not known."""
    schedule, name = _kept(mark), mark.value["zone"]
    if schedule is None:
        return None
    for zone, known, _ in zones.values():
        if name in ("", known):
            return schedule, zone
    try:
        return schedule, resolve_zone(name)
    except DrumbeatError:
        return None


async def read_marks(store: Store, slug: str = "") -> dict[str, Mark]:
    """The mark of each schedule whose slug begins with `slug`."""
    return {mark.key.removeprefix(PREFIX): mark for mark in await store.marks(PREFIX + slug)}


async def read_finishes(store: Store, slug: str = "") -> dict[str, datetime]:
    """When the last run of each slug that begins with `slug` finished, whatever caused it."""
    prefix = health_key("")
    finishes = {
        mark.key.removeprefix(prefix): instant(mark.value["finished"])
        for mark in await store.marks(health_key(slug))
    }
    return {slug: at for slug, at in finishes.items() if at is not None}


def instant(text: str | None) -> datetime | None:
    """The instant that a mark keeps as text."""
    return None if text is None else datetime.fromisoformat(text)
