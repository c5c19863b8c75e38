"""What goes with time, and what never goes."""

import shutil
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from drumbeat import EventsExpired, NotFound, Problem, Receipt, StoreError, Turn
from drumbeat.runtime import retention
from drumbeat.runtime.retention import Retention
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import ManualClock, ScriptedAgent, drive

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SHORT = {"keep_artifacts": 3 * DAY, "keep_events": 2 * DAY, "keep_runs": 10 * DAY}


async def test_folders_go_work_first_and_then_the_rest(host: Any) -> None:
    host.write("good")
    host.write("bad", steps=[{"id": "fail", "prompt": "Fail."}])
    from drumbeat import AgentError

    host.agent = ScriptedAgent({"fail": AgentError("no")}, default="done")
    async with host.engine(settings=SHORT) as engine:
        good, bad = await engine.run("good"), await engine.run("bad")
        folders = [host.folder(good), host.folder(bad)]
        await drive(engine, until=host.clock.now() + DAY - HOUR)
        assert [(folder / "work").is_dir() for folder in folders] == [True, True]
        await drive(engine, until=host.clock.now() + DAY)
        assert [(folder / "work").is_dir() for folder in folders] == [False, True]
        assert (folders[0] / "result.json").is_file()
        await drive(engine, until=host.clock.now() + 3 * DAY)
        assert [folder.exists() for folder in folders] == [False, False]
        assert len(await engine.runs()) == 2
        await drive(engine, until=host.clock.now() + 8 * DAY)
        assert await engine.runs() == []
        await drive(engine, until=host.clock.now() + DAY)
        assert await engine.fires() == []


async def test_what_is_pending_keeps_its_run_and_its_folder(host: Any) -> None:
    host.write()
    async with host.engine(deliverer=None, settings=SHORT) as engine:
        run = await engine.run("check")
        waiting = await engine.fire("check", after=100 * DAY)
        await drive(engine, until=host.clock.now() + 50 * DAY)
        assert (host.folder(run) / "work").is_dir()
        (intent,) = await engine.intents("pending")
        assert [fire.id for fire in await engine.fires()] == [waiting.id, run.fire.id]
        await engine.acknowledge(intent.id, Receipt(id="chat-1"))
        await drive(engine, until=host.clock.now() + 2 * DAY)
        assert not host.folder(run).exists()
        assert await engine.runs() == []
        assert [fire.id for fire in await engine.fires()] == [waiting.id]


async def test_a_run_that_is_going_keeps_everything(host: Any) -> None:
    host.write()

    host.agent = host.sleeper(20 * DAY)
    settings = {**SHORT, "run_timeout": 100 * DAY}
    async with host.engine(settings=settings) as engine:
        await engine.fire("check")
        await host.clock.advance(15 * DAY)
        (going,) = (await engine.status()).running
        assert (host.folder(going) / "work").is_dir()
        assert (await engine.find_run(going.run_id)).state == "running"


async def test_reading_from_what_was_forgotten_is_refused(host: Any) -> None:
    host.write()
    async with host.engine(settings=SHORT) as engine:
        await engine.run("check")
        last = (await host.events(engine, "run_completed"))[-1].id
        await drive(engine, until=host.clock.now() + 4 * DAY)
        with pytest.raises(EventsExpired) as caught:
            await anext(engine.events(1, follow=False))
        assert caught.value.problem.code == "events-expired"
        assert caught.value.after > last
        assert [event async for event in engine.events(caught.value.after, follow=False)] == []
        await engine.run("check")
        (first, *_) = [event async for event in engine.events(caught.value.after, follow=False)]
        assert first.kind == "fire_added"


async def test_reading_from_the_beginning_begins_with_what_is_kept(host: Any) -> None:
    """Also for who asks month after month for all there is, as a host's first look does."""
    host.write()
    async with host.engine(settings=SHORT) as engine:
        await engine.run("check")
        (last, *_) = [each async for each in engine.events(follow=False)][-1:]
        await drive(engine, until=host.clock.now() + 4 * DAY)
        await engine.run("check")
        kept = [each.id async for each in engine.events(follow=False)]
        assert kept[0] > last.id
        assert (await anext(engine.events())).id == kept[0]


