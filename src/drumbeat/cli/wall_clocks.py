"""Whose wall clock shows the times of an automation: that of the engine whose records they are."""

from collections.abc import Mapping
from typing import TypeAlias

from drumbeat import Status
from drumbeat.core.model import Kind
from drumbeat.runtime.workspace import kind_of
from drumbeat.runtime.zones import Zone, resolve_zone

__all__ = ["Zones", "kind_of", "zones_of"]

Zones: TypeAlias = Mapping[Kind, Zone]


def zones_of(status: Status) -> Zones:
    """The zones that rule both kinds of file, in the engine whose records these are."""
    return {
        kind: Zone(resolve_zone(name, source=source), name, source)
        for kind, (name, source) in status.zones.items()
    }
