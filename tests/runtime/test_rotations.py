"""A rotation that is cut off at any point is completed, once (spec, section 7)."""

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest

from drumbeat import Problem, StoreError, Turn
from drumbeat.runtime import requests
from drumbeat.runtime.pins import SessionPins
from drumbeat.runtime.rotations import complete, rotate, rotate_if_asked
from drumbeat.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
DAMAGED = StoreError(Problem(code="pins-damaged", message="damaged", remedy="mend them"))
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
        (pins.before if where == "before the pin" else pins.after).append(DAMAGED)
        cut = await engine.run("check")
        assert (cut.state, cut.failure.code) == ("aborted", "pins-damaged")
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
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        # the run's first record, the intention, the event
        store.faults["record"] = [None, None, FULL]
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        assert [run.state for run in await engine.runs()] == ["succeeded"] * 2
        await check(host, engine, first.session_id)


async def test_an_intention_that_could_not_be_written_is_written_later(host: Any) -> None:
    host.write(conversation="fresh")
    store = host.faulty()
    async with host.engine(store=store) as engine:
        first = await engine.run("check")
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        store.faults["record"] = [None, FULL]
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        assert [run.state for run in await engine.runs()] == ["succeeded"] * 2
        await check(host, engine, first.session_id)


async def test_two_at_once_leave_each_its_marks(host: Any) -> None:
    """Neither loses its event to the other, and the run that meets another one goes on."""
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


class SlowPins(SessionPins):
    """Real pins that can be held up between a look and what comes of it."""

    def __init__(self, host: Any) -> None:
        super().__init__(host.data, clock=host.clock)
        self.looked: anyio.Event | None = None
        self.go_on = anyio.Event()

    async def get(self, slug: str, /) -> Any:
        pin = await super().get(slug)
        looked, self.looked = self.looked, None
        if looked is not None:
            looked.set()
            await self.go_on.wait()
        return pin


async def test_a_rotation_leaves_what_a_run_pinned_since_it_was_looked_for(host: Any) -> None:
    """Where nothing is pinned there is no conversation to take, and a run may begin one."""
    host.write()
    pins = SlowPins(host)

    async def say(turn: Turn) -> str:
        services = engine._life.services
        await requests.ask(services.store, requests.ROTATE + "check", "stale", clock=services.clock)
        pins.looked = looked = anyio.Event()
        group.start_soon(lambda: rotate_if_asked(services, "check", beside_runs=True))
        await looked.wait()
        return "done"

    host.agent = ScriptedAgent(default=say)
    with anyio.fail_after(30):
        async with host.engine(pins=pins) as engine:
            async with anyio.create_task_group() as group:
                run = await engine.run("check")
                pins.go_on.set()
            assert (await engine.sessions())["check"].session_id == run.session_id
            assert not (host.data / "session_rotations.jsonl").exists()
            host.agent = ScriptedAgent(default="done")
            await host.clock.advance(timedelta(minutes=1))
            assert await engine.sessions() == {}
            (event,) = await host.events(engine, "session_rotated")
    assert event.data["session_id"] == run.session_id
    assert [line["session_id"] for line in log(host)] == [run.session_id]


async def test_who_pins_waits_for_a_rotation_that_is_going_on(host: Any) -> None:
    """A look at the pins and what comes of it are one thing."""
    host.write()
    pins = SlowPins(host)

    async def say(turn: Turn) -> str:
        services = engine._life.services
        pins.looked = looked = anyio.Event()
        group.start_soon(by_hand, services)
        await looked.wait()
        group.start_soon(go_on)
        return "done"

    async def by_hand(services: Any) -> None:
        now = host.clock.now()
        await rotate(services, "check", reason="operator", note="stale", now=now, run_id=None)

    async def go_on() -> None:
        await anyio.wait_all_tasks_blocked()
        assert "check" not in await SessionPins(host.data).all()
        pins.go_on.set()

    host.agent = ScriptedAgent(default=say)
    with anyio.fail_after(30):
        async with host.engine(pins=pins) as engine, anyio.create_task_group() as group:
            run = await engine.run("check")
        async with host.engine() as engine:
            assert (await engine.sessions())["check"].session_id == run.session_id
    assert [line["session_id"] for line in log(host)] == [None]
