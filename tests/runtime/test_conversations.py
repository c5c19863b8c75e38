"""Which conversation a run resumes, and when it is given up (spec, section 7)."""

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from drumbeat import (
    AgentError,
    ContextCeiling,
    ConversationNotFound,
    Pin,
    Problem,
    Reply,
    RunRecord,
    StoreError,
    Turn,
)
from drumbeat.runtime.pins import SessionPins
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


def log(host: Any) -> list[dict[str, Any]]:
    """The lines of the rotation log."""
    path = host.data / "session_rotations.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def three_marks(host: Any, engine: Any, run: RunRecord, reason: str, old: str | None) -> None:
    """The last rotation left its line and its event, and the pin is not the old one."""
    (*_, line) = log(host)
    (*_, event) = await host.events(engine, "session_rotated")
    assert (line["slug"], line["reason"], line["session_id"]) == (run.slug, reason, old)
    assert event.data["reason"] == reason
    assert (event.slug, event.run_id) == (run.slug, run.run_id)
    pin = (await engine.sessions()).get(run.slug)
    assert pin is None or pin.session_id != old


async def test_continuous_goes_on_and_the_pin_says_how_it_began(host: Any) -> None:
    host.write(agent_config={"provider": {"module": "openai"}})
    async with host.engine() as engine:
        first = await engine.run("check")
        pin = (await engine.sessions())["check"]
        second = await engine.run("check")
        assert await engine.sessions() == {"check": pin}
        assert await host.events(engine, "session_rotated") == []
    assert first.session_id == second.session_id == pin.session_id
    assert (pin.provider, pin.day, pin.at) == ("openai", first.started_at.date(), first.started_at)
    assert [turn.is_new for turn in host.agent.turns] == [True, False]
    assert log(host) == []


async def test_fresh_rotates_at_every_run_but_the_first(host: Any) -> None:
    host.write(conversation="fresh")
    async with host.engine() as engine:
        first = await engine.run("check")
        assert log(host) == []
        second = await engine.run("check")
        await three_marks(host, engine, second, "fresh", first.session_id)
        assert (await engine.sessions())["check"].session_id == second.session_id
    assert first.session_id != second.session_id
    assert (first.rotation, second.rotation) == (None, "fresh")
    assert len(log(host)) == 1


async def test_daily_rotates_after_local_midnight(host: Any) -> None:
    """The clock stands at 12:00 UTC: midnight in Auckland is an hour before it is noon here."""
    host.write(conversation="daily")
    async with host.engine(timezone="America/New_York") as engine:
        first = await engine.run("check")
        await host.clock.advance(timedelta(hours=16, minutes=59))
        second = await engine.run("check")
        await host.clock.advance(timedelta(minutes=2))
        third = await engine.run("check")
        await three_marks(host, engine, third, "daily-boundary", first.session_id)
    assert second.session_id == first.session_id
    assert third.session_id != first.session_id
    assert (second.rotation, third.rotation) == (None, "daily-boundary")


async def test_a_run_over_midnight_belongs_to_the_day_it_began_on(host: Any) -> None:
    """So the first run after midnight starts afresh."""
    host.write(conversation="daily")

    async def slow(turn: Turn) -> str:
        await host.clock.sleep(20 * MINUTE)
        return "done"

    host.agent = ScriptedAgent(default=slow)
    async with host.engine() as engine:
        await host.clock.advance(timedelta(hours=11, minutes=50))
        before = await host.fire(engine, within=timedelta(minutes=30))
        after = await host.fire(engine, within=timedelta(minutes=30))
    assert (before.started_at.day, before.finished_at.day) == (2, 3)
    assert after.rotation == "daily-boundary"


