"""Intents that a host pulls and acknowledges, in place of a deliverer that is handed them."""

from typing import Final

import attrs
from anyio.lowlevel import checkpoint

from drumbeat.core.model import Cause, DeliveryIntent, Event, Receipt, RunRecord, Sent
from drumbeat.core.redaction import Redactor
from drumbeat.errors import NotFound, Problem
from drumbeat.protocols import Clock, Store

__all__ = ["acknowledge", "pull"]

_WITH_PAYLOAD: Final = frozenset[Cause]({"webhook", "inbox", "manual"})
"""What comes from outside, or by hand, may bring one."""

_AT_ONCE: Final = 64
"""So many are redacted before others have a turn: there may be thousands."""


async def pull(
    store: Store, sent: Sent | None, *, limit: int | None, payloads: bool, redactor: Redactor
) -> list[DeliveryIntent]:
    """As `Client.intents`.

    Raises:
        StoreError: the store could not be read.
    """
    runs = await store.runs(sent=sent, limit=None, payloads=False)
    intents = [run.intent for run in reversed(runs) if run.intent is not None][:limit]
    found: list[DeliveryIntent] = []
    for number, intent in enumerate(intents, start=1):
        fire = intent.fire
        if number % _AT_ONCE == 0:
            await checkpoint()
        if payloads and fire.cause in _WITH_PAYLOAD:
            # A fire that was purged meanwhile is as the intent has it.
            (fire,) = await store.fires(id=fire.id, limit=1) or (fire,)
        found.append(attrs.evolve(intent, fire=redactor.fire(fire)))
    return found


async def acknowledge(
    store: Store | None, intent_id: str, receipt: Receipt | None, *, clock: Clock
) -> None:
    """As `Client.acknowledge`, with the receipt as it may be kept.

    Raises:
        NotFound: no such intent, or none that is to be delivered.
        StoreError: it could not be committed.
    """
    runs: list[RunRecord] = []
    if store is not None:
        runs = await store.runs(target=intent_id, limit=None, payloads=False)
    for run in runs:
        intent = run.intent
        if store is None or intent is None or intent.id != intent_id:
            continue
        event = Event(
            id=0,
            at=clock.now(),
            kind="delivered",
            slug=run.slug,
            run_id=run.run_id,
            data={"intent": intent_id, "attempt": intent.attempt, "acknowledged": True},
        )
        await store.settle_intent(intent, "delivered", receipt=receipt, events=(event,))
        return
    raise NotFound(
        Problem(
            code="intent-unknown",
            message=f"no intent {intent_id!r}",
            remedy="take the id from intents()",
        )
    )
