"""What a client reads and asks for, beside an engine or without one."""

import stat
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from drumbeat import (
    Client,
    DrumbeatError,
    Event,
    Fire,
    NotFound,
    Receipt,
    StoreError,
    WorkspaceError,
)
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import drive

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def tree(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


# ---- without a data folder


async def test_without_a_data_folder_all_reads_as_empty_and_nothing_is_made(host: Any) -> None:
    host.write(trigger={"type": "schedule", "expression": "every 45 minutes"})
    before = tree(host.workspace)
    async with host.client() as reader:
        assert await reader.runs() == []
        assert await reader.fires() == []
        assert await reader.intents() == []
        assert await reader.sweep() == []
        assert await reader.sessions() == {}
        (due,) = await reader.upcoming(until=host.clock.now() + DAY)
        assert due.slug == "check"
        assert "no earlier fire" in await reader.why("check", at=host.clock.now())
        status = await reader.status()
        assert (status.state, status.waiting, status.running) == ("stopped", (), ())
        assert [event async for event in reader.events(follow=False)] == []
        with pytest.raises(NotFound, match="run-unknown"):
            await reader.find_run("x")
        with pytest.raises(NotFound, match="intent-unknown"):
            await reader.acknowledge("x")
    assert tree(host.workspace) == before


async def test_a_workspace_that_is_not_there_does_not_read_as_empty(tmp_path: Path) -> None:
    """It is misspelt, most likely."""
    async with Client(tmp_path / "nowhere") as reader:
        for call in (
            reader.runs,
            reader.fires,
            reader.intents,
            reader.sweep,
            reader.sessions,
            partial(reader.find_run, "x"),
            partial(reader.acknowledge, "x"),
            reader.events(follow=False).__anext__,
            reader.events().__anext__,
            partial(reader.fire, "check"),
        ):
            with pytest.raises(WorkspaceError, match="workspace-missing"):
                await call()
        assert [fault.code for fault in (await reader.status()).faults] == ["workspace-missing"]
    assert list(tmp_path.iterdir()) == []


async def test_records_are_read_although_the_workspace_is_gone(host: Any) -> None:
    host.write()
    state = host.workspace.with_name("state")
    async with host.engine(data_dir=state) as engine:
        await engine.run("check")
    host.workspace.rename(host.workspace.with_name("elsewhere"))
    async with Client(host.workspace, data_dir=state) as reader:
        assert len(await reader.runs()) == 1
        assert list(await reader.sessions()) == ["check"]
        assert [event async for event in reader.events(follow=False)]


async def test_making_a_client_touches_nothing(tmp_path: Path) -> None:
    made = Client(tmp_path / "nowhere", data_dir=tmp_path / "state")
    assert made.data_dir == tmp_path / "state"
    assert list(tmp_path.iterdir()) == []


async def test_paths_are_made_absolute_on_entering(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(host.workspace.parent)
    made = Client("workspace", data_dir="state")
    assert not made.workspace_dir.is_absolute()
    async with made:
        assert made.workspace_dir == host.workspace
        assert made.data_dir == host.workspace.parent / "state"


async def test_what_an_engine_makes_later_is_seen(host: Any) -> None:
    host.write()
    async with host.client() as reader:
        assert await reader.runs() == []
        async with host.engine() as engine:
            await engine.run("check")
        assert len(await reader.runs()) == 1


async def test_a_data_folder_that_cannot_be_opened_is_said_on_entering(host: Any) -> None:
    host.data.mkdir()
    (host.data / "drumbeat.db").write_bytes(b"not a database" * 100)
    reader = host.client()
    with pytest.raises(StoreError, match="store-damaged"):
        await reader.__aenter__()
    with pytest.raises(DrumbeatError, match="left"):
        await reader.runs()


async def test_outside_its_context_a_client_says_so(host: Any) -> None:
    host.write()
    reader = host.client()
    with pytest.raises(DrumbeatError, match="not-entered"):
        await reader.runs()
    async with reader:
        await reader.fire("check")
    for call in (reader.runs, reader.sessions, reader.status, lambda: reader.fire("check")):
        with pytest.raises(DrumbeatError, match="left"):
            await call()
    with pytest.raises(DrumbeatError, match="entered-twice"):
        await reader.__aenter__()


# ---- asking


async def test_a_fire_of_a_client_is_taken_up_by_the_engine_that_is_going(host: Any) -> None:
    host.write()
    async with host.engine() as engine, host.client() as asking:
        fire = await asking.fire("check", payload=b"{}")
        later = await asking.fire("check", after=timedelta(hours=1))
        assert (await asking.status()).state == "running"
        await host.clock.advance(MINUTE)
        assert [run.fire.id for run in await engine.runs()] == [fire.id]
        await host.clock.advance(timedelta(hours=1))
        assert [run.fire.id for run in await asking.runs()] == [later.id, fire.id]


async def test_what_others_may_use_is_closed_to_them(host: Any) -> None:
    """A folder that was made beforehand, or moved, may be open to everybody."""
    host.write()
    async with host.engine() as engine:
        await engine.run("check")
        await engine.rotate("check", "stale")
        await host.clock.advance(MINUTE)
    names = ("drumbeat.db", "engine.lock", "session_pins.json", "session_rotations.jsonl")
    host.data.chmod(0o755)
    (host.data / "runs").chmod(0o2755)
    for name in names:
        (host.data / name).chmod(0o644)
    outside = host.file("outside", "x")
    outside.chmod(0o644)
    (host.data / ".gitignore").unlink()
    (host.data / ".gitignore").symlink_to(outside)
    with capture_logs() as logs:
        async with host.engine():
            pass
    (told,) = (line for line in logs if line["event"] == "data_dir_tightened")
    assert {".drumbeat", "runs", *names} == set(told["names"])
    assert [mode(host.data), mode(host.data / "runs")] == [0o700, 0o2700]
    assert {mode(host.data / name) for name in names} == {0o600}
    assert mode(outside) == 0o644
    with capture_logs() as logs:
        async with host.engine():
            pass
    assert [line for line in logs if line["event"] == "data_dir_tightened"] == []


async def test_what_a_full_disk_left_of_the_ignore_file_is_completed(host: Any) -> None:
    """Else git would take the data folder with everything in it."""
    host.write()
    host.data.mkdir(mode=0o700)
    (host.data / ".gitignore").touch(mode=0o600)
    for kept in ("*\n", "*\n!memory\n"):
        async with host.engine():
            assert (host.data / ".gitignore").read_text() == kept
        (host.data / ".gitignore").write_text("*\n!memory\n")


async def test_a_folder_that_stays_open_to_others_is_refused(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it is somebody else's, which a test that runs as root cannot have."""
    host.write()
    host.data.mkdir(mode=0o755)
    host.data.chmod(0o755)

    def not_ours(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    (host.data / ".gitignore").touch()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", not_ours)
        with pytest.raises(StoreError) as caught:
            await host.engine().__aenter__()
    assert caught.value.problem.code == "data-dir-open"
    assert str(host.data) in caught.value.problem.message


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_fire_with_a_slot_is_put_in_once(host: Any) -> None:
    host.write()
    async with host.client() as asking:
        first = await asking.fire("check", slot="ticket-1")
        again = await asking.fire("check", slot="ticket-1", after=DAY)
        assert again == first
        assert await asking.fires("check") == [first]
        assert (host.data / ".gitignore").read_text(encoding="utf-8") == "*\n"


async def test_a_client_that_is_cancelled_closes_its_store(host: Any) -> None:
    """A host whose requests are given up would run out of descriptors."""

    class Counting(SqliteStore):
        closed = 0

        async def close(self) -> None:
            await super().close()
            self.closed += 1

    host.write()
    async with host.engine():
        pass
    store = Counting(host.data / "drumbeat.db", clock=host.clock)
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with host.client(store=store) as asking:
            assert await asking.runs() == []
            scope.cancel()
            await anyio.sleep_forever()
    assert store.closed == 1


async def test_requests_that_come_at_once_open_one_store(host: Any) -> None:
    host.write()
    async with host.client() as asking:
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(partial(asking.fire, "check", slot=f"s{number}"))
        assert len(await asking.fires()) == 5


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"after": timedelta(seconds=-1)}, "after must not be negative"),
        ({"slot": "  "}, "slot must not be blank"),
        ({"after": timedelta.max}, "after ends beyond the year 9999"),
        ({"after": 5}, "after must be a timedelta, not int"),
        ({"slot": 7}, "slot must be text, not int"),
        ({"payload": "text"}, "payload must be bytes, not str: encode it first"),
        ({"payload": {"a": 1}}, "payload must be bytes, not dict: encode it first"),
    ],
)
async def test_a_fire_that_makes_no_sense_is_refused(
    host: Any, options: dict[str, Any], complaint: str
) -> None:
    host.write()
    async with host.client() as asking:
        with pytest.raises((TypeError, ValueError), match=complaint):
            await asking.fire("check", **options)
        assert await asking.fires() == []
        with pytest.raises(NotFound, match="slug-unknown"):
            await asking.fire("chek")


