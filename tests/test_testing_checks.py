"""The conformance checks: good parts pass, and each way to break the contract is explained."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from drumbeat.core.model import DeliveryIntent, MailBatch, MailMessage, Receipt, Reply, Turn, Usage
from drumbeat.errors import ConversationNotFound, DeliveryRefused
from drumbeat.testing import (
    RecordingDeliverer,
    ScriptedAgent,
    _checks,
    _contract,
    check_agent,
    check_deliverer,
    check_mail_source,
)


class FunctionAgent:
    """An agent by shape: a function of the turn and of the sessions seen so far."""

    def __init__(self, answer: Callable[[Turn, set[str]], Any]) -> None:
        self.answer = answer
        self.seen: set[str] = set()

    async def take_turn(self, turn: Turn, /) -> Reply:
        result = self.answer(turn, self.seen)
        if isinstance(result, Awaitable):
            result = await result
        self.seen.add(turn.session_id)
        return result  # type: ignore[no-any-return]


def agent_that(answer: Callable[[Turn, set[str]], Any]) -> Callable[[], FunctionAgent]:
    return lambda: FunctionAgent(answer)


# ---- check_agent


@pytest.mark.anyio
async def test_an_agent_that_keeps_the_contract_passes() -> None:
    await check_agent(ScriptedAgent)


@pytest.mark.anyio
async def test_an_agent_with_all_its_fields_passes() -> None:
    reply = Reply(text="hello", usage=Usage(), provider="p", model="m", handle="h")
    await check_agent(agent_that(lambda turn, seen: reply))


@pytest.mark.anyio
async def test_an_agent_may_forget_conversations_with_its_process() -> None:
    def answer(turn: Turn, seen: set[str]) -> Reply:
        if not turn.is_new and turn.session_id not in seen:
            raise ConversationNotFound("not in this process")
        return Reply(text="hello")

    await check_agent(agent_that(answer))


@pytest.mark.anyio
async def test_an_agent_that_is_slow_to_answer_is_cancelled_and_passes() -> None:
    async def slow(turn: Turn, seen: set[str]) -> Reply:
        await anyio.sleep(0.01)
        return Reply(text="hello")

    await check_agent(agent_that(slow))


@pytest.mark.anyio
async def test_an_agent_gets_folders_that_exist_and_follow_ups_that_work() -> None:
    async def uses(turn: Turn, seen: set[str]) -> Reply:
        await anyio.Path(turn.memory_dir / "notes.md").write_text("note", encoding="utf-8")
        assert await anyio.Path(turn.cwd).is_dir()
        await turn.follow_ups.schedule("Look again.", after=turn.timeout)
        return Reply(text=turn.text)

    await check_agent(agent_that(uses))


def raises(error: Exception) -> Callable[..., Any]:
    def answer(*args: object) -> Reply:
        raise error

    return answer


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer, complaint",
    [
        (lambda turn, seen: "text", "the first turn of a conversation: take_turn returned 'text'"),
        (lambda turn, seen: None, "take_turn returned None; the contract: it returns a Reply"),
        (lambda turn, seen: Reply(text=" \n"), r"the text of the reply is ' \\n'"),
        (lambda turn, seen: Reply(text=b"x"), "the text of the reply is b'x'"),  # type: ignore[arg-type]
        (lambda turn, seen: Reply(text="\ud800"), "cannot be written as UTF-8"),
        (lambda turn, seen: Reply(text="x", usage=3), "usage is 3"),  # type: ignore[arg-type]
        (lambda turn, seen: Reply(text="x", handle=3), "handle is 3"),  # type: ignore[arg-type]
        (raises(KeyError("key")), "the first turn of a conversation: it raised KeyError: 'key'"),
        (
            lambda turn, seen: Reply(text=turn.automation.name),
            "belongs to no automation: it raised AttributeError",
        ),
        (
            lambda turn, seen: Reply(text="x") if turn.is_new else raises(KeyError("k"))(),
            "a later turn of the same conversation: it raised KeyError",
        ),
        (
            lambda turn, seen: Reply(text="x" if turn.is_new or seen else ""),
            "resumed by another instance of the agent: the text of the reply is ''",
        ),
        (
            lambda turn, seen: Reply(text="x" if turn.attempt == 1 else ""),
            "a second attempt, in a fresh conversation: the text",
        ),
    ],
)
async def test_what_an_agent_does_wrong_is_explained(
    answer: Callable[..., Any], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=f"^check_agent, .*{complaint}"):
        await check_agent(agent_that(answer))


@pytest.mark.anyio
async def test_an_agent_that_is_not_async_is_explained() -> None:
    class Plain:
        def take_turn(self, turn: Turn) -> Reply:
            return Reply(text="x")

    with pytest.raises(AssertionError, match=r"was returned at once; .* an async function"):
        await check_agent(Plain)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_an_agent_that_takes_one_turn_at_a_time_is_found() -> None:
    class Single(ScriptedAgent):
        busy = False

        async def take_turn(self, turn: Turn, /) -> Reply:
            assert not self.busy, "busy"
            self.busy = True
            try:
                return await super().take_turn(turn)
            finally:
                self.busy = False

    with pytest.raises(AssertionError, match=r"conversation \d of 3 at once: .*busy"):
        await check_agent(Single)


@pytest.mark.anyio
async def test_an_agent_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "_TURN_LIMIT", _checks._CALL_LIMIT / 1000)
    answer = agent_that(lambda turn, seen: anyio.sleep_forever())
    with pytest.raises(AssertionError, match=r"it took longer than 0:00:00.06"):
        await check_agent(answer)


# of the instance that is cancelled later: one of the turns before goes to another instance
_TURNS_BEFORE_CANCELLATION = 7


class Sluggish(ScriptedAgent):
    """Answers at once until the turns that will be cancelled come, then is what `late` makes it."""

    async def take_turn(self, turn: Turn, /) -> Reply:
        if len(self.turns) < _TURNS_BEFORE_CANCELLATION:
            return await super().take_turn(turn)
        self.turns.append(turn)
        return await self.late(turn)

    async def late(self, turn: Turn) -> Reply:
        raise NotImplementedError


@pytest.mark.anyio
async def test_an_agent_that_ignores_cancellation_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_contract, "_PROMPTLY", 0.05)

    class Stubborn(Sluggish):
        async def late(self, turn: Turn) -> Reply:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.1)
            return Reply(text="x")

    with pytest.raises(AssertionError, match="a turn cancelled after 0 s: it went on for more"):
        await check_agent(Stubborn)


@pytest.mark.anyio
async def test_an_agent_that_makes_an_error_of_cancellation_is_found() -> None:
    class Masking(Sluggish):
        async def late(self, turn: Turn) -> Reply:
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                raise ConnectionError("aborted") from None
            raise AssertionError

    with pytest.raises(AssertionError, match=r"it raised ConnectionError: aborted; .* through"):
        await check_agent(Masking)


@pytest.mark.anyio
async def test_an_agent_that_stays_locked_after_cancellation_is_found() -> None:
    class Leaking(Sluggish):
        locked = False

        async def late(self, turn: Turn) -> Reply:
            assert not self.locked, "locked"
            self.locked = True
            await anyio.sleep(0.001)
            self.locked = False
            return Reply(text="x")

    with pytest.raises(AssertionError, match=r"the conversation of a turn cancelled .*: locked"):
        await check_agent(Leaking)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_an_agent_that_leaves_a_task_behind_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only asyncio lets a task outlive the call that started it."""
    monkeypatch.setattr(_contract, "_ROUNDS_TO_END", 3)
    tasks: list[asyncio.Task[None]] = []

    class Leaving(ScriptedAgent):
        async def take_turn(self, turn: Turn, /) -> Reply:
            if not tasks:
                tasks.append(asyncio.create_task(anyio.sleep_forever(), name="left"))
            return await super().take_turn(turn)

    with pytest.raises(AssertionError, match=r"at the end: tasks were left behind: .*left"):
        await check_agent(Leaving)
    tasks[0].cancel()
    await asyncio.wait(tasks)


