"""Several engines on one folder: one holds it, the others wait as clients and take over."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from drumbeat import Engine, EngineBusy, NotFound, NotRun, RunRecord, StoreError, Turn
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.tenure import Tenure
from drumbeat.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Holder:
    """An engine in a task of its own, so that it can be left before what was entered later."""

    def __init__(self) -> None:
        self.engine: Any = None
        self.go = anyio.Event()
        self.gone = anyio.Event()

    async def live(self, engine: Engine, *, task_status: Any) -> None:
        async with engine:
            self.engine = engine
            task_status.started()
            await self.go.wait()
        self.gone.set()

    async def leave(self) -> None:
        self.go.set()
        await self.gone.wait()


@asynccontextmanager
async def held(host: Any, **options: Any) -> AsyncIterator[Holder]:
    """A holder of the folder, which has left at the end at the latest."""
    holder = Holder()
    async with anyio.create_task_group() as group:
        await group.start(partial(holder.live, host.engine(**options)))
        yield holder
        holder.go.set()


async def put_in(engine: Engine, slug: str = "check") -> None:
    """Return once a fire of the automation is in the store."""
    while not await engine.fires(slug):
        await anyio.sleep(0.01)


async def state(engine: Engine) -> str:
    return (await engine.status()).state


async def test_a_standby_of_a_folder_that_is_free_is_the_engine(host: Any) -> None:
    host.write()
    async with host.engine(standby=True) as engine:
        assert await state(engine) == "running"
        assert (await engine.run("check")).state == "succeeded"
        assert await host.events(engine, "engine_took_over") == []


async def test_a_standby_reads_and_asks_like_a_client(host: Any) -> None:
    host.write(trigger={"type": "schedule", "expression": "daily at 08:00"})
    async with host.engine(timezone="Asia/Tokyo") as holder, host.engine(standby=True) as engine:
        assert await state(engine) == "standby"
        run = await holder.run("check")
        await holder.settled()
        assert await engine.find_run(run.run_id) == await holder.find_run(run.run_id)
        until = host.clock.now() + timedelta(days=2)
        assert await engine.upcoming(until=until) == await holder.upcoming(until=until)
        assert (await engine.status()).zones == (await holder.status()).zones
        assert await engine.sessions() == await holder.sessions()
        await engine.pause("check", "holiday")
        assert (await holder.status()).paused == {"check": "holiday"}
        await engine.resume("check")
        await engine.rotate("check", "stale")
        await host.clock.advance(MINUTE)
        assert await holder.sessions() == {}
        fire = await engine.fire("check")
        await host.clock.advance(MINUTE)
        assert [run.fire.id for run in await holder.runs(limit=1)] == [fire.id]
        assert (await engine.why("check", at=fire.due)).startswith("check (manual) due at ")
        with pytest.raises(NotFound, match="slug-unknown"):
            await engine.fire("chek")


async def test_what_needs_the_folder_is_refused_while_standing_by(host: Any) -> None:
    host.write()
    async with host.engine(), host.engine(standby=True) as engine:
        for call in (engine.settled, engine.reload):
            with pytest.raises(EngineBusy) as caught:
                await call()
            assert caught.value.problem.code == "engine-standby"


async def test_run_waits_for_the_record_that_the_holder_makes(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(10 * MINUTE)
    records: list[RunRecord] = []

    async def run(engine: Engine) -> None:
        records.append(await engine.run("check"))

    async with host.engine() as holder, host.engine(standby=True) as engine:
        async with anyio.create_task_group() as group:
            group.start_soon(run, engine)
            await put_in(engine)
            for _ in range(15):
                await host.clock.advance(MINUTE)
        assert records == await holder.runs()
        with pytest.raises(NotFound):
            await engine.run("chek")


async def test_run_of_a_standby_says_when_the_holder_skipped_it(host: Any) -> None:
    host.write()

    async def run(engine: Engine) -> None:
        with pytest.raises(NotRun, match="check did not run: removed") as caught:
            await engine.run("check")
        assert caught.value.fire.verdict == "skipped"

    async with (
        host.engine(settings={"max_concurrent_runs": 1}) as holder,
        host.engine(standby=True) as engine,
        anyio.create_task_group() as group,
    ):
        host.write("other")
        host.agent._script["other/step-1"] = host.sleeper(HOUR)._default
        await holder.reload()
        await holder.fire("other")
        await host.clock.advance(MINUTE)
        group.start_soon(run, engine)
        await put_in(engine)
        (host.workspace / "automations" / "check.md").unlink()
        for _ in range(90):
            await host.clock.advance(MINUTE)


async def test_run_of_a_standby_that_is_left_says_so(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(HOUR)

    async def run(engine: Engine) -> None:
        with pytest.raises(EngineBusy, match="engine-stopped"):
            await engine.run("check")

    async with host.engine(), anyio.create_task_group() as group:
        async with host.engine(standby=True) as engine:
            group.start_soon(run, engine)
            await put_in(engine)
            await host.clock.advance(MINUTE)
        await host.clock.advance(MINUTE)


async def test_the_standby_takes_over_what_the_holder_leaves(host: Any) -> None:
    """What was going is settled, what waits runs, and the files are read as they stand by then."""
    host.write(trigger={"type": "schedule", "expression": "every 60 minutes"})
    host.agent = host.sleeper(10 * MINUTE)
    async with held(host) as holder, host.engine(standby=True) as engine:
        fire = await holder.engine.fire("check", slot="ticket-1")
        await host.clock.advance(MINUTE)
        host.write("later")
        await holder.leave()
        assert await state(engine) == "standby"
        await host.clock.advance(MINUTE)
        assert await state(engine) == "running"
        (event,) = await host.events(engine, "engine_took_over")
        assert event.data["holder"].startswith("process ")
        await host.clock.advance(HOUR)
        runs = [run for run in await engine.runs() if run.fire.id == fire.id]
        assert [run.state for run in runs] == ["succeeded", "interrupted"]
        assert await engine.fire("later")
        await host.clock.advance(HOUR)
        await host.clock.advance(HOUR)
        assert (await engine.runs("later"))[0].state == "succeeded"
        assert any(run.fire.cause == "schedule" for run in await engine.runs("check"))
        assert await engine.sweep() == []


async def test_of_several_standbys_one_takes_over(host: Any) -> None:
    host.write()
    async with held(host) as holder, AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(host.engine(standby=True)) for _ in range(3)]
        await holder.leave()
        await host.clock.advance(MINUTE)
        states = sorted([await state(engine) for engine in engines])
        assert states == ["running", "standby", "standby"]
        (first,) = [engine for engine in engines if await state(engine) == "running"]
        await first.drain("deploy")
        await host.clock.advance(MINUTE)
        assert sorted([await state(engine) for engine in engines]) == [
            "running",
            "standby",
            "stopped",
        ]


async def test_an_engine_that_has_drained_gives_the_folder_away_and_still_reads(host: Any) -> None:
    """Its host may be busy with other things for long before it leaves the block."""
    host.write()
    async with host.engine() as first, host.engine(standby=True) as second:
        run = await first.run("check")
        await first.drain("deploy")
        assert await EngineLock(host.data).holder() is None
        await host.clock.advance(MINUTE)
        assert (await state(first), await state(second)) == ("stopped", "running")
        assert (await second.run("check")).state == "succeeded"
        assert [each.run_id for each in await first.runs()][1:] == [run.run_id]
        assert not (await first.health()).ok


async def test_an_engine_that_failed_gives_the_folder_away_before_anybody_asks(host: Any) -> None:
    host.write()

    async def broken(*given: Any, **named: Any) -> Any:
        msg = "a mistake"
        raise RuntimeError(msg)

    async with host.engine() as first, host.engine(standby=True) as second:
        first._life.services.store.claim_fire = broken
        await first.fire("check")
        with pytest.raises(RuntimeError, match="a mistake"):
            await first.wait()
        await host.clock.advance(MINUTE)
        assert (await state(first), await state(second)) == ("stopped", "running")
        assert [run.state for run in await second.runs()] == ["succeeded"]


async def test_the_folder_is_kept_until_a_reply_that_goes_on_has_ended(host: Any) -> None:
    host.write()
    ended = anyio.Event()

    async def think(turn: Turn) -> str:
        if turn.origin == "reply":
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await ended.wait()
        return "done"

    host.agent = ScriptedAgent(default=think)

    async def answer(run_id: str) -> None:
        with pytest.raises(EngineBusy):
            await engine.reply(run_id, "And?")

    async def broken(*given: Any, **named: Any) -> Any:
        msg = "a mistake"
        raise RuntimeError(msg)

    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        group.start_soon(answer, run.run_id)
        while [turn.origin for turn in host.agent.turns][-1:] != ["reply"]:
            await anyio.sleep(0.01)
        engine._life.services.store.claim_fire = broken
        await engine.fire("check")
        while await state(engine) != "stopped":
            await anyio.sleep(0.01)
        assert await EngineLock(host.data).holder() is not None
        ended.set()
        with pytest.raises(RuntimeError, match="a mistake"):
            await engine.wait()
        assert await EngineLock(host.data).holder() is None


async def test_a_standby_can_be_left_and_drained(host: Any) -> None:
    host.write()
    async with host.engine() as holder:
        async with host.engine(standby=True):
            pass
        async with host.engine(standby=True) as engine:
            await engine.drain("not needed")
            assert await state(engine) == "stopped"
            await engine.wait()
            with pytest.raises(EngineBusy):
                await engine.run("check")
        with anyio.CancelScope() as scope:
            async with host.engine(standby=True):
                scope.cancel()
                await anyio.sleep_forever()
        assert (await holder.run("check")).state == "succeeded"


async def test_a_standby_that_is_left_while_it_takes_over_gives_the_folder_back(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write()
    async with held(host) as holder:
        engine = host.engine(standby=True)
        async with engine:
            take = Tenure._take
            begun = anyio.Event()

            async def slow(*given: Any) -> Any:
                begun.set()
                return await take(*given)

            monkeypatch.setattr(Tenure, "_take", slow)
            await holder.leave()
            async with anyio.create_task_group() as group:
                group.start_soon(host.clock.advance, MINUTE)
                await begun.wait()
                group.cancel_scope.cancel()
    async with host.engine() as after:
        assert await state(after) == "running"


async def test_a_takeover_that_fails_is_said_and_tried_again(host: Any) -> None:
    host.write()
    config = host.workspace / "agent-config.yaml"
    async with held(host) as holder, host.engine(standby=True) as engine:
        config.write_text("default: [", encoding="utf-8")
        await holder.leave()
        for _ in range(3):
            await host.clock.advance(MINUTE)
        status = await engine.status()
        assert status.state == "standby"
        (fault,) = status.faults
        assert str(fault.path).endswith("agent-config.yaml")
        assert await EngineLock(host.data).holder() is None
        config.unlink()
        await host.clock.advance(MINUTE)
        status = await engine.status()
        assert (status.state, status.faults) == ("running", ())
        assert (await engine.run("check")).state == "succeeded"


async def test_a_mistake_while_taking_over_is_a_fault_of_the_engine(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write()
    engine = host.engine(standby=True)
    async with held(host) as holder, engine:

        async def broken(*given: Any) -> Any:
            msg = "a mistake"
            raise RuntimeError(msg)

        monkeypatch.setattr(Tenure, "_take", broken)
        await holder.leave()
        await host.clock.advance(MINUTE)
        with pytest.raises(RuntimeError, match="a mistake"):
            await engine.wait()
        assert await state(engine) == "stopped"
    monkeypatch.undo()
    async with host.engine():
        pass


async def test_trouble_with_the_store_at_the_takeover_costs_its_event_alone(host: Any) -> None:
    from drumbeat import Problem

    host.write()
    store = host.faulty()
    async with held(host) as holder, host.engine(standby=True, store=store) as engine:
        await holder.leave()
        trouble = StoreError(Problem(code="store-full", message="no", remedy="wait"))
        store.faults["record"] = [trouble]
        await host.clock.advance(MINUTE)
        assert await state(engine) == "running"
        await host.clock.advance(HOUR)
        assert (await engine.status()).faults == ()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # the file is what matters
async def test_a_standby_of_a_later_release_waits_and_upgrades(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy starts the next process before it ends the last."""
    from drumbeat.runtime import store as room
    from drumbeat.runtime import store_schema

    host.write()
    steps = (*store_schema.STEPS, lambda db: db.execute("CREATE TABLE more (a)"))
    async with held(host) as holder:
        run = await holder.engine.run("check")
        monkeypatch.setattr(room, "prepare", partial(store_schema.prepare, steps=steps))
        async with host.engine(standby=True) as engine:
            status = await engine.status()
            assert status.state == "standby"
            assert [fault.code for fault in status.faults] == ["store-older"]
            assert [each.slug for each in status.workspace.automations] == ["check"]
            health = await engine.health()
            assert (health.ok, health.faults) == (False, ("store-older",))
            with pytest.raises(StoreError, match="store-older"):
                await engine.runs()
            await host.clock.advance(MINUTE)
            assert await state(engine) == "standby"
            assert (await holder.engine.run("check")).state == "succeeded"
            await holder.leave()
            await host.clock.advance(MINUTE)
            status = await engine.status()
            assert (status.state, status.faults) == ("running", ())
            assert run.run_id in [each.run_id for each in await engine.runs()]
            assert (await engine.run("check")).state == "succeeded"


