"""Group commit: concurrent writers share one transaction.

Theory of operation. A write is a function of a `Ledger`. Writers line up; the first of them leads:
it takes what stands in line and runs all of it in one transaction in a worker thread, then wakes
those it took and passes the lead to the next in line. So there is one fsync for as many writers as
came during the last one, and none waits when there is nobody else.

Each write stands in a savepoint of its own: what it raises undoes it alone and goes to its own
caller. What the disk says (full, locked, damaged) undoes all of the transaction and goes to all.

A caller that is cancelled while it stands in line leaves it, and its work is never done. Once
taken, it stays until the end and gets its result. Only two cancellations can come later, one on its
way at that very moment and one by `asyncio.Task.cancel`, which knows no shield; the caller of a
claim then never sees it, so the claim is undone.
"""

import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import anyio
import attrs
from anyio.lowlevel import checkpoint_if_cancelled

from drumbeat.errors import DrumbeatError
from drumbeat.protocols import Clock
from drumbeat.runtime.store_ledger import Ledger
from drumbeat.runtime.store_problems import store_error
from drumbeat.runtime.store_schema import connect
from drumbeat.runtime.store_threads import run_through

__all__ = ["Commits"]

T = TypeVar("T")

_MOST: Final = 256
"""How many writes share one transaction, so that none waits long for those before it."""

_OWN: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
)
"""What SQLite raises for a fault of one statement, which leaves the transaction as it was."""


@attrs.define(eq=False)
class _Job(Generic[T]):
    work: Callable[[Ledger], T]
    woken: anyio.Event = attrs.field(factory=anyio.Event)
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    taken: bool = False
    done: bool = False
    value: T | None = None
    error: BaseException | None = None


class Commits:
    """The writing side of one store file.

    Args:
        path: the file, which `prepare` has seen to.
        check: called in the worker thread around each transaction; raises when the file is no
            longer the one that was opened.
        clock: read once for each transaction.
        lease: how long a claim lives.
        busy: how long to wait for the lock of another process.
        appended: called in the loop after a commit that appended events.
        redact: as `SqliteStore` has it.
        limiter: the worker threads of the store.
    """

    def __init__(
        self,
        path: Path,
        *,
        check: Callable[[], None],
        clock: Clock,
        lease: timedelta,
        busy: timedelta,
        appended: Callable[[], None],
        redact: Callable[[str], str],
        limiter: anyio.CapacityLimiter,
    ) -> None:
        self.lease = lease
        self._path = path
        self._check = check
        self._clock = clock
        self._busy = busy
        self._appended = appended
        self._redact = redact
        self._limiter = limiter
        self._line: deque[_Job[Any]] = deque()
        self._led = False
        self._db: sqlite3.Connection | None = None

    async def run(
        self, work: Callable[[Ledger], T], *, undo: Callable[[Ledger, T], None] | None = None
    ) -> T:
        """Run `work` inside a transaction and return what it returns, once that is durable.

        Args:
            work: called in a worker thread.
            undo: called with the value of `work` when a cancellation keeps it from the caller.

        Raises:
            StoreError: the transaction could not be written.
            Exception: what `work` raised; nothing that it did was written.
        """
        await checkpoint_if_cancelled()
        job = _Job(work)
        self._line.append(job)
        try:
            if self._led:
                with job.scope:
                    await job.woken.wait()
            else:
                self._led = True
            if not job.taken:
                await self._lead()
        except anyio.get_cancelled_exc_class():
            if job.taken:
                await self._see_off(job, undo)
            else:
                self._line.remove(job)
                if job.woken.is_set():
                    self._pass_on()
            raise
        if job.error is not None:
            raise job.error
        return job.value  # type: ignore[return-value]  # set, as nothing was raised

    async def _see_off(self, job: _Job[T], undo: Callable[[Ledger, T], None] | None) -> None:
        with anyio.CancelScope(shield=True):
            while not job.woken.is_set():
                # A second native cancellation changes nothing: the first is raised by the caller.
                with suppress(anyio.get_cancelled_exc_class()):
                    await job.woken.wait()
            if undo is not None and job.error is None:
                # A claim that cannot be undone has ended meanwhile, or lapses by itself.
                with suppress(DrumbeatError):
                    await self.run(lambda ledger: undo(ledger, job.value))  # type: ignore[arg-type]

    async def _lead(self) -> None:
        batch = [self._line.popleft() for _ in range(min(_MOST, len(self._line)))]
        for job in batch:
            job.taken = True
            job.scope.shield = True
        now = self._clock.now()
        try:
            if await run_through(lambda: self._commit(batch, now), self._limiter):
                self._appended()
        except BaseException as error:
            # A keyboard interrupt ends the wait, not the thread: nobody may take it for success.
            for job in batch:
                if not job.done:
                    job.error = error
            raise
        finally:
            for job in batch:
                job.woken.set()
            self._pass_on()

    def _pass_on(self) -> None:
        if self._line:
            self._line[0].woken.set()
        else:
            self._led = False

    def _commit(self, batch: list[_Job[Any]], now: datetime) -> bool:
        appended = False
        try:
            self._check()
            db = self._db = self._db or connect(self._path, busy=self._busy)
            db.execute("BEGIN IMMEDIATE")
            for job in batch:
                ledger = Ledger(db=db, now=now, lease=self.lease, redact=self._redact)
                db.execute("SAVEPOINT job")
                try:
                    job.value = job.work(ledger)
                    appended = appended or ledger.appended
                except Exception as error:
                    if isinstance(error, sqlite3.Error) and not isinstance(error, _OWN):
                        raise
                    job.error = self._translated(error)
                    db.execute("ROLLBACK TO job")
                db.execute("RELEASE job")
            self._check()
            db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  everyone in the transaction gets it
            self._roll_back()
            appended = False
            for job in batch:
                job.error = self._translated(error)
        for job in batch:
            job.done = True
        return appended

    def _translated(self, error: Exception) -> Exception:
        if not isinstance(error, sqlite3.Error):
            return error
        translated = store_error(error, self._path)
        translated.__cause__ = error
        return translated

    def _roll_back(self) -> None:
        if self._db is None or not self._db.in_transaction:
            return
        try:
            self._db.execute("ROLLBACK")
        except sqlite3.Error:
            # Closing rolls back too, and the next transaction gets a connection of its own.
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection, in a worker thread, when no write is going on."""
        db, self._db = self._db, None
        if db is not None:
            db.close()
