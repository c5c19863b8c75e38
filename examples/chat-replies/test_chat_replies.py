"""What a chat host counts on: each answer lands in the conversation that it answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from chat_host import Answers, ChatDeliverer
from chat_model import Model
from chat_room import Chat, Message

from drumbeat import Engine, Reply, RunRecord, Settings, Turn
from drumbeat.testing import ManualClock, drive

WORKSPACE = Path(__file__).with_name("workspace")
MINUTE = timedelta(minutes=1)
EVENING = datetime(2026, 3, 2, 18, tzinfo=UTC)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio."""
    return "asyncio"


class SlowModel(Model):
    """Takes its time, on the clock of the test, and never hears two voices at once."""

    def __init__(self, clock: ManualClock, *, minutes: int = 0) -> None:
        super().__init__()
        self.clock = clock
        self.minutes = minutes
        self.speaking: set[str] = set()

    async def take_turn(self, turn: Turn, /) -> Reply:
        """Answer as the model does, after a while."""
        assert turn.session_id not in self.speaking
        self.speaking.add(turn.session_id)
        try:
            await self.clock.sleep(self.minutes * MINUTE)
            return await super().take_turn(turn)
        finally:
            self.speaking.remove(turn.session_id)


class World:
    """A chat and a model that outlive the engines, as they do in the world."""

    def __init__(self, data: Path) -> None:
        self.clock = ManualClock(EVENING)
        self.chat = Chat()
        self.model = SlowModel(self.clock)
        self.data = data

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[Engine]:
        """One life of the host."""
        engine = Engine(
            WORKSPACE,
            agent=self.model,
            deliverer=ChatDeliverer(self.chat),
            data_dir=self.data,
            timezone="UTC",
            settings=Settings(max_concurrent_runs=1),
            clock=self.clock,
            env={},
        )
        async with engine, anyio.create_task_group() as group:
            group.start_soon(Answers(self.chat, engine).serve)
            yield engine
            group.cancel_scope.cancel()

    async def run(self, engine: Engine, slug: str) -> tuple[RunRecord, str]:
        """Run an automation, and return its record and the id of what it posted."""
        fire = await engine.fire(slug)
        (run,) = [
            run
            for run in await drive(engine, until=self.clock.now() + 5 * MINUTE)
            if run.fire.id == fire.id
        ]
        posted = (await engine.find_run(run.run_id)).receipt
        assert posted is not None
        assert posted.id is not None
        return run, posted.id

    def heard(self, run: RunRecord) -> list[str]:
        """What the model heard in the conversation of a run, steps left out."""
        assert run.session_id is not None
        return [said for said in self.model.conversations[run.session_id] if said.endswith("?")]

    def answers(self, message: Message) -> list[str]:
        """What was answered to a message."""
        return [each.text for each in self.chat.thread(message.id) if each.answers == message.id]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world in the evening."""
    return World(tmp_path / "data")


async def test_crossed_answers_land_where_they_belong(world: World) -> None:
    """Those to earlier messages too, and after a restart."""
    async with world.engine() as engine:
        backups, first = await world.run(engine, "backups")
        sales, second = await world.run(engine, "sales")
        later, third = await world.run(engine, "backups")
        for message, text in ((second, "Who?"), (first, "Which?"), (third, "Why?")):
            await world.chat.post("ada", text, answers=message)
            await world.clock.advance(MINUTE)
    async with world.engine():
        asked = await world.chat.post("bob", "And before?", answers=first)
        await world.clock.advance(MINUTE)
    assert world.heard(backups) == ["Which?", "And before?"]
    assert world.heard(sales) == ["Who?"]
    assert world.heard(later) == ["Why?"]
    (answer,) = world.answers(asked)
    assert "And before?" in answer
    assert "Say which backups of the night failed." in answer


async def test_a_thread_goes_on(world: World) -> None:
    """Answering an answer goes into the conversation that the thread began in."""
    async with world.engine() as engine:
        run, posted = await world.run(engine, "backups")
        await world.chat.post("ada", "Which?", answers=posted)
        await world.clock.advance(MINUTE)
        *_, reply = world.chat.thread(posted)
        assert reply.author == "drumbeat"
        await world.chat.post("ada", "Since when?", answers=reply.id)
        await world.clock.advance(MINUTE)
    assert world.heard(run) == ["Which?", "Since when?"]


async def test_an_answer_waits_its_turn_or_is_told_to_come_back(world: World) -> None:
    """A run of the same conversation is going on."""
    async with world.engine() as engine:
        run, posted = await world.run(engine, "sales")
        world.model.minutes = 8
        await engine.fire("sales")
        await world.clock.advance(MINUTE)
        asked = await world.chat.post("ada", "Who?", answers=posted)
        await world.clock.advance(20 * MINUTE)
        assert world.heard(run) == ["Who?"]
        world.model.minutes = 30
        await engine.fire("sales")
        await world.clock.advance(MINUTE)
        refused = await world.chat.post("bob", "How much?", answers=posted)
        await world.clock.advance(60 * MINUTE)
    assert "Who?" in world.answers(asked)[0]
    assert world.answers(refused) == ["I am still at work on this. Please ask again later."]
    assert world.heard(run) == ["Who?"]


async def test_what_is_none_of_the_engine_s_is_left_alone(world: World) -> None:
    """People among themselves; and a message that nobody remembers gets a plain word."""
    async with world.engine():
        lunch = await world.chat.post("ada", "Lunch?")
        sure = await world.chat.post("bob", "Sure.", answers=lunch.id)
        forgotten = await world.chat.post("drumbeat", "Backups: from long ago")
        asked = await world.chat.post("ada", "Still so?", answers=forgotten.id)
        await world.clock.advance(MINUTE)
    assert world.answers(sure) == []
    assert world.answers(lunch) == ["Sure."]
    assert world.answers(asked) == ["I do not remember what this was about any more."]
    assert world.model.conversations == {}
