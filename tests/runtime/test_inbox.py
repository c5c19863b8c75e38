"""Inboxes: mail that passes makes fires, what is dropped is told once, and no mark is lost."""

import json
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from drumbeat import (
    AgentError,
    Client,
    Engine,
    MailBatch,
    MailError,
    MailMessage,
    Problem,
    RunRecord,
    StoreError,
    Turn,
)
from drumbeat.core.senders import MailDecision, decide_mail
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import ManualClock, ScriptedAgent, ScriptedMailbox, check_mail_source, drive

pytestmark = pytest.mark.anyio

DESK = "desk@example.org"
START = datetime(2026, 3, 2, 12, tzinfo=UTC)
FULL = StoreError(Problem(code="store-full", message="the disk is full", remedy="make room"))
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
POLL = 5 * MINUTE


class Mailbox(ScriptedMailbox):
    """One that can be told to fail."""

    fault: Exception | None = None
    answer: object = None
    slow: tuple[ManualClock, timedelta] | None = None

    def mail(
        self, subject: str, sender: str = "ann@example.com", to: str = DESK, **headers: str
    ) -> None:
        self.send(sender, to, subject, **headers)

    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        batch = await super().poll(address, after)
        if self.slow is not None:
            clock, span = self.slow
            await clock.sleep(span)
        if self.fault is not None:
            raise self.fault
        return batch if self.answer is None else self.answer  # type: ignore[return-value]


def job(host: Any, slug: str = "desk", *, prompt: str = "Answer it.", **keys: str) -> None:
    given = {"inbox": f"imap:{DESK}", "allowFrom": '"@example.com"'} | keys
    lines = "\n".join(f"{key}: {value}" for key, value in given.items())
    host.file(f"jobs/{slug}.md", f"---\n{lines}\n---\n{prompt}\n")


def seen(run: RunRecord) -> list[str]:
    """The subjects that the run was about."""
    assert run.fire.payload is not None
    return [message["subject"] for message in json.loads(run.fire.payload)["messages"]]


@pytest.fixture
def box() -> Mailbox:
    return Mailbox()


class Agent(ScriptedAgent):
    """One that fails for as long as it is told to."""

    def __init__(self) -> None:
        super().__init__(default=self.think)
        self.broken = True

    async def think(self, turn: Turn) -> str | Exception:
        return AgentError("cannot read", code="reader-broken") if self.broken else "done"


async def pass_time(engine: Engine, by: timedelta) -> list[RunRecord]:
    return await drive(engine, until=engine.clock.now() + by)


# ---- mail that passes


async def test_the_first_poll_sets_the_mark_and_later_mail_makes_one_fire_for_each_batch(
    host: Any, box: Mailbox
) -> None:
    job(host)
    box.mail("Old")
    async with host.engine(mail={"imap": box}) as engine:
        assert await pass_time(engine, 2 * POLL) == []
        box.mail("One")
        box.mail("Two")
        (first,) = await pass_time(engine, POLL)
        box.mail("Three")
        (second,) = await pass_time(engine, POLL)
        assert await pass_time(engine, HOUR) == []
        (begun,) = await host.events(engine, "inbox_begun")
        assert engine.clock.now() == START + 4 * POLL + HOUR
    assert begun.data == {"system": "imap", "address": DESK}
    assert (seen(first), seen(second)) == (["One", "Two"], ["Three"])
    assert (first.fire.cause, first.fire.slot, first.state) == ("inbox", "1:3:0", "succeeded")
    assert box.polls[0] is None
    assert len(box.polls) == 5 + HOUR // POLL