# ---- check_deliverer


class FunctionDeliverer:
    def __init__(self, answer: Callable[[DeliveryIntent], Any]) -> None:
        self.answer = answer

    async def deliver(self, intent: DeliveryIntent, /) -> Receipt | None:
        await anyio.lowlevel.checkpoint()
        return self.answer(intent)  # type: ignore[no-any-return]


@pytest.mark.anyio
async def test_a_deliverer_that_keeps_the_contract_passes() -> None:
    await check_deliverer(RecordingDeliverer)
    await check_deliverer(lambda: FunctionDeliverer(lambda intent: None))


def refuses(condition: Callable[[DeliveryIntent], bool]) -> Callable[[DeliveryIntent], None]:
    def answer(intent: DeliveryIntent) -> None:
        if condition(intent):
            raise DeliveryRefused("cannot")

    return answer


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer, complaint",
    [
        (lambda intent: "sent", "deliver returned 'sent'"),
        (lambda intent: Receipt(id=5), "the receipt's id is 5"),  # type: ignore[arg-type]
        (lambda intent: Receipt(url=""), "the receipt's url is ''"),
        (refuses(lambda intent: intent.attempt == 2), "the same intent, attempt 2: it raised"),
        (refuses(lambda intent: intent.attempt == 3), "by another instance: it raised"),
        (refuses(lambda intent: intent.session_id is None), "with no conversation: it raised"),
        (refuses(lambda intent: len(intent.text) > 4000), "text of 64 KiB: it raised"),
        (refuses(lambda intent: not intent.text.isascii()), "text in several scripts: it raised"),
        (refuses(lambda intent: intent.fire.cause == "inbox"), "a mail's run: it raised"),
        (
            refuses(lambda intent: intent.slug != "example"),
            "automation [1-3] of 3 at once: it raised",
        ),
    ],
)
async def test_what_a_deliverer_does_wrong_is_explained(
    answer: Callable[[DeliveryIntent], Any], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=f"^check_deliverer, .*{complaint}"):
        await check_deliverer(lambda: FunctionDeliverer(answer))


