"""What runs leave behind, messages and follow-ups, against plain models of both."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import anyio
import attrs
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from drumbeat.core.model import Claim, DeliveryIntent, Event, Fire, Receipt
from drumbeat.core.redaction import Redactor
from drumbeat.core.settings import Settings
from drumbeat.errors import FollowUpRefused
from drumbeat.runtime.clock import SystemClock
from drumbeat.runtime.conclusion import unfinished
from drumbeat.runtime.follow_ups import RunFollowUps
from drumbeat.runtime.refusals import Refusals
from drumbeat.runtime.run_tokens import RunTokens
from drumbeat.runtime.signals import Signal
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import example_intent

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LEASE = 5 * MINUTE
SLUGS = st.sampled_from(["a", "b"])
SHORT = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@attrs.define
class HandClock(SystemClock):
    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


def record(claim: Claim, *, state: Any = "running", intent: DeliveryIntent | None = None) -> Any:
    assert claim.fire is not None
    finished = None if state == "running" else NOW
    run = unfinished(claim, claim.fire, at=NOW)
    return attrs.evolve(run, state=state, finished_at=finished, intent=intent)


def intent_of(claim: Claim, verdict: Any) -> DeliveryIntent:
    assert claim.fire is not None
    return example_intent(
        id=f"intent-{claim.run_id}",
        run_id=claim.run_id,
        slug=claim.slug,
        fire=claim.fire,
        created_at=NOW,
        attempt=0,
        verdict=verdict,
    )


class Stored(RuleBasedStateMachine):
    """A store on a disk, and a clock that is set by hand."""

    portal: BlockingPortal

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.clock = HandClock()
        self.count = 0
        self.last_event = 0

    def call(self, function: Callable[..., Any], /, *args: Any, **given: Any) -> Any:
        async def called() -> Any:
            return await function(*args, **given)

        return self.portal.call(called)

    @initialize()
    def begin(self) -> None:
        self.store = SqliteStore(Path(self.folder.name) / "drumbeat.db", clock=self.clock)
        self.call(self.store.open, holder="test", lease=LEASE)

    def teardown(self) -> None:
        self.call(self.store.close)
        self.folder.cleanup()

    def claimed(self, fire: Fire) -> Claim:
        """A claim on a fire that is put in for it."""
        self.call(self.store.add_fires, [fire])
        return self.call(  # type: ignore[no-any-return]
            self.store.claim_fire, now=self.clock.at, run_id=f"run-{self.count}"
        )

    def fire(self, slug: str) -> Fire:
        self.count += 1
        name = f"fire-{self.count:03}"
        at = self.clock.at
        return Fire(id=name, slug=slug, cause="manual", slot=name, due=at, created_at=at)

    def events_since(self) -> list[Event]:
        """The events since the last look; their ids rise."""
        zero = timedelta()
        found = self.call(self.store.events, after=self.last_event, limit=1000, wait=zero)
        ids = [event.id for event in found]
        assert ids == sorted(set(ids))
        self.last_event = ids[-1] if ids else self.last_event
        return found  # type: ignore[no-any-return]


@attrs.define
class Sending:
    """What the model knows of one message."""

    id: str
    slug: str
    attempt: int = 0
    sent: str | None = "pending"
    retry_at: datetime = NOW
    leased_until: datetime | None = None
    receipt: str | None = None


class DeliveryMachine(Stored):
    """Messages that are claimed, sent, tried again, given up and acknowledged, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.sendings: list[Sending] = []
        self.leased: list[DeliveryIntent] = []
        """Every attempt that was ever begun: an answer to it may come at any time."""
        self.told: list[str] = []

    @rule(slug=SLUGS, verdict=st.sampled_from(["deliver", "deliver", "withhold", "demote"]))
    def run_ends(self, slug: str, verdict: str) -> None:
        claim = self.claimed(self.fire(slug))
        intent = intent_of(claim, verdict)
        self.call(self.store.finish, claim, record(claim, state="succeeded", intent=intent))
        sent = "pending" if verdict == "deliver" else None
        self.sendings.append(Sending(id=intent.id, slug=slug, sent=sent))

    @initialize()
    def begin(self) -> None:
        super().begin()
        if not self.sendings:
            for slug in ("a", "a", "b"):
                self.run_ends(slug, "deliver")

    @rule()
    def claim(self) -> None:
        intent = self.call(self.store.claim_intent, now=self.clock.at)
        wanted, first = None, set[str]()
        for each in self.sendings:
            if each.sent == "pending" and each.slug not in first:
                first.add(each.slug)
                free = each.leased_until is None or each.leased_until <= self.clock.at
                if free and each.retry_at <= self.clock.at:
                    wanted = each
                    break
        if wanted is None:
            assert intent is None
            return
        wanted.attempt += 1
        wanted.leased_until = self.clock.at + LEASE
        assert (intent.id, intent.attempt) == (wanted.id, wanted.attempt)
        self.leased.append(intent)

    @precondition(lambda self: self.leased)
    @rule(
        data=st.data(),
        how=st.sampled_from(["delivered", "abandoned", "pending"]),
        minutes=st.integers(0, 10),
    )
    def attempt_ends(self, data: st.DataObject, how: Any, minutes: int) -> None:
        """The answer to any attempt, also one that another has overtaken or that is settled."""
        intent = data.draw(st.sampled_from(self.leased))
        self.settle(intent, how, retry_at=self.clock.at + minutes * MINUTE, receipt=None)

    def overtaken(self) -> list[DeliveryIntent]:
        now = {each.id: each.attempt for each in self.sendings if each.sent == "pending"}
        return [each for each in self.leased if each.attempt < now.get(each.id, 0)]

    @precondition(lambda self: self.overtaken())
    @rule(data=st.data(), minutes=st.integers(0, 10))
    def an_overtaken_attempt_ends(self, data: st.DataObject, minutes: int) -> None:
        """Only what it achieved counts by then, not when to try again."""
        intent = data.draw(st.sampled_from(self.overtaken()))
        self.settle(intent, "pending", retry_at=self.clock.at + minutes * MINUTE, receipt=None)

    @precondition(lambda self: any(each.sent for each in self.sendings))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """A host that pulls says that it has one, whichever."""
        choices = [each.id for each in self.sendings if each.sent]
        id = data.draw(st.sampled_from(choices))  # noqa: A001
        (run,) = self.call(self.store.runs, target=id)
        self.settle(run.intent, "delivered", retry_at=None, receipt=f"receipt-{id}")

    def settle(
        self, intent: DeliveryIntent, how: Any, *, retry_at: datetime | None, receipt: str | None
    ) -> None:
        event = Event(
            id=0, at=self.clock.at, kind=how, slug=intent.slug, run_id=None, data={"id": intent.id}
        )
        self.call(
            self.store.settle_intent,
            intent,
            how,
            retry_at=retry_at if how == "pending" else None,
            receipt=None if receipt is None else Receipt(id=receipt),
            events=(event,),
        )
        one = next(each for each in self.sendings if each.id == intent.id)
        overtaken = how == "pending" and intent.attempt < one.attempt
        if one.sent != "pending" or overtaken:
            return
        one.sent, one.leased_until, one.receipt = how, None, receipt
        one.retry_at = retry_at if how == "pending" and retry_at else NOW
        self.told.append(intent.id)

    @rule(minutes=st.sampled_from([1, 5, 6]))
    def wait(self, minutes: int) -> None:
        self.clock.at += minutes * MINUTE

    @rule()
    def open_again(self) -> None:
        """Who holds the folder alone knows that nothing is under way."""
        self.call(self.store.close)
        self.begin()
        for each in self.sendings:
            each.leased_until = None

    @invariant()
    def messages_stand_as_they_should(self) -> None:
        if not hasattr(self, "store"):
            return
        runs = self.call(self.store.runs, limit=1000)
        assert [(run.intent.id, run.delivery, run.intent.attempt) for run in runs[::-1]] == [
            (each.id, each.sent, each.attempt) for each in self.sendings
        ]
        receipts = [run.receipt.id if run.receipt else None for run in runs[::-1]]
        assert receipts == [each.receipt for each in self.sendings]
        assert self.call(self.store.invalid_runs) == []

    @invariant()
    def what_changed_nothing_is_told_to_nobody(self) -> None:
        if hasattr(self, "store"):
            kinds = ("delivered", "abandoned", "pending")
            told = [event.data["id"] for event in self.events_since() if event.kind in kinds]
            assert told == self.told
            self.told = []


