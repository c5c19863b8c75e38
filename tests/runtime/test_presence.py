"""Months later it can still be told when an engine was there, and what was due while none was."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from drumbeat import Client, EngineBusy, Health, Problem, StoreError
from drumbeat.cli.examination import examine
from drumbeat.runtime.presence import absence
from drumbeat.runtime.sign_of_life import NAME, SignOfLife, read_sign, write_sign
from drumbeat.runtime.threads import Threads
from drumbeat.testing import ManualClock, drive

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
DAILY = {"type": "schedule", "expression": "daily at 12:30"}


async def why(host: Any, at: datetime, *, slug: str = "check", **options: Any) -> str:
    async with Client(host.workspace, **options) as asking:
        asking._clock = host.clock
        return await asking.why(slug, at=at)


async def test_an_engine_leaves_events_as_it_starts_and_as_it_stops(host: Any) -> None:
    for _ in range(2):
        async with host.engine() as engine:
            await host.clock.advance(HOUR)
        host.clock = ManualClock(host.clock.now() + DAY)
    async with host.engine() as engine:
        first, second, third = await host.events(engine, "engine_started")
        stops = await host.events(engine, "engine_stopped")
    assert (first.data["seen"], first.data["stopped"]) == (None, True)
    assert "process" in first.data["holder"]
    assert (second.data["seen"], second.data["stopped"]) == ((START + HOUR).isoformat(), True)
    assert third.at == START + 2 * HOUR + 2 * DAY
    assert [(stop.at - START, stop.data["fault"]) for stop in stops] == [
        (HOUR, None),
        (2 * HOUR + DAY, None),
    ]


async def test_an_engine_that_fails_says_so_as_it_stops(host: Any) -> None:
    async with host.engine() as engine:
        (host.data / "engine.lock").unlink()
        await host.clock.advance(MINUTE)
        with pytest.raises(EngineBusy, match="engine-lock-lost"):
            await engine.wait()
    async with host.engine() as engine:
        (stop,) = await host.events(engine, "engine_stopped")
    assert stop.data["fault"] == "EngineBusy"


async def test_a_killed_engine_was_seen_a_minute_ago(host: Any, tmp_path: Any) -> None:
    """Of one that could say nothing any more tells the file of its signs of life."""
    host.write(trigger=DAILY)
    kept = tmp_path / "killed"
    async with host.engine():
        await host.clock.advance(2 * HOUR + 30 * timedelta(seconds=1))
        sign = read_sign(host.data)
        assert sign is not None
        assert host.clock.now() - sign.at <= MINUTE
        kept.mkdir()
        for name in ("drumbeat.db", "drumbeat.db-wal", NAME):
            (kept / name).write_bytes((host.data / name).read_bytes())
    killed_at = host.clock.now()
    host.clock = ManualClock(killed_at + 2 * DAY)
    assert "no engine has been there since" in await why(host, killed_at + DAY, data_dir=kept)
    async with host.engine(data_dir=kept) as engine:
        await drive(engine, until=host.clock.now() + MINUTE)
        started = (await host.events(engine, "engine_started"))[-1]
        said = await engine.why("check", at=START + DAY + 30 * MINUTE)
    assert not started.data["stopped"]
    seen = datetime.fromisoformat(started.data["seen"])
    assert timedelta(0) <= killed_at - seen <= MINUTE
    assert "no engine was there from 2026-03-02T14:0" in said
    assert "to 2026-03-04T14:00:30Z" in said


async def test_what_was_due_without_an_engine_is_said_to_have_been(host: Any) -> None:
    """Beside none, as long as none has taken it up; and by the rule that an engine saw last."""
    host.write(trigger=DAILY)
    host.write("poll", trigger={"type": "schedule", "expression": "every 45 minutes"})
    async with host.engine() as engine:
        await drive(engine, until=START + HOUR)
    host.clock = ManualClock(START + 3 * DAY)
    host.write(trigger={"type": "schedule", "expression": "daily at 11:00"})
    for day in (1, 2):
        moment = START + day * DAY + 30 * MINUTE
        shown = moment.isoformat().replace("+00:00", "Z")
        assert await why(host, moment + timedelta(seconds=20)) == (
            f"check was due at {shown}, and no engine has taken "
            "that up yet; no engine has been there since 2026-03-02T13:00:00Z."
        )
    assert "check was not due at" in await why(host, START + 2 * DAY)
    assert "ran as" in await why(host, START + 30 * MINUTE)
    assert "poll was due at 2026-03-02T13:30:00Z" in await why(
        host, START + 90 * MINUTE, slug="poll"
    )
    assert "was not due" in await why(host, START + 135 * MINUTE, slug="poll")
    assert "is not due" in await why(host, START + 4 * DAY)
    async with Client(host.workspace) as asking:
        asking._clock = host.clock
        await asking.fire("poll")
    assert "poll was not due" in await why(host, START + 90 * MINUTE, slug="poll")
    async with host.engine() as engine:
        await drive(engine, until=START + 3 * DAY + MINUTE)
        said = await engine.why("check", at=START + DAY + 30 * MINUTE)
    assert "was missed: nobody saw to it in time" in said
    assert "no engine was there from 2026-03-02T13:00:00Z to 2026-03-05T12:00:00Z" in said


async def test_why_says_that_records_are_gone(host: Any) -> None:
    """It ran, and nothing is left that says so."""
    host.write(trigger=DAILY)
    async with host.engine(settings={"keep_runs": 10 * DAY}) as engine:
        await drive(engine, until=START + 20 * DAY)
        life = engine._life
        assert life is not None
        await life.retention.tidy()  # whenever it came by itself before
        said = await engine.why("check", at=START + 2 * DAY + 30 * MINUTE)
        assert said.startswith("the records of the time before 2026-03-1")
        assert "nothing says what became of check at 2026-03-04T12:30:00Z" in said
        assert "ran as" in await engine.why("check", at=START + 15 * DAY + 30 * MINUTE)
        assert "was not due" in await engine.why("check", at=START + 15 * DAY)


async def test_a_start_says_that_the_clock_was_set_back_meanwhile(host: Any) -> None:
    """It would be noticed by nobody else, and what ran by then is not due again."""
    host.write(trigger=DAILY)
    async with host.engine() as engine:
        await drive(engine, until=START + HOUR)
    for back, said in ((timedelta(seconds=30), []), (3 * HOUR, [-3.0 * 3600])):
        host.clock = ManualClock(START + HOUR - back)
        with capture_logs() as logs:
            async with host.engine() as engine:
                events = await host.events(engine, "clock_jumped")
        assert [event.data["seconds"] for event in events] == said
        warned = [line["seconds"] for line in logs if line["event"] == "clock_jumped"]
        assert warned == said
        write_sign(host.data, SignOfLife(holder="before", at=START + HOUR))


async def test_a_store_in_trouble_hears_of_the_start_afterwards(host: Any) -> None:
    store = host.faulty()
    full = StoreError(Problem(code="store-full", message="no room", remedy="make some"))
    store.faults["record"] = [full] * 3
    async with host.engine(store=store) as engine:
        await host.clock.advance(2 * MINUTE)
        (event,) = await host.events(engine, "engine_started")
        assert event.at == START
        store.faults["record"] = [full]
        with capture_logs() as logs:
            await engine.drain("a test")
    assert [line["code"] for line in logs if line["event"] == "stop_not_kept"] == ["store-full"]


async def test_a_sign_of_life_that_cannot_be_written_is_said_once(host: Any) -> None:
    """And stops nothing; whoever cannot understand one reads as if there were none."""
    async with host.engine() as engine:
        await host.clock.advance(MINUTE)
        (host.data / NAME).unlink()
        (host.data / NAME).mkdir()
        with capture_logs() as logs:
            await host.clock.advance(5 * MINUTE)
        assert [line["event"] for line in logs].count("sign_of_life_failed") == 1
        assert read_sign(host.data) is None
        (host.data / NAME).rmdir()
        await host.clock.advance(MINUTE)
        assert read_sign(host.data) is not None
        for text in ("{", "[]", json.dumps({"version": 2, "at": START.isoformat()})):
            (host.data / NAME).write_text(text)
            assert read_sign(host.data) is None
        assert (await engine.status()).faults == ()


async def test_what_is_not_known_is_no_absence(host: Any) -> None:
    assert (
        await absence(None, host.data, START, held=False, now=START + HOUR, threads=Threads())
        is None
    )


# ---- what clients hear of it

FULL = Problem(code="store-full", message="no room", remedy="make some")


async def examined(host: Any, now: datetime, area: str = "engine") -> Any:
    """What `drumbeat doctor` finds in one area."""
    found = await examine(host.workspace, data_dir=None, env={"PATH": ""}, now=now)
    return next(each for each in found if each.name == area)


async def test_what_is_wrong_with_an_engine_reaches_clients_and_the_doctor(host: Any) -> None:
    """Also of a store that they can read and it cannot write; and it goes as it is over."""
    store = host.faulty()
    async with Client(host.workspace) as beside, host.engine(store=store):
        await host.clock.advance(MINUTE)
        assert (await beside.status()).faults == ()
        assert await beside.health() == Health(ok=True, state="running")
        assert not (await examined(host, host.clock.now())).failed
        store.faults["record"] = [StoreError(FULL)] * 100
        host.file("automations/broken.md", "nothing")
        await host.clock.advance(MINUTE)
        assert [fault.code for fault in (await beside.status()).faults] == ["store-full"]
        assert await beside.health() == Health(ok=False, state="running", faults=("store-full",))
        area = await examined(host, host.clock.now())
        assert area.failed
        assert [problem.code for problem in area.problems] == ["store-full"]
        store.faults.clear()
        await host.clock.advance(2 * MINUTE)
        assert "store-full" not in [fault.code for fault in (await beside.status()).faults]
        assert (await beside.health()).ok
    assert (await examined(host, host.clock.now())).found == "none"


async def test_a_client_sees_that_an_engine_drains(host: Any) -> None:
    """As long as it does: no work is begun in that time, which whoever looks has to know."""
    host.write()
    host.agent = host.sleeper(HOUR)
    async with Client(host.workspace) as beside:
        async with host.engine(settings={"drain_timeout": HOUR}) as engine:
            await engine.fire("check")
            await host.clock.advance(MINUTE)
            assert (await beside.status()).state == "running"
            async with anyio.create_task_group() as group:
                group.start_soon(engine.drain, "a deploy")
                await host.clock.advance(timedelta(seconds=1))
                assert (await beside.status()).state == "draining"
                assert await beside.health() == Health(ok=False, state="draining")
                await host.clock.advance(HOUR)
            assert (await beside.status()).state == "stopped"
        async with host.engine():
            assert (await beside.status()).state == "running"


async def test_a_sign_that_takes_long_is_not_what_stays_of_a_drain(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop may be writing one, on a slow disk, in the instant in which draining begins."""
    begun, go_on = threading.Event(), threading.Event()
    written: list[bool] = []

    def write(data_dir: Path, sign: SignOfLife) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(10)
        write_sign(data_dir, sign)

    async with host.engine() as engine:
        presence, services = engine._life.presence, engine._life.services
        run = services.threads.run

        async def counted(call: Any, *given: Any) -> Any:
            if call is write:
                written.append(given[1].draining)
            return await run(call, *given)

        presence._told = None
        monkeypatch.setattr("drumbeat.runtime.presence.write_sign", write)
        monkeypatch.setattr(services.threads, "run", counted)
        async with anyio.create_task_group() as group:
            group.start_soon(presence.beat)
            assert await to_thread.run_sync(begun.wait, 10)
            services.begin_draining()
            group.start_soon(presence.beat)
            await anyio.wait_all_tasks_blocked()
            at_once = list(written)
            go_on.set()
        assert (at_once, written) == ([False], [False, True])
        sign = read_sign(host.data)
        assert sign is not None
        assert sign.draining


async def test_the_doctor_notices_an_engine_that_has_fallen_silent(host: Any) -> None:
    async with host.engine():
        await host.clock.advance(MINUTE)
        area = await examined(host, host.clock.now() + HOUR)
        assert [problem.code for problem in area.problems] == ["engine-silent"]
        assert not area.failed


async def test_a_client_believes_no_sign_of_another_engine(host: Any) -> None:
    async with host.engine() as engine, Client(host.workspace) as beside:
        await host.clock.advance(MINUTE)
        sign = SignOfLife(holder="process 1 on mars since never", at=START, faults=(FULL,))
        write_sign(host.data, sign)
        assert (await beside.status()).faults == ()
        assert (await engine.status()).faults == ()


async def test_the_doctor_looks_for_room(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with host.engine():
        pass
    assert not (await examined(host, host.clock.now(), "data folder")).failed
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5000))
    area = await examined(host, host.clock.now(), "data folder")
    assert [problem.code for problem in area.problems] == ["data-dir-full"]
