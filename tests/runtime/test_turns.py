"""One turn: what the agent is given, what it may do wrong, retries and time limits (section 6)."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from drumbeat import (
    AgentError,
    AgentUnavailable,
    FollowUpRefused,
    Problem,
    Reply,
    Turn,
    Usage,
)
from drumbeat.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


class Calls:
    """An agent that does what a function of the turn does, whatever that is."""

    def __init__(self, call: Callable[[Turn], Any]) -> None:
        self.call = call
        self.turns: list[Turn] = []

    async def take_turn(self, turn: Turn, /) -> Any:
        self.turns.append(turn)
        return await self.call(turn)


def raising(error: BaseException) -> Calls:
    async def call(turn: Turn) -> None:
        raise error

    return Calls(call)


def returning(value: object) -> Calls:
    async def call(turn: Turn) -> object:
        return value

    return Calls(call)


# ---- what the agent is given


async def test_the_prompt_is_verbatim_and_the_context_stands_on_the_first_turn_only(
    host: Any,
) -> None:
    host.write(
        steps=[
            {"id": "look", "prompt": "  Look\n\n\taround.  ", "label": "Looking"},
            {"id": "tell", "prompt": "Tell."},
        ],
        notify="auto",
    )
    host.agent = ScriptedAgent({"judgment": "NOTHING_TO_REPORT"}, default="ok")
    async with host.engine(timezone="Europe/Berlin") as engine:
        run = await engine.run("check")
    look, tell, judgment = host.agent.turns
    assert (look.prompt, look.step_id, look.label) == ("  Look\n\n\taround.  ", "look", "Looking")
    assert look.text == f"{look.context}\n\n{look.prompt}"
    assert "2026-03-02 13:00:00" in look.context
    assert "Europe/Berlin (UTC+01:00)" in look.context
    assert str(host.folder(run)) in look.context
    assert (tell.prompt, tell.context, tell.text) == ("Tell.", "", "Tell.")
    assert (judgment.context, judgment.step_id, judgment.origin) == ("", None, "judgment")
    assert [turn.turn_id for turn in host.agent.turns] == [
        f"{run.run_id}-{number:02d}" for number in (1, 2, 3)
    ]
    assert [turn.is_new for turn in host.agent.turns] == [True, False, False]
    assert {turn.session_id for turn in host.agent.turns} == {run.session_id}
    assert {turn.attempt for turn in host.agent.turns} == {1}


async def test_the_environment_is_complete_and_keeps_the_doors_secrets_back(host: Any) -> None:
    host.write()
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/home/somebody",
        "AGENT_API_SECRET": "door-secret-1",
        "SLACK_SIGNING_SECRET": "door-secret-2",
        "SVIX_SECRET": "door-secret-3",
        "MY_TOKEN": "token-value-1",
        "DRUMBEAT_RUN_ID": "of another engine",
        "DRUMBEAT_RUN_TOKEN": "of another engine",
    }
    async with host.engine(env=env, secrets={"MY_TOKEN": "token-value-1"}) as engine:
        run = await engine.run("check")
    (turn,) = host.agent.turns
    memory = host.data / "memory" / "automations" / "check"
    assert dict(turn.env) == {
        "PATH": f"{host.workspace / 'bin'}:/usr/bin:/bin",
        "HOME": "/home/somebody",
        "DRUMBEAT_DATA_DIR": str(host.data),
        "DRUMBEAT_RUN_ID": run.run_id,
        "DRUMBEAT_AUTOMATION": "check",
        "DRUMBEAT_WORKSPACE": str(host.workspace),
        "DRUMBEAT_RUN_TOKEN": turn.env["DRUMBEAT_RUN_TOKEN"],
        "MEMORY_DIR": str(memory),
    }
    assert turn.cwd == host.workspace
    assert turn.memory_dir == memory
    assert memory.stat().st_mode & 0o777 == 0o700


async def test_a_memory_folder_that_cannot_be_made_is_an_event(host: Any, tmp_path: Path) -> None:
    host.write()
    (tmp_path / "memory").write_text("in the way")
    env = {"PATH": "/usr/bin:/bin", "MEMORY_DIR": str(tmp_path / "memory")}
    async with host.engine(env=env) as engine:
        run = await engine.run("check")
        (event,) = await host.events(engine, "artifact_failed")
    assert run.state == "succeeded"
    assert event.data["name"] == str(tmp_path / "memory" / "automations" / "check")


@pytest.mark.parametrize("turn_timeout, expected", [(None, 57), (timedelta(minutes=10), 10)])
async def test_a_turn_is_told_what_time_is_left(
    host: Any, turn_timeout: timedelta | None, expected: int
) -> None:
    """The run's rest, or the turn's own limit when that is less."""
    host.write(steps=["One.", "Two."])

    async def three_minutes(turn: Turn) -> Reply:
        await host.clock.sleep(3 * MINUTE)
        return Reply(text="ok")

    agent = Calls(three_minutes)
    async with host.engine(agent=agent, settings={"turn_timeout": turn_timeout}) as engine:
        await host.fire(engine)
    assert agent.turns[1].timeout == expected * MINUTE


async def test_what_an_agent_does_to_its_turn_reaches_nothing_else(host: Any) -> None:
    """Neither the next turn, nor the next run, nor the record."""
    host.write(steps=["One.", "Two."], agent_config={"provider": {"config": {"a": 1}}})

    def say(turn: Turn) -> str:
        turn.config["provider"]["config"]["api_key"] = "added by the host"
        turn.env["ADDED"] = "by the host"  # type: ignore[index]
        return "done"

    quiet = ScriptedAgent(default="done")
    async with host.engine(agent=quiet) as engine:
        before = await engine.run("check")
    host.agent = ScriptedAgent({"step-1": say}, default="done")
    async with host.engine() as engine:
        run = await engine.run("check")
    first, second = host.agent.turns
    assert "ADDED" in first.env
    assert "ADDED" not in second.env
    assert second.config == {"provider": {"config": {"a": 1}}}
    assert run.config_hash == before.config_hash


# ---- what it may do wrong


class Stop(BaseException):
    """What no handler expects."""


@pytest.mark.parametrize(
    "agent, code, words",
    [
        (raising(ValueError("no such model")), "agent-raised", "ValueError: no such model"),
        (raising(SystemExit(3)), "agent-raised", "SystemExit: 3"),
        (raising(GeneratorExit("bye")), "agent-raised", "GeneratorExit: bye"),
        (raising(Stop("now")), "agent-raised", "Stop: now"),
        (raising(BaseExceptionGroup("pool", [Stop("now")])), "agent-raised", "Stop: now"),
        (raising(AgentError("quota", code="quota-used-up")), "quota-used-up", "quota"),
        (
            raising(ExceptionGroup("pool", [AgentError("quota", code="quota-used-up")])),
            "quota-used-up",
            "quota",
        ),
        (
            raising(ExceptionGroup("pool", [KeyError("a"), KeyError("b")])),
            "agent-raised",
            "ExceptionGroup: pool (2 sub-exceptions)",
        ),
        (
            raising(
                FollowUpRefused(Problem(code="follow-up-refused", message="no", remedy="wait"))
            ),
            "follow-up-refused",
            "no",
        ),
        (returning(None), "agent-reply-invalid", "NoneType"),
        (returning("text"), "agent-reply-invalid", "str"),
        (returning(Reply(text=None)), "agent-reply-invalid", "types"),  # type: ignore[arg-type]
        (returning(Reply(text="a", handle=7)), "agent-reply-invalid", "types"),  # type: ignore[arg-type]
        (returning(Reply(text="a", usage=7)), "agent-reply-invalid", "types"),  # type: ignore[arg-type]
        (
            returning(Reply(text="a", usage=Usage(input_tokens=None))),  # type: ignore[arg-type]
            "agent-reply-invalid",
            "types",
        ),
        (
            returning(Reply(text="a", usage=Usage(cost_usd=Decimal("nan")))),
            "agent-reply-invalid",
            "types",
        ),
    ],
)
async def test_whatever_an_agent_does_wrong_fails_the_run(
    host: Any, agent: Calls, code: str, words: str
) -> None:
    """It is voiced, and the engine goes on."""
    agent.turns.clear()
    host.write(steps=["One.", "Two."])
    async with host.engine(agent=agent) as engine:
        run = await engine.run("check")
        await engine.settled()
        assert (await engine.status()).state == "running"
        assert await engine.sessions() == {}
    assert (run.state, run.failure.code) == ("failed", code)
    assert words in run.failure.message
    assert len(agent.turns) == 1
    assert (run.turns[0].reply, run.session_id) == (None, None)
    assert (run.intent.verdict, run.intent.gate) == ("deliver", "run-failed")
    (intent,) = host.deliverer.intents
    assert words in intent.text


class OwnReply(Reply):
    """A host's own, made in another way."""

    def __init__(self, text: str) -> None:
        super().__init__(text=text, usage=Counting(input_tokens=3, cost_usd=Decimal("0.5")))