@pytest.mark.parametrize(
    "changed, reason",
    [
        ({"steps": ["Look elsewhere."]}, "steps-changed"),
        ({"agent_config": {"provider": {"module": "anthropic"}}}, "provider-changed"),
        (
            {"agent_config": {"provider": {"module": "openai", "config": {"default_model": "b"}}}},
            None,
        ),
        ({"steps": [{"id": "other", "prompt": "Look around.", "label": "Other"}]}, None),
        ({"name": "Other", "notify": "never"}, None),
    ],
)
async def test_a_change_of_prompts_or_provider_rotates_and_nothing_else_does(
    host: Any, changed: dict[str, Any], reason: str | None
) -> None:
    before = {"agent_config": {"provider": {"module": "openai", "config": {"default_model": "a"}}}}
    host.write(**before)
    async with host.engine() as engine:
        first = await engine.run("check")
        host.write(**(before | changed))
        second = await engine.run("check")
        if reason is not None:
            await three_marks(host, engine, second, reason, first.session_id)
    assert second.rotation == reason
    assert (second.session_id == first.session_id) == (reason is None)


async def test_nothing_is_pinned_before_a_first_turn_succeeded(host: Any) -> None:
    """The pin stands while the rest of the run may still fail."""
    pinned: list[Any] = []
    host.write(steps=["One.", "Two."])

    async def say(turn: Turn) -> str | Exception:
        pinned.append((await engine.sessions()).get("check"))
        return "fine" if turn.step_id == "step-1" else AgentError("no")

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await engine.run("check")
        host.agent = ScriptedAgent(default="fine")
    assert pinned[0] is None
    assert pinned[1].session_id == run.session_id
    assert run.state == "failed"


async def test_a_run_that_aborts_before_its_turns_rotates_nothing(host: Any) -> None:
    host.write(conversation="fresh")
    async with host.engine() as engine:
        first = await engine.run("check")
        host.write(conversation="fresh", requires=["missing.md"])
        second = await engine.run("check")
        pins = await engine.sessions()
    assert second.state == "aborted"
    assert pins["check"].session_id == first.session_id
    assert log(host) == []


async def test_the_agents_handle_comes_back_to_it(host: Any) -> None:
    """What `Reply.handle` last said; a reply without one changes nothing."""
    host.write(steps=["One.", "Two.", "Three."])
    handles = iter(["h1", None, "h2", None, None, "h3"])
    host.agent = ScriptedAgent(default=lambda turn: Reply(text="ok", handle=next(handles)))
    async with host.engine() as engine:
        await engine.run("check")
        pin = (await engine.sessions())["check"]
        await engine.run("check")
        after = (await engine.sessions())["check"]
    assert pin.handle == "h2"
    assert [turn.handle for turn in host.agent.turns] == [None, "h1", "h1", "h2", "h2", "h2"]
    assert (after.handle, after.session_id, after.at) == ("h3", pin.session_id, pin.at)


# ---- what the agent says of it


@pytest.mark.parametrize(
    "error, reason",
    [
        (ContextCeiling("too long"), "context-ceiling"),
        (ConversationNotFound("who?"), "conversation-missing"),
    ],
)
async def test_before_any_step_it_starts_over_once_with_what_tools_said(
    host: Any, error: AgentError, reason: str
) -> None:
    """The tools are not run again, and the context is told again."""
    host.tool("state", "echo x >> count; printf 'the state'")
    inject = [{"argv": ["state"], "label": "state"}]
    host.write(inject=inject)
    async with host.engine() as engine:
        first = await engine.run("check")
    host.agent = ScriptedAgent({"inject": "seen", "step": [error, "done"]})
    async with host.engine() as engine:
        run = await engine.run("check")
        await three_marks(host, engine, run, reason, first.session_id)
        pin = (await engine.sessions())["check"]
    turns = host.agent.turns
    assert (run.state, run.rotation) == ("succeeded", reason)
    assert [(turn.origin, turn.prompt) for turn in turns] == [
        ("inject", "the state"),
        ("step", "Look around."),
    ] * 2
    assert [turn.is_new for turn in turns] == [False, False, True, False]
    assert [bool(turn.context) for turn in turns] == [True, False, True, False]
    assert {turn.session_id for turn in turns[:2]} == {first.session_id}
    assert {turn.session_id for turn in turns[2:]} == {run.session_id} == {pin.session_id}
    assert len({turn.turn_id for turn in turns}) == 4
    assert (host.workspace / "count").read_text() == "x\nx\n"


