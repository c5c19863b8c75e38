"""What a host brings is refused at once when it cannot be what it stands for."""

from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from drumbeat import DeliveryIntent, Engine, Reply, Turn
from drumbeat.runtime.brought import follow_ups_url
from drumbeat.testing import RecordingDeliverer, ScriptedAgent


class Plain:
    """Has the methods, and neither is async."""

    def take_turn(self, turn: Turn, /) -> Reply:
        return Reply(text="ok")

    def deliver(self, intent: DeliveryIntent, /) -> None:
        """Nothing."""


class Wrapped:
    """Async behind a decorator that is not."""

    def _noted(call: Any) -> Any:  # noqa: N805
        @wraps(call)
        def noted(*given: Any) -> Any:
            return call(*given)

        return noted

    @_noted
    async def take_turn(self, turn: Turn, /) -> Reply:
        return Reply(text="ok")


@pytest.mark.parametrize(
    "brought, said",
    [
        ({"agent": ScriptedAgent}, "agent must be an instance, not the class ScriptedAgent"),
        ({"agent": "model"}, "agent must have an `async def take_turn`, and str has none"),
        ({"agent": None}, "agent must have an `async def take_turn`, and NoneType has none"),
        ({"agent": Plain()}, "`take_turn` of Plain must be async"),
        ({"deliverer": RecordingDeliverer}, "deliverer must be an instance, not the class"),
        ({"deliverer": print}, "deliverer must have an `async def deliver`"),
        ({"deliverer": Plain()}, "`deliver` of Plain must be async"),
    ],
)
def test_another_shape_is_refused_when_the_engine_is_made(
    brought: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Not at the first turn, when nobody looks."""
    with pytest.raises(TypeError, match=said):
        Engine(tmp_path, **({"agent": ScriptedAgent()} | brought))


def test_what_is_async_behind_a_decorator_is_taken(tmp_path: Path) -> None:
    """And so is an engine without a deliverer."""
    Engine(tmp_path, agent=Wrapped())


@pytest.mark.parametrize(
    "base_url, expected",
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/followups"),
        ("https://acme.test/beat/", "https://acme.test/beat/followups"),
        ("http://[::1]:8000", "http://[::1]:8000/followups"),
    ],
)
def test_follow_ups_are_asked_for_below_the_base(base_url: str, expected: str) -> None:
    assert follow_ups_url(base_url) == expected


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://acme.test",
        "http://",
        "http://acme.test:0",
        "http://acme.test:99999",
        "http://[::1",
        "http://user:pw-12345@acme.test",
        "http://acme.test/?a=b",
        "http://acme.test/#a",
        "http://acme.test/a b",
        "http://acme.test/ä",
        "http://acme.test/\n",
    ],
)
def test_a_base_that_no_turn_could_use_is_refused(base_url: str, tmp_path: Path) -> None:
    """Before anything is started, and without showing what may be a password."""
    with pytest.raises(ValueError, match="must be an address such as") as caught:
        Engine(tmp_path, agent=ScriptedAgent(), base_url=base_url)
    assert "pw-12345" not in str(caught.value)