@attrs.frozen(kw_only=True)
class WithMore(Reply):
    """A host's own, with what no record can hold."""

    client: object = attrs.field(factory=object)


class Counting(Usage):
    def __add__(self, other: Usage) -> Usage:
        raise NotImplementedError

    __radd__ = __add__


class Coloured(str):
    """A text that does everything in its own way."""

    __slots__ = ()

    def _refuse(self, *_: object) -> Any:
        raise NotImplementedError

    __contains__ = __len__ = __str__ = find = strip = _refuse


@pytest.mark.parametrize(
    "answer",
    [OwnReply("Fine."), WithMore(text="Fine."), Reply(text=Coloured("Fine."))],
    ids=["constructor", "fields", "text"],
)
async def test_a_reply_of_the_agents_own_class_counts_for_what_it_says(
    host: Any, answer: Reply
) -> None:
    """Whatever its class does in the places that the engine would touch."""
    host.write(steps=["One.", "Two."])
    async with host.engine(agent=returning(answer)) as engine:
        run = await engine.run("check")
        assert await engine.find_run(run.run_id) is not None
    assert (run.state, run.intent.text) == ("succeeded", "Fine.")
    assert [type(turn.reply) for turn in run.turns] == [Reply, Reply]
    assert run.usage.input_tokens == (6 if isinstance(answer, OwnReply) else 0)


