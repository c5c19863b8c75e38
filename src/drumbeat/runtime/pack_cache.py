"""Packs while an engine runs: looked at often, and read when something of them has changed.

Theory of operation. Whether a pack is in order depends on the list, on its folder, its card, its
`bin/` and each program there. All of these, or what a link in their place points to, are known by
their stamps, which are believed after a second reading (`stamps.py`).
"""

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TypeAlias

import attrs

from drumbeat.core.model import Pack
from drumbeat.errors import Problem
from drumbeat.runtime.packs import LIST, pack_paths, read_packs
from drumbeat.runtime.stamps import Stamp, stamp_of
from drumbeat.runtime.threads import Threads

__all__ = ["PackCache", "PackReload"]

_Found: TypeAlias = tuple[tuple[Pack, ...], tuple[Problem, ...]]


@attrs.frozen(kw_only=True)
class PackReload:
    """The packs to go on with, and what keeps the workspace's present ones from being them."""

    packs: tuple[Pack, ...]
    problems: tuple[Problem, ...] = ()


@attrs.define
class PackCache:
    """The packs of one workspace folder, which is absolute."""

    workspace: Path
    _threads: Threads = attrs.field(factory=Threads)
    _stamps: dict[Path, Stamp | None] = attrs.field(factory=dict, init=False)
    _settled: bool = attrs.field(default=False, init=False)
    _found: _Found = attrs.field(default=((), ()), init=False)

    async def reload(self, known: Sequence[Pack]) -> PackReload:
        """Look at the packs again: an edited card counts from the next run on.

        The search path is the same for every turn of an engine, so its packs stay those it started
        with. Runs in a thread.

        Args:
            known: the packs that the engine goes by.

        Returns:
            The packs as they are at this moment when nothing is wrong and their folders are those
            of `known`, in order; else `known` and the problems, which for other folders is one
            `packs-changed`.
        """
        known = tuple(known)
        packs, problems = await self._threads.run(self._look)
        if problems:
            return PackReload(packs=known, problems=problems)
        if [pack.folder for pack in packs] == [pack.folder for pack in known]:
            return PackReload(packs=packs)
        changed = Problem(
            code="packs-changed",
            message="the list of packs is not the one the engine started with",
            remedy="restart the engine: the search path of tools is the same from its start to its "
            "end",
            path=PurePath(LIST),
        )
        return PackReload(packs=known, problems=(changed,))

    def _look(self) -> _Found:
        if self._settled and all(_stamp(path) == stamp for path, stamp in self._stamps.items()):
            return self._found
        # Before it is read: what changes meanwhile is other than that the next time.
        stamps = {path: _stamp(path) for path in pack_paths(self.workspace)}
        self._found = read_packs(self.workspace)
        self._settled = bool(self._stamps) and stamps == self._stamps
        self._stamps = stamps
        return self._found


def _stamp(path: Path) -> Stamp | None:
    try:
        return stamp_of(path.stat())
    except (OSError, ValueError):
        return None
