"""The life of one run: limits, being stopped, what cannot be foreseen (spec, sections 5, 6)."""

import asyncio
import enum
import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from drumbeat import (
    AgentError,
    AgentUnavailable,
    ClaimLost,
    ContextCeiling,
    DeliveryRefused,
    Problem,
    Reply,
    StoreError,
    Turn,
    Usage,
)
from drumbeat.runtime.conclusion import Ending
from drumbeat.runtime.journal import Journal
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
FULL = StoreError(Problem(code="store-full", message="full", remedy="make room"))
CANCELLED = Ending(
    state="cancelled", problem=Problem(code="cancelled", message="not needed", remedy="")
)


def sleeping(host: Any, how_long: timedelta = 2 * HOUR) -> ScriptedAgent:
    async def say(turn: Turn) -> str:
        await host.clock.sleep(how_long)
        return "done"

    return ScriptedAgent(default=say)


def ignoring(host: Any, how_long: timedelta) -> ScriptedAgent:
    """An agent that pays no heed to its cancellation."""

    async def say(turn: Turn) -> str:
        with anyio.CancelScope(shield=True):
            await host.clock.sleep(how_long)
        return "done"

    return ScriptedAgent(default=say)


# ---- limits


async def test_a_run_that_takes_too_long_fails_at_its_limit(host: Any) -> None:
    """Over all of its turns together."""
    host.write(steps=["One.", "Two.", "Three."])
    host.agent = sleeping(host, 25 * MINUTE)
    async with host.engine() as engine:
        run = await host.fire(engine)
    assert (run.state, run.failure.code) == ("failed", "run-timeout")
    assert "longer than 1 h" in run.failure.message
    assert run.finished_at - run.started_at == HOUR
    assert [record.reply is None for record in run.turns] == [False, False, True]
    assert run.intent.gate == "run-failed"


@pytest.mark.parametrize("made_of_it", [ValueError("closed"), "a reply"])
async def test_what_an_agent_makes_of_the_runs_end_does_not_hide_it(
    host: Any, made_of_it: Any
) -> None:
    host.write()

    async def say(turn: Turn) -> Any:
        try:
            await host.clock.sleep(2 * HOUR)
        except anyio.get_cancelled_exc_class():
            return made_of_it

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await host.fire(engine)
    assert (run.state, run.failure.code) == ("failed", "run-timeout")


async def test_an_agent_that_ignores_its_end_keeps_the_slug_busy_and_is_reported(
    host: Any,
) -> None:
    """Once, and it never overlaps itself; another automation goes on."""
    host.write()
    host.write("other")
    ignores = ignoring(host, 3 * HOUR)._default
    host.agent = ScriptedAgent({"check/step-1": [ignores, "ok"]}, default="ok")
    async with host.engine() as engine:
        start = host.clock.now()
        await engine.fire("check")
        await engine.fire("check")
        await host.clock.advance(HOUR + timedelta(seconds=29))
        assert (await engine.status()).stuck == ()
        await host.clock.advance(timedelta(seconds=2))
        status = await engine.status()
        (running,) = status.running
        assert status.stuck == (running.run_id,)
        assert (await engine.run("other")).state == "succeeded"
        await host.clock.advance(start + 3 * HOUR - host.clock.now())
        (event,) = await host.events(engine, "run_stuck")
        ended = await engine.find_run(running.run_id)
        await engine.settled()
        (following, _) = await engine.runs("check")
        assert (await engine.status()).stuck == ()
    assert event.run_id == running.run_id
    assert event.at == start + HOUR + timedelta(seconds=30)
    assert (ended.state, ended.failure.code) == ("failed", "run-timeout")
    assert following.started_at == ended.finished_at == start + 3 * HOUR


# ---- being stopped


def stop(engine: Any, ending: Ending) -> None:
    """As `cancel()` and a drain do it."""
    (run,) = engine._life.dispatcher.going.values()
    run.stop(ending)


async def test_a_run_that_is_cancelled_ends_as_whoever_did_it_says(host: Any) -> None:
    """It is demoted, counts as no failure, and leaves the fire settled."""
    host.write()
    host.agent = sleeping(host)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        stop(engine, CANCELLED)
        await engine.settled()
        (run,) = await engine.runs()
        (fire,) = await engine.fires()
        assert await host.events(engine, "automation_error") == []
    assert (run.state, run.failure.message) == ("cancelled", "not needed")
    assert (run.intent.verdict, run.intent.gate) == ("demote", "run-failed")
    assert (fire.verdict, fire.reason) == ("ran", "cancelled")


