"""What the checks of a store are made of: how a rule is held, and what it is held about."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, TypeVar

import attrs

from drumbeat.core.model import (
    Cause,
    Claim,
    DeliveryIntent,
    Event,
    Fire,
    Reply,
    RunRecord,
    RunState,
    TurnRecord,
    Usage,
    Verdict,
)
from drumbeat.errors import ClaimLost, Problem
from drumbeat.protocols import Store
from drumbeat.runtime.conclusion import unfinished

__all__ = [
    "LEASE",
    "MINUTE",
    "NOW",
    "a_fire",
    "all_events",
    "an_event",
    "claimed",
    "ended_run",
    "fire_of",
    "going_run",
    "holds",
    "is_lost",
    "is_there",
    "only",
    "same",
    "skip",
    "stored_fire",
]

T = TypeVar("T")

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LEASE = timedelta(hours=1)


# ---- how a rule is held


def holds(value: object, rule: str) -> None:
    """Say that a rule is broken unless `value` is true."""
    if not value:
        msg = f"the store breaks a rule: {rule}"
        raise AssertionError(msg)


def same(found: object, wanted: object, rule: str) -> None:
    """Say that a rule is broken, and by what, unless the two are equal."""
    if found != wanted:
        msg = f"the store breaks a rule: {rule}\n  found  {found!r}\n  wanted {wanted!r}"
        raise AssertionError(msg)


def is_there(value: T | None, rule: str) -> T:
    """The value; None breaks the rule."""
    holds(value is not None, rule)
    return value  # type: ignore[return-value]  # checked just before


def only(found: Sequence[T]) -> T:
    """The one value that was found."""
    same(len(found), 1, f"one value is wanted of {found!r}")
    return found[0]


def fire_of(claim: Claim) -> Fire:
    """The fire that a claim is of."""
    return is_there(claim.fire, "a claim of a fire has the fire")


async def is_lost(call: Callable[..., Any], *args: Any, **given: Any) -> None:
    """See that the call is refused, as one under a claim that ended or a mark that moved."""
    try:
        await call(*args, **given)
    except ClaimLost:
        return
    name = getattr(call, "__name__", "a call")
    holds(False, f"{name} raises ClaimLost for a claim that ended or a mark that moved")


async def stored_fire(store: Store, fire: Fire) -> Fire:
    """The fire as it stands in the store."""
    found = [one for one in await store.fires(slug=fire.slug) if one.id == fire.id]
    same(len(found), 1, f"the fire {fire.id} is in the store once")
    return found[0]


async def claimed(store: Store, run_id: str, *, now: datetime = NOW) -> Claim:
    """The claim of a fire that is due."""
    return is_there(await store.claim_fire(now=now, run_id=run_id), "a due fire can be claimed")


async def skip(store: Store, *fires: Fire) -> None:
    """Settle fires that a check has no more use for."""
    skipped = [attrs.evolve(fire, verdict="skipped", reason="the check is over") for fire in fires]
    await store.record(settled=skipped)


async def all_events(store: Store) -> Sequence[Event]:
    """The events so far."""
    return await store.events(after=0, limit=10_000, wait=timedelta())


# ---- what it is held about


def a_fire(slug: str, slot: str, *, cause: Cause = "schedule", **rest: Any) -> Fire:
    """A fire that is due at `NOW`, unless told otherwise."""
    given: dict[str, Any] = {"due": NOW, "created_at": NOW - MINUTE, **rest}
    return Fire(id=f"{slug}-{cause}-{slot}", slug=slug, cause=cause, slot=slot, **given)


def an_event(kind: str, slug: str | None) -> Event:
    """An event of that kind."""
    return Event(id=0, at=NOW, kind=kind, slug=slug, run_id=None, data={})


def going_run(claim: Claim) -> RunRecord:
    """The record of a run that has just begun."""
    return attrs.evolve(unfinished(claim, fire_of(claim), at=NOW), config_hash="hash")


def ended_run(
    claim: Claim, *, state: RunState = "succeeded", verdict: Verdict = "deliver"
) -> RunRecord:
    """The record of a run that is over, with everything a record can have."""
    fire = fire_of(claim)
    usage = Usage(input_tokens=3, output_tokens=2, cost_usd=Decimal("0.10"))
    session = f"session of {claim.run_id}"
    turn = TurnRecord(
        turn_id=f"turn of {claim.run_id}",
        origin="step",
        step_id="only",
        attempts=1,
        started_at=NOW,
        finished_at=NOW + timedelta(microseconds=1),
        reply=Reply(text="said ✓", usage=usage, provider="p", model=None, handle="h"),
    )
    intent = DeliveryIntent(
        id=f"intent of {claim.run_id}",
        run_id=claim.run_id,
        slug=claim.slug,
        name="A name",
        session_id=session,
        fire=fire,
        created_at=NOW,
        attempt=0,
        verdict=verdict,
        gate="policy-always",
        reason="the policy says so",
        text="said ✓",
    )
    failure = Problem(
        code="agent-error", message="m", remedy="r", path=PurePath("jobs/a.md"), line=1
    )
    return attrs.evolve(
        going_run(claim),
        state=state,
        finished_at=NOW + MINUTE,
        session_id=session,
        rotation="fresh",
        turns=(turn,),
        usage=usage,
        failure=None if state == "succeeded" else failure,
        intent=intent,
        delivery="pending" if verdict == "deliver" else None,
    )