async def test_a_schedule_does_not_fire_again_what_was_forgotten(host: Any) -> None:
    """What a schedule has accounted for is a mark of its own."""
    host.write(trigger={"type": "schedule", "expression": "daily at 13:00"})
    start = host.clock.now()
    async with host.engine(settings=SHORT) as engine:
        (run,) = await drive(engine, until=start + 2 * HOUR)
        host.write(trigger={"type": "schedule", "expression": "daily at 13:00"}, enabled=False)
        await drive(engine, until=start + 30 * DAY)
        assert await engine.fires() == []
    host.clock.jump(start + 2 * HOUR - host.clock.now())
    host.write(trigger={"type": "schedule", "expression": "daily at 13:00"})
    async with host.engine() as engine:
        await engine.settled()
        assert await engine.fires() == []
    assert run.state == "succeeded"


async def test_what_nobody_knows_goes_by_its_name(host: Any) -> None:
    host.write()
    runs = host.data / "runs" / "check"
    old, young = "20260201T120000000000Z-ab", "20260302T110000000000Z-ab"
    for name in (old, young, "notes", "20269901T120000000000Z-ab"):
        (runs / name / "work").mkdir(parents=True)
    (host.data / "runs" / "stray.txt").write_text("x", encoding="utf-8")
    (runs / "20260101T120000000000Z-link").symlink_to(host.workspace)
    async with host.engine(settings=SHORT) as engine:
        await engine.settled()
        await drive(engine, until=host.clock.now() + HOUR)
    assert sorted(path.name for path in runs.iterdir()) == [
        "20260101T120000000000Z-link",
        young,
        "20269901T120000000000Z-ab",
        "notes",
    ]
    assert (host.workspace / "automations").is_dir()


