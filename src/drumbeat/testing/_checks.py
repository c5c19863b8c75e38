"""Conformance checks: what the engine counts on from the parts that a host brings.

Each is a plain async function that raises `AssertionError` with what was done, what came of it and
what the contract says. They use real time and the real part, which a fake clock cannot hurry.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import attrs

from drumbeat.core.model import (
    DeliveryIntent,
    Fire,
    MailBatch,
    MailMessage,
    Receipt,
    Reply,
    Turn,
    Usage,
)
from drumbeat.errors import ConversationNotFound
from drumbeat.protocols import Agent, Deliverer, MailSource
from drumbeat.testing._contract import Contract
from drumbeat.testing._examples import example_intent, example_turn

__all__ = ["check_agent", "check_deliverer", "check_mail_source"]

_TURN_LIMIT = timedelta(minutes=5)
_CALL_LIMIT = timedelta(seconds=60)
_CANCEL_AFTER = (0.0, 0.005, 0.1)
_LONGEST_TEXT = 64 * 1024
_MANY_POLLS = 1000


async def check_agent(factory: Callable[[], Agent]) -> None:
    """Prove that an agent keeps the contract of `drumbeat.Agent` (spec, section 12).

    It takes about fifteen short turns, in new conversations and in a temporary folder:

    - a turn is answered with a `Reply` whose text is not empty, within `turn.timeout`;
    - a conversation is resumed by its `session_id` and the last `handle`, and another instance of
      the agent either resumes it too or raises `ConversationNotFound`;
    - a turn without an automation, as `Engine.ask` makes it, and a repeated attempt are answered;
    - turns of different conversations are taken concurrently;
    - a cancelled turn ends within five seconds, passes the cancellation on, and leaves both its
      conversation and the agent usable;
    - no task is left behind.

        >>> anyio.run(check_agent, lambda: ScriptedAgent(default="hello"))

    An agent that never ends when it is cancelled makes the check wait as long as it does. Nothing
    else should start tasks in the same loop meanwhile.

    Args:
        factory: makes an agent; called more than once.

    Raises:
        AssertionError: the contract is broken; the message says how.
        TypeError: an agent was given and not what makes one.
    """
    _check_factory("check_agent", factory, "an agent")
    check = Contract("check_agent")
    async with check.no_task_left(), anyio.TemporaryDirectory(prefix="drumbeat-") as name:
        folder = Path(name)
        await anyio.Path(folder / "memory").mkdir()

        def turn(**changes: Any) -> Turn:
            given = {"cwd": folder, "memory_dir": folder / "memory", "timeout": _TURN_LIMIT}
            return example_turn(**(given | changes))

        agent = factory()
        first = turn()
        reply = await _answer(check, agent, first, "the first turn of a conversation")

        later = turn(session_id=first.session_id, is_new=False, handle=reply.handle)
        reply = await _answer(check, agent, later, "a later turn of the same conversation")

        again = turn(session_id=first.session_id, is_new=False, handle=reply.handle)
        await _resume(
            check, factory(), again, "a conversation resumed by another instance of the agent"
        )

        free = turn(slug="_ask", automation=None, run_id=None, origin="ask", step_id=None)
        await _answer(check, agent, free, "a turn that belongs to no automation")

        retried = turn(turn_id=first.turn_id, attempt=2)
        await _answer(check, agent, retried, "a second attempt, in a fresh conversation")

        async with check.together() as start:
            for number in range(1, 4):
                what = f"conversation {number} of 3 at once"
                start(_answer, check, agent, turn(), what)

        for after in _CANCEL_AFTER:
            what = f"a turn cancelled after {after:g} s"
            cancelled = turn()
            await check.cancelled(agent.take_turn, cancelled, after, what)
            resumed = turn(session_id=cancelled.session_id, is_new=False)
            await _resume(check, agent, resumed, f"the conversation of {what}")
        await _answer(check, agent, turn(), "a new conversation after cancelled turns")


async def check_deliverer(factory: Callable[[], Deliverer]) -> None:
    """Prove that a deliverer keeps the contract of `drumbeat.Deliverer` (spec, section 11).

    It really delivers about twenty messages, so give it a channel nobody reads:

    - every cause of a fire, a run without a conversation, text in any script and of 64 KiB are
      delivered within a minute, and the answer is None or a `Receipt`;
    - the same intent comes a second time, with a higher `attempt`, and is not refused;
    - intents of different automations are delivered concurrently;
    - a cancelled delivery ends within five seconds, passes the cancellation on, and can be
      repeated;
    - no task is left behind.

        >>> anyio.run(check_deliverer, RecordingDeliverer)

    Args:
        factory: makes a deliverer; called more than once.

    Raises:
        AssertionError: the contract is broken; the message says how.
        TypeError: a deliverer was given and not what makes one.
    """
    _check_factory("check_deliverer", factory, "a deliverer")
    check = Contract("check_deliverer")
    async with check.no_task_left():
        deliverer = factory()
        for what, intent in _intents():
            await _deliver(check, deliverer, intent, what)

        intent = example_intent()
        await _deliver(check, deliverer, intent, "an intent")
        repeat = attrs.evolve(intent, attempt=2)
        await _deliver(check, deliverer, repeat, "the same intent, attempt 2")
        repeat = attrs.evolve(intent, attempt=3)
        await _deliver(check, factory(), repeat, "the same intent by another instance")

        async with check.together() as start:
            for number in range(1, 4):
                what = f"automation {number} of 3 at once"
                start(_deliver, check, deliverer, example_intent(slug=f"example-{number}"), what)

        for after in _CANCEL_AFTER:
            what = f"a delivery cancelled after {after:g} s"
            intent = example_intent()
            await check.cancelled(deliverer.deliver, intent, after, what)
            await _deliver(check, deliverer, attrs.evolve(intent, attempt=2), f"{what}, repeated")


def _check_factory(check: str, factory: object, noun: str) -> None:
    if not callable(factory):
        msg = (
            f"{check} takes what makes {noun}, since it needs several: a class, or a function "
            f"such as `lambda: MyOwn()`; it was given an instance of {type(factory).__name__}"
        )
        raise TypeError(msg)


async def check_mail_source(
    factory: Callable[[], MailSource],
    *,
    address: str = "jobs@example.com",
    send: Callable[[str], Awaitable[None]] | None = None,
) -> None:
    """Prove that a mail source keeps the contract of `drumbeat.MailSource` (spec, section 13.2).

    - the first poll, without a mark, brings no message and a mark;
    - polling again from one mark brings the same messages, from another instance too: a batch whose
      run failed is asked for again;
    - following the marks comes to an end, and brings no message twice;
    - with `send`: mail that arrived after the mark comes, all of it, oldest first;
    - headers are pairs of name and text that can be stored as UTF-8, ids are not empty;
    - a cancelled poll ends within five seconds, and loses nothing;
    - no task is left behind.

    The mailbox must be at rest but for what `send` puts there.

    Args:
        factory: makes a source that reads the mailbox; called more than once.
        address: which address to poll.
        send: puts one message with this subject into the mailbox, for `address`, and returns once
            a poll can see it.

    Raises:
        AssertionError: the contract is broken; the message says how.
    """
    check = Contract("check_mail_source")
    async with check.no_task_left():
        source = factory()
        batch = await _poll(check, source, address, None, "the first poll, without a mark")
        if batch.messages:
            check.fail(
                "the first poll, without a mark",
                f"{len(batch.messages)} messages came",
                "after None there are no messages, only the present mark",
            )
        start = batch.mark
        subjects = [f"drumbeat check {number} {uuid4()}" for number in (1, 2, 3)] if send else []
        if send is not None:
            for subject in subjects:
                await send(subject)

        once = await _poll(check, source, address, start, "a poll from a mark")
        for other, what in (
            (source, "a second poll from the same mark"),
            (factory(), "a poll from the same mark by another instance"),
        ):
            twice = await _poll(check, other, address, start, what)
            _compare(check, once, twice, what)
        for after in _CANCEL_AFTER:
            what = f"a poll cancelled after {after:g} s"

            async def poll(mark: str) -> object:
                return await source.poll(address, mark)

            await check.cancelled(poll, start, after, what)
            twice = await _poll(check, source, address, start, f"the poll after {what}")
            _compare(check, once, twice, f"the poll after {what}")

        came = await _follow(check, source, address, start)
        found = [subject for subject in map(_subject, came) if subject in subjects]
        if found != subjects:
            check.fail(
                "following the marks",
                f"of the messages sent, {subjects!r}, these came: {found!r}",
                "all that came after the mark is returned, oldest first",
            )


# ---- one call each


async def _answer(check: Contract, agent: Agent, turn: Turn, what: str) -> Reply:
    reply = await check.call(agent.take_turn, turn, _TURN_LIMIT, what)
    if not isinstance(reply, Reply):
        check.fail(what, f"take_turn returned {reply!r}", "it returns a Reply")
    text: object = reply.text
    if not isinstance(text, str) or not text.strip():
        check.fail(
            what,
            f"the text of the reply is {text!r}",
            "an empty reply fails a run (`final-reply-empty`); raise AgentError if there is none",
        )
    _is_storable(check, what, text)
    usage: object = reply.usage
    if usage is not None and not isinstance(usage, Usage):
        check.fail(what, f"usage is {usage!r}", "it is None or a Usage")
    for name in ("provider", "model", "handle"):
        value = getattr(reply, name)
        if value is not None and not isinstance(value, str):
            check.fail(what, f"{name} is {value!r}", "it is None or text")
    return reply


async def _resume(check: Contract, agent: Agent, turn: Turn, what: str) -> None:
    try:
        await _answer(check, agent, turn, what)
    except AssertionError as error:
        if not isinstance(error.__cause__, ConversationNotFound):
            raise


async def _deliver(
    check: Contract, deliverer: Deliverer, intent: DeliveryIntent, what: str
) -> None:
    receipt = await check.call(deliverer.deliver, intent, _CALL_LIMIT, what)
    if receipt is None:
        return
    if not isinstance(receipt, Receipt):
        check.fail(what, f"deliver returned {receipt!r}", "it returns None or a Receipt")
    for name in ("id", "url"):
        value = getattr(receipt, name)
        if value is not None and not (isinstance(value, str) and value):
            check.fail(what, f"the receipt's {name} is {value!r}", "it is None or text")


async def _poll(
    check: Contract, source: MailSource, address: str, after: str | None, what: str
) -> MailBatch:
    async def poll(mark: str | None) -> object:
        return await source.poll(address, mark)

    batch = await check.call(poll, after, _CALL_LIMIT, what)
    if not isinstance(batch, MailBatch):
        check.fail(what, f"poll returned {batch!r}", "it returns a MailBatch")
    mark: object = batch.mark
    if not isinstance(mark, str) or not mark:
        check.fail(what, f"the mark is {mark!r}", "it is text, for the source alone to understand")
    if batch.messages and mark == after:
        check.fail(
            what, "messages came with the mark that was asked with", "the mark covers what came"
        )
    restarted: object = batch.restarted
    if not isinstance(restarted, bool):
        check.fail(what, f"restarted is {restarted!r}", "it is True or False")
    for message in batch.messages:
        _is_message(check, what, message)
    ids = [message.id for message in batch.messages]
    if len(set(ids)) < len(ids):
        check.fail(what, f"the ids are {ids!r}", "a message comes once")
    return batch


async def _follow(
    check: Contract, source: MailSource, address: str, start: str
) -> list[MailMessage]:
    what = "following the marks"
    came: dict[str, MailMessage] = {}
    mark = start
    polls = 0
    while True:
        polls += 1
        if polls > _MANY_POLLS:
            check.fail(what, f"messages still came at poll {polls}", "following the marks ends")
        batch = await _poll(check, source, address, mark, what)
        if not batch.messages:
            return list(came.values())
        for message in batch.messages:
            if message.id in came:
                check.fail(what, f"{message.id!r} came twice", "the mark covers what was returned")
            came[message.id] = message
        mark = batch.mark


# ---- parts of the checks


def _intents() -> list[tuple[str, DeliveryIntent]]:
    def fire(**changes: Any) -> Fire:
        return attrs.evolve(example_intent().fire, **changes)

    kinds: dict[str, dict[str, Any]] = {
        "the intent of a manual run": {"fire": fire(cause="manual")},
        "the intent of a webhook's run": {
            "fire": fire(cause="webhook", slot="delivery-1", payload=b'{"action": "opened"}')
        },
        "the intent of a mail's run": {"fire": fire(cause="inbox", payload=b'{"messages": []}')},
        "the intent of a follow-up": {"fire": fire(cause="follow-up", depth=1, prompt="Look.")},
        "the intent of a failed run, with no conversation": {
            "session_id": None,
            "gate": "run-failed",
            "reason": "requires-unmet",
        },
        "text in several scripts": {"text": "Füße ☕ 日本語 עברית <b>&amp;</b> `code`\n\n- *list*"},
        "text of 64 KiB": {"text": "a long line\n" * (_LONGEST_TEXT // 12)},
    }
    return [(what, example_intent(**changes)) for what, changes in kinds.items()]


def _is_storable(check: Contract, what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        check.fail(
            what, f"a text cannot be written as UTF-8 ({error})", "texts are stored as UTF-8"
        )


def _is_message(check: Contract, what: str, message: object) -> None:
    if not isinstance(message, MailMessage):
        check.fail(what, f"a message is {message!r}", "it is a MailMessage")
    name: object = message.id
    if not isinstance(name, str) or not name:
        check.fail(what, f"the id of a message is {name!r}", "it is text that is not empty")
    headers: tuple[object, ...] = tuple(message.headers)
    for header in headers:
        if not (
            isinstance(header, tuple)
            and len(header) == 2
            and all(isinstance(part, str) for part in header)
        ):
            check.fail(what, f"a header of {name!r} is {header!r}", "it is a pair of name and text")
        for part in header:
            _is_storable(check, what, part)
    thread: object = message.thread_id
    if thread is not None and not isinstance(thread, str):
        check.fail(what, f"the thread_id of {name!r} is {thread!r}", "it is None or text")
    dmarc: object = message.dmarc
    if dmarc not in (None, "pass", "fail"):
        check.fail(what, f"dmarc of {name!r} is {dmarc!r}", "it is None, 'pass' or 'fail'")


def _subject(message: MailMessage) -> str | None:
    for name, value in message.headers:
        if name.lower() == "subject":
            return value.strip()
    return None


def _compare(check: Contract, once: MailBatch, twice: MailBatch, what: str) -> None:
    before = [message.id for message in once.messages]
    after = [message.id for message in twice.messages]
    if before != after:
        check.fail(
            what,
            f"{after!r} came, and {before!r} at first",
            "a mark brings the same messages until the engine passes a later one",
        )
    for first, second in zip(once.messages, twice.messages, strict=True):
        if first != second:
            check.fail(
                what,
                f"{first.id!r} came as {second!r}, and as {first!r} at first",
                "a message comes as its server holds it, each time",
            )
