"""What can be asked of the store, as functions of a connection.

Rows are fetched before they are decoded: a statement that an error leaves half-read keeps its
snapshot, and whatever is asked on that connection afterwards would be answered from the past.
"""

import sqlite3
from datetime import datetime
from typing import Any, Final

from drumbeat.core.model import (
    Backlog,
    DeliveryIntent,
    Event,
    Fire,
    Mark,
    Receipt,
    RunRecord,
    Sent,
)
from drumbeat.errors import EventsExpired, Problem
from drumbeat.runtime.store_rows import decode, decode_value, instant, storable

__all__ = [
    "read_backlog",
    "read_events",
    "read_fires",
    "read_intent",
    "read_invalid_runs",
    "read_marks",
    "read_runs",
    "select_fires",
]

_FEW: Final = {
    "pending": "r.run_id IN (SELECT run_id FROM intents WHERE sent = 'pending')",
    "abandoned": "r.run_id IN (SELECT run_id FROM intents WHERE sent = 'abandoned')",
}
"""What is rare among many runs; an index knows where it is."""


def select_fires(
    db: sqlite3.Connection, condition: str, values: tuple[Any, ...], *, bare: bool = False
) -> list[tuple[int, Fire]]:
    """Return the fires `f` for which the SQL condition holds, each with its `seq`.

    Args:
        db: the connection.
        condition: what follows `WHERE`.
        values: what its question marks stand for.
        bare: leave the payload unread, which may be large.

    Raises:
        StoreError: a record cannot be read.
    """
    payload, join = ("NULL", "") if bare else ("p.body", "LEFT JOIN payloads p ON p.fire = f.seq")
    rows = db.execute(
        f"SELECT f.seq, f.id, f.record, {payload} "  # noqa: S608  conditions are ours
        f"FROM fires f {join} WHERE {condition}",
        values,
    ).fetchall()
    return [
        (seq, decode(Fire, record, f"the fire {fire_id}", payload=body))
        for seq, fire_id, record, body in rows
    ]


def read_fires(
    db: sqlite3.Connection,
    slug: str | None,
    *,
    id: str | None = None,
    open: bool,
    around: datetime | None = None,
    limit: int | None,
    bare: bool = False,
) -> list[Fire]:
    """Return the open fires by due time, those due around an instant, or the latest first."""
    if around is not None:
        return _around(db, slug, instant(around), _most(limit, of=2), bare=bare)
    conditions = ["TRUE"]
    values: list[Any] = []
    if id is not None:
        conditions.append("f.id = ?")
        values.append(storable(id))
    if slug is not None:
        conditions.append("f.slug = ?")
        values.append(storable(slug))
    if open:
        conditions.append("f.verdict IS NULL")
    order = "f.due, f.seq" if open else "f.seq DESC"
    values.append(_most(limit))
    condition = f"{' AND '.join(conditions)} ORDER BY {order} LIMIT ?"
    return [fire for _, fire in select_fires(db, condition, tuple(values), bare=bare)]


def _most(limit: int | None, *, of: int = 1) -> int:
    """What stands behind LIMIT for so many, or for one of `of` parts of them; -1 for all."""
    return -1 if limit is None else max(0, limit) // of


def _around(
    db: sqlite3.Connection, slug: str | None, at: str, each: int, *, bare: bool
) -> list[Fire]:
    one, values = ("TRUE", ()) if slug is None else ("f.slug = ?", (storable(slug),))
    before = select_fires(
        db,
        f"{one} AND f.due <= ? ORDER BY f.due DESC, f.seq DESC LIMIT ?",
        (*values, at, each),
        bare=bare,
    )
    behind = select_fires(
        db, f"{one} AND f.due > ? ORDER BY f.due, f.seq LIMIT ?", (*values, at, each), bare=bare
    )
    return [fire for _, fire in (*reversed(before), *behind)]


def read_backlog(db: sqlite3.Connection, now: datetime, slug: str | None = None) -> list[Backlog]:
    """Return what waits of each slug, from the indexes of open fires as far as they say it."""
    one, values = ("", ()) if slug is None else ("slug = ? AND ", (storable(slug),))
    counted = db.execute(
        "SELECT slug, cause, min(due), "  # noqa: S608  conditions are ours
        "sum(NOT EXISTS (SELECT 1 FROM leases l WHERE l.fire = f.seq)) "
        f"FROM fires f WHERE {one}verdict IS NULL GROUP BY slug, cause",
        values,
    ).fetchall()
    later = db.execute(
        "SELECT slug, due <= json_extract(record, '$.created_at'), due "  # noqa: S608
        f"FROM fires WHERE {one}verdict IS NULL AND due > ?",
        (*values, instant(now)),
    ).fetchall()
    first: dict[str, str] = {}
    follow_ups: dict[str, int] = {}
    for name, cause, due, count in counted:
        first[name] = min(due, first.get(name, due))
        if cause == "follow-up":
            follow_ups[name] = count
    ahead: dict[tuple[str, int], str] = {}
    for name, set_back, due in later:
        ahead[name, set_back] = min(due, ahead.get((name, set_back), due))
    return [
        Backlog(
            slug=name,
            due=datetime.fromisoformat(first[name]),
            ahead=_moment(ahead.get((name, 0))),
            overdue=_moment(ahead.get((name, 1))),
            follow_ups=follow_ups.get(name, 0),
        )
        for name in sorted(first)
    ]


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def read_invalid_runs(db: sqlite3.Connection) -> list[str]:
    """Return the ids of the runs that ended without an intent."""
    rows = db.execute(
        "SELECT r.run_id FROM runs r LEFT JOIN intents i ON i.run_id = r.run_id "
        "WHERE r.state != 'running' AND i.run_id IS NULL ORDER BY r.started_at, r.seq"
    ).fetchall()
    return [run_id for (run_id,) in rows]


