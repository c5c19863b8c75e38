"""State that needs transactions, in one SQLite file.

Theory of operation. One connection writes and one reads, each used by one worker thread at a time,
so the host's loop never waits for the disk and a long question never holds up a commit. The file is
in WAL mode with `synchronous=FULL`: what a method returned from survives a power cut, and a process
killed at any moment leaves whole transactions only. Every transaction takes the write lock at its
beginning, so ids of events rise in the order in which they become visible, also over processes.

A claim is a row in `leases` that lives until it is freed. Its token comes from one counter that
only rises; a method that is given a claim looks for the row with that very token and run, so who
was taken over can write nothing. A lapsed claim is not lost as long as nobody took it over.

The file, or its log beside it, may be taken away while it is open; what is written then is lost, so
nothing is. From the first look that misses one of them the connections serve nobody any more, even
when the file is back: who opened the path meanwhile may have replaced the log that they hold, and
what they write would be heard by nobody. They are closed, and others opened in their place.
"""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Final, TypeVar

import anyio
import attrs

from drumbeat.core.model import (
    Backlog,
    Claim,
    DeliveryIntent,
    Event,
    Fire,
    Mark,
    Purged,
    Receipt,
    RunRecord,
    Sent,
)
from drumbeat.errors import StoreError
from drumbeat.protocols import Clock, Store
from drumbeat.runtime import store_reads
from drumbeat.runtime.clock import SystemClock, holding
from drumbeat.runtime.files import identity
from drumbeat.runtime.store_commits import Commits
from drumbeat.runtime.store_ledger import Ledger
from drumbeat.runtime.store_problems import store_closed, store_error, store_gone
from drumbeat.runtime.store_retention import purge
from drumbeat.runtime.store_schema import connect, prepare
from drumbeat.runtime.store_threads import run_through

__all__ = ["SqliteStore"]

T = TypeVar("T")

_BUSY: Final = timedelta(seconds=5)
_RECHECK: Final = 0.5
"""Real seconds between looks for events that another process appended."""


