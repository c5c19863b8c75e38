"""A store that fails stops the dispatching, is seen, and recovers by itself; nothing is lost."""

import inspect
import sqlite3
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from drumbeat import Client, EngineBusy, Problem, StoreError, Turn
from drumbeat.protocols import Store
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import ScriptedAgent, ScriptedMailbox, drive

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
FULL = Problem(code="store-full", message="there is no room", remedy="make some")
METHODS = sorted(
    name
    for name, member in inspect.getmembers(Store, inspect.isfunction)
    if not name.startswith("_") and name not in {"open", "close", "hold"}
)


class Failing(SqliteStore):
    """A real store of which chosen methods say that the disk is full."""

    failing: frozenset[str] = frozenset()
    failures = 0

    def __getattribute__(self, name: str) -> Any:
        if name in METHODS and name in self.failing:
            return self._fail
        return super().__getattribute__(name)

    async def _fail(self, *given: Any, **named: Any) -> Any:
        self.failures += 1
        await anyio.lowlevel.checkpoint()
        raise StoreError(FULL)


def failing(host: Any, *methods: str) -> Failing:
    store = Failing(host.data / "drumbeat.db", clock=host.clock)
    store.failing = frozenset(methods)
    return store


def schedule(expression: str) -> dict[str, str]:
    return {"type": "schedule", "expression": expression}


@pytest.mark.parametrize("method", METHODS)
async def test_any_method_may_fail_for_a_while_and_nothing_is_lost(host: Any, method: str) -> None:
    """Every slot ends in one verdict and every run in one intent that goes out."""
    host.write(trigger=schedule("*/10 * * * *"))
    host.write("brief", trigger=schedule("every 15 minutes"))
    store = failing(host)
    async with host.engine(store=store) as engine:
        await drive(engine, until=START + 12 * MINUTE)
        store.failing = frozenset({method})
        host.write("brief", trigger=schedule("every 20 minutes"))
        await host.clock.advance(20 * MINUTE)
        store.failing = frozenset()
        await host.clock.advance(2 * MINUTE)
        assert (await engine.status()).faults == ()
        await drive(engine, until=START + 2 * HOUR + MINUTE)
        fires = await engine.fires(limit=1000)
        runs = await engine.runs(limit=1000)
        assert await engine.sweep() == []
        settled = await host.events(engine, "fire_settled")
    assert all(fire.verdict for fire in fires)
    checks = [fire for fire in fires if fire.slug == "check"]
    assert sum(1 + fire.folded_slots for fire in checks if fire.verdict == "ran") == 12
    assert len(runs) == sum(fire.verdict == "ran" for fire in fires)
    assert {run.delivery for run in runs} == {"delivered"}
    assert sorted(event.data["fire"] for event in settled) == sorted(fire.id for fire in fires)


_asked: ContextVar[list[str] | None] = ContextVar("_asked", default=None)
"""In the tasks of one run: what it asked the store for since it was put on record."""


class FailingOnce(Failing):
    """One of which one call of a run fails, counted from the record of its beginning."""

    at = 0

    def __getattribute__(self, name: str) -> Any:
        if name not in METHODS and name != "hold":
            return super().__getattribute__(name)
        asked = _asked.get()
        if asked is None:
            return self._watched if name == "record" else super().__getattribute__(name)
        asked.append(name)
        return self._fail if len(asked) == self.at else super().__getattribute__(name)

    async def _watched(self, **given: Any) -> None:
        await super().record(**given)
        if any(event.kind == "run_started" for event in given.get("events", ())):
            _asked.set([])


