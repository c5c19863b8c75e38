"""The tables, and how a file comes to have them: created, checked, upgraded.

Theory of operation. A file is made under a name of its own and gets its right name once it is
whole, so an empty file is never the beginning of a store but the rest of one. What a kill leaves of
such a draft, its holder clears away at the next start. A file that is there
is looked at through a read-only connection first: what is damaged, foreign or of a later release is
refused before anything could write to it. An upgrade takes the write lock, copies the file as it
then stands, and does its steps and the version number in that one transaction.

The file is only ever opened by SQLite: the locks of a process on a file go when *any* descriptor
of that file is closed, and another connection of this process may rely on them.
"""

import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

from drumbeat.errors import StoreError
from drumbeat.runtime.files import sync_folder
from drumbeat.runtime.store_problems import (
    store_damaged,
    store_error,
    store_newer,
    store_older,
)

__all__ = ["SCHEMA_VERSION", "STEPS", "connect", "examine", "prepare"]

Step: TypeAlias = Callable[[sqlite3.Connection], None]

APPLICATION_ID: Final = 0x6472756D
"""`drum` in ASCII: tells a drumbeat store from any other SQLite file."""

_MODE: Final = 0o600
_WAL_LIMIT: Final = 64 * 1024 * 1024

_TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    # `token` is the last one given out, `purged` the greatest event id that is gone.
    "INSERT INTO meta (name, value) VALUES ('token', 0), ('purged', 0)",
    """CREATE TABLE fires (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        slug TEXT NOT NULL,
        cause TEXT NOT NULL,
        slot TEXT NOT NULL,
        due TEXT NOT NULL,
        parent_run TEXT,
        verdict TEXT,
        settled_at TEXT,
        record TEXT NOT NULL,
        UNIQUE (slug, cause, slot)
    )""",
    "CREATE INDEX fires_open ON fires (due, seq) WHERE verdict IS NULL",
    "CREATE INDEX fires_waiting ON fires (slug, cause, due, seq) WHERE verdict IS NULL",
    "CREATE INDEX fires_of_slug ON fires (slug, seq)",
    "CREATE INDEX fires_by_due ON fires (slug, due, seq)",
    "CREATE INDEX fires_settled ON fires (settled_at) WHERE settled_at IS NOT NULL",
    # Apart from the fire, whose row is written again with every claim.
    """CREATE TABLE payloads (
        fire INTEGER PRIMARY KEY REFERENCES fires (seq) ON DELETE CASCADE,
        body BLOB NOT NULL
    )""",
    """CREATE TABLE leases (
        kind TEXT NOT NULL CHECK (kind IN ('slug', 'conversation')),
        name TEXT NOT NULL,
        token INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        fire INTEGER UNIQUE REFERENCES fires (seq),
        until TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID""",
    "CREATE INDEX leases_of_run ON leases (run_id)",
    """CREATE TABLE runs (
        seq INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        slug TEXT NOT NULL,
        fire INTEGER NOT NULL REFERENCES fires (seq),
        state TEXT NOT NULL,
        session_id TEXT,
        started_at TEXT NOT NULL,
        finished_at TEXT,
        record TEXT NOT NULL
    )""",
    "CREATE INDEX runs_latest ON runs (started_at, seq)",
    "CREATE INDEX runs_of_slug ON runs (slug, started_at, seq)",
    "CREATE INDEX runs_of_session ON runs (session_id)",
    "CREATE INDEX runs_of_fire ON runs (fire, seq)",
    "CREATE INDEX runs_finished ON runs (finished_at) WHERE finished_at IS NOT NULL",
    """CREATE TABLE intents (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        run_id TEXT NOT NULL UNIQUE REFERENCES runs (run_id) ON DELETE CASCADE,
        slug TEXT NOT NULL,
        sent TEXT,
        attempt INTEGER NOT NULL,
        retry_at TEXT,
        leased_until TEXT,
        receipt_id TEXT,
        receipt TEXT,
        record TEXT NOT NULL
    )""",
    "CREATE INDEX intents_waiting ON intents (seq) WHERE sent = 'pending'",
    "CREATE INDEX intents_pending ON intents (slug, seq) WHERE sent = 'pending'",
    "CREATE INDEX intents_of_receipt ON intents (receipt_id) WHERE receipt_id IS NOT NULL",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at TEXT NOT NULL,
        record TEXT NOT NULL
    )""",
    "CREATE INDEX events_at ON events (at)",
    """CREATE TABLE marks (
        key TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        record TEXT NOT NULL
    ) WITHOUT ROWID""",
)


def _create(db: sqlite3.Connection) -> None:
    for statement in _TABLES:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


_SECOND: Final = (
    # The open fires of a slug are few beside those that it had.
    "CREATE INDEX fires_open_of_slug ON fires (slug, due, seq) WHERE verdict IS NULL",
    "CREATE INDEX fires_by_moment ON fires (due, seq)",
    # A conversation may go on for years, and its latest run is what is asked for.
    "DROP INDEX runs_of_session",
    "CREATE INDEX runs_of_session ON runs (session_id, started_at, seq)",
    "CREATE INDEX intents_abandoned ON intents (run_id) WHERE sent = 'abandoned'",
    # The greatest version of a mark that was forgotten.
    "INSERT INTO meta (name, value) SELECT 'marks', ifnull(max(version), 0) FROM marks",
)


def _index_what_is_asked_for(db: sqlite3.Connection) -> None:
    for statement in _SECOND:
        db.execute(statement)


STEPS: Final[Sequence[Step]] = (_create, _index_what_is_asked_for)
"""Step `n` leads from schema `n` to `n + 1`."""

SCHEMA_VERSION: Final = len(STEPS)


def connect(path: Path, *, busy: timedelta, read_only: bool = False) -> sqlite3.Connection:
    """Open the file, which is there, as every connection of the store has it.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    mode = "ro" if read_only else "rw"
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy.total_seconds(),
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA synchronous = FULL")
        # What undoes a part of a large transaction would lie in /tmp, which may be full.
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
    except BaseException:
        db.close()
        raise
    return db


