"""What a store has to keep of work: fires, claims, conversations and marks."""

from typing import Any

import attrs

from drumbeat.core.model import (
    Backlog,
    Fire,
    Mark,
)
from drumbeat.errors import NotFound
from drumbeat.protocols import Store
from drumbeat.testing._store_parts import (
    LEASE,
    MINUTE,
    NOW,
    a_fire,
    all_events,
    an_event,
    claimed,
    ended_run,
    fire_of,
    going_run,
    holds,
    is_lost,
    is_there,
    only,
    same,
    skip,
    stored_fire,
)

__all__ = [
    "check_backlog",
    "check_claims",
    "check_conversations",
    "check_finishing",
    "check_fires",
    "check_folding",
    "check_follow_ups",
    "check_giving_back",
    "check_marks",
    "check_settling",
    "check_take_over",
]


async def check_fires(store: Store) -> None:
    fire = a_fire("fires", "one", payload=b"\x00\xff", prompt="do", depth=2, cause="webhook")
    added = only(await store.add_fires([fire]))
    same(added, fire, "a fire comes back as it was put in")
    again = attrs.evolve(fire, id="fires-other", due=NOW + MINUTE)
    same(await store.add_fires([again]), [fire], "one (slug, cause, slot) makes one fire")
    other = attrs.evolve(fire, id="fires-manual", cause="manual", payload=None)
    same(await store.add_fires([other, again]), [other, fire], "another cause makes another fire")
    same(await store.fires(slug="fires"), [other, fire], "fires are listed with the latest first")
    same(await store.fires(slug="fires", limit=1), [other], "`limit` bounds a listing")
    many = [a_fire("many", str(n), verdict="missed", reason="a day late") for n in range(101)]
    await store.add_fires(many)
    counted = len(await store.fires(slug="many", limit=None))
    same(counted, 101, "a `limit` of None lists all fires")
    same(await store.fires(id=fire.id), [fire], "a fire is found by its id")
    same(await store.fires(id=fire.id, slug="nobody"), [], "every condition counts")
    light = await store.fires(slug="fires", payloads=False)
    same(light, [other, attrs.evolve(fire, payload=None)], "payloads are left out when asked")
    early = a_fire("fires", "early", due=NOW - MINUTE)
    missed = a_fire("fires", "gone", verdict="missed", reason="a day late")
    await store.add_fires([missed, early])
    same(
        await store.fires(slug="fires", open=True),
        [early, fire, other],
        "open fires are listed by due time, then in the order in which they came",
    )
    same(await stored_fire(store, missed), missed, "a fire put in settled stays so")
    await skip(store, early, fire, other)
    same(
        only(await store.add_fires([again])).verdict,
        "skipped",
        "a settled fire is remembered, and makes no second one",
    )


async def check_backlog(store: Store) -> None:
    def up(slot: str, **rest: Any) -> Fire:
        return a_fire("wait-b", slot, cause="follow-up", **rest)

    put_in = [
        a_fire("wait-a", "1", cause="manual", due=NOW + 2 * MINUTE),
        a_fire("wait-a", "2", cause="manual", due=NOW + MINUTE, created_at=NOW + MINUTE),
        up("1", due=NOW - MINUTE),
        up("2", due=NOW + 3 * MINUTE),
        up("3", due=NOW + 4 * MINUTE),
        up("4", due=NOW + MINUTE, verdict="skipped", reason="disabled"),
    ]
    await store.add_fires(put_in)
    first = Backlog(
        slug="wait-a",
        due=NOW + MINUTE,
        ahead=NOW + 2 * MINUTE,
        overdue=NOW + MINUTE,
        follow_ups=0,
    )
    second = Backlog(
        slug="wait-b",
        due=NOW - MINUTE,
        ahead=NOW + 3 * MINUTE,
        overdue=None,
        follow_ups=3,
    )
    same(await store.backlog(now=NOW), [first, second], "a backlog has one value for each slug")
    same(await store.backlog(now=NOW, slug="wait-b"), [second], "a backlog may be of one slug")
    claim = await claimed(store, "wait-run")
    same(
        await store.backlog(now=NOW + 3 * MINUTE, slug="wait-b"),
        [attrs.evolve(second, ahead=NOW + 4 * MINUTE, follow_ups=2)],
        "a fire that is claimed is open, and no follow-up that waits; `ahead` is later than `now`",
    )
    await store.finish(claim, ended_run(claim, verdict="withhold"))
    await skip(store, *put_in[:2], *put_in[3:5])
    same(await store.backlog(now=NOW), [], "what is settled is no backlog")


