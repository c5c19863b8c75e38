import json
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from drumbeat import Engine, Settings
from drumbeat.agents import CommandAgent
from drumbeat.agents.command import _parse
from drumbeat.core.model import Automation, Fire, Reply, Requirement, Step, Turn, Usage
from drumbeat.errors import (
    AgentError,
    AgentUnavailable,
    ContextCeiling,
    ConversationNotFound,
    FollowUpRefused,
    Problem,
)

AT = datetime(2026, 3, 1, 7, 0, tzinfo=UTC)


@attrs.define
class FollowUps:
    """Remembers what was asked for; refuses more than `room`."""

    room: int = 5
    asked: list[tuple[str, timedelta]] = attrs.field(factory=list)

    async def schedule(self, prompt: str, *, after: timedelta) -> Fire:
        if len(self.asked) >= self.room:
            raise FollowUpRefused(Problem(code="follow-up-limit", message="5 wait", remedy="wait"))
        self.asked.append((prompt, after))
        return Fire(id="f", slug="a", cause="follow-up", slot="s", due=AT, created_at=AT)


@pytest.fixture
def turn(tmp_path: Path) -> Turn:
    (tmp_path / "work").mkdir()
    return Turn(
        turn_id="t-01",
        attempt=1,
        slug="a",
        session_id="5e55",
        is_new=True,
        handle=None,
        automation=Automation(
            slug="a",
            name="A",
            kind="automation",
            steps=(Step(id="look", prompt="Look."),),
            path=Path("automations/a.md"),
        ),
        run_id="r",
        origin="step",
        step_id="look",
        label="Look",
        prompt="Look – 'now' \ud800",
        context="It is 07:00.",
        requirements=(
            Requirement(name="g.md", kind="file", path=tmp_path / "g.md", text="guidance"),
        ),
        system_prompt=None,
        skills=(tmp_path / "skill",),
        config={"provider": {"module": "x"}},
        memory_dir=tmp_path / "memory",
        follow_ups=FollowUps(),
        env={"PATH": os.defpath, "ONLY": "this"},
        cwd=tmp_path / "work",
        timeout=timedelta(minutes=5),
    )


def says(stdout: object, *, exit_code: int = 0, stderr: str = "") -> CommandAgent:
    """An agent that answers every turn with just this."""
    raw = stdout if isinstance(stdout, str) else json.dumps(stdout)
    code = (
        "import sys; sys.stdin.read(); sys.stdout.write(sys.argv[1]); "
        "sys.stderr.write(sys.argv[2]); sys.exit(int(sys.argv[3]))"
    )
    return CommandAgent([sys.executable, "-c", code, raw, stderr, str(exit_code)])


async def failure(agent: CommandAgent, turn: Turn) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await agent.take_turn(turn)
    return caught.value


ECHO = """
import json, os, sys
turn = json.load(sys.stdin)
seen = {"turn": turn, "argv": sys.argv[1:], "cwd": os.getcwd(), "only": os.environ.get("ONLY")}
seen["names"] = sorted(os.environ)
print(json.dumps({"text": json.dumps(seen)}))
"""


@pytest.mark.anyio
async def test_a_command_reads_every_fact_of_the_turn(turn: Turn, tmp_path: Path) -> None:
    reply = await CommandAgent([sys.executable, "-c", ECHO, "--flag"]).take_turn(turn)
    seen = json.loads(reply.text)
    facts = seen["turn"]
    assert facts.pop("version") == 1
    left_out = {"follow_ups", "env"}
    assert set(facts) == {field.name for field in attrs.fields(Turn)} - left_out | {"text"}
    for name in ("turn_id", "attempt", "slug", "session_id", "is_new", "handle", "run_id"):
        assert facts[name] == getattr(turn, name)
    for name in ("origin", "step_id", "label", "prompt", "context", "text", "config"):
        assert facts[name] == getattr(turn, name)
    assert facts["automation"] == {"name": "A", "kind": "automation", "path": "automations/a.md"}
    assert facts["requirements"] == [
        {"name": "g.md", "kind": "file", "path": str(tmp_path / "g.md"), "text": "guidance"}
    ]
    assert facts["skills"] == [str(tmp_path / "skill")]
    assert facts["timeout"] == 300
    assert seen["argv"] == ["--flag"]
    assert Path(seen["cwd"]) == (tmp_path / "work").resolve()
    assert seen["only"] == "this"
    assert "HOME" not in seen["names"]


