"""What a killed process left: each claim is settled once, whatever stood at that moment."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from drumbeat import Claim, Problem, RunRecord, StoreError
from drumbeat.runtime.conclusion import unfinished
from drumbeat.runtime.settlement import Settlement
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import example_intent

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
LEASE = timedelta(minutes=5)


async def left_behind(host: Any, **fire: Any) -> tuple[SqliteStore, Claim]:
    """A store in which a process claimed a fire and died."""
    async with host.engine() as engine:
        await engine.fire("check", after=timedelta(minutes=1), **fire)
    await host.clock.advance(timedelta(minutes=1))
    store = SqliteStore(host.data / "drumbeat.db", clock=host.clock)
    await store.open(holder="a process that dies", lease=LEASE)
    claim = await store.claim_fire(now=host.clock.now(), run_id="20260302T120100000000Z-dead")
    assert claim is not None
    return store, claim


def record(claim: Claim, state: Any = "running") -> RunRecord:
    assert claim.fire is not None
    run = unfinished(claim, claim.fire, at=START)
    if state == "running":
        return run
    intent = example_intent(
        id=f"intent-{claim.run_id}",
        run_id=claim.run_id,
        slug=claim.slug,
        fire=claim.fire,
        created_at=START,
        attempt=0,
        verdict="withhold",
        gate="policy-never",
    )
    return attrs.evolve(run, state=state, finished_at=START, intent=intent)


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_run_that_was_going_is_interrupted_and_voiced(host: Any, recorded: bool) -> None:
    """Killed before its first record, it counts as an attempt all the same."""
    host.write()
    store, claim = await left_behind(host)
    if recorded:
        await store.record(claim=claim, run=record(claim))
    await store.close()
    async with host.engine() as engine:
        (run,) = await engine.runs()
        (fire,) = await engine.fires()
        await engine.settled()
        assert (run.run_id, run.state) == (claim.run_id, "interrupted")
        assert (fire.verdict, fire.attempt) == ("ran", 1)
        assert [intent.gate for intent in host.deliverer.intents] == ["run-failed"]
        settled = await host.events(engine, "fire_settled")
        assert [event.data["fire"] for event in settled] == [fire.id]
        why = await engine.why("check", at=fire.due)
        assert "was interrupted; its message was delivered" in why


async def test_a_fire_with_a_slot_gets_one_more_attempt(host: Any) -> None:
    host.write()
    store, claim = await left_behind(host, slot="ticket-1")
    await store.record(claim=claim, run=record(claim))
    await store.close()
    async with host.engine() as engine:
        await engine.settled()
        runs = await engine.runs()
        (fire,) = await engine.fires()
        assert [run.state for run in runs] == ["succeeded", "interrupted"]
        assert (fire.verdict, fire.attempt) == ("ran", 2)
        assert [intent.gate for intent in host.deliverer.intents] == ["policy-always"]
        assert len(await host.events(engine, "fire_settled")) == 1


async def test_a_file_that_is_gone_or_broken_by_then_is_settled_too(host: Any) -> None:
    host.write()
    store, claim = await left_behind(host)
    await store.record(claim=claim, run=record(claim))
    await store.close()
    (host.workspace / "automations" / "check.md").unlink()
    async with host.engine() as engine:
        (run,) = await engine.runs()
        assert run.state == "interrupted"
        assert run.intent is not None
        assert run.intent.name == "check"
        assert await engine.sweep() == []


async def test_a_claim_whose_fire_has_a_verdict_is_only_freed(host: Any) -> None:
    host.write()
    store, claim = await left_behind(host)
    assert claim.fire is not None
    settled = attrs.evolve(claim.fire, verdict="skipped", reason="removed")
    await store.record(settled=(settled,))
    await store.close()
    async with host.engine() as engine:
        assert [fire.verdict for fire in await engine.fires()] == ["skipped"]
        assert await engine.runs() == []
        assert (await engine.run("check")).state == "succeeded"


async def test_a_run_that_was_finished_settles_its_fire_and_is_not_run_again(host: Any) -> None:
    host.write()
    store, claim = await left_behind(host, slot="ticket-1")
    await store.record(claim=claim, run=record(claim, "succeeded"))
    await store.close()
    async with host.engine() as engine:
        await engine.settled()
        (run,) = await engine.runs()
        (fire,) = await engine.fires()
        assert (run.state, fire.verdict, fire.reason) == ("succeeded", "ran", "succeeded")
        assert len(await host.events(engine, "fire_settled")) == 1


async def test_an_interrupted_run_that_was_finished_still_gets_its_other_attempt(host: Any) -> None:
    host.write()
    store, claim = await left_behind(host, slot="ticket-1")
    await store.record(claim=claim, run=record(claim, "interrupted"))
    await store.close()
    async with host.engine() as engine:
        await engine.settled()
        assert [run.state for run in await engine.runs()] == ["succeeded", "interrupted"]
        (fire,) = await engine.fires()
        assert (fire.verdict, fire.attempt) == ("ran", 2)


async def test_trouble_with_the_store_in_the_middle_is_made_up_for(host: Any) -> None:
    """The engine starts all the same, says so, and settles once the store takes it."""
    host.write()
    host.write("other")
    store, claim = await left_behind(host)
    await store.record(claim=claim, run=record(claim))
    assert claim.fire is not None
    other = attrs.evolve(claim.fire, id="f-other", slug="other", slot="f-other", attempt=0)
    await store.add_fires((attrs.evolve(other, run_id=None),))
    second = await store.claim_fire(now=host.clock.now(), run_id="20260302T120100000000Z-gone")
    assert second is not None
    await store.close()
    full = StoreError(Problem(code="store-full", message="no room", remedy="make some"))
    faulty = host.faulty()
    faulty.faults["finish"] = [None, full, full]
    with capture_logs() as logs:
        engine = host.engine(store=faulty)
        await engine.__aenter__()
    async with AsyncExitStack() as stack:
        stack.push_async_exit(engine)
        assert [line["code"] for line in logs if line["event"] == "store_trouble"] == ["store-full"]
        assert {run.run_id for run in await engine.runs() if run.state == "interrupted"} == {
            claim.run_id
        }
        await host.clock.advance(timedelta(minutes=2))
        assert (await engine.status()).faults == ()
        runs = {run.run_id: run.state for run in await engine.runs()}
        assert runs == {left.run_id: "interrupted" for left in (claim, second)}
        assert await engine.sweep() == []


async def test_who_waits_is_told_of_each_run_as_it_is_settled(host: Any) -> None:
    """Also where the store takes the next one no more: it is settled, and told, once."""
    host.write()
    host.write("other")
    store = host.faulty()
    told: list[RunRecord] = []
    async with host.engine(store=store) as engine:
        hour = timedelta(hours=1)
        for slug in ("check", "other"):
            await engine.fire(slug, after=hour)
            now = host.clock.now() + hour
            assert await store.claim_fire(now=now, run_id=f"20260302T130000000000Z-{slug}")
        await store.open(holder="the next", lease=LEASE)
        full = StoreError(Problem(code="store-full", message="no room", remedy="make some"))
        store.faults["finish"] = [None, full]
        settlement = Settlement(services=attrs.evolve(engine._life.services, patient=False))
        with pytest.raises(StoreError):
            await settlement.carry_on(told.append)
        assert [(run.slug, run.state) for run in told] == [("check", "interrupted")]
        await settlement.carry_on(told.append)
        assert [run.slug for run in told] == ["check", "other"]