async def check_folding(store: Store) -> None:
    first, second, third = (a_fire("fold", str(n), due=NOW + n * MINUTE) for n in range(3))
    hook = a_fire("fold", "hook", cause="webhook")
    await store.add_fires([hook], fold=True)
    stays = only(await store.add_fires([first], fold=True))
    same(stays.verdict, None, "a schedule fire does not fold into a webhook's")
    folded = only(await store.add_fires([attrs.evolve(second, folded_slots=2)], fold=True))
    same(folded.verdict, "folded", "a second schedule fire folds while the first waits")
    same(folded.folded_into, first.id, "a folded fire names the one it went into")
    holds(folded.reason, "a folded fire says why")
    waiting = await stored_fire(store, first)
    same(waiting.folded_slots, 3, "the waiting fire counts the folded one and what that stood for")
    late = only(await store.add_fires([a_fire("fold", "late", cause="manual")], fold=True))
    same(late.verdict, None, "fires of other causes never fold")
    plain = only(await store.add_fires([third]))
    same(plain.verdict, None, "nothing folds unless it is asked for")
    await skip(store, hook, late, third)
    claim = await claimed(store, "fold-run")
    after = only(await store.add_fires([a_fire("fold", "after")], fold=True))
    same(after.verdict, None, "a fire that is claimed waits no longer, so nothing folds into it")
    await store.finish(claim, ended_run(claim))
    await skip(store, after)


async def check_claims(store: Store) -> None:
    a1, a2 = a_fire("a", "1"), a_fire("a", "2")
    b1 = a_fire("b", "1", due=NOW - MINUTE)
    c1 = a_fire("c", "1", due=NOW + MINUTE)
    await store.add_fires([a1, a2, b1, c1])
    first = await claimed(store, "run-b")
    same(first.slug, "b", "the oldest due fire is claimed first")
    same(first.fire, attrs.evolve(b1, attempt=1, run_id="run-b"), "a claim counts the attempt")
    same(
        await stored_fire(store, b1),
        first.fire,
        "the store shows the claimed fire as the claim does",
    )
    skipped = await store.claim_fire(now=NOW, run_id="run-x", skip={"a"})
    same(skipped, None, "neither a skipped slug nor a taken one nor a later fire is claimed")
    named = is_there(
        await store.claim_fire(now=NOW, run_id="run-a2", fire=a2.id), "a due fire can be named"
    )
    same(fire_of(named).id, a2.id, "the fire that is named is claimed, and none before it")
    await store.finish(named, None)
    early = await store.claim_fire(now=NOW, run_id="x", fire=c1.id)
    same(early, None, "a fire that is named has to be due all the same")
    second = await claimed(store, "run-a1")
    same(fire_of(second).id, a1.id, "fires due at one time are claimed in the order they came in")
    taken = await store.claim_fire(now=NOW, run_id="x", fire=a2.id)
    same(taken, None, "a fire that is named is claimed once its slug is free")
    same(await store.claim_fire(now=NOW, run_id="x"), None, "a slug has one claim at a time")
    same(await store.renew([first, second]), {"run-a1", "run-b"}, "claims that are held renew")
    await store.finish(second, ended_run(second))
    third = await claimed(store, "run-a2")
    same(fire_of(third).id, a2.id, "a finished claim frees its slug")
    holds(third.token > second.token, "the token of a slug rises")
    same(await store.renew([second]), set(), "a claim that ended is not held")
    await is_lost(store.finish, second, ended_run(second))
    later = await store.claim_fire(now=NOW + MINUTE, run_id="run-c")
    same(None if later is None else later.slug, "c", "a fire is claimed once it is due")
    for claim in (first, third, later):
        if claim is not None:
            await store.finish(claim, ended_run(claim))


async def check_giving_back(store: Store) -> None:
    fire = a_fire("back", "1")
    await store.add_fires([fire])
    claim = await claimed(store, "back-1")
    await store.record(claim=claim, run=going_run(claim))
    await store.finish(claim, None)
    same(await stored_fire(store, fire), fire, "a fire given back is as if never claimed")
    same(await store.runs(target="back-1"), [], "a run given back leaves no run")
    claim = await claimed(store, "back-2")
    same(fire_of(claim).attempt, 1, "a fire given back may be claimed again, as the same attempt")
    await store.finish(claim, None, again_at=NOW + MINUTE)
    same(await store.claim_fire(now=NOW, run_id="x"), None, "`again_at` puts a fire off")
    claim = await claimed(store, "back-3", now=NOW + MINUTE)
    await store.finish(claim, ended_run(claim, state="interrupted"), again_at=NOW + 2 * MINUTE)
    stored = await stored_fire(store, fire)
    same(stored.verdict, None, "a run with `again_at` leaves its fire open")
    same(stored.attempt, 1, "a run with `again_at` was an attempt")
    claim = await claimed(store, "back-4", now=NOW + 2 * MINUTE)
    same(fire_of(claim).attempt, 2, "the next attempt counts on")
    await store.finish(claim, ended_run(claim))


