"""A rotation that is cut off at any point is completed, once (spec, section 7)."""

import json
from typing import Any

import pytest

from drumbeat import Problem, StoreError
from drumbeat.runtime.pins import SessionPins
from drumbeat.runtime.rotations import complete, rotate
from drumbeat.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

FULL = StoreError(Problem(code="store-full", message="full", remedy="make room"))


class FaultyPins(SessionPins):
    """Real pins, whose next rotations fail before or after they happen."""

    def __init__(self, host: Any) -> None:
        super().__init__(host.data, clock=host.clock)
        self.before: list[Exception] = []
        self.after: list[Exception] = []

    async def rotate(self, slug: str, /, **given: Any) -> Any:
        if self.before:
            raise self.before.pop()
        pin = await super().rotate(slug, **given)
        if self.after:
            raise self.after.pop()
        return pin


def log(host: Any) -> list[dict[str, Any]]:
    text = (host.data / "session_rotations.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


async def check(host: Any, engine: Any, old: str) -> None:
    """There is one rotation of the old conversation, with its three marks."""
    assert [line["session_id"] for line in log(host)] == [old]
    (event,) = await host.events(engine, "session_rotated")
    assert (event.data["session_id"], event.data["reason"]) == (old, "fresh")
    pin = (await engine.sessions()).get("check")
    assert pin is None or pin.session_id != old


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("where", ["before the pin", "after the pin"])
async def test_a_rotation_that_was_cut_off_is_completed(
    host: Any, where: str, restart: bool
) -> None:
    """By the next start, or by the next run when there is none; the cut-off run is voiced."""
    host.write(conversation="fresh")
    pins = FaultyPins(host)
    async with host.engine(pins=pins) as engine:
        first = await engine.run("check")
        (pins.before if where == "before the pin" else pins.after).append(FULL)
        cut = await engine.run("check")
        assert (cut.state, cut.failure.code) == ("aborted", "store-full")
        assert cut.intent.verdict == "deliver"
        assert await host.events(engine, "session_rotated") == []
        if not restart:
            after = await engine.run("check")
            await check(host, engine, first.session_id)
    if restart:
        async with host.engine() as engine:
            await check(host, engine, first.session_id)
            after = await engine.run("check")
            await check(host, engine, first.session_id)
    assert after.state == "succeeded"
    assert after.session_id != first.session_id


async def test_an_event_that_could_not_be_written_is_written_later(host: Any) -> None:
    """The pin is cleared and the line stands: only the last transaction failed."""
    host.write(conversation="fresh")
    store = host.faulty()
    async with host.engine(store=store) as engine:
        first = await engine.run("check")
        # the run's first record, the intention, the event
        store.faults["record"] = [None, None, FULL]
        cut = await engine.run("check")
        assert cut.state == "aborted"
        assert await engine.sessions() == {}
        await engine.run("check")
        await check(host, engine, first.session_id)


async def test_an_intention_that_could_not_be_written_changes_nothing(host: Any) -> None:
    host.write(conversation="fresh")
    store = host.faulty()
    async with host.engine(store=store) as engine:
        first = await engine.run("check")
        store.faults["record"] = [None, FULL]
        cut = await engine.run("check")
        assert cut.state == "aborted"
        assert (await engine.sessions())["check"].session_id == first.session_id
        assert not (host.data / "session_rotations.jsonl").exists()
        await engine.run("check")
        await check(host, engine, first.session_id)


async def test_two_at_once_leave_each_its_marks(host: Any) -> None:
    """Neither loses its event to the other, and the run that meets another one goes on."""
    import anyio

    host.write(conversation="fresh")
    host.agent = ScriptedAgent(default="done")
    async with host.engine() as engine:
        first = await engine.run("check")
        services = engine._life.services

        async def by_hand(number: int) -> None:
            await rotate(
                services,
                "check",
                reason="operator",
                note=f"number {number}",
                now=host.clock.now(),
                run_id=None,
            )

        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(by_hand, number)
            group.start_soon(engine.run, "check")
        await complete(services)
        events = await host.events(engine, "session_rotated")
        (run, *_) = await engine.runs()
    lines = log(host)
    notes = {f"number {number}" for number in range(5)}
    assert notes <= {line["note"] for line in lines}
    assert sorted((line["note"], line["reason"]) for line in lines) == sorted(
        (event.data["note"], event.data["reason"]) for event in events
    )
    assert [line["session_id"] for line in lines].count(first.session_id) == 1
    assert run.state == "succeeded"