@pytest.mark.slow
async def test_no_run_over_mail_fails_when_one_call_does_before_its_first_turn(host: Any) -> None:
    """Whichever it is: the run waits, and then goes on."""
    store = FailingOnce(host.data / "drumbeat.db", clock=host.clock)
    box = ScriptedMailbox()
    host.file("jobs/desk.md", "---\ninbox: imap:d@x.org\nallowFrom: '@x.org'\n---\nAnswer it.\n")
    met: list[list[str]] = []

    def reply(turn: Turn) -> str:
        met.append(list(_asked.get() or []))
        return "done"

    host.agent = ScriptedAgent(default=reply)
    async with host.engine(mail={"imap": box}, store=store) as engine:
        await drive(engine, until=host.clock.now() + MINUTE)
        while not met or len(met[-1]) >= store.at:
            store.at += 1
            box.send("a@x.org", "d@x.org", str(store.at))
            runs = await drive(engine, until=host.clock.now() + 10 * MINUTE)
            assert [(run.state, run.fire.attempt) for run in runs] == [("succeeded", 1)], store.at
    failed = [calls[number] for number, calls in enumerate(met) if number < len(calls)]
    # Behind the first turn calls are counted on, so the last round fails one of those.
    assert store.failures in (len(failed), len(failed) + 1)
    assert {"marks", "hold"} <= set(failed)


