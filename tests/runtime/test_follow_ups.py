"""What a run asks for later (spec, section 13.3)."""

from datetime import timedelta
from typing import Any

import anyio
import pytest

from drumbeat import FollowUpRefused, Turn
from drumbeat.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


def asking(*delays: timedelta, prompt: str = "Look again.", deeper: bool = False) -> ScriptedAgent:
    """An agent that asks for a follow-up after each delay, in its first turn or in each."""

    async def say(turn: Turn) -> str:
        if turn.origin == "step" or (deeper and turn.origin == "follow-up"):
            for delay in delays:
                await turn.follow_ups.schedule(prompt, after=delay)
        return "done"

    return ScriptedAgent(default=say)


async def test_a_follow_up_is_one_turn_with_everything_else_of_the_automation(host: Any) -> None:
    """`requires`, `inject`, `conversation` and `notify` apply; the steps do not."""
    host.tool("state", "printf 'the state'")
    host.file("guidance/MAIL.md", "Be brief.")
    host.write(
        steps=["One.", "Two."],
        notify="auto",
        requires=["guidance/MAIL.md"],
        inject=[{"argv": ["state"], "label": "state"}],
    )

    async def say(turn: Turn) -> str:
        if turn.step_id == "step-1":
            await turn.follow_ups.schedule("  Look again.\n", after=30 * MINUTE)
        return "NOTHING_TO_REPORT" if turn.origin == "judgment" else "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        first = await engine.run("check")
        (scheduled,) = await host.events(engine, "follow_up_scheduled")
        waiting = (await engine.status()).waiting
        before = await engine.sessions()
        await host.clock.advance(29 * MINUTE)
        assert len(await engine.runs()) == 1
        await host.clock.advance(2 * MINUTE)
        await engine.settled()
        second, _ = await engine.runs()
        assert await engine.sessions() == before
    turns = [turn for turn in host.agent.turns if turn.run_id == second.run_id]
    assert [turn.origin for turn in turns] == ["inject", "follow-up", "judgment"]
    assert turns[1].prompt == "  Look again.\n"
    assert (turns[1].step_id, turns[1].label) == (None, None)
    assert [item.name for item in turns[0].requirements] == ["guidance/MAIL.md"]
    assert (second.session_id, second.rotation) == (first.session_id, None)
    assert (second.fire.cause, second.fire.parent_run, second.fire.depth) == (
        "follow-up",
        first.run_id,
        1,
    )
    assert second.intent.gate == "nothing-to-report"
    assert "earlier run asked for this one" in turns[0].context
    assert [fire.id for fire in waiting] == [second.fire.id]
    assert scheduled.data == {
        "fire": second.fire.id,
        "due": (first.started_at + 30 * MINUTE).isoformat(),
    }


@pytest.mark.parametrize("fails", [False, True])
async def test_it_is_eligible_once_its_parent_has_settled(host: Any, fails: bool) -> None:
    """However the parent ended; a delay of nothing does not overtake it."""
    host.write(steps=["One.", "Two."])
    going: list[tuple[str, str]] = []

    async def say(turn: Turn) -> str:
        going.append((turn.run_id or "", turn.origin))
        if turn.step_id == "step-1":
            await turn.follow_ups.schedule("Again.", after=timedelta(0))
            await host.clock.sleep(10 * MINUTE)
            if fails:
                msg = "broken"
                raise ValueError(msg)
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(5 * MINUTE)
        (fire,) = [fire for fire in await engine.fires() if fire.cause == "follow-up"]
        assert fire.verdict is None
        await host.clock.advance(10 * MINUTE)
        await engine.settled()
        last, parent = await engine.runs()
    assert parent.state == ("failed" if fails else "succeeded")
    assert (last.fire.cause, last.state) == ("follow-up", "succeeded")
    assert last.started_at >= parent.finished_at
    assert going[-1] == (last.run_id, "follow-up")