async def test_a_conversation_that_never_was_leaves_the_marks_too(host: Any) -> None:
    """The first prompt alone is too long: nothing is pinned, the record says why it restarted."""
    host.write()
    host.agent = ScriptedAgent({"step": [ContextCeiling("too long"), "done"]})
    async with host.engine() as engine:
        run = await engine.run("check")
        await three_marks(host, engine, run, "context-ceiling", None)
        (event,) = await host.events(engine, "session_rotated")
    assert (run.state, run.rotation) == ("succeeded", "context-ceiling")
    assert event.data["session_id"] == host.agent.turns[0].session_id


async def test_a_second_time_fails_the_run(host: Any) -> None:
    host.write()
    host.agent = ScriptedAgent(default=ContextCeiling("too long"))
    async with host.engine() as engine:
        run = await engine.run("check")
        assert len(await host.events(engine, "session_rotated")) == 2
        assert await engine.sessions() == {}
    assert (run.state, run.failure.code) == ("failed", "context-ceiling")
    assert len(host.agent.turns) == 2
    assert run.session_id is None


async def test_after_a_step_it_rotates_at_once_and_fails(host: Any) -> None:
    """The next run starts afresh."""
    host.write(steps=["One.", "Two."])
    host.agent = ScriptedAgent({"step-1": "fine", "step-2": [ContextCeiling("too long"), "done"]})
    async with host.engine() as engine:
        failed = await engine.run("check")
        await three_marks(host, engine, failed, "context-ceiling", failed.session_id)
        assert await engine.sessions() == {}
        after = await engine.run("check")
    assert (failed.state, failed.failure.code) == ("failed", "context-ceiling")
    assert failed.rotation == "context-ceiling"
    assert [turn.step_id for turn in host.agent.turns] == ["step-1", "step-2"] * 2
    assert (after.state, after.rotation) == ("succeeded", None)
    assert after.session_id != failed.session_id


async def test_in_the_judgment_it_rotates_and_the_steps_reply_is_judged(host: Any) -> None:
    host.write(notify="auto")
    host.agent = ScriptedAgent({"judgment": ContextCeiling("too long")}, default="worth saying")
    async with host.engine() as engine:
        run = await engine.run("check")
        await three_marks(host, engine, run, "context-ceiling", run.session_id)
    assert (run.state, run.intent.gate, run.rotation) == (
        "succeeded",
        "judgment-failed",
        "context-ceiling",
    )
    assert run.intent.text == "worth saying"


async def test_the_note_of_a_rotation_tells_no_secrets(host: Any) -> None:
    host.write()
    host.agent = ScriptedAgent({"step": [ContextCeiling("key token-value-1 is too long"), "done"]})
    async with host.engine(secrets={"MY_TOKEN": "token-value-1"}) as engine:
        await engine.run("check")
    assert "[redacted MY_TOKEN]" in log(host)[0]["note"]


# ---- somebody else has it


async def test_a_run_waits_for_its_conversation(host: Any) -> None:
    """And looks again which one it is: it may have been given up meanwhile."""
    host.write()
    store = host.faulty()
    async with host.engine(store=store) as engine:
        first = await engine.run("check")
        for given_up in (False, True):
            claim = await store.hold(first.session_id, run_id="somebody's reply")
            await engine.fire("check")
            await host.clock.advance(MINUTE)
            assert (await engine.runs())[0].state == "running"
            if given_up:
                pins = SessionPins(host.data, clock=host.clock)
                await pins.rotate("check", reason="operator", note="a test")
            await store.finish(claim, None)
            await host.clock.advance(MINUTE)
            await engine.settled()
            (run, *_) = await engine.runs()
            assert run.state == "succeeded"
            assert (run.session_id == first.session_id) == (not given_up)


async def test_a_run_waits_for_a_store_in_trouble(host: Any) -> None:
    host.write()
    store = host.faulty()
    full = StoreError(Problem(code="store-full", message="full", remedy="make room"))
    async with host.engine(store=store) as engine:
        store.faults["hold"] = [full, full]
        await engine.fire("check")
        runs = await drive(engine, until=host.clock.now() + 10 * MINUTE)
        assert (await engine.status()).faults == ()
    assert [run.state for run in runs] == ["succeeded"]