def examine(path: Path, *, busy: timedelta = timedelta(seconds=5)) -> int:
    """Check the file `path`, which is there, without writing to it; return its schema's version.

    Raises:
        StoreError: `store-damaged`, `store-newer`, `store-locked` or `store-failed`.
    """
    try:
        return _check(path, busy=busy, known=SCHEMA_VERSION, whole=True)
    except (sqlite3.Error, OSError) as error:
        raise store_error(error, path) from error


def prepare(
    path: Path, *, busy: timedelta, steps: Sequence[Step] = STEPS, whole: bool = True
) -> None:
    """See to it that `path` is a whole store of the present schema, creating or upgrading it.

    Args:
        path: the file; a missing folder is created, mode 0700.
        busy: how long to wait for a lock.
        steps: the schema's steps.
        whole: read the whole file for damage and upgrade an older schema, as its holder does. Else
            only the header is looked at, and an older schema is refused.

    Raises:
        StoreError: `store-damaged`, `store-older` or `store-newer`, and the file was left as it is;
            `store-locked`, `store-full` or `store-failed`, and the schema is what it was.
    """
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(path, busy=busy, steps=steps)
        if whole:
            _clear_drafts(path)
        version = _check(path, busy=busy, known=len(steps), whole=whole)
        if version < len(steps):
            if not whole:
                raise store_older(path, version, len(steps))
            _upgrade(path, busy=busy, steps=steps)
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            _make_private(file)
    except (sqlite3.Error, OSError) as error:
        raise store_error(error, path) from error


def _make_private(file: Path) -> None:
    try:
        if file.stat().st_mode & 0o777 != _MODE:
            file.chmod(_MODE)
    except FileNotFoundError:
        # The last connection to close takes `-wal` and `-shm` along; those to come inherit 0600.
        return


def _clear_drafts(path: Path) -> None:
    """Remove what a kill left of files that were being made; who still makes one is too late."""
    draft = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.draft(-wal|-shm|-journal)?")
    for file in path.parent.iterdir():
        if draft.fullmatch(file.name):
            file.unlink(missing_ok=True)


def _make(path: Path, *, busy: timedelta, steps: Sequence[Step]) -> None:
    try:
        _make_once(path, busy=busy, steps=steps)
    except StoreError:
        # Whoever was faster, and holds the folder, clears drafts away.
        if not path.exists():
            raise
    sync_folder(path.parent)


def _make_once(path: Path, *, busy: timedelta, steps: Sequence[Step]) -> None:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.draft")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, _MODE))
        with closing(connect(draft, busy=busy)) as db:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                msg = f"the file system allows no write-ahead log, only {mode}"
                raise sqlite3.OperationalError(msg)
            _step(db, 0, steps)
            _write_back(db)
        try:
            # Unlike a rename it never replaces the file of somebody who was faster.
            os.link(draft, path)
        except FileExistsError:
            return
        except OSError:
            # Not every file system has hard links.
            draft.rename(path)
    except (sqlite3.Error, OSError) as error:
        # Looked at before the draft goes, which gives back the room that there was not.
        raise store_error(error, path) from error
    finally:
        _remove(draft)


def _write_back(db: sqlite3.Connection) -> None:
    """Put all of the log into the file, which alone is to get its right name.

    Closing does so too, and says nothing when there is no room for it.
    """
    busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        msg = "its log cannot be written back"
        raise sqlite3.OperationalError(msg)


def _remove(draft: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        draft.with_name(draft.name + end).unlink(missing_ok=True)


def _step(db: sqlite3.Connection, version: int, steps: Sequence[Step]) -> None:
    if not db.in_transaction:
        db.execute("BEGIN IMMEDIATE")
    for step in steps[version:]:
        step(db)
    db.execute(f"PRAGMA user_version = {len(steps)}")
    db.execute("COMMIT")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _check(path: Path, *, busy: timedelta, known: int, whole: bool) -> int:
    with closing(connect(path, busy=busy, read_only=True)) as db:
        version = _version(db)
        if db.execute("PRAGMA page_count").fetchone()[0] == 0:
            raise store_damaged(path, "it is empty")
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise store_damaged(path, "another program wrote it")
        if version > known:
            raise store_newer(path, version, known)
        # The quick one looks at no index, and so takes an older file for whole beside a later log.
        found = db.execute("PRAGMA integrity_check(1)").fetchone()[0] if whole else "ok"
        if found != "ok":
            raise store_damaged(path, " ".join(str(found).split()))
    return version


def _upgrade(path: Path, *, busy: timedelta, steps: Sequence[Step]) -> None:
    with closing(connect(path, busy=busy)) as db:
        # A table that is rebuilt may not take along the rows that point to it.
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("BEGIN IMMEDIATE")
        try:
            version = _version(db)
            if version >= len(steps):
                return
            _back_up(path, version, busy=busy)
            _step(db, version, steps)
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def _back_up(path: Path, version: int, *, busy: timedelta) -> None:
    kept = path.with_name(f"{path.name}.v{version}.backup")
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.draft")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, _MODE))
        with (
            closing(connect(path, busy=busy, read_only=True)) as source,
            closing(connect(draft, busy=busy)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.replace(kept)
        # The upgrade must not outlive its backup.
        sync_folder(path.parent)
    except (sqlite3.Error, OSError) as error:
        raise store_error(error, path) from error
    finally:
        _remove(draft)