@attrs.define
class Going:
    """A run that goes on, or has ended, and what it may ask for."""

    claim: Claim
    asks: RunFollowUps
    over: bool = False


class FollowUpMachine(Stored):
    """Runs that ask for later runs, within and over every limit."""

    limits = Settings(follow_up_depth=2, follow_ups_pending=2, follow_up_delay=60 * MINUTE)

    def __init__(self) -> None:
        super().__init__()
        self.fires: list[Fire] = []
        self.going: list[Going] = []
        self.refusals: list[str] = []
        self.counted = Refusals(clock=self.clock)
        self.tokens = RunTokens()

    def services(self) -> Any:
        """The parts of an engine that follow-ups use."""

        def event(kind: str, now: datetime, slug: str, run: str, **data: Any) -> Event:
            return Event(id=0, at=now, kind=kind, slug=slug, run_id=run, data=data)

        return SimpleNamespace(
            refusals=self.counted,
            store=self.store,
            clock=self.clock,
            settings=self.limits,
            tokens=self.tokens,
            counting=anyio.Lock(),
            fires_changed=Signal(),
            follow_ups_url=None,
            event=event,
        )

    def open_runs(self) -> dict[str, Going]:
        return {each.claim.run_id: each for each in self.going if not each.over}

    def put(self, fire: Fire) -> None:
        self.fires = [fire if one.id == fire.id else one for one in self.fires]

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.fire_by_hand("a")
        self.begin_a_run()

    @rule(slug=SLUGS)
    def fire_by_hand(self, slug: str) -> None:
        fire = self.fire(slug)
        self.call(self.store.add_fires, [fire])
        self.fires.append(fire)

    @rule()
    def begin_a_run(self) -> None:
        """The oldest that is due; a follow-up only once the run that asked for it has ended."""
        self.count += 1
        run_id = f"run-{self.count}"
        claim = self.call(self.store.claim_fire, now=self.clock.at, run_id=run_id)
        busy = {each.claim.slug for each in self.open_runs().values()}
        due = [
            one
            for one in self.fires
            if one.verdict is None
            and one.due <= self.clock.at
            and one.slug not in busy
            and one.parent_run not in self.open_runs()
        ]
        oldest = min(due, key=lambda one: one.due, default=None)
        if oldest is None:
            assert claim is None
            return
        wanted = attrs.evolve(oldest, attempt=1, run_id=run_id)
        assert claim.fire == wanted
        self.put(wanted)
        self.call(self.store.record, claim=claim, run=record(claim))
        asks = RunFollowUps(services=self.services(), fire=claim.fire, run_id=run_id)
        token = asks.env()["DRUMBEAT_RUN_TOKEN"]
        found = self.tokens.find(token)
        assert found is not None
        assert (found.slug, found.run_id) == (claim.slug, run_id)
        self.going.append(Going(claim=claim, asks=asks))

    @precondition(lambda self: self.open_runs())
    @rule(data=st.data())
    def end_a_run(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(list(self.open_runs().values())))
        token = run.asks.env()["DRUMBEAT_RUN_TOKEN"]
        run.asks.close()
        run.over = True
        intent = intent_of(run.claim, "withhold")
        state = data.draw(st.sampled_from(["succeeded", "failed"]))
        self.call(self.store.finish, run.claim, record(run.claim, state=state, intent=intent))
        fire = next(one for one in self.fires if one.run_id == run.claim.run_id)
        self.put(attrs.evolve(fire, verdict="ran", reason=state))
        assert self.tokens.find(token) is None

    @precondition(lambda self: self.open_runs())
    @rule(data=st.data(), minutes=st.integers(0, 2))
    def ask_well(self, data: st.DataObject, minutes: int) -> None:
        run = data.draw(st.sampled_from(list(self.open_runs().values())))
        self.ask(run, "Look again.", minutes)

    @precondition(lambda self: self.going)
    @rule(
        data=st.data(),
        prompt=st.sampled_from(["Look again.", " ", "\0"]),
        minutes=st.sampled_from([0, 60, 61, -1]),
    )
    def ask_badly(self, data: st.DataObject, prompt: str, minutes: int) -> None:
        self.ask(data.draw(st.sampled_from(self.going)), prompt, minutes)

    def ask(self, run: Going, prompt: str, minutes: int) -> None:
        parent = run.claim.fire
        assert parent is not None
        pending = [
            one
            for one in self.fires
            if one.slug == parent.slug
            and one.cause == "follow-up"
            and one.verdict is None
            and one.run_id not in self.open_runs()
        ]
        refusal = None
        if run.over:
            refusal = "follow-up-run-ended"
        elif not prompt.strip() or "\0" in prompt:
            refusal = "follow-up-prompt-invalid"
        elif not 0 <= minutes <= 60:
            refusal = "follow-up-delay"
        elif parent.depth >= 2:
            refusal = "follow-up-too-deep"
        elif len(pending) >= 2:
            refusal = "follow-ups-pending"
        if refusal is None:
            fire = self.call(run.asks.schedule, prompt, after=minutes * MINUTE)
            assert (fire.cause, fire.slug, fire.prompt) == ("follow-up", parent.slug, prompt)
            assert (fire.parent_run, fire.depth) == (run.claim.run_id, parent.depth + 1)
            assert fire.due == self.clock.at + minutes * MINUTE
            self.fires.append(fire)
            return
        with pytest.raises(FollowUpRefused) as caught:
            self.call(run.asks.schedule, prompt, after=minutes * MINUTE)
        assert caught.value.problem.code == refusal
        self.refusals.append(refusal)

    @rule(minutes=st.integers(1, 3))
    def wait(self, minutes: int) -> None:
        """Less than a lease each time, and every claim is renewed."""
        self.clock.at += minutes * MINUTE
        claims = [each.claim for each in self.open_runs().values()]
        assert self.call(self.store.renew, claims) == {claim.run_id for claim in claims}

    @invariant()
    def nothing_is_lost_and_no_limit_is_passed(self) -> None:
        if not hasattr(self, "store"):
            return
        fires = self.call(self.store.fires, limit=1000)
        assert fires == self.fires[::-1]
        assert max((fire.depth for fire in fires), default=0) <= 2
        backlog = self.call(self.store.backlog, now=self.clock.at)
        assert all(waiting.follow_ups <= 2 for waiting in backlog)

    @invariant()
    def every_refusal_is_on_record(self) -> None:
        """At once, or, where a run was refused the same before, with what is counted."""
        if hasattr(self, "store"):
            self.call(self.counted.write, self.store, Redactor({}))
            events = self.events_since()
            told = [event.data["code"] for event in events if event.kind == "follow_up_refused"]
            assert told == self.refusals
            self.refusals = []


@pytest.mark.slow
@pytest.mark.parametrize("machine", [DeliveryMachine, FollowUpMachine])
def test_the_store_does_what_a_plain_model_does(machine: type[Stored]) -> None:
    """Whatever is asked of it, in whichever order."""
    with start_blocking_portal() as portal:
        machine.portal = portal
        run_state_machine_as_test(machine, settings=SHORT)