class Sick(sqlite3.Connection):
    """A connection of which no commit comes through while the disk refuses something."""

    refusal: int | None = None
    """What SQLite calls it."""

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        if Sick.refusal is not None and sql.startswith("COMMIT"):
            error = sqlite3.OperationalError("the disk refuses it")
            error.sqlite_errorcode = Sick.refusal
            raise error
        return super().execute(sql, values)


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(sqlite3.SQLITE_IOERR_WRITE, id="EIO"),
        pytest.param(sqlite3.SQLITE_IOERR_FSYNC, id="EIO as it is synced"),
        pytest.param(sqlite3.SQLITE_READONLY, id="EROFS"),
        pytest.param(sqlite3.SQLITE_FULL, id="ENOSPC"),
    ],
)
async def test_a_disk_that_refuses_to_write_for_a_while_costs_nothing(
    host: Any, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    """It is named, nothing is begun, and what the agent said is kept until it is over."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Sick))
    monkeypatch.setattr(Sick, "refusal", None)
    host.write()
    said: list[str] = []

    def turn(turn: Turn) -> str:
        said.append(turn.run_id)
        if len(said) == 1:
            Sick.refusal = refusal
        return f"said {len(said)}"

    async with host.engine(agent=ScriptedAgent(default=turn)) as engine:
        await engine.fire("check", slot="ticket-17")
        await engine.fire("check", slot="ticket-18", after=5 * MINUTE)
        await host.clock.advance(10 * MINUTE)
        wanted = "store-full" if refusal == sqlite3.SQLITE_FULL else "store-failed"
        assert [fault.code for fault in (await engine.status()).faults] == [wanted]
        with pytest.raises(StoreError, match=wanted):
            await engine.fire("check")
        assert len(said) == 1
        Sick.refusal = None
        await host.clock.advance(MINUTE)
        runs = await engine.runs()
        assert [(run.fire.slot, run.state, run.delivery) for run in runs] == [
            ("ticket-18", "succeeded", "delivered"),
            ("ticket-17", "succeeded", "delivered"),
        ]
        assert [run.intent and run.intent.text for run in runs] == ["said 2", "said 1"]
        assert len(said) == 2
        assert (await engine.status()).faults == ()


async def test_trouble_is_seen_said_once_and_stops_the_dispatching(host: Any) -> None:
    host.write()
    store = failing(host)
    with capture_logs() as logs:
        async with host.engine(store=store) as engine:
            await engine.fire("check")
            await engine.fire("check", after=5 * MINUTE)
            await engine.settled()
            store.failing = frozenset(METHODS)
            await host.clock.advance(10 * MINUTE)
            status = await engine.status()
            assert status.state == "running"
            assert status.faults == (FULL,)
            assert status.waiting == ()
            with pytest.raises(StoreError, match="store-full"):
                await engine.settled()
            for call in (engine.runs, lambda: engine.fire("check"), lambda: engine.run("check")):
                with pytest.raises(StoreError, match="store-full"):
                    await call()
            store.failing = frozenset()
            assert await engine.runs() != []
            await host.clock.advance(30 * SECOND)
            assert (await engine.status()).faults == ()
            await engine.settled()
            assert len(await engine.runs()) == 2
    said = [line["event"] for line in logs if line["event"].startswith("store_")]
    assert said == ["store_trouble", "store_recovered"]


async def test_it_is_probed_each_half_minute(host: Any) -> None:
    host.write()
    store = failing(host)
    async with host.engine(store=store, deliverer=None) as engine:
        await engine.settled()
        store.failing = frozenset({"claim_fire", "marks", "record"})
        await engine.fire("check")
        await host.clock.advance(SECOND)
        before = store.failures
        await host.clock.advance(5 * MINUTE)
        assert store.failures - before == 10
        store.failing = frozenset()


async def test_trouble_that_nothing_is_due_for_is_noticed_to_be_over(host: Any) -> None:
    """A read of the host's own may have found it; the dispatcher is asleep by then."""
    store = failing(host)
    async with host.engine(store=store) as engine:
        await engine.settled()
        store.failing = frozenset({"fires"})
        assert (await engine.status()).faults == (FULL,)
        store.failing = frozenset()
        await host.clock.advance(31 * SECOND)
        assert (await engine.status()).faults == ()


async def test_a_finished_result_is_held_and_committed_when_there_is_room(host: Any) -> None:
    host.write()

    host.agent = host.sleeper(MINUTE)
    store = failing(host)
    async with host.engine(store=store) as engine:
        await engine.fire("check")
        await host.clock.advance(SECOND)
        store.failing = frozenset({"finish"})
        await host.clock.advance(10 * MINUTE)
        assert len((await engine.status()).running) == 1
        store.failing = frozenset()
        (run,) = await drive(engine, until=host.clock.now() + MINUTE)
        assert (run.state, run.delivery) == ("succeeded", "delivered")
    assert len(host.agent.turns) == 1


async def test_a_lease_that_could_not_be_renewed_is_renewed_later(host: Any) -> None:
    host.write()

    async def think(turn: Turn) -> str:
        for _ in range(20):
            await host.clock.sleep(MINUTE)
        return "done"

    host.agent = ScriptedAgent(default=think)
    store = failing(host, "renew")
    async with host.engine(store=store) as engine:
        await engine.fire("check")
        await host.clock.advance(3 * MINUTE)
        assert store.failures >= 1
        store.failing = frozenset()
        (run,) = await drive(engine, until=START + HOUR)
        assert run.state == "succeeded"


async def test_draining_does_not_wait_for_a_store_in_trouble(host: Any) -> None:
    """What could not be written is settled by the next start."""
    host.write()
    store = failing(host)
    async with host.engine(store=store) as engine:
        await engine.settled()
        store.failing = frozenset({"finish", "settle_intent"})
        waiting: list[str] = []

        async def run() -> None:
            with pytest.raises(EngineBusy):
                await engine.run("check")
            waiting.append("told")

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await host.clock.advance(MINUTE)
            await engine.drain("a deploy")
        assert waiting == ["told"]
    async with host.engine() as engine:
        await engine.settled()
        (run_after,) = await engine.runs()
        assert run_after.state == "interrupted"
        assert [intent.gate for intent in host.deliverer.intents] == ["run-failed"]


async def test_leaving_does_not_wait_for_a_store_in_trouble(host: Any) -> None:
    """Neither for a delivery's answer nor for a run's end; both are made up for."""
    host.write()
    host.write("other")
    store = failing(host)
    async with host.engine(store=store) as engine:
        run = await engine.run("other")
        await engine.settled()
        store.failing = frozenset({"settle_intent"})
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        assert len(host.deliverer.intents) == 2
    async with host.engine() as engine:
        await engine.settled()
        assert {run.delivery for run in await engine.runs()} == {"delivered"}
    assert [intent.attempt for intent in host.deliverer.intents] == [1, 1, 2]
    assert run.intent is not None


@pytest.mark.parametrize("methods", [("record",), ("take_over",), ("record", "finish")])
async def test_an_engine_starts_in_trouble_and_makes_up_for_it(
    host: Any, methods: tuple[str, ...]
) -> None:
    """Marks of schedules and runs that were left are written once the store takes them."""
    host.write(trigger=schedule("every 10 minutes"))
    host.write("poll", trigger=schedule("*/10 * * * *"))
    store = failing(host, *methods)
    with capture_logs() as logs:
        async with host.engine(store=store) as engine:
            # What else is written may go well at once, and take the fault back.
            assert "store-full" in [line.get("code") for line in logs]
            await host.clock.advance(MINUTE)
            store.failing = frozenset()
            await host.clock.advance(MINUTE)
            assert (await engine.status()).faults == ()
            runs = await drive(engine, until=START + 13 * MINUTE)
    assert sorted(run.slug for run in runs) == ["check", "poll"]


async def test_a_store_that_cannot_be_read_is_refused_on_entering(host: Any) -> None:
    store = failing(host, "marks")
    with pytest.raises(StoreError, match="store-full"):
        await host.engine(store=store).__aenter__()
    async with host.engine():
        pass


async def test_a_half_done_reload_is_done_by_the_next(host: Any) -> None:
    """Two edits, of which the store took none or one."""
    host.write("a", trigger=schedule("0 * * * *"))
    host.write("b", trigger=schedule("0 * * * *"))
    host.write("gone", trigger=schedule("0 * * * *"))
    store = failing(host)
    async with host.engine(store=store) as engine:
        await engine.fire("gone", after=HOUR)
        host.write("a", trigger=schedule("20 * * * *"))
        host.write("b", trigger=schedule("40 * * * *"))
        host.write("c", trigger=schedule("every full moon"))
        (host.workspace / "automations" / "gone.md").unlink()
        store.failing = frozenset({"record"})
        for _ in range(3):
            with pytest.raises(StoreError):
                await engine.reload()
        await host.look(2)
        store.failing = frozenset()
        await host.look(2)
        due = await engine.upcoming(until=START + HOUR)
        assert [(moment.slug, moment.slot - START) for moment in due] == [
            ("a", 20 * MINUTE),
            ("b", 40 * MINUTE),
        ]
        assert [fire.reason for fire in await engine.fires("gone")] == ["removed"]
        assert len(await host.events(engine, "automation_unschedulable")) == 1


async def test_a_workspace_error_that_could_not_be_written_is_written_later(host: Any) -> None:
    host.write()
    store = failing(host)
    async with host.engine(store=store) as engine:
        (host.workspace / "automations").rename(host.workspace / "away")
        store.failing = frozenset({"record"})
        await host.clock.advance(MINUTE)
        store.failing = frozenset()
        await host.clock.advance(MINUTE)
        assert len(await host.events(engine, "workspace_error")) == 1


async def test_a_jump_of_the_clock_during_trouble_is_an_event_afterwards(host: Any) -> None:
    store = failing(host)
    async with host.engine(store=store) as engine:
        await host.clock.advance(MINUTE)
        store.failing = frozenset({"record"})
        host.clock.jump(HOUR)
        await host.clock.advance(5 * MINUTE)
        store.failing = frozenset()
        await host.clock.advance(MINUTE)
        (event,) = await host.events(engine, "clock_jumped")
        assert event.data["seconds"] == HOUR.total_seconds()


# ---- a file that is taken away


def taken_away(host: Any) -> None:
    (host.data / "drumbeat.db").rename(host.workspace / "kept.db")


def replaced(host: Any) -> None:
    taken_away(host)
    (host.data / "drumbeat.db").write_bytes((host.workspace / "kept.db").read_bytes())


@pytest.mark.parametrize("spoil", [taken_away, replaced])
async def test_a_store_that_was_taken_away_accepts_nothing_until_it_is_back(
    host: Any, spoil: Any
) -> None:
    """What is written to a file that nobody will find is lost, so it is refused."""
    host.write()
    async with host.engine() as engine:
        first = await host.fire(engine)
        spoil(host)
        with pytest.raises(StoreError) as caught:
            await engine.fire("check")
        assert caught.value.problem.code == "store-gone"
        with pytest.raises(StoreError):
            await engine.runs()
        await host.clock.advance(MINUTE)
        assert [fault.code for fault in (await engine.status()).faults] == ["store-gone"]
        (host.workspace / "kept.db").rename(host.data / "drumbeat.db")
        await host.clock.advance(HOUR)
        assert (await engine.status()).faults == ()
        last = await host.fire(engine)
        assert [run.run_id for run in await engine.runs()] == [last.run_id, first.run_id]


def opened_by_another(host: Any) -> None:
    """Another program makes a database at the path, and takes the engine's log with it."""
    own = sqlite3.connect(host.data / "drumbeat.db")
    own.execute("PRAGMA wal_checkpoint(PASSIVE)")
    own.close()
    taken_away(host)
    other = sqlite3.connect(host.data / "drumbeat.db")
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("CREATE TABLE other (x)")
    other.close()
    (host.data / "drumbeat.db").unlink()
    (host.workspace / "kept.db").rename(host.data / "drumbeat.db")


async def test_who_wrote_to_a_log_that_was_replaced_opens_the_file_again(host: Any) -> None:
    """Else nobody would hear of what it writes, and it of nothing that is asked for."""
    host.write()
    async with host.engine() as engine:
        first = await host.fire(engine)
        opened_by_another(host)
        with pytest.raises(StoreError, match="store-gone"):
            await engine.runs()
        await host.clock.advance(MINUTE)
        assert (await engine.status()).faults == ()
        assert [run.run_id for run in await engine.runs()] == [first.run_id]
        async with Client(host.workspace) as beside:
            beside._clock = host.clock
            fire = await beside.fire("check")
            await host.clock.advance(DAY)
            for each in (engine, beside):
                latest, earliest = await each.runs()
                assert (latest.fire.id, earliest.run_id) == (fire.id, first.run_id)


async def test_no_client_makes_a_file_where_an_engine_misses_one(host: Any) -> None:
    """Not the command `pause`, not a standby: it would stand in the way of the one that is away."""
    host.write()
    async with Client(host.workspace) as early, host.engine() as engine:
        first = await host.fire(engine)
        taken_away(host)
        with pytest.raises(StoreError, match="store-gone"):
            await early.pause("check", "a look")
        with pytest.raises(StoreError, match="although an engine holds the folder"):
            async with Client(host.workspace):
                pass
        with pytest.raises(StoreError, match="although an engine holds the folder"):
            async with host.engine(standby=True):
                pass
        assert not (host.data / "drumbeat.db").exists()
        (host.workspace / "kept.db").rename(host.data / "drumbeat.db")
        await early.pause("check", "a look")
        await host.clock.advance(MINUTE)
        assert (await engine.status()).faults == ()
        assert (await engine.status()).paused == {"check": "a look"}
        assert [run.run_id for run in await engine.runs()] == [first.run_id]


async def test_an_empty_database_beside_other_state_is_said(host: Any) -> None:
    host.write()
    with capture_logs() as logs:
        async with host.engine() as engine:
            await host.fire(engine)
        assert "history_begins_anew" not in [line["event"] for line in logs]
        taken_away(host)
        async with host.engine():
            pass
    (said,) = [line for line in logs if line["event"] == "history_begins_anew"]
    assert said["log_level"] == "warning"
    assert set(said["beside"]) >= {"session_pins.json", "runs"}


async def test_a_store_that_is_taken_away_within_a_transaction_is_not_written(host: Any) -> None:
    """The run is held, and committed when the file is back."""
    host.write()

    def spoils(turn: Turn) -> str:
        taken_away(host)
        return "done"

    async with host.engine(agent=ScriptedAgent(default=spoils)) as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        assert [fault.code for fault in (await engine.status()).faults] == ["store-gone"]
        (host.workspace / "kept.db").rename(host.data / "drumbeat.db")
        await host.clock.advance(HOUR)
        (run,) = await engine.runs()
        assert run.state == "succeeded"