def raises(turn: Turn) -> Reply:
    msg = "closed"
    raise ConnectionError(msg)


@pytest.mark.parametrize("made_of_it", [raises, lambda turn: Reply(text="part of it")])
async def test_what_an_agent_makes_of_being_stopped_does_not_hide_why(
    host: Any, made_of_it: Callable[[Turn], Reply]
) -> None:
    host.write(steps=["One.", "Two."])

    async def say(turn: Turn) -> Reply:
        try:
            await host.clock.sleep(2 * HOUR)
        except anyio.get_cancelled_exc_class():
            return made_of_it(turn)
        raise AssertionError

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        stop(engine, CANCELLED)
        await engine.settled()
        (run,) = await engine.runs()
    assert (run.state, run.failure.code) == ("cancelled", "cancelled")
    assert len(host.agent.turns) == 1


async def test_a_run_that_ignores_being_stopped_is_reported(host: Any) -> None:
    host.write()
    host.agent = ignoring(host, HOUR)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        stop(engine, CANCELLED)
        await host.clock.advance(MINUTE)
        (run,) = await engine.runs()
        assert (await engine.status()).stuck == (run.run_id,)
        (event,) = await host.events(engine, "run_stuck")
        await host.clock.advance(HOUR)
        await engine.settled()
        (run,) = await engine.runs()
    assert event.run_id == run.run_id
    assert run.state == "cancelled"


async def test_a_run_that_is_over_time_and_then_stopped_is_reported_once(host: Any) -> None:
    """It was stopped before it had ended, so it ends as whoever stopped it says."""
    host.write()
    host.agent = ignoring(host, 3 * HOUR)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(HOUR + MINUTE)
        stop(engine, CANCELLED)
        await host.clock.advance(2 * HOUR)
        await engine.settled()
        (run,) = await engine.runs()
        assert len(await host.events(engine, "run_stuck")) == 1
    assert run.state == "cancelled"


async def test_a_run_that_is_over_time_has_failed_by_that_when_it_is_drained(host: Any) -> None:
    """The fire has had what it was given: no other attempt follows."""
    host.write()
    host.agent = ignoring(host, 3 * HOUR)
    async with host.engine() as engine:
        await engine.fire("check", slot="ticket-1")
        await host.clock.advance(HOUR + MINUTE)
        stop(engine, Ending(state="interrupted"))
        await host.clock.advance(2 * HOUR)
        await engine.settled()
        (run,) = await engine.runs()
        (fire,) = await engine.fires()
    assert (run.state, run.failure.code) == ("failed", "run-timeout")
    assert (fire.verdict, fire.reason) == ("ran", "failed")


async def test_a_drain_interrupts_what_does_not_end_in_time(host: Any) -> None:
    """It is voiced, as a run by hand without a slot gets no further attempt."""
    host.write()
    host.agent = sleeping(host)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        async with anyio.create_task_group() as group:
            group.start_soon(engine.drain, "a deploy")
            await host.clock.advance(MINUTE)
    async with host.engine() as engine:
        (run,) = await engine.runs()
        (fire,) = await engine.fires()
    assert (run.state, run.failure.code) == ("interrupted", "interrupted")
    assert run.finished_at - run.started_at == MINUTE + timedelta(seconds=30)
    assert (run.intent.verdict, run.intent.gate) == ("deliver", "run-failed")
    assert (fire.verdict, fire.reason) == ("ran", "interrupted")


async def test_a_fire_with_a_slot_gets_one_more_attempt_that_is_told_of_the_first(
    host: Any,
) -> None:
    """The interrupted run is demoted; a second interruption settles the fire."""
    host.write()
    host.agent = sleeping(host)
    for _ in range(2):
        async with host.engine() as engine:
            await engine.fire("check", slot="ticket-7")
            await host.clock.advance(MINUTE)
    async with host.engine() as engine:
        second, first = await engine.runs()
        (fire,) = await engine.fires()
    assert (first.state, first.intent.verdict) == ("interrupted", "demote")
    assert (second.state, second.intent.verdict) == ("interrupted", "deliver")
    assert (fire.verdict, fire.attempt, fire.run_id) == ("ran", 2, second.run_id)
    once, again = host.agent.turns
    assert "was interrupted" not in once.context
    assert "was interrupted" in again.context


