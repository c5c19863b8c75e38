"""From a committed intent to a person: at least once, in order, the agent being run once."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from drumbeat import DeliveryIntent, DeliveryRefused, Engine, Receipt, Settings
from drumbeat.testing import ManualClock, RecordingDeliverer, ScriptedAgent, drive

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 1, tzinfo=UTC)
ALWAYS = """
name: Ping
trigger: {type: manual}
notify: always
steps:
  - id: ping
    prompt: Say pong.
"""


def engine_for(
    workspace: Path, clock: ManualClock, deliverer: object, agent: ScriptedAgent | None = None
) -> Engine:
    return Engine(
        workspace,
        agent=agent or ScriptedAgent(default="pong"),
        deliverer=deliverer,  # type: ignore[arg-type]
        timezone="UTC",
        clock=clock,
        env={},
    )


class Flaky:
    """Fails for the named slugs: so many times, or for ever."""

    def __init__(self, failures: dict[str, int]) -> None:
        self.failures = failures
        self.attempts: list[tuple[str, str, int]] = []

    async def deliver(self, intent: DeliveryIntent, /) -> Receipt | None:
        self.attempts.append((intent.slug, intent.id, intent.attempt))
        if self.failures.get(intent.slug, 0) > 0:
            self.failures[intent.slug] -= 1
            msg = "the channel is down"
            raise ConnectionError(msg)
        return Receipt(id=f"message-{len(self.attempts)}")


async def kinds(engine: Engine, *wanted: str) -> list[str]:
    """The kinds of the events so far, those that are wanted."""
    return [event.kind async for event in engine.events(follow=False) if event.kind in wanted]


async def test_three_failures_then_success_is_four_attempts_of_one_intent(
    workspace: Path, write: Callable[..., None]
) -> None:
    """The agent runs once; the deliverer sees one id with a rising attempt."""
    write("ping", ALWAYS)
    clock, flaky, agent = ManualClock(START), Flaky({"ping": 3}), ScriptedAgent(default="pong")
    async with engine_for(workspace, clock, flaky, agent) as engine:
        run = await engine.run("ping")
        await drive(engine, until=START + timedelta(days=1))
        after = await engine.find_run(run.run_id)
        seen = await kinds(engine, "delivery_failed", "delivered", "delivery_abandoned")
    assert run.intent is not None
    assert [attempt for _, _, attempt in flaky.attempts] == [1, 2, 3, 4]
    assert {intent for _, intent, _ in flaky.attempts} == {run.intent.id}
    assert after.delivery == "delivered"
    assert after.receipt == Receipt(id="message-4")
    assert seen == ["delivery_failed"] * 3 + ["delivered"]
    assert len(agent.turns) == 1


async def test_an_intent_that_always_fails_is_abandoned_and_holds_up_nobody(
    workspace: Path, write: Callable[..., None]
) -> None:
    """Eight attempts over about a day, while another automation's intents go out."""
    write("ping", ALWAYS)
    write("pong", ALWAYS)
    clock, flaky = ManualClock(START), Flaky({"ping": 1000})
    async with engine_for(workspace, clock, flaky) as engine:
        lost = await engine.run("ping")
        await engine.run("pong")
        await engine.settled()
        assert [slug for slug, _, _ in flaky.attempts if slug == "pong"] == ["pong"]
        await drive(engine, until=START + timedelta(hours=23))
        assert (await engine.find_run(lost.run_id)).delivery == "pending"
        await drive(engine, until=START + timedelta(hours=25))
        after = await engine.find_run(lost.run_id)
        seen = await kinds(engine, "delivery_failed", "delivery_abandoned")
        why = await engine.why("ping", at=START)
    assert after.delivery == "abandoned"
    assert [attempt for slug, _, attempt in flaky.attempts if slug == "ping"] == list(range(1, 9))
    assert seen == ["delivery_failed"] * 7 + ["delivery_abandoned"]
    assert "abandoned" in why


async def test_intents_of_one_automation_go_out_in_order(
    workspace: Path, write: Callable[..., None]
) -> None:
    """A later intent waits for an earlier one that is being tried again."""
    write("ping", ALWAYS)
    clock, flaky = ManualClock(START), Flaky({"ping": 2})
    async with engine_for(workspace, clock, flaky) as engine:
        first = await engine.run("ping")
        second = await engine.run("ping")
        await drive(engine, until=START + timedelta(hours=1))
    assert first.intent is not None
    assert second.intent is not None
    assert [intent for _, intent, _ in flaky.attempts] == [first.intent.id] * 3 + [second.intent.id]


async def test_a_refusal_abandons_at_once(workspace: Path, write: Callable[..., None]) -> None:
    """`DeliveryRefused` is the host's last word."""
    write("ping", ALWAYS)

    class Refusing:
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            msg = "nobody by that name"
            raise DeliveryRefused(msg)

    clock = ManualClock(START)
    async with engine_for(workspace, clock, Refusing()) as engine:
        run = await engine.run("ping")
        await engine.settled()
        after = await engine.find_run(run.run_id)
        events = [event async for event in engine.events(follow=False)]
    assert after.delivery == "abandoned"
    (abandoned,) = [event for event in events if event.kind == "delivery_abandoned"]
    assert abandoned.data["reason"] == "nobody by that name"