async def test_a_folder_that_cannot_be_removed_is_said_once_and_stops_nothing(
    host: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(retention.shutil, "rmtree", refuse)
    host.write()
    async with host.engine(settings=SHORT) as engine:
        run = await engine.run("check")
        for _ in range(3):
            await drive(engine, until=host.clock.now() + 10 * DAY)
        assert not host.folder(run).exists(), "half of it would be there"
        gone = host.data / "runs" / ".gone"
        assert (gone / run.run_id / "result.json").is_file()
        assert gone.stat().st_mode & 0o777 == 0o700
        assert await engine.runs() == []
    said = capsys.readouterr().out
    assert said.count("folder_not_removed") == 1
    assert "Permission denied" in said


async def test_a_folder_that_cannot_be_read_stops_nothing(
    host: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    host.write()
    host.data.mkdir()
    (host.data / "runs").write_text("in the way", encoding="utf-8")
    async with host.engine(settings=SHORT) as engine:
        await engine.run("check")
        await drive(engine, until=host.clock.now() + 20 * DAY)
        assert await engine.runs() == []
    assert capsys.readouterr().out.count("folder_not_read") == 1


async def test_a_folder_that_may_not_be_searched_stops_nothing(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that root left behind who ran an automation by hand."""
    host.write()
    refused: list[Path] = []
    look = Path.lstat

    def lstat(path: Path) -> Any:
        if path in refused:
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    async with host.engine(settings=SHORT) as engine:
        first, second = await engine.run("check"), await engine.run("check")
        refused.append(host.folder(first) / "work")
        monkeypatch.setattr(Path, "lstat", lstat)
        with capture_logs() as logs:
            await drive(engine, until=host.clock.now() + 2 * DAY)
            assert (await engine.status()).state == "running"
            assert not (host.folder(second) / "work").exists()
            await drive(engine, until=host.clock.now() + 3 * DAY)
    (said,) = [line for line in logs if line["event"] == "folder_untidy"]
    assert (said["what"], said["folder"]) == ("folder_not_read", str(host.folder(first)))


async def test_a_mistake_over_one_folder_keeps_no_other(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a fault until a later round goes well."""
    host.write()
    async with host.engine(settings={"keep_artifacts": 3 * DAY}) as engine:
        first, second = await engine.run("check"), await engine.run("check")
        remove = Retention._remove

        async def broken(self: Retention, folder: Path) -> bool:
            if first.run_id in str(folder):
                raise RuntimeError("a mistake")
            return await remove(self, folder)

        monkeypatch.setattr(Retention, "_remove", broken)
        await drive(engine, until=host.clock.now() + 2 * DAY)
        assert not (host.folder(second) / "work").exists()
        (fault,) = (await engine.status()).faults
        assert (fault.code, "retention: RuntimeError: a mistake" in fault.message) == (
            "part-failed",
            True,
        )
        assert len(await host.events(engine, "part_failed")) == 1
        monkeypatch.setattr(Retention, "_remove", remove)
        await drive(engine, until=host.clock.now() + 2 * HOUR)
        assert not (host.folder(first) / "work").exists()
        assert (await engine.status()).faults == ()


async def test_trouble_with_the_store_is_tried_again_within_the_hour(host: Any) -> None:
    host.write()
    store = host.faulty()
    refusals = [StoreError(Problem(code="store-full", message="no room", remedy="wait"))]
    real = store.purge

    async def purge(**given: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await real(**given)

    store.purge = purge
    async with host.engine(store=store, settings=SHORT) as engine:
        await host.clock.advance(2 * HOUR)
        assert refusals == []
        assert (await engine.status()).faults == ()


async def test_much_is_forgotten_in_parts(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from drumbeat.runtime import store_retention

    monkeypatch.setattr(store_retention, "_MOST", 3)
    host.write()
    async with host.engine(settings=SHORT) as engine:
        for _ in range(5):
            await engine.run("check")
        await drive(engine, until=host.clock.now() + 11 * DAY)
        assert await engine.runs() == []


async def test_a_clock_that_was_wrong_for_a_while_keeps_nothing_alive(tmp_path: Path) -> None:
    """An event from the future holds back nothing; one from the past takes nothing young along."""
    from datetime import UTC, datetime

    from drumbeat import Event

    now = datetime(2026, 3, 2, tzinfo=UTC)

    def event(kind: str, at: datetime) -> Event:
        return Event(id=0, at=at, kind=kind, slug=None, run_id=None, data={})

    store = SqliteStore(tmp_path / "drumbeat.db")
    await store.open(holder="test", lease=HOUR)
    await store.record(
        events=[
            event("future", now + 9000 * DAY),
            event("old", now - 9 * DAY),
            event("young", now - HOUR),
            event("past", now - 9000 * DAY),
        ]
    )
    purged = await store.purge(now=now, keep_events=DAY, keep_runs=DAY)
    assert purged.events == 2
    kept = await store.events(after=2, limit=9, wait=timedelta())
    assert [one.kind for one in kept] == ["young", "past"]
    await store.close()


def _used(host: Any) -> tuple[int, int]:
    """The bytes of the database file that are in use, and those that it has."""
    with closing(sqlite3.connect(host.data / "drumbeat.db")) as db:
        (size,) = db.execute("PRAGMA page_size").fetchone()
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        (free,) = db.execute("PRAGMA freelist_count").fetchone()
    return (pages - free) * size, pages * size


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_clock_that_is_ahead_as_the_machine_starts_erases_nothing(host: Any) -> None:
    """Also when that happens again and again, and something runs by the wrong time."""
    host.write()
    async with host.engine() as engine:
        runs = [await engine.run("check") for _ in range(3)]
        await drive(engine, until=host.clock.now() + 2 * DAY)
        folders = [host.folder(run) for run in runs]
        right = host.clock.now()
    for ahead in (1, 2):
        host.clock = ManualClock(datetime(2040, 1, ahead, tzinfo=UTC))
        with capture_logs() as logs:
            async with host.engine() as engine:
                await engine.run("check")
                await host.clock.advance(HOUR)
                host.clock.jump(right - host.clock.now())
                await drive(engine, until=host.clock.now() + 2 * DAY)
                right = host.clock.now()
                assert {run.run_id for run in runs} < {run.run_id for run in await engine.runs()}
                assert len(await engine.fires()) == 3 + ahead
        assert all(folder.exists() for folder in folders)
        assert [line["event"] for line in logs if line["event"] == "clock_doubted"] != []


async def test_a_clock_that_leaps_again_and_again_erases_nothing(host: Any) -> None:
    """From one start to the next, or while an engine runs: it has stood by none of them."""
    host.write()
    async with host.engine(settings=SHORT) as engine:
        await engine.run("check")
        right = host.clock.now()
    for year in (2031, 2033, 2034):
        host.clock = ManualClock(datetime(year, 3, 2, tzinfo=UTC))
        with capture_logs() as logs:
            async with host.engine(settings=SHORT) as engine:
                await drive(engine, until=host.clock.now() + timedelta(minutes=1))
                assert len(await engine.runs()) == 1
        assert "clock_doubted" in [line["event"] for line in logs]
    async with host.engine(settings={**SHORT, "tidy_interval": HOUR}) as engine:
        for days in (0, 3, 400, 5):
            host.clock.jump(days * DAY)
            await drive(engine, until=host.clock.now() + 2 * HOUR)
        assert len(await engine.runs()) == 1
    host.clock = ManualClock(right)
    async with host.engine(settings=SHORT) as engine:
        await drive(engine, until=host.clock.now() + HOUR)
        assert len(await engine.runs()) == 1


async def test_a_clock_of_which_nothing_is_known_erases_nothing_at_once(host: Any) -> None:
    """As over the state of a release that kept no word of it."""
    host.write()
    async with host.engine(settings=SHORT) as engine:
        await engine.run("check")
    with closing(sqlite3.connect(host.data / "drumbeat.db")) as db:
        assert db.execute("DELETE FROM marks WHERE key = ?", (retention._KEY,)).rowcount == 1
        db.commit()
    host.clock = ManualClock(datetime(2040, 1, 1, tzinfo=UTC))
    async with host.engine(settings=SHORT) as engine:
        await drive(engine, until=host.clock.now() + HOUR)
        assert len(await engine.runs()) == 1


async def test_what_was_off_for_long_lets_go_after_a_day(host: Any) -> None:
    """Also when no engine lives for a day."""
    host.write()
    async with host.engine(settings=SHORT) as engine:
        await engine.run("check")
        await drive(engine, until=host.clock.now() + DAY)
    for days, left in ((50, 1), (1, 0)):
        host.clock = ManualClock(host.clock.now() + days * DAY)
        async with host.engine(settings=SHORT) as engine:
            await drive(engine, until=host.clock.now() + HOUR)
            assert len(await engine.runs()) == left


# A week of fires is thousands of transactions, whatever the backend.
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.long
async def test_sizes_level_off(host: Any) -> None:
    """A week of four automations every 15 minutes, of which a day is kept."""
    for number in range(4):
        trigger = {"type": "schedule", "expression": "*/15 * * * *"}
        host.write(f"check-{number}", trigger=trigger, notify="never")
    settings = {
        "keep_artifacts": DAY,
        "keep_events": DAY,
        "keep_runs": DAY,
        "max_concurrent_runs": 4,
    }
    used, sizes = [], []
    async with host.engine(settings=settings) as engine:
        for _ in range(7):
            await host.clock.advance(DAY)
            host.agent.turns.clear()
            now_used, size = _used(host)
            used.append(now_used)
            sizes.append(size)
            assert len(await engine.runs(limit=10_000)) <= 2 * 4 * 96 + 4
            assert sum(1 for _ in host.data.glob("runs/*/*")) <= 2 * 4 * 96 + 4
        fires = len(await engine.fires(limit=10_000))
        assert await engine.sweep() == []
    # Fires alone are kept for a week: what grows after the second day is less than 1 KiB for each.
    assert used[-1] - used[1] < 5 * 4 * 96 * 1024
    assert sizes[-1] - sizes[1] < 6 * 4 * 96 * 1024
    assert fires > 6 * 4 * 96
    wal = host.data / "drumbeat.db-wal"
    assert not wal.exists() or wal.stat().st_size < 16 * 1024 * 1024


async def test_a_clock_that_is_far_behind_takes_no_young_event(host: Any) -> None:
    """As on a board that starts in 1970 and tidies before it hears the time."""
    host.write()
    async with host.engine() as engine:
        await engine.run("check")
        store = engine._life.services.store
        behind = host.clock.now() - 20_000 * DAY
        purged = await store.purge(now=behind, keep_events=DAY, keep_runs=DAY)
        assert purged.events == 0
        assert len(await host.events(engine, "run_completed")) == 1


async def test_a_run_that_somebody_answers_is_not_forgotten_and_not_told_again(host: Any) -> None:
    """However short runs are kept: the message of it was delivered once."""
    host.write()
    asked, go_on = anyio.Event(), anyio.Event()

    async def say(turn: Turn) -> str:
        if turn.origin == "reply":
            asked.set()
            await go_on.wait()
        return "said"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        await engine.settled()
        group.start_soon(engine.reply, run.run_id, "And?")
        await asked.wait()
        purged = await engine._life.services.store.purge(
            now=host.clock.now() + 2 * DAY, keep_events=90 * DAY, keep_runs=DAY
        )
        go_on.set()
    assert purged.runs == 0
    assert len(host.deliverer.intents) == 1


class Stale(SqliteStore):
    """A real store in which something happens behind a look at a run."""

    meanwhile: Any = None

    async def runs(self, **given: Any) -> Any:
        found = await super().runs(**given)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


ALONE = {"tidy_interval": 4000 * DAY}


async def test_the_folder_of_an_answer_that_begins_as_it_is_to_go_stays(host: Any) -> None:
    host.write()
    began, go_on = anyio.Event(), anyio.Event()

    async def say(turn: Turn) -> str:
        if turn.origin == "reply":
            (turn.cwd / "note").touch()
            began.set()
            await go_on.wait()
        return "said"

    host.agent = ScriptedAgent(default=say)
    store = Stale(host.data / "drumbeat.db", clock=host.clock)
    async with host.engine(store=store, settings=ALONE) as engine:
        run = await engine.run("check")
        await engine.settled()
        await host.clock.advance(35 * DAY)
        retention = engine._life.retention

        async def answer() -> None:
            group.start_soon(engine.reply, run.run_id, "And?")
            await began.wait()

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                store.meanwhile = answer
                await retention.tidy()
                assert (host.folder(run) / "work").is_dir()
                go_on.set()
            await retention.tidy()
            assert (host.folder(run) / "turns" / "02-reply.md").exists()
            await host.clock.advance(35 * DAY)
            await retention.tidy()
        assert not host.folder(run).exists()


async def test_an_answer_that_was_given_as_a_folder_was_to_go_keeps_it(host: Any) -> None:
    host.write()
    store = Stale(host.data / "drumbeat.db", clock=host.clock)
    async with host.engine(store=store, settings=ALONE) as engine:
        run = await engine.run("check")
        await engine.settled()
        await host.clock.advance(35 * DAY)

        async def answer() -> None:
            await engine.reply(run.run_id, "And?")

        store.meanwhile = answer
        with anyio.fail_after(30):
            await engine._life.retention.tidy()
        assert (host.folder(run) / "turns" / "02-reply.md").exists()


async def test_nobody_answers_in_a_folder_that_is_being_removed(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer waits for that without being told to, and gets a folder of its own afterwards."""
    host.write()
    begun, go_on = threading.Event(), threading.Event()
    removed: list[str] = []

    def slowly(folder: Path) -> None:
        begun.set()
        assert go_on.wait(30)
        removed.append(folder.name)
        remove(folder)

    remove = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", slowly)
    async with host.engine(settings=ALONE) as engine:
        run = await engine.run("check")
        await engine.settled()
        await host.clock.advance(35 * DAY)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(engine._life.retention.tidy)
                await to_thread.run_sync(begun.wait)
                group.start_soon(engine.reply, run.run_id, "And now?")
                await anyio.wait_all_tasks_blocked()
                assert len((await engine.find_run(run.run_id)).turns) == 1
                go_on.set()
        assert removed == [run.run_id]
        assert (host.folder(run) / "turns" / "02-reply.md").exists()
        assert len((await engine.find_run(run.run_id)).turns) == 2


async def test_an_answer_to_a_run_that_is_gone_does_not_bring_it_back(host: Any) -> None:
    """Nor the message that it had."""
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.settled()
        store = engine._life.services.store
        purged = await store.purge(
            now=host.clock.now() + 2 * DAY, keep_events=90 * DAY, keep_runs=DAY
        )
        claim = await store.hold(run.session_id, run_id="reply-1")
        with pytest.raises(NotFound, match="run-unknown"):
            await store.record(claim=claim, run=run)
        assert purged.runs == 1
        assert await engine.runs() == []
        assert await engine.intents("pending") == []


async def test_a_disk_with_no_room_for_a_name_is_cleared_all_the_same(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is removed is moved aside first, which may be what there is no room for."""
    host.write()

    def full(folder: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(target))

    async with host.engine(settings=SHORT) as engine:
        run = await engine.run("check")
        monkeypatch.setattr(Path, "rename", full)
        await drive(engine, until=host.clock.now() + 5 * DAY)
        assert not host.folder(run).exists()


async def test_the_folder_of_an_automation_that_is_gone_goes_with_its_last_run(host: Any) -> None:
    """What somebody keeps beside the runs stays, and so does the folder of a file that stands."""
    host.write("gone")
    host.write("stands")
    runs = host.data / "runs"
    async with host.engine(settings=SHORT) as engine:
        for slug in ("gone", "stands"):
            await engine.run(slug)
        (runs / "my notes").mkdir()
        (host.workspace / "automations" / "gone.md").unlink()
        await host.look(2)
        await drive(engine, until=host.clock.now() + 5 * DAY)
        assert {path.name for path in runs.iterdir()} == {"stands", "my notes"}


@pytest.mark.parametrize("answering", [False, True])
async def test_old_folders_go_when_they_may_be_what_fills_the_disk(
    host: Any, answering: bool
) -> None:
    """Then no claim can be written, by nobody: so only an answer that is going keeps them."""
    full = StoreError(Problem(code="store-full", message="full", remedy="make room"))
    host.write(conversation="continuous")
    store = host.faulty()
    async with host.engine(settings={**SHORT, "store_probe": HOUR}, store=store) as engine:
        run = await engine.run("check")
        engine._life.retention.is_answering = lambda: answering
        await drive(engine, until=host.clock.now() + 2 * DAY)
        store.faults = {method: [full] * 100_000 for method in ("record", "hold", "finish")}
        await host.clock.advance(4 * DAY)
        assert host.folder(run).exists() == answering
        store.faults.clear()
        assert [each.run_id for each in await engine.runs()] == [run.run_id]
        await host.clock.advance(2 * DAY)
        assert not host.folder(run).exists()


@pytest.mark.parametrize("refused", [("record", "hold", "finish"), ("marks",)])
async def test_no_folder_goes_on_a_full_disk_while_the_clock_is_doubted(
    host: Any, refused: tuple[str, ...]
) -> None:
    """Also where the disk is so full that the first thing refused is what is read."""
    full = StoreError(Problem(code="store-full", message="full", remedy="make room"))
    host.write()
    store = host.faulty()
    async with host.engine(settings=SHORT, store=store) as engine:
        run = await engine.run("check")
        await drive(engine, until=host.clock.now() + HOUR)
        store.faults = {method: [full] * 100_000 for method in refused}
        host.clock.jump(timedelta(days=400))
        with pytest.raises(StoreError, match="full"):
            await engine._life.retention._round()
        assert host.folder(run).is_dir()
        store.faults.clear()
