"""Pins that a full disk does not take end no run: it waits, and goes on where it was."""

import errno
import json
import os
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from drumbeat import Pin, SessionPins, StoreError, Turn
from drumbeat.errors import ContextCeiling
from drumbeat.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
BLOCKED = {
    "written": ".session_pins.json.tmp",
    "read": "session_pins.json",
    "logged": "session_rotations.jsonl",
}
"""What is made a folder, so that the system refuses this."""


class Blocks:
    """Keeps one of the files from being used, and gives it back."""

    def __init__(self, data: Path, what: str) -> None:
        self._place = data / BLOCKED[what]
        self._kept = data / "kept"

    def begin(self) -> None:
        if self._place.exists():
            self._place.rename(self._kept)
        self._place.mkdir()
        (self._place / "full").touch()

    def end(self) -> None:
        (self._place / "full").unlink()
        self._place.rmdir()
        if self._kept.exists():
            self._kept.rename(self._place)


@pytest.mark.parametrize("what", ["written", "read"])
async def test_a_run_waits_with_what_its_agent_said(host: Any, what: str) -> None:
    """What was asked for once is not used up, and no turn is taken twice."""
    host.write(steps=["One.", "Two."], conversation="continuous")
    blocks = Blocks(host.data, what)
    said = []

    def turn(turn: Turn) -> str:
        said.append(turn.prompt)
        if turn.prompt == "One.":
            blocks.begin()
        return f"done {turn.prompt}"

    async with host.engine(agent=ScriptedAgent(default=turn)) as engine:
        with capture_logs() as logs:
            fire = await engine.fire("check", slot="ticket-17")
            await host.clock.advance(10 * MINUTE)
        assert said == ["One."]
        status = await engine.status()
        assert [fault.code for fault in status.faults] == ["pins-inaccessible"]
        assert [line["event"] for line in logs].count("pins_trouble") == 1
        blocks.end()
        await host.clock.advance(MINUTE)
        (run,) = await engine.runs()
        assert (run.fire.id, run.state, run.delivery) == (fire.id, "succeeded", "delivered")
        assert said == ["One.", "Two."]
        assert (await engine.sessions())["check"].session_id == run.session_id
        assert (await engine.status()).faults == ()


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOSPC])
async def test_a_run_waits_for_a_disk_that_refuses_its_pins(
    host: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As the file is synced, which is the last that can go wrong before it gets its name."""
    host.write(steps=["One.", "Two."], conversation="continuous")
    sync = os.fsync
    sick = False

    def fsync(handle: int) -> None:
        file = host.data / BLOCKED["written"]
        if sick and file.exists() and os.path.samestat(os.fstat(handle), file.stat()):
            raise OSError(number, os.strerror(number))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    said = []

    def turn(turn: Turn) -> str:
        nonlocal sick
        said.append(turn.prompt)
        sick = turn.prompt == "One."
        return f"done {turn.prompt}"

    async with host.engine(agent=ScriptedAgent(default=turn)) as engine:
        await engine.fire("check", slot="ticket-17")
        await host.clock.advance(10 * MINUTE)
        assert said == ["One."]
        (fault,) = (await engine.status()).faults
        assert fault.code == "pins-inaccessible"
        assert os.strerror(number) in fault.message
        assert list(host.data.glob("*.tmp")) == []
        sick = False
        await host.clock.advance(MINUTE)
        (run,) = await engine.runs()
        assert (run.state, run.delivery, said) == ("succeeded", "delivered", ["One.", "Two."])
        assert (await engine.sessions())["check"].session_id == run.session_id


@pytest.mark.parametrize("what", sorted(BLOCKED))
async def test_a_rotation_that_waits_is_one_rotation(host: Any, what: str) -> None:
    """Its event and its line stand once, however often it was tried."""
    host.write(conversation="fresh")
    blocks = Blocks(host.data, what)
    async with host.engine() as engine:
        first = await host.fire(engine)
        blocks.begin()
        await engine.fire("check", slot="ticket-17")
        await host.clock.advance(10 * MINUTE)
        assert [run.state for run in await engine.runs()] == ["running", "succeeded"]
        blocks.end()
        await host.clock.advance(MINUTE)
        last, _ = await engine.runs()
        assert (last.state, last.rotation) == ("succeeded", "fresh")
        assert last.session_id != first.session_id
        (event,) = await host.events(engine, "session_rotated")
        assert event.data["session_id"] == first.session_id
    log = (host.data / "session_rotations.jsonl").read_text().splitlines()
    assert [json.loads(line)["session_id"] for line in log] == [first.session_id]


async def test_a_rotation_for_a_full_conversation_waits_too(host: Any) -> None:
    host.write(conversation="continuous")
    blocks = Blocks(host.data, "logged")
    calls = 0

    def turn(turn: Turn) -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            blocks.begin()
            raise ContextCeiling("full")
        return "done"

    async with host.engine(agent=ScriptedAgent(default=turn)) as engine:
        await host.fire(engine)
        await engine.fire("check")
        await host.clock.advance(10 * MINUTE)
        assert calls == 2
        blocks.end()
        await host.clock.advance(MINUTE)
        last, _ = await engine.runs()
        assert (last.state, last.rotation, calls) == ("succeeded", "context-ceiling", 3)
        assert len(await host.events(engine, "session_rotated")) == 1


async def test_a_run_that_waits_is_interrupted_by_draining_and_made_up_for(host: Any) -> None:
    host.write()
    blocks = Blocks(host.data, "written")

    def turn(_: Turn) -> str:
        blocks.begin()
        return "done"

    async with host.engine(agent=ScriptedAgent(default=turn)) as engine:
        await engine.fire("check", slot="ticket-17")
        await host.clock.advance(MINUTE)
    blocks.end()
    async with host.engine() as engine:
        await host.clock.advance(MINUTE)
        assert [run.state for run in await engine.runs()] == ["succeeded", "interrupted"]


async def test_a_run_does_not_wait_longer_than_it_may_take(host: Any) -> None:
    host.write()
    blocks = Blocks(host.data, "written")

    def turn(_: Turn) -> str:
        if host.clock.now() == began:
            blocks.begin()
        return "done"

    async with host.engine(agent=ScriptedAgent(default=turn)) as engine:
        began = host.clock.now()
        await engine.fire("check")
        await host.clock.advance(2 * HOUR)
        (run,) = await engine.runs()
        assert run.failure is not None
        assert (run.state, run.failure.code) == ("failed", "run-timeout")
        assert [turn.reply and turn.reply.text for turn in run.turns] == ["done"]
        # Nobody has shown the file to be well since.
        assert [fault.code for fault in (await engine.status()).faults] == ["pins-inaccessible"]
        blocks.end()
        await host.fire(engine)
        assert (await engine.status()).faults == ()


async def test_a_workspace_that_is_moved_and_comes_back_finds_its_place_free(host: Any) -> None:
    """Neither pins nor a page of the run is written where it stood; the run waits for it."""
    host.write(steps=["One.", "Two."], conversation="continuous")
    elsewhere = host.workspace.with_name("elsewhere")
    said = []

    def turn(turn: Turn) -> str:
        said.append(turn.prompt)
        if turn.prompt == "One.":
            host.workspace.rename(elsewhere)
        return f"done {turn.prompt}"

    # The lock is looked at after that.
    settings = {"request_poll": 2 * HOUR}
    async with host.engine(agent=ScriptedAgent(default=turn), settings=settings) as engine:
        fire = await engine.fire("check", slot="ticket-17")
        await host.clock.advance(10 * MINUTE)
        assert said == ["One."]
        assert not host.workspace.exists()
        elsewhere.rename(host.workspace)
        await host.clock.advance(10 * MINUTE)
        (run,) = await engine.runs()
        assert (run.fire.id, run.state, run.delivery) == (fire.id, "succeeded", "delivered")
        assert said == ["One.", "Two."]


async def test_pins_of_a_folder_that_was_moved_away_are_not_none(tmp_path: Path) -> None:
    pins = SessionPins(tmp_path / "data")
    assert await pins.all() == {}
    pin = Pin(
        session_id="s-1",
        fingerprint="f",
        provider=None,
        day=date(2026, 3, 1),
        at=datetime(2026, 3, 1, tzinfo=UTC),
        handle=None,
    )
    await pins.set("check", pin)
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    for ask in (pins.all, partial(pins.set, "check", pin)):
        with pytest.raises(StoreError, match="No such file") as caught:
            await ask()
        assert caught.value.problem.code == "pins-inaccessible"
        assert "back" in caught.value.problem.remedy
    assert not (tmp_path / "data").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    assert await pins.all() == {"check": pin}
