"""A process that writes is killed at any moment: what it was told is there, and nothing by half."""

import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from drumbeat.runtime.store import SqliteStore

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
LEASE = timedelta(minutes=5)
KILLS = 10

CHILD = """
import sys
from datetime import UTC, datetime, timedelta

import anyio
import attrs

from drumbeat.core.model import DeliveryIntent, Event, Fire, Mark, RunRecord, Usage
from drumbeat.runtime.store import SqliteStore

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


def say(*words):
    print(*words, flush=True)


def event(kind, run_id):
    return Event(id=0, at=NOW, kind=kind, slug=None, run_id=run_id, data={})


def finished(claim):
    intent = DeliveryIntent(
        id="intent-" + claim.run_id, run_id=claim.run_id, slug=claim.slug, name="n",
        session_id=None, fire=claim.fire, created_at=NOW, attempt=0, verdict="deliver",
        gate="policy-always", reason="why", text="text " * 50,
    )
    return RunRecord(
        run_id=claim.run_id, slug=claim.slug, fire=claim.fire, state="succeeded", started_at=NOW,
        finished_at=NOW, config_hash="", session_id=None, rotation=None, turns=(), usage=Usage(),
        failure=None, intent=intent, delivery=None, receipt=None,
    )


async def finish(store, claim):
    key = "runs of " + claim.slug
    mark = (await store.marks(key) or [Mark(key=key, value=0)])[0]
    await store.finish(
        claim,
        finished(claim),
        marks=[attrs.evolve(mark, value=mark.value + 1)],
        events=[event("run_completed", claim.run_id)],
    )
    say("finished", claim.run_id)


async def work(store, slug, life):
    for number in range(1_000_000):
        slot = f"{life}-{number}"
        fire = Fire(
            id=f"{slug}-{slot}", slug=slug, cause="webhook", slot=slot, due=NOW, created_at=NOW,
            payload=b"x" * 2000,
        )
        await store.add_fires([fire])
        say("added", fire.id)
        claim = await store.claim_fire(now=NOW, run_id=f"run-{slug}-{slot}")
        if claim is not None:
            say("claimed", claim.fire.id, claim.run_id)
            await finish(store, claim)
        intent = await store.claim_intent(now=NOW)
        if intent is not None:
            events = [event("delivered", intent.run_id)]
            await store.settle_intent(intent, "delivered", events=events)
            say("delivered", intent.run_id)


async def main(path, life):
    store = SqliteStore(path)
    await store.open(holder="child", lease=timedelta(minutes=5))
    for claim in await store.take_over():
        say("claimed", claim.fire.id, claim.run_id)
        await finish(store, claim)
    async with anyio.create_task_group() as group:
        for slug in ("a", "b", "c", "d"):
            group.start_soon(work, store, slug, life)


anyio.run(main, sys.argv[1], sys.argv[2])
"""


def let_run_and_kill(path: Path, life: int, lines: int) -> list[list[str]]:
    """Kill the child after so many words of it, and return all that it said."""
    command = [sys.executable, "-c", CHILD, str(path), str(life)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        said += child.stdout.readlines()
        assert child.wait() == -signal.SIGKILL, said
    # The last word may be cut off in the middle.
    return [line.split() for line in said if line.endswith("\n")]


async def compare(path: Path, said: list[list[str]]) -> None:
    """Open the store after the kill and look for what the child was told, and for halves."""
    store = SqliteStore(path)
    await store.open(holder=None, lease=LEASE)
    fires = {fire.id: fire for fire in await store.fires(limit=1_000_000)}
    runs = {run.run_id: run for run in await store.runs(limit=1_000_000)}
    events = await store.events(after=0, limit=1_000_000, wait=timedelta())
    marks = {mark.key: mark for mark in await store.marks("runs of ")}
    await store.close()

    for word, name, *rest in said:
        if word == "added":
            assert name in fires
        elif word == "claimed":
            assert fires[name].attempt == 1
            assert fires[name].run_id == rest[0]
        elif word == "finished":
            assert runs[name].fire.verdict == "ran"
        else:
            assert runs[name].delivery == "delivered"

    assert all(run.intent is not None and run.state == "succeeded" for run in runs.values())
    assert {fire.run_id for fire in fires.values() if fire.verdict == "ran"} == set(runs)
    assert all(fire.payload == b"x" * 2000 for fire in fires.values())
    assert sum(mark.value for mark in marks.values()) == len(runs)
    kinds = [event.kind for event in events]
    assert kinds.count("fire_added") == len(fires)
    assert kinds.count("run_completed") == len(runs)
    assert kinds.count("delivered") == sum(run.delivery == "delivered" for run in runs.values())
    ids = [event.id for event in events]
    assert ids == list(range(1, len(ids) + 1))

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        leased = {row[0] for row in db.execute("SELECT run_id FROM leases")}
    assert leased == {
        fire.run_id for fire in fires.values() if fire.attempt and fire.verdict is None
    }


@pytest.mark.slow
def test_a_killed_process_loses_nothing_it_was_told_and_leaves_no_halves(tmp_path: Path) -> None:
    path = tmp_path / "drumbeat.db"
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    said: list[list[str]] = []
    for life in range(KILLS):
        said += let_run_and_kill(path, life, chance.randrange(1, 120))
        anyio.run(compare, path, said)
    assert {word for word, *_ in said} == {"added", "claimed", "finished", "delivered"}, seed