@pytest.mark.parametrize(
    "prompt, delay, code, words",
    [
        (" \n", MINUTE, "follow-up-prompt-invalid", "blank"),
        (None, MINUTE, "follow-up-prompt-invalid", "is NoneType, and no text"),
        (b"Again.", MINUTE, "follow-up-prompt-invalid", "is bytes, and no text"),
        ("a\0b", MINUTE, "follow-up-prompt-invalid", "null character"),
        ("\ud800", MINUTE, "follow-up-prompt-invalid", "surrogate"),
        ("a" * 65_537, MINUTE, "follow-up-prompt-invalid", "65536 is the limit"),
        (
            "Again.",
            timedelta(seconds=-1),
            "follow-up-delay",
            "of -1 s is outside 0 s to 30 d",
        ),
        (
            "Again.",
            timedelta(days=30, seconds=1),
            "follow-up-delay",
            "of 30 d 1 s is outside 0 s to 30 d",
        ),
    ],
)
async def test_a_refusal_reaches_the_agent_and_the_record(
    host: Any, prompt: Any, delay: timedelta, code: str, words: str
) -> None:
    refused: list[FollowUpRefused] = []

    async def say(turn: Turn) -> str:
        try:
            await turn.follow_ups.schedule(prompt, after=delay)
        except FollowUpRefused as error:
            refused.append(error)
        return "done"

    host.write()
    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await engine.run("check")
        (event,) = await host.events(engine, "follow_up_refused")
        assert len(await engine.fires()) == 1
    (error,) = refused
    assert run.state == "succeeded"
    assert error.problem.code == code
    assert words in error.problem.message
    assert (event.run_id, event.data) == (
        run.run_id,
        {"code": code, "reason": error.problem.message},
    )


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(days=30)])
async def test_the_bounds_of_the_delay_are_inside(host: Any, delay: timedelta) -> None:
    host.write()
    host.agent = asking(delay)
    async with host.engine() as engine:
        run = await engine.run("check")
        (event,) = await host.events(engine, "follow_up_scheduled")
    assert event.data["due"] == (run.started_at + delay).isoformat()


async def test_five_are_pending_and_the_sixth_is_refused_also_when_asked_at_once(
    host: Any,
) -> None:
    outcomes: list[str] = []

    async def say(turn: Turn) -> str:
        async def ask() -> None:
            try:
                await turn.follow_ups.schedule("Again.", after=MINUTE)
                outcomes.append("scheduled")
            except FollowUpRefused as error:
                outcomes.append(error.problem.message)

        async with anyio.create_task_group() as group:
            for _ in range(7):
                group.start_soon(ask)
        return "done"

    host.write()
    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        await engine.run("check")
        waiting = (await engine.status()).waiting
    assert len(waiting) == 5
    refused = [outcome for outcome in outcomes if outcome != "scheduled"]
    assert refused == ["no follow-up: 5 follow-ups are pending, and 5 is the limit"] * 2


async def test_a_follow_up_that_runs_is_not_counted_as_pending(host: Any) -> None:
    """With one allowed, each may ask for the next, until the chain is ten long."""
    host.write()
    host.agent = asking(MINUTE, deeper=True)
    async with host.engine(settings={"follow_ups_pending": 1}) as engine:
        await engine.fire("check")
        await host.clock.advance(60 * MINUTE)
        await engine.settled()
        runs = await engine.runs()
        (refused,) = await host.events(engine, "follow_up_refused")
    assert [run.fire.depth for run in reversed(runs)] == list(range(11))
    assert runs[0].failure.code == "follow-up-too-deep"
    assert "10 is the limit" in refused.data["reason"]


async def test_a_run_that_has_ended_can_ask_for_nothing(host: Any) -> None:
    kept: list[Any] = []

    def say(turn: Turn) -> str:
        kept.append(turn.follow_ups)
        return "done"

    host.write()
    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await engine.run("check")
        with pytest.raises(FollowUpRefused, match="has ended"):
            await kept[0].schedule("Again.", after=MINUTE)
        (event,) = await host.events(engine, "follow_up_refused")
    assert event.run_id == run.run_id


async def test_a_disabled_automation_skips_it_and_a_restart_does_not_lose_it(host: Any) -> None:
    host.write()
    host.agent = asking(MINUTE, 90 * MINUTE)
    async with host.engine() as engine:
        await engine.run("check")
    async with host.engine() as engine:
        await host.clock.advance(30 * MINUTE)
        await engine.settled()
        host.write(enabled=False)
        await engine.reload()
        await host.clock.advance(90 * MINUTE)
        await engine.settled()
        fires = {
            fire.due - fire.created_at: fire for fire in await engine.fires() if fire.parent_run
        }
    assert fires[MINUTE].verdict == "ran"
    late = fires[90 * MINUTE]
    assert (late.verdict, late.reason) == ("skipped", "disabled")
