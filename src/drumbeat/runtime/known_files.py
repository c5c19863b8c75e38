"""Which files the engines of a data folder knew, and which of these count as removed since when.

Theory of operation. A mark names the files that stood there at the last look. So a start while one
of the folders is away (a lost mount, half a deploy) is told from one on a workspace that never had
it, and a file that was taken away while no engine ran is missed like any other. A file leaves the
mark in the transaction that has the event of its removal.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, Final

import attrs

from drumbeat.errors import Problem
from drumbeat.protocols import Store
from drumbeat.runtime.listing import lost_folders
from drumbeat.runtime.log import log
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.services import Services
from drumbeat.runtime.threads import Threads

__all__ = ["REMOVED_AFTER", "KnownFiles", "Removal", "lost", "removal_of"]

REMOVED_AFTER: Final = 2
"""A file is gone after so many reloads in a row without it (spec, section 5)."""

_KEY: Final = "workspace:files"
_MOST: Final = 200
"""So many removals are remembered, the latest ones."""


@attrs.frozen(kw_only=True)
class Removal:
    """Where a file lay, and since when it counts as removed."""

    path: str
    at: datetime


@attrs.define(kw_only=True)
class KnownFiles:
    """What the holder of a data folder knows of the files that stand, stood and are gone."""

    services: Services
    _paths: dict[str, str] = attrs.field(factory=dict)
    """By slug, the file that stands or has to be voiced yet as removed."""
    _removals: dict[str, Removal] = attrs.field(factory=dict)
    _absent: dict[str, int] = attrs.field(factory=dict)
    """By slug, for how many looks in a row a file was not there."""
    _written: Any = None

    async def recall(self) -> tuple[Problem, ...]:
        """Read what earlier engines knew, and let the files of a folder that is away stand.

        Returns:
            What is wrong with such folders.

        Raises:
            StoreError: the store could not be read.
        """
        self._written = (await mark_of(self.services.store, _KEY)).value
        self._paths = {PurePath(path).stem: path for path in _paths(self._written)}
        self._removals = _removals(self._written)
        return await self.services.workspace.expect([Path(path) for path in self._paths.values()])

    def look(self, removed: Collection[str] = (), *, removing: bool) -> dict[str, str]:
        """Follow a look at the workspace; it is repeated until `keep` has kept what came of it.

        Args:
            removed: the slugs whose files that look took for removed.
            removing: whether it counts towards a file being removed.

        Returns:
            By slug, the files that count as removed.
        """
        standing = self.services.workspace.paths
        for slug in standing:
            self._absent.pop(slug, None)
            self._removals.pop(slug, None)
        for slug in self._paths.keys() - standing.keys():
            if slug in removed:
                self._absent[slug] = REMOVED_AFTER
            elif removing:
                self._absent[slug] = self._absent.get(slug, 0) + 1
        self._paths.update(standing)
        return {
            slug: self._paths[slug]
            for slug, looks in sorted(self._absent.items())
            if looks >= REMOVED_AFTER
        }

    async def keep(
        self, gone: Mapping[str, str] | None = None, skipped: Mapping[str, int] | None = None
    ) -> None:
        """Keep what stands, and voice what counts as removed or was skipped for that.

        Args:
            gone: by slug, the files that count as removed as of this look.
            skipped: by slug, how many fires ended for that.

        Raises:
            StoreError: it was not kept, and nothing was said; the next look does it.
        """
        services, now = self.services, self.services.clock.now()
        gone, skipped = gone or {}, skipped or {}
        said: list[tuple[str, str, int]] = []
        for slug in sorted(gone.keys() | skipped.keys()):
            before = self._removals.get(slug)
            path = gone.get(slug) or ("" if before is None else before.path)
            said.append((slug, path, skipped.get(slug, 0)))
        events = [
            services.event("automation_removed", now, slug, path=path, skipped=count)
            for slug, path, count in said
        ]
        removals = {**self._removals, **{s: Removal(path=p, at=now) for s, p in gone.items()}}
        latest = sorted(removals, key=lambda slug: removals[slug].at)[-_MOST:]
        value = {
            "files": sorted(path for slug, path in self._paths.items() if slug not in gone),
            "removed": {
                slug: [removals[slug].path, removals[slug].at.isoformat()] for slug in latest
            },
        }
        if events or value != self._written:
            mark = await mark_of(services.store, _KEY)
            await services.store.record(marks=(attrs.evolve(mark, value=value),), events=events)
        self._written, self._removals = value, {slug: removals[slug] for slug in latest}
        for slug in gone:
            del self._paths[slug], self._absent[slug]
        for slug, path, count in said:
            log.warning("automation_removed", slug=slug, path=path, skipped=count)


async def lost(store: Store | None, workspace: Path, *, threads: Threads) -> tuple[Problem, ...]:
    """The folders that had files as an engine saw them last, and are not there.

    Raises:
        StoreError: the store could not be read.
    """
    value = None if store is None else (await mark_of(store, _KEY)).value
    paths = [Path(path) for path in _paths(value)]
    return tuple((await threads.run(lost_folders, workspace, paths)).values()) if paths else ()


async def removal_of(store: Store | None, slug: str) -> Removal | None:
    """Since when the file of `slug` counts as removed, as far as that is remembered.

    Raises:
        StoreError: the store could not be read.
    """
    value = None if store is None else (await mark_of(store, _KEY)).value
    return _removals(value).get(slug)


def _paths(value: Any) -> list[str]:
    return [] if value is None else list(value["files"])


def _removals(value: Any) -> dict[str, Removal]:
    kept = {} if value is None else value["removed"]
    return {
        slug: Removal(path=path, at=datetime.fromisoformat(at)) for slug, (path, at) in kept.items()
    }
