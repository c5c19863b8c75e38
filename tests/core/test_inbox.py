"""What is remembered of an inbox between two polls, and what a batch of mail comes to."""

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.inbox import (
    HANDLED,
    PARKED,
    Batch,
    Standing,
    Unreadable,
    inbox_key,
    inbox_prefix,
    message_digest,
    message_lines,
    shortened,
    sound_batch,
    trigger_payload,
)
from drumbeat.core.model import InboxTrigger, MailBatch, MailMessage
from drumbeat.core.senders import MailDecision

DESK = InboxTrigger(system="imap", address="Desk@Example.org", allow_from=("@example.com",))
BATCH = Batch(fire="inbox-1", mark="7", handled=("a", "b"))


def message(**changes: Any) -> MailMessage:
    headers = {"Message-ID": "<1@x>", "From": "ann@example.com", "Date": "Mon"} | changes
    return MailMessage(id="m1", headers=tuple(headers.items()))


def test_an_inbox_is_known_by_its_slug_its_system_and_its_address_case_aside() -> None:
    assert inbox_key("desk", DESK) == "inbox:desk:imap:desk@example.org"
    assert inbox_key("desk", DESK).startswith(inbox_prefix("desk"))
    assert not inbox_key("desk-2", DESK).startswith(inbox_prefix("desk"))


@pytest.mark.parametrize(
    "standing",
    [
        Standing(mark="1"),
        Standing(mark="1", handled=("a",), told=("b",), parked=("c",), batch=BATCH),
    ],
)
def test_a_standing_survives_its_way_through_json(standing: Standing) -> None:
    assert Standing.from_json(json.loads(json.dumps(standing.to_json()))) == standing


@pytest.mark.parametrize(
    "value",
    [
        None,
        "1",
        {},
        Standing(mark="1").to_json() | {"mark": 1},
        Standing(mark="1").to_json() | {"mark": ""},
        Standing(mark="1").to_json() | {"told": "abc"},
        Standing(mark="1").to_json() | {"parked": [1]},
        Standing(mark="1").to_json() | {"version": 2},
        {"version": 1, "mark": "1"},
        Standing(mark="1").to_json() | {"handled": 1},
        Standing(mark="1").to_json() | {"batch": {"handled": [], "what": 1}},
    ],
)
def test_what_is_no_standing_of_this_version_is_unreadable_and_says_why(value: object) -> None:
    read = Standing.from_json(value)
    assert isinstance(read, Unreadable)
    other = isinstance(value, dict) and value.get("version") != 1
    assert ("the form" if other else "damaged") in read.reason


def test_a_batch_that_is_done_with_moves_the_mark_and_is_remembered() -> None:
    standing = Standing(mark="1", handled=("z",), told=("t",), batch=BATCH)
    after = standing.after_run("succeeded", again=False, lines=["Ann: Hello"])
    assert after == Standing(mark="7", handled=("z", "a", "b"))


def test_a_batch_that_is_tried_again_moves_nothing_and_knows_how_it_went() -> None:
    standing = Standing(mark="1", told=("t",), batch=BATCH)
    after = standing.after_run("failed", again=True)
    assert after.batch is not None
    assert (after.mark, after.told, after.batch.last) == ("1", ("t",), "failed")
    assert after.put_back() == Standing(mark="1", told=("t",))


@pytest.mark.parametrize("state", ["failed", "aborted", "interrupted", "cancelled"])
def test_a_batch_that_is_given_up_is_parked_and_the_latest_are_listed(state: Any) -> None:
    lines = [str(number) for number in range(PARKED)]
    standing = Standing(mark="1", parked=("old", *lines[1:]), batch=BATCH)
    after = standing.after_run(state, again=False, lines=["new"])
    assert (after.mark, after.batch) == ("7", None)
    assert after.parked == (*lines[1:], "new")


def test_only_so_many_messages_are_remembered() -> None:
    standing = Standing(mark="1").past("2", [str(number) for number in range(HANDLED + 5)])
    assert (len(standing.handled), standing.handled[0]) == (HANDLED, "5")


# ---- what a poll brought


@pytest.mark.parametrize(
    "batch",
    [
        MailBatch(messages=(message(),), mark="2"),
        MailBatch(messages=(), mark="1"),
        MailBatch(messages=(attrs.evolve(message(), dmarc="fail"),), mark="2", restarted=True),
        MailBatch(messages=(attrs.evolve(message(), dmarc="pass", thread_id="t"),), mark="2"),
    ],
)
def test_a_sound_batch_is_as_it_came(batch: MailBatch) -> None:
    assert sound_batch(batch, after="1") == batch
    assert sound_batch(batch, after=None) == batch


