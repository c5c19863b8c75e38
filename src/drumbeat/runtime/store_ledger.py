"""What can be done to the store, as methods that run inside one transaction."""

import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from drumbeat.core.model import (
    Claim,
    DeliveryIntent,
    Event,
    Fire,
    Mark,
    Receipt,
    RunRecord,
    Sent,
)
from drumbeat.errors import ClaimLost, NotFound, Problem
from drumbeat.runtime.store_fires import FireLedger
from drumbeat.runtime.store_reads import read_intent, select_fires
from drumbeat.runtime.store_rows import encode, instant, storable

__all__ = ["Ledger"]

_LONG_AGO: Final = instant(datetime.min.replace(tzinfo=UTC))
_NEVER_REAL: Final = timedelta(days=1)
"""No pause between deliveries, or between runs over mail, is as long: what lies further ahead was
set by a clock that was. Nor is a fire that was put in so much later than now."""


@attrs.define
class Ledger(FireLedger):
    """One transaction, as `FireLedger` describes it, with claims, runs and intents."""

    # ---- claims

    def lapse(self) -> None:
        """Lapse every claim and every lease on an intent at once."""
        self.db.execute("UPDATE leases SET until = ?", (_LONG_AGO,))
        self.db.execute(
            "UPDATE intents SET leased_until = NULL "
            "WHERE sent = 'pending' AND leased_until IS NOT NULL"
        )

    def claim_fire(
        self, now: datetime, run_id: str, skip: Collection[str], id: str | None
    ) -> Claim | None:
        """As `Store.claim_fire`."""
        if id is None:
            self._set_right(now)
        skipped = {storable(slug) for slug in skip}
        with closing(self._claimable(now, id)) as rows:
            # In Python, as one statement takes a bounded number of values.
            seq = next((seq for seq, slug in rows if slug not in skipped), None)
        if seq is None:
            return None
        ((_, fire),) = select_fires(self.db, "f.seq = ?", (seq,))
        fire = attrs.evolve(fire, attempt=fire.attempt + 1, run_id=storable(run_id))
        self._update(seq, fire)
        return self._lease("slug", fire.slug, run_id, seq, fire)

    def _set_right(self, now: datetime) -> None:
        """Let what was put off by a clock that was ahead be due after the time that was meant."""
        never_real = instant(now + _NEVER_REAL)
        misled = select_fires(
            self.db,
            "f.verdict IS NULL AND f.due > ? AND (f.cause = 'inbox' "
            "OR f.due > json_extract(f.record, '$.created_at') "
            "AND json_extract(f.record, '$.created_at') > ?) "
            "AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.fire = f.seq)",
            (never_real, never_real),
            bare=True,
        )
        for seq, fire in misled:
            # Mail is tried again within a day, so what is put off for longer has waited enough.
            ahead = timedelta(0) if fire.cause == "inbox" else fire.due - fire.created_at
            self._update(seq, attrs.evolve(fire, created_at=now, due=now + ahead))

    def _claimable(self, now: datetime, id: str | None) -> sqlite3.Cursor:
        which = "" if id is None else "f.id = ? AND "
        values = () if id is None else (storable(id),)
        return self.db.execute(
            f"SELECT f.seq, f.slug FROM fires f WHERE {which}"  # noqa: S608  no value stands in it
            "f.verdict IS NULL AND f.due <= ? "
            "AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.kind = 'slug' AND l.name = f.slug) "
            "AND NOT EXISTS (SELECT 1 FROM runs r "
            "WHERE r.run_id = f.parent_run AND r.state = 'running') "
            "ORDER BY f.due, f.seq",
            (*values, instant(now)),
        )

    def _lease(
        self, kind: str, name: str, run_id: str, seq: int | None, fire: Fire | None
    ) -> Claim:
        self.db.execute("UPDATE meta SET value = value + 1 WHERE name = 'token'")
        (token,) = self.db.execute("SELECT value FROM meta WHERE name = 'token'").fetchone()
        self.db.execute(
            "INSERT OR REPLACE INTO leases (kind, name, token, run_id, fire, until) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (kind, storable(name), token, storable(run_id), seq, self._until()),
        )
        return Claim(slug=storable(name), run_id=storable(run_id), token=token, fire=fire)

    def _until(self) -> str:
        return instant(self.now + self.lease)

    def hold(self, session_id: str, run_id: str) -> tuple[Claim | None, bool]:
        """As `Store.hold`; the second value says whether the conversation was free before."""
        name, run_id = storable(session_id), storable(run_id)
        row = self.db.execute(
            "SELECT token, run_id FROM leases WHERE kind = 'conversation' AND name = ?", (name,)
        ).fetchone()
        if row is None:
            return self._lease("conversation", name, run_id, None, None), True
        token, holder = row
        claim = Claim(slug=name, run_id=run_id, token=token, fire=None)
        if holder != run_id or not self._extend(claim):
            return None, False
        return claim, False

    def _extend(self, claim: Claim) -> bool:
        where, values = _is_lease(claim)
        renewed = self.db.execute(
            f"UPDATE leases SET until = ? WHERE {where}",  # noqa: S608  the condition is ours
            (self._until(), *values),
        )
        return renewed.rowcount > 0

    def renew(self, claims: Sequence[Claim]) -> set[str]:
        """As `Store.renew`; a run of which one claim is lost is not held."""
        held = {claim.run_id for claim in claims}
        for claim in claims:
            if not self._extend(claim):
                held.discard(claim.run_id)
        return held

    def take_over(self) -> list[Claim]:
        """As `Store.take_over`."""
        self.db.execute(
            "DELETE FROM leases WHERE kind = 'conversation' AND until <= ?", (instant(self.now),)
        )
        lapsed = self.db.execute(
            "SELECT run_id, fire FROM leases WHERE kind = 'slug' AND until <= ? ORDER BY token",
            (instant(self.now),),
        ).fetchall()
        claims = []
        for run_id, seq in lapsed:
            ((_, fire),) = select_fires(self.db, "f.seq = ?", (seq,))
            claims.append(self._lease("slug", fire.slug, run_id, seq, fire))
        return claims

    def _held(self, claim: Claim) -> int | None:
        where, values = _is_lease(claim)
        row = self.db.execute(
            f"SELECT fire FROM leases WHERE {where}",  # noqa: S608  the condition is ours
            values,
        ).fetchone()
        if row is None:
            raise ClaimLost(
                Problem(
                    code="claim-lost",
                    message=f"the claim of the run {claim.run_id} on {claim.slug} has ended "
                    "or was taken over; nothing was written",
                    remedy="stop that run: whoever holds the claim settles the fire",
                )
            )
        seq: int | None = row[0]
        return seq

    def _free(self, claim: Claim) -> None:
        where, values = _is_lease(claim)
        self.db.execute(f"DELETE FROM leases WHERE {where}", values)  # noqa: S608
        if claim.fire is not None:
            self.db.execute(
                "DELETE FROM leases WHERE kind = 'conversation' AND run_id = ?",
                (storable(claim.run_id),),
            )

    # ---- runs

    def record(
        self,
        claim: Claim | None,
        *,
        run: RunRecord | None,
        settled: Sequence[Fire],
        marks: Sequence[Mark],
        events: Sequence[Event],
    ) -> None:
        """As `Store.record`."""
        own = None if claim is None else self._held(claim)
        if run is not None and claim is not None and claim.fire is None:
            self._write_run_again(run)
        elif run is not None:
            self._write_run(run)
        for fire in settled:
            if fire.verdict is None:
                msg = f"the fire {fire.id} is among those to settle and has no verdict"
                raise ValueError(msg)
            seq, stored = self._fire(fire.id)
            if claim is not None and seq == own:
                self._free(claim)
                if not self._has_run(claim.run_id):
                    stored = self._unclaimed(seq, stored)
            self._settle(
                seq, stored, fire.verdict, reason=fire.reason, folded_into=fire.folded_into
            )
        self._move(marks)
        self._append(events)

    def finish(
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
        """As `Store.finish`."""
        seq = self._held(claim)
        for answered in runs:
            self._write_run_again(answered)
        self._free(claim)
        if seq is not None:
            self._finish_fire(seq, claim, run, again_at)
        elif run is not None:
            msg = f"a claim on the conversation {claim.slug} cannot finish the run {run.run_id}"
            raise ValueError(msg)
        for fire in fires:
            self._add(fire)
        self._move(marks)
        self._append(events)

    def _finish_fire(
        self, seq: int, claim: Claim, run: RunRecord | None, again_at: datetime | None
    ) -> None:
        ((_, fire),) = select_fires(self.db, "f.seq = ?", (seq,), bare=True)
        if run is None:
            self.db.execute(
                "DELETE FROM runs WHERE run_id = ? AND state = 'running'",
                (storable(claim.run_id),),
            )
            fire = self._unclaimed(seq, fire)
        else:
            self._write_run(run)
        if fire.verdict is None and again_at is not None:
            self._update(seq, attrs.evolve(fire, due=again_at))
        elif run is None:
            self._update(seq, fire)
        else:
            self._settle(seq, fire, "ran", reason=run.state, folded_into=None)

    def _unclaimed(self, seq: int, fire: Fire) -> Fire:
        row = self.db.execute(
            "SELECT run_id FROM runs WHERE fire = ? ORDER BY seq DESC LIMIT 1", (seq,)
        ).fetchone()
        return attrs.evolve(
            fire, attempt=max(0, fire.attempt - 1), run_id=None if row is None else row[0]
        )

    def _has_run(self, run_id: str) -> bool:
        found = self.db.execute("SELECT 1 FROM runs WHERE run_id = ?", (storable(run_id),))
        return found.fetchone() is not None

    def _write_run_again(self, run: RunRecord) -> None:
        if not self._has_run(run.run_id):
            # An answer to a run that was purged must not bring it, and its intent, back.
            raise NotFound(
                Problem(
                    code="run-unknown",
                    message=f"there is no run {run.run_id!r} any more",
                    remedy="it was purged; its conversation can be gone on with by another run",
                )
            )
        self._write_run(run)

    def _write_run(self, run: RunRecord) -> None:
        seq, _ = self._fire(run.fire.id)
        # A finished run stays finished, whoever still believes it is going.
        self.db.execute(
            "INSERT INTO runs (run_id, slug, fire, state, session_id, started_at, finished_at, "
            "record) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET "
            "state = excluded.state, session_id = excluded.session_id, "
            "finished_at = excluded.finished_at, record = excluded.record "
            "WHERE runs.state = 'running' OR excluded.state <> 'running'",
            (
                storable(run.run_id),
                storable(run.slug),
                seq,
                run.state,
                None if run.session_id is None else storable(run.session_id),
                instant(run.started_at),
                None if run.finished_at is None else instant(run.finished_at),
                encode(run, without=("fire", "intent", "delivery", "receipt")),
            ),
        )
        if run.intent is not None:
            self._write_intent(run.intent)

    # ---- intents

    def _write_intent(self, intent: DeliveryIntent) -> None:
        self.db.execute(
            "INSERT INTO intents (id, run_id, slug, sent, attempt, record) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING",
            (
                storable(intent.id),
                storable(intent.run_id),
                storable(intent.slug),
                "pending" if intent.verdict == "deliver" else None,
                intent.attempt,
                encode(intent, without=("fire", "attempt")),
            ),
        )

    def claim_intent(self, now: datetime) -> DeliveryIntent | None:
        """As `Store.claim_intent`; a retry further ahead than any pause comes of a wrong clock."""
        row = self.db.execute(
            "SELECT i.seq, i.record, i.attempt, r.fire FROM intents i INDEXED BY intents_waiting "
            "JOIN runs r ON r.run_id = i.run_id WHERE i.sent = 'pending' "
            "AND (i.retry_at IS NULL OR i.retry_at <= ? OR i.retry_at > ?) "
            "AND (i.leased_until IS NULL OR i.leased_until <= ?) "
            "AND NOT EXISTS (SELECT 1 FROM intents o "
            "WHERE o.sent = 'pending' AND o.slug = i.slug AND o.seq < i.seq) "
            "ORDER BY i.seq LIMIT 1",
            (instant(now), instant(now + _NEVER_REAL), instant(self.now)),
        ).fetchone()
        if row is None:
            return None
        seq, record, attempt, fire_seq = row
        self.db.execute(
            "UPDATE intents SET attempt = ?, leased_until = ? WHERE seq = ?",
            (attempt + 1, self._until(), seq),
        )
        ((_, fire),) = select_fires(self.db, "f.seq = ?", (fire_seq,))
        return read_intent(record, attempt + 1, fire)

    def unclaim_intent(self, intent: DeliveryIntent) -> None:
        """Take back the lease and the attempt of a `claim_intent` that nobody heard of."""
        self.db.execute(
            "UPDATE intents SET attempt = attempt - 1, leased_until = NULL "
            "WHERE id = ? AND attempt = ? AND sent = 'pending'",
            (intent.id, intent.attempt),
        )

    def settle_intent(
        self,
        intent: DeliveryIntent,
        sent: Sent,
        *,
        receipt: Receipt | None,
        retry_at: datetime | None,
        events: Sequence[Event],
    ) -> None:
        """As `Store.settle_intent`; a call that changes nothing appends nothing."""
        row = self.db.execute(
            "SELECT seq, sent, attempt FROM intents WHERE id = ? AND sent IS NOT NULL",
            (storable(intent.id),),
        ).fetchone()
        if row is None:
            raise NotFound(
                Problem(
                    code="intent-not-found",
                    message=f"there is no intent {intent.id!r} that is to be delivered",
                    remedy="use the id of an intent whose verdict is `deliver`",
                )
            )
        seq, before, attempt = row
        # A later attempt is under way: what became of this one no longer decides when to try again.
        stale = sent == "pending" and intent.attempt < attempt
        if before != "pending" or stale:
            return
        self.db.execute(
            "UPDATE intents SET sent = ?, leased_until = NULL, retry_at = ?, "
            "receipt_id = ifnull(?, receipt_id), receipt = ifnull(?, receipt) WHERE seq = ?",
            (
                sent,
                None if retry_at is None else instant(retry_at),
                None if receipt is None or receipt.id is None else storable(receipt.id),
                None if receipt is None else encode(receipt),
                seq,
            ),
        )
        self._append(events)


def _is_lease(claim: Claim) -> tuple[str, tuple[Any, ...]]:
    kind = "conversation" if claim.fire is None else "slug"
    return (
        "kind = ? AND name = ? AND token = ? AND run_id = ?",
        (kind, storable(claim.slug), claim.token, storable(claim.run_id)),
    )