@pytest.mark.anyio
async def test_a_turn_without_an_automation_says_so(turn: Turn) -> None:
    bare = attrs.evolve(turn, automation=None, run_id=None, origin="ask", slug="_ask")
    reply = await CommandAgent([sys.executable, "-c", ECHO]).take_turn(bare)
    assert json.loads(reply.text)["turn"]["automation"] is None


@pytest.mark.anyio
async def test_a_reply_is_what_the_command_said(turn: Turn) -> None:
    answer: dict[str, Any] = {
        "text": "Done.\n",
        "usage": {"input_tokens": 3, "cost_usd": 0.1},
        "provider": "p",
        "model": "m",
        "handle": "h",
    }
    assert await says(answer).take_turn(turn) == Reply(
        text="Done.\n",
        usage=Usage(input_tokens=3, cost_usd=Decimal("0.1")),
        provider="p",
        model="m",
        handle="h",
    )
    nothing_more = {"text": "", "usage": None, "handle": None, "follow_ups": None}
    assert await says(nothing_more).take_turn(turn) == Reply(text="")


@pytest.mark.anyio
async def test_follow_ups_are_scheduled_before_the_reply_returns(turn: Turn) -> None:
    asks = [{"prompt": "Look again.", "after": 90}, {"prompt": "And again.", "after": 0.5}]
    await says({"text": "ok", "follow_ups": asks}).take_turn(turn)
    assert isinstance(turn.follow_ups, FollowUps)
    assert turn.follow_ups.asked == [
        ("Look again.", timedelta(seconds=90)),
        ("And again.", timedelta(seconds=0.5)),
    ]


@pytest.mark.anyio
async def test_a_refused_follow_up_leaves_the_reply_and_the_others(turn: Turn) -> None:
    """The work is done: its text is not lost to a limit, and what was scheduled stays."""
    full = attrs.evolve(turn, follow_ups=FollowUps(room=1))
    asks = [{"prompt": prompt, "after": 90} for prompt in ("Look again.", "And again.")]
    reply = await says({"text": "ok", "follow_ups": asks}).take_turn(full)
    assert reply.text == "ok"
    assert isinstance(full.follow_ups, FollowUps)
    assert full.follow_ups.asked == [("Look again.", timedelta(seconds=90))]


@pytest.mark.anyio
async def test_a_refused_follow_up_does_not_stop_one_behind_it(turn: Turn) -> None:
    """Each is judged by itself, as it would be if it had been asked for alone."""

    class Patient(FollowUps):
        async def schedule(self, prompt: str, *, after: timedelta) -> Fire:
            if after > timedelta(days=30):
                raise FollowUpRefused(Problem(code="follow-up-refused", message="m", remedy="r"))
            return await super().schedule(prompt, after=after)

    patient = Patient()
    asks = [{"prompt": "Late.", "after": 9_000_000}, {"prompt": "Soon.", "after": 60}]
    answer = says({"text": "ok", "follow_ups": asks})
    await answer.take_turn(attrs.evolve(turn, follow_ups=patient))
    assert patient.asked == [("Soon.", timedelta(seconds=60))]


