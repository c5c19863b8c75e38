"""What an engine lets its clients know, so that they foresee what it will do."""

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs

from drumbeat.core.model import Kind
from drumbeat.core.settings import Settings
from drumbeat.errors import Problem
from drumbeat.protocols import Store
from drumbeat.runtime.log import log
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.schedule_marks import Zones
from drumbeat.runtime.services import Services
from drumbeat.runtime.threads import Threads
from drumbeat.runtime.zones import resolve_zone, zones_for

_KEY = "engine:rules"
_KINDS: tuple[Kind, ...] = ("automation", "job")
_ONE = frozenset({"UTC", "Etc/UTC"})
"""Names of one zone: the first is our own, the second what a system may call it."""


@attrs.frozen(kw_only=True)
class Rules:
    """The zones of an engine, how late a missed moment may be and still be run, its mail systems.

    `systems` is None when no engine said which ones it has. `workspace` is the folder that the
    engine served, None when none said so. `moved` has, for a kind of file whose zone was another
    one under an earlier engine, the name of that, where it came from and when it ceased to rule.
    """

    zones: Zones
    catch_up: timedelta
    systems: tuple[str, ...] | None = None
    workspace: Path | None = None
    moved: Mapping[Kind, tuple[str, str, datetime]] = {}

    def elsewhere(self, workspace: Path, data_dir: Path) -> tuple[Problem, ...]:
        """Whether the data folder is one of another workspace, which still stands; blocks.

        A workspace that was moved together with its data folder left nothing where it was.
        """
        if self.workspace is None or self.workspace == workspace:
            return ()
        try:
            other = self.workspace.is_dir() and not self.workspace.samefile(workspace)
        except OSError:
            return ()
        if not other:
            return ()
        return (
            Problem(
                code="data-dir-elsewhere",
                message=f"the engine that last held {data_dir} served {self.workspace}, and this "
                f"is {workspace}",
                remedy="name the data folder of this workspace; nothing is wrong if the workspace "
                "was copied and this is to be its data folder from now on",
            ),
        )


async def publish(services: Services, rules: Rules) -> None:
    """Leave `rules` in the store, unless they stand there, and say which zones they move.

    A zone is the engine's own, so one that was started otherwise keeps all times of day on another
    wall clock: that is said, since nothing else of it looks wrong.

    Raises:
        StoreError: the store took nothing.
    """
    store, now = services.store, services.clock.now()
    mark = await mark_of(store, _KEY)
    earlier = mark.value or {}
    moved: dict[str, list[str]] = dict(earlier.get("moved", {}))
    changed: dict[Kind, str] = {}
    for kind in _KINDS:
        name = rules.zones[kind][1]
        before, source = earlier.get("zones", {}).get(kind, (name, ""))
        if _is_one(before, name):
            continue
        changed[kind] = before
        if kind not in moved or not _is_one(moved.pop(kind)[0], name):
            moved[kind] = [before, source, now.isoformat()]
    value = {
        "zones": {kind: [name, source] for kind, (_, name, source) in rules.zones.items()},
        "catch_up": rules.catch_up.total_seconds(),
        "systems": None if rules.systems is None else list(rules.systems),
        "workspace": None if rules.workspace is None else str(rules.workspace),
        "moved": moved,
    }
    if mark.value == value:
        return
    events = [
        services.event(
            "zone_changed",
            now,
            files=f"{kind}s",
            zone=rules.zones[kind][1],
            source=rules.zones[kind][2],
            before=before,
        )
        for kind, before in changed.items()
    ]
    await store.record(marks=(attrs.evolve(mark, value=value),), events=events)
    for event in events:
        log.warning("zone_changed", **event.data)


def _is_one(zone: str, other: str) -> bool:
    return zone == other or {zone, other} <= _ONE


async def read_rules(store: Store | None, *, threads: Threads) -> Rules:
    """The rules of the engine that last held this store, or else those of one made by default.

    Raises:
        DrumbeatError: a zone is not known on this machine.
        StoreError: the store could not be read.
    """
    mark = None if store is None else await mark_of(store, _KEY)
    if mark is None or mark.value is None:
        zones = await threads.run(zones_for, None, dict(os.environ))
        return Rules(zones=zones, catch_up=Settings().catch_up)
    return await threads.run(_rules, mark.value)


def _rules(value: Mapping[str, Any]) -> Rules:
    systems, workspace = value.get("systems"), value.get("workspace")
    moved = value.get("moved", {})
    named = {kind: value["zones"][kind] for kind in _KINDS}
    return Rules(
        zones={
            kind: (resolve_zone(name, source=source), name, source)
            for kind, (name, source) in named.items()
        },
        catch_up=timedelta(seconds=value["catch_up"]),
        systems=None if systems is None else tuple(systems),
        workspace=None if workspace is None else Path(workspace),
        moved={
            kind: (name, source, datetime.fromisoformat(at))
            for kind in _KINDS
            if kind in moved
            for name, source, at in [moved[kind]]
        },
    )