async def test_a_broken_file_can_be_fired_so_that_it_is_voiced(host: Any) -> None:
    host.file("automations/check.md", "broken")
    async with host.client() as asking:
        assert (await asking.fire("check")).slug == "check"


async def test_a_data_folder_that_cannot_be_made_is_trouble(host: Any) -> None:
    host.write()
    host.data.write_text("in the way", encoding="utf-8")
    async with host.client() as asking:
        with pytest.raises(StoreError, match="data-dir-unwritable"):
            await asking.fire("check")


async def test_an_intent_is_acknowledged_once_and_only_when_there_is_one(host: Any) -> None:
    host.write()
    host.write("quiet", notify="never")
    async with host.engine(deliverer=None) as engine:
        run = await engine.run("check")
        quiet = await engine.run("quiet")
        assert run.intent is not None
        assert quiet.intent is not None
        async with host.client() as pulling:
            await pulling.acknowledge(run.intent.id, Receipt(id="chat-1"))
            await pulling.acknowledge(run.intent.id, Receipt(id="chat-2"))
            for unknown in ("nothing", run.run_id):
                with pytest.raises(NotFound, match="intent-unknown"):
                    await pulling.acknowledge(unknown)
            with pytest.raises(NotFound, match="intent-not-found"):
                await pulling.acknowledge(quiet.intent.id)
            assert (await pulling.find_run("chat-1")).receipt == Receipt(id="chat-1")
            assert await pulling.intents("pending") == []
            assert len(await pulling.intents()) == 2
        assert len(await host.events(engine, "delivered")) == 1


