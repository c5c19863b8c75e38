"""What waits is asked for without reading it, however much of it there is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import attrs
import pytest

from drumbeat import Fire
from drumbeat.runtime.clock import SystemClock
from drumbeat.runtime.standby import outcome
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import ManualClock

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def payloads_read(statements: list[Any]) -> list[str]:
    return [sql for sql, _ in statements if sql.startswith("SELECT") and "payloads" in sql]


async def test_what_looks_ahead_reads_no_payload(
    host: Any, statements: list[tuple[str, tuple[Any, ...]]]
) -> None:
    """One may have 25 MiB, and it is of no use before the run of its fire."""
    host.write(trigger={"type": "schedule", "expression": "every 2 hours"})
    async with host.engine() as engine:
        await engine.fire("check", after=HOUR, payload=b"{}")
        statements.clear()
        await host.clock.advance(timedelta(minutes=1))
        (waiting,) = (await engine.status()).waiting
        assert (waiting.due, waiting.payload) == (START + HOUR, None)
        await engine.upcoming(until=START + 24 * HOUR)
        await engine.why("check", at=START + HOUR)
        await engine.reload()
        assert statements
        assert payloads_read(statements) == []
        await host.clock.advance(2 * HOUR)
        assert payloads_read(statements) != []
        (fire, *_) = await engine.fires()
    assert fire.payload == b"{}"


@pytest.mark.slow
async def test_a_fire_is_seen_behind_any_number_of_those_without_a_file(tmp_path: Any) -> None:
    """A look ahead names every slug that waits, so that each of them can be passed over."""
    store = SqliteStore(tmp_path / "drumbeat.db", clock=ManualClock(START))
    await store.open(holder="test", lease=HOUR)
    await store.add_fires([_fire(f"gone-{number}", str(number)) for number in range(12_000)])
    await store.add_fires([_fire("here", "1", due=START + HOUR)])
    backlog = await store.backlog(now=START)
    assert len(backlog) == 12_001
    (last,) = (waiting for waiting in backlog if waiting.slug == "here")
    assert last.ahead == START + HOUR
    await store.close()


async def test_a_fire_that_another_process_runs_is_found_behind_any_number_of_later_ones(
    tmp_path: Any,
) -> None:
    store = SqliteStore(tmp_path / "drumbeat.db")
    await store.open(holder="test", lease=HOUR)
    first = _fire("busy", "first")
    later = [_fire("busy", str(number), verdict="missed", reason="late") for number in range(1_001)]
    await store.add_fires([first, *later])
    await store.record(settled=[attrs.evolve(first, verdict="skipped", reason="disabled")])
    with anyio.fail_after(30):
        fire, run = await outcome(first, store=store, clock=SystemClock(), poll=HOUR)
    assert (fire.id, fire.reason, run) == (first.id, "disabled", None)
    await store.close()


def _fire(slug: str, slot: str, **rest: Any) -> Fire:
    given = {"cause": "manual", "due": START, "created_at": START - HOUR, **rest}
    return Fire(id=f"{slug}-{slot}", slug=slug, slot=slot, **given)
