"""What goes wrong is voiced, whatever the policy would make of a sentinel (spec, section 10)."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat import AgentError, AgentUnavailable, ContextCeiling
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

QUIET = "NOTHING_TO_REPORT"
MISSING: dict[str, Any] = {"requires": ["guidance/NONE.md"]}
SILENT: dict[str, Any] = {"inject": [{"argv": ["true"], "label": "state"}]}
FAILING: dict[str, Any] = {"inject": [{"argv": ["false"], "label": "state"}]}


@pytest.mark.parametrize("policy", ["always", "auto", "urgent-only"])
@pytest.mark.parametrize(
    ("keys", "said", "state", "code"),
    [
        (MISSING, QUIET, "aborted", "requirement-unmet"),
        (SILENT, QUIET, "aborted", "inject-empty"),
        (FAILING, QUIET, "aborted", "inject-failed"),
        ({}, AgentError("no", code="nope"), "failed", "nope"),
        ({}, AgentUnavailable("away"), "aborted", None),
        ({}, ContextCeiling("too long"), "failed", None),
        ({}, ValueError("a mistake"), "failed", "agent-raised"),
    ],
)
async def test_no_failure_ends_as_withheld_by_the_sentinel(  # noqa: PLR0917  a row of a table
    host: Any, policy: str, keys: dict[str, Any], said: Any, state: str, code: str | None
) -> None:
    host.write(notify=policy, **keys)
    host.agent = ScriptedAgent({"step": lambda turn: said}, default=QUIET)
    async with host.engine() as engine:
        await engine.fire("check")
        (run,) = await drive(engine, until=host.clock.now() + timedelta(hours=1))
        (error,) = await host.events(engine, "automation_error")
    assert run.state == state
    assert code in (None, run.failure.code)
    assert (run.intent.verdict, run.intent.gate) == ("deliver", "run-failed")
    assert run.failure.message in run.intent.text
    assert error.data["code"] == run.failure.code
    assert [intent.id for intent in host.deliverer.intents] == [run.intent.id]
    assert "judgment" not in [turn.origin for turn in host.agent.turns]


@pytest.mark.parametrize("keys", [MISSING, SILENT])
async def test_under_never_a_failure_is_withheld_and_still_an_event(
    host: Any, keys: dict[str, Any]
) -> None:
    host.write(notify="never", **keys)
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.settled()
        (error,) = await host.events(engine, "automation_error")
    assert (run.intent.verdict, run.intent.gate) == ("withhold", "policy-never")
    assert error.run_id == run.run_id
    assert host.deliverer.intents == []