async def test_a_host_that_is_cancelled_leaves_an_interrupted_run(host: Any) -> None:
    """Whatever cancels the body of the host, the run's end is committed."""
    host.write()
    host.agent = sleeping(host)
    with anyio.CancelScope() as scope:
        async with host.engine() as engine:
            await engine.fire("check")
            await host.clock.advance(MINUTE)
            scope.cancel()
            await anyio.sleep_forever()
    store = host.faulty()
    await store.open(holder=None, lease=HOUR)
    (run,) = await store.runs()
    await store.close()
    assert (run.state, run.intent.verdict) == ("interrupted", "deliver")


async def test_a_run_whose_claim_is_lost_writes_nothing_more(host: Any) -> None:
    """Whoever took it over settles the fire; there is one run and one intent in the end."""
    host.write()
    store = host.faulty()

    async def loses_it(turn: Turn) -> str:
        (run,) = engine._life.dispatcher.going.values()
        await store.finish(run.claim, None)
        return "lost"

    host.agent = ScriptedAgent({"step": [loses_it, "done"]})
    async with host.engine(store=store) as engine:
        await engine.fire("check")
        await engine.settled()
        (run,) = await engine.runs()
    assert [intent.text for intent in host.deliverer.intents] == ["done"]
    assert (run.state, run.intent.text) == ("succeeded", "done")
    assert not (host.folder(run).parent / host.agent.turns[0].run_id / "result.json").exists()


async def test_a_claim_that_is_lost_before_the_first_record_spends_no_turn(host: Any) -> None:
    host.write()
    store = host.faulty()
    lost = ClaimLost(Problem(code="claim-lost", message="taken over", remedy=""))
    async with host.engine(store=store) as engine:
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        store.faults["record"] = [lost]
        await engine.fire("check")
        with capture_logs() as logs:
            await engine.settled()
        (line,) = [line for line in logs if line["event"] == "claim_lost"]
        assert (line["slug"], line["message"]) == ("check", "taken over")
        assert line["run_id"]
        assert (await engine.status()).state == "running"
        assert await engine.runs() == []
    assert host.agent.turns == []


# ---- what cannot be foreseen


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_an_agent_that_cancels_what_is_not_its_own_fails_its_run(host: Any) -> None:
    """Only asyncio lets it reach the tasks around its own; the engine goes on."""
    host.write()

    async def say(turn: Turn) -> str:
        for task in asyncio.all_tasks():
            if "bounded" in task.get_name():
                task.cancel()
        await anyio.sleep_forever()
        raise AssertionError

    host.agent = ScriptedAgent({"step": [say, "done"]})
    async with host.engine() as engine:
        run = await engine.run("check")
        after = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "run-cancelled-itself")
    assert after.state == "succeeded"


async def test_a_drain_ends_a_run_that_waits_for_a_store_in_trouble(host: Any) -> None:
    host.write()
    store = host.faulty()
    async with host.engine(store=store) as engine:
        store.faults["hold"] = [FULL] * 1000
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        async with anyio.create_task_group() as group:
            group.start_soon(engine.drain, "a deploy")
            await host.clock.advance(MINUTE)
    async with host.engine() as engine:
        (run,) = await engine.runs()
    assert (run.state, run.intent.verdict) == ("interrupted", "deliver")
    assert host.agent.turns == []


async def test_events_that_are_noted_at_once_are_each_written_once(host: Any) -> None:
    """In the order in which they came."""
    async with host.engine() as engine:
        journal = Journal(services=engine._life.services, slug="check", run_id="r")
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(
                    partial(journal.note, "run_stuck", host.clock.now(), number=number)
                )
        events = await host.events(engine, "run_stuck")
    assert sorted(event.data["number"] for event in events) == list(range(5))
    assert journal.kept == []