@attrs.define(kw_only=True)
class _Files:
    """The file and its log, as they were opened."""

    path: Path
    file: tuple[int, int] | None = None
    log: tuple[int, int] | None = None
    strayed: bool = False
    """One of them was missed, or was another: the connections serve nobody any more."""

    def note(self) -> None:
        self.file, self.log = identity(self.path), identity(self._log)

    @property
    def _log(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def check(self) -> None:
        """Look at both in a worker thread.

        Raises:
            StoreError: one of them was missed by now.
        """
        try:
            self.strayed = (
                self.strayed or identity(self.path) != self.file or identity(self._log) != self.log
            )
        except OSError as error:
            raise store_error(error, self.path) from error
        if self.strayed:
            raise store_gone(self.path)


@attrs.frozen(kw_only=True)
class _Opened:
    commits: Commits
    reader: sqlite3.Connection
    limiter: anyio.CapacityLimiter
    files: "_Files"
    reading: anyio.Lock = attrs.field(factory=anyio.Lock)

    def disconnect(self) -> None:
        self.reader.close()
        # The last one, so that a connection that may write puts the log back into the file.
        self.commits.disconnect()


class SqliteStore(Store):
    """The store that drumbeat brings: one file, usable by several processes of one machine.

    Nothing is read or written before `open`. Between `open` and `close` an instance belongs to one
    event loop. Every method raises `StoreError` with the code `store-closed` outside of these,
    `store-locked` when another process kept the file locked for longer than `busy_timeout`,
    `store-full`, `store-damaged` and `store-failed` as SQLite says, `store-gone` when the file was
    removed or replaced meanwhile, and `ValueError` or `TypeError`
    for a value that cannot be stored: a naive instant, an event or mark that is not JSON. Lone
    surrogates in texts are stored as their escapes.

    Args:
        path: the database file; its folder is made if missing, its mode is 0600.
        clock: what leases are measured on; the system's by default.
        busy_timeout: how long to wait for the lock of another process, in real time.
        redact: what the slot of a fire passes through before it stands in an event; it is called in
            worker threads.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        clock: Clock | None = None,
        busy_timeout: timedelta = _BUSY,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._path = Path(path)
        self._clock = SystemClock() if clock is None else clock
        self._busy = busy_timeout
        self._redact = redact
        self._opened: _Opened | None = None
        self._written = anyio.Event()
        self._reopening = anyio.Lock()

    # ---- its life

    async def open(self, *, holder: str | None, lease: timedelta) -> None:
        """As `Store.open`; on an open store it only changes the lease and lapses older claims.

        Raises:
            StoreError: `store-damaged`, `store-newer`, `store-older` (without a holder, which alone
                reads the whole file for damage and upgrades it), `store-locked`, `store-full` or
                `store-failed`. A damaged file and one of a later release are left as they are.
        """
        with holding(self._clock, "store open"):
            if self._opened is None:
                opened = await self._connect(lease, whole=holder is not None)
            else:
                opened = await self._usable()
            opened.commits.lease = lease
            try:
                if holder is not None:
                    await opened.commits.run(Ledger.lapse)
            except BaseException:
                if self._opened is None:
                    await self._disconnect(opened)
                raise
            self._opened = opened

    async def _connect(
        self, lease: timedelta, *, whole: bool, again: "_Files | None" = None
    ) -> "_Opened":
        """Open both connections; `again` for those that stand in the place of strayed ones."""
        limiter = anyio.CapacityLimiter(2)
        self._written = anyio.Event()
        readers: list[sqlite3.Connection] = []
        files = _Files(path=self._path)

        def begin() -> sqlite3.Connection:
            if again is None:
                prepare(self._path, busy=self._busy, whole=whole)
            reader = connect(self._path, busy=self._busy)
            readers.append(reader)
            reader.execute("PRAGMA query_only = ON")
            # Its first look opens the log, which then stays as long as a connection is open.
            reader.execute("SELECT value FROM meta WHERE name = 'token'").fetchone()
            files.note()
            if again is not None and files.file != again.file:
                raise store_gone(self._path)
            return reader

        def begin_or_say() -> sqlite3.Connection:
            try:
                return begin()
            except sqlite3.Error as error:
                raise store_error(error, self._path) from error

        try:
            reader = await run_through(begin_or_say, limiter)
        except BaseException:
            for reader in readers:
                await run_through(reader.close, limiter)
            raise
        commits = Commits(
            self._path,
            check=files.check,
            clock=self._clock,
            lease=lease,
            busy=self._busy,
            appended=self._wake,
            redact=self._redact,
            limiter=limiter,
        )
        return _Opened(commits=commits, reader=reader, limiter=limiter, files=files)

    async def _usable(self) -> "_Opened":
        """The open connections, opened again where they had lost their file and it is back."""
        opened = self._using()
        if opened.files.strayed:
            async with self._reopening:
                if self._opened is opened:
                    await self._reopen(opened)
        return self._using()

    async def _reopen(self, opened: "_Opened") -> None:
        def find() -> None:
            try:
                back = identity(self._path) == opened.files.file
            except OSError as error:
                raise store_error(error, self._path) from error
            if not back:
                raise store_gone(self._path)

        await run_through(find, opened.limiter)
        with anyio.CancelScope(shield=True):
            await self._disconnect(opened)
            found = await self._connect(opened.commits.lease, whole=False, again=opened.files)
            if self._opened is opened:
                self._opened = found
            else:  # it was closed meanwhile
                await self._disconnect(found)

    async def close(self) -> None:
        """As `Store.close`; what was asked for before is done first."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        self._wake()
        with holding(self._clock, "store close"):
            await self._disconnect(opened)

    async def _disconnect(self, opened: "_Opened") -> None:
        with anyio.CancelScope(shield=True):
            try:
                # It comes last in line, and whether it can be written is of no interest.
                with suppress(StoreError):
                    await opened.commits.run(_nothing)
            finally:
                async with opened.reading:
                    await run_through(opened.disconnect, opened.limiter)

    def _wake(self) -> None:
        written, self._written = self._written, anyio.Event()
        written.set()

    def _using(self) -> "_Opened":
        if self._opened is None:
            raise store_closed(self._path)
        return self._opened

    async def _write(
        self,
        what: str,
        work: Callable[[Ledger], T],
        undo: Callable[[Ledger, T], None] | None = None,
    ) -> T:
        with holding(self._clock, f"store {what}"):
            return await (await self._usable()).commits.run(work, undo=undo)

    async def _read(self, what: str, question: Callable[[sqlite3.Connection], T]) -> T:
        with holding(self._clock, f"store {what}"):
            opened = await self._usable()

            def ask() -> T:
                opened.files.check()
                try:
                    return _answer(opened.reader, question)
                except sqlite3.Error as error:
                    raise store_error(error, self._path) from error

            async with opened.reading:
                return await run_through(ask, opened.limiter)

    # ---- fires and claims

    async def add_fires(
        self,
        fires: Sequence[Fire],
        *,
        fold: bool = False,
        marks: Sequence[Mark] = (),
        events: Sequence[Event] = (),
    ) -> list[Fire]:
        """As `Store.add_fires`; only fires of the cause `schedule` fold (spec, section 5)."""
        return await self._write(
            "add_fires",
            lambda ledger: ledger.add_fires(fires, fold=fold, marks=marks, events=events),
        )

    async def claim_fire(
        self,
        *,
        now: datetime,
        run_id: str,
        skip: Collection[str] = (),
        fire: str | None = None,
    ) -> Claim | None:
        """As `Store.claim_fire`; a follow-up waits until its parent run has finished."""
        return await self._write(
            "claim_fire", lambda ledger: ledger.claim_fire(now, run_id, skip, fire), _give_back
        )

    async def hold(self, session_id: str, *, run_id: str) -> Claim | None:
        """As `Store.hold`; the claim's `slug` is the session id."""
        claim, _ = await self._write(
            "hold", lambda ledger: ledger.hold(session_id, run_id), _let_go
        )
        return claim

    async def renew(self, claims: Sequence[Claim]) -> set[str]:
        """As `Store.renew`; a run is held when all of its claims that were given are."""
        return await self._write("renew", lambda ledger: ledger.renew(claims))

    async def take_over(self) -> list[Claim]:
        """As `Store.take_over`; a claim keeps the run id of the run that was going."""
        return await self._write("take_over", Ledger.take_over)

    # ---- runs

    async def record(
        self,
        *,
        claim: Claim | None = None,
        run: RunRecord | None = None,
        settled: Sequence[Fire] = (),
        marks: Sequence[Mark] = (),
        events: Sequence[Event] = (),
    ) -> None:
        """As `Store.record`; a finished run is never set back to running.

        Raises:
            NotFound: `fire-not-found`, a fire that is named is not in the store.
        """
        await self._write(
            "record",
            lambda ledger: ledger.record(
                claim, run=run, settled=settled, marks=marks, events=events
            ),
        )

    async def finish(
        self,
        claim: Claim,
        run: RunRecord | None,
        *,
        again_at: datetime | None = None,
        runs: Sequence[RunRecord] = (),
        fires: Sequence[Fire] = (),
        marks: Sequence[Mark] = (),
        events: Sequence[Event] = (),
    ) -> None:
        """As `Store.finish`; the conversations that the run held are freed with it.

        Raises:
            NotFound: `fire-not-found`, the fire of `run` is not in the store; `run-unknown`, one of
                `runs` is not.
            ValueError: `run` is given with a claim on a conversation.
        """
        await self._write(
            "finish",
            lambda ledger: ledger.finish(
                claim, run, again_at=again_at, runs=runs, fires=fires, marks=marks, events=events
            ),
        )

    # ---- intents

    async def claim_intent(self, *, now: datetime) -> DeliveryIntent | None:
        """As `Store.claim_intent`; the lease is that of claims."""
        return await self._write("claim_intent", lambda ledger: ledger.claim_intent(now), _unclaim)

    async def settle_intent(
        self,
        intent: DeliveryIntent,
        sent: Sent,
        *,
        receipt: Receipt | None = None,
        retry_at: datetime | None = None,
        events: Sequence[Event] = (),
    ) -> None:
        """As `Store.settle_intent`.

        A call that changes nothing appends no events: on an intent that was settled before, or
        `pending` for an attempt that a later one has overtaken.

        Raises:
            NotFound: `intent-not-found`, there is no such intent, or it is not to be delivered.
        """
        await self._write(
            "settle_intent",
            lambda ledger: ledger.settle_intent(
                intent, sent, receipt=receipt, retry_at=retry_at, events=events
            ),
        )

    # ---- questions

    async def fires(
        self,
        *,
        slug: str | None = None,
        id: str | None = None,
        open: bool = False,
        around: datetime | None = None,
        limit: int | None = 100,
        payloads: bool = True,
    ) -> list[Fire]:
        """As `Store.fires`; a fire that is claimed is open."""
        return await self._read(
            "fires",
            lambda db: store_reads.read_fires(
                db, slug, id=id, open=open, around=around, limit=limit, bare=not payloads
            ),
        )

    async def backlog(self, *, now: datetime, slug: str | None = None) -> list[Backlog]:
        """As `Store.backlog`."""
        return await self._read("backlog", lambda db: store_reads.read_backlog(db, now, slug))

    async def invalid_runs(self) -> list[str]:
        """As `Store.invalid_runs`."""
        return await self._read("invalid_runs", store_reads.read_invalid_runs)

    async def runs(
        self,
        *,
        slug: str | None = None,
        target: str | None = None,
        sent: Sent | None = None,
        limit: int | None = 100,
        payloads: bool = True,
    ) -> list[RunRecord]:
        """As `Store.runs`; `target` may be the id of the intent too.

        The fire and the intent are as they stand in the store, not as they were in the run.
        """
        return await self._read(
            "runs",
            lambda db: store_reads.read_runs(
                db, slug=slug, target=target, sent=sent, limit=limit, bare=not payloads
            ),
        )

    async def events(self, *, after: int, limit: int, wait: timedelta) -> list[Event]:
        """As `Store.events`; the waiting is in real time, and holds no driven clock."""

        async def look() -> list[Event]:
            return await self._read("events", lambda db: store_reads.read_events(db, after, limit))

        written = self._written
        found = await look()
        if found or limit <= 0 or wait <= timedelta():
            return found
        with anyio.move_on_after(wait.total_seconds()):
            while not found:
                with anyio.move_on_after(_RECHECK):
                    await written.wait()
                written = self._written
                found = await look()
        return found

    async def marks(self, prefix: str) -> list[Mark]:
        """As `Store.marks`."""
        return await self._read("marks", lambda db: store_reads.read_marks(db, prefix))

    # ---- forgetting

    async def purge(self, *, now: datetime, keep_events: timedelta, keep_runs: timedelta) -> Purged:
        """As `Store.purge`; the file keeps its size, and what comes is written where rows went."""
        return await self._write(
            "purge",
            lambda ledger: purge(ledger.db, now=now, keep_events=keep_events, keep_runs=keep_runs),
        )


def _answer(db: sqlite3.Connection, question: Callable[[sqlite3.Connection], T]) -> T:
    # One snapshot for all statements of a question.
    db.execute("BEGIN")
    try:
        return question(db)
    finally:
        db.execute("ROLLBACK")


def _nothing(_: Ledger) -> None:
    return None


def _give_back(ledger: Ledger, claim: Claim | None) -> None:
    if claim is not None:
        ledger.finish(claim, None)


def _let_go(ledger: Ledger, held: tuple[Claim | None, bool]) -> None:
    claim, taken = held
    if claim is not None and taken:
        ledger.finish(claim, None)


def _unclaim(ledger: Ledger, intent: DeliveryIntent | None) -> None:
    if intent is not None:
        ledger.unclaim_intent(intent)
