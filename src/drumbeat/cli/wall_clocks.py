"""Whose wall clock shows the times of an automation: that of the engine whose records they are."""

from collections.abc import Mapping
from typing import TypeAlias

from drumbeat import Status, Workspace
from drumbeat.core.model import Kind
from drumbeat.runtime.zones import Zone, resolve_zone

__all__ = ["Zones", "kind_of", "zones_of"]

Zones: TypeAlias = Mapping[Kind, Zone]


def zones_of(status: Status) -> Zones:
    """The zones that rule both kinds of file, in the engine whose records these are."""
    return {
        kind: Zone(resolve_zone(name, source=source), name, source)
        for kind, (name, source) in status.zones.items()
    }


def kind_of(workspace: Workspace, slug: str) -> Kind:
    """Which kind of file a slug names; one whose file is gone counts as an automation file."""
    automation = workspace.find(slug)
    if automation is not None:
        return automation.kind
    broken = (path for path in workspace.problems if path.stem == slug)
    return "job" if any(path.parent.name == "jobs" for path in broken) else "automation"