async def test_a_standby_that_cannot_read_the_store_for_another_reason_is_refused(
    host: Any,
) -> None:
    host.write()
    async with host.engine():
        (host.data / "drumbeat.db").write_bytes(b"no database at all" * 100)
        with pytest.raises(StoreError):
            async with host.engine(standby=True):
                pass


async def test_one_that_is_left_as_it_takes_over_ends(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leaves decides by what stands when the end begins."""
    from drumbeat.runtime import tenure as room

    host.write()
    ready, gate = anyio.Event(), anyio.Event()
    real = room.stand_by

    async def slow(*given: Any, **named: Any) -> Any:
        life = await real(*given, **named)
        ready.set()
        await gate.wait()
        return life

    monkeypatch.setattr(room, "stand_by", slow)
    holder = Holder()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            await group.start(holder.live, host.engine())
            async with host.engine(standby=True) as engine:
                assert (await engine.status()).state == "standby"
                holder.go.set()
                await holder.gone.wait()
                while not ready.is_set():
                    await host.clock.advance(timedelta(seconds=1))
                gate.set()
    async with host.engine() as third:
        assert (await third.run("check")).state == "succeeded"


async def test_a_standby_lists_intents_and_says_when_it_has_stopped(host: Any) -> None:
    """Reading works beside the holder; what can never come is not promised."""
    host.write()
    async with host.engine(deliverer=None) as first:
        await first.run("check")
        async with host.engine(standby=True) as second:
            assert [intent.slug for intent in await second.intents("pending")] == ["check"]
            await second.drain("deploy")
            with pytest.raises(EngineBusy, match="engine-stopped"):
                await second.run("check")
