"""A host killed between the delivery of an intent and its record, with real processes."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

HOST = "holding_host.py"
OTHER = """
name: Other
trigger: {type: manual}
notify: always
steps:
  - id: look
    prompt: Look around.
"""


def kill_in_a_delivery(machine: Any, *actions: str, lines: int = 1) -> None:
    """Let a host write `lines` more deliveries that do not return, and kill it."""
    after = len(machine.delivered()) + lines
    (machine.workspace / "hold").touch()
    child = machine.host(*actions, "settle", program=HOST)
    machine.until(lambda: len(machine.delivered()) == after, child=child)
    machine.kill(child)
    (machine.workspace / "hold").unlink()


def attempts(machine: Any, slug: str) -> list[int]:
    return [line["attempt"] for line in machine.delivered() if line["slug"] == slug]


def turns(machine: Any, slug: str) -> int:
    return sum(turn["slug"] == slug for turn in machine.turns())


def test_a_host_killed_before_deliver_returns_hands_the_same_id_over_again(
    machine: Any,
) -> None:
    """Each life has a higher attempt, the agent ran once, and what was recorded is over."""
    kill_in_a_delivery(machine, "run:check")
    kill_in_a_delivery(machine)
    machine.live("settle", program=HOST)
    assert attempts(machine, "check") == [1, 2, 3]
    assert len({line["id"] for line in machine.delivered()}) == 1
    assert turns(machine, "check") == 1
    machine.live("settle", program=HOST)
    assert attempts(machine, "check") == [1, 2, 3]


def test_every_intent_in_the_way_of_the_kill_arrives_and_keeps_its_order(
    machine: Any, write: Callable[..., None]
) -> None:
    """Two that were being delivered come again, the one that waited behind comes once."""
    write("other", OTHER)
    kill_in_a_delivery(machine, "run:check", "run:check", "run:other", lines=2)
    machine.live("settle", program=HOST)
    assert attempts(machine, "other") == [1, 2]
    assert attempts(machine, "check") == [1, 2, 1]
    first, again, second = [line["id"] for line in machine.delivered() if line["slug"] == "check"]
    assert first == again != second
    assert (turns(machine, "check"), turns(machine, "other")) == (2, 1)
