"""A host killed in the middle of a turn, on real time, with real processes around it."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

CHECK = """
name: Check
trigger: {type: manual}
notify: always
inject:
  - argv: [state]
    label: state
steps:
  - id: look
    prompt: Look around.
"""


@pytest.fixture(autouse=True)
def tool(machine: Any, write: Callable[..., None]) -> None:
    """What is injected comes from a tool."""
    write("check", CHECK)
    tool = machine.workspace / "bin" / "state"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho open: 3\n", encoding="utf-8")
    tool.chmod(0o755)


def kill_in_a_turn(machine: Any, *actions: str) -> None:
    """Let a host begin a turn that hangs, and kill it."""
    (machine.workspace / "hang").touch()
    child = machine.host(*actions, "stay")
    hung = machine.workspace / "hung"
    machine.until(lambda: hung.exists() and hung.read_text(encoding="utf-8"), child=child)
    machine.kill(child)
    machine.end_models()
    (machine.workspace / "hang").unlink()


def test_a_killed_run_is_settled_and_voiced_once_and_the_next_resumes(machine: Any) -> None:
    """The interrupted run gets its intent, delivered once by id; the conversation goes on."""
    machine.live("run:check")
    kill_in_a_turn(machine, "fire:check")
    machine.live("settle")
    machine.live("run:check", "settle")

    texts = [(line["id"], line["gate"]) for line in machine.delivered()]
    assert len(texts) == len(set(texts)) == 3
    assert [gate for _, gate in texts] == ["policy-always", "run-failed", "policy-always"]
    assert "interrupted" in machine.delivered()[1]["text"]
    first, killed, last = (
        [turn for turn in machine.turns() if turn["origin"] == "step"][number]
        for number in range(3)
    )
    assert first["is_new"] is False  # the inject turn came first
    assert first["session_id"] == killed["session_id"] == last["session_id"]
    assert [turn["prompt"] for turn in machine.turns() if turn["origin"] == "inject"] == [
        "open: 3\n"
    ] * 3


def test_a_fire_with_a_slot_gets_one_more_attempt_that_is_told_so(machine: Any) -> None:
    """Killed twice in a row it is settled, with one intent that people hear of."""
    kill_in_a_turn(machine, "fire:check:ticket-1")
    kill_in_a_turn(machine)
    machine.live("settle", "fire:check:ticket-1", "settle")

    contexts = [turn["context"] for turn in machine.turns() if turn["context"]]
    assert len(contexts) == 2
    assert "interrupted" not in contexts[0]
    assert "interrupted" in contexts[1]
    (line,) = machine.delivered()
    assert line["gate"] == "run-failed"
    assert machine.rows("SELECT verdict FROM fires") == [("ran",)]


def test_an_attempt_after_the_crash_may_succeed(machine: Any) -> None:
    """The fire ends as `ran`, the interrupted attempt's intent stays on record only."""
    kill_in_a_turn(machine, "fire:check:ticket-1")
    machine.live("settle")
    (line,) = machine.delivered()
    assert line["gate"] == "policy-always"
    assert machine.rows("SELECT verdict FROM fires") == [("ran",)]
    assert machine.rows("SELECT count(*) FROM runs") == [(2,)]