async def test_an_attempt_that_takes_too_long_may_have_arrived(
    workspace: Path, write: Callable[..., None]
) -> None:
    """It is cut off after `deliver_timeout` and tried again under the same id."""
    write("ping", ALWAYS)
    clock = ManualClock(START)
    seen: list[tuple[str, int]] = []

    class Slow:
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            seen.append((intent.id, intent.attempt))
            if intent.attempt == 1:
                await clock.sleep(timedelta(hours=1))

    async with engine_for(workspace, clock, Slow()) as engine:
        run = await engine.run("ping")
        await drive(engine, until=START + timedelta(minutes=5))
        after = await engine.find_run(run.run_id)
        events = [event async for event in engine.events(follow=False)]
    assert run.intent is not None
    assert seen == [(run.intent.id, 1), (run.intent.id, 2)]
    assert after.delivery == "delivered"
    (failed,) = [event for event in events if event.kind == "delivery_failed"]
    assert "may have arrived" in failed.data["reason"]


async def test_a_crash_between_deliver_and_its_record_delivers_the_id_again(
    workspace: Path, write: Callable[..., None]
) -> None:
    """An engine that is cancelled inside `deliver` hands the intent over again, attempt 2."""
    write("ping", ALWAYS)
    clock = ManualClock(START)
    reached = anyio.Event()

    class Dying:
        def __init__(self) -> None:
            self.seen: list[tuple[str, int]] = []

        async def deliver(self, intent: DeliveryIntent, /) -> None:
            self.seen.append((intent.id, intent.attempt))
            reached.set()
            await anyio.sleep_forever()

    dying = Dying()
    async with anyio.create_task_group() as group:

        async def first_life() -> None:
            async with engine_for(workspace, clock, dying) as engine:
                await engine.run("ping")
                await anyio.sleep_forever()

        group.start_soon(first_life)
        await reached.wait()
        group.cancel_scope.cancel()
    recording = RecordingDeliverer()
    async with engine_for(workspace, clock, recording) as engine:
        await engine.settled()
    (again,) = recording.intents
    assert (again.id, again.attempt) == (dying.seen[0][0], 2)


async def test_without_a_deliverer_the_host_pulls(
    workspace: Path, write: Callable[..., None]
) -> None:
    """Intents stay pending until they are acknowledged, and a second time changes nothing."""
    write("ping", ALWAYS)
    clock = ManualClock(START)
    async with engine_for(workspace, clock, None) as engine:
        run = await engine.run("ping")
        await engine.settled()
        (intent,) = await engine.intents("pending")
        await engine.acknowledge(intent.id, Receipt(id="chat-1"))
        await engine.acknowledge(intent.id, Receipt(id="chat-2"))
        assert await engine.intents("pending") == []
        assert (await engine.find_run("chat-1")).run_id == run.run_id


async def test_a_long_text_is_capped_and_kept_whole(
    workspace: Path, write: Callable[..., None]
) -> None:
    """An intent carries at most 64 KiB and says where the rest is."""
    write("ping", ALWAYS)
    whole = "ü" * 100_000
    clock, recording = ManualClock(START), RecordingDeliverer()
    agent = ScriptedAgent(default=whole)
    async with engine_for(workspace, clock, recording, agent) as engine:
        run = await engine.run("ping")
        await engine.settled()
    (intent,) = recording.intents
    assert len(intent.text.encode()) <= 64 * 1024
    path = workspace / ".drumbeat" / "runs" / "ping" / run.run_id / "intent.md"
    assert str(path) in intent.text
    assert path.read_text(encoding="utf-8") == whole


def test_the_pauses_between_attempts_add_up_to_about_a_day() -> None:
    """Eight attempts reach from the first minute to a day later."""
    from drumbeat.core.backoff import delivery_pause

    pauses = [delivery_pause(attempt) for attempt in range(1, Settings().deliver_attempts)]
    assert pauses == sorted(pauses)
    assert timedelta(hours=20) < sum(pauses, timedelta()) < timedelta(hours=28)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_was_ahead_holds_no_message_back(
    workspace: Path, write: Callable[..., None], restarted: bool
) -> None:
    """The time of the next attempt, set by that clock, is not waited for."""
    write("ping", ALWAYS)
    clock, flaky = ManualClock(START), Flaky({"ping": 1})
    clock.jump(timedelta(days=400))
    async with engine_for(workspace, clock, flaky) as engine:
        await engine.run("ping")
        await engine.settled()
        assert flaky.failures == {"ping": 0}
        if not restarted:
            clock.jump(timedelta(days=-400))
            await engine.run("ping")
            await clock.advance(timedelta(minutes=5))
            assert await engine.intents("pending") == []
    if restarted:
        clock.jump(timedelta(days=-400))
        async with engine_for(workspace, clock, flaky) as engine:
            await clock.advance(timedelta(minutes=5))
            assert await engine.intents("pending") == []
    assert [attempt for _, _, attempt in flaky.attempts][:2] == [1, 2]
