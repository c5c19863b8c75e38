"""What `why` says of a delivery that is not out, and of a run whose engine is gone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from drumbeat import (
    Client,
    DeliveryIntent,
    DeliveryRefused,
    Event,
    EventsExpired,
    Problem,
    Reply,
    Turn,
)
from drumbeat.runtime.delivery_trail import last_failure
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


class Down:
    """A channel that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def deliver(self, intent: DeliveryIntent, /) -> None:
        raise self.error


async def test_a_delivery_that_fails_is_told_with_its_attempts_and_reason(host: Any) -> None:
    """And what waits behind it says so, until the first one is given up."""
    host.write(notify="always")
    channel = Down(ConnectionError("no route to the chat"))
    async with host.engine(deliverer=channel, agent=ScriptedAgent(default="hello")) as engine:
        await engine.run("check")
        await engine.settled()
        why = await engine.why("check", at=START)
        assert "(1 attempt so far, the last failure being: ConnectionError: no route" in why
        await drive(engine, until=START + 3 * MINUTE)
        assert "(2 attempts so far, the last failure" in await engine.why("check", at=START)
        await engine.run("check")
        why = await engine.why("check", at=START + 3 * MINUTE)
        assert "waits behind an earlier message of this automation" in why
        await drive(engine, until=START + DAY + 30 * MINUTE)
        why = await engine.why("check", at=START)
        assert "was abandoned (given up after attempt 8: ConnectionError: no route" in why
        why = await engine.why("check", at=START + 3 * MINUTE)
        assert "the last failure being: ConnectionError" in why


async def test_a_refused_delivery_is_told_with_what_refused_it(host: Any) -> None:
    """The deliverer's own words, though thousands of events surround them."""
    host.write(notify="always")
    channel = Down(DeliveryRefused("longer than a post may be"))
    noise = tuple(
        Event(id=0, at=START - DAY, kind="noise", slug=None, run_id=None, data={})
        for _ in range(3000)
    )
    async with host.engine(deliverer=channel, agent=ScriptedAgent(default="hello")) as engine:
        store = engine._life.services.store
        await store.record(events=noise)
        run = await engine.run("check")
        await engine.settled()
        assert "was abandoned (longer than a post may be), by gate" in await engine.why(
            "check", at=START
        )
        run = await engine.find_run(run.run_id)
        pages: list[int] = []
        read = store.events

        async def counted(*, after: int, limit: int, wait: timedelta) -> list[Event]:
            found = await read(after=after, limit=limit, wait=wait)
            pages.append(len(found))
            return list(found)

        store.events = counted
        assert await last_failure(store, run) == "longer than a post may be"
        assert sum(pages) < 100


async def test_a_run_whose_engine_was_killed_is_not_called_running(
    host: Any, tmp_path: Path
) -> None:
    """Nobody goes on with it: the next start settles it."""
    host.write()
    state = tmp_path / "as-it-was"
    here: list[str] = []

    class Cut(ScriptedAgent):
        async def take_turn(self, turn: Turn, /) -> Reply:
            copytree(engine.data_dir, state)
            here.append(await engine.why("check", at=START))
            return Reply(text="hello")

    engine = host.engine(agent=Cut())
    async with engine:
        await engine.run("check")
    assert here[0].endswith("and is still running.")
    reader = Client(host.workspace, data_dir=state)
    reader._clock = host.clock
    async with reader:
        why = await reader.why("check", at=START)
        assert why.endswith("was going when its engine ended, and is settled at the next start.")
        assert (await reader.status()).state == "stopped"


async def test_a_reason_whose_event_is_purged_is_left_out(host: Any) -> None:
    """The sentence stays true with less in it."""
    host.write(notify="always")
    channel = Down(DeliveryRefused("longer than a post may be"))
    async with host.engine(deliverer=channel, agent=ScriptedAgent(default="hello")) as engine:
        run = await engine.run("check")
        await engine.settled()
        run = await engine.find_run(run.run_id)
        store = engine._life.services.store
        await store.purge(now=START + 2 * DAY, keep_events=timedelta(seconds=1), keep_runs=9 * DAY)
        assert await last_failure(store, run) == ""
        assert "was abandoned, by gate" in await engine.why("check", at=START)


async def test_a_reason_is_found_behind_many_others_and_a_purge_meanwhile_ends_the_search(
    host: Any,
) -> None:
    """Pages are read to the end; what goes away while it is read costs the reason alone."""
    host.write(notify="always")
    channel = Down(DeliveryRefused("not here"))
    later = tuple(
        Event(id=0, at=START + MINUTE, kind="noise", slug=None, run_id=None, data={})
        for _ in range(1200)
    )

    class Noisy(ScriptedAgent):
        async def take_turn(self, turn: Turn, /) -> Reply:
            await engine._life.services.store.record(events=later)
            return Reply(text="hello")

    engine = host.engine(deliverer=channel, agent=Noisy())
    async with engine:
        run = await engine.run("check")
        await engine.settled()
        run = await engine.find_run(run.run_id)
        store = engine._life.services.store
        assert await last_failure(store, run) == "not here"
        read = store.events

        async def purged(*, after: int, limit: int, wait: timedelta) -> list[Event]:
            if limit > 1:
                raise EventsExpired(
                    Problem(code="events-expired", message="gone", remedy=""), after=after
                )
            return list(await read(after=after, limit=limit, wait=wait))

        store.events = purged
        assert await last_failure(store, run) == ""
