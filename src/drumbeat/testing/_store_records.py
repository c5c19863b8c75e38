"""What a store has to keep of what was: runs, intents and events, and how they go."""

from datetime import datetime, timedelta
from typing import Any

import anyio
import attrs

from drumbeat.core.model import (
    DeliveryIntent,
    Event,
    Mark,
    Receipt,
    Verdict,
)
from drumbeat.errors import ClaimLost, EventsExpired, NotFound
from drumbeat.protocols import Store
from drumbeat.testing._store_parts import (
    MINUTE,
    NOW,
    a_fire,
    all_events,
    an_event,
    claimed,
    ended_run,
    going_run,
    holds,
    is_lost,
    is_there,
    only,
    same,
    skip,
)

__all__ = [
    "check_events",
    "check_intents",
    "check_many_writers",
    "check_neighbours",
    "check_purge",
    "check_runs",
]


async def check_intents(store: Store) -> None:
    verdicts: list[tuple[str, Verdict]] = [
        ("i", "deliver"),
        ("i", "deliver"),
        ("j", "deliver"),
        ("k", "withhold"),
    ]
    for slug, verdict in verdicts:
        number = len(await store.runs())
        await store.add_fires([a_fire(slug, f"intent-{number}")])
        claim = await claimed(store, f"intent-{number}")
        await store.finish(claim, ended_run(claim, verdict=verdict))
    withheld = only(await store.runs(slug="k"))
    same(withheld.delivery, None, "what is not to be delivered is not pending")
    done: list[DeliveryIntent] = []
    while (intent := await store.claim_intent(now=NOW)) is not None and intent.slug not in {
        "i",
        "j",
    }:
        await store.settle_intent(intent, "delivered")
    first = is_there(intent, "the oldest pending intent is leased")
    same(
        (first.slug, first.attempt), ("i", 1), "the oldest intent comes first, its attempt counted"
    )
    second = is_there(await store.claim_intent(now=NOW), "another automation's intent is free")
    same(second.slug, "j", "an intent that is out holds up its own automation only")
    same(await store.claim_intent(now=NOW), None, "a leased intent is not leased again")
    retry = NOW + MINUTE
    await store.settle_intent(first, "pending", retry_at=retry, events=[an_event("failed", "i")])
    same(
        await store.claim_intent(now=NOW),
        None,
        "a retry waits, and newer ones of its slug with it",
    )
    again = is_there(await store.claim_intent(now=retry), "a retry comes back in time")
    same((again.id, again.attempt), (first.id, 2), "a retry has the same id and the next attempt")
    receipt = Receipt(id="chat-1", url="https://example.invalid/1")
    await store.settle_intent(again, "delivered", receipt=receipt)
    await store.settle_intent(again, "abandoned", events=[an_event("never", "i")])
    run = only(await store.runs(target="chat-1"))
    same((run.delivery, run.receipt), ("delivered", receipt), "a delivered intent stays delivered")
    same(is_there(run.intent, "the run has its intent").attempt, 2, "a run shows the last attempt")
    holds(
        "never" not in [event.kind for event in await all_events(store)],
        "settling what is settled appends nothing",
    )
    third = is_there(
        await store.claim_intent(now=NOW), "the next of the slug comes after the first"
    )
    for intent in (second, third):
        await store.settle_intent(intent, "abandoned")
        done.append(intent)
    abandoned = {run.intent.id for run in await store.runs(sent="abandoned") if run.intent}
    same(abandoned, {intent.id for intent in done}, "runs can be asked for by what became of them")
    try:
        await store.settle_intent(attrs.evolve(first, id="nobody"), "delivered")
    except NotFound:
        return
    holds(False, "settling an unknown intent raises NotFound")


async def check_neighbours(store: Store) -> None:
    day = timedelta(days=1)
    await store.add_fires(
        [
            a_fire("near", str(number), due=NOW + number * day, verdict="missed", reason="late")
            for number in range(6)
        ]
    )
    found = await store.fires(slug="near", around=NOW + 2 * day, limit=4)
    assert [fire.due for fire in found] == [NOW + number * day for number in (1, 2, 3, 4)], (
        "fires(around=…) gives half of `limit` due by that instant and half due later, by due time"
    )
    assert await store.invalid_runs() == [], "invalid_runs() names runs without an intent alone"


