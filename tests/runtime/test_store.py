"""The contract of a store, kept by SQLite, and noticed when it is broken."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from drumbeat.core.model import (
    Backlog,
    Claim,
    DeliveryIntent,
    Event,
    Fire,
    Mark,
    Purged,
    RunRecord,
)
from drumbeat.errors import EventsExpired, NotFound, StoreError
from drumbeat.runtime.clock import SystemClock
from drumbeat.runtime.conclusion import unfinished
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import check_store, example_intent

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
LEASE = timedelta(minutes=5)


@attrs.define
class HandClock(SystemClock):
    """A clock whose instant is set by hand."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


def fire(slot: str, slug: str = "a", **rest: Any) -> Fire:
    given = {"cause": "schedule", "due": NOW, "created_at": NOW, **rest}
    return Fire(id=f"{slug}-{slot}", slug=slug, slot=slot, **given)


def going(claim: Claim) -> RunRecord:
    assert claim.fire is not None
    return unfinished(claim, claim.fire, at=NOW)


async def opened(path: Path, clock: HandClock | None = None, **rest: Any) -> SqliteStore:
    store = SqliteStore(path / "drumbeat.db", clock=clock or HandClock(), **rest)
    await store.open(holder="test", lease=LEASE)
    return store


async def claimed(store: SqliteStore, run_id: str, now: datetime = NOW) -> Claim:
    claim = await store.claim_fire(now=now, run_id=run_id)
    assert claim is not None
    return claim


@pytest.mark.slow
async def test_the_sqlite_store_keeps_the_contract(tmp_path: Path) -> None:
    await check_store(lambda: SqliteStore(tmp_path / "state" / "drumbeat.db"))


class Forgetful(SqliteStore):
    async def add_fires(self, fires: Sequence[Fire], **rest: Any) -> list[Fire]:
        return await super().add_fires([attrs.evolve(one, payload=None) for one in fires], **rest)


class Folding(SqliteStore):
    async def add_fires(self, fires: Sequence[Fire], **rest: Any) -> list[Fire]:
        return await super().add_fires(fires, **{**rest, "fold": True})


class Unfolding(SqliteStore):
    async def add_fires(self, fires: Sequence[Fire], **rest: Any) -> list[Fire]:
        return await super().add_fires(fires, **{**rest, "fold": False})


class Unskipping(SqliteStore):
    async def claim_fire(self, *, skip: Collection[str] = (), **rest: Any) -> Claim | None:
        return await super().claim_fire(**rest)


class Unnaming(SqliteStore):
    async def claim_fire(self, *, fire: str | None = None, **rest: Any) -> Claim | None:
        return await super().claim_fire(**rest)


class Unfenced(SqliteStore):
    async def finish(self, claim: Claim, run: RunRecord | None, **rest: Any) -> None:
        current = await super().hold(claim.slug, run_id=claim.run_id)
        if claim.fire is None and current is not None:
            claim = current
        await super().finish(claim, run, **rest)


class Eager(SqliteStore):
    async def claim_fire(self, *, now: datetime, **rest: Any) -> Claim | None:
        return await super().claim_fire(now=now + timedelta(days=1), **rest)


class Unmarking(SqliteStore):
    async def record(self, **rest: Any) -> None:
        await super().record(**{**rest, "marks": ()})


class Deaf(SqliteStore):
    async def events(self, *, after: int, limit: int, wait: timedelta) -> list[Event]:
        return await super().events(after=after, limit=limit, wait=timedelta())


class Backward(SqliteStore):
    async def events(self, *, after: int, limit: int, wait: timedelta) -> list[Event]:
        return (await super().events(after=after, limit=limit, wait=wait))[::-1]


class Shared(SqliteStore):
    async def hold(self, session_id: str, *, run_id: str) -> Claim | None:
        return await super().hold(f"{session_id} {run_id}", run_id=run_id)


class Sleepy(SqliteStore):
    async def take_over(self) -> list[Claim]:
        return []


class Generous(SqliteStore):
    async def renew(self, claims: Sequence[Claim]) -> set[str]:
        await super().renew(claims)
        return {claim.run_id for claim in claims}


class Repeating(SqliteStore):
    async def settle_intent(self, *args: Any, **rest: Any) -> None:
        await super().settle_intent(*args, **rest)
        await super().record(events=rest.get("events", ()))


class Lapsing(SqliteStore):
    async def open(self, *, holder: str | None, lease: timedelta) -> None:
        await super().open(holder=holder or "client", lease=lease)
        if holder is None:
            await super().take_over()


class Ajar(SqliteStore):
    async def fires(self, **rest: Any) -> list[Fire]:
        try:
            return await super().fires(**rest)
        except StoreError:
            return []


