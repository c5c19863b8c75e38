"""What an engine lets its clients know, so that they foresee what it will do."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import attrs

from drumbeat.core.model import Kind
from drumbeat.core.settings import Settings
from drumbeat.protocols import Store
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.schedule_marks import Zones
from drumbeat.runtime.threads import Threads
from drumbeat.runtime.zones import resolve_zone, zones_for

_KEY = "engine:rules"
_KINDS: tuple[Kind, ...] = ("automation", "job")


@attrs.frozen(kw_only=True)
class Rules:
    """The zones of an engine, how late a missed moment may be and still be run, its mail systems.

    `systems` is None when no engine said which ones it has.
    """

    zones: Zones
    catch_up: timedelta
    systems: tuple[str, ...] | None = None


async def publish(store: Store, rules: Rules) -> None:
    """Leave `rules` in the store, unless they stand there.

    Raises:
        StoreError: the store took nothing.
    """
    value = {
        "zones": {kind: [name, source] for kind, (_, name, source) in rules.zones.items()},
        "catch_up": rules.catch_up.total_seconds(),
        "systems": None if rules.systems is None else list(rules.systems),
    }
    mark = await mark_of(store, _KEY)
    if mark.value != value:
        await store.record(marks=(attrs.evolve(mark, value=value),))


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
    systems = value.get("systems")
    named = {kind: value["zones"][kind] for kind in _KINDS}
    return Rules(
        zones={
            kind: (resolve_zone(name, source=source), name, source)
            for kind, (name, source) in named.items()
        },
        catch_up=timedelta(seconds=value["catch_up"]),
        systems=None if systems is None else tuple(systems),
    )