async def check_runs(store: Store) -> None:
    for number in range(3):
        await store.add_fires([a_fire("runs", str(number), payload=b"{}")])
        claim = await claimed(store, f"runs-{number}")
        started = NOW + number * MINUTE
        run = attrs.evolve(ended_run(claim), started_at=started, session_id=f"session-{number % 2}")
        await store.finish(claim, run)

    async def ids(**where: Any) -> list[str]:
        return [run.run_id for run in await store.runs(**where)]

    same(await ids(slug="runs"), ["runs-2", "runs-1", "runs-0"], "the latest run comes first")
    same(await ids(slug="runs", limit=2), ["runs-2", "runs-1"], "`limit` bounds the runs")
    same(len(await ids(slug="runs", limit=None)), 3, "a `limit` of None shows all runs")
    same(await ids(target="session-0"), ["runs-2", "runs-0"], "runs are found by conversation")
    same(await ids(target="runs-1"), ["runs-1"], "a run is found by its id")
    same(await ids(slug="nobody"), [], "nothing is found for an unknown slug")
    for payloads in (True, False):
        shown = only(await store.runs(target="runs-2", payloads=payloads))
        found = {shown.fire.payload, is_there(shown.intent, "a run has its intent").fire.payload}
        same(found, {b"{}" if payloads else None}, "runs are shown with payloads, or without")
    while (intent := await store.claim_intent(now=NOW)) is not None:
        await store.settle_intent(intent, "delivered")


async def check_events(store: Store) -> None:
    before = await all_events(store)
    last = before[-1].id if before else 0
    data = {"number": 1, "nested": {"list": ["x"]}}
    fire = a_fire("events", "1")
    await store.add_fires([fire], events=[attrs.evolve(an_event("mine", "events"), data=data)])
    found = await store.events(after=last, limit=10, wait=timedelta())
    same(sorted(event.kind for event in found), ["fire_added", "mine"], "each fire makes one event")
    for event in found:
        if event.kind == "fire_added":
            same(event.data["fire"], fire.id, "`fire_added` names the fire")
        else:
            same((event.data, event.at), (data, NOW), "an event comes back as it was given")
    ids = [event.id for event in found]
    holds(ids == sorted(set(ids)) and ids[0] > last, "ids of events rise")
    same(
        await store.events(after=last, limit=1, wait=timedelta()),
        found[:1],
        "`limit` bounds events",
    )
    await store.add_fires([fire])
    rest = await store.events(after=ids[-1], limit=10, wait=timedelta())
    same(rest, [], "a fire that is there already makes no event")
    # A question may be in a thread, and see there what was written after it was asked: so again.
    for _ in range(5):
        heard = await _heard(store, after=ids[-1])
        same([event.kind for event in heard], ["woke"], "who waits for events gets the next")
        ids.append(heard[0].id)
    await skip(store, fire)


async def _heard(store: Store, *, after: int) -> list[Event]:
    """What somebody gets who waits for the event that is written meanwhile."""
    heard: list[Event] = []

    async def listen() -> None:
        heard.extend(await store.events(after=after, limit=10, wait=timedelta(seconds=30)))

    with anyio.move_on_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            await store.record(events=[an_event("woke", None)])
    return heard


async def check_many_writers(store: Store) -> None:
    wanted = [a_fire(f"many-{number % 4}", str(number)) for number in range(24)]
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
    same(sorted(lost), list(range(0, 24, 3)), "each writer hears of its own failure only")
    open_now = {fire.id for fire in await store.fires(open=True)}
    same(open_now, {fire.id for fire in expected}, "one writer's failure touches no other")
    await skip(store, *expected)


