"""What becomes of a fire: interrupted, late, without a file (spec, sections 4 and 5)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from drumbeat import Cause, Fire, RunRecord, Settings, SqliteStore, Usage
from drumbeat.testing import drive

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
LEASE = timedelta(minutes=5)


def fire_of(cause: Cause, slot: str, *, now: datetime) -> Fire:
    prompt = "Look again." if cause == "follow-up" else None
    return Fire(
        id=f"{cause}-1",
        slug="check",
        cause=cause,
        slot=slot,
        due=now,
        created_at=now,
        prompt=prompt,
    )


async def die_in_a_run(host: Any, fire: Fire) -> SqliteStore:
    """Do what a process does that is killed in the run of `fire`."""
    store: SqliteStore = host.store()
    await store.open(holder="a process that dies", lease=LEASE)
    await store.add_fires((fire,))
    claim = await store.claim_fire(now=host.clock.now(), run_id="20260302T120000000000Z-dead")
    assert claim is not None
    assert claim.fire is not None
    run = RunRecord(
        run_id=claim.run_id,
        slug="check",
        fire=claim.fire,
        state="running",
        started_at=host.clock.now(),
        finished_at=None,
        config_hash="",
        session_id=None,
        rotation=None,
        turns=(),
        usage=Usage(),
        failure=None,
        intent=None,
        delivery=None,
        receipt=None,
    )
    await store.record(claim=claim, run=run)
    await store.close()
    return store


@pytest.mark.parametrize(
    ("cause", "slot", "again"),
    [
        ("webhook", "delivery-1", True),
        ("inbox", "mark-1", True),
        ("follow-up", "follow-up-1", True),
        ("manual", "ticket-1", True),
        ("manual", "manual-1", False),
        ("schedule", "2026-03-02T12:00:00Z", False),
    ],
)
async def test_an_interrupted_fire_is_tried_again_by_its_cause(
    host: Any, cause: Cause, slot: str, again: bool
) -> None:
    """Once more where somebody waits for it; the slot of a manual fire is its own id otherwise."""
    host.write()
    async with host.engine():
        pass
    await die_in_a_run(host, fire_of(cause, slot, now=host.clock.now()))
    async with host.engine() as engine:
        await engine.settled()
        runs = (await engine.runs())[::-1]
        (fire,) = await engine.fires()
    assert [run.state for run in runs] == ["interrupted", "succeeded"][: 1 + again]
    verdicts = [(run.intent.verdict, run.intent.gate) for run in runs]
    if again:
        assert verdicts == [("demote", "run-failed"), ("deliver", "policy-always")]
        assert "interrupted" in host.agent.turns[0].context
    else:
        assert verdicts == [("deliver", "run-failed")]
        assert host.agent.turns == []
    assert (fire.verdict, fire.attempt) == ("ran", 1 + again)
    assert len(host.deliverer.intents) == 1


async def test_a_file_that_was_gone_at_the_start_counts_as_removed_after_two_reloads(
    host: Any,
) -> None:
    """One look is not enough: an editor may be putting it back."""
    path = host.write()
    async with host.engine() as engine:
        await engine.fire("check", after=timedelta(minutes=1))
    path.unlink()
    await host.clock.advance(timedelta(minutes=1))
    look = timedelta(seconds=10)
    async with host.engine(settings=Settings(reload_interval=look)) as engine:
        await host.clock.advance(look)
        assert [fire.verdict for fire in await engine.fires()] == [None]
        await host.clock.advance(look)
        (fire,) = await engine.fires()
    assert (fire.verdict, fire.reason) == ("skipped", "removed")


@pytest.mark.parametrize(
    ("late", "verdict"),
    [(DAY, "ran"), (DAY + timedelta(seconds=1), "missed")],
)
async def test_a_moment_may_be_as_old_as_catch_up_and_no_older(
    host: Any, late: timedelta, verdict: str
) -> None:
    host.write(trigger={"type": "schedule", "expression": "0 13 * * 1"})
    async with host.engine():
        pass
    await host.clock.advance(7 * DAY + timedelta(hours=1) + late)
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now() + timedelta(minutes=1))
        (fire,) = await engine.fires()
    assert fire.verdict == verdict
    assert fire.folded_slots == 1


async def test_a_skipped_slot_of_an_interval_counts_from_then(host: Any) -> None:
    """Also when the file was disabled for so short a time that no reload saw it."""
    half_an_hour = timedelta(minutes=30)
    schedule = {"type": "schedule", "expression": "every 30 minutes"}
    host.write(trigger=schedule)
    start = host.clock.now()
    settings = Settings(reload_interval=timedelta(hours=9))
    async with host.engine(settings=settings) as engine:
        host.write(trigger=schedule, enabled=False)
        await drive(engine, until=start + half_an_hour)
        host.write(trigger=schedule)
        await drive(engine, until=start + 2 * half_an_hour)
        fires = (await engine.fires())[::-1]
    assert [(fire.due - start, fire.verdict, fire.reason) for fire in fires] == [
        (half_an_hour, "skipped", "disabled"),
        (2 * half_an_hour, "ran", "succeeded"),
    ]