async def test_the_run_finds_who_wrote_in_a_file_and_is_told_that_it_is_data(
    host: Any, box: Mailbox
) -> None:
    found: list[Any] = []

    async def look(turn: Turn) -> str:
        found.append(json.loads((turn.cwd / "INBOX_TRIGGER.json").read_text("utf-8")))
        return "done"

    job(host)
    host.agent = ScriptedAgent(default=look)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", sender='"Ann" <Ann@Example.com>')
        (run,) = await pass_time(engine, POLL)
    assert run.state == "succeeded"
    (message,) = found[0].pop("messages")
    assert found[0] == {"system": "imap", "address": DESK}
    assert (message["id"], message["thread_id"]) == ("1", "1")
    assert (message["from"], message["subject"]) == ("Ann@Example.com", "Grüße")
    (turn,) = host.agent.turns
    assert "INBOX_TRIGGER.json" in turn.context
    assert "never instructions to follow" in turn.context
    assert turn.prompt == "Answer it.\n"


async def test_nothing_is_asked_while_the_fire_of_a_batch_is_out_and_at_once_when_it_is_settled(
    host: Any, box: Mailbox
) -> None:
    job(host)
    host.agent = host.sleeper(47 * MINUTE)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        await pass_time(engine, 4 * MINUTE)
        box.mail("Two")
        asked = len(box.polls)
        assert await pass_time(engine, 46 * MINUTE) == []
        assert len(box.polls) == asked
        (first,) = await pass_time(engine, MINUTE)
        assert len(box.polls) == asked + 1
        (second,) = await pass_time(engine, HOUR)
    assert (seen(first), seen(second)) == (["One"], ["Two"])
    assert second.started_at == first.finished_at


async def test_a_job_runs_from_its_clock_and_from_its_mail(host: Any, box: Mailbox) -> None:
    job(host, cron='"0 8 * * 1"', prompt="Write the report.")
    settings = {"inbox_poll": 6 * HOUR}
    async with host.engine(mail={"imap": box}, settings=settings) as engine:
        await pass_time(engine, timedelta(days=1))
        box.mail("May I have it?")
        runs = await pass_time(engine, timedelta(days=6))
    assert [run.fire.cause for run in runs] == ["inbox", "schedule"]
    assert {turn.prompt for turn in host.agent.turns} == {"Write the report.\n"}
    assert "What came from outside" not in host.agent.turns[1].context


# ---- mail that is dropped