async def check_purge(store: Store) -> None:
    day = timedelta(days=1)
    added = [a_fire(slug, "1") for slug in ("purge-old", "purge-pending", "purge-going")]
    await store.add_fires([added[0]])
    old = await claimed(store, "purge-old")
    # By the later of the two clocks: that of these values, and that of the store.
    base = max(event.at for event in await all_events(store))
    old_run = attrs.evolve(ended_run(old, verdict="withhold"), finished_at=base)
    await store.finish(old, old_run)
    await store.add_fires([added[1]])
    pending = await claimed(store, "purge-pending")
    await store.finish(pending, attrs.evolve(ended_run(pending), finished_at=base))
    await store.add_fires([added[2]])
    going = await claimed(store, "purge-going")
    none, kept = Mark(key="purge:none", value=None), Mark(key="purge:zero", value=0)
    event = attrs.evolve(an_event("young", None), at=base + 5 * day)
    await store.record(claim=going, run=going_run(going), marks=[none, kept], events=[event])
    version = only(await store.marks(none.key)).version
    last = (await all_events(store))[-1].id

    async def there(slug: str) -> tuple[int, int]:
        return len(await store.runs(slug=slug)), len(await store.fires(slug=slug))

    await _purge(store, base + 6 * day, keep_events=1000 * day, keep_runs=7 * day)
    same(await there("purge-old"), (1, 1), "what is young is kept")
    marks = [mark.key for mark in await store.marks("purge:")]
    same(marks, ["purge:zero"], "a mark whose value is None is forgotten, and no other")
    await store.record(marks=[attrs.evolve(none, value="again")])
    again_there = only(await store.marks(none.key))
    holds(again_there.version > version, "the versions of a key never come again")
    await is_lost(store.record, marks=[Mark(key=none.key, value="stale", version=version)])
    await store.record(marks=[attrs.evolve(again_there, value=None)])
    await _purge(store, base + 6 * day, keep_events=3 * day, keep_runs=day)
    same(await there("purge-old"), (0, 1), "an old run goes; a fire stays 7 days after it settled")
    again = only(await store.add_fires([attrs.evolve(added[0], id="purge-again")]))
    same(again.verdict, "ran", "a fire that is remembered makes no second one")
    same(
        [one.kind for one in await store.events(after=last - 1, limit=9, wait=timedelta())],
        ["young"],
        "old events go, those behind them stay",
    )
    try:
        await store.events(after=0, limit=9, wait=timedelta())
    except EventsExpired as expired:
        same(expired.after, last - 1, "EventsExpired says from where on there are events")
    else:
        holds(False, "reading from before what is kept raises EventsExpired")
    await _purge(store, base + 900 * day, keep_events=day, keep_runs=day)
    same(await there("purge-old"), (0, 0), "a fire whose runs are gone goes with time")
    same(await there("purge-pending"), (1, 1), "what is still to be delivered is kept")
    same(await there("purge-going"), (1, 1), "what has not ended is kept")
    rest = await store.events(after=last, limit=9, wait=timedelta())
    same(rest, [], "all events may go, and reading goes on behind the last of them")
    try:
        await store.events(after=last + 1, limit=9, wait=timedelta())
    except EventsExpired as expired:
        same(expired.after, last, "EventsExpired says from where on there are events")
    else:
        holds(False, "reading behind an id that was never given out raises EventsExpired")
    intent = is_there(await store.claim_intent(now=base), "an old intent is still delivered")
    await store.settle_intent(intent, "delivered")
    ended = attrs.evolve(ended_run(going, verdict="withhold"), finished_at=base)
    await store.finish(going, ended)
    await _purge(store, base + 900 * day, keep_events=day, keep_runs=day)
    same(await there("purge-pending"), (0, 0), "what was delivered goes in its turn")
    same(await there("purge-going"), (0, 0), "and so does what has ended")


async def _purge(store: Store, now: datetime, **keep: timedelta) -> None:
    for _ in range(100):
        purged = await store.purge(
            now=now, keep_events=keep["keep_events"], keep_runs=keep["keep_runs"]
        )
        if purged.complete:
            return
    msg = "the store breaks a rule: `purge` comes to an end when it is called again"
    raise AssertionError(msg)
