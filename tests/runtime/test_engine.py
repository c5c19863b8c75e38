"""The life of an engine: entering, leaving, draining, and what a fault does to its host."""

import asyncio
import gc
import json
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
from anyio import from_thread, to_thread
from structlog.testing import capture_logs

from drumbeat import (
    Client,
    DrumbeatError,
    Engine,
    EngineBusy,
    NotFound,
    NotRun,
    Receipt,
    Settings,
    StoreError,
    Turn,
    WorkspaceError,
)
from drumbeat.runtime.awaited import AwaitedTurns
from drumbeat.runtime.dispatcher import Dispatcher
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import ManualClock, ScriptedAgent, drive

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Broken(SqliteStore):
    """A store with a mistake: one of its methods raises, once it is told to."""

    def __init__(self, path: Path, *, clock: ManualClock, method: str) -> None:
        super().__init__(path, clock=clock)
        self.method = method
        self.broken = False
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1
        await super().close()

    async def claim_fire(self, **given: Any) -> Any:
        self._check("claim_fire")
        return await super().claim_fire(**given)

    async def add_fires(self, *given: Any, **named: Any) -> Any:
        self._check("add_fires")
        return await super().add_fires(*given, **named)

    async def finish(self, *given: Any, **named: Any) -> None:
        self._check("finish")
        await super().finish(*given, **named)

    async def take_over(self) -> Any:
        self._check("take_over")
        return await super().take_over()

    async def claim_intent(self, **given: Any) -> Any:
        self._check("claim_intent")
        return await super().claim_intent(**given)

    def _check(self, method: str) -> None:
        if self.broken and method == self.method:
            msg = f"a mistake in {method}"
            raise RuntimeError(msg)


def broken(host: Any, method: str) -> Broken:
    return Broken(host.data / "drumbeat.db", clock=host.clock, method=method)


# ---- making and entering


def test_making_an_engine_touches_nothing(tmp_path: Path) -> None:
    """No loop is needed, no folder is made, and the workspace need not exist."""
    engine = Engine(tmp_path / "nowhere", agent=ScriptedAgent())
    assert engine.data_dir == tmp_path / "nowhere" / ".drumbeat"
    assert list(tmp_path.iterdir()) == []


async def test_what_needs_an_engine_that_runs_says_so(host: Any) -> None:
    host.write()
    engine = host.engine()
    calls: list[Callable[[], Awaitable[object]]] = [
        engine.status,
        engine.wait,
        engine.settled,
        engine.reload,
        engine.runs,
        engine.sweep,
        lambda: engine.run("check"),
        lambda: engine.fire("check"),
        lambda: engine.drain("now"),
        lambda: engine.why("check", at=host.clock.now()),
    ]
    for call in calls:
        with pytest.raises(DrumbeatError) as caught:
            await call()
        assert caught.value.problem.code == "not-entered"
    async with engine:
        pass
    calls.remove(engine.wait)
    for call in calls:
        with pytest.raises(DrumbeatError) as caught:
            await call()
        assert caught.value.problem.code == "left"
    await engine.wait()


async def test_an_engine_is_entered_once(host: Any) -> None:
    async with host.engine() as engine:
        with pytest.raises(DrumbeatError) as caught:
            await engine.__aenter__()
        assert caught.value.problem.code == "entered-twice"
    with pytest.raises(DrumbeatError, match="entered-twice"):
        await engine.__aenter__()


async def test_a_second_engine_is_refused_and_told_who_holds_the_folder(host: Any) -> None:
    async with host.engine():
        with pytest.raises(EngineBusy, match=r"engine holds .* process \d+ on .* since 2026"):
            async with host.engine():
                pytest.fail("entered beside another engine")
    async with host.engine() as engine:
        assert (await engine.status()).state == "running"


async def test_entering_that_fails_gives_back_the_folder(host: Any) -> None:
    host.write()
    store = broken(host, "take_over")
    store.broken = True
    with pytest.raises(RuntimeError, match="a mistake in take_over"):
        async with host.engine(store=store):
            pytest.fail("entered")
    assert store.closed == 1
    async with host.engine() as engine:
        assert (await engine.run("check")).state == "succeeded"


async def test_a_workspace_that_cannot_be_read_is_refused_and_nothing_made(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "nowhere", agent=ScriptedAgent(), env={})
    with pytest.raises(WorkspaceError, match="workspace-missing"):
        await engine.__aenter__()
    assert list(tmp_path.iterdir()) == []


