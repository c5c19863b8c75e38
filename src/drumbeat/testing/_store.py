"""What any store has to keep, as one plain function."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, TypeVar

import anyio
import attrs

from drumbeat.core.model import (
    Backlog,
    Cause,
    Claim,
    DeliveryIntent,
    Event,
    Fire,
    Mark,
    Receipt,
    Reply,
    RunRecord,
    RunState,
    TurnRecord,
    Usage,
    Verdict,
)
from drumbeat.errors import ClaimLost, DrumbeatError, EventsExpired, NotFound, Problem
from drumbeat.protocols import Store
from drumbeat.runtime.conclusion import unfinished

__all__ = ["check_store"]

T = TypeVar("T")

_NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_LEASE = timedelta(hours=1)


async def check_store(factory: Callable[[], Store]) -> None:
    """Check that a store keeps the contract of `drumbeat.protocols.Store`.

    Works on asyncio and trio, and needs no running engine. Leases are lapsed by opening as a
    holder, never by waiting.

    Args:
        factory: makes a store that is not open. All that it makes stand for one state, which is
            empty at first: two of them are two processes on one data folder.

    Raises:
        AssertionError: the store breaks the contract; the message says where.
    """
    for check in (
        _check_fires,
        _check_backlog,
        _check_folding,
        _check_claims,
        _check_giving_back,
        _check_follow_ups,
        _check_settling,
        _check_finishing,
        _check_marks,
        _check_intents,
        _check_conversations,
        _check_take_over,
        _check_runs,
        _check_neighbours,
        _check_events,
        _check_many_writers,
        _check_purge,
    ):
        store = factory()
        await store.open(holder="check-store", lease=_LEASE)
        try:
            await check(store)
        except (ClaimLost, NotFound, LookupError) as error:
            msg = f"the store breaks a rule: {type(error).__name__} in {check.__name__}: {error}"
            raise AssertionError(msg) from error
        else:
            rest = await store.fires(open=True)
            _same(rest, [], "every fire of a check ends settled")
        finally:
            await store.close()
            await store.close()
    await _check_reopening(factory)


# ---- what is checked


async def _check_fires(store: Store) -> None:
    fire = _fire("fires", "one", payload=b"\x00\xff", prompt="do", depth=2, cause="webhook")
    added = _only(await store.add_fires([fire]))
    _same(added, fire, "a fire comes back as it was put in")
    again = attrs.evolve(fire, id="fires-other", due=_NOW + _MINUTE)
    _same(await store.add_fires([again]), [fire], "one (slug, cause, slot) makes one fire")
    other = attrs.evolve(fire, id="fires-manual", cause="manual", payload=None)
    _same(await store.add_fires([other, again]), [other, fire], "another cause makes another fire")
    _same(await store.fires(slug="fires"), [other, fire], "fires are listed with the latest first")
    _same(await store.fires(slug="fires", limit=1), [other], "`limit` bounds a listing")
    many = [_fire("many", str(n), verdict="missed", reason="a day late") for n in range(101)]
    await store.add_fires(many)
    counted = len(await store.fires(slug="many", limit=None))
    _same(counted, 101, "a `limit` of None lists all fires")
    _same(await store.fires(id=fire.id), [fire], "a fire is found by its id")
    _same(await store.fires(id=fire.id, slug="nobody"), [], "every condition counts")
    light = await store.fires(slug="fires", payloads=False)
    _same(light, [other, attrs.evolve(fire, payload=None)], "payloads are left out when asked")
    early = _fire("fires", "early", due=_NOW - _MINUTE)
    missed = _fire("fires", "gone", verdict="missed", reason="a day late")
    await store.add_fires([missed, early])
    _same(
        await store.fires(slug="fires", open=True),
        [early, fire, other],
        "open fires are listed by due time, then in the order in which they came",
    )
    _same(await _stored(store, missed), missed, "a fire put in settled stays so")
    await _skip(store, early, fire, other)
    _same(
        _only(await store.add_fires([again])).verdict,
        "skipped",
        "a settled fire is remembered, and makes no second one",
    )


async def _check_backlog(store: Store) -> None:
    def up(slot: str, **rest: Any) -> Fire:
        return _fire("wait-b", slot, cause="follow-up", **rest)

    put_in = [
        _fire("wait-a", "1", cause="manual", due=_NOW + 2 * _MINUTE),
        _fire("wait-a", "2", cause="manual", due=_NOW + _MINUTE, created_at=_NOW + _MINUTE),
        up("1", due=_NOW - _MINUTE),
        up("2", due=_NOW + 3 * _MINUTE),
        up("3", due=_NOW + 4 * _MINUTE),
        up("4", due=_NOW + _MINUTE, verdict="skipped", reason="disabled"),
    ]
    await store.add_fires(put_in)
    first = Backlog(
        slug="wait-a",
        due=_NOW + _MINUTE,
        ahead=_NOW + 2 * _MINUTE,
        overdue=_NOW + _MINUTE,
        follow_ups=0,
    )
    second = Backlog(
        slug="wait-b",
        due=_NOW - _MINUTE,
        ahead=_NOW + 3 * _MINUTE,
        overdue=None,
        follow_ups=3,
    )
    _same(await store.backlog(now=_NOW), [first, second], "a backlog has one value for each slug")
    _same(await store.backlog(now=_NOW, slug="wait-b"), [second], "a backlog may be of one slug")
    claim = await _claim(store, "wait-run")
    _same(
        await store.backlog(now=_NOW + 3 * _MINUTE, slug="wait-b"),
        [attrs.evolve(second, ahead=_NOW + 4 * _MINUTE, follow_ups=2)],
        "a fire that is claimed is open, and no follow-up that waits; `ahead` is later than `now`",
    )
    await store.finish(claim, _run(claim, verdict="withhold"))
    await _skip(store, *put_in[:2], *put_in[3:5])
    _same(await store.backlog(now=_NOW), [], "what is settled is no backlog")


async def _check_folding(store: Store) -> None:
    first, second, third = (_fire("fold", str(n), due=_NOW + n * _MINUTE) for n in range(3))
    hook = _fire("fold", "hook", cause="webhook")
    await store.add_fires([hook], fold=True)
    stays = _only(await store.add_fires([first], fold=True))
    _same(stays.verdict, None, "a schedule fire does not fold into a webhook's")
    folded = _only(await store.add_fires([attrs.evolve(second, folded_slots=2)], fold=True))
    _same(folded.verdict, "folded", "a second schedule fire folds while the first waits")
    _same(folded.folded_into, first.id, "a folded fire names the one it went into")
    _true(folded.reason, "a folded fire says why")
    waiting = await _stored(store, first)
    _same(waiting.folded_slots, 3, "the waiting fire counts the folded one and what that stood for")
    late = _only(await store.add_fires([_fire("fold", "late", cause="manual")], fold=True))
    _same(late.verdict, None, "fires of other causes never fold")
    plain = _only(await store.add_fires([third]))
    _same(plain.verdict, None, "nothing folds unless it is asked for")
    await _skip(store, hook, late, third)
    claim = await _claim(store, "fold-run")
    after = _only(await store.add_fires([_fire("fold", "after")], fold=True))
    _same(after.verdict, None, "a fire that is claimed waits no longer, so nothing folds into it")
    await store.finish(claim, _run(claim))
    await _skip(store, after)


async def _check_claims(store: Store) -> None:
    a1, a2 = _fire("a", "1"), _fire("a", "2")
    b1 = _fire("b", "1", due=_NOW - _MINUTE)
    c1 = _fire("c", "1", due=_NOW + _MINUTE)
    await store.add_fires([a1, a2, b1, c1])
    first = await _claim(store, "run-b")
    _same(first.slug, "b", "the oldest due fire is claimed first")
    _same(first.fire, attrs.evolve(b1, attempt=1, run_id="run-b"), "a claim counts the attempt")
    _same(
        await _stored(store, b1), first.fire, "the store shows the claimed fire as the claim does"
    )
    skipped = await store.claim_fire(now=_NOW, run_id="run-x", skip={"a"})
    _same(skipped, None, "neither a skipped slug nor a taken one nor a later fire is claimed")
    named = _given(
        await store.claim_fire(now=_NOW, run_id="run-a2", fire=a2.id), "a due fire can be named"
    )
    _same(_of(named).id, a2.id, "the fire that is named is claimed, and none before it")
    await store.finish(named, None)
    early = await store.claim_fire(now=_NOW, run_id="x", fire=c1.id)
    _same(early, None, "a fire that is named has to be due all the same")
    second = await _claim(store, "run-a1")
    _same(_of(second).id, a1.id, "fires due at one time are claimed in the order they came in")
    taken = await store.claim_fire(now=_NOW, run_id="x", fire=a2.id)
    _same(taken, None, "a fire that is named is claimed once its slug is free")
    _same(await store.claim_fire(now=_NOW, run_id="x"), None, "a slug has one claim at a time")
    _same(await store.renew([first, second]), {"run-a1", "run-b"}, "claims that are held renew")
    await store.finish(second, _run(second))
    third = await _claim(store, "run-a2")
    _same(_of(third).id, a2.id, "a finished claim frees its slug")
    _true(third.token > second.token, "the token of a slug rises")
    _same(await store.renew([second]), set(), "a claim that ended is not held")
    await _lost(store.finish, second, _run(second))
    later = await store.claim_fire(now=_NOW + _MINUTE, run_id="run-c")
    _same(None if later is None else later.slug, "c", "a fire is claimed once it is due")
    for claim in (first, third, later):
        if claim is not None:
            await store.finish(claim, _run(claim))


async def _check_giving_back(store: Store) -> None:
    fire = _fire("back", "1")
    await store.add_fires([fire])
    claim = await _claim(store, "back-1")
    await store.record(claim=claim, run=_going(claim))
    await store.finish(claim, None)
    _same(await _stored(store, fire), fire, "a fire given back is as if never claimed")
    _same(await store.runs(target="back-1"), [], "a run given back leaves no run")
    claim = await _claim(store, "back-2")
    _same(_of(claim).attempt, 1, "a fire given back may be claimed again, as the same attempt")
    await store.finish(claim, None, again_at=_NOW + _MINUTE)
    _same(await store.claim_fire(now=_NOW, run_id="x"), None, "`again_at` puts a fire off")
    claim = await _claim(store, "back-3", now=_NOW + _MINUTE)
    await store.finish(claim, _run(claim, state="interrupted"), again_at=_NOW + 2 * _MINUTE)
    stored = await _stored(store, fire)
    _same(stored.verdict, None, "a run with `again_at` leaves its fire open")
    _same(stored.attempt, 1, "a run with `again_at` was an attempt")
    claim = await _claim(store, "back-4", now=_NOW + 2 * _MINUTE)
    _same(_of(claim).attempt, 2, "the next attempt counts on")
    await store.finish(claim, _run(claim))


async def _check_follow_ups(store: Store) -> None:
    await store.add_fires([_fire("up", "1")])
    claim = await _claim(store, "parent")
    await store.record(claim=claim, run=_going(claim))
    child = _fire("child", "1", cause="follow-up", parent_run="parent", depth=1, prompt="more")
    await store.add_fires([child])
    waits = await store.claim_fire(now=_NOW, run_id="x")
    _same(waits, None, "a follow-up waits until its parent run has finished")
    grandchild = _fire("grandchild", "1", cause="follow-up", parent_run="parent", prompt="still")
    await store.finish(claim, _run(claim, state="failed"), fires=[grandchild, child])
    for expected in (child, grandchild):
        claim = await _claim(store, f"run-{expected.id}")
        _same(_of(claim).id, expected.id, "a follow-up runs once its parent has finished")
        await store.finish(claim, _run(claim))


async def _check_settling(store: Store) -> None:
    fire, other = _fire("settle", "1"), _fire("settle", "2")
    await store.add_fires([fire, other])
    claim = await _claim(store, "settle-1")
    skipped = attrs.evolve(_of(claim), verdict="skipped", reason="disabled")
    await store.record(claim=claim, settled=[skipped])
    _same((await _stored(store, fire)).verdict, "skipped", "a claimed fire can be settled")
    await _lost(store.record, claim=claim)
    claim = await _claim(store, "settle-2")
    _same(_of(claim).id, other.id, "settling the fire of a claim frees its slug")
    await store.finish(claim, _run(claim))
    await store.record(settled=[attrs.evolve(other, verdict="missed", reason="late")])
    _same((await _stored(store, other)).verdict, "ran", "a fire that has a verdict keeps it")


async def _check_finishing(store: Store) -> None:
    await store.add_fires([_fire("end", "1")])
    claim = await _claim(store, "end-1")
    going = _going(claim)
    await store.record(claim=claim, run=going, events=[_event("run_started", "end")])
    shown = _only(await store.runs(target="end-1"))
    _same(attrs.evolve(shown, fire=going.fire), going, "a run that is going comes back as recorded")
    await store.record(marks=[Mark(key="end", value=1)])
    mark = _only(await store.marks("end"))
    before = len(await _all_events(store))
    await _lost(
        store.finish,
        claim,
        _run(claim),
        fires=[_fire("end", "more")],
        marks=[Mark(key="end", value=2, version=7)],
        events=[_event("run_completed", "end")],
    )
    _same(len(await _all_events(store)), before, "a transaction that fails appends no event")
    shown = _only(await store.runs(target="end-1"))
    _same(shown.state, "running", "a transaction that fails writes no run")
    _same(await store.renew([claim]), {"end-1"}, "a transaction that fails ends no claim")
    run = _run(claim)
    await store.finish(
        claim,
        run,
        marks=[attrs.evolve(mark, value=2)],
        events=[_event("run_completed", "end")],
    )
    stored = await _stored(store, _of(claim))
    _same((stored.verdict, stored.reason), ("ran", "succeeded"), "a finished run settles its fire")
    shown = _only(await store.runs(target="end-1"))
    _same(shown.fire, stored, "a run shows its fire as it stands")
    intent = shown.intent
    _same(
        attrs.evolve(
            shown,
            fire=run.fire,
            intent=None if intent is None else attrs.evolve(intent, fire=run.fire),
        ),
        run,
        "a finished run comes back as recorded, its intent included",
    )
    moved = _only(await store.marks("end"))
    _same(moved.value, 2, "marks move with the run")
    _same(moved.version, mark.version + 1, "the version of a mark that moves grows by 1")
    try:
        await store.record(run=attrs.evolve(run, fire=_fire("end", "nowhere")))
    except NotFound:
        pass
    else:
        _true(False, "a run of a fire that is not in the store raises NotFound")


async def _check_marks(store: Store) -> None:
    value = {"list": [1, 2.5, None, True], "text": "é"}
    await store.add_fires([], marks=[Mark(key="m/b", value=value), Mark(key="m/a", value=None)])
    await store.record(marks=[Mark(key="m_c", value=1)])
    found = await store.marks("m/")
    _same([mark.key for mark in found], ["m/a", "m/b"], "marks come by prefix, in order of keys")
    _same([mark.value for mark in found], [None, value], "the value of a mark is JSON, None too")
    _true(all(mark.version > 0 for mark in found), "a stored mark has a version above 0")
    await _lost(store.record, marks=[Mark(key="m/a", value=1)])
    await store.record(marks=[attrs.evolve(found[0], value=3)])
    await _lost(store.record, marks=[attrs.evolve(found[1], value=4), found[0]])
    await _lost(store.record, marks=[Mark(key="m/none", value=1, version=1)])
    await _lost(store.add_fires, [_fire("marks", "1")], marks=[found[0]])
    _same(await store.fires(slug="marks"), [], "a mark that moved keeps its fires out")
    values = [mark.value for mark in await store.marks("m")]
    _same(values, [3, value, 1], "a mark that moved keeps the others where they were")


async def _check_intents(store: Store) -> None:
    verdicts: list[tuple[str, Verdict]] = [
        ("i", "deliver"),
        ("i", "deliver"),
        ("j", "deliver"),
        ("k", "withhold"),
    ]
    for slug, verdict in verdicts:
        number = len(await store.runs())
        await store.add_fires([_fire(slug, f"intent-{number}")])
        claim = await _claim(store, f"intent-{number}")
        await store.finish(claim, _run(claim, verdict=verdict))
    withheld = _only(await store.runs(slug="k"))
    _same(withheld.delivery, None, "what is not to be delivered is not pending")
    done: list[DeliveryIntent] = []
    while (intent := await store.claim_intent(now=_NOW)) is not None and intent.slug not in {
        "i",
        "j",
    }:
        await store.settle_intent(intent, "delivered")
    first = _given(intent, "the oldest pending intent is leased")
    _same(
        (first.slug, first.attempt), ("i", 1), "the oldest intent comes first, its attempt counted"
    )
    second = _given(await store.claim_intent(now=_NOW), "another automation's intent is free")
    _same(second.slug, "j", "an intent that is out holds up its own automation only")
    _same(await store.claim_intent(now=_NOW), None, "a leased intent is not leased again")
    retry = _NOW + _MINUTE
    await store.settle_intent(first, "pending", retry_at=retry, events=[_event("failed", "i")])
    _same(
        await store.claim_intent(now=_NOW),
        None,
        "a retry waits, and newer ones of its slug with it",
    )
    again = _given(await store.claim_intent(now=retry), "a retry comes back in time")
    _same((again.id, again.attempt), (first.id, 2), "a retry has the same id and the next attempt")
    receipt = Receipt(id="chat-1", url="https://example.invalid/1")
    await store.settle_intent(again, "delivered", receipt=receipt)
    await store.settle_intent(again, "abandoned", events=[_event("never", "i")])
    run = _only(await store.runs(target="chat-1"))
    _same((run.delivery, run.receipt), ("delivered", receipt), "a delivered intent stays delivered")
    _same(_given(run.intent, "the run has its intent").attempt, 2, "a run shows the last attempt")
    _true(
        "never" not in [event.kind for event in await _all_events(store)],
        "settling what is settled appends nothing",
    )
    third = _given(await store.claim_intent(now=_NOW), "the next of the slug comes after the first")
    for intent in (second, third):
        await store.settle_intent(intent, "abandoned")
        done.append(intent)
    abandoned = {run.intent.id for run in await store.runs(sent="abandoned") if run.intent}
    _same(abandoned, {intent.id for intent in done}, "runs can be asked for by what became of them")
    try:
        await store.settle_intent(attrs.evolve(first, id="nobody"), "delivered")
    except NotFound:
        return
    _true(False, "settling an unknown intent raises NotFound")


async def _check_conversations(store: Store) -> None:
    mine = _given(await store.hold("talk", run_id="run-1"), "a free conversation can be held")
    _same(mine.fire, None, "a claim on a conversation has no fire")
    _same(await store.hold("talk", run_id="run-2"), None, "a conversation has one holder")
    _same(await store.hold("talk", run_id="run-1"), mine, "its holder gets its claim again")
    _same(await store.renew([mine]), {"run-1"}, "a conversation is renewed as a fire is")
    await store.finish(mine, None, events=[_event("reply_completed", None)])
    theirs = _given(await store.hold("talk", run_id="run-2"), "finishing frees a conversation")
    _same(await store.renew([mine]), set(), "a freed conversation is not held")
    await _lost(store.finish, mine, None)
    await store.finish(theirs, None)
    await store.add_fires([_fire("talk", "1")])
    claim = await _claim(store, "talk-run")
    await store.hold("talk", run_id="talk-run")
    await store.finish(claim, _run(claim))
    freed = _given(await store.hold("talk", run_id="x"), "a run that ends frees its conversations")
    run = _only(await store.runs(target="talk-run"))
    await store.record(claim=freed, run=attrs.evolve(run, turns=run.turns * 2, handle="later"))
    after = _only(await store.runs(target="talk-run"))
    _same(len(after.turns), 2 * len(run.turns), "a finished run is given the turns of replies")
    _same((after.handle, after.intent), ("later", run.intent), "and keeps its intent")
    event = _event("reply_completed", None)
    before = await _all_events(store)
    try:
        await store.finish(
            freed, None, runs=[run, attrs.evolve(run, run_id="nowhere")], events=[event]
        )
    except NotFound:
        pass
    else:
        _true(False, "writing a run again that is not in the store raises NotFound")
    _same(_only(await store.runs(target="talk-run")), after, "and writes none of the others")
    again = attrs.evolve(after, turns=run.turns * 3)
    await store.finish(freed, None, runs=[again], events=[event])
    stored = _only(await store.runs(target="talk-run"))
    _same(stored, again, "what a reply added is written as its conversation is freed")
    _same(len(await _all_events(store)), len(before) + 1, "with its event, once")
    await _lost(store.record, claim=freed, run=run)
    await _lost(store.finish, freed, None, runs=[run])


async def _check_take_over(store: Store) -> None:
    fire = _fire("over", "1")
    await store.add_fires([fire])
    old = await _claim(store, "over-run")
    talk = _given(await store.hold("over", run_id="over-run"), "a free conversation can be held")
    _same(await store.take_over(), [], "a claim that lives is not taken over")
    await store.open(holder="the next", lease=_LEASE)
    _same(await store.claim_fire(now=_NOW, run_id="x"), None, "a lapsed claim keeps its slug")
    taken = _only(await store.take_over())
    _same(taken.fire, old.fire, "a lapsed claim is taken over with its fire")
    _same(taken.run_id, "over-run", "a lapsed claim keeps the id of its run")
    _true(taken.token > old.token, "a claim is taken over under a new token")
    _same(await store.take_over(), [], "a claim is taken over once")
    await _lost(store.finish, old, _run(old))
    await _lost(store.record, claim=old, events=[_event("late", "over")])
    await _lost(store.finish, talk, None)
    _same(await store.renew([old, taken]), set(), "a run with a lost claim is not held")
    freed = _given(await store.hold("over", run_id="y"), "taking over frees lapsed conversations")
    await store.finish(freed, None)
    await store.finish(taken, _run(taken, state="interrupted"))
    _same((await _stored(store, fire)).reason, "interrupted", "who took over settles the fire")


async def _check_neighbours(store: Store) -> None:
    day = timedelta(days=1)
    await store.add_fires(
        [
            _fire("near", str(number), due=_NOW + number * day, verdict="missed", reason="late")
            for number in range(6)
        ]
    )
    found = await store.fires(slug="near", around=_NOW + 2 * day, limit=4)
    assert [fire.due for fire in found] == [_NOW + number * day for number in (1, 2, 3, 4)], (
        "fires(around=…) gives half of `limit` due by that instant and half due later, by due time"
    )
    assert await store.invalid_runs() == [], "invalid_runs() names runs without an intent alone"


async def _check_runs(store: Store) -> None:
    for number in range(3):
        await store.add_fires([_fire("runs", str(number), payload=b"{}")])
        claim = await _claim(store, f"runs-{number}")
        started = _NOW + number * _MINUTE
        run = attrs.evolve(_run(claim), started_at=started, session_id=f"session-{number % 2}")
        await store.finish(claim, run)

    async def ids(**where: Any) -> list[str]:
        return [run.run_id for run in await store.runs(**where)]

    _same(await ids(slug="runs"), ["runs-2", "runs-1", "runs-0"], "the latest run comes first")
    _same(await ids(slug="runs", limit=2), ["runs-2", "runs-1"], "`limit` bounds the runs")
    _same(len(await ids(slug="runs", limit=None)), 3, "a `limit` of None shows all runs")
    _same(await ids(target="session-0"), ["runs-2", "runs-0"], "runs are found by conversation")
    _same(await ids(target="runs-1"), ["runs-1"], "a run is found by its id")
    _same(await ids(slug="nobody"), [], "nothing is found for an unknown slug")
    for payloads in (True, False):
        shown = _only(await store.runs(target="runs-2", payloads=payloads))
        found = {shown.fire.payload, _given(shown.intent, "a run has its intent").fire.payload}
        _same(found, {b"{}" if payloads else None}, "runs are shown with payloads, or without")
    while (intent := await store.claim_intent(now=_NOW)) is not None:
        await store.settle_intent(intent, "delivered")


async def _check_events(store: Store) -> None:
    before = await _all_events(store)
    last = before[-1].id if before else 0
    data = {"number": 1, "nested": {"list": ["x"]}}
    fire = _fire("events", "1")
    await store.add_fires([fire], events=[attrs.evolve(_event("mine", "events"), data=data)])
    found = await store.events(after=last, limit=10, wait=timedelta())
    _same(
        sorted(event.kind for event in found), ["fire_added", "mine"], "each fire makes one event"
    )
    for event in found:
        if event.kind == "fire_added":
            _same(event.data["fire"], fire.id, "`fire_added` names the fire")
        else:
            _same((event.data, event.at), (data, _NOW), "an event comes back as it was given")
    ids = [event.id for event in found]
    _true(ids == sorted(set(ids)) and ids[0] > last, "ids of events rise")
    _same(
        await store.events(after=last, limit=1, wait=timedelta()),
        found[:1],
        "`limit` bounds events",
    )
    await store.add_fires([fire])
    rest = await store.events(after=ids[-1], limit=10, wait=timedelta())
    _same(rest, [], "a fire that is there already makes no event")
    heard: list[Event] = []

    async def listen() -> None:
        heard.extend(await store.events(after=ids[-1], limit=10, wait=timedelta(seconds=30)))

    with anyio.move_on_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            await store.record(events=[_event("woke", None)])
    _same([event.kind for event in heard], ["woke"], "who waits for events gets the next")
    await _skip(store, fire)


async def _check_many_writers(store: Store) -> None:
    wanted = [_fire(f"many-{number % 4}", str(number)) for number in range(24)]
    lost: list[int] = []

    async def add(number: int) -> None:
        marks = [Mark(key="many", value=number, version=99)] if number % 3 == 0 else []
        try:
            await store.add_fires([wanted[number]], marks=marks)
        except ClaimLost:
            lost.append(number)

    async with anyio.create_task_group() as group:
        for number in range(len(wanted)):
            group.start_soon(add, number)
    expected = [fire for number, fire in enumerate(wanted) if number % 3]
    _same(sorted(lost), list(range(0, 24, 3)), "each writer hears of its own failure only")
    open_now = {fire.id for fire in await store.fires(open=True)}
    _same(open_now, {fire.id for fire in expected}, "one writer's failure touches no other")
    await _skip(store, *expected)


async def _check_purge(store: Store) -> None:
    day = timedelta(days=1)
    added = [_fire(slug, "1") for slug in ("purge-old", "purge-pending", "purge-going")]
    await store.add_fires([added[0]])
    old = await _claim(store, "purge-old")
    # By the later of the two clocks: that of these values, and that of the store.
    base = max(event.at for event in await _all_events(store))
    old_run = attrs.evolve(_run(old, verdict="withhold"), finished_at=base)
    await store.finish(old, old_run)
    await store.add_fires([added[1]])
    pending = await _claim(store, "purge-pending")
    await store.finish(pending, attrs.evolve(_run(pending), finished_at=base))
    await store.add_fires([added[2]])
    going = await _claim(store, "purge-going")
    none, kept = Mark(key="purge:none", value=None), Mark(key="purge:zero", value=0)
    event = attrs.evolve(_event("young", None), at=base + 5 * day)
    await store.record(claim=going, run=_going(going), marks=[none, kept], events=[event])
    version = _only(await store.marks(none.key)).version
    last = (await _all_events(store))[-1].id

    async def there(slug: str) -> tuple[int, int]:
        return len(await store.runs(slug=slug)), len(await store.fires(slug=slug))

    await _purge(store, base + 6 * day, keep_events=1000 * day, keep_runs=7 * day)
    _same(await there("purge-old"), (1, 1), "what is young is kept")
    marks = [mark.key for mark in await store.marks("purge:")]
    _same(marks, ["purge:zero"], "a mark whose value is None is forgotten, and no other")
    await store.record(marks=[attrs.evolve(none, value="again")])
    again_there = _only(await store.marks(none.key))
    _true(again_there.version > version, "the versions of a key never come again")
    await _lost(store.record, marks=[Mark(key=none.key, value="stale", version=version)])
    await store.record(marks=[attrs.evolve(again_there, value=None)])
    await _purge(store, base + 6 * day, keep_events=3 * day, keep_runs=day)
    _same(await there("purge-old"), (0, 1), "an old run goes; a fire stays 7 days after it settled")
    again = _only(await store.add_fires([attrs.evolve(added[0], id="purge-again")]))
    _same(again.verdict, "ran", "a fire that is remembered makes no second one")
    _same(
        [one.kind for one in await store.events(after=last - 1, limit=9, wait=timedelta())],
        ["young"],
        "old events go, those behind them stay",
    )
    try:
        await store.events(after=0, limit=9, wait=timedelta())
    except EventsExpired as expired:
        _same(expired.after, last - 1, "EventsExpired says from where on there are events")
    else:
        _true(False, "reading from before what is kept raises EventsExpired")
    await _purge(store, base + 900 * day, keep_events=day, keep_runs=day)
    _same(await there("purge-old"), (0, 0), "a fire whose runs are gone goes with time")
    _same(await there("purge-pending"), (1, 1), "what is still to be delivered is kept")
    _same(await there("purge-going"), (1, 1), "what has not ended is kept")
    rest = await store.events(after=last, limit=9, wait=timedelta())
    _same(rest, [], "all events may go, and reading goes on behind the last of them")
    try:
        await store.events(after=last + 1, limit=9, wait=timedelta())
    except EventsExpired as expired:
        _same(expired.after, last, "EventsExpired says from where on there are events")
    else:
        _true(False, "reading behind an id that was never given out raises EventsExpired")
    intent = _given(await store.claim_intent(now=base), "an old intent is still delivered")
    await store.settle_intent(intent, "delivered")
    ended = attrs.evolve(_run(going, verdict="withhold"), finished_at=base)
    await store.finish(going, ended)
    await _purge(store, base + 900 * day, keep_events=day, keep_runs=day)
    _same(await there("purge-pending"), (0, 0), "what was delivered goes in its turn")
    _same(await there("purge-going"), (0, 0), "and so does what has ended")


async def _purge(store: Store, now: datetime, **keep: timedelta) -> None:
    for _ in range(100):
        purged = await store.purge(
            now=now, keep_events=keep["keep_events"], keep_runs=keep["keep_runs"]
        )
        if purged.complete:
            return
    msg = "the store breaks a rule: `purge` comes to an end when it is called again"
    raise AssertionError(msg)


async def _check_reopening(factory: Callable[[], Store]) -> None:
    store, client = factory(), factory()
    await store.open(holder="check-store", lease=_LEASE)
    try:
        await client.open(holder=None, lease=_LEASE)
        await client.add_fires([_fire("again", "1")])
        claim = await _claim(store, "again-1")
    finally:
        await client.close()
        await store.close()
    for call in (store.fires, store.take_over):
        try:
            await call()
        except DrumbeatError:
            continue
        _true(False, "a closed store raises StoreError")
    client = factory()
    await client.open(holder=None, lease=_LEASE)
    try:
        _same(await client.renew([claim]), {"again-1"}, "opening as a client lapses nothing")
    finally:
        await client.close()
    store = factory()
    await store.open(holder="check-store", lease=_LEASE)
    try:
        taken = _only(await store.take_over())
        _same(taken.fire, claim.fire, "claims survive, and opening as a holder lapses them")
        await store.finish(taken, _run(taken))
    finally:
        await store.close()


# ---- how it is said


def _true(value: object, rule: str) -> None:
    if not value:
        msg = f"the store breaks a rule: {rule}"
        raise AssertionError(msg)


def _same(found: object, wanted: object, rule: str) -> None:
    if found != wanted:
        msg = f"the store breaks a rule: {rule}\n  found  {found!r}\n  wanted {wanted!r}"
        raise AssertionError(msg)


def _given(value: T | None, rule: str) -> T:
    _true(value is not None, rule)
    return value  # type: ignore[return-value]  # checked just before


def _only(found: Sequence[T]) -> T:
    _same(len(found), 1, f"one value is wanted of {found!r}")
    return found[0]


def _of(claim: Claim) -> Fire:
    return _given(claim.fire, "a claim of a fire has the fire")


async def _lost(call: Callable[..., Any], *args: Any, **given: Any) -> None:
    try:
        await call(*args, **given)
    except ClaimLost:
        return
    name = getattr(call, "__name__", "a call")
    _true(False, f"{name} raises ClaimLost for a claim that ended or a mark that moved")


async def _stored(store: Store, fire: Fire) -> Fire:
    found = [one for one in await store.fires(slug=fire.slug) if one.id == fire.id]
    _same(len(found), 1, f"the fire {fire.id} is in the store once")
    return found[0]


async def _claim(store: Store, run_id: str, *, now: datetime = _NOW) -> Claim:
    return _given(await store.claim_fire(now=now, run_id=run_id), "a due fire can be claimed")


async def _skip(store: Store, *fires: Fire) -> None:
    skipped = [attrs.evolve(fire, verdict="skipped", reason="the check is over") for fire in fires]
    await store.record(settled=skipped)


async def _all_events(store: Store) -> Sequence[Event]:
    return await store.events(after=0, limit=10_000, wait=timedelta())


# ---- what it is said about


def _fire(slug: str, slot: str, *, cause: Cause = "schedule", **rest: Any) -> Fire:
    given: dict[str, Any] = {"due": _NOW, "created_at": _NOW - _MINUTE, **rest}
    return Fire(id=f"{slug}-{cause}-{slot}", slug=slug, cause=cause, slot=slot, **given)


def _event(kind: str, slug: str | None) -> Event:
    return Event(id=0, at=_NOW, kind=kind, slug=slug, run_id=None, data={})


def _going(claim: Claim) -> RunRecord:
    return attrs.evolve(unfinished(claim, _of(claim), at=_NOW), config_hash="hash")


def _run(claim: Claim, *, state: RunState = "succeeded", verdict: Verdict = "deliver") -> RunRecord:
    fire = _of(claim)
    usage = Usage(input_tokens=3, output_tokens=2, cost_usd=Decimal("0.10"))
    session = f"session of {claim.run_id}"
    turn = TurnRecord(
        turn_id=f"turn of {claim.run_id}",
        origin="step",
        step_id="only",
        attempts=1,
        started_at=_NOW,
        finished_at=_NOW + timedelta(microseconds=1),
        reply=Reply(text="said ✓", usage=usage, provider="p", model=None, handle="h"),
    )
    intent = DeliveryIntent(
        id=f"intent of {claim.run_id}",
        run_id=claim.run_id,
        slug=claim.slug,
        name="A name",
        session_id=session,
        fire=fire,
        created_at=_NOW,
        attempt=0,
        verdict=verdict,
        gate="policy-always",
        reason="the policy says so",
        text="said ✓",
    )
    failure = Problem(
        code="agent-error", message="m", remedy="r", path=PurePath("jobs/a.md"), line=1
    )
    return attrs.evolve(
        _going(claim),
        state=state,
        finished_at=_NOW + _MINUTE,
        session_id=session,
        rotation="fresh",
        turns=(turn,),
        usage=usage,
        failure=None if state == "succeeded" else failure,
        intent=intent,
        delivery="pending" if verdict == "deliver" else None,
    )
