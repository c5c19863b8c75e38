"""What any store has to keep, as one plain function."""

from collections.abc import Callable

from drumbeat.errors import ClaimLost, DrumbeatError, NotFound
from drumbeat.protocols import Store
from drumbeat.testing import _store_records as records
from drumbeat.testing import _store_work as work
from drumbeat.testing._store_parts import (
    LEASE,
    a_fire,
    claimed,
    ended_run,
    holds,
    only,
    same,
)

__all__ = ["check_store"]


async def check_store(factory: Callable[[], Store]) -> None:
    """Check that a store keeps the contract of `drumbeat.protocols.Store`.

    Works on asyncio and trio, and needs no running engine. Leases are lapsed by opening as a
    holder, never by waiting.

    Args:
        factory: makes a store that is not open. All that it makes stand for one state, which is
            empty at first: two of them are two processes on one data folder.

    Raises:
        AssertionError: the store breaks the contract; the message says where.
    """
    for check in (
        work.check_fires,
        work.check_backlog,
        work.check_folding,
        work.check_claims,
        work.check_giving_back,
        work.check_follow_ups,
        work.check_settling,
        work.check_finishing,
        work.check_marks,
        records.check_intents,
        work.check_conversations,
        work.check_take_over,
        records.check_runs,
        records.check_neighbours,
        records.check_events,
        records.check_many_writers,
        records.check_purge,
    ):
        store = factory()
        await store.open(holder="check-store", lease=LEASE)
        try:
            await check(store)
        except (ClaimLost, NotFound, LookupError) as error:
            msg = f"the store breaks a rule: {type(error).__name__} in {check.__name__}: {error}"
            raise AssertionError(msg) from error
        else:
            rest = await store.fires(open=True)
            same(rest, [], "every fire of a check ends settled")
        finally:
            await store.close()
            await store.close()
    await _check_reopening(factory)


async def _check_reopening(factory: Callable[[], Store]) -> None:
    store, client = factory(), factory()
    await store.open(holder="check-store", lease=LEASE)
    try:
        await client.open(holder=None, lease=LEASE)
        await client.add_fires([a_fire("again", "1")])
        claim = await claimed(store, "again-1")
    finally:
        await client.close()
        await store.close()
    for call in (store.fires, store.take_over):
        try:
            await call()
        except DrumbeatError:
            continue
        holds(False, "a closed store raises StoreError")
    client = factory()
    await client.open(holder=None, lease=LEASE)
    try:
        same(await client.renew([claim]), {"again-1"}, "opening as a client lapses nothing")
    finally:
        await client.close()
    store = factory()
    await store.open(holder="check-store", lease=LEASE)
    try:
        taken = only(await store.take_over())
        same(taken.fire, claim.fire, "claims survive, and opening as a holder lapses them")
        await store.finish(taken, ended_run(taken))
    finally:
        await store.close()
