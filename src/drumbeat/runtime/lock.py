"""The lock that lets one engine alone write a data folder."""

import fcntl
import json
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from drumbeat.errors import EngineBusy, Problem, StoreError
from drumbeat.protocols import Clock
from drumbeat.runtime.clock import holding, nap
from drumbeat.runtime.files import identity, remedy_for
from drumbeat.runtime.store_threads import run_through
from drumbeat.runtime.threads import Threads

if TYPE_CHECKING:
    from filelock import BaseFileLock

_NAME = "engine.lock"
_PATIENCE = 0.2
"""Real seconds to wait for the lock: a look at who holds it takes it for a moment."""


class EngineLock:
    """`engine.lock` of a data folder, held from `acquire` to `release`.

    The lock is the operating system's, so it ends with the process however that ends. No child
    process inherits it, spawned or forked by Python, so none of these that outlives its engine
    keeps the folder. The file says who holds it, for people and for `EngineBusy`.

    Args:
        data_dir: the data folder; nothing is touched before a method is called.
    """

    def __init__(self, data_dir: Path, *, threads: Threads | None = None) -> None:
        self._path = data_dir / _NAME
        self._lock: BaseFileLock | None = None
        self._file: tuple[int, int] | None = None
        self._threads = threads or Threads()

    async def acquire(self, *, since: str, patience: float = _PATIENCE) -> str:
        """Take the lock and return the holder's name.

        When it is cancelled it may hold the lock: call `release` in any case.

        Args:
            since: when, as people would read it.
            patience: real seconds to wait for it.

        Raises:
            EngineBusy: another engine has it; the message names it.
            StoreError: the data folder cannot be written.
        """
        holder = f"process {os.getpid()} on {socket.gethostname()} since {since}"
        await _in_thread(lambda: self._acquire(holder, patience))
        return holder

    def _acquire(self, holder: str, patience: float) -> None:
        try:
            lock = self._taken(patience)
            if lock is None:
                raise EngineBusy(
                    Problem(
                        code="engine-busy",
                        message=f"another engine holds {self._path.parent}: {self._holder()}",
                        remedy="let this one stand by (`standby=True`, or `drumbeat serve "
                        "--standby`), or stop that one; for one run, leave it to the one that is "
                        "there (`Client.fire`, or `drumbeat run SLUG --in 0`); a data folder of "
                        "its own is for another workspace, since two engines on one run each "
                        "schedule twice",
                    )
                )
            self._lock = lock
            self._path.write_text(json.dumps({"holder": holder}) + "\n", encoding="utf-8")
            self._file = identity(self._path)
        except OSError as error:
            raise StoreError(
                Problem(
                    code="data-dir-unwritable",
                    message=f"{self._path} cannot be locked: {error.strerror or error}",
                    remedy=remedy_for(
                        error, "make the data folder writable for the user that runs the engine"
                    ),
                    path=self._path,
                )
            ) from error

    def _taken(self, patience: float) -> "BaseFileLock | None":
        # Imported here: a program that only reads files should not pay for it.
        from filelock import FileLock, Timeout  # noqa: PLC0415

        lock = FileLock(self._path, timeout=patience, thread_local=False, mode=0o600)
        try:
            lock.acquire()
        except Timeout:
            return None
        return lock

    async def keep(self, *, clock: Clock, interval: timedelta) -> None:
        """Look each `interval` whether the lock still keeps others out; until cancelled.

        A lock belongs to a file and not to its path: who removes the file lets a second engine in.

        Raises:
            EngineBusy: `engine-lock-lost`, the file is another one by now, or there is none.
        """
        while True:
            await nap(clock, interval)
            with holding(clock, "engine lock"):
                try:
                    present = await self._threads.run(identity, self._path)
                except OSError:
                    continue  # what cannot be looked at is not known to be gone
            if present != self._file:
                raise EngineBusy(
                    Problem(
                        code="engine-lock-lost",
                        message=f"{self._path.name} was removed or replaced while it was held, so "
                        "that another engine may have the folder by now; this one stopped",
                        remedy="start one engine on the folder again, and leave the files of a "
                        "data folder alone while an engine is running",
                        path=self._path,
                    )
                )

    async def holder(self) -> str | None:
        """Who holds the lock at this moment, or None; waits for nobody, and writes nothing."""
        found: list[str] = []

        def look() -> None:
            try:
                file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return  # none, or somebody else's folder: no engine of this user holds it
            try:
                # Shared, so that those who look at once do not take each other for an engine.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(file, fcntl.LOCK_UN)
            except BlockingIOError:
                found.append(self._holder())
            finally:
                os.close(file)

        await _in_thread(look)
        return found[0] if found else None

    def _holder(self) -> str:
        try:
            return str(json.loads(self._path.read_text(encoding="utf-8"))["holder"])
        except (OSError, ValueError, KeyError, TypeError):
            # The holder may be between taking the lock and writing its name.
            return "a process that has not written its name yet"

    async def release(self) -> None:
        """Give the lock back; without one, do nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            await _in_thread(lock.release)


async def _in_thread(call: Callable[[], None]) -> None:
    await run_through(call, anyio.CapacityLimiter(1))