async def check_follow_ups(store: Store) -> None:
    await store.add_fires([a_fire("up", "1")])
    claim = await claimed(store, "parent")
    await store.record(claim=claim, run=going_run(claim))
    child = a_fire("child", "1", cause="follow-up", parent_run="parent", depth=1, prompt="more")
    await store.add_fires([child])
    waits = await store.claim_fire(now=NOW, run_id="x")
    same(waits, None, "a follow-up waits until its parent run has finished")
    grandchild = a_fire("grandchild", "1", cause="follow-up", parent_run="parent", prompt="still")
    await store.finish(claim, ended_run(claim, state="failed"), fires=[grandchild, child])
    for expected in (child, grandchild):
        claim = await claimed(store, f"run-{expected.id}")
        same(fire_of(claim).id, expected.id, "a follow-up runs once its parent has finished")
        await store.finish(claim, ended_run(claim))


async def check_settling(store: Store) -> None:
    fire, other = a_fire("settle", "1"), a_fire("settle", "2")
    await store.add_fires([fire, other])
    claim = await claimed(store, "settle-1")
    skipped = attrs.evolve(fire_of(claim), verdict="skipped", reason="disabled")
    await store.record(claim=claim, settled=[skipped])
    same((await stored_fire(store, fire)).verdict, "skipped", "a claimed fire can be settled")
    await is_lost(store.record, claim=claim)
    claim = await claimed(store, "settle-2")
    same(fire_of(claim).id, other.id, "settling the fire of a claim frees its slug")
    await store.finish(claim, ended_run(claim))
    await store.record(settled=[attrs.evolve(other, verdict="missed", reason="late")])
    same((await stored_fire(store, other)).verdict, "ran", "a fire that has a verdict keeps it")


async def check_finishing(store: Store) -> None:
    await store.add_fires([a_fire("end", "1")])
    claim = await claimed(store, "end-1")
    going = going_run(claim)
    await store.record(claim=claim, run=going, events=[an_event("run_started", "end")])
    shown = only(await store.runs(target="end-1"))
    same(attrs.evolve(shown, fire=going.fire), going, "a run that is going comes back as recorded")
    await store.record(marks=[Mark(key="end", value=1)])
    mark = only(await store.marks("end"))
    before = len(await all_events(store))
    await is_lost(
        store.finish,
        claim,
        ended_run(claim),
        fires=[a_fire("end", "more")],
        marks=[Mark(key="end", value=2, version=7)],
        events=[an_event("run_completed", "end")],
    )
    same(len(await all_events(store)), before, "a transaction that fails appends no event")
    shown = only(await store.runs(target="end-1"))
    same(shown.state, "running", "a transaction that fails writes no run")
    same(await store.renew([claim]), {"end-1"}, "a transaction that fails ends no claim")
    run = ended_run(claim)
    await store.finish(
        claim,
        run,
        marks=[attrs.evolve(mark, value=2)],
        events=[an_event("run_completed", "end")],
    )
    stored = await stored_fire(store, fire_of(claim))
    same((stored.verdict, stored.reason), ("ran", "succeeded"), "a finished run settles its fire")
    shown = only(await store.runs(target="end-1"))
    same(shown.fire, stored, "a run shows its fire as it stands")
    intent = shown.intent
    same(
        attrs.evolve(
            shown,
            fire=run.fire,
            intent=None if intent is None else attrs.evolve(intent, fire=run.fire),
        ),
        run,
        "a finished run comes back as recorded, its intent included",
    )
    moved = only(await store.marks("end"))
    same(moved.value, 2, "marks move with the run")
    same(moved.version, mark.version + 1, "the version of a mark that moves grows by 1")
    try:
        await store.record(run=attrs.evolve(run, fire=a_fire("end", "nowhere")))
    except NotFound:
        pass
    else:
        holds(False, "a run of a fire that is not in the store raises NotFound")