@pytest.mark.parametrize(
    "answer",
    [Reply(text="x" * (8 * 1024 * 1024 + 1)), Reply(text="a", handle="h" * (64 * 1024 + 1))],
    ids=["text", "handle"],
)
async def test_a_reply_larger_than_any_is_refused(host: Any, answer: Reply) -> None:
    """It would be looked through and written again and again, for seconds of the host's loop."""
    host.write()
    async with host.engine(agent=returning(answer)) as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "agent-reply-invalid")
    assert "of a size" in run.failure.message


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * (64 * 1024 - 40) + "correct-horse" * 100_000),
        AgentError("x" * (64 * 1024 - 5) + "correct-horse" * 100_000, code="said-no"),
        FollowUpRefused(Problem(code="said-no", message="no", remedy="wait " * 300_000)),
    ],
    ids=["raised", "said", "remedy"],
)
async def test_a_failure_says_no_more_than_can_be_kept(host: Any, error: Exception) -> None:
    """It would stand in the record, events, files and messages of every run that fails so.

    What is cut off is cut behind a secret or before it, and what raised it is still told.
    """
    host.write()
    with capture_logs() as logs:
        async with host.engine(agent=raising(error), secrets={"KEY": "correct-horse"}) as engine:
            run = await engine.run("check")
            (event,) = await host.events(engine, "automation_error")
    assert run.state == "failed"
    assert run.failure.code == ("agent-raised" if isinstance(error, ValueError) else "said-no")
    assert "cut, of 1" in run.failure.message + run.failure.remedy
    kept = [str(run.failure), str(event.data), str(logs)]
    kept += [path.read_text() for path in host.folder(run).rglob("*") if path.is_file()]
    assert max(map(len, kept)) < 3 * 64 * 1024
    assert not any("corr" in text for text in kept)
    (line,) = [line for line in logs if line["event"] == "turn_failed"]
    assert "in take_turn" in line["trace"]
    assert len(line["trace"]) < 20_000


