"""The routes of a workspace, for who has no engine that looks at its files."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from drumbeat.core.model import Automation
from drumbeat.core.routes import BrokenRoute, Route, find_route
from drumbeat.errors import Problem, WorkspaceError
from drumbeat.protocols import Clock
from drumbeat.runtime.clock import holding
from drumbeat.runtime.threads import Threads
from drumbeat.runtime.workspace import FileState, WorkspaceCache

__all__ = ["RouteBook"]

_FRESH = 1.0
"""Seconds for which what was seen is believed: senders decide how many requests come."""
_BETWEEN = 10.0
"""Seconds between two looks that let a file count as removed."""


class RouteBook:
    """Looks at the files as requests come, once a second at most; an unchanged one costs one stat.

    Args:
        workspace: the folder, absolute.
        clock: what the seconds are measured on.
        threads: where they are read.
        lost: what is wrong with folders that are away with files which an engine knew.
    """

    def __init__(
        self,
        workspace: Path,
        *,
        clock: Clock,
        threads: Threads,
        lost: Callable[[], Awaitable[tuple[Problem, ...]]],
    ) -> None:
        self._clock = clock
        self._cache = WorkspaceCache(workspace, threads=threads)
        self._lost = lost
        self._looking = anyio.Lock()
        self._looked: float | None = None
        self._unseen: tuple[Problem, ...] = ()
        """What the last look could not read."""
        self._removed: float | None = None

    async def find(self, name: str) -> Route | BrokenRoute | None:
        """As `find_route`.

        Raises:
            WorkspaceError: it is unknown, and the folder cannot be read.
        """
        # Whoever comes while it is looked waits for that look, and makes none of its own.
        async with self._looking:
            now = self._clock.monotonic()
            if self._looked is None or now - self._looked >= _FRESH:
                await self._look(now)
        cache = self._cache
        found = find_route(
            name, workspace=cache.workspace, last_good=cache.last_good, said=cache.said_routes
        )
        if found is None and self._unseen:
            raise WorkspaceError(self._unseen)
        return found

    async def file_state(self, automation: Automation) -> FileState:
        """As `WorkspaceCache.file_state`."""
        return await self._cache.file_state(automation)

    async def _look(self, now: float) -> None:
        removing = self._removed is None or now - self._removed >= _BETWEEN
        with holding(self._clock, "workspace look"):
            change = await self._cache.reload(removing=removing)
        self._looked = now
        self._unseen = await self._lost() if change.error is None else change.error.problems
        if removing and not change.blind:
            self._removed = now