class Rude(str):
    """A text that breaks whoever uses it as one."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> Any:
        raise SystemExit

    __eq__ = __len__ = __hash__ = __iter__ = __str__ = __contains__ = __getitem__ = _refuse
    strip = lower = split = casefold = encode = join = translate = _refuse


def test_texts_of_a_class_of_the_sources_own_become_plain() -> None:
    """Such as those of `email`; nothing that a class does with them runs."""
    rude = MailMessage(
        id=Rude("m1"),
        headers=[[Rude("From"), Rude("ann@example.com")]],  # type: ignore[arg-type]
        thread_id=Rude("t"),
        dmarc=Rude("fail"),  # type: ignore[arg-type]
    )
    plain = MailMessage(
        id="m1", headers=(("From", "ann@example.com"),), thread_id="t", dmarc="fail"
    )
    found = sound_batch(MailBatch(messages=[rude], mark=Rude("2")), after="1")  # type: ignore[arg-type]
    assert found == MailBatch(messages=(plain,), mark="2")
    assert isinstance(found, MailBatch)
    (kept,) = found.messages
    texts = [found.mark, kept.id, kept.thread_id, kept.dmarc, *kept.headers[0]]
    assert [type(text) for text in texts] == [str] * 6
    assert "id of a message is blank" in sound_batch(  # type: ignore[operator]
        MailBatch(messages=(attrs.evolve(rude, id=Rude("")),), mark="2"), after="1"
    )


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit])
def test_a_batch_that_cannot_be_looked_into_breaks_the_contract(error: Any) -> None:
    class Broken(list[Any]):
        def __iter__(self) -> Any:
            raise error

    batch = MailBatch(messages=Broken(), mark="2")  # type: ignore[arg-type]
    told = f"the batch cannot be looked into: {error.__name__}"
    assert sound_batch(batch, after="1") == told


def test_ctrl_c_is_nobodys_fault() -> None:
    class Broken(list[Any]):
        def __iter__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sound_batch(MailBatch(messages=Broken(), mark="2"), after="1")  # type: ignore[arg-type]


def broken(**changes: Any) -> MailMessage:
    given: dict[str, Any] = {"id": "m1", "headers": (("From", "ann@example.com"),)}
    return MailMessage(**(given | changes))


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        (None, "NoneType and no MailBatch"),
        (MailBatch(messages=(), mark=""), "blank and no text"),
        (MailBatch(messages=(), mark=7), "int and no text"),  # type: ignore[arg-type]
        (MailBatch(messages=(), mark="m" * 4097), "4097 characters"),
        (MailBatch(messages=(), mark="\ud800"), "UTF-8"),
        (MailBatch(messages="mail", mark="2"), "str and no tuple"),  # type: ignore[arg-type]
        (MailBatch(messages=("mail",), mark="2"), "str and no MailMessage"),  # type: ignore[arg-type]
        (MailBatch(messages=(broken(id=""),), mark="2"), "id of a message is blank"),
        (MailBatch(messages=(broken(id=1),), mark="2"), "id of a message is int"),
        (MailBatch(messages=(broken(thread_id=1),), mark="2"), "thread_id of a message is int"),
        (MailBatch(messages=(broken(headers="x"),), mark="2"), "no pairs"),
        (MailBatch(messages=(broken(headers=("x",)),), mark="2"), "no pairs"),
        (MailBatch(messages=(broken(headers=(("a", "b", "c"),)),), mark="2"), "no pairs"),
        (MailBatch(messages=(broken(headers=(("a", b"b"),)),), mark="2"), "no pairs"),
        (MailBatch(messages=(message(),), mark="1"), "the one that was asked with"),
    ],
)
def test_what_breaks_the_contract_is_named(batch: object, told: str) -> None:
    found = sound_batch(batch, after="1")
    assert isinstance(found, str)
    assert told in found


def test_a_message_is_known_again_by_its_id_its_sender_and_its_date() -> None:
    same = message(**{"Message-ID": " <1@x> ", "Subject": "Other"})
    assert message_digest(same) == message_digest(message())
    assert (
        len(
            {
                message_digest(each)
                for each in (
                    message(),
                    message(**{"Message-ID": "<2@x>"}),
                    message(From="eve@example.net"),
                    message(Date="Tue"),
                )
            }
        )
        == 4
    )


@given(st.text(), st.text())
def test_any_header_has_a_digest(name: str, value: str) -> None:
    assert message_digest(MailMessage(id="1", headers=((name, value), ("From", "\ud800"))))


# ---- what a run is told


def decision(sender: str, subject: str) -> MailDecision:
    return MailDecision(passes=True, code="", reason="", sender=sender, subject=subject)


def test_the_payload_names_the_inbox_and_each_message() -> None:
    passing = [(message(), decision("ann@example.com", "Grüße \ud800" + "x" * 2000))]
    payload = trigger_payload(DESK, passing)
    assert "Grüße".encode() in payload
    value = json.loads(payload)
    (told,) = value.pop("messages")
    assert value == {"system": "imap", "address": "Desk@Example.org"}
    assert (told["id"], told["thread_id"], told["from"]) == ("m1", None, "ann@example.com")
    assert len(told["subject"]) == 1000
    assert told["subject"].startswith("Grüße \ud800x")


def test_messages_are_listed_for_people_a_line_for_each_up_to_a_bound() -> None:
    passing = [(message(), decision("ann@example.com", subject)) for subject in ("a\nb", "")]
    assert message_lines(trigger_payload(DESK, passing)) == [
        "ann@example.com: a b (id m1)",
        "ann@example.com: (no subject) (id m1)",
    ]
    many = message_lines(trigger_payload(DESK, passing * 12))
    assert (len(many), many[-1]) == (21, "and 4 more")


@pytest.mark.parametrize("payload", [None, b"", b"[]", b"{}", b'{"messages": [1]}', b"\xff"])
def test_what_is_no_payload_of_an_inbox_lists_nobody(payload: bytes | None) -> None:
    assert message_lines(payload) == []


def test_a_text_is_cut_visibly() -> None:
    assert (shortened("abc", 3), shortened("abcd", 3)) == ("abc", "ab…")