async def test_intents_are_pulled_a_few_at_a_time_and_without_their_payloads(
    host: Any, statements: list[tuple[str, tuple[Any, ...]]]
) -> None:
    """One may have 25 MiB: those that are not handed out are not read."""
    host.write()
    async with host.engine(deliverer=None) as engine:
        for number in range(3):
            await engine.fire("check", slot=str(number), payload=b"%d" % number)
            await engine.settled()
        await engine.run("check")
        statements.clear()
        bare = await engine.intents("pending", payloads=False)
        assert not [sql for sql, _ in statements if "payloads" in sql]
        first = await engine.intents("pending", limit=2)
        assert len([sql for sql, _ in statements if "payloads" in sql]) == 2
        whole = await engine.intents("pending")
        assert await engine.intents("pending", limit=0) == []
        with pytest.raises(ValueError, match="limit must not be negative, not -1"):
            await engine.intents(limit=-1)
    assert [intent.fire.payload for intent in bare] == [None] * 4
    assert [intent.fire.payload for intent in whole] == [b"0", b"1", b"2", None]
    assert first == whole[:2]
    assert [intent.id for intent in bare] == [intent.id for intent in whole]


# ---- foreseeing


async def test_a_client_foresees_by_the_zones_of_the_engine(host: Any) -> None:
    host.write(trigger={"type": "schedule", "expression": "daily at 08:00"})
    async with host.engine(timezone="America/New_York") as engine:
        until = host.clock.now() + DAY
        async with host.client() as reader:
            assert await reader.upcoming(until=until) == await engine.upcoming(until=until)
            assert (await reader.status()).zones == (await engine.status()).zones
    async with host.engine(timezone="Asia/Tokyo"), host.client() as reader:
        assert (await reader.status()).zones["automation"] == ("Asia/Tokyo", "timezone")