class Heavy(SqliteStore):
    """Reads payloads that nobody asked for."""

    async def fires(self, **rest: Any) -> list[Fire]:
        return await super().fires(**{**rest, "payloads": True})


class Stingy(SqliteStore):
    """Never gives more than a hundred."""

    async def fires(self, **rest: Any) -> list[Fire]:
        return await super().fires(**{**rest, "limit": rest.get("limit") or 100})


class Light(SqliteStore):
    """Leaves payloads out that were asked for."""

    async def runs(self, **rest: Any) -> list[RunRecord]:
        return await super().runs(**{**rest, "payloads": False})


class Mindless(SqliteStore):
    """Counts what is claimed among the follow-ups that wait."""

    async def backlog(self, **rest: Any) -> list[Backlog]:
        found = await super().backlog(**rest)
        return [attrs.evolve(one, follow_ups=one.follow_ups and 3) for one in found]


class Lenient(SqliteStore):
    async def record(self, **rest: Any) -> None:
        with suppress(NotFound):
            await super().record(**rest)


class Careless(SqliteStore):
    async def settle_intent(self, *args: Any, **rest: Any) -> None:
        with suppress(NotFound):
            await super().settle_intent(*args, **rest)


class Hoarding(SqliteStore):
    async def purge(self, **given: Any) -> Purged:
        return Purged()


class Endless(SqliteStore):
    async def purge(self, **given: Any) -> Purged:
        return Purged(complete=False)


class Thorough(SqliteStore):
    """Forgets what is settled whether it was delivered or not."""

    async def purge(self, *, now: datetime, **given: Any) -> Purged:
        while (intent := await self.claim_intent(now=now)) is not None:
            await self.settle_intent(intent, "abandoned")
        return await super().purge(now=now, **given)


class Silent(SqliteStore):
    """Reads on behind what was forgotten as if nothing were missing."""

    async def events(self, *, after: int, limit: int, wait: timedelta) -> list[Event]:
        try:
            return await super().events(after=after, limit=limit, wait=wait)
        except EventsExpired as expired:
            return await super().events(after=expired.after, limit=limit, wait=wait)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        Ajar,
        Backward,
        Careless,
        Deaf,
        Eager,
        Endless,
        Folding,
        Forgetful,
        Generous,
        Heavy,
        Stingy,
        Hoarding,
        Lapsing,
        Lenient,
        Light,
        Mindless,
        Repeating,
        Shared,
        Silent,
        Sleepy,
        Thorough,
        Unfenced,
        Unfolding,
        Unmarking,
        Unskipping,
        Unnaming,
    ],
)
async def test_check_store_notices_a_store_that_breaks_a_rule(
    tmp_path: Path, kind: type[SqliteStore]
) -> None:
    with pytest.raises(AssertionError, match="the store breaks a rule: "):
        await check_store(lambda: kind(tmp_path / "drumbeat.db"))


# ---- claims and leases


async def test_a_lapsed_claim_is_good_until_it_is_taken_over(tmp_path: Path) -> None:
    clock = HandClock()
    store = await opened(tmp_path, clock)
    await store.add_fires([fire("1")])
    claim = await claimed(store, "r")
    clock.at += LEASE - timedelta(microseconds=1)
    assert await store.take_over() == []
    clock.at += timedelta(microseconds=1)
    assert await store.renew([claim]) == {"r"}
    assert await store.take_over() == []
    clock.at += LEASE
    (taken,) = await store.take_over()
    assert (taken.run_id, taken.fire) == ("r", claim.fire)
    assert taken.token > claim.token
    assert await store.renew([claim]) == set()
    await store.close()


async def test_an_intent_whose_lease_lapsed_is_handed_out_again(tmp_path: Path) -> None:
    """A late word about the overtaken attempt does not end the lease of the next."""
    clock = HandClock()
    store = await opened(tmp_path, clock)
    first = await pending(store)
    clock.at += LEASE
    second = await store.claim_intent(now=clock.at)
    assert second is not None
    assert (second.id, second.attempt) == (first.id, first.attempt + 1)
    await store.settle_intent(first, "pending", retry_at=NOW)
    assert await store.claim_intent(now=clock.at) is None
    await store.settle_intent(first, "delivered")
    (run,) = await store.runs()
    assert run.delivery == "delivered"
    await store.close()


