"""Who hears of a run, and that its end is one transaction (spec, sections 6 and 10)."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat import AgentError, Problem, StoreError, Turn
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
QUIET = "NOTHING_TO_REPORT"
FULL = StoreError(Problem(code="store-full", message="full", remedy="make room"))


# ---- the table of section 10


@pytest.mark.parametrize(
    "notify, step, judgment, verdict, gate, text",
    [
        ("always", "all well", None, "deliver", "policy-always", "all well"),
        ("always", QUIET, None, "deliver", "policy-always", QUIET),
        ("never", "all well", None, "withhold", "policy-never", "all well"),
        ("auto", "much ado", f" {QUIET}\n", "withhold", "nothing-to-report", None),
        ("auto", "much ado", f"**{QUIET}**", "demote", "near-sentinel", None),
        ("auto", "much ado", "Mail from Ann.", "deliver", "judged-worth-saying", "Mail from Ann."),
        ("auto", QUIET, "Mail from Ann.", "deliver", "judged-worth-saying", "Mail from Ann."),
        ("auto", "", "Mail from Ann.", "deliver", "judged-worth-saying", "Mail from Ann."),
        (
            "urgent-only",
            "x",
            "URGENT: fire\nNow.",
            "deliver",
            "urgent-marker",
            "URGENT: fire\nNow.",
        ),
        ("urgent-only", "URGENT: fire", "fire", "deliver", "urgent-marker", "URGENT: fire"),
        ("urgent-only", "URGENT: fire", QUIET, "withhold", "nothing-to-report", None),
        ("urgent-only", "x", "Mail from Ann.", "demote", "urgent-marker-missing", None),
        ("auto", "much ado", " \n", "deliver", "judgment-failed", "much ado"),
        ("auto", "much ado", AgentError("busy"), "deliver", "judgment-failed", "much ado"),
        ("auto", QUIET, AgentError("busy"), "withhold", "judgment-failed", None),
        ("urgent-only", "x", AgentError("busy"), "demote", "judgment-failed", None),
        ("urgent-only", "URGENT: a", ValueError("b"), "deliver", "judgment-failed", "URGENT: a"),
    ],
)
async def test_the_policy_decides_once(  # noqa: PLR0917  a row of the table
    host: Any,
    notify: str,
    step: str,
    judgment: Any,
    verdict: str,
    gate: str,
    text: str | None,
) -> None:
    """One intent, with a reason, in the record, in an event, and delivered if it is to be."""
    host.write(notify=notify)
    host.agent = ScriptedAgent({"step": step, "judgment": judgment or "never asked"})
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.settled()
        (event,) = await host.events(engine, "delivery_intent")
        assert await engine.sweep() == []
        assert await host.events(engine, "automation_error") == []
    assert run.state == "succeeded"
    assert (run.intent.verdict, run.intent.gate) == (verdict, gate)
    assert run.intent.reason
    assert text is None or run.intent.text == text
    assert [turn.origin for turn in host.agent.turns][1:] == ["judgment"] * (judgment is not None)
    assert [intent.text for intent in host.deliverer.intents] == [text] * (verdict == "deliver")
    assert event.data == {
        "intent": run.intent.id,
        "verdict": verdict,
        "gate": gate,
        "reason": run.intent.reason,
    }


async def test_a_judgment_after_a_last_step_that_said_nothing_may_fail_the_run(host: Any) -> None:
    """With neither a reply nor a judgment there is nothing to be silent about."""
    host.write(notify="auto")
    host.agent = ScriptedAgent({"step": "", "judgment": AgentError("busy")})
    async with host.engine() as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("failed", "final-reply-empty")
    assert (run.intent.verdict, run.intent.gate) == ("deliver", "run-failed")


async def test_the_judgment_prompt_is_the_workspaces_own_when_it_has_one(host: Any) -> None:
    """Read at every run: an edit counts at once, and so does taking it away."""
    host.write(notify="auto")
    host.agent = ScriptedAgent({"judgment": QUIET}, default="ok")
    async with host.engine() as engine:
        await engine.run("check")
        own = host.file("prompts/judgment.md", "  Worth it?\n")
        await engine.run("check")
        own.write_text("Really?", encoding="utf-8")
        await engine.run("check")
        own.unlink()
        await engine.run("check")
    asked = [turn.prompt for turn in host.agent.turns if turn.origin == "judgment"]
    assert QUIET in asked[0]
    assert asked[1:3] == ["  Worth it?\n", "Really?"]
    assert asked[3] == asked[0]


def blank(path: Path) -> None:
    path.write_text(" \n\t")


def undecodable(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def pipe(path: Path) -> None:
    """Reading it would never end."""
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def outside(path: Path) -> None:
    elsewhere = path.parents[2] / "elsewhere.md"
    elsewhere.write_text("not of this workspace")
    path.symlink_to(elsewhere)


def huge(path: Path) -> None:
    path.write_text("x" * (1024 * 1024 + 1))


@pytest.mark.parametrize("spoil", [blank, undecodable, Path.mkdir, pipe, endless, outside, huge])
async def test_a_judgment_prompt_that_cannot_be_used_is_a_judgment_that_failed(
    host: Any, spoil: Any
) -> None:
    """It is never passed over for the built-in one."""
    host.write(notify="auto")
    (host.workspace / "prompts").mkdir()
    spoil(host.workspace / "prompts" / "judgment.md")
    host.agent = ScriptedAgent(default="worth saying")
    async with host.engine() as engine:
        run = await engine.run("check")
    assert [turn.origin for turn in host.agent.turns] == ["step"]
    assert (run.state, run.intent.gate) == ("succeeded", "judgment-failed")
    assert "judgment.md" in run.intent.reason
    assert run.intent.text == "worth saying"


# ---- failures


async def test_a_failure_is_voiced_once_and_again_after_1_2_4_days(host: Any) -> None:
    """Repeats by schedule are demoted, each still a record, a log line and an event."""
    host.write(trigger={"type": "schedule", "expression": "every 6 hours"})
    host.agent = ScriptedAgent(default=AgentError("no", code="nope"))
    async with host.engine() as engine:
        start = host.clock.now()
        runs = await drive(engine, until=start + 9 * DAY)
        errors = await host.events(engine, "automation_error")
    first = runs[0].started_at
    said = [(run.intent.gate, run.intent.verdict) for run in runs if run.intent]
    assert set(said) == {("run-failed", "deliver"), ("repeat-failure", "demote")}
    voiced = [
        run.started_at - first for run in runs if run.intent and run.intent.gate == "run-failed"
    ]
    assert voiced == [timedelta(0), DAY, 2 * DAY, 4 * DAY, 8 * DAY]
    assert [event.run_id for event in errors] == [run.run_id for run in runs]
    assert len(host.deliverer.intents) == 5
    assert "failure 5 in a row" in host.deliverer.intents[1].text


async def test_another_cause_is_voiced_and_so_is_every_run_by_hand(host: Any) -> None:
    host.write(trigger={"type": "schedule", "expression": "every 6 hours"})
    code = "first"
    host.agent = ScriptedAgent(default=lambda turn: AgentError("no", code=code))
    async with host.engine() as engine:

        async def six_hours() -> Any:
            (run,) = await drive(engine, until=host.clock.now() + timedelta(hours=6))
            return run

        assert (await six_hours()).intent.gate == "run-failed"
        assert (await six_hours()).intent.gate == "repeat-failure"
        by_hand = await engine.run("check")
        assert (by_hand.intent.verdict, by_hand.intent.gate) == ("deliver", "run-failed")
        code = "second"
        assert (await six_hours()).intent.gate == "run-failed"
        assert (await six_hours()).intent.gate == "repeat-failure"


async def test_a_success_ends_the_streak_and_is_an_event(host: Any) -> None:
    """Once; the next failure is voiced as a first one."""
    host.write(trigger={"type": "schedule", "expression": "every 6 hours"})
    said: list[Any] = [AgentError("no"), AgentError("no"), "fine", "fine", AgentError("no")]
    host.agent = ScriptedAgent({"step": said}, default="never asked")
    async with host.engine() as engine:
        runs = await drive(engine, until=host.clock.now() + timedelta(hours=31))
        recovered = await host.events(engine, "automation_recovered")
    assert [run.intent.gate for run in runs if run.intent] == [
        "run-failed",
        "repeat-failure",
        "policy-always",
        "policy-always",
        "run-failed",
    ]
    assert [event.run_id for event in recovered] == [runs[2].run_id]


async def test_under_never_a_failure_is_an_event_and_nobody_is_told(host: Any) -> None:
    host.write(notify="never")
    host.agent = ScriptedAgent(default=AgentError("no", code="nope"))
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.settled()
        (event,) = await host.events(engine, "automation_error")
    assert (run.intent.verdict, run.intent.gate) == ("withhold", "policy-never")
    assert (event.data["state"], event.data["code"]) == ("failed", "nope")
    assert host.deliverer.intents == []


async def test_the_last_events_of_a_run_stand_together(host: Any) -> None:
    host.write()
    async with host.engine(deliverer=None) as engine:
        run = await engine.run("check")
        events = [event async for event in engine.events(follow=False) if event.run_id]
    assert [event.kind for event in events] == [
        "run_started",
        "turn_completed",
        "run_completed",
        "delivery_intent",
        "fire_settled",
    ]
    started, turn, completed, _, settled = events
    assert started.data == {"cause": "manual", "fire": run.fire.id, "attempt": 1}
    assert turn.data == {
        "turn_id": f"{run.run_id}-01",
        "origin": "step",
        "step_id": "step-1",
        "label": None,
        "attempts": 1,
        "retried": [],
        "session_id": run.session_id,
    }
    assert completed.data == {"state": "succeeded", "turns": 1}
    assert settled.data == {"fire": run.fire.id, "verdict": "ran"}


# ---- one transaction


async def test_a_result_is_held_while_the_store_takes_nothing(host: Any) -> None:
    """Nothing of it is half written, and all of it is once there is room; no turn is repeated."""
    host.write(trigger={"type": "schedule", "expression": "every 30 minutes"})
    store = host.faulty()
    async with host.engine(store=store) as engine:
        store.faults["finish"] = [FULL] * 4
        await host.clock.advance(31 * MINUTE)
        (run,) = await engine.runs()
        (fire,) = await engine.fires()
        assert (run.state, run.intent) == ("running", None)
        assert fire.verdict is None
        assert await store.marks("health:") == []
        assert await host.events(engine, "run_completed", "delivery_intent") == []
        assert host.deliverer.intents == []
        await host.clock.advance(2 * MINUTE)
        await engine.settled()
        (run,) = await engine.runs()
        (fire,) = await engine.fires()
        (mark,) = await store.marks("health:")
        assert run.state == "succeeded"
        assert (fire.verdict, fire.run_id) == ("ran", run.run_id)
        assert mark.value["finished"] == run.finished_at.isoformat()
        assert len(await host.events(engine, "run_completed", "delivery_intent")) == 2
        assert (await engine.status()).faults == ()
        assert await engine.sweep() == []
    assert len(host.deliverer.intents) == 1
    assert len(host.agent.turns) == 1


async def test_a_long_text_is_kept_once_while_the_store_is_in_trouble(host: Any) -> None:
    """Trying again does not repeat what went wrong beside the store."""
    host.write()

    def say(turn: Turn) -> str:
        (host.data / "runs" / "check" / turn.run_id / "intent.md").mkdir()
        return "x" * 70_000

    host.agent = ScriptedAgent(default=say)
    store = host.faulty()
    async with host.engine(store=store) as engine:
        store.faults["finish"] = [FULL] * 3
        run = await host.fire(engine)
        events = await host.events(engine, "artifact_failed")
    assert run.state == "succeeded"
    assert [event.data["name"] for event in events] == ["intent.md"]


async def test_events_that_the_store_did_not_take_go_with_the_next_ones(host: Any) -> None:
    """Each of them once, in order."""
    host.write(steps=["One.", "Two.", "Three."])
    store = host.faulty()
    async with host.engine(store=store) as engine:
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        # the run's first record, then the events of the three turns
        store.faults["record"] = [None, FULL, None, FULL]
        run = await host.fire(engine)
        events = await host.events(engine, "turn_completed", "run_completed")
        (host.folder(run) / "result.json").unlink()
    assert [event.data.get("step_id") for event in events] == ["step-1", "step-2", "step-3", None]
    assert events[-1].kind == "run_completed"


async def test_an_event_after_the_end_does_not_repeat_what_went_with_it(host: Any) -> None:
    host.write()

    def say(turn: Turn) -> str:
        (host.data / "runs" / "check" / turn.run_id / "result.json").mkdir()
        return "done"

    host.agent = ScriptedAgent(default=say)
    store = host.faulty()
    async with host.engine(store=store) as engine:
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        store.faults["record"] = [None, FULL]
        await host.fire(engine)
        events = await host.events(engine, "turn_completed", "artifact_failed")
    assert [event.kind for event in events] == ["turn_completed", "artifact_failed"]