async def test_pins_that_cannot_be_read_abort_the_run(host: Any) -> None:
    """They are never taken for none."""
    host.write()
    async with host.engine() as engine:
        await engine.run("check")
        (host.data / "session_pins.json").write_text("{")
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("aborted", "pins-damaged")
    assert len(host.agent.turns) == 1


async def test_a_pin_that_cannot_be_written_fails_the_run(host: Any) -> None:
    """The conversation would be lost without a mark."""
    host.write(steps=["One.", "Two."])

    def say(turn: Turn) -> str:
        (host.data / "session_pins.json").write_text("{")
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "pins-damaged")
    assert len(host.agent.turns) == 1
    assert run.turns[0].reply.text == "done"


# ---- trouble that begins during a run


FULL = StoreError(Problem(code="store-full", message="the disk is full", remedy="make room"))
NO_SPACE = StoreError(
    Problem(code="pins-inaccessible", message="no space left on device", remedy="make room")
)


class Journal(SqliteStore):
    """A store whose disk is full when a rotation is journaled, or when that is completed."""

    left: int = 0
    completing: bool = False

    async def record(self, **given: Any) -> None:
        rotations = [mark for mark in given.get("marks", ()) if mark.key.startswith("rotation:")]
        if self.left and any((mark.value is None) == self.completing for mark in rotations):
            self.left -= 1
            raise FULL
        await super().record(**given)


@pytest.mark.parametrize("completing", [False, True])
async def test_a_full_disk_at_a_rotation_costs_time_and_no_fire(
    host: Any, completing: bool
) -> None:
    """There is one rotation, however often it is tried."""
    host.file("jobs/job.md", "---\n---\nLook.\n")
    store = Journal(host.data / "drumbeat.db", clock=host.clock)
    async with host.engine(store=store) as engine:
        await engine.run("job")
        store.left, store.completing = 2, completing
        await engine.fire("job", slot="ticket-17")
        await host.clock.advance(timedelta(minutes=10))
        run, _ = await engine.runs()
        assert (run.fire.slot, run.state) == ("ticket-17", "succeeded")
        assert store.left == 0
        assert len(await host.events(engine, "session_rotated")) == 1
        assert (await engine.status()).faults == ()


class Pins(SessionPins):
    """Pins whose disk is full for some writes."""

    left: int = 0

    async def set(self, slug: str, pin: Pin, /) -> None:
        if self.left:
            self.left -= 1
            raise NO_SPACE
        await super().set(slug, pin)


async def test_a_full_disk_at_the_pin_keeps_the_answer_and_the_run(host: Any) -> None:
    host.write()
    host.data.mkdir()
    pins = Pins(host.data, clock=host.clock)
    pins.left = 2
    with capture_logs() as logs:
        async with host.engine(pins=pins) as engine:
            await engine.fire("check")
            await host.clock.advance(timedelta(seconds=1))
            (run,) = await engine.runs()
            assert [turn.reply.text for turn in run.turns if turn.reply] == ["done"]
            assert [fault.code for fault in (await engine.status()).faults] == ["pins-inaccessible"]
            await host.clock.advance(timedelta(minutes=10))
            (run,) = await engine.runs()
            assert run.state == "succeeded"
            assert set(await engine.sessions()) == {"check"}
            assert (await engine.status()).faults == ()
    said = [line["event"] for line in logs if line["event"].startswith("pins_")]
    assert said == ["pins_trouble", "pins_recovered"]


async def test_a_run_that_waits_for_its_pin_is_interrupted_by_the_drain(host: Any) -> None:
    host.write()
    host.data.mkdir()
    pins = Pins(host.data, clock=host.clock)
    pins.left = 1000
    async with host.engine(pins=pins) as engine:
        await engine.fire("check")
        await host.clock.advance(timedelta(seconds=1))
        async with anyio.create_task_group() as group:
            group.start_soon(engine.drain, "a test")
            await host.clock.advance(timedelta(minutes=10))
        (run,) = await engine.runs()
        assert run.state == "interrupted"
