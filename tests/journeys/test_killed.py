"""A host killed in the middle of a turn, on real time, with real processes around it."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

HOST = Path(__file__).with_name("host.py")
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


class Machine:
    """Starts hosts on one workspace, and kills them."""

    def __init__(self, workspace: Path, backend: str) -> None:
        self.workspace = workspace
        self.deliveries = workspace.parent / "deliveries.jsonl"
        self.backend = backend
        self.children: list[subprocess.Popen[str]] = []

    def start(self, *actions: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [
                sys.executable,
                str(HOST),
                self.backend,
                str(self.workspace),
                str(self.deliveries),
                *actions,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    def live(self, *actions: str) -> None:
        """Let one host live through `actions` to its end."""
        child = self.start(*actions)
        said, _ = child.communicate(timeout=60)
        assert said.splitlines()[-1] == "done"
        assert child.returncode == 0

    def kill_in_a_turn(self, *actions: str) -> None:
        """Let a host begin a turn that hangs, and kill it with no chance to clean up."""
        (self.workspace / "hang").touch()
        child = self.start(*actions, "stay")
        hanging = self.workspace / "hanging"
        for _ in range(6000):
            if hanging.exists() and hanging.read_text(encoding="utf-8"):
                break
            assert child.poll() is None
            time.sleep(0.01)  # noqa: TID251  the child says by a file how far it is
        child.kill()
        child.communicate(timeout=60)
        self.end_model()
        (self.workspace / "hang").unlink()

    def end_model(self) -> None:
        hanging = self.workspace / "hanging"
        if hanging.exists():
            with suppress(ProcessLookupError):
                os.kill(int(hanging.read_text(encoding="utf-8")), signal.SIGKILL)
            hanging.unlink()

    def turns(self) -> list[dict[str, Any]]:
        lines = (self.workspace / "model.log").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def delivered(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in self.deliveries.read_text(encoding="utf-8").splitlines()
        ]

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.workspace / ".drumbeat" / "drumbeat.db")) as db, db:
            return db.execute(question).fetchall()


@pytest.fixture(params=["asyncio", "trio"])
def machine(
    request: pytest.FixtureRequest, workspace: Path, write: Callable[..., None]
) -> Iterator[Machine]:
    """A workspace with one automation, its inject tool, and hosts that end with the test."""
    write("check", CHECK)
    tool = workspace / "bin" / "state"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho open: 3\n", encoding="utf-8")
    tool.chmod(0o755)
    machine = Machine(workspace, request.param)
    yield machine
    for child in machine.children:
        child.kill()
        child.communicate()
    machine.end_model()


def test_a_killed_run_is_settled_and_voiced_once_and_the_next_resumes(machine: Machine) -> None:
    """The interrupted run gets its intent, delivered once by id; the conversation goes on."""
    machine.live("run:check")
    machine.kill_in_a_turn("fire:check")
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


def test_a_fire_with_a_slot_gets_one_more_attempt_that_is_told_so(machine: Machine) -> None:
    """Killed twice in a row it is settled, with one intent that people hear of."""
    machine.kill_in_a_turn("fire:check:ticket-1")
    machine.kill_in_a_turn()
    machine.live("settle", "fire:check:ticket-1", "settle")

    contexts = [turn["context"] for turn in machine.turns() if turn["context"]]
    assert len(contexts) == 2
    assert "interrupted" not in contexts[0]
    assert "interrupted" in contexts[1]
    (line,) = machine.delivered()
    assert line["gate"] == "run-failed"
    assert machine.rows("SELECT verdict FROM fires") == [("ran",)]


def test_an_attempt_after_the_crash_may_succeed(machine: Machine) -> None:
    """The fire ends as `ran`, the interrupted attempt's intent stays on record only."""
    machine.kill_in_a_turn("fire:check:ticket-1")
    machine.live("settle")
    (line,) = machine.delivered()
    assert line["gate"] == "policy-always"
    assert machine.rows("SELECT verdict FROM fires") == [("ran",)]
    assert machine.rows("SELECT count(*) FROM runs") == [(2,)]
