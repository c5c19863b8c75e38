"""A host killed between the delivery of an intent and its record, with real processes."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

HOST = Path(__file__).with_name("holding_host.py")
CHECK = """
name: Check
trigger: {type: manual}
notify: always
steps:
  - id: look
    prompt: Look around.
"""


class Machine:
    """Starts hosts on one workspace, and kills them inside `deliver`."""

    def __init__(self, workspace: Path, backend: str) -> None:
        self.workspace = workspace
        self.deliveries = workspace.parent / "deliveries.jsonl"
        self.backend = backend
        self.children: list[subprocess.Popen[str]] = []

    def start(self, *actions: str) -> subprocess.Popen[str]:
        folders = [str(self.workspace), str(self.deliveries)]
        child = subprocess.Popen(
            [sys.executable, str(HOST), self.backend, *folders, *actions],
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

    def kill_in_a_delivery(self, *actions: str, lines: int = 1) -> None:
        """Let a host write `lines` more deliveries that do not return, and kill it."""
        before = len(self.delivered())
        (self.workspace / "hold").touch()
        child = self.start(*actions, "settle")
        for _ in range(6000):
            if len(self.delivered()) == before + lines:
                break
            assert child.poll() is None
            time.sleep(0.01)  # noqa: TID251  the child says by a file how far it is
        child.kill()
        child.communicate(timeout=60)
        assert child.returncode == -9
        (self.workspace / "hold").unlink()

    def delivered(self) -> list[dict[str, Any]]:
        if not self.deliveries.exists():
            return []
        text = self.deliveries.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def attempts(self, slug: str) -> list[int]:
        return [line["attempt"] for line in self.delivered() if line["slug"] == slug]

    def turns(self, slug: str) -> int:
        log = (self.workspace / "model.log").read_text(encoding="utf-8")
        return sum(json.loads(line)["slug"] == slug for line in log.splitlines())


@pytest.fixture(params=["asyncio", "trio"])
def machine(
    request: pytest.FixtureRequest, workspace: Path, write: Callable[..., None]
) -> Iterator[Machine]:
    """A workspace with two automations, and hosts that end with the test."""
    write("check", CHECK)
    write("other", CHECK.replace("Check", "Other"))
    machine = Machine(workspace, request.param)
    yield machine
    for child in machine.children:
        child.kill()
        child.communicate()


def test_a_host_killed_before_deliver_returns_hands_the_same_id_over_again(
    machine: Machine,
) -> None:
    """Each life has a higher attempt, the agent ran once, and what was recorded is over."""
    machine.kill_in_a_delivery("run:check")
    machine.kill_in_a_delivery()
    machine.live("settle")
    assert machine.attempts("check") == [1, 2, 3]
    assert len({line["id"] for line in machine.delivered()}) == 1
    assert machine.turns("check") == 1
    machine.live("settle")
    assert machine.attempts("check") == [1, 2, 3]


def test_every_intent_in_the_way_of_the_kill_arrives_and_keeps_its_order(
    machine: Machine,
) -> None:
    """Two that were being delivered come again, the one that waited behind comes once."""
    machine.kill_in_a_delivery("run:check", "run:check", "run:other", lines=2)
    machine.live("settle")
    assert machine.attempts("other") == [1, 2]
    assert machine.attempts("check") == [1, 2, 1]
    first, again, second = [line["id"] for line in machine.delivered() if line["slug"] == "check"]
    assert first == again != second
    assert (machine.turns("check"), machine.turns("other")) == (2, 1)