async def test_what_is_dropped_is_told_once_with_its_reason_and_moves_the_mark(
    host: Any, box: Mailbox
) -> None:
    job(host)
    async with host.engine(mail={"imap": box}, secrets={"KEY": "open sesame"}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("x" * 300, sender="eve@example.net")
        box.mail("open sesame", sender="Ann <ann@example.com>, eve@example.net")
        assert await pass_time(engine, HOUR) == []
        events = await host.events(engine, "mail_dropped")
    assert [event.data["code"] for event in events] == ["mail-unlisted", "mail-from-several"]
    assert events[0].data | {"subject": ""} == {
        "system": "imap",
        "address": DESK,
        "message": "1",
        "code": "mail-unlisted",
        "reason": "the sender is not in allowFrom",
        "sender": "eve@example.net",
        "subject": "",
    }
    assert events[0].data["subject"] == "x" * 199 + "…"
    assert events[1].data["subject"] == "[redacted KEY]"
    assert box.polls[-1] == "1:2:0"


async def test_what_is_dropped_beside_mail_that_passes_is_told_once_over_all_its_runs(
    host: Any, box: Mailbox
) -> None:
    """Also when the file goes away meanwhile, and the same batch comes once more."""
    job(host)
    host.agent = Agent()
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("Spam", sender="eve@example.net")
        box.mail("Real")
        assert len(await pass_time(engine, HOUR)) == 3
        (host.workspace / "jobs" / "desk.md").unlink()
        await host.look(3)
        (fire,) = await engine.fires("desk")
        assert (fire.verdict, fire.reason) == ("skipped", "removed")
        job(host)
        host.agent.broken = False
        (run,) = await pass_time(engine, HOUR)
        assert len(await host.events(engine, "mail_dropped")) == 1
    assert (seen(run), run.state) == (["Real"], "succeeded")
    assert run.fire.id != fire.id
    assert box.polls[-1] == "1:2:0"


async def test_long_headers_are_read_beside_the_loop_and_ordinary_ones_on_it(
    host: Any, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger decides how long it takes to read them."""
    read: dict[str, int] = {}

    def decide(message: MailMessage, **given: Any) -> MailDecision:
        decision = decide_mail(message, **given)
        read[decision.subject] = threading.get_ident()
        return decision

    monkeypatch.setattr("drumbeat.runtime.inbox.decide_mail", decide)
    job(host)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("Short")
        box.mail("Long", cc="a," * 2_000)
        (run,) = await pass_time(engine, POLL)
    assert seen(run) == ["Short", "Long"]
    assert {subject: where == threading.get_ident() for subject, where in read.items()} == {
        "Short": True,
        "Long": False,
    }


async def test_two_jobs_that_answer_mail_do_not_answer_each_other(host: Any, box: Mailbox) -> None:
    """Neither where one of them is served by another system, or by none."""
    addresses = {"desk": DESK, "intake": "intake@example.com", "lost": "lost@example.com"}
    for slug, address in addresses.items():
        system = "nobody" if slug == "lost" else "imap"
        job(host, slug, inbox=f"{system}:{address}", allowFrom='"@example.com, @example.org"')

    async def answer(turn: Turn) -> str:
        other = "intake" if turn.slug == "desk" else "desk"
        box.mail("Re", sender=addresses[turn.slug], to=addresses[other])
        return "answered"

    host.agent = ScriptedAgent(default=answer)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("Hello")
        box.mail("Lost?", sender=addresses["lost"])
        (run,) = await pass_time(engine, HOUR)
        events = await host.events(engine, "mail_dropped")
    assert (run.slug, seen(run)) == ("desk", ["Hello"])
    own = [event for event in events if event.data["code"] == "mail-own-address"]
    assert {(event.slug, event.data["sender"]) for event in own} == {
        ("desk", "lost@example.com"),
        ("intake", DESK),
    }


# ---- runs that fail


async def test_a_batch_that_fails_is_tried_again_with_growing_pauses_and_then_parked_and_voiced(
    host: Any, box: Mailbox
) -> None:
    job(host)
    host.agent = Agent()
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        runs = await pass_time(engine, timedelta(days=1))
        status = await engine.status()
        (parked,) = await host.events(engine, "mail_parked")
        settled = await host.events(engine, "fire_settled")
        (fire,) = await engine.fires("desk")
        host.agent.broken = False
        box.mail("Two")
        (after,) = await pass_time(engine, HOUR)
    begun = [run.started_at for run in runs]
    pauses = [(late - early) // MINUTE for early, late in pairwise(begun)]
    assert pauses == [5, 20, 60, 240, 720]
    assert [seen(run) for run in runs] == [["One"]] * 6
    assert {run.fire.id for run in runs} == {fire.id}
    assert [run.intent.gate for run in runs if run.intent] == [
        "run-failed",
        *["repeat-failure"] * 4,
        "run-failed",
    ]
    first, last = host.deliverer.intents[:2]
    assert "It is tried again at 2026-03-02 12:10 UTC." in first.text
    assert "The mail is parked" in last.text
    assert "- ann@example.com: One (id 1)" in last.text
    assert last.reason.endswith("its mail is parked")
    assert parked.data["messages"] == ["ann@example.com: One (id 1)"]
    assert (parked.data["fire"], parked.data["state"]) == (fire.id, "failed")
    assert (fire.verdict, fire.attempt) == ("ran", 6)
    assert len(settled) == 1
    (inbox,) = status.inboxes
    assert inbox.parked == ("ann@example.com: One (id 1)",)
    assert (seen(after), after.state) == (["Two"], "succeeded")


async def test_a_later_attempt_is_told_that_the_earlier_one_failed(host: Any, box: Mailbox) -> None:
    job(host)
    host.agent = ScriptedAgent({"prompt": [AgentError("no", code="no"), "done"]})
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        failed, succeeded = await pass_time(engine, HOUR)
        recovered = await host.events(engine, "automation_recovered")
        first = await engine.why("desk", at=failed.started_at)
    assert (failed.state, succeeded.state) == ("failed", "succeeded")
    assert (succeeded.fire.attempt, len(recovered)) == (2, 1)
    told = [turn.context for turn in host.agent.turns]
    assert "An earlier attempt" not in told[0]
    assert "An earlier attempt at this work failed." in told[1]
    assert "interrupted" not in told[1]
    assert f"ran as {succeeded.run_id}" in first


async def test_mail_of_a_cancelled_run_is_parked_and_not_tried_again(
    host: Any, box: Mailbox
) -> None:
    job(host)
    host.agent = host.sleeper(HOUR)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        await pass_time(engine, 10 * MINUTE)
        (going,) = (await engine.status()).running
        await engine.cancel(going.run_id, "not now")
        await pass_time(engine, 5 * HOUR)
        (run,) = await engine.runs()
        (parked,) = await host.events(engine, "mail_parked")
    assert run.intent is not None
    assert (run.state, run.intent.verdict) == ("cancelled", "demote")
    assert "The mail is parked" in run.intent.text
    assert parked.data["state"] == "cancelled"
    assert box.polls[-1] == "1:1:0"


async def test_what_comes_while_the_file_is_disabled_or_paused_is_skipped_on_the_record(
    host: Any, box: Mailbox
) -> None:
    job(host, disabled="true")
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        assert await pass_time(engine, 2 * POLL) == []
        job(host)
        await engine.pause("desk", "holidays")
        box.mail("Two")
        assert await pass_time(engine, 2 * POLL) == []
        await engine.resume("desk")
        box.mail("Three")
        (run,) = await pass_time(engine, 2 * POLL)
        fires = await engine.fires("desk")
        why = await engine.why("desk", at=fires[1].created_at)
    assert seen(run) == ["Three"]
    assert [(fire.verdict, fire.reason) for fire in fires[1:]] == [
        ("skipped", "paused (holidays)"),
        ("skipped", "disabled"),
    ]
    assert "was skipped: it was paused" in why


# ---- restarts and edits


async def test_a_restart_loses_no_mark_and_finds_what_came_meanwhile(
    host: Any, box: Mailbox
) -> None:
    job(host)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
    box.mail("Meanwhile")
    async with host.engine(mail={"imap": box}) as engine:
        (run,) = await pass_time(engine, MINUTE)
        assert len(await host.events(engine, "inbox_begun")) == 1
    assert seen(run) == ["Meanwhile"]
    assert box.polls[1] == "1:0:0"


async def test_an_interrupted_run_over_mail_is_made_up_for_at_once_and_later_with_pauses(
    host: Any, box: Mailbox
) -> None:
    job(host)
    host.agent = host.sleeper(50 * MINUTE)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        await pass_time(engine, 10 * MINUTE)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        assert [run.fire.attempt for run in (await engine.status()).running] == [2]
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, 19 * MINUTE)
        assert (await engine.status()).running == ()
        (run,) = await pass_time(engine, 3 * HOUR)
        runs = await engine.runs("desk")
    assert [each.state for each in runs] == ["succeeded", "interrupted", "interrupted"]
    assert run.fire.attempt == 3
    assert "An earlier attempt at this work was interrupted." in host.agent.turns[2].context
    assert [intent.gate for intent in host.deliverer.intents] == ["policy-always"]


async def test_another_address_begins_anew_and_other_senders_count_at_once(
    host: Any, box: Mailbox
) -> None:
    job(host)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("Before", to="help@example.org")
        job(host, inbox="imap:help@example.org")
        assert await pass_time(engine, HOUR) == []
        box.mail("After", to="help@example.org", sender="bob@example.net")
        job(host, inbox="imap:help@example.org", allowFrom="bob@example.net")
        (run,) = await pass_time(engine, POLL)
        assert len(await host.events(engine, "inbox_begun")) == 2
    assert seen(run) == ["After"]


async def test_a_mailbox_that_was_numbered_anew_brings_no_message_twice(host: Any) -> None:
    """Batch by batch, and a message that only reuses a Message-ID is none of those."""
    box = Mailbox(limit=2)
    job(host)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        for number in range(3):
            box.mail(f"Old {number}")
        box.mail("Drop", sender="eve@example.net")
        await pass_time(engine, HOUR)
        box.renumber()
        box.mail("Forged", message_id="<1@scripted.example>", sender="bob@example.com")
        box.mail("New")
        runs = await pass_time(engine, HOUR)
        assert len(await host.events(engine, "mail_dropped")) == 1
        box.mail("Same name", message_id="<6@scripted.example>")
        (later,) = await pass_time(engine, POLL)
    assert [subject for run in runs for subject in seen(run)] == ["Forged", "New"]
    assert seen(later) == ["Same name"]


async def test_a_file_that_is_broken_is_not_polled_and_its_mail_waits(
    host: Any, box: Mailbox
) -> None:
    job(host)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        job(host, allowfrom="nobody")
        await host.look()
        box.mail("One")
        asked = len(box.polls)
        assert await pass_time(engine, HOUR) == []
        assert len(box.polls) == asked
        job(host)
        (run,) = await pass_time(engine, POLL)
    assert seen(run) == ["One"]


# ---- sources that fail


async def test_a_source_that_hangs_holds_up_no_other_inbox(host: Any, box: Mailbox) -> None:
    slow = Mailbox()
    slow.slow = (host.clock, timedelta(days=9))
    job(host)
    job(host, "other", inbox=f"slow:{DESK}")
    async with host.engine(mail={"imap": box, "slow": slow}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        (run,) = await pass_time(engine, 2 * POLL)
        (fault,) = (await engine.status()).faults
        (failed,) = await host.events(engine, "mail_poll_failed")
        slow.slow = None
        await pass_time(engine, HOUR)
        assert (await engine.status()).faults == ()
        (recovered,) = await host.events(engine, "mail_poll_recovered")
    assert run.slug == "desk"
    assert (fault.code, failed.slug) == ("mail-poll-timeout", "other")
    assert f"slow:{DESK}" in fault.message
    assert "no answer within 1 min" in fault.message
    assert recovered.slug == "other"


class OddError(Exception):
    """Some library's own."""


async def test_a_failing_poll_is_told_once_for_each_kind_of_failure_and_loses_no_mail(
    host: Any, box: Mailbox
) -> None:
    job(host)
    async with host.engine(mail={"imap": box}, secrets={"KEY": "open sesame"}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        for minute in range(12):
            box.fault = OSError(f"connection {minute} refused, open sesame")
            assert await pass_time(engine, POLL) == []
        box.fault = OddError("strange")
        await pass_time(engine, HOUR)
        (fault,) = (await engine.status()).faults
        events = await host.events(engine, "mail_poll_failed")
        box.fault = None
        (run,) = await pass_time(engine, POLL)
        assert len(await host.events(engine, "mail_poll_recovered")) == 1
    assert [event.data["reason"] for event in events] == [
        "OSError: connection 0 refused, [redacted KEY]",
        "OddError: strange",
    ]
    assert fault.code == "mail-poll-failed"
    assert seen(run) == ["One"]


def refusal(code: str, *, remedy: str = "renew the password") -> MailError:
    return MailError(Problem(code=code, message=f"it is {code}", remedy=remedy))


async def test_a_failure_with_a_code_is_told_by_it_and_says_how_it_is_mended(
    host: Any, box: Mailbox
) -> None:
    """Two failures of one class are two: what was unreachable may refuse the password next."""
    job(host)
    async with host.engine(mail={"imap": box}, secrets={"KEY": "open sesame"}) as engine:
        for code in ("mail-unreachable", "mail-unreachable", "mail-login-refused"):
            box.fault = refusal(code, remedy="say open sesame")
            await pass_time(engine, HOUR)
        (fault,) = (await engine.status()).faults
        events = await host.events(engine, "mail_poll_failed")
    assert [(event.data["code"], event.data["reason"]) for event in events] == [
        ("mail-unreachable", "it is mail-unreachable"),
        ("mail-login-refused", "it is mail-login-refused"),
    ]
    assert fault.code == "mail-login-refused"
    assert fault.message.endswith("could not be polled: it is mail-login-refused")
    assert fault.remedy == "say [redacted KEY]"


@pytest.mark.parametrize(
    "problem",
    [
        None,
        "text",
        Problem(code="No code", message="m", remedy="r"),
        Problem(code="s3cret-value", message="m", remedy="r"),
    ],
)
async def test_a_failure_whose_problem_is_none_is_told_by_its_class(
    host: Any, box: Mailbox, problem: Any
) -> None:
    """Type hints bind no host."""
    job(host)
    box.fault = refusal("mail-unreachable")
    box.fault.problem = problem
    async with host.engine(mail={"imap": box}, secrets={"KEY": "s3cret-value"}) as engine:
        await pass_time(engine, MINUTE)
        (event,) = await host.events(engine, "mail_poll_failed")
    assert event.data["code"] == "mail-poll-failed"
    assert "s3cret-value" not in str(event.data)
    assert event.data["reason"].startswith("MailError")


async def test_a_failure_is_told_by_its_beginning_with_no_half_of_a_secret(
    host: Any, box: Mailbox
) -> None:
    job(host)
    box.fault = refusal("mail-unreachable", remedy="r" * 10_000)
    box.fault.problem = attrs.evolve(
        box.fault.problem,
        message=f"it is\ndown, 'open\n  sesame' {'x' * 440}s3cret\nvalue{'y' * 10_000}",
    )
    secrets = {"KEY": "s3cret\nvalue", "DOOR": "open sesame"}
    async with host.engine(mail={"imap": box}, secrets=secrets) as engine:
        await pass_time(engine, MINUTE)
        (fault,) = (await engine.status()).faults
        (event,) = await host.events(engine, "mail_poll_failed")
    assert event.data["reason"].startswith("it is down, '[redacted DOOR]' xxx")
    assert "[redacted DOOR]" in fault.message
    assert len(event.data["reason"]) <= 500
    assert "s3cret" not in event.data["reason"]
    assert len(fault.remedy) <= 500


class Rude:
    """What ends the process of whoever looks at it."""

    def __bool__(self) -> bool:
        raise SystemExit


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("nothing", "no MailBatch"),
        (MailBatch(messages=(), mark=""), "mark of the batch is blank"),
        (MailBatch(messages=(), mark="m" * 5000), "over 4096"),
        (MailBatch(messages=(object(),), mark="2"), "no MailMessage"),  # type: ignore[arg-type]
        (MailBatch(messages=(), mark="2", restarted=Rude()), "looked into: SystemExit"),  # type: ignore[arg-type]
    ],
)
async def test_a_batch_that_breaks_the_contract_counts_as_no_poll(
    host: Any, box: Mailbox, answer: object, told: str
) -> None:
    job(host)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.answer = answer
        await pass_time(engine, HOUR)
        (event,) = await host.events(engine, "mail_poll_failed")
        box.answer = None
        box.mail("One")
        (run,) = await pass_time(engine, POLL)
    assert event.data["code"] == "mail-batch-invalid"
    assert told in event.data["reason"]
    assert seen(run) == ["One"]


async def test_trouble_with_the_store_loses_no_mail(host: Any, box: Mailbox) -> None:
    job(host)
    store = host.faulty()
    async with host.engine(mail={"imap": box}, store=store) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        store.faults["add_fires"] = [FULL, FULL]
        (run,) = await pass_time(engine, HOUR)
    assert seen(run) == ["One"]
    assert box.polls[1:4] == ["1:0:0"] * 3


async def test_a_fault_outlives_a_restart_and_makes_no_second_event(
    host: Any, box: Mailbox
) -> None:
    job(host)
    box.fault = OSError("refused")
    for _ in range(2):
        async with host.engine(mail={"imap": box}) as engine:
            await pass_time(engine, HOUR)
            assert len(await host.events(engine, "mail_poll_failed")) == 1
    async with Client(host.workspace) as client:
        (inbox,) = (await client.status()).inboxes
    assert (inbox.begun, inbox.fault, inbox.served) == (False, "OSError: refused", True)
    box.fault = None
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        assert len(await host.events(engine, "mail_poll_recovered")) == 1
        (inbox,) = (await engine.status()).inboxes
    assert (inbox.begun, inbox.fault) == (True, "")


async def test_a_mistake_of_the_engine_over_a_poll_stops_nothing(
    host: Any, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(host)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        with monkeypatch.context() as patched:
            patched.setattr("drumbeat.runtime.inbox.decide_mail", None)
            assert await pass_time(engine, POLL) == []
            (fault,) = (await engine.status()).faults
        (run,) = await pass_time(engine, POLL)
    assert "a mistake in the engine: TypeError" in fault.message
    assert seen(run) == ["One"]


async def test_a_source_that_ignores_its_cancellation_is_told_of_and_never_polled_twice_at_once(
    host: Any, box: Mailbox
) -> None:
    """Also when its file goes away and comes back meanwhile."""
    going = most = 0

    class Stubborn(ScriptedMailbox):
        stubborn = True

        async def poll(self, address: str, after: str | None, /) -> MailBatch:
            nonlocal going, most
            going += 1
            most = max(most, going)
            with anyio.CancelScope(shield=True):
                await host.clock.sleep(20 * MINUTE if self.stubborn else timedelta(0))
            going -= 1
            return await super().poll(address, after)

    job(host)
    stubborn = Stubborn()
    async with host.engine(mail={"imap": stubborn}) as engine:
        await pass_time(engine, 2 * MINUTE)
        (fault,) = (await engine.status()).faults
        (host.workspace / "jobs" / "desk.md").unlink()
        await host.look(3)
        job(host)
        await host.look(3)
        assert (going, most) == (1, 1)
        stubborn.stubborn = False
        await pass_time(engine, HOUR)
    assert most == 1
    assert len(stubborn.polls) > 1
    assert fault.code == "mail-poll-stuck"


async def test_a_slot_that_another_inbox_of_the_file_had_makes_a_fire_all_the_same(
    host: Any, box: Mailbox
) -> None:
    """Marks are the source's own, and two sources may name two places alike."""
    other = Mailbox()
    job(host)
    async with host.engine(mail={"imap": box, "other": other}) as engine:
        await pass_time(engine, MINUTE)
        box.mail("One")
        (first,) = await pass_time(engine, POLL)
        job(host, inbox=f"other:{DESK}")
        await host.look()
        other.mail("Two")
        (second,) = await pass_time(engine, POLL)
        assert await pass_time(engine, HOUR) == []
        assert len(await host.events(engine, "fire_added")) == 2
    assert (seen(first), seen(second)) == (["One"], ["Two"])
    assert first.fire.slot == "1:1:0"
    assert second.fire.slot == "1:1:0 (1)"
    assert other.polls[-1] == "1:1:0"


async def test_nothing_is_kept_in_memory_of_inboxes_that_are_polled_no_more(
    host: Any, box: Mailbox
) -> None:
    """Once it decides nothing any more: for one interval it keeps an edit from polling twice."""
    async with host.engine(mail={"imap": box}) as engine:
        for number in range(4):
            job(host, inbox=f"imap:desk{number}@example.org")
            await host.look()
        inboxes = engine._life.inboxes
        assert len(inboxes._polled) == 4
        await pass_time(engine, POLL)
        last = "inbox:desk:imap:desk3@example.org"
        assert (set(inboxes._polled), set(inboxes._going)) == ({last}, {last})


async def test_a_batch_that_no_fire_is_out_for_is_taken_back(host: Any, box: Mailbox) -> None:
    """As a kill leaves it between the two transactions over a slot that is taken."""
    job(host)
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
    box.mail("One")
    store = SqliteStore(host.data / "drumbeat.db", clock=host.clock)
    await store.open(holder=None, lease=HOUR)
    (mark,) = await store.marks("inbox:desk:")
    lost = mark.value | {"batch": {"fire": "inbox-0", "mark": "9", "handled": [], "last": ""}}
    await store.record(marks=(attrs.evolve(mark, value=lost),))
    await store.close()
    async with host.engine(mail={"imap": box}) as engine:
        (run,) = await pass_time(engine, 2 * POLL)
    assert seen(run) == ["One"]


@pytest.mark.parametrize("kept", [{"version": 9}, "damage"])
async def test_a_mark_that_cannot_be_read_is_left_alone_and_no_mail_is_lost(
    host: Any, box: Mailbox, kept: object
) -> None:
    """It is not polled until somebody mends that; to begin anew would pass over its mail."""
    job(host)
    store = host.faulty()
    async with host.engine(mail={"imap": box}, store=store) as engine:
        await pass_time(engine, MINUTE)
        (mark,) = await store.marks("inbox:desk:")
        await store.record(marks=(attrs.evolve(mark, value=kept),))
        box.mail("One")
        polls = len(box.polls)
        assert await pass_time(engine, 4 * POLL) == []
        assert len(box.polls) == polls
        (other,) = await store.marks("inbox:desk:")
        assert other.value == kept
        (fault,) = (await engine.status()).faults
        (failed,) = await host.events(engine, "mail_poll_failed")
        (inbox,) = (await engine.status()).inboxes
        assert inbox.begun
        await store.record(marks=(attrs.evolve(other, value=mark.value),))
        (run,) = await pass_time(engine, POLL)
        assert (await engine.status()).faults == ()
        assert len(await host.events(engine, "inbox_begun")) == 1
    assert fault.code == failed.data["code"] == "inbox-mark-unreadable"
    assert "'inbox:desk:imap:desk@example.org'" in fault.remedy
    assert seen(run) == ["One"]


async def test_why_speaks_of_mail_and_of_the_next_attempt(host: Any, box: Mailbox) -> None:
    job(host)
    host.agent = Agent()
    async with host.engine(mail={"imap": box}) as engine:
        await pass_time(engine, MINUTE)
        idle = await engine.why("desk", at=START)
        box.mail("One")
        (run, _) = await pass_time(engine, 15 * MINUTE)
        failing = await engine.why("desk", at=run.started_at)
    assert f"at present mail to imap:{DESK} makes it run" in idle
    assert failing.startswith("desk (inbox) for mail found at 2026-03-02T12:05:00Z ran as ")
    assert failing.endswith("; one more attempt is due at 2026-03-02T12:30:00Z.")


async def test_what_is_no_mail_source_is_refused_at_once(host: Any) -> None:
    with pytest.raises(TypeError, match=r"mail\['imap'\] must be an instance"):
        host.engine(mail={"imap": Mailbox})


async def test_the_stand_in_for_a_mail_system_keeps_the_contract() -> None:
    box = ScriptedMailbox(limit=2)

    async def send(subject: str) -> None:
        box.send("ann@example.com", "jobs@example.com", subject)

    await check_mail_source(lambda: box, send=send)


# ---- systems that the host has not


async def test_an_inbox_that_the_host_does_not_serve_is_refused_and_the_clock_goes_on(
    host: Any, box: Mailbox
) -> None:
    job(host, cron='"0 * * * *"', inbox=f"gmail:{DESK}")
    with capture_logs() as logs:
        async with host.engine(mail={"imap": box}) as engine:
            runs = await pass_time(engine, 2 * HOUR)
            status = await engine.status()
            (event,) = await host.events(engine, "inbox_refused")
            job(host, cron='"0 * * * *"')
            await host.look()
            assert (await engine.status()).faults == ()
            assert len(box.polls) == 1
    (line,) = [line for line in logs if line["event"] == "inbox_refused"]
    assert (line["log_level"], line["code"]) == ("error", "inbox-system-unknown")
    assert line["message"] == status.faults[0].message
    assert line["remedy"] == status.faults[0].remedy
    assert [run.fire.cause for run in runs] == ["schedule", "schedule"]
    assert [fault.code for fault in status.faults] == ["inbox-system-unknown"]
    assert "(it has: imap)" in status.faults[0].message
    assert event.data["code"] == "inbox-system-unknown"
    assert status.workspace.problems == {}