async def check_marks(store: Store) -> None:
    value = {"list": [1, 2.5, None, True], "text": "é"}
    await store.add_fires([], marks=[Mark(key="m/b", value=value), Mark(key="m/a", value=None)])
    await store.record(marks=[Mark(key="m_c", value=1)])
    found = await store.marks("m/")
    same([mark.key for mark in found], ["m/a", "m/b"], "marks come by prefix, in order of keys")
    same([mark.value for mark in found], [None, value], "the value of a mark is JSON, None too")
    holds(all(mark.version > 0 for mark in found), "a stored mark has a version above 0")
    await is_lost(store.record, marks=[Mark(key="m/a", value=1)])
    await store.record(marks=[attrs.evolve(found[0], value=3)])
    await is_lost(store.record, marks=[attrs.evolve(found[1], value=4), found[0]])
    await is_lost(store.record, marks=[Mark(key="m/none", value=1, version=1)])
    await is_lost(store.add_fires, [a_fire("marks", "1")], marks=[found[0]])
    same(await store.fires(slug="marks"), [], "a mark that moved keeps its fires out")
    values = [mark.value for mark in await store.marks("m")]
    same(values, [3, value, 1], "a mark that moved keeps the others where they were")


async def check_conversations(store: Store) -> None:
    mine = is_there(await store.hold("talk", run_id="run-1"), "a free conversation can be held")
    same(mine.fire, None, "a claim on a conversation has no fire")
    same(await store.hold("talk", run_id="run-2"), None, "a conversation has one holder")
    same(await store.hold("talk", run_id="run-1"), mine, "its holder gets its claim again")
    same(await store.renew([mine]), {"run-1"}, "a conversation is renewed as a fire is")
    await store.finish(mine, None, events=[an_event("reply_completed", None)])
    theirs = is_there(await store.hold("talk", run_id="run-2"), "finishing frees a conversation")
    same(await store.renew([mine]), set(), "a freed conversation is not held")
    await is_lost(store.finish, mine, None)
    await store.finish(theirs, None)
    await store.add_fires([a_fire("talk", "1")])
    claim = await claimed(store, "talk-run")
    await store.hold("talk", run_id="talk-run")
    await store.finish(claim, ended_run(claim))
    freed = is_there(
        await store.hold("talk", run_id="x"), "a run that ends frees its conversations"
    )
    run = only(await store.runs(target="talk-run"))
    await store.record(claim=freed, run=attrs.evolve(run, turns=run.turns * 2, handle="later"))
    after = only(await store.runs(target="talk-run"))
    same(len(after.turns), 2 * len(run.turns), "a finished run is given the turns of replies")
    same((after.handle, after.intent), ("later", run.intent), "and keeps its intent")
    event = an_event("reply_completed", None)
    before = await all_events(store)
    try:
        await store.finish(
            freed, None, runs=[run, attrs.evolve(run, run_id="nowhere")], events=[event]
        )
    except NotFound:
        pass
    else:
        holds(False, "writing a run again that is not in the store raises NotFound")
    same(only(await store.runs(target="talk-run")), after, "and writes none of the others")
    again = attrs.evolve(after, turns=run.turns * 3)
    await store.finish(freed, None, runs=[again], events=[event])
    stored = only(await store.runs(target="talk-run"))
    same(stored, again, "what a reply added is written as its conversation is freed")
    same(len(await all_events(store)), len(before) + 1, "with its event, once")
    await is_lost(store.record, claim=freed, run=run)
    await is_lost(store.finish, freed, None, runs=[run])


async def check_take_over(store: Store) -> None:
    fire = a_fire("over", "1")
    await store.add_fires([fire])
    old = await claimed(store, "over-run")
    talk = is_there(await store.hold("over", run_id="over-run"), "a free conversation can be held")
    same(await store.take_over(), [], "a claim that lives is not taken over")
    await store.open(holder="the next", lease=LEASE)
    same(await store.claim_fire(now=NOW, run_id="x"), None, "a lapsed claim keeps its slug")
    taken = only(await store.take_over())
    same(taken.fire, old.fire, "a lapsed claim is taken over with its fire")
    same(taken.run_id, "over-run", "a lapsed claim keeps the id of its run")
    holds(taken.token > old.token, "a claim is taken over under a new token")
    same(await store.take_over(), [], "a claim is taken over once")
    await is_lost(store.finish, old, ended_run(old))
    await is_lost(store.record, claim=old, events=[an_event("late", "over")])
    await is_lost(store.finish, talk, None)
    same(await store.renew([old, taken]), set(), "a run with a lost claim is not held")
    freed = is_there(await store.hold("over", run_id="y"), "taking over frees lapsed conversations")
    await store.finish(freed, None)
    await store.finish(taken, ended_run(taken, state="interrupted"))
    same((await stored_fire(store, fire)).reason, "interrupted", "who took over settles the fire")
