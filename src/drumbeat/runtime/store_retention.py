"""What the store forgets, as a function that runs inside one transaction.

Theory of operation. Events go as a prefix of their ids, since what is read on from an id must be
whole: everything up to the last one before the first that is still young. An event from the future,
which a clock that was set wrongly wrote, keeps nothing alive. Runs go when they ended long ago, and
take their intents along; a run stays while its intent is pending, or while its fire is open. A fire
goes when it was settled long ago and no run of it is left, and never within a week: that is how
long the same delivery of a webhook makes no second fire. A mark whose value is null says nothing,
so it goes too; its version is remembered, as the one that the key has next lies above it.
"""

import sqlite3
from datetime import datetime, timedelta
from typing import Final

from drumbeat.core.model import Purged
from drumbeat.runtime.store_rows import instant

__all__ = ["REMEMBERED", "purge"]

_MOST: Final = 2000
"""Rows of each kind that one transaction deletes, so that no writer waits long for it."""

_ENDLESS: Final = 2**63 - 1
"""No id is as great."""

REMEMBERED: Final = timedelta(days=7)
"""How long a fire is remembered after it settled, at least (spec, section 1)."""

_RUNS: Final = """
    SELECT r.seq FROM runs r JOIN fires f ON f.seq = r.fire
    WHERE r.finished_at <= ? AND r.state <> 'running' AND f.verdict IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.run_id = r.run_id AND i.sent = 'pending')
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.run_id = r.run_id)
    AND NOT EXISTS (
        SELECT 1 FROM leases c WHERE c.kind = 'conversation' AND c.name = r.session_id
    )
    ORDER BY r.finished_at LIMIT ?
"""
_FIRES: Final = """
    SELECT f.seq FROM fires f WHERE f.settled_at <= ? AND f.verdict IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.fire = f.seq)
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.fire = f.seq)
    ORDER BY f.settled_at LIMIT ?
"""


def purge(
    db: sqlite3.Connection, *, now: datetime, keep_events: timedelta, keep_runs: timedelta
) -> Purged:
    """As `Store.purge`."""
    events = _purge_events(db, now=now, keep=keep_events)
    runs = _delete(db, "runs", _RUNS, instant(now - keep_runs))
    fires = _delete(db, "fires", _FIRES, instant(now - max(keep_runs, REMEMBERED)))
    marks = _purge_marks(db)
    return Purged(
        events=events,
        runs=runs,
        fires=fires,
        marks=marks,
        complete=_MOST not in (events, runs, fires),
    )


def _purge_marks(db: sqlite3.Connection) -> int:
    gone = db.execute(
        "DELETE FROM marks WHERE json_extract(record, '$.value') IS NULL RETURNING version"
    ).fetchall()
    for (version,) in gone:
        db.execute("UPDATE meta SET value = max(value, ?) WHERE name = 'marks'", (version,))
    return len(gone)


def _purge_events(db: sqlite3.Connection, *, now: datetime, keep: timedelta) -> int:
    (young,) = db.execute(
        "SELECT min(id) FROM events WHERE at > ? AND at <= ?", (instant(now - keep), instant(now))
    ).fetchone()
    # Never past the last one that is old: a clock that is far behind must not take them all.
    # From there downwards by id, which soon meets one: those in between are from the future.
    (old,) = db.execute(
        "SELECT max(id) FROM events WHERE at <= ? AND id < ?",
        (instant(now - keep), _ENDLESS if young is None else young),
    ).fetchone()
    young = 0 if old is None else old + 1
    gone = db.execute(
        "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id < ? ORDER BY id LIMIT ?) "
        "RETURNING id",
        (young, _MOST),
    ).fetchall()
    if gone:
        db.execute(
            "UPDATE meta SET value = ? WHERE name = 'purged'", (max(number for (number,) in gone),)
        )
    return len(gone)


def _delete(db: sqlite3.Connection, table: str, which: str, before: str) -> int:
    return db.execute(
        f"DELETE FROM {table} WHERE seq IN ({which})",  # noqa: S608  both texts are ours
        (before, _MOST),
    ).rowcount