# ---- check_mail_source


class Mailbox:
    """Mail by arrival; a mark is a count, under some letters nobody but the source reads."""

    def __init__(self, *, size: int = 2, held: int = 3) -> None:
        self.size = size
        self.subjects = [f"older {number}" for number in range(held)]

    async def send(self, subject: str) -> None:
        self.subjects.append(subject)

    def message(self, number: int) -> MailMessage:
        headers = (("From", "a@example.com"), ("SUBJECT", f" {self.subjects[number]}\r\n"))
        return MailMessage(id=f"<{number}@x>", headers=headers)

    def batch(self, begin: int) -> MailBatch:
        end = min(begin + self.size, len(self.subjects))
        messages = tuple(self.message(number) for number in range(begin, end))
        return MailBatch(messages=messages, mark=self.mark(end))

    def mark(self, count: int) -> str:
        return base64.b64encode(str(count).encode()).decode()

    def count(self, mark: str) -> int:
        return int(base64.b64decode(mark))

    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        await anyio.to_thread.run_sync(int)
        if after is None:
            return MailBatch(messages=(), mark=self.mark(len(self.subjects)))
        return self.batch(self.count(after))


async def check(box: Mailbox, *, send: bool = True) -> None:
    await check_mail_source(lambda: box, send=box.send if send else None)


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_a_mail_source_that_keeps_the_contract_passes(size: int) -> None:
    await check(Mailbox(size=size))


@pytest.mark.anyio
async def test_a_mail_source_is_checked_without_sending_too() -> None:
    await check(Mailbox(), send=False)


@pytest.mark.anyio
async def test_mail_that_the_check_did_not_send_is_passed_over() -> None:
    class Shared(Mailbox):
        async def send(self, subject: str) -> None:
            await super().send("from somebody else")
            await super().send(subject)

        def message(self, number: int) -> MailMessage:
            message = super().message(number)
            return (
                MailMessage(id=message.id, headers=message.headers[:1]) if number == 3 else message
            )

    await check(Shared())


class FromTheStart(Mailbox):
    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        return self.batch(0 if after is None else self.count(after))


class Forgetting(Mailbox):
    """Hands each message out once, whatever the mark."""

    handed = 0

    def batch(self, begin: int) -> MailBatch:
        batch = super().batch(max(begin, self.handed))
        self.handed = self.count(batch.mark)
        return batch


class NewestFirst(Mailbox):
    def batch(self, begin: int) -> MailBatch:
        batch = super().batch(begin)
        return MailBatch(messages=batch.messages[::-1], mark=batch.mark)