async def test_an_edit_that_no_engine_saw_yet_is_foreseen(host: Any) -> None:
    host.write(trigger={"type": "schedule", "expression": "daily at 13:00"})
    async with host.engine():
        pass
    host.write(trigger={"type": "schedule", "expression": "daily at 11:00"})
    async with host.client() as reader:
        (due,) = await reader.upcoming(until=host.clock.now() + DAY)
        assert due.slot == host.clock.now() + timedelta(hours=23)


async def test_a_month_of_a_busy_schedule_is_foreseen_whole(host: Any) -> None:
    host.write("often", trigger={"type": "schedule", "expression": "* * * * *"})
    host.write("rare", trigger={"type": "schedule", "expression": "daily at 11:59"})
    async with host.client() as reader:
        due = await reader.upcoming(until=host.clock.now() + 2 * DAY)
        assert sum(moment.slug == "often" for moment in due) == 2 * 24 * 60
        assert sum(moment.slug == "rare" for moment in due) == 2
        why = await reader.why("rare", at=host.clock.now())
        assert "it is next due at 2026-03-0" in why


async def test_naive_instants_are_refused(host: Any) -> None:
    naive = datetime(2026, 3, 2)  # noqa: DTZ001
    async with host.client() as reader:
        with pytest.raises(ValueError, match="until must be an aware datetime"):
            await reader.upcoming(until=naive)
        with pytest.raises(ValueError, match="at must be an aware datetime"):
            await reader.why("check", at=naive)


# ---- why


async def test_why_says_what_keeps_an_automation_from_being_due(host: Any) -> None:
    host.write("off", trigger={"type": "schedule", "expression": "daily at 08:00"}, enabled=False)
    host.write("hand")
    host.write("gone")
    async with host.engine() as engine:
        await engine.run("gone")
        (host.workspace / "automations" / "gone.md").unlink()
        for _ in range(2):
            await host.clock.advance(timedelta(minutes=1))
        at = host.clock.now() - timedelta(hours=1)
        assert "at present its file says that it is disabled" in await engine.why("off", at=at)
        assert "at present no schedule makes it due" in await engine.why("hand", at=at)
        gone = "at present its file automations/gone.md is gone and has counted as removed since 20"
        assert gone in await engine.why("gone", at=at)
        with pytest.raises(NotFound, match="slug-unknown"):
            await engine.why("never-heard-of", at=at)
        why = await engine.why("gone", at=host.clock.now() - timedelta(minutes=2))
        assert why.startswith("gone (manual) due at 2026-03-02T12:00:00Z ran as ")
        assert why.count(".") == 1


async def test_why_tells_of_an_interval_that_waits_for_an_engine(host: Any) -> None:
    host.write(trigger={"type": "schedule", "expression": "every 60 minutes"})
    async with host.engine() as engine:
        await engine.run("check")
    await host.clock.advance(timedelta(hours=3))
    async with host.client() as reader:
        told = await reader.why("check", at=host.clock.now())
        (due,) = await reader.upcoming(until=host.clock.now())
    assert f"it has been due since {due.slot:%Y-%m-%dT%H:%M:%SZ}, which no engine" in told


async def test_why_finds_the_slot_nearest_to_a_moment_to_come(host: Any) -> None:
    """However close slots lie, and however far away the moment is."""
    host.write(trigger={"type": "schedule", "expression": "* * * * *"})
    host.write("other", trigger={"type": "schedule", "expression": "every 5 minutes"})
    async with host.engine() as engine:
        at = host.clock.now() + timedelta(minutes=6)
        assert await engine.why("check", at=at) == "check will be due at 2026-03-02T12:06:00Z."
        far = host.clock.now() + timedelta(days=4000)
        assert "check will be due at 2037-02-12T12:00:00Z" in await engine.why("check", at=far)
        assert "no later moment is planned" in await engine.why("other", at=far)
        assert "will be due at" in await engine.why("other", at=at - timedelta(minutes=1))