async def test_what_a_failed_turn_cost_counts_whatever_class_says_it(host: Any) -> None:
    host.write()
    cost = Counting(input_tokens=3)
    async with host.engine(agent=raising(AgentError("no", code="said-no", usage=cost))) as engine:
        run = await engine.run("check")
    assert (run.failure.code, run.usage) == ("said-no", Usage(input_tokens=3))


async def test_a_remedy_that_is_known_reaches_the_record(host: Any) -> None:
    problem = Problem(code="follow-up-refused", message="too many", remedy="wait until one has run")
    host.write()
    async with host.engine(agent=raising(FollowUpRefused(problem))) as engine:
        run = await engine.run("check")
    assert run.failure == problem


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_an_agent_that_cancels_its_own_turn_fails_it(host: Any) -> None:
    """Only asyncio lets a call raise a cancellation that nobody asked for."""
    host.write()
    async with host.engine(agent=raising(asyncio.CancelledError())) as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "agent-cancelled-itself")


@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
async def test_another_loops_cancellation_is_an_exception_like_others(host: Any) -> None:
    host.write()
    async with host.engine(agent=raising(asyncio.CancelledError())) as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "agent-raised")


@pytest.mark.parametrize("text", ["", " \n\t"])
@pytest.mark.parametrize("notify", ["always", "never"])
async def test_an_empty_final_reply_fails_the_run(host: Any, text: str, notify: str) -> None:
    """An earlier step may say nothing."""
    host.write(steps=["One.", "Two."], notify=notify)
    host.agent = ScriptedAgent({"step-1": "", "step-2": text})
    async with host.engine() as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "final-reply-empty")
    assert len(host.agent.turns) == 2
    assert run.intent.gate == ("run-failed" if notify == "always" else "policy-never")


async def test_a_failing_step_ends_the_run(host: Any) -> None:
    """A partial success is a failure, and no judgment is asked for."""
    host.write(steps=["One.", "Two.", "Three."], notify="auto")
    host.agent = ScriptedAgent({"step-1": "fine", "step-2": AgentError("no", code="nope")})
    async with host.engine() as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "nope")
    assert [turn.step_id for turn in host.agent.turns] == ["step-1", "step-2"]
    assert [record.reply.text if record.reply else None for record in run.turns] == ["fine", None]
    assert run.session_id == host.agent.turns[0].session_id


async def test_usage_is_added_up_over_turns_and_failed_attempts(host: Any) -> None:
    def cost(tokens: int, usd: str | None) -> Usage:
        return Usage(
            input_tokens=tokens, output_tokens=1, cost_usd=None if usd is None else Decimal(usd)
        )

    host.write(steps=["One.", "Two.", "Three."])
    host.agent = ScriptedAgent(
        {
            "step-1": [
                AgentUnavailable("busy", usage=cost(1, None)),
                Reply(text="a", usage=cost(10, "0.5")),
            ],
            "step-2": "nothing said of cost",
            "step-3": AgentError("no", usage=cost(100, "0.25")),
        }
    )
    async with host.engine() as engine:
        run = await host.fire(engine)
    assert run.usage == Usage(input_tokens=111, output_tokens=3, cost_usd=Decimal("0.75"))


# ---- retries


