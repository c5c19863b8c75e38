"""`ScriptedAgent` and `RecordingDeliverer`, and the example values that go with them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from drumbeat.core.model import Receipt, Reply, Turn, Usage
from drumbeat.errors import AgentError, AgentUnavailable
from drumbeat.testing import (
    ManualClock,
    RecordingDeliverer,
    Said,
    ScriptedAgent,
    example_intent,
    example_turn,
)

START = datetime(2026, 3, 1, tzinfo=UTC)


def step(step_id: str = "check", *, slug: str = "nightly", **changes: Any) -> Turn:
    return example_turn(slug=slug, step_id=step_id, **changes)


def other(origin: str, *, slug: str = "nightly") -> Turn:
    return example_turn(slug=slug, step_id=None, origin=origin)


async def said(agent: ScriptedAgent, turn: Turn) -> str:
    return (await agent.take_turn(turn)).text


# ---- the script


@pytest.mark.anyio
async def test_without_a_script_it_says_ok() -> None:
    agent = ScriptedAgent()
    assert await said(agent, step()) == "ok"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "keys, turn, expected",
    [
        (["nightly/check", "check", "step"], step(), "nightly/check"),
        (["nightly/step", "check", "step"], step(), "nightly/step"),
        (["other/check", "check", "step"], step(), "check"),
        (["other/check", "other", "step"], step(), "step"),
        (["nightly", "judgment"], step(), "default"),
        (["nightly/judgment", "judgment"], other("judgment"), "nightly/judgment"),
        (["other/judgment", "judgment"], other("judgment"), "judgment"),
        (["None", "nightly/None"], other("inject"), "default"),
        (["ask"], other("ask", slug="_ask"), "ask"),
    ],
)
async def test_the_nearest_key_counts(keys: list[str], turn: Turn, expected: str) -> None:
    agent = ScriptedAgent({key: key for key in keys}, default="default")
    assert await said(agent, turn) == expected


@pytest.mark.anyio
async def test_a_reply_is_said_as_it_is() -> None:
    reply = Reply(text="done", usage=Usage(input_tokens=3), handle="h")
    assert await ScriptedAgent({"check": reply}).take_turn(step()) is reply


@pytest.mark.anyio
async def test_an_exception_is_raised_each_time() -> None:
    """Raised many times it grows no traceback of the times before."""
    error = AgentUnavailable("busy")
    agent = ScriptedAgent(default=error)
    depths = []
    for _ in range(3):
        with pytest.raises(AgentUnavailable) as caught:
            await agent.take_turn(step())
        assert caught.value is error
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


@pytest.mark.anyio
async def test_a_function_sees_the_turn() -> None:
    def answer(turn: Turn) -> Said:
        return AgentError("no") if turn.is_new else f"again: {turn.prompt}"

    agent = ScriptedAgent({"check": answer})
    with pytest.raises(AgentError, match="no"):
        await agent.take_turn(step())
    assert await said(agent, step(is_new=False, prompt="Look.")) == "again: Look."


@pytest.mark.anyio
async def test_a_turn_can_take_time_on_the_engines_clock() -> None:
    clock = ManualClock(START)

    async def answer(turn: Turn) -> Said:
        await clock.sleep(timedelta(minutes=5))
        return f"said at {clock.now():%H:%M}"

    agent = ScriptedAgent(default=answer)
    heard: list[str] = []

    async def listen() -> None:
        heard.append(await said(agent, step()))

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await clock.advance(timedelta(hours=1))
    assert heard == ["said at 00:05"]


@pytest.mark.anyio
async def test_a_sequence_gives_one_answer_to_each_call() -> None:
    agent = ScriptedAgent({"check": ["one", AgentUnavailable("two"), lambda turn: "three"]})
    assert await said(agent, step()) == "one"
    assert await said(agent, step("other")) == "ok"
    with pytest.raises(AgentUnavailable):
        await agent.take_turn(step())
    assert await said(agent, step()) == "three"


@pytest.mark.anyio
@pytest.mark.parametrize("lines", [["one"], []])
async def test_a_sequence_that_is_used_up_is_a_failure_of_its_own(lines: list[str]) -> None:
    agent = ScriptedAgent({"nightly/check": lines})
    for line in lines:
        assert await said(agent, step()) == line
    for _ in range(2):
        with pytest.raises(AgentError) as caught:
            await agent.take_turn(step())
        assert caught.value.code == "script-exhausted"
        assert f"'nightly/check' has {len(lines)} answers" in str(caught.value)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "script, where",
    [({"check": lambda turn: None}, "for 'check'"), ({}, "for the default")],
)
async def test_what_cannot_be_said_is_explained(script: dict[str, Any], where: str) -> None:
    agent = ScriptedAgent(script, default=lambda turn: 5)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match=where):
        await agent.take_turn(step())


# ---- what it keeps and enforces


@pytest.mark.anyio
async def test_every_turn_is_kept_those_that_failed_too() -> None:
    agent = ScriptedAgent({"bad": KeyError("bad")})
    turns = [step(), step("bad"), step()]
    await agent.take_turn(turns[0])
    with pytest.raises(KeyError):
        await agent.take_turn(turns[1])
    await agent.take_turn(turns[2])
    assert agent.turns == turns


@pytest.mark.anyio
async def test_two_turns_at_once_in_one_conversation_are_refused() -> None:
    """Different conversations, and one after another in the same, are fine."""
    clock = ManualClock(START)

    async def slow(turn: Turn) -> Said:
        await clock.sleep(timedelta(minutes=1))
        return "ok"

    agent = ScriptedAgent(default=slow)
    first = step(session_id="s1")
    async with anyio.create_task_group() as group:
        group.start_soon(agent.take_turn, first)
        group.start_soon(agent.take_turn, step(session_id="s2"))
        await clock.advance(timedelta(0))
        with pytest.raises(AssertionError, match=r"at once in the conversation s1: .*nightly/chec"):
            await agent.take_turn(step(session_id="s1"))
        await clock.advance(timedelta(minutes=1))
        group.start_soon(agent.take_turn, first)
        await clock.advance(timedelta(minutes=1))


@pytest.mark.anyio
async def test_a_cancelled_turn_leaves_its_conversation_free() -> None:
    agent = ScriptedAgent({"wait": lambda turn: anyio.sleep_forever()})  # type: ignore[dict-item,return-value]
    with anyio.move_on_after(0) as scope:
        await agent.take_turn(step("wait", session_id="s1"))
    assert scope.cancelled_caught
    assert await said(agent, step(session_id="s1")) == "ok"


# ---- the deliverer


@pytest.mark.anyio
async def test_the_deliverer_keeps_what_it_delivers() -> None:
    deliverer = RecordingDeliverer()
    intents = [example_intent(id="1"), example_intent(id="2")]
    receipts = [await deliverer.deliver(intent) for intent in intents]
    assert deliverer.intents == deliverer.attempts == intents
    assert receipts == [Receipt(id="message-1"), Receipt(id="message-2")]


@pytest.mark.anyio
async def test_the_deliverer_fails_as_often_as_told_and_then_works() -> None:
    deliverer = RecordingDeliverer(fail=[ConnectionError("a"), None, ConnectionError("c")])
    outcomes = []
    for number in range(1, 5):
        try:
            await deliverer.deliver(example_intent(attempt=number))
            outcomes.append("delivered")
        except ConnectionError as error:
            outcomes.append(str(error))
    assert outcomes == ["a", "delivered", "c", "delivered"]
    assert [intent.attempt for intent in deliverer.attempts] == [1, 2, 3, 4]
    assert [intent.attempt for intent in deliverer.intents] == [2, 4]


@pytest.mark.anyio
async def test_a_function_decides_which_delivery_fails() -> None:
    deliverer = RecordingDeliverer(
        fail=lambda intent: TimeoutError() if intent.slug == "bad" else None
    )
    await deliverer.deliver(example_intent())
    with pytest.raises(TimeoutError):
        await deliverer.deliver(example_intent(slug="bad"))
    assert [intent.slug for intent in deliverer.intents] == ["example"]


# ---- the example values


def test_example_values_differ_in_their_ids() -> None:
    turns = example_turn(), example_turn()
    intents = example_intent(), example_intent()
    for one, two in (turns, intents):
        assert one.run_id != two.run_id
        assert one.session_id != two.session_id
    assert turns[0].turn_id != turns[1].turn_id
    assert intents[0].id != intents[1].id
    assert intents[0].fire.run_id == intents[0].run_id


def test_a_name_that_is_no_field_is_refused() -> None:
    with pytest.raises(TypeError):
        example_turn(promt="?")
    with pytest.raises(TypeError):
        example_intent(txt="?")


@pytest.mark.anyio
async def test_the_example_turn_takes_follow_ups() -> None:
    turn = example_turn()
    fires = [
        await turn.follow_ups.schedule("Look again.", after=timedelta(hours=1)) for _ in range(2)
    ]
    assert [fire.prompt for fire in fires] == ["Look again."] * 2
    assert [fire.due - fire.created_at for fire in fires] == [timedelta(hours=1)] * 2
    assert fires[0].slot != fires[1].slot