def read_intent(record: str, attempt: int, fire: Fire) -> DeliveryIntent:
    """Compose an intent from its row and its fire."""
    where = f"the intent of a run of {fire.slug}"
    return decode(DeliveryIntent, record, where, attempt=attempt, fire=fire)


def read_runs(
    db: sqlite3.Connection,
    *,
    slug: str | None,
    target: str | None,
    sent: Sent | None,
    limit: int | None,
    bare: bool = False,
) -> list[RunRecord]:
    """Return runs, the latest first, with their fires and intents as they stand."""
    conditions = ["TRUE"]
    values: list[Any] = []
    if slug is not None:
        conditions.append("r.slug = ?")
        values.append(storable(slug))
    if target is not None:
        conditions.append(
            "r.seq IN (SELECT seq FROM runs WHERE run_id = ? UNION ALL "
            "SELECT seq FROM (SELECT seq FROM runs WHERE session_id = ? "
            "ORDER BY started_at DESC, seq DESC LIMIT ?) UNION ALL "
            "SELECT o.seq FROM intents a JOIN runs o ON o.run_id = a.run_id "
            "WHERE a.id = ? OR a.receipt_id = ?)"
        )
        name = storable(target)
        # Of a long conversation only those that can be among the answer; with -1, all of them.
        most = _most(limit) if slug is None and sent is None else -1
        values.extend((name, name, most, name, name))
    if sent is not None:
        if sent in _FEW:
            conditions.append(_FEW[sent])
        conditions.append("i.sent = ?")
        values.append(sent)
    values.append(_most(limit))
    rows = db.execute(
        "SELECT r.run_id, r.fire, r.record, i.record, i.attempt, i.sent, i.receipt "  # noqa: S608
        "FROM runs r LEFT JOIN intents i ON i.run_id = r.run_id "
        f"WHERE {' AND '.join(conditions)} ORDER BY r.started_at DESC, r.seq DESC LIMIT ?",
        tuple(values),
    ).fetchall()
    found = []
    for run_id, seq, record, intent, attempt, state, receipt in rows:
        ((_, fire),) = select_fires(db, "f.seq = ?", (seq,), bare=bare)
        where = f"the run {run_id}"
        found.append(
            decode(
                RunRecord,
                record,
                where,
                fire=fire,
                intent=None if intent is None else read_intent(intent, attempt, fire),
                delivery=state,
                receipt=None if receipt is None else decode(Receipt, receipt, where),
            )
        )
    return found


def read_events(db: sqlite3.Connection, after: int, limit: int) -> list[Event]:
    """Return the events behind `after`, in order.

    Raises:
        EventsExpired: some of them were purged, or there never was an event `after` in this store.
        StoreError: a record cannot be read.
    """
    (purged,) = db.execute("SELECT value FROM meta WHERE name = 'purged'").fetchone()
    if after < purged:
        raise EventsExpired(
            Problem(
                code="events-expired",
                message=f"events up to {purged} are purged, and those after {after} were asked for",
                remedy=f"read on from after={purged}; what happened before is in the runs",
            ),
            purged,
        )
    rows = db.execute(
        "SELECT id, record FROM events WHERE id > ? ORDER BY id LIMIT ?", (after, max(0, limit))
    ).fetchall()
    if not rows and after > purged:
        # From the end: without a condition, the plan does not say that it has a key to go by.
        (newest,) = db.execute("SELECT max(id) FROM events WHERE id > ?", (purged,)).fetchone()
        last = purged if newest is None else newest
        if after > last:
            raise _never_there(after, last=last, purged=purged)
    return [decode(Event, record, f"the event {number}", id=number) for number, record in rows]


def _never_there(after: int, *, last: int, purged: int) -> EventsExpired:
    return EventsExpired(
        Problem(
            code="events-ahead",
            message=f"the last event is {last}, and those after {after} were asked for: a backup "
            "was put back, or the id is of another data folder",
            remedy=f"forget the id, and read on from after={purged}, which is all that is kept: "
            "some of it was seen before",
        ),
        purged,
    )


def read_marks(db: sqlite3.Connection, prefix: str) -> list[Mark]:
    """Return the marks whose key begins with `prefix`, by key."""
    prefix = storable(prefix)
    rows = db.execute(
        "SELECT key, version, record FROM marks "
        "WHERE key >= ? AND key < ? AND substr(key, 1, ?) = ? ORDER BY key",
        (prefix, _behind(prefix), len(prefix), prefix),
    ).fetchall()
    return [
        Mark(key=key, version=version, value=decode_value(record, f"the mark {key}"))
        for key, version, record in rows
    ]


def _behind(prefix: str) -> bytes | str:
    """What lies behind every text that begins with `prefix`, in the order of code points."""
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return b""  # in SQLite, any text is less than any bytes
    last = ord(rest[-1]) + 1
    return rest[:-1] + ("\ue000" if last == 0xD800 else chr(last))
