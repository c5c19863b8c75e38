"""The store against a plain model of it, over arbitrary orders of calls."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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

from drumbeat.core.model import Claim, DeliveryIntent, Fire, Verdict
from drumbeat.errors import ClaimLost
from drumbeat.runtime.clock import SystemClock
from drumbeat.runtime.conclusion import unfinished
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import example_intent

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
LEASE = timedelta(minutes=5)
SLUGS = st.sampled_from(["a", "b", "c"])


@attrs.define
class HandClock(SystemClock):
    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


@attrs.define
class Sending:
    """What the model knows of one intent."""

    intent: DeliveryIntent
    sent: str | None
    retry_at: datetime = NOW


class StoreMachine(RuleBasedStateMachine):
    """Fires, claims and intents as lists and dictionaries, next to the real thing."""

    portal: BlockingPortal

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.clock = HandClock()
        self.fires: list[Fire] = []
        self.claims: dict[str, Claim] = {}
        self.lost: list[Claim] = []
        self.runs = 0
        self.sendings: list[Sending] = []
        self.seen = 0
        self.added: list[str] = []

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

    # ---- the model

    def put(self, fire: Fire) -> None:
        self.fires = [fire if one.id == fire.id else one for one in self.fires]

    def fire_of(self, claim: Claim) -> Fire:
        assert claim.fire is not None
        return next(one for one in self.fires if one.id == claim.fire.id)

    def waiting(self, slug: str) -> Fire | None:
        taken = {claim.fire.id for claim in self.claims.values() if claim.fire}
        found = [
            one
            for one in self.fires
            if one.slug == slug
            and one.cause == "schedule"
            and one.verdict is None
            and one.id not in taken
        ]
        return min(found, key=lambda one: one.due, default=None)

    def unclaimed(self) -> list[Fire]:
        taken = {claim.fire.id for claim in self.claims.values() if claim.fire}
        return [one for one in self.fires if one.verdict is None and one.id not in taken]

    # ---- what is done to both

    @rule(
        slug=SLUGS,
        slot=st.integers(0, 9),
        cause=st.sampled_from(["schedule", "manual"]),
        minutes=st.integers(-3, 3),
        fold=st.booleans(),
    )
    def add(self, slug: str, slot: int, cause: Any, minutes: int, fold: bool) -> None:
        name = f"{slug}-{cause}-{slot}"
        due = self.clock.at + timedelta(minutes=minutes)
        fire = Fire(id=name, slug=slug, cause=cause, slot=str(slot), due=due, created_at=NOW)
        (added,) = self.call(self.store.add_fires, [fire], fold=fold)
        if any(one.id == name for one in self.fires):
            assert added == next(one for one in self.fires if one.id == name)
            return
        into = self.waiting(slug) if fold and cause == "schedule" else None
        if into is not None:
            self.put(attrs.evolve(into, folded_slots=into.folded_slots + 1))
            fire = attrs.evolve(fire, verdict="folded", reason=added.reason, folded_into=into.id)
        assert added == fire
        self.fires.append(fire)

    @rule(skip=st.sets(SLUGS, max_size=1))
    def claim(self, skip: set[str]) -> None:
        self.runs += 1
        run_id = f"run-{self.runs}"
        claim = self.call(self.store.claim_fire, now=self.clock.at, run_id=run_id, skip=skip)
        due = [
            one
            for one in self.fires
            if one.verdict is None
            and one.due <= self.clock.at
            and one.slug not in self.claims
            and one.slug not in skip
        ]
        oldest = min(due, key=lambda one: one.due, default=None)
        if oldest is None:
            assert claim is None
            return
        wanted = attrs.evolve(oldest, attempt=oldest.attempt + 1, run_id=run_id)
        assert claim.fire == wanted
        tokens = [one.token for one in [*self.claims.values(), *self.lost]]
        assert claim.token > max(tokens, default=0)
        self.put(wanted)
        self.claims[claim.slug] = claim

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), verdict=st.sampled_from(["deliver", "withhold"]), again=st.booleans())
    def finish(self, data: st.DataObject, verdict: Verdict, again: bool) -> None:
        claim = self.claims.pop(data.draw(st.sampled_from(sorted(self.claims))))
        fire = self.fire_of(claim)
        intent = example_intent(
            id=f"intent-{claim.run_id}",
            run_id=claim.run_id,
            slug=claim.slug,
            fire=fire,
            created_at=NOW,
            attempt=0,
            verdict=verdict,
        )
        run = attrs.evolve(
            unfinished(claim, fire, at=NOW), state="succeeded", finished_at=NOW, intent=intent
        )
        again_at = self.clock.at + timedelta(minutes=1) if again else None
        self.call(self.store.finish, claim, run, again_at=again_at)
        if again_at is not None:
            self.put(attrs.evolve(fire, due=again_at))
        else:
            self.put(attrs.evolve(fire, verdict="ran", reason="succeeded"))
        self.sendings.append(Sending(intent, "pending" if verdict == "deliver" else None))
        self.lost.append(claim)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        claim = self.claims.pop(data.draw(st.sampled_from(sorted(self.claims))))
        fire = self.fire_of(claim)
        self.call(self.store.finish, claim, None)
        before = [one.intent.run_id for one in self.sendings if one.intent.fire.id == fire.id]
        self.put(
            attrs.evolve(fire, attempt=fire.attempt - 1, run_id=before[-1] if before else None)
        )
        self.lost.append(claim)

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def use_a_lost_claim(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.lost))
        with pytest.raises(ClaimLost):
            self.call(self.store.finish, claim, None)

    @precondition(lambda self: self.unclaimed())
    @rule(data=st.data(), verdict=st.sampled_from(["skipped", "missed"]))
    def settle(self, data: st.DataObject, verdict: Any) -> None:
        """Somebody's choice, or too late: no run comes of it. A second verdict changes nothing."""
        fire = data.draw(st.sampled_from(self.unclaimed()))
        settled = attrs.evolve(fire, verdict=verdict, reason="why")
        self.call(self.store.record, settled=[settled])
        self.call(self.store.record, settled=[attrs.evolve(settled, verdict="ran", reason="no")])
        self.put(settled)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def skip_what_is_claimed(self, data: st.DataObject) -> None:
        """The file turned out to be disabled: the slug is free, and no attempt is counted."""
        claim = self.claims.pop(data.draw(st.sampled_from(sorted(self.claims))))
        fire = self.fire_of(claim)
        settled = attrs.evolve(fire, verdict="skipped", reason="disabled")
        self.call(self.store.record, claim=claim, settled=[settled])
        before = [one.intent.run_id for one in self.sendings if one.intent.fire.id == fire.id]
        back = attrs.evolve(
            settled, attempt=fire.attempt - 1, run_id=before[-1] if before else None
        )
        self.put(back)
        self.lost.append(claim)

    @rule()
    def lapse(self) -> None:
        """Nobody renews a claim for as long as a lease is: it is taken over, and only then lost."""
        self.clock.at += LEASE + timedelta(seconds=1)
        self.take_over()

    @rule()
    def reopen(self) -> None:
        self.call(self.store.close)
        self.begin()
        self.take_over()

    def take_over(self) -> None:
        taken = self.call(self.store.take_over)
        assert {claim.slug: claim.fire for claim in taken} == {
            slug: self.fire_of(claim) for slug, claim in self.claims.items()
        }
        for claim in taken:
            self.lost.append(self.claims[claim.slug])
            assert claim.token > self.claims[claim.slug].token
            self.claims[claim.slug] = claim

    @rule(minutes=st.integers(1, 3))
    def wait(self, minutes: int) -> None:
        """Less than a lease each time, and every claim is renewed."""
        self.clock.at += timedelta(minutes=minutes)
        held = self.call(self.store.renew, list(self.claims.values()))
        assert held == {claim.run_id for claim in self.claims.values()}

    @rule(how=st.sampled_from(["delivered", "abandoned", "pending"]))
    def deliver(self, how: Any) -> None:
        intent = self.call(self.store.claim_intent, now=self.clock.at)
        wanted = None
        blocked: set[str] = set()
        for sending in self.sendings:
            slug = sending.intent.slug
            if sending.sent != "pending" or slug in blocked:
                continue
            if sending.retry_at <= self.clock.at:
                wanted = sending
                break
            blocked.add(slug)
        if wanted is None:
            assert intent is None
            return
        attempt = wanted.intent.attempt + 1
        fire = next(one for one in self.fires if one.id == wanted.intent.fire.id)
        wanted.intent = attrs.evolve(wanted.intent, attempt=attempt, fire=fire)
        assert intent == wanted.intent
        wanted.sent = how
        wanted.retry_at = self.clock.at + timedelta(minutes=2)
        self.call(self.store.settle_intent, intent, how, retry_at=wanted.retry_at)

    # ---- what always holds

    @invariant()
    def the_fires_are_the_same(self) -> None:
        if hasattr(self, "store"):
            assert self.call(self.store.fires, limit=1000) == self.fires[::-1]

    @invariant()
    def what_waits_is_counted(self) -> None:
        if hasattr(self, "store"):
            open_fires = [one for one in self.fires if one.verdict is None]
            first: dict[str, datetime] = {}
            for one in open_fires:
                first[one.slug] = min(one.due, first.get(one.slug, one.due))
            backlog = self.call(self.store.backlog, now=self.clock.at)
            assert [(each.slug, each.due) for each in backlog] == sorted(first.items())

    @invariant()
    def a_fire_is_added_once(self) -> None:
        if hasattr(self, "store"):
            zero = timedelta()
            found = self.call(self.store.events, after=self.seen, limit=1000, wait=zero)
            self.seen = found[-1].id if found else self.seen
            self.added += [one.data["fire"] for one in found if one.kind == "fire_added"]
            assert self.added == [one.id for one in self.fires]

    @invariant()
    def every_run_has_its_intent(self) -> None:
        if hasattr(self, "store"):
            runs = self.call(self.store.runs, limit=1000)
            assert [(run.run_id, run.delivery, run.intent.attempt) for run in runs] == [
                (one.intent.run_id, one.sent, one.intent.attempt) for one in self.sendings[::-1]
            ]


@pytest.mark.slow
def test_the_store_does_what_a_plain_model_of_it_does() -> None:
    with start_blocking_portal() as portal:
        StoreMachine.portal = portal
        run_state_machine_as_test(
            StoreMachine,
            settings=settings(
                max_examples=30,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
