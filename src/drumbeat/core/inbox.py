"""An inbox between two polls: what is remembered of it, and what a batch of mail comes to.

Theory. A `Standing` is all that is remembered of one inbox, as plain JSON in one mark of the store.
Its own `mark` is the source's and moves only over mail that is done with: in the transaction that
finishes the run which succeeded over a `Batch`, that gives it up, or that reports a batch of drops.
Whatever is killed when, the next poll begins at mail that nobody has dealt with.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, Self

import attrs

from drumbeat.core.model import InboxTrigger, MailBatch, MailMessage, RunState
from drumbeat.core.senders import MailDecision

__all__ = [
    "Batch",
    "Standing",
    "Unreadable",
    "inbox_key",
    "inbox_prefix",
    "message_digest",
    "message_lines",
    "shortened",
    "sound_batch",
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
_DMARC: Final[Mapping[str, Literal["pass", "fail"]]] = {"pass": "pass", "fail": "fail"}
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


def sound_batch(batch: object, *, after: str | None) -> MailBatch | str:
    """A poll's answer made of plain values, or in what it breaks the contract of `MailSource`.

    Only what the source itself is answerable for counts, never what somebody wrote into a mail. Its
    texts may be of classes of its own, as those of `email` are: what is returned has none of them,
    so that no code of the source runs behind this. One that raises here breaks the contract.

    Args:
        batch: what `poll` returned.
        after: the mark that it was asked with.
    """
    try:
        return _plain_batch(batch, after)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  a source's own value may break in any of its parts
        return f"the batch cannot be looked into: {type(error).__name__}"


def _plain_batch(batch: object, after: str | None) -> MailBatch | str:
    if not isinstance(batch, MailBatch):
        return f"poll returned {type(batch).__name__} and no MailBatch"
    given: object = batch.mark
    mark = _plain(given)
    if not mark:
        return f"the mark of the batch is {_named(given)} and no text"
    if len(mark) > LONGEST_MARK:
        return f"the mark of the batch has {len(mark)} characters, over {LONGEST_MARK}"
    if not _is_storable(mark):
        return "the mark of the batch holds what cannot be stored as UTF-8"
    messages: object = batch.messages
    if not isinstance(messages, tuple | list):
        return f"the messages of the batch are {_named(messages)} and no tuple"
    plain: list[MailMessage] = []
    for message in messages:
        found = _plain_message(message)
        if isinstance(found, str):
            return found
        plain.append(found)
    if plain and mark == after:
        return "the batch holds messages, and its mark is the one that was asked with"
    return MailBatch(messages=tuple(plain), mark=mark, restarted=bool(batch.restarted))


def _plain_message(message: object) -> MailMessage | str:
    if not isinstance(message, MailMessage):
        return f"the batch holds {_named(message)} and no MailMessage"
    given: tuple[object, object, object] = (message.id, message.thread_id, message.dmarc)
    name, thread_id, dmarc = map(_plain, given)
    if not name:
        return f"the id of a message is {_named(given[0])} and no text"
    if given[1] is not None and thread_id is None:
        return f"the thread_id of a message is {_named(given[1])} and no text"
    listed: object = message.headers
    headers: list[tuple[str, str]] = []
    for header in listed if isinstance(listed, tuple | list) else [None]:
        pair = list(map(_plain, header)) if isinstance(header, tuple | list) else []
        if len(pair) != 2 or pair[0] is None or pair[1] is None:
            return "the headers of a message are no pairs of texts"
        headers.append((pair[0], pair[1]))
    return MailMessage(
        id=name,
        headers=tuple(headers),
        thread_id=thread_id,
        dmarc=_DMARC.get(dmarc or ""),
    )


def _plain(value: object) -> str | None:
    """A text without the class that it may be of; None for what is no text."""
    return str.__str__(value) if isinstance(value, str) else None


def _named(value: object) -> str:
    return "blank" if _plain(value) == "" else type(value).__name__


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
