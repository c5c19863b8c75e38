"""Due fires become runs: oldest first, one per slug, so many at once, and none is lost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from drumbeat import ClaimLost, Fire, NotFound, Problem, StoreError, Turn
from drumbeat.runtime.store import SqliteStore
from drumbeat.runtime.waiters import Waiters
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def asks_again(after: timedelta) -> ScriptedAgent:
    """An agent that asks for one follow-up, in its first turn."""

    async def ask(turn: Turn) -> str:
        await turn.follow_ups.schedule("Look again.", after=after)
        return "done"

    return ScriptedAgent({"check/step-1": [ask, "done"]}, default="done")


async def test_fires_of_one_automation_run_in_order_and_one_at_a_time(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(10 * MINUTE)
    async with host.engine() as engine:
        fires = [await engine.fire("check", slot=f"ticket-{number}") for number in range(4)]
        await drive(engine, until=START + HOUR)
        runs = sorted(await engine.runs(), key=lambda run: run.started_at)
    assert [run.fire.id for run in runs] == [fire.id for fire in fires]
    assert [run.started_at - START for run in runs] == [n * 10 * MINUTE for n in range(4)]
    assert {run.fire.verdict for run in runs} == {"ran"}


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_no_more_than_the_limit_run_at_once(host: Any, limit: int) -> None:
    going = most = 0

    async def think(turn: Turn) -> str:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await host.clock.sleep(10 * MINUTE)
        going -= 1
        return "done"

    for number in range(5):
        host.write(f"check-{number}")
    host.agent = ScriptedAgent(default=think)
    async with host.engine(settings={"max_concurrent_runs": limit}) as engine:
        for number in range(5):
            await engine.fire(f"check-{number}")
        await drive(engine, until=START + 2 * HOUR)
        assert len(await engine.runs()) == 5
    assert most == limit


async def test_the_oldest_due_fire_goes_first(host: Any) -> None:
    for slug in ("first", "second", "third"):
        host.write(slug)
    host.agent = host.sleeper(10 * MINUTE)
    async with host.engine(settings={"max_concurrent_runs": 1}) as engine:
        await engine.fire("first")
        await engine.fire("third", after=8 * MINUTE)
        await engine.fire("second", after=5 * MINUTE)
        await drive(engine, until=START + HOUR)
        runs = sorted(await engine.runs(), key=lambda run: run.started_at)
    assert [run.slug for run in runs] == ["first", "second", "third"]


async def test_a_fire_in_the_future_runs_to_the_point(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        await engine.fire("check", after=timedelta(days=20, seconds=7))
        (run,) = await drive(engine, until=START + timedelta(days=21))
    assert run.started_at == START + timedelta(days=20, seconds=7)


async def test_a_fire_of_a_disabled_file_is_skipped_and_one_by_hand_runs(host: Any) -> None:
    """Whether the engine knows of the change, or only the disk does."""
    trigger = {"type": "schedule", "expression": "0 * * * *"}
    host.write(trigger=trigger)
    host.write("slow")
    host.agent = host.sleeper(90 * MINUTE)
    settings = {"max_concurrent_runs": 1, "run_timeout": 3 * HOUR}
    async with host.engine(settings=settings) as engine:
        await engine.fire("slow")
        await host.clock.advance(61 * MINUTE)
        await engine.fire("check")
        host.write(trigger=trigger, enabled=False)
        await engine.reload()
        await drive(engine, until=START + 4 * HOUR)
        fires = {fire.cause: fire for fire in await engine.fires("check")}
        assert (fires["schedule"].verdict, fires["schedule"].reason) == ("skipped", "disabled")
        assert fires["manual"].verdict == "ran"
        why = await engine.why("check", at=START + HOUR)
        assert why.endswith("was skipped: its file was disabled when its turn came.")
        (event,) = [
            event
            for event in await host.events(engine, "fire_settled")
            if event.data["verdict"] == "skipped"
        ]
        assert event.data["reason"] == "disabled"


async def test_a_file_disabled_on_disk_alone_is_skipped_too(host: Any) -> None:
    host.write(trigger={"type": "schedule", "expression": "0 * * * *"})
    async with host.engine(settings={"reload_interval": timedelta(days=1)}) as engine:
        host.write(trigger={"type": "schedule", "expression": "0 * * * *"}, enabled=False)
        await drive(engine, until=START + HOUR)
        (fire,) = await engine.fires()
        assert (fire.verdict, fire.reason) == ("skipped", "disabled")
        assert await engine.runs() == []


async def test_a_file_enabled_again_on_disk_alone_runs(host: Any) -> None:
    """Its look at the files is some seconds old when an engine takes a fire."""
    host.agent = asks_again(10 * MINUTE)
    host.write()
    async with host.engine(settings={"reload_interval": timedelta(days=1)}) as engine:
        await engine.run("check")
        host.write(enabled=False)
        await engine.reload()
        host.write()
        await drive(engine, until=START + HOUR)
        assert [(fire.cause, fire.verdict) for fire in await engine.fires()] == [
            ("follow-up", "ran"),
            ("manual", "ran"),
        ]


async def test_a_file_that_was_disabled_when_it_broke_is_skipped_and_not_voiced(host: Any) -> None:
    host.agent = asks_again(10 * MINUTE)
    host.write()
    async with host.engine(settings={"reload_interval": timedelta(days=1)}) as engine:
        await engine.run("check")
        host.write(enabled=False)
        await engine.reload()
        host.file("automations/check.md", "broken")
        await drive(engine, until=START + HOUR)
        fire, _ = await engine.fires()
        assert (fire.verdict, fire.reason) == ("skipped", "disabled")
        assert (await engine.run("check")).state == "aborted"


async def test_fires_of_a_file_that_is_gone_end_as_removed_after_two_reloads(host: Any) -> None:
    host.write()
    host.write("other")
    async with host.engine() as engine:
        due = await engine.fire("check", after=HOUR)
        now = await engine.fire("other", after=HOUR)
        (host.workspace / "automations" / "check.md").unlink()
        for _ in range(3):  # whoever asks for a look does not count
            await engine.reload()
        await host.look()
        await engine.reload()
        with pytest.raises(NotFound):
            await engine.fire("nope")
        assert [fire.verdict for fire in await engine.fires("check")] == [None]
        await host.look()
        (gone,) = await engine.fires("check")
        assert (gone.id, gone.verdict, gone.reason) == (due.id, "skipped", "removed")
        assert (await engine.fires("other"))[0].id == now.id
        await drive(engine, until=START + 2 * HOUR)
        assert [run.slug for run in await engine.runs()] == ["other"]
        why = await engine.why("check", at=due.due)
        assert why.endswith("was skipped: its file was gone when its turn came.")


async def test_a_file_that_is_back_in_time_runs(host: Any) -> None:
    """Editors take a file away before they put it back."""
    host.write()
    path = host.workspace / "automations" / "check.md"
    async with host.engine() as engine:
        await engine.fire("check", after=MINUTE)
        path.unlink()
        await host.clock.advance(MINUTE)
        assert await engine.runs() == []
        host.write()
        await engine.reload()
        await engine.settled()
        assert [run.state for run in await engine.runs()] == ["succeeded"]


async def test_what_waits_for_a_file_that_went_while_nothing_ran_is_settled(host: Any) -> None:
    """Also when it is due much later."""
    host.write()
    async with host.engine() as engine:
        await engine.fire("check", after=timedelta(days=9))
        await engine.fire("check", after=MINUTE)
    (host.workspace / "automations" / "check.md").unlink()
    async with host.engine() as engine:
        await host.clock.advance(2 * MINUTE)
        await host.look(2)
        fires = await engine.fires()
        assert [(fire.verdict, fire.reason) for fire in fires] == [("skipped", "removed")] * 2
        assert await engine.runs() == []


async def test_a_run_goes_on_when_its_file_goes_and_its_next_fire_is_removed(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(10 * MINUTE)
    async with host.engine() as engine:
        await engine.fire("check")
        await engine.fire("check", after=MINUTE)
        await host.clock.advance(MINUTE)
        (host.workspace / "automations" / "check.md").unlink()
        for _ in range(3):
            await engine.reload()
        await drive(engine, until=START + HOUR)
        verdicts = [fire.verdict for fire in await engine.fires()]
        assert verdicts == ["skipped", "ran"]


@pytest.mark.parametrize("fate", ["edited", "broken", "renamed", "deleted"])
async def test_a_run_goes_by_its_file_as_it_was_when_it_began(host: Any, fate: str) -> None:
    """Whatever becomes of that meanwhile, which counts from the next run on."""
    host.write(steps=["One.", "Two."])
    path = host.workspace / "automations" / "check.md"
    prompts: list[str] = []

    async def work(turn: Turn) -> str:
        prompts.append(turn.prompt)
        if turn.prompt == "One.":
            if fate == "edited":
                host.write(steps=["Three."])
            elif fate == "broken":
                path.write_text("---\nautomation:\n  nmae: x\n---\n")
            elif fate == "renamed":
                path.rename(path.with_name("other.md"))
            else:
                path.unlink()
            await host.look(3)
        return "done"

    async with host.engine(agent=ScriptedAgent(default=work)) as engine:
        run = await engine.run("check")
        assert (run.state, len(run.turns), prompts) == ("succeeded", 2, ["One.", "Two."])
        prompts.clear()
        if fate == "edited":
            assert (await engine.run("check")).state == "succeeded"
            assert prompts == ["Three."]
        elif fate == "broken":
            assert (await engine.run("check")).failure.code == "automation-broken"
        else:
            with pytest.raises(NotFound):
                await engine.run("check")
        if fate == "renamed":
            assert (await engine.run("other")).slug == "other"
        await engine.settled()
        assert (await engine.find_run(run.run_id)).delivery == "delivered"


async def test_an_interrupted_fire_keeps_its_place_before_what_came_after_it(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(HOUR)
    async with host.engine() as engine:
        await engine.fire("check", slot="opened")
        await host.clock.advance(MINUTE)
        await engine.fire("check", slot="closed")
        await host.clock.advance(MINUTE)
    host.agent = ScriptedAgent(default="done")
    async with host.engine() as engine:
        await engine.settled()
        runs = [(run.fire.slot, run.state) for run in reversed(await engine.runs())]
        assert runs == [("opened", "interrupted"), ("opened", "succeeded"), ("closed", "succeeded")]
        assert {fire.slot: fire.due for fire in await engine.fires()} == {
            "opened": START,
            "closed": START + MINUTE,
        }


async def test_a_run_that_the_store_did_not_take_before_a_drain_is_not_begun(host: Any) -> None:
    """No turn is paid for that no record tells of; the fire waits for the next start."""
    host.write()
    store = host.faulty()
    agent = host.agent = ScriptedAgent(default="done")
    full = StoreError(Problem(code="store-full", message="full", remedy="make room"))
    async with host.engine(store=store) as engine:
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        fire = await engine.fire("check", slot="delivery-1")
        store.faults["record"] = [full] * 3
        await host.clock.advance(timedelta(0))
        store.faults["record"] = [full]
        await engine.drain("deploy")
    assert agent.turns == []
    async with host.engine() as engine:
        await engine.settled()
        (run,) = await engine.runs()
        assert (run.fire.id, run.fire.attempt, run.state) == (fire.id, 1, "succeeded")


async def test_a_claim_that_somebody_took_over_ends_the_run_and_tells_who_waits(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(40 * MINUTE)
    store = SqliteStore(host.data / "drumbeat.db", clock=host.clock)
    async with host.engine(store=store) as engine:
        told: list[str] = []

        async def run() -> None:
            with pytest.raises(ClaimLost) as caught:
                await engine.run("check")
            told.append(caught.value.problem.code)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await host.clock.advance(MINUTE)
            await store.open(holder="another", lease=MINUTE)  # lapses what is claimed
            (claim,) = await store.take_over()
            await host.clock.advance(HOUR)
        assert told == ["claim-lost"]
        await store.finish(claim, None)
        await host.clock.advance(MINUTE)
        await host.clock.advance(HOUR)
        assert [run.state for run in await engine.runs()] == ["succeeded"]


async def test_a_lease_is_renewed_as_long_as_the_run_goes(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(2 * HOUR)
    store = SqliteStore(host.data / "drumbeat.db", clock=host.clock)
    settings = {"run_timeout": 3 * HOUR, "lease": timedelta(minutes=5)}
    async with host.engine(store=store, settings=settings) as engine:
        await engine.fire("check")
        for _ in range(118):
            await host.clock.advance(MINUTE)
            assert await store.take_over() == []
        (run,) = await drive(engine, until=START + 3 * HOUR)
    assert run.state == "succeeded"


async def test_a_claim_without_a_fire_is_a_mistake_of_the_store(host: Any) -> None:
    class Odd(SqliteStore):
        async def claim_fire(self, **given: Any) -> Any:
            claim = await super().claim_fire(**given)
            if claim is None:
                return None
            return type(claim)(slug=claim.slug, run_id=claim.run_id, token=claim.token, fire=None)

    host.write()
    with pytest.raises(TypeError, match="a claim without a fire"):  # noqa: PT012  raised on leaving
        async with host.engine(store=Odd(host.data / "drumbeat.db", clock=host.clock)) as engine:
            await engine.fire("check")
            await host.clock.advance(MINUTE)


async def test_a_fire_claimed_as_the_engine_drains_is_given_back(host: Any) -> None:
    """It was never begun, so the next start runs it as if nothing had been."""
    reached, go_on = anyio.Event(), anyio.Event()

    class Slow(SqliteStore):
        async def claim_fire(self, **given: Any) -> Any:
            claim = await super().claim_fire(**given)
            if claim is not None:
                reached.set()
                await go_on.wait()
            return claim

    host.write()
    store = Slow(host.data / "drumbeat.db", clock=host.clock)
    async with host.engine(store=store) as engine, anyio.create_task_group() as group:
        await engine.fire("check")
        await reached.wait()
        group.start_soon(engine.drain, "a deploy")
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    async with host.engine() as engine:
        await engine.settled()
        (run,) = await engine.runs()
        assert (run.state, run.fire.attempt) == ("succeeded", 1)


async def test_a_waiter_is_told_once_and_may_leave() -> None:
    waiters = Waiters()
    left, told, later = waiters.add("f-1"), waiters.add("f-1"), waiters.add("f-2")
    waiters.remove("f-1", left)
    fire = Fire(id="f-1", slug="s", cause="manual", slot="f-1", due=START, created_at=START)
    waiters.tell("f-1", fire=fire)
    assert told.over.is_set()
    assert told.fire is fire
    assert not left.over.is_set()
    waiters.remove("f-1", told)
    waiters.abandon()
    assert later.over.is_set()
    assert (later.run, later.fire) == (None, None)
