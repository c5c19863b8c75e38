"""An inbox between two polls: what is remembered of it, and what a batch of mail comes to.

Theory. A `Standing` is all that is remembered of one inbox, as plain JSON in one mark of the store.
Its own `mark` is the source's and moves only over mail that is done with: in the transaction that
finishes the run which succeeded over a `Batch`, that gives it up, or that reports a batch of drops.
Whatever is killed when, the next poll begins at mail that nobody has dealt with.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Self

import attrs

from drumbeat.core.model import InboxTrigger, MailBatch, MailMessage, RunState
from drumbeat.core.senders import MailDecision

__all__ = [
    "Batch",
    "Standing",
    "Unreadable",
    "batch_fault",
    "inbox_key",
    "inbox_prefix",
    "message_digest",
    "message_lines",
    "shortened",
    "trigger_payload",
]

HANDLED: Final = 1000
"""So many messages are known again after their mailbox was numbered anew."""
PARKED: Final = 20
"""So many parked messages are listed, the latest of them."""
LONGEST_MARK: Final = 4096
_LISTED: Final = 20
_LONGEST_TEXT: Final = 1000
_VERSION: Final = 1
_SAME: Final = ("message-id", "from", "date")


def inbox_prefix(slug: str) -> str:
    """What the marks of all inboxes that `slug` has had begin with."""
    return f"inbox:{slug}:"


def inbox_key(slug: str, trigger: InboxTrigger) -> str:
    """The mark of one inbox: another system or address is another inbox, and begins anew."""
    return f"{inbox_prefix(slug)}{trigger.system}:{trigger.address.lower()}"


@attrs.frozen(kw_only=True)
class Batch:
    """Mail that a fire is out for: the source's `mark` behind it, and digests of its messages.

    `last` is how the last run over it ended, "" while there was none.
    """

    fire: str
    mark: str
    handled: tuple[str, ...] = ()
    last: str = ""


@attrs.frozen(kw_only=True)
class Unreadable:
    """What is kept of an inbox, but cannot be understood: it has begun, and nobody knows how far.

    To begin it anew would pass over the mail behind its mark.
    """

    reason: str


@attrs.frozen(kw_only=True)
class Standing:
    """What is remembered of an inbox.

    `handled` are digests of the latest messages that `mark` covers. `told` are those of dropped
    messages behind it for which there is an event. `parked` is a line for each of the latest
    messages that were given up.
    """

    mark: str
    handled: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    parked: tuple[str, ...] = ()
    batch: Batch | None = None

    def past(self, mark: str, handled: Sequence[str]) -> Self:
        """The same once everything up to `mark` is done with."""
        return attrs.evolve(
            self, mark=mark, handled=(*self.handled, *handled)[-HANDLED:], told=(), batch=None
        )

    def past_batch(self) -> Self:
        """The same once its batch is done with."""
        assert self.batch is not None, "there is no batch"
        return self.past(self.batch.mark, self.batch.handled)

    def put_back(self) -> Self:
        """The same with its batch still to come, because no fire is out for it any more."""
        return attrs.evolve(self, batch=None)

    def after_run(self, state: RunState, *, again: bool, lines: Sequence[str] = ()) -> Self:
        """The same after a run over its batch.

        Args:
            state: how the run ended.
            again: whether there is to be another run over the batch.
            lines: the batch's messages, in case they are parked now.
        """
        assert self.batch is not None, "there is no batch"
        if again:
            return attrs.evolve(self, batch=attrs.evolve(self.batch, last=state))
        moved = self.past_batch()
        if state == "succeeded":
            return moved
        return attrs.evolve(moved, parked=(*self.parked, *lines)[-PARKED:])

    def to_json(self) -> dict[str, Any]:
        """Return a plain mapping that `from_json` reads, its version included."""
        return {"version": _VERSION, **attrs.asdict(self)}

    @classmethod
    def from_json(cls, value: object) -> Self | Unreadable:
        """Read what `to_json` gave, after its way through JSON."""
        if not isinstance(value, Mapping):
            return Unreadable(reason="what is kept of it is damaged")
        if value.get("version") != _VERSION:
            form = shortened(repr(value.get("version")), 20)
            return Unreadable(
                reason=f"what is kept of it has the form {form}, and this drumbeat knows the form "
                f"{_VERSION}"
            )
        try:
            batch = value["batch"]
            return cls(
                mark=_text(value["mark"]),
                handled=_texts(value["handled"]),
                told=_texts(value["told"]),
                parked=_texts(value["parked"]),
                batch=None
                if batch is None
                else Batch(
                    fire=_text(batch["fire"]),
                    mark=_text(batch["mark"]),
                    handled=_texts(batch["handled"]),
                    last=str(batch["last"]),
                ),
            )
        except (KeyError, TypeError):
            return Unreadable(reason="what is kept of it is damaged")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise TypeError
    return tuple(value)


# ---- what a poll brought


def batch_fault(batch: object, *, after: str | None) -> str:
    """Say in what a poll's answer breaks the contract of `MailSource`; "" when it keeps it.

    Only what the source itself is answerable for counts, never what somebody wrote into a mail.
    """
    if not isinstance(batch, MailBatch):
        return f"poll returned {type(batch).__name__} and no MailBatch"
    mark: object = batch.mark
    if not isinstance(mark, str) or not mark:
        return f"the mark of the batch is {_named(mark)} and no text"
    if len(mark) > LONGEST_MARK:
        return f"the mark of the batch has {len(mark)} characters, over {LONGEST_MARK}"
    if not _is_storable(mark):
        return "the mark of the batch holds what cannot be stored as UTF-8"
    messages: object = batch.messages
    if not isinstance(messages, tuple | list):
        return f"the messages of the batch are {_named(messages)} and no tuple"
    for message in messages:
        fault = _message_fault(message)
        if fault:
            return fault
    if messages and mark == after:
        return "the batch holds messages, and its mark is the one that was asked with"
    return ""


def _message_fault(message: object) -> str:
    if not isinstance(message, MailMessage):
        return f"the batch holds {_named(message)} and no MailMessage"
    given: tuple[object, ...] = (message.id, message.thread_id)
    if not isinstance(given[0], str) or not message.id:
        return f"the id of a message is {_named(given[0])} and no text"
    if given[1] is not None and not isinstance(given[1], str):
        return f"the thread_id of a message is {_named(given[1])} and no text"
    headers: object = message.headers
    if not isinstance(headers, tuple | list) or not all(_is_header(each) for each in headers):
        return "the headers of a message are no pairs of texts"
    return ""


def _is_header(header: object) -> bool:
    return (
        isinstance(header, tuple | list)
        and len(header) == 2
        and all(isinstance(part, str) for part in header)
    )


def _named(value: object) -> str:
    return "blank" if value == "" else type(value).__name__


def _is_storable(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def message_digest(message: MailMessage) -> str:
    """What a message is known by after its mailbox was numbered anew.

    Drawn from its Message-ID, sender and date, so that whoever reuses somebody's Message-ID under
    another sender hides nothing.
    """
    found: dict[str, list[str]] = {name: [] for name in _SAME}
    for name, value in message.headers:
        key = name.strip().lower()
        if key in found:
            found[key].append(" ".join(value.split()))
    whole = json.dumps(found, sort_keys=True)
    return sha256(whole.encode()).hexdigest()[:20]


def trigger_payload(
    trigger: InboxTrigger, passing: Sequence[tuple[MailMessage, MailDecision]]
) -> bytes:
    """`INBOX_TRIGGER.json`: which inbox it is, and who wrote each message that passed."""
    value = {
        "system": trigger.system,
        "address": trigger.address,
        "messages": [
            {
                "id": message.id,
                "thread_id": message.thread_id,
                "from": shortened(decision.sender, _LONGEST_TEXT),
                "subject": shortened(decision.subject, _LONGEST_TEXT),
            }
            for message, decision in passing
        ],
    }
    # A lone surrogate becomes `\udXXX`, which is how JSON writes it.
    return json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace")


def message_lines(payload: bytes | None) -> list[str]:
    """The messages of an `INBOX_TRIGGER.json`, a line for each, for people; 20 of them at most."""
    try:
        messages = json.loads(payload or b"")["messages"]
        lines = [
            _line(f"{each['from']}: {each['subject'] or '(no subject)'}", each["id"])
            for each in messages
        ]
    except (ValueError, KeyError, TypeError):
        return []
    more = len(lines) - _LISTED
    return lines if more <= 0 else [*lines[:_LISTED], f"and {more} more"]


def _line(text: str, id: str) -> str:
    return f"{shortened(' '.join(text.split()), 200)} (id {shortened(id, 200)})"


def shortened(text: str, limit: int) -> str:
    """The text, cut to `limit` characters, the last of them a mark that it was."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
