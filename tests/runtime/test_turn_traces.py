"""What is kept of an exception inside the agent, and of an attempt that is made again."""

from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from drumbeat import AgentError, AgentUnavailable, Reply, Turn
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

SECRETS = {"KEY": "correct-horse"}


class Faulty(ScriptedAgent):
    """Has a fault two calls deep, which quotes a secret."""

    async def take_turn(self, turn: Turn, /) -> Reply:
        return self.parse("correct-horse")

    def parse(self, text: str) -> Reply:
        msg = f"unexpected {text}"
        raise KeyError(msg)


async def test_a_fault_inside_the_agent_keeps_its_traceback(host: Any) -> None:
    """In the log and in the turn's artifact, redacted: where it was raised, and from where."""
    host.write()
    with capture_logs() as logs:
        async with host.engine(agent=Faulty(), secrets=SECRETS) as engine:
            run = await engine.run("check")
    assert run.failure.code == "agent-raised"
    assert "mend the agent" in run.failure.remedy
    (line,) = [line for line in logs if line["event"] == "turn_failed"]
    assert (line["log_level"], line["slug"], line["run_id"]) == ("error", "check", run.run_id)
    assert (line["turn_id"], line["attempt"]) == (run.turns[0].turn_id, 1)
    assert line["message"].endswith("unexpected [redacted KEY]'")
    page = (host.folder(run) / "turns" / "01-step.md").read_text()
    assert "## Traceback" in page
    for text in (line["trace"], page):
        assert "in parse" in text
        assert "raise KeyError(msg)" in text
        assert "[redacted KEY]" in text
        assert "correct-horse" not in text


async def test_what_an_agent_raises_on_purpose_needs_no_traceback(
    host: Any,
) -> None:
    """It says for people what happened, in the artifact and in the log, redacted."""
    host.write()
    raised = AgentError("no quota for correct-horse", code="quota-used-up")
    host.agent = ScriptedAgent(default=raised)
    with capture_logs() as logs:
        async with host.engine(secrets=SECRETS) as engine:
            run = await engine.run("check")
    page = (host.folder(run) / "turns" / "01-step.md").read_text()
    said = "no quota for [redacted KEY]"
    assert page.endswith(f"## Reply\n\n(no reply: {said} [quota-used-up])\n")
    (line,) = [line for line in logs if line["event"] == "turn_failed"]
    assert line["code"] == "quota-used-up"
    assert line["message"] == said
    assert "trace" not in line


async def test_each_attempt_that_is_made_again_leaves_its_reason(host: Any) -> None:
    """In the log, in the durable event of the turn and in its artifact, redacted."""
    host.write()
    busy = AgentUnavailable("busy, says correct-horse")
    host.agent = ScriptedAgent({"step-1": [busy, AgentUnavailable("still busy"), "all well"]})
    with capture_logs() as logs:
        async with host.engine(secrets=SECRETS) as engine:
            fire = await engine.fire("check")
            (run,) = await drive(engine, until=fire.due + timedelta(minutes=1))
            (event,) = await host.events(engine, "turn_completed")
    assert run.state == "succeeded"
    reasons = ["busy, says [redacted KEY]", "still busy"]
    assert [line["reason"] for line in logs if line["event"] == "turn_retried"] == reasons
    assert event.data["attempts"] == 3
    kept = [f"attempt {number}: {reason}" for number, reason in enumerate(reasons, 1)]
    assert list(event.data["retried"]) == kept
    page = (host.folder(run) / "turns" / "01-step.md").read_text()
    assert page.endswith(f"## Tried again\n\n{kept[0]}\n\n{kept[1]}\n\n## Reply\n\nall well\n")


class Unprintable(Exception):  # noqa: N818
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        msg = "no notes"
        raise RuntimeError(msg)


async def test_a_fault_that_cannot_be_printed_ends_the_turn_all_the_same(host: Any) -> None:
    """The run fails for what the agent did, and not for the attempt to tell of it."""
    host.write()
    host.agent = ScriptedAgent(default=Unprintable("odd"))
    async with host.engine() as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "agent-raised")
    page = (host.folder(run) / "turns" / "01-step.md").read_text()
    assert "## Traceback" in page
