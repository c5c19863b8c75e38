"""Each reason to rotate leaves the same three marks, and nothing else rotates (spec, section 7)."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from drumbeat import ContextCeiling, ConversationNotFound, Reply, Turn

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)


class Worker:
    """Answers, except in conversations that it was told to refuse."""

    def __init__(self) -> None:
        self.refused: dict[str, Exception] = {}

    async def take_turn(self, turn: Turn, /) -> Reply:
        if turn.session_id in self.refused:
            raise self.refused[turn.session_id]
        return Reply(text="done")


def lines(host: Any) -> list[dict[str, Any]]:
    path = host.data / "session_rotations.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def raising(error: Exception) -> Callable[[Any, str], None]:
    """The agent does not go on with the conversation of that id."""

    def change(host: Any, old: str) -> None:
        host.agent.refused[old] = error

    return change


def edit(**keys: Any) -> Callable[[Any, str], None]:
    def change(host: Any, _old: str) -> None:
        host.write(**keys)

    return change


def stay(_host: Any, _old: str) -> None:
    pass


@pytest.mark.parametrize(
    ("keys", "change", "days", "reason"),
    [
        ({"conversation": "fresh"}, stay, 0, "fresh"),
        ({"conversation": "daily"}, stay, 1, "daily-boundary"),
        ({}, edit(steps=[{"id": "look", "prompt": "Look elsewhere."}]), 0, "steps-changed"),
        ({}, edit(agent_config={"provider": {"module": "other"}}), 0, "provider-changed"),
        ({}, raising(ContextCeiling("too long")), 0, "context-ceiling"),
        ({}, raising(ConversationNotFound("gone")), 0, "conversation-missing"),
        ({}, stay, 40, None),
        ({"conversation": "daily"}, stay, 0, None),
        ({}, edit(name="Other", notify="never", enabled=False), 0, None),
        ({}, edit(steps=[{"id": "b", "label": "B", "prompt": "Look around."}]), 0, None),
        ({}, edit(agent_config={"provider": {"config": {"default_model": "b"}}}), 0, None),
    ],
)
async def test_a_reason_has_its_pin_cleared_a_line_and_an_event(
    host: Any,
    keys: dict[str, Any],
    change: Callable[[Any, str], None],
    days: int,
    reason: str | None,
) -> None:
    """The run says it too, the next conversation is pinned, and the old one is only let go."""
    host.agent = Worker()
    host.write(**keys)
    async with host.engine() as engine:
        first = await engine.run("check")
        assert (first.rotation, lines(host)) == (None, [])
        change(host, first.session_id)
        await host.clock.advance(days * DAY)
        second = await engine.run("check")
        events = await host.events(engine, "session_rotated")
        pin = (await engine.sessions())["check"]
    assert (second.state, second.rotation) == ("succeeded", reason)
    assert (second.session_id == first.session_id) == (reason is None)
    assert pin.session_id == second.session_id
    rotated = [] if reason is None else [(reason, first.session_id)]
    assert [(line["reason"], line["session_id"]) for line in lines(host)] == rotated
    assert [(event.data["reason"], event.data["session_id"]) for event in events] == rotated
    assert {event.run_id for event in events} == ({second.run_id} if reason else set())


async def test_the_pin_of_a_file_that_is_gone_is_listed(host: Any) -> None:
    path = host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        host.write("other")
        path.unlink()
        for _ in range(3):
            await host.clock.advance(timedelta(seconds=10))
        assert (await engine.status()).workspace.find("check") is None
        assert (await engine.sessions())["check"].session_id == run.session_id
