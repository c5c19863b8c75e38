"""People answer two automations, crossed in time with runs, rotations and restarts."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from drumbeat import (
    DeliveryIntent,
    Engine,
    NotFound,
    Receipt,
    Reply,
    RunRecord,
    SessionBusy,
    Settings,
    Turn,
)
from drumbeat.testing import ManualClock, drive

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
MAIL = """
name: Mail
trigger: {type: schedule, expression: "daily at 08:00"}
notify: always
conversation: continuous
steps:
  - id: read
    prompt: Read the mail.
"""
NIGHT = """
name: Night
trigger: {type: schedule, expression: "daily at 07:00"}
notify: always
conversation: fresh
steps:
  - id: look
    prompt: Look at the night.
"""


class Backend:
    """A model that names each state of a conversation anew, as some do, and takes its time.

    What it is given as a handle is where it goes on from; a turn that went on from anywhere but the
    latest state of its own conversation is a voice that was lost.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.takes = timedelta(seconds=30)
        self.states: dict[str, list[str]] = defaultdict(list)
        self.heard: dict[str, list[str]] = defaultdict(list)
        self.speaking: set[str] = set()

    async def take_turn(self, turn: Turn, /) -> Reply:
        session = turn.session_id
        assert session not in self.speaking, "two voices at once"
        states = self.states[session]
        assert turn.handle == (states[-1] if states else None), "a voice was lost"
        assert turn.is_new == (not states)
        self.speaking.add(session)
        try:
            await self.clock.sleep(self.takes)
        finally:
            self.speaking.remove(session)
        states.append(f"{session}#{len(states)}")
        self.heard[session].append(turn.prompt)
        return Reply(text=f"heard {turn.prompt}", handle=states[-1])


class Channel:
    """A chat whose messages have ids, which outlives every host."""

    def __init__(self) -> None:
        self.messages: dict[str, DeliveryIntent] = {}

    async def deliver(self, intent: DeliveryIntent, /) -> Receipt:
        message_id = f"C{len(self.messages):04d}"
        self.messages[message_id] = intent
        return Receipt(id=message_id)