async def test_a_mistake_of_the_engine_fails_the_run_and_stops_nobody_else(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that cannot be carried out is voiced like any other failure."""
    from drumbeat.runtime import preparation
    from drumbeat.runtime.requirements import check_requirements

    real = check_requirements

    async def broken(automation: Any, **given: Any) -> Any:
        if automation.slug == "check":
            raise RuntimeError("it cannot be, correct-horse")
        return await real(automation, **given)

    monkeypatch.setattr(preparation, "check_requirements", broken)
    host.write()
    host.write("other")
    with capture_logs() as logs:
        async with host.engine(secrets={"KEY": "correct-horse"}) as engine:
            run = await engine.run("check")
            other = await engine.run("other")
            await engine.settled()
    (line,) = [line for line in logs if line["event"] == "run_fault"]
    assert "RuntimeError: it cannot be, [redacted KEY]" in line["trace"]
    assert "correct-horse" not in str(logs)
    assert (run.state, run.failure.code) == ("aborted", "run-fault")
    assert "RuntimeError: it cannot be" in run.failure.message
    assert run.intent.verdict == "deliver"
    assert other.state == "succeeded"


async def test_an_end_that_cannot_be_written_down_ends_as_a_fault_of_the_engine(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever made it so: the run has its one intent, and the others go on."""
    from drumbeat.runtime import conclusion

    real = conclusion.evaluate_notify

    def broken(policy: str, final: str, **given: Any) -> Any:
        if final == "poison":
            raise RuntimeError("it cannot be")
        return real(policy, final, **given)

    monkeypatch.setattr(conclusion, "evaluate_notify", broken)
    host.write()
    host.write("other")
    host.agent = ScriptedAgent({"check/step-1": "poison"}, default="done")
    async with host.engine() as engine:
        run = await engine.run("check")
        other = await engine.run("other")
        await engine.settled()
    assert (run.state, run.failure.code, run.turns) == ("failed", "run-fault", ())
    assert "the engine made a mistake: RuntimeError" in run.failure.message
    assert "it cannot be" not in run.failure.message
    assert (run.intent.verdict, other.state) == ("deliver", "succeeded")


# ---- an agent whose errors are not what they should be


class Quota(enum.Enum):
    SPENT = "quota-spent"


class UnreadableError(AgentError):
    @property
    def code(self) -> str:
        return "broken"

    def __getattribute__(self, name: str) -> Any:
        if name == "problem":
            raise RuntimeError("not here")
        return super().__getattribute__(name)


def with_odd_wait(error: AgentUnavailable) -> AgentUnavailable:
    """What a host's own constructor may leave behind."""
    odd: Any = 5
    error.retry_after = odd
    return error


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize(
    "raised, code, message",
    [
        pytest.param(ExitingError, "agent-raised", "the agent raised ExitingError", id="exiting"),
        pytest.param(
            lambda: AgentError(ExitingError()),  # type: ignore[arg-type]
            "agent-error",
            "ExitingError",
            id="message-exiting",
        ),
        pytest.param(
            lambda: AgentError("over", code="Not A Code"), "agent-error", "over", id="code-text"
        ),
        pytest.param(
            lambda: AgentError("over", code="x" * 65), "agent-error", "over", id="code-long"
        ),
        pytest.param(
            lambda: AgentError("over", code="\ud800"), "agent-error", "over", id="code-surrogate"
        ),
        pytest.param(
            lambda: AgentError(ValueError("boom")),  # type: ignore[arg-type]
            "agent-error",
            "ValueError: boom",
            id="message-exception",
        ),
        pytest.param(
            lambda: AgentError(None),  # type: ignore[arg-type]
            "agent-error",
            "None",
            id="message-none",
        ),
        pytest.param(
            lambda: AgentError("over", code=Quota.SPENT),  # type: ignore[arg-type]
            "quota-spent",
            "over",
            id="code-enum",
        ),
        pytest.param(
            lambda: AgentError("over", code=b"x"),  # type: ignore[arg-type]
            "agent-error",
            "over",
            id="code-bytes",
        ),
        pytest.param(
            lambda: AgentError("over", usage=Usage(input_tokens=10**5000)),
            "agent-error",
            "over",
            id="usage-huge",
        ),
        pytest.param(
            lambda: DeliveryRefused(b"over"),  # type: ignore[arg-type]
            "delivery-refused",
            "b'over'",
            id="another-error",
        ),
        pytest.param(
            lambda: UnreadableError("x"),
            "agent-raised",
            "the agent raised UnreadableError",
            id="unreadable",
        ),
        pytest.param(
            lambda: Reply(text="x", usage=Usage(input_tokens=10**5000)),
            "agent-reply-invalid",
            "of a size",
            id="reply-usage-huge",
        ),
    ],
)
async def test_an_agent_that_says_odd_things_fails_its_run_and_no_other(
    host: Any, raised: Callable[[], Any], code: str, message: str
) -> None:
    host.write()
    host.write("other")

    async def say(turn: Turn) -> Any:
        said = raised()
        if isinstance(said, BaseException):
            raise said
        return said

    async with host.engine(agent=ScriptedAgent({"check/step-1": say}, default="done")) as engine:
        run = await engine.run("check")
        other = await engine.run("other")
    assert (run.state, run.failure.code) == ("failed", code)
    assert message in run.failure.message
    assert (run.usage.input_tokens, other.state) == (0, "succeeded")


@pytest.mark.parametrize(
    "raised",
    [
        ExitingError(),
        with_odd_wait(AgentUnavailable("busy")),
        AgentError(b"over"),  # type: ignore[arg-type]
        DeliveryRefused(b"over"),  # type: ignore[arg-type]
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_odd_error_of_the_judgment_lets_the_last_reply_decide(
    host: Any, raised: BaseException
) -> None:
    host.write(notify="auto")

    async def judge(turn: Turn) -> Any:
        raise raised

    agent = ScriptedAgent({"check/judgment": judge}, default="worth saying")
    async with host.engine(agent=agent, settings={"turn_attempts": 1}) as engine:
        run = await engine.run("check")
    assert (run.state, run.intent.gate, run.intent.text) == (
        "succeeded",
        "judgment-failed",
        "worth saying",
    )


async def test_odd_kinds_of_failure_stay_what_they_are(host: Any) -> None:
    """An unavailable agent is asked again, and a conversation that is too long is rotated."""
    host.write()
    answers: list[Any] = [
        with_odd_wait(AgentUnavailable(b"busy")),  # type: ignore[arg-type]
        ContextCeiling(b"long"),  # type: ignore[arg-type]
        "done",
    ]

    async def say(turn: Turn) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async with host.engine(agent=ScriptedAgent(default=say)) as engine:
        run = await host.fire(engine)
    assert (run.state, run.rotation) == ("succeeded", "context-ceiling")


async def test_a_wait_that_is_longer_than_the_run_has_left_fails_at_once(host: Any) -> None:
    """With the reason that the agent gave, and not as a run that took too long."""
    host.write()
    away = AgentUnavailable("limited until tomorrow", retry_after=5 * HOUR)

    async def say(turn: Turn) -> Any:
        raise away

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await host.fire(engine)
    assert (run.state, run.failure.code) == ("aborted", "agent-unavailable")
    assert run.finished_at == run.started_at
    assert "limited until tomorrow" in run.intent.text


async def test_a_result_that_a_crash_left_unwritten_is_written_at_the_next_start(host: Any) -> None:
    """The latest ones, and only where the run's folder is there."""
    host.write()
    async with host.engine() as engine:
        first, second = await engine.run("check"), await engine.run("check")
    result = host.folder(first) / "result.json"
    text = result.read_text()
    result.unlink()
    shutil.rmtree(host.folder(second))
    async with host.engine() as engine:
        await host.clock.advance(timedelta(0))
        await engine.settled()
        assert json.loads(result.read_text())["state"] == json.loads(text)["state"]
        assert not host.folder(second).exists()


async def test_a_store_that_fails_under_the_agents_hands_fails_the_turn(host: Any) -> None:
    """A follow-up that was not committed is not taken for one that was."""
    host.write()
    store = host.faulty()

    async def say(turn: Turn) -> str:
        store.faults["record"] = [FULL]
        await turn.follow_ups.schedule(" ", after=MINUTE)
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine(store=store) as engine:
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "store-full")


async def test_a_run_begins_once_the_store_takes_its_record(host: Any) -> None:
    host.write()
    store = host.faulty()
    async with host.engine(store=store) as engine:
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        store.faults["record"] = [FULL, FULL]
        await engine.fire("check")
        await host.clock.advance(timedelta(0))
        assert host.agent.turns == []
        runs = await drive(engine, until=host.clock.now() + 5 * MINUTE)
    assert [run.state for run in runs] == ["succeeded"]


async def test_a_file_that_vanishes_leaves_no_run(host: Any) -> None:
    """The fire goes back, and ends as removed after two reloads without the file."""
    host.write()
    async with host.engine() as engine:
        (host.workspace / "automations" / "check.md").unlink()
        await engine.fire("check")
        await host.clock.advance(timedelta(0))
        assert await engine.runs() == []
        host.write("other")
        for _ in range(3):
            # Between two looks all is idle, so a fire that is being taken is given back first.
            await host.clock.advance(timedelta(seconds=10))
        (fire,) = await engine.fires("check")
    assert (fire.verdict, fire.reason) == ("skipped", "removed")
    assert host.agent.turns == []