async def test_why_looks_only_at_the_neighbourhood_of_a_moment(host: Any) -> None:
    """The fires nearest to it answer, also in the middle of many."""
    host.write()
    store = host.faulty()
    async with host.engine(store=store) as engine:
        day = timedelta(days=1)
        start = host.clock.now() - 3000 * day
        fires = [
            Fire(
                id=f"fire-{number}",
                slug="check",
                cause="schedule",
                slot=f"slot-{number}",
                due=start + number * day,
                created_at=start + number * day,
                verdict="missed",
                reason=f"reason {number}",
            )
            for number in range(2900)
        ]
        await store.add_fires(fires)
        assert "reason 1500" in await engine.why("check", at=start + 1500 * day)
        said = await engine.why("check", at=start + 1500.5 * day)
        assert "was not due" in said
        assert "reason 1500" in said


async def test_why_of_a_moment_to_come(host: Any) -> None:
    host.write(trigger={"type": "schedule", "expression": "daily at 13:00"})
    async with host.client() as reader:
        at = host.clock.now() + timedelta(hours=1)
        why = await reader.why("check", at=at + DAY * 9)
        assert why == "check will be due at 2026-03-11T13:00:00Z."


# ---- events


async def test_events_are_followed_as_they_come_until_the_client_is_left(host: Any) -> None:
    host.write()
    seen: list[Event] = []
    first = anyio.Event()

    async def follow(reader: Client) -> None:
        async for event in reader.events():
            seen.append(event)
            first.set()

    async with (
        anyio.create_task_group() as group,
        host.client() as reader,
        host.engine() as engine,
    ):
        group.start_soon(follow, reader)
        await engine.run("check")
        await first.wait()
    ids = [event.id for event in seen]
    assert ids == sorted(set(ids))
    assert seen[0].kind == "engine_started"


async def test_following_can_be_cancelled_and_goes_on_from_an_id(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        await engine.run("check")
        await engine.settled()
        every = [event async for event in engine.events(follow=False)]
        rest = [event async for event in engine.events(every[2].id, follow=False)]
        assert rest == every[3:]
        scope, came = anyio.CancelScope(), anyio.Event()

        async def follow() -> None:
            with scope:
                async for _ in engine.events(every[-1].id):
                    came.set()

        async with anyio.create_task_group() as group:

            async def next_one() -> None:
                async for event in engine.events(every[-1].id):
                    assert event.kind == "fire_added"
                    return

            group.start_soon(next_one)
            group.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            await engine.fire("check")
            await came.wait()
            scope.cancel()
        assert scope.cancelled_caught


async def test_events_are_followed_from_before_there_is_a_data_folder(host: Any) -> None:
    host.write()
    kinds: list[str] = []

    async def follow(reader: Client) -> None:
        async for event in reader.events():
            kinds.append(event.kind)
            if event.kind == "delivered":
                return

    async with host.client() as reader, anyio.create_task_group() as group:
        group.start_soon(follow, reader)
        await anyio.wait_all_tasks_blocked()
        async with host.engine() as engine:
            await engine.run("check")
            await drive(engine, until=host.clock.now() + MINUTE)
    assert kinds[:2] == ["engine_started", "fire_added"]
    assert kinds[-1] == "delivered"


async def test_a_store_that_fails_while_followed_says_so(host: Any) -> None:
    host.write()
    store = host.faulty()
    async with host.engine(store=store) as engine:

        async def fail(**given: Any) -> list[Event]:
            raise _trouble()

        store.events = fail
        stream = engine.events()
        with pytest.raises(StoreError, match="store-failed"):
            await anext(stream)


def _trouble() -> StoreError:
    from drumbeat import Problem

    return StoreError(Problem(code="store-failed", message="no", remedy="wait"))


async def test_status_of_a_client_beside_a_run(host: Any) -> None:
    host.write()
    host.write("next")

    host.agent = host.sleeper(timedelta(minutes=30))
    async with host.engine(settings={"max_concurrent_runs": 1}) as engine, host.client() as reader:
        await engine.fire("check")
        await engine.fire("next")
        await host.clock.advance(MINUTE)
        status = await reader.status()
        assert [run.slug for run in status.running] == ["check"]
        assert [fire.slug for fire in status.waiting] == ["next"]