@pytest.mark.anyio
async def test_an_engine_records_the_follow_up_that_it_refuses(tmp_path: Path) -> None:
    """The run succeeds with its text, one follow-up waits, and an event says why not two."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.md").write_text("---\n---\nLook.\n")
    asks = [{"prompt": prompt, "after": 90} for prompt in ("Look again.", "And again.")]
    agent = says({"text": "all is well", "follow_ups": asks})
    settings = Settings(follow_ups_pending=1)
    async with Engine(tmp_path, agent=agent, settings=settings, env=dict(os.environ)) as engine:
        run = await engine.run("a")
        events = [event async for event in engine.events(follow=False)]
        waiting = (await engine.status()).waiting
    assert run.state == "succeeded"
    assert run.intent is not None
    assert run.intent.text == "all is well"
    assert [fire.prompt for fire in waiting] == ["Look again."]
    (refused,) = [event for event in events if event.kind == "follow_up_refused"]
    assert refused.run_id == run.run_id
    assert "1 is the limit" in refused.data["reason"]


@pytest.mark.anyio
@pytest.mark.parametrize("exit_code", [0, 1])
@pytest.mark.parametrize(
    "code, kind",
    [
        ("agent-unavailable", AgentUnavailable),
        ("context-ceiling", ContextCeiling),
        ("conversation-missing", ConversationNotFound),
        ("quota-used-up", AgentError),
        ("agent-reply-invalid", AgentError),
        ("agent-command-failed", AgentError),
    ],
)
async def test_an_error_is_raised_as_what_its_code_means(
    turn: Turn, code: str, kind: type[AgentError], exit_code: int
) -> None:
    answer = {"error": {"code": code, "message": "why"}, "usage": {"cached_tokens": 1}}
    error = await failure(says(answer, exit_code=exit_code), turn)
    assert type(error) is kind
    assert (error.code, str(error), error.usage) == (code, "why", Usage(cached_tokens=1))


@pytest.mark.anyio
async def test_an_unavailable_agent_may_say_when_to_come_back(turn: Turn) -> None:
    answer = {"error": {"code": "agent-unavailable", "message": "busy", "retry_after": 1.5}}
    error = await failure(says(answer), turn)
    assert isinstance(error, AgentUnavailable)
    assert error.retry_after == timedelta(seconds=1.5)


@pytest.mark.anyio
async def test_a_failed_command_shows_the_last_of_its_standard_error(turn: Turn) -> None:
    error = await failure(says({"text": "ok"}, exit_code=3, stderr="x" * 5_000 + "why\n"), turn)
    assert error.code == "agent-command-failed"
    assert "exited with code 3; standard error ended with: …xxx" in str(error)
    assert str(error).endswith("xwhy")
    assert len(str(error)) < 2_200
    quiet = await failure(says("", exit_code=1), turn)
    assert str(quiet).endswith("exited with code 1")


@pytest.mark.anyio
async def test_a_provider_s_words_for_a_full_context_are_known(turn: Turn) -> None:
    said = "Error: prompt is too long: 210000 tokens > 200000 maximum"
    assert isinstance(await failure(says("", exit_code=1, stderr=said), turn), ContextCeiling)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "stdout, said",
    [
        ("", "not one JSON object"),
        ("Sure! Here it is", "not one JSON object"),
        ('{"text": "a"} {"text": "b"}', "not one JSON object"),
        ('{"text": "a", "text": "b"}', "a key stands twice: 'text'"),
        ('{"text": "a", "usage": {"cost_usd": NaN}}', "NaN is not JSON"),
        ('{"text": "a", "usage": {"cost_usd": 1e9223372036854775808}}', "beyond all bounds"),
        ("[" * 100_000, "not one JSON object"),
        (["text"], "it is a list"),
        ("null", "it is null"),
        ("7", "it is a number"),
        ("true", "it is true or false"),
        ({}, "lacks 'text'"),
        ({"text": "a", "txt": 1, "b": 2}, "unknown keys: 'b', 'txt'"),
        ({"text": 7}, "text is a number"),
        ({"text": {"a": 1}}, "text is an object"),
        ('{"text": "\\ud800"}', "surrogate"),
        ({"text": "a", "model": 1}, "model is a number"),
        ({"text": "a", "usage": []}, "usage is a list"),
        ({"text": "a", "usage": {"tokens": 1}}, "usage has unknown keys: 'tokens'"),
        ({"text": "a", "usage": {"input_tokens": -1}}, "input_tokens is less than zero"),
        ({"text": "a", "usage": {"input_tokens": 1.5}}, "input_tokens is not a whole number"),
        ({"text": "a", "usage": {"input_tokens": True}}, "input_tokens is true or false"),
        ({"text": "a", "usage": {"cost_usd": "1"}}, "cost_usd is text"),
        ({"text": "a", "follow_ups": {}}, "follow_ups is an object"),
        ({"text": "a", "follow_ups": ["x"]}, "follow_ups[0] is text"),
        ({"text": "a", "follow_ups": [{"prompt": "x"}]}, "follow_ups[0] lacks 'after'"),
        ({"text": "a", "follow_ups": [{"prompt": " ", "after": 1}]}, "prompt is blank"),
        ({"text": "a", "follow_ups": [{"prompt": "x", "after": None}]}, "after is null"),
        ({"text": "a", "follow_ups": [{"prompt": "x", "after": 1e300}]}, "more than"),
        ({"error": "bad"}, "error is text"),
        ({"error": {"code": "a"}}, "error lacks 'message'"),
        ({"error": {"code": "a", "message": " "}}, "error.message is blank"),
        ({"error": {"code": "Not kebab", "message": "m"}}, "error.code is 'Not kebab'"),
        ({"error": {"code": "a", "message": "m", "retry_after": 1}}, "agent-unavailable"),
        ({"error": {"code": "a", "message": "m"}, "text": "t"}, "unknown keys: 'text'"),
    ],
)
async def test_a_reply_of_another_shape_says_what_is_wrong(
    turn: Turn, stdout: object, said: str
) -> None:
    error = await failure(says(stdout), turn)
    assert (type(error), error.code) == (AgentError, "agent-reply-invalid")
    assert said in str(error)
    assert isinstance(turn.follow_ups, FollowUps)
    assert turn.follow_ups.asked == []


@pytest.mark.anyio
async def test_a_reply_without_end_is_cut_off(turn: Turn) -> None:
    error = await failure(CommandAgent(["yes"]), turn)
    assert error.code == "agent-reply-invalid"
    assert "8 MiB" in str(error)


@pytest.mark.anyio
async def test_output_that_is_not_utf8_is_invalid(turn: Turn) -> None:
    error = await failure(CommandAgent(["printf", '{"text": "\\377"}']), turn)
    assert error.code == "agent-reply-invalid"


@pytest.mark.anyio
async def test_a_command_that_is_not_there_cannot_be_started(turn: Turn) -> None:
    error = await failure(CommandAgent(["no-such-agent"]), turn)
    assert error.code == "agent-command-not-startable"
    assert "no-such-agent" in str(error)


@pytest.mark.anyio
async def test_a_limit_of_its_own_ends_the_command(turn: Turn) -> None:
    agent = CommandAgent(["sleep", "600"], timeout=timedelta(seconds=0.1))
    error = await failure(agent, turn)
    assert error.code == "agent-command-timeout"
    assert "longer than 0.1 s" in str(error)


@pytest.mark.anyio
async def test_cancellation_ends_the_command(turn: Turn) -> None:
    with anyio.move_on_after(0.1) as scope:
        await CommandAgent(["sleep", "600"]).take_turn(turn)
    assert scope.cancelled_caught


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a guard looks into /proc")
async def test_a_drain_ends_what_the_command_moved_away(tmp_path: Path) -> None:
    """It has called `setsid`, so no signal to the command's process group reaches it."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.md").write_text("---\n---\nLook.\n")
    pid = anyio.Path(tmp_path, "pid")
    script = 'setsid sh -c \'echo $$ >"$1"; exec sleep 600\' sh "$1" & wait; sleep 600'
    agent = CommandAgent(["sh", "-c", script, "sh", str(pid)])
    settings = Settings(drain_timeout=timedelta(milliseconds=1))
    async with Engine(tmp_path, agent=agent, settings=settings, env=dict(os.environ)) as engine:
        await engine.fire("a")
        with anyio.fail_after(30):
            while not await pid.exists() or not (await pid.read_text()).endswith("\n"):
                await anyio.sleep(0.01)
        moved = Path("/proc", (await pid.read_text()).strip(), "stat")
        assert moved.exists()
        await engine.drain("the test is over")
        state = moved.read_bytes().rpartition(b")")[2].split()[0] if moved.exists() else b"X"
        (run,) = await engine.runs("a")
    assert run.state == "interrupted"
    assert state in (b"X", b"Z")


