"""The data folder and the store in it, made and opened no earlier than needed."""

import os
import stat
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio

from drumbeat.errors import Problem, StoreError
from drumbeat.protocols import Clock, Store
from drumbeat.runtime.files import remedy_for
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.log import log
from drumbeat.runtime.store import SqliteStore
from drumbeat.runtime.store_problems import store_away
from drumbeat.runtime.threads import Threads

_LOOKS = 3
"""So often a holder without a database is looked at: one that has just begun makes it."""
_BESIDE = ("session_pins.json", "session_rotations.jsonl", "runs", "memory")
"""What an engine leaves beside its database."""

KEPT: Final = (
    ".gitignore",
    "drumbeat.db",
    "engine.json",
    "engine.lock",
    "memory",
    "runs",
    "session_pins.json",
    "session_rotations.jsonl",
    "session_rotations.1.jsonl",
)
"""What the engine keeps in the data folder; the store sees to the database's other files."""


class State:
    """Opens the store of one client or engine once, and closes it.

    Args:
        data_dir: the data folder, absolute.
        store: what the host brought in place of the SQLite file.
        clock: what leases are measured on.
        lease: how long a claim lives.
        redact: takes known secrets out of what a caller named.
        threads: where the folder is looked at.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        store: Store | None,
        clock: Clock,
        lease: timedelta,
        redact: Callable[[str], str],
        threads: Threads,
    ) -> None:
        self._data_dir = data_dir
        self._database = data_dir / "drumbeat.db"
        self._store = store
        self._is_file = store is None
        self._clock = clock
        self._lease = lease
        self._redact = redact
        self._threads = threads
        self._lock = anyio.Lock()
        self._opened: Store | None = None
        self._closed = False

    async def prepare(self) -> None:
        """Make the data folder, and take from others what they may do with one that is there.

        Raises:
            StoreError: it cannot be made, or others may read it and this user cannot end that.
        """
        try:
            await self._threads.run(_make, self._data_dir)
            tightened = await self._threads.run(_tighten, self._data_dir)
            if tightened:
                names = [path.name for path in tightened]
                log.warning("data_dir_tightened", folder=str(self._data_dir), names=names)
        except OSError as error:
            raise StoreError(
                Problem(
                    code="data-dir-unwritable",
                    message=f"{self._data_dir} cannot be made: {error.strerror or error}",
                    remedy=remedy_for(error, "name a data folder that the engine's user may write"),
                    path=self._data_dir,
                )
            ) from error

    async def open(self, *, holder: str | None) -> Store:
        """Open the store, or return the open one.

        Raises:
            StoreError: it cannot be opened, or was closed.
        """
        async with self._lock:
            if self._closed:
                raise StoreError(
                    Problem(
                        code="store-closed",
                        message="the store is closed",
                        remedy="use the client or engine inside its `async with`",
                    )
                )
            if self._opened is None:
                if self._is_file:
                    await self._threads.run(_say_if_anew, self._database)
                store = self._store or SqliteStore(
                    self._database, clock=self._clock, redact=self._redact
                )
                await store.open(holder=holder, lease=self._lease)
                self._opened = store
            return self._opened

    async def take_over(self, *, holder: str) -> Store:
        """Open the store as its holder; what others read through meanwhile stays open.

        Raises:
            StoreError: it cannot be opened, or was closed.
        """
        store = await self.open(holder=holder)
        await store.open(holder=holder, lease=self._lease)
        return store

    async def readable(self) -> Store | None:
        """The open store, or None where there is none yet. Makes nothing.

        Raises:
            StoreError: it cannot be opened, or was closed; `store-gone`, there is none although an
                engine holds the folder.
        """
        if not await self._stands():
            return None
        return await self.open(holder=None)

    async def writable(self) -> Store:
        """The open store, made if there is none, and no engine that would work with another.

        Raises:
            StoreError: it cannot be made or opened, or was closed; `store-gone`, there is none
                although an engine holds the folder.
        """
        await self._stands()
        if self._opened is None and self._is_file and not self._closed:
            await self.prepare()
        return await self.open(holder=None)

    async def _stands(self) -> bool:
        """Whether there is a store to open, or one that is open."""
        if self._opened is not None or not self._is_file or self._closed:
            return True
        holder = ""
        for _ in range(_LOOKS):
            if await self._threads.run(self._database.exists):
                return True
            found = await EngineLock(self._data_dir, threads=self._threads).holder()
            if found is None:
                return False
            holder = found
        # Made here, it would stand in the way of the file that the engine has open.
        raise store_away(self._database, holder)

    async def close(self) -> None:
        """Close the store for good; a second call does nothing."""
        self._closed = True
        async with self._lock:
            store, self._opened = self._opened, None
            if store is not None:
                await store.close()


def _make(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignore = path / ".gitignore"
    # An empty one is what a kill or a full disk leaves of it.
    if not ignore.exists() or not ignore.stat().st_size:
        handle = os.open(ignore, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, b"*\n")
        finally:
            os.close(handle)


def open_to_others(data_dir: Path) -> Iterator[Path]:
    """The data folder and what the engine keeps in it, as far as others than its owner may use it.

    A link is somebody's, and what it points to is not the engine's to judge.
    """
    for path in (data_dir, *(data_dir / name for name in KEPT)):
        try:
            mode = (path.stat() if path == data_dir else path.lstat()).st_mode
        except FileNotFoundError:
            continue
        if mode & 0o077 and not stat.S_ISLNK(mode):
            yield path


def _tighten(data_dir: Path) -> list[Path]:
    found = list(open_to_others(data_dir))
    for path in found:
        try:
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o077)
        except PermissionError as error:
            raise StoreError(
                Problem(
                    code="data-dir-open",
                    message=f"others than its owner may use {path}, and this user may not end that",
                    remedy=f"let its owner run: chmod go= {path}; or name a data folder that the "
                    "engine's user owns, such as one in it",
                    path=path,
                )
            ) from error
    return found


def _say_if_anew(database: Path) -> None:
    beside = [name for name in _BESIDE if database.with_name(name).exists()]
    if beside and not database.exists():
        log.warning("history_begins_anew", database=str(database), beside=beside)
