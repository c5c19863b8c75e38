"""Fires, marks and events inside one transaction of the store."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import attrs

from drumbeat.core.model import Event, Fire, FireVerdict, Mark
from drumbeat.errors import ClaimLost, NotFound, Problem
from drumbeat.runtime.store_reads import select_fires
from drumbeat.runtime.store_rows import encode, encode_value, instant, storable

__all__ = ["FireLedger"]


@attrs.define
class FireLedger:
    """One transaction at the instant `now`, in which claims are given for `lease`.

    Whatever a method raises, its caller rolls back what the method did.
    """

    db: sqlite3.Connection
    now: datetime
    lease: timedelta
    redact: Callable[[str], str] = str
    appended: bool = False
    """Whether events were appended."""

    # ---- fires

    def add_fires(
        self,
        fires: Sequence[Fire],
        *,
        fold: bool,
        marks: Sequence[Mark],
        events: Sequence[Event],
    ) -> list[Fire]:
        """As `Store.add_fires`."""
        self._move(marks)
        added = [self._add(fire, fold=fold) for fire in fires]
        self._append(events)
        return added

    def _add(self, fire: Fire, *, fold: bool = False) -> Fire:
        known = select_fires(
            self.db,
            "f.slug = ? AND f.cause = ? AND f.slot = ?",
            (storable(fire.slug), fire.cause, storable(fire.slot)),
        )
        if known:
            return known[0][1]
        # Only slots of a schedule fold: each of the others is somebody's (spec, section 5).
        if fold and fire.verdict is None and fire.cause == "schedule":
            waiting = select_fires(
                self.db,
                "f.slug = ? AND f.cause = 'schedule' AND f.verdict IS NULL "
                "AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.fire = f.seq) "
                "ORDER BY f.due, f.seq LIMIT 1",
                (storable(fire.slug),),
                bare=True,
            )
            for into_seq, into in waiting:
                folded = into.folded_slots + 1 + fire.folded_slots
                self._update(into_seq, attrs.evolve(into, folded_slots=folded))
                fire = attrs.evolve(
                    fire, verdict="folded", reason=f"folded into {into.id}", folded_into=into.id
                )
        seq = self.db.execute(
            "INSERT INTO fires (id, slug, cause, slot, due, parent_run, verdict, settled_at, "
            "record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                storable(fire.id),
                storable(fire.slug),
                fire.cause,
                storable(fire.slot),
                instant(fire.due),
                None if fire.parent_run is None else storable(fire.parent_run),
                fire.verdict,
                None if fire.verdict is None else instant(self.now),
                encode(fire, without=("payload",)),
            ),
        ).lastrowid
        if fire.payload is not None:
            self.db.execute("INSERT INTO payloads (fire, body) VALUES (?, ?)", (seq, fire.payload))
        self._append([_added(fire, self.now, slot=self.redact(fire.slot))])
        if fire.verdict is not None:
            self._append([_settled(fire, self.now)])
        ((_, stored),) = select_fires(self.db, "f.seq = ?", (seq,))
        return stored

    def _update(self, seq: int, fire: Fire) -> None:
        self.db.execute(
            "UPDATE fires SET due = ?, verdict = ?, record = ?, "
            "settled_at = CASE WHEN ? IS NULL THEN NULL ELSE ifnull(settled_at, ?) END "
            "WHERE seq = ?",
            (
                instant(fire.due),
                fire.verdict,
                encode(fire, without=("payload",)),
                fire.verdict,
                instant(self.now),
                seq,
            ),
        )

    def _fire(self, id: str) -> tuple[int, Fire]:
        """Return the `seq` of a fire, and the fire without its payload."""
        found = select_fires(self.db, "f.id = ?", (storable(id),), bare=True)
        if not found:
            raise NotFound(
                Problem(
                    code="fire-not-found",
                    message=f"there is no fire {id!r} in the store",
                    remedy="put it in with `add_fires` first; an old one may have been purged",
                )
            )
        return found[0]

    def _settle(
        self, seq: int, fire: Fire, verdict: FireVerdict, *, reason: str, folded_into: str | None
    ) -> None:
        if fire.verdict is None:
            settled = attrs.evolve(fire, verdict=verdict, reason=reason, folded_into=folded_into)
            self._update(seq, settled)

    # ---- marks and events

    def _move(self, marks: Sequence[Mark]) -> None:
        for mark in marks:
            key, record = storable(mark.key), encode_value(mark.value)
            if mark.version == 0:
                moved = self.db.execute(
                    # Above every version that it may have had before it was forgotten.
                    "INSERT INTO marks (key, version, record) "
                    "SELECT ?, value + 1, ? FROM meta WHERE name = 'marks' "
                    "ON CONFLICT (key) DO NOTHING",
                    (key, record),
                )
            else:
                moved = self.db.execute(
                    "UPDATE marks SET version = version + 1, record = ? "
                    "WHERE key = ? AND version = ?",
                    (record, key, mark.version),
                )
            if moved.rowcount == 0:
                raise ClaimLost(
                    Problem(
                        code="mark-moved",
                        message=f"the mark {mark.key} has moved since version {mark.version} of it "
                        "was read; nothing was written",
                        remedy="read it again and decide afresh",
                    )
                )

    def _append(self, events: Sequence[Event]) -> None:
        for event in events:
            self.db.execute(
                "INSERT INTO events (at, record) VALUES (?, ?)",
                (instant(event.at), encode(event, without=("id",))),
            )
            self.appended = True


def _added(fire: Fire, at: datetime, *, slot: str) -> Event:
    return Event(
        id=0,
        at=at,
        kind="fire_added",
        slug=fire.slug,
        run_id=None,
        data={
            "fire": fire.id,
            "cause": fire.cause,
            "slot": slot,
            "due": fire.due,
            "verdict": fire.verdict,
        },
    )


def _settled(fire: Fire, at: datetime) -> Event:
    return Event(
        id=0,
        at=at,
        kind="fire_settled",
        slug=fire.slug,
        run_id=None,
        data={
            "fire": fire.id,
            "verdict": fire.verdict,
            "reason": fire.reason,
            "folded_into": fire.folded_into,
        },
    )