class World:
    """What outlives the engines."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.clock = ManualClock(START)
        self.backend = Backend(self.clock)
        self.channel = Channel()
        self.answered: dict[str, Reply | Exception] = {}

    def engine(self) -> Engine:
        return Engine(
            self.workspace,
            agent=self.backend,
            deliverer=self.channel,
            timezone="UTC",
            settings=Settings(max_concurrent_runs=1),
            clock=self.clock,
            env={},
        )

    def messages(self, slug: str) -> list[str]:
        """The ids of what an automation posted, in order."""
        return [name for name, intent in self.channel.messages.items() if intent.slug == slug]

    def session(self, message_id: str) -> str:
        """The conversation that a message came from."""
        session = self.channel.messages[message_id].session_id
        assert session is not None
        return session

    def person(
        self, engine: Engine, message_id: str, text: str, *, wait: timedelta = timedelta(0)
    ) -> Callable[[], Awaitable[None]]:
        """Somebody who answers a message, in a task of their own."""

        async def answer() -> None:
            try:
                self.answered[text] = await engine.reply(message_id, text, wait=wait)
            except (SessionBusy, NotFound) as error:
                self.answered[text] = error

        return answer


@pytest.fixture
def world(workspace: Path, write: Callable[..., None]) -> World:
    """Two automations and nobody at work yet."""
    write("mail", MAIL)
    write("night", NIGHT)
    return World(workspace)


async def test_each_answer_lands_in_its_own_conversation(world: World) -> None:
    """Crossed with runs, after rotations, and after a restart in between."""
    expected: dict[str, list[str]] = defaultdict(list)

    async def a_day(engine: Engine, day: int) -> None:
        await drive(engine, until=START + day * DAY + timedelta(hours=7))
        await world.clock.advance(timedelta(minutes=59))  # a minute before the mail is read
        async with anyio.create_task_group() as group:
            crossed = [
                (world.messages("night")[-1], f"day {day}: which one?"),
                (world.messages("night")[0], f"day {day}: and the first night?"),
                *([(world.messages("mail")[-1], f"day {day}: who wrote?")] if day else []),
            ]
            for message, text in crossed:
                expected[world.session(message)].append(text)
                group.start_soon(world.person(engine, message, text, wait=timedelta(hours=1)))
                await world.clock.advance(timedelta(seconds=25))
            await world.clock.advance(timedelta(hours=2))
        late = world.messages("mail")[-1]
        async with anyio.create_task_group() as group:
            for name in ("ann", "ben", "cid"):
                text = f"day {day}: {name} too"
                expected[world.session(late)].append(text)
                group.start_soon(world.person(engine, late, text, wait=timedelta(hours=1)))
            await world.clock.advance(timedelta(hours=1))

    async with world.engine() as engine:
        for day in range(2):
            await a_day(engine, day)
    async with world.engine() as engine:
        await a_day(engine, 2)
        await drive(engine, until=START + 3 * DAY)
        assert await engine.sweep() == []
        runs: list[RunRecord] = await engine.runs()
        pins = await engine.sessions()
        said = [event async for event in engine.events(follow=False)]
    assert {run.state for run in runs} == {"succeeded"}
    assert len(runs) == len(world.channel.messages) == 6
    nights = [world.session(message) for message in world.messages("night")]
    mails = {world.session(message) for message in world.messages("mail")}
    assert len(set(nights)) == 3
    assert len(mails) == 1
    heard = {
        session: [text for text in texts if text.startswith("day")]
        for session, texts in world.backend.heard.items()
    }
    assert {session: sorted(texts) for session, texts in heard.items() if texts} == {
        session: sorted(texts) for session, texts in expected.items()
    }
    for text, reply in world.answered.items():
        assert isinstance(reply, Reply)
        assert reply.text == f"heard {text}"
    completed = [event for event in said if event.kind == "reply_completed"]
    assert len(completed) == len(world.answered)
    assert {event.data["session_id"] for event in completed} == set(expected)
    assert {slug: pin.session_id for slug, pin in pins.items()} == {
        "mail": mails.pop(),
        "night": nights[-1],
    }
    assert all(pin.handle == world.backend.states[pin.session_id][-1] for pin in pins.values())


async def test_a_busy_conversation_loses_no_text(world: World) -> None:
    """Whoever is refused still has it; asked again, it is heard once."""
    world.backend.takes = 10 * MINUTE
    async with world.engine() as engine, anyio.create_task_group() as group:
        await drive(engine, until=START + timedelta(hours=9))
        (message,) = world.messages("mail")
        await engine.fire("mail")
        await world.clock.advance(MINUTE)
        group.start_soon(world.person(engine, message, "too early"))
        await world.clock.advance(MINUTE)
        refused = world.answered.pop("too early")
        assert isinstance(refused, SessionBusy)
        assert "too early" not in world.backend.heard[world.session(message)]
        await world.clock.advance(15 * MINUTE)
        group.start_soon(world.person(engine, message, "too early"))
        await world.clock.advance(MINUTE)
        group.start_soon(world.person(engine, message, "meanwhile"))
        await engine.fire("mail")
        await engine.fire("night")
        await world.clock.advance(30 * MINUTE)
        runs = await engine.runs(limit=2)
    assert isinstance(world.answered["too early"], Reply)
    assert isinstance(world.answered["meanwhile"], SessionBusy)
    heard = world.backend.heard[world.session(message)]
    assert heard == ["Read the mail.", "Read the mail.", "too early", "Read the mail."]
    # The one place for runs went to the other automation while the mail waited for the answer.
    assert [(run.slug, run.state) for run in sorted(runs, key=ended)] == [
        ("night", "succeeded"),
        ("mail", "succeeded"),
    ]


def ended(run: RunRecord) -> datetime:
    """When a run was over."""
    assert run.finished_at is not None
    return run.finished_at


async def test_what_nobody_posted_is_answered_by_nobody(world: World) -> None:
    """An unknown id raises, and reaches no conversation."""
    async with world.engine() as engine:
        await drive(engine, until=START + timedelta(hours=9))
        before = {session: len(texts) for session, texts in world.backend.heard.items()}
        for target in ("C9999", "", "mail"):
            with pytest.raises(NotFound):
                await engine.reply(target, "Hello?")
        assert before == {session: len(texts) for session, texts in world.backend.heard.items()}