@pytest.mark.anyio
@pytest.mark.parametrize("value", [float("inf"), {1, 2}])
async def test_a_configuration_that_is_no_json_is_named(turn: Turn, value: object) -> None:
    odd = attrs.evolve(turn, config={"provider": value})
    error = await failure(says({"text": "ok"}), odd)
    assert error.code == "agent-turn-invalid"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        [""],
        "my-agent --json",
        ["./agent"],
        ["bin/agent"],
        [1, 2],
        ["agent", 2],
        ["agent", "\0"],
        [Path("/bin/agent")],
        b"agent",
        None,
        5,
    ],
)
def test_a_command_that_could_mean_several_things_is_refused(argv: Any) -> None:
    with pytest.raises(ValueError, match=r"argv must be|make it absolute"):
        CommandAgent(argv)


@pytest.mark.parametrize("timeout", [timedelta(0), timedelta(seconds=-1), 30])
def test_a_limit_that_no_turn_can_keep_is_refused(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout must be a timedelta above zero"):
        CommandAgent(["agent"], timeout=timeout)


def test_the_replies_that_the_documents_show_are_replies() -> None:
    page = Path(__file__).parent.parent / "docs" / "embedding.md"
    shown = re.findall(r"```json\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    reply, failed = (text.encode() for text in shown)
    answer = _parse(reply)
    assert answer.reply.text == "Two run out on Friday."
    assert answer.reply.usage is not None
    assert answer.follow_ups == (("Look whether they were renewed.", timedelta(days=1)),)
    with pytest.raises(AgentUnavailable) as caught:
        _parse(failed)
    assert caught.value.retry_after == timedelta(seconds=30)