async def test_an_unavailable_agent_is_tried_three_times_under_one_turn_id(host: Any) -> None:
    """A first turn of a conversation gets a fresh session id each time, and the context again."""
    host.write()
    asked: list[Any] = []

    def say(turn: Turn) -> str | Exception:
        asked.append(host.clock.now())
        return AgentUnavailable("overloaded") if turn.attempt < 3 else "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await host.fire(engine)
        pins = await engine.sessions()
    turns = host.agent.turns
    assert run.state == "succeeded"
    assert [turn.attempt for turn in turns] == [1, 2, 3]
    assert len({turn.turn_id for turn in turns}) == 1
    assert len({turn.session_id for turn in turns}) == 3
    assert all(turn.is_new and turn.context == turns[0].context for turn in turns)
    assert run.turns[0].attempts == 3
    assert run.session_id == pins["check"].session_id == turns[2].session_id
    assert [after - before for before, after in pairwise(asked)] == [
        timedelta(seconds=2),
        timedelta(seconds=4),
    ]


async def test_a_later_turn_is_tried_again_in_its_conversation(host: Any) -> None:
    host.write(steps=["One.", "Two."])
    host.agent = ScriptedAgent({"step-2": [AgentUnavailable("overloaded"), "done"]})
    async with host.engine() as engine:
        run = await host.fire(engine)
    assert run.state == "succeeded"
    assert len({turn.session_id for turn in host.agent.turns}) == 1
    assert [turn.is_new for turn in host.agent.turns] == [True, False, False]


async def test_the_wait_that_a_provider_asks_for_is_kept(host: Any) -> None:
    host.write()
    asked: list[Any] = []

    def say(turn: Turn) -> str | Exception:
        asked.append(host.clock.now())
        return AgentUnavailable("later", retry_after=7 * MINUTE) if turn.attempt == 1 else "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await host.fire(engine)
    assert run.state == "succeeded"
    assert asked[1] - asked[0] == 7 * MINUTE


@pytest.mark.parametrize("step, state", [("step-1", "aborted"), ("step-2", "failed")])
async def test_an_agent_that_stays_away_ends_the_run(host: Any, step: str, state: str) -> None:
    """Aborted when it never said anything, failed when it did."""
    host.write(steps=["One.", "Two."])
    host.agent = ScriptedAgent({step: AgentUnavailable("overloaded")})
    async with host.engine() as engine:
        run = await host.fire(engine)
    assert (run.state, run.failure.code) == (state, "agent-unavailable")
    assert run.turns[-1].attempts == 3
    assert run.intent.verdict == "deliver"


# ---- time


async def test_a_turn_that_takes_too_long_fails(host: Any) -> None:
    """At its limit, on the engine's clock; it is not tried again."""
    host.write()

    async def slow(turn: Turn) -> Reply:
        await host.clock.sleep(timedelta(hours=2))
        return Reply(text="too late")

    agent = Calls(slow)
    async with host.engine(agent=agent, settings={"turn_timeout": 5 * MINUTE}) as engine:
        run = await host.fire(engine)
    assert (run.state, run.failure.code) == ("failed", "turn-timeout")
    assert "longer than 5 min" in run.failure.message
    assert run.finished_at - run.started_at == 5 * MINUTE
    assert len(agent.turns) == 1


@pytest.mark.parametrize("made_of_it", ["a reply", "an error", "unavailable"])
async def test_what_an_agent_makes_of_its_cancellation_is_no_answer(
    host: Any, made_of_it: str
) -> None:
    """The turn was over time, and says so under one code."""
    host.write()

    async def swallows(turn: Turn) -> Reply:
        try:
            await host.clock.sleep(60 * MINUTE)
        except anyio.get_cancelled_exc_class():
            if made_of_it == "an error":
                raise ConnectionError("closed") from None
            if made_of_it == "unavailable":
                raise AgentUnavailable("closed") from None
        return Reply(text="part of an answer", usage=Usage(input_tokens=7))

    agent = Calls(swallows)
    async with host.engine(agent=agent, settings={"turn_timeout": 5 * MINUTE}) as engine:
        run = await host.fire(engine)
    assert (run.state, run.failure.code) == ("failed", "turn-timeout")
    assert len(agent.turns) == 1
    assert run.turns[0].reply is None
    assert run.usage.input_tokens == (7 if made_of_it == "a reply" else 0)