class Skipping(Mailbox):
    """The mark covers more than was returned."""

    def batch(self, begin: int) -> MailBatch:
        batch = super().batch(begin)
        return MailBatch(messages=batch.messages[:1], mark=batch.mark)


class Overlapping(Mailbox):
    """The mark covers less than was returned."""

    def batch(self, begin: int) -> MailBatch:
        batch = super().batch(begin)
        return MailBatch(messages=batch.messages, mark=self.mark(self.count(batch.mark) - 1))


class Endless(Mailbox):
    def batch(self, begin: int) -> MailBatch:
        message = MailMessage(id=f"<{begin}@x>", headers=())
        return MailBatch(messages=(message,), mark=self.mark(begin + 1))


class Wavering(Mailbox):
    """Gives a message other headers each time."""

    def message(self, number: int) -> MailMessage:
        message = super().message(number)
        return MailMessage(id=message.id, headers=(*message.headers, ("X-Read", str(uuid4()))))


class Says(Mailbox):
    """A first poll like any other; what `said` makes of it afterwards."""

    said: Any = None

    def batch(self, begin: int) -> MailBatch:
        return self.said  # type: ignore[no-any-return]


def says(said: object) -> Mailbox:
    box = Says()
    box.said = said
    return box


def message(**changes: Any) -> MailBatch:
    fields: dict[str, Any] = {"id": "<1@x>", "headers": (("Subject", "x"),)} | changes
    return MailBatch(messages=(MailMessage(**fields),), mark="m")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "box, complaint",
    [
        (FromTheStart(), "without a mark: 2 messages came; .* only the present mark"),
        (Forgetting(), "a second poll from the same mark: .* the same messages"),
        (NewestFirst(size=3), "following the marks: .* oldest first"),
        (Skipping(size=3), "following the marks: of the messages sent, .* these came"),
        (Overlapping(), "following the marks: '<[0-9]@x>' came twice"),
        (Endless(), "messages still came at poll 1001"),
        (says(None), "a poll from a mark: poll returned None"),
        (says(MailBatch(messages=(), mark=4)), "the mark is 4"),  # type: ignore[arg-type]
        (says(MailBatch(messages=("x",), mark="m")), "a message is 'x'"),  # type: ignore[arg-type]
        (says(message(id="")), "the id of a message is ''"),
        (says(message(headers=(("Subject",),))), "a header of '<1@x>' is \\('Subject',\\)"),
        (says(message(headers=("ab",))), "a header of '<1@x>' is 'ab'"),
        (says(MailBatch(messages=message().messages * 2, mark="m")), "a message comes once"),
        (says(MailBatch(messages=(), mark="m")), "these came: \\[\\]"),
        (says(MailBatch(messages=(), mark="")), "the mark is ''"),
        (
            says(MailBatch(messages=message().messages, mark=Mailbox().mark(3))),
            "messages came with the mark that was asked with",
        ),
        (says(MailBatch(messages=(), mark="m", restarted=1)), "restarted is 1"),  # type: ignore[arg-type]
        (says(message(headers=(("Subject", "\ud800"),))), "cannot be written as UTF-8"),
        (says(message(thread_id=4)), "the thread_id of '<1@x>' is 4"),
        (says(message(dmarc="none")), "dmarc of '<1@x>' is 'none'"),
        (Wavering(), "came as MailMessage.*, each time"),
    ],
)
async def test_what_a_mail_source_does_wrong_is_explained(box: Mailbox, complaint: str) -> None:
    with pytest.raises(AssertionError, match=f"^check_mail_source, .*{complaint}"):
        await check(box)


@pytest.mark.anyio
async def test_an_instance_in_place_of_its_factory_is_explained() -> None:
    """The checks need more than one of a kind, and say what to give them."""
    given: Any = FunctionAgent(lambda turn, seen: Reply(text="hi"))
    with pytest.raises(TypeError, match=r"check_agent takes what makes an agent.*`lambda: MyOwn"):
        await check_agent(given)
    channel: Any = RecordingDeliverer()
    with pytest.raises(TypeError, match="check_deliverer takes what makes a deliverer"):
        await check_deliverer(channel)