async def test_opening_as_a_holder_hands_out_leased_intents_at_once(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    first = await pending(store)
    await store.open(holder=None, lease=LEASE)
    assert await store.claim_intent(now=NOW) is None
    await store.open(holder="another", lease=LEASE)
    again = await store.claim_intent(now=NOW)
    assert again is not None
    assert again.attempt == first.attempt + 1
    await store.close()


async def pending(store: SqliteStore) -> DeliveryIntent:
    await store.add_fires([fire("1")])
    claim = await claimed(store, "r")
    assert claim.fire is not None
    intent = example_intent(
        id="i", run_id="r", slug="a", fire=claim.fire, created_at=NOW, attempt=0
    )
    run = attrs.evolve(going(claim), state="succeeded", finished_at=NOW, intent=intent)
    await store.finish(claim, run)
    assert [one.run_id for one in await store.runs(target="i")] == ["r"]
    assert [one.run_id for one in await store.runs(sent="pending")] == ["r"]
    leased = await store.claim_intent(now=NOW)
    assert leased is not None
    return leased


async def test_a_settled_fire_whose_run_never_began_names_no_run(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.add_fires([fire("1"), fire("2")])
    claim = await claimed(store, "r1")
    assert claim.fire is not None
    skipped = attrs.evolve(claim.fire, verdict="skipped", reason="paused")
    await store.record(claim=claim, settled=[skipped])
    claim = await claimed(store, "r2")
    assert claim.fire is not None
    missed = attrs.evolve(claim.fire, verdict="missed", reason="late")
    await store.record(claim=claim, run=going(claim), settled=[missed])
    second, first = await store.fires()
    assert (first.attempt, first.run_id, first.reason) == (0, None, "paused")
    assert (second.attempt, second.run_id, second.reason) == (1, "r2", "late")
    await store.close()


async def test_a_fire_given_back_names_the_run_before(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.add_fires([fire("1")])
    claim = await claimed(store, "r1")
    ended = attrs.evolve(going(claim), state="interrupted", finished_at=NOW)
    await store.finish(claim, ended, again_at=NOW)
    await store.finish(await claimed(store, "r2"), None)
    (stored,) = await store.fires()
    assert (stored.attempt, stored.run_id, stored.verdict) == (1, "r1", None)
    await store.close()


async def test_a_fire_settled_by_others_keeps_its_verdict_when_its_run_ends(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.add_fires([fire("1")])
    claim = await claimed(store, "r1")
    assert claim.fire is not None
    await store.record(settled=[attrs.evolve(claim.fire, verdict="skipped", reason="by hand")])
    assert await store.renew([claim]) == {"r1"}
    ended = attrs.evolve(going(claim), state="failed", finished_at=NOW)
    await store.finish(claim, ended, again_at=NOW + LEASE)
    (stored,) = await store.fires()
    assert (stored.verdict, stored.reason, stored.due) == ("skipped", "by hand", NOW)
    await store.close()


async def test_a_finished_run_is_not_set_back_to_running(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.add_fires([fire("1")])
    claim = await claimed(store, "r1")
    await store.finish(claim, attrs.evolve(going(claim), state="failed", finished_at=NOW))
    await store.record(run=going(claim))
    (run,) = await store.runs()
    assert run.state == "failed"
    await store.close()


async def test_what_makes_no_sense_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.add_fires([fire("1")])
    claim = await claimed(store, "r1")
    talk = await store.hold("talk", run_id="r1")
    assert talk is not None
    with pytest.raises(ValueError, match="has no verdict"):
        await store.record(settled=[fire("1")], events=[event()])
    with pytest.raises(ValueError, match="cannot finish the run r1"):
        await store.finish(talk, going(claim), events=[event()])
    with pytest.raises(ValueError, match="needs a time zone"):
        await store.add_fires([fire("2", due=datetime(2026, 1, 1))])  # noqa: DTZ001  the fault
    with pytest.raises(TypeError, match="not JSON serializable"):
        await store.record(marks=[Mark(key="m", value=object())])
    with pytest.raises(StoreError) as caught:
        await store.add_fires([fire("2"), attrs.evolve(fire("3"), id="a-1")])
    assert caught.value.problem.code == "store-failed"
    with pytest.raises(NotFound) as missing:
        await store.record(settled=[fire("9", verdict="missed")], events=[event()])
    assert missing.value.problem.code == "fire-not-found"
    assert await store.renew([claim, talk]) == {"r1"}
    assert len(await store.fires()) == 1
    kinds = [one.kind for one in await store.events(after=0, limit=9, wait=timedelta())]
    assert kinds == ["fire_added"]
    await store.close()


async def test_more_slugs_may_be_skipped_than_a_statement_takes_values(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.add_fires([fire("1"), fire("1", slug="b", due=NOW)])
    skip = {f"s{number}" for number in range(40_000)} | {"a"}
    claim = await store.claim_fire(now=NOW, run_id="r", skip=skip)
    assert claim is not None
    assert claim.slug == "b"
    await store.close()


async def test_lone_surrogates_are_stored_as_their_escapes(tmp_path: Path) -> None:
    r"""Text from the outside may hold what UTF-8 cannot write; it must not cost a record."""
    store = await opened(tmp_path)
    bad = "x\udc80\\y\x00"
    good = "x\\udc80\\y\x00"
    (added,) = await store.add_fires(
        [fire(bad, prompt=bad)],
        marks=[Mark(key=bad, value={bad: [bad]})],
        events=[event(data={"text": bad})],
    )
    assert (added.slot, added.prompt) == (good, good)
    assert await store.add_fires([fire(bad)]) == [added]
    assert await store.marks("x\udc80") == [Mark(key=good, value={good: [good]}, version=1)]
    found = await store.events(after=0, limit=9, wait=timedelta())
    assert found[-1].data == {"text": good}
    assert await store.claim_fire(now=NOW, run_id="r\ud800", skip=[]) is not None
    assert await store.fires(slug="\ud800") == []
    await store.close()


# ---- events


def event(**rest: Any) -> Event:
    given: dict[str, Any] = {"slug": None, "run_id": None, "data": {}, **rest}
    return Event(id=0, at=NOW, kind="clock_jumped", **given)


@pytest.mark.slow
async def test_events_of_another_process_are_heard_while_waiting(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    other = SqliteStore(tmp_path / "drumbeat.db", clock=HandClock())
    await other.open(holder=None, lease=LEASE)
    heard: list[Event] = []

    async def listen() -> None:
        heard.extend(await store.events(after=0, limit=9, wait=timedelta(seconds=60)))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await other.record(events=[event(), event()])
    assert [one.id for one in heard] == [1, 2]
    await other.close()
    await store.close()


async def test_waiting_for_events_ends_with_its_time(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert await store.events(after=0, limit=9, wait=timedelta(milliseconds=1)) == []
    assert await store.events(after=0, limit=0, wait=timedelta(days=1)) == []
    await store.close()


async def test_who_waits_for_events_hears_of_the_close(tmp_path: Path) -> None:
    store = await opened(tmp_path)

    async def listen() -> None:
        with pytest.raises(StoreError, match="store-closed"):
            await store.events(after=0, limit=9, wait=timedelta(days=1))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            await store.close()


async def test_reading_behind_purged_events_says_where_to_read_on(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.record(events=[event(), event(), event()])
    await store._write("purge", lambda ledger: purge(ledger.db, 2))
    with pytest.raises(EventsExpired, match="after=2") as caught:
        await store.events(after=1, limit=9, wait=timedelta(days=1))
    assert caught.value.problem.code == "events-expired"
    assert [one.id for one in await store.events(after=2, limit=9, wait=timedelta())] == [3]
    await store.close()


async def test_an_id_that_no_event_had_is_refused_and_heard_of_while_waiting(
    tmp_path: Path,
) -> None:
    """A store that was put back from a backup knows nothing of it."""
    store = await opened(tmp_path)
    assert await store.events(after=0, limit=9, wait=timedelta()) == []
    await store.record(events=[event(), event(), event()])
    await store._write("purge", lambda ledger: purge(ledger.db, 1))
    assert await store.events(after=3, limit=9, wait=timedelta()) == []
    for wait in (timedelta(), timedelta(days=1)):
        with pytest.raises(EventsExpired, match="the last event is 3, and those after 4") as caught:
            await store.events(after=4, limit=9, wait=wait)
        assert (caught.value.problem.code, caught.value.after) == ("events-ahead", 1)
    await store.close()


def purge(db: Any, upto: int) -> None:
    db.execute("DELETE FROM events WHERE id <= ?", (upto,))
    db.execute("UPDATE meta SET value = ? WHERE name = 'purged'", (upto,))


async def test_ids_of_events_rise_on_after_all_of_them_are_gone(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.record(events=[event(), event()])
    await store._write("purge", lambda ledger: purge(ledger.db, 2))
    await store.close()
    store = await opened(tmp_path)
    await store.record(events=[event()])
    assert [one.id for one in await store.events(after=2, limit=9, wait=timedelta())] == [3]
    await store.close()


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "drumbeat.db")
    assert list(tmp_path.iterdir()) == []
    await store.close()
    with pytest.raises(StoreError, match=r"drumbeat\.db is not open \[store-closed\]"):
        await store.fires()
    with pytest.raises(StoreError, match="store-closed"):
        await store.add_fires([])
    assert list(tmp_path.iterdir()) == []