async def test_a_data_folder_that_cannot_be_made_is_refused(host: Any) -> None:
    host.data.write_text("in the way", encoding="utf-8")
    with pytest.raises(StoreError, match="data-dir-unwritable"):
        await host.engine().__aenter__()


async def test_a_zone_that_is_none_is_refused_before_anything_is_made(host: Any) -> None:
    with pytest.raises(DrumbeatError, match="zone-unknown"):
        await host.engine(timezone="Berlin/Europe").__aenter__()
    assert not host.data.exists()


@pytest.mark.parametrize(
    "zone, error, said",
    [
        (5, TypeError, "timezone must be"),
        (b"UTC", TypeError, "timezone must be"),
        ("", DrumbeatError, "timezone is blank"),
        (" ", DrumbeatError, "timezone is blank"),
        ("UTC+2", DrumbeatError, "zone-fixed-offset"),
        (timezone(timedelta(hours=1)), DrumbeatError, "zone-fixed-offset"),
    ],
)
def test_what_can_name_no_zone_is_refused_as_an_engine_is_made(
    zone: Any, error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        Engine(tmp_path, agent=ScriptedAgent(), timezone=zone)


async def test_cancelled_while_entering_it_gives_back_the_folder(host: Any) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with host.engine():
            pytest.fail("entered although cancelled")
    async with host.engine():
        pass


async def test_the_data_folder_is_for_its_owner_alone_and_not_for_git(host: Any) -> None:
    async with host.engine():
        assert host.data.stat().st_mode & 0o777 == 0o700
        assert (host.data / ".gitignore").read_text(encoding="utf-8") == "*\n"
        for name in (".gitignore", "drumbeat.db", "engine.lock"):
            assert (host.data / name).stat().st_mode & 0o777 == 0o600
        holder = json.loads((host.data / "engine.lock").read_text(encoding="utf-8"))["holder"]
        assert holder.startswith("process ")


async def test_settings_come_from_the_environment(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_CONCURRENT_RUNS", "none")
    engine = Engine(host.workspace, agent=host.agent, clock=host.clock, timezone="UTC")
    with pytest.raises(DrumbeatError, match="MAX_CONCURRENT_RUNS"):
        await engine.__aenter__()
    monkeypatch.setenv("MAX_CONCURRENT_RUNS", "1")
    async with engine:
        assert (await engine.status()).state == "running"


async def test_a_run_that_is_going_is_shown_as_far_as_it_has_come(host: Any) -> None:
    """By the engine as by a client, which reads what is written down after each turn."""
    host.write(steps=["Look.", "Look again."])

    async def look(turn: Turn) -> str:
        if turn.step_id == "step-2":
            await host.clock.sleep(HOUR)
        return "done"

    async with (
        host.engine(agent=ScriptedAgent(default=look)) as engine,
        Client(host.workspace) as client,
    ):
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        (shown,), (read,) = (await engine.status()).running, (await client.status()).running
        assert [turn.step_id for turn in shown.turns] == ["step-1"]
        assert shown.session_id is not None
        assert shown == read


# ---- running by hand


async def test_a_disabled_automation_runs_by_hand(host: Any) -> None:
    host.write(enabled=False)
    async with host.engine() as engine:
        assert (await engine.run("check")).state == "succeeded"


async def test_an_unknown_slug_is_refused_and_the_known_ones_are_named(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        for call in (engine.run, engine.fire):
            with pytest.raises(NotFound, match=r"no automation 'chek'(.|\n)*check"):
                await call("chek")


async def test_a_file_written_a_moment_ago_can_be_run(host: Any) -> None:
    async with host.engine() as engine:
        host.write()
        assert (await engine.run("check")).state == "succeeded"


async def test_cancelling_who_waits_for_a_run_leaves_the_run_alone(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(HOUR / 2)
    async with host.engine() as engine:
        async with anyio.create_task_group() as group:
            group.start_soon(engine.run, "check")
            await host.clock.advance(MINUTE)
            assert len((await engine.status()).running) == 1
            group.cancel_scope.cancel()
        (run,) = await drive(engine, until=host.clock.now() + HOUR)
    assert run.state == "succeeded"


async def test_a_run_whose_file_vanished_says_that_it_did_not_run(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        (host.workspace / "automations" / "check.md").unlink()
        caught: list[NotRun] = []

        async def run() -> None:
            try:
                await engine.run("check")
            except NotRun as error:
                caught.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await host.clock.advance(MINUTE)
            await host.look(2)
    assert caught[0].fire.verdict == "skipped"
    assert caught[0].fire.reason == "removed"


# ---- what an engine tells


async def test_the_status_says_what_runs_what_waits_and_in_which_zones(host: Any) -> None:
    host.write("slow")
    host.write("next")
    host.agent = host.sleeper(HOUR)
    async with host.engine(settings={"max_concurrent_runs": 1}, timezone="Europe/Berlin") as engine:
        await engine.fire("slow")
        await engine.fire("next")
        await host.clock.advance(MINUTE)
        status = await engine.status()
        assert status.state == "running"
        assert [run.slug for run in status.running] == ["slow"]
        assert [fire.slug for fire in status.waiting] == ["next"]
        assert status.zones == {
            "automation": ("Europe/Berlin", "timezone"),
            "job": ("Europe/Berlin", "timezone"),
        }
        assert [automation.slug for automation in status.workspace.automations] == ["next", "slow"]
        assert status.path[0] == host.workspace / "bin"
        assert status.faults == ()
        await drive(engine, until=host.clock.now() + 3 * HOUR)
        assert (await engine.status()).waiting == ()


@pytest.mark.parametrize("who", ["client", "engine"])
async def test_secrets_of_a_fire_are_redacted_from_its_event_and_its_intent(
    host: Any, who: str
) -> None:
    """Whoever asks; the fire itself keeps what makes it unique, and what it runs."""
    host.write()
    secret = "correct-horse-battery"
    given = {"KEY": secret}

    async def say(turn: Any) -> str:
        if turn.origin == "step":
            await turn.follow_ups.schedule(f"use {secret}", after=MINUTE)
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with (
        host.engine(secrets=given, deliverer=None) as engine,
        Client(host.workspace, secrets=given) as client,
    ):
        client._clock = host.clock
        asking = client if who == "client" else engine
        fire = await asking.fire("check", slot=f"ticket {secret}")
        assert fire.slot == f"ticket {secret}"
        assert (await asking.fire("check", slot=f"ticket {secret}")).id == fire.id
        for _ in range(3):
            await host.clock.advance(2 * MINUTE)
        first, second = await asking.intents("pending")
        added, follow_up = await host.events(engine, "fire_added")
        assert (await asking.fires())[-1].slot == f"ticket {secret}"
    assert added.data["slot"] == first.fire.slot == "ticket [redacted KEY]"
    assert second.fire.prompt == "use [redacted KEY]"
    assert secret not in repr((added, follow_up, first, second))


async def test_secrets_are_redacted_from_events(host: Any) -> None:
    host.write()
    secret = "correct-horse-battery"
    host.agent = ScriptedAgent(default=RuntimeError(f"refused {secret}"))
    async with host.engine(secrets={"KEY": secret}) as engine:
        await engine.run("check")
        seen = [event async for event in engine.events(follow=False)]
    assert any(event.kind == "automation_error" for event in seen)
    told = repr([event.data for event in seen])
    assert secret not in told
    assert "[redacted KEY]" in told


async def test_sweep_finds_no_finished_run_without_an_intent(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        await engine.run("check")
        assert await engine.sweep() == []


# ---- leaving and draining


async def test_leaving_settles_what_runs_as_interrupted(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(HOUR)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
    async with host.engine() as engine:
        (run,) = await engine.runs()
        (fire,) = await engine.fires()
        await engine.settled()
        assert run.state == "interrupted"
        assert run.intent is not None
        assert run.intent.gate == "run-failed"
        assert fire.verdict == "ran"
        assert [intent.run_id for intent in host.deliverer.intents] == [run.run_id]
        assert await engine.sweep() == []


async def test_draining_lets_what_runs_end_and_starts_nothing_more(host: Any) -> None:
    host.write("slow")
    host.write("next")
    host.agent = host.sleeper(MINUTE / 3)
    settings = {"max_concurrent_runs": 1, "drain_timeout": MINUTE}
    async with host.engine(settings=settings) as engine:
        await engine.fire("slow")
        await engine.fire("next")
        await host.clock.advance(timedelta(seconds=1))
        async with anyio.create_task_group() as group:
            group.start_soon(engine.drain, "a deploy")
            await host.clock.advance(timedelta(seconds=1))
            assert (await engine.status()).state == "draining"
            with pytest.raises(EngineBusy, match="draining"):
                await engine.run("next")
            await host.clock.advance(MINUTE)
        assert (await engine.status()).state == "stopped"
        assert [(run.slug, run.state) for run in await engine.runs()] == [("slow", "succeeded")]
        for call in (engine.run, engine.fire):
            with pytest.raises(EngineBusy, match="has stopped"):
                await call("next")
        await engine.drain("again")
        await engine.wait()
        await engine.settled()
    host.agent = ScriptedAgent(default="done")
    async with host.engine() as engine:
        await engine.settled()
        assert [fire.verdict for fire in await engine.fires("next")] == ["ran"]


@pytest.mark.parametrize(
    "how, reason",
    [
        ("left", "the engine's block was left"),
        ("cancelled", "the engine's block was cancelled"),
        ("drained", "a new release"),
    ],
)
async def test_whatever_begins_the_end_is_said_once(host: Any, how: str, reason: str) -> None:
    """The log of a host that only leaves the block tells that the engine takes nothing more."""
    host.write()
    with capture_logs() as logs, anyio.CancelScope() as scope:
        async with host.engine() as engine:
            if how == "cancelled":
                scope.cancel()
                await anyio.sleep_forever()
            if how == "drained":
                await engine.drain("a new release")
    (line,) = [line for line in logs if line["event"] == "engine_draining"]
    assert (line["log_level"], line["reason"]) == ("info", reason)


async def test_a_drain_that_takes_too_long_cancels_and_settles(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(HOUR)
    async with host.engine() as engine:
        waiting: list[object] = []

        async def run() -> None:
            waiting.append((await engine.run("check")).state)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await host.clock.advance(MINUTE)
            group.start_soon(engine.drain, "a deploy")
            await host.clock.advance(MINUTE)
        (record,) = await engine.runs()
        assert record.state == "interrupted"
        assert record.finished_at == record.started_at + MINUTE + Settings().drain_timeout
    assert waiting == ["interrupted"]


async def test_cancelling_who_drains_leaves_the_draining_alone(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(MINUTE / 4)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(timedelta(seconds=1))
        async with anyio.create_task_group() as group:
            group.start_soon(engine.drain, "a deploy")
            await host.clock.advance(timedelta(seconds=1))
            group.cancel_scope.cancel()
        await host.clock.advance(MINUTE)
        await engine.wait()
        (run,) = await engine.runs()
        assert run.state == "succeeded"


async def test_a_body_that_is_cancelled_settles_what_runs(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(HOUR)
    async with anyio.create_task_group() as group:
        ready = anyio.Event()

        async def serve() -> None:
            async with host.engine() as engine:
                await engine.fire("check")
                await host.clock.advance(MINUTE)
                ready.set()
                await anyio.sleep_forever()

        group.start_soon(serve)
        await ready.wait()
        group.cancel_scope.cancel()
    async with host.engine() as engine:
        (run,) = await engine.runs()
        assert run.state == "interrupted"
        assert await engine.sweep() == []


async def test_a_body_that_returns_although_cancelled_is_left_at_once(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(HOUR)
    with anyio.CancelScope() as scope:
        async with host.engine() as engine:
            await engine.fire("check")
            await host.clock.advance(MINUTE)
            scope.cancel()
            assert anyio.current_effective_deadline() == -math.inf
    async with host.engine() as engine:
        assert [run.state for run in await engine.runs()] == ["interrupted"]


async def test_a_body_that_raises_gets_its_own_exception(host: Any) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with host.engine():
            raise KeyError("mine")
    async with host.engine():
        pass


async def test_leaving_waits_for_deliveries_that_are_going_but_not_for_ever(host: Any) -> None:
    """One that only takes a moment is recorded; one that sleeps on the clock is repeated later."""
    host.write()

    class Slow:
        attempts: list[int] = []  # noqa: RUF012

        async def deliver(self, intent: Any, /) -> None:
            self.attempts.append(intent.attempt)
            if len(self.attempts) == 1:
                await host.clock.sleep(MINUTE / 2)

    async with host.engine(deliverer=Slow()) as engine:
        await engine.run("check")
    async with host.engine(deliverer=Slow()) as engine:
        pass
    assert Slow.attempts == [1, 2]
    async with host.engine(deliverer=Slow()) as engine:
        assert await engine.intents("pending") == []


async def test_a_secret_in_a_file_is_in_no_log_and_no_fault(host: Any) -> None:
    secret = "correct-horse-battery"
    host.write("odd", trigger={"type": "schedule", "expression": f"every {secret}"})
    host.file("automations/broken.md", f"---\nautomation:\n  {secret}: 1\n---\n")
    with capture_logs() as logs:
        async with host.engine(secrets={"KEY": secret}) as engine:
            host.file("agent-config.yaml", f"{secret}: 1\n")
            host.file("automations/second.md", f"---\nautomation:\n  {secret}: 1\n---\n")
            await host.look(2)
            status = await engine.status()
            assert len(status.faults) == 1
            assert secret not in str(status.faults)
    said = {line["event"] for line in logs}
    assert {"automation_broken", "workspace_error", "automation_unschedulable"} <= said
    assert secret not in str(logs)
    assert "[redacted KEY]" in str(logs)


async def test_a_receipt_that_is_acknowledged_is_redacted_and_checked(host: Any) -> None:
    host.write()
    async with host.engine(deliverer=None, secrets={"KEY": "correct-horse"}) as engine:
        await engine.run("check")
        (intent,) = await engine.intents("pending")
        for wrong in (Receipt(id=5), "chat-1"):
            with pytest.raises(TypeError, match="receipt must be a Receipt"):
                await engine.acknowledge(intent.id, wrong)
        await engine.acknowledge(intent.id, Receipt(id="chat-1", url="https://x/correct-horse"))
        (run,) = await engine.runs()
        assert run.receipt == Receipt(id="chat-1", url="https://x/[redacted KEY]")


# ---- faults


@pytest.mark.parametrize("method", ["claim_fire", "claim_intent"])
async def test_a_fault_of_the_engine_never_cancels_the_body_and_wait_raises_it(
    host: Any, method: str
) -> None:
    host.write()
    store = broken(host, method)
    async with host.engine(store=store) as engine:
        store.broken = True
        await host.clock.advance(2 * MINUTE)
        with pytest.raises(RuntimeError, match=f"a mistake in {method}"):
            await engine.wait()
        await anyio.lowlevel.checkpoint()
        status = await engine.status()
        assert status.state == "stopped"
        assert [fault.code for fault in status.faults] == ["engine-failed"]
        assert f"a mistake in {method}" in status.faults[0].message
        assert await engine.runs() == []
        with pytest.raises(EngineBusy) as caught:
            await engine.run("check")
        assert isinstance(caught.value.__cause__, RuntimeError)
        with pytest.raises(RuntimeError):
            await engine.settled()


async def test_leaving_raises_the_fault_when_nobody_waited(host: Any) -> None:
    store = broken(host, "claim_fire")
    with pytest.raises(RuntimeError, match="a mistake in claim_fire"):  # noqa: PT012  on leaving
        async with host.engine(store=store):
            store.broken = True
            await host.clock.advance(MINUTE)
    async with host.engine():
        pass


async def test_the_exception_of_the_body_goes_before_the_fault(host: Any) -> None:
    store = broken(host, "claim_fire")
    with pytest.raises(KeyError, match="mine"):  # noqa: PT012  raised on leaving
        async with host.engine(store=store):
            store.broken = True
            await host.clock.advance(MINUTE)
            raise KeyError("mine")


async def test_who_waits_for_a_run_hears_that_the_engine_stopped(host: Any) -> None:
    """The run's own end cannot be written either; the next start settles it."""
    host.write()
    store = broken(host, "finish")
    with pytest.raises(EngineBusy, match="stopped before check") as caught:  # noqa: PT012  on leaving
        async with host.engine(store=store) as engine:
            store.broken = True
            await engine.run("check")
    assert isinstance(caught.value.__cause__, RuntimeError)
    async with host.engine() as engine:
        (run,) = await engine.runs()
        assert run.state == "interrupted"
        assert await engine.sweep() == []


async def test_a_mistake_over_the_counts_of_the_doors_stops_nothing(host: Any) -> None:
    """It stands as a fault, costs no sender his answer, and is tried again."""
    store = host.faulty()
    store.faults["record webhook_refused"] = [RuntimeError("a mistake")] * 2
    async with host.engine(store=store) as engine:
        for _ in range(2):
            answer = await engine.webhook("none", method="POST", headers={}, body=b"")
            assert answer.status == 404
            await host.clock.advance(MINUTE)
            (fault,) = (await engine.status()).faults
            assert (fault.code, "counts of the doors" in fault.message) == ("part-failed", True)
        await host.clock.advance(MINUTE)
        assert (await engine.status()).faults == ()
        (event,) = await host.events(engine, "webhook_refused")
        assert event.data["count"] == 2


async def test_a_client_bears_a_mistake_over_the_counts_of_its_doors(host: Any) -> None:
    """A sender is answered, and leaving goes well; so does a standby, that is a client."""
    host.data.mkdir(mode=0o700)
    store = host.faulty()
    store.faults["record webhook_refused"] = [RuntimeError("a mistake")] * 9
    async with host.engine():
        with capture_logs() as logs:
            async with Client(host.workspace, store=store) as client:
                client._clock = host.clock
                for _ in range(2):
                    answer = await client.webhook("none", method="POST", headers={}, body=b"")
                    assert answer.status == 404
                    await host.clock.advance(MINUTE)
            async with host.engine(standby=True, store=store) as standby:
                await standby.webhook("none", method="POST", headers={}, body=b"")
                await host.clock.advance(MINUTE)
                assert (await standby.health()).state == "standby"
    parts = [line["part"] for line in logs if line["event"] == "part_failed"]
    assert set(parts) == {"counts of the doors"}
    assert len(parts) >= 3


@pytest.mark.parametrize("fault", [None, "a mistake in claim_fire"])
async def test_a_mistake_as_it_stops_is_said_and_the_folder_given_back(
    host: Any, fault: str | None
) -> None:
    """It hides no fault that there was before."""
    store = broken(host, "claim_fire")

    async def mistake(**given: Any) -> None:
        raise RuntimeError("a mistake in record")

    with capture_logs() as logs:
        async with host.engine(store=store) as engine:
            await engine.settled()
            store.broken = fault is not None
            store.record = mistake
            if fault is not None:
                await host.clock.advance(MINUTE)
                with pytest.raises(RuntimeError, match=fault):
                    await engine.wait()
            await anyio.lowlevel.checkpoint()
    assert "stop" in [line["part"] for line in logs if line["event"] == "part_failed"]
    async with host.engine():
        pass


@pytest.mark.parametrize("asked", ["drain", "leave"])
async def test_a_mistake_while_it_drains_is_a_fault_like_any_other(
    host: Any, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops the engine, which is left all the same."""

    async def mistake(*_: Any, **__: Any) -> None:
        raise RuntimeError("a mistake in draining")

    monkeypatch.setattr(Dispatcher, "drain", mistake)
    engine = host.engine()
    with anyio.fail_after(20):
        if asked == "leave":
            with pytest.raises(RuntimeError, match="a mistake in draining"):
                async with engine:
                    pass
        else:
            async with engine:
                with pytest.raises(RuntimeError, match="a mistake in draining"):
                    await engine.drain("a test")
                await anyio.lowlevel.checkpoint()
                assert (await engine.health()).state == "stopped"
    monkeypatch.undo()
    async with host.engine():
        pass


async def test_a_mistake_as_its_turns_are_stopped_gives_the_folder_back(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mistake(*_: Any) -> None:
        raise RuntimeError("a mistake in stopping")

    monkeypatch.setattr(AwaitedTurns, "over", mistake)
    with anyio.fail_after(20), pytest.raises(RuntimeError, match="a mistake in stopping"):
        async with host.engine():
            await host.clock.advance(MINUTE)
    monkeypatch.undo()
    async with host.engine():
        pass


async def test_an_engine_leaves_nothing_behind(host: Any) -> None:
    """What is left is closed: no warning about an open connection or a task comes later."""
    host.write()
    async with host.engine() as engine:
        await engine.run("check")
    del engine
    gc.collect()


async def test_an_engine_that_is_being_entered_says_so(host: Any) -> None:
    host.write()
    store = host.faulty()
    opened, go_on = anyio.Event(), anyio.Event()
    real = store.open

    async def slow(**given: Any) -> None:
        opened.set()
        await go_on.wait()
        await real(**given)

    store.open = slow
    engine = host.engine(store=store)

    async def live() -> None:
        async with engine:
            pass

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(live)
            await opened.wait()
            with pytest.raises(DrumbeatError) as caught:
                await engine.status()
            go_on.set()
    assert caught.value.problem.code == "not-entered"


async def test_who_is_cancelled_with_the_engine_hears_of_that(host: Any) -> None:
    """And not that the engine stopped, which he brought about."""
    host.write()

    host.agent = host.sleeper(HOUR)
    with anyio.fail_after(30), anyio.CancelScope() as scope:
        async with host.engine() as engine, anyio.create_task_group() as group:

            async def stop() -> None:
                await anyio.wait_all_tasks_blocked()
                # The caller is woken before its cancellation can reach it.
                engine._life.dispatcher.waiters.abandon()
                scope.cancel()

            group.start_soon(stop)
            await engine.run("check")
    assert scope.cancelled_caught


@pytest.mark.parametrize("what", ["run", "fire", "reload", "reply"])
async def test_who_is_cancelled_hears_of_that_from_an_engine_that_has_stopped(
    host: Any, what: str
) -> None:
    host.write()
    with anyio.fail_after(30), anyio.CancelScope() as scope:
        async with host.engine() as engine:
            await engine.drain("a test")
            scope.cancel()
            given = {"run": ("check",), "fire": ("check",), "reload": (), "reply": ("x", "y")}
            await getattr(engine, what)(*given[what])
    assert scope.cancelled_caught


# ---- cancellations that no shield keeps out


def lingering(ended: anyio.Event, begun: anyio.Event | None = None) -> ScriptedAgent:
    """An agent whose turns go on for a moment after they were cancelled."""

    async def linger(turn: Turn) -> str:
        if begun is not None:
            begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(200):
                    await anyio.lowlevel.checkpoint()
                await anyio.sleep(0.1)
            ended.set()
        return "never"

    return ScriptedAgent(default=linger)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("body", ["ends", "is cancelled"])
@pytest.mark.parametrize("times", [1, 2, 5])
async def test_cancelling_the_task_that_leaves_gives_up_the_folder_only_when_all_has_ended(
    host: Any, body: str, times: int
) -> None:
    """Only asyncio can throw a cancellation into a task whatever shields it."""
    host.write()
    ended, turn_begun = anyio.Event(), anyio.Event()
    agent = lingering(ended)
    seen: list[Turn] = []

    class Agent:
        async def take_turn(self, turn: Turn, /) -> Any:
            seen.append(turn)
            turn_begun.set()
            return await agent.take_turn(turn)

    async def live() -> None:
        async with host.engine(agent=Agent()) as engine:
            await engine.fire("check", slot="delivery-1")
            await turn_begun.wait()
            if body == "is cancelled":
                await anyio.sleep_forever()

    task = asyncio.ensure_future(live())
    with anyio.fail_after(20):
        await turn_begun.wait()
        for _ in range(times):
            # Each at another point of the leaving.
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended.is_set()
    async with host.engine() as engine:
        await engine.settled()
        states = [run.state for run in await engine.runs()]
    assert states == ["succeeded", "interrupted"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_cancellation_while_it_drains_ends_the_time_that_turns_have(host: Any) -> None:
    """A second Ctrl-C is somebody who will not wait for `drain_timeout`."""
    host.write()
    begun = anyio.Event()

    class Agent:
        async def take_turn(self, turn: Turn, /) -> Any:
            begun.set()
            await anyio.sleep_forever()

    async def live() -> None:
        engine = Engine(
            host.workspace,
            agent=Agent(),
            timezone="UTC",
            env={},
            settings=Settings(drain_timeout=HOUR),
        )
        async with engine:
            await engine.fire("check")
            await begun.wait()

    task = asyncio.ensure_future(live())
    with anyio.fail_after(20):
        await begun.wait()
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with host.engine() as engine:
        assert [run.state for run in await engine.runs()] == ["interrupted"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_time_limit_of_asyncio_around_an_engine_ends_it_and_is_told(host: Any) -> None:
    host.write()
    begun, ended = anyio.Event(), anyio.Event()

    async def live() -> None:
        async with (
            asyncio.timeout(None) as limit,
            host.engine(agent=lingering(ended, begun)) as engine,
        ):
            await engine.fire("check")
            await begun.wait()
            limit.reschedule(asyncio.get_running_loop().time())
            await anyio.sleep_forever()

    with anyio.fail_after(20), pytest.raises(TimeoutError):
        await live()
    assert ended.is_set()


async def test_a_run_that_goes_on_when_a_driven_engine_is_left_is_reported(host: Any) -> None:
    """Nobody moves its clock any more, so the time for that would never come."""
    host.write()
    begun, reported = anyio.Event(), anyio.Event()

    async def hang(turn: Turn) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await reported.wait()

    def hear(logger: Any, method: str, event: Any) -> Any:
        if event["event"] == "run_stuck":
            reported.set()
        raise structlog.DropEvent

    structlog.configure(processors=[hear])
    with anyio.fail_after(20):
        async with host.engine(agent=ScriptedAgent(default=hang)) as engine:
            await engine.fire("check")
            await begun.wait()
    assert reported.is_set()


# ---- a workspace that cannot be read


async def test_work_for_an_unknown_slug_says_that_the_folder_cannot_be_read(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        (host.workspace / "automations").rename(host.workspace / "elsewhere")
        with pytest.raises(WorkspaceError, match="automations"):
            await engine.fire("other")
        assert (await engine.fire("check")).slug == "check"
        (host.workspace / "elsewhere").rename(host.workspace / "automations")
        with pytest.raises(NotFound):
            await engine.fire("other")


async def test_a_turn_cannot_wait_for_a_run_of_its_own_automation(host: Any) -> None:
    """It would wait for itself until its time is up; a task that it left behind may ask."""
    host.write()
    host.write("other")
    refusals: list[DrumbeatError] = []
    others: list[str] = []
    asked = anyio.Event()
    ended = anyio.Event()

    async def asks(turn: Turn) -> str:
        return await body(turn)

    agent = ScriptedAgent({"check/step-1": asks}, default="done")
    async with host.engine(agent=agent) as engine, anyio.create_task_group() as group:

        async def body(turn: Turn) -> str:
            if asked.is_set():
                return "done"
            asked.set()
            others.append((await engine.run("other")).state)
            try:
                await engine.run("check")
            except DrumbeatError as error:
                refusals.append(error)
            group.start_soon(later)
            return "done"

        async def later() -> None:
            await ended.wait()
            others.append((await engine.run("check")).state)

        assert (await engine.run("check")).state == "succeeded"
        ended.set()
    assert [error.problem.code for error in refusals] == ["run-within-itself"]
    assert others == ["succeeded", "succeeded"]


@pytest.mark.parametrize(
    "asked, given",
    [("settled", []), ("wait", []), ("drain", ["done with it"]), ("__aexit__", [None] * 3)],
)
async def test_a_turn_cannot_wait_for_what_waits_for_it(
    host: Any, asked: str, given: list[Any]
) -> None:
    """Nor does the engine begin to drain by it."""
    host.write()
    engines: list[Any] = []

    async def within(turn: Turn) -> str:
        await getattr(engines[0], asked)(*given)
        return "It came back."

    async with host.engine(agent=ScriptedAgent(default=within)) as engine:
        engines.append(engine)
        with anyio.fail_after(20):
            run = await engine.run("check")
        assert run.failure.code == "turn-waits-for-itself"
        await engine.settled()
        assert (await engine.status()).state == "running"


@pytest.mark.parametrize("asked", ["run", "status", "fire", "runs", "events"])
async def test_an_engine_answers_in_the_thread_that_entered_it_alone(host: Any, asked: str) -> None:
    """Elsewhere nothing would wake who waits; a worker thread can ask by way of its loop."""
    host.write()

    async def ask(engine: Any) -> Any:
        if asked == "events":
            return [event async for event in engine.events(follow=False)]
        return await getattr(engine, asked)(*(["check"] if asked in ("run", "fire") else []))

    async with host.engine() as engine:
        with pytest.raises(DrumbeatError) as refused, anyio.fail_after(20):
            await to_thread.run_sync(lambda: anyio.run(ask, engine))
        assert refused.value.problem.code == "other-thread"
        await to_thread.run_sync(lambda: from_thread.run(ask, engine))


async def test_drive_returns_a_run_that_ends_before_anything_else(host: Any) -> None:
    """However quick it is, and however slow the first look at the records."""
    host.write()
    host.data.mkdir(mode=0o700)
    finished = anyio.Event()

    class Late(SqliteStore):
        async def runs(self, **given: Any) -> Any:
            if (given.get("limit") or 0) > 100:  # a look at what has been
                await finished.wait()
            return await super().runs(**given)

        async def finish(self, *given: Any, **named: Any) -> None:
            await super().finish(*given, **named)
            finished.set()

    store = Late(host.data / "drumbeat.db", clock=host.clock)
    async with host.engine(store=store, deliverer=None) as engine:
        fire = await engine.fire("check")
        (run,) = await drive(engine, until=host.clock.now())
        assert run.fire.id == fire.id
        assert await drive(engine, until=host.clock.now()) == []
