"""Group commit: what writers share, and what a cancelled one leaves behind."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from drumbeat.core.model import Claim, Event, Fire, Mark, RunRecord
from drumbeat.errors import ClaimLost, StoreError
from drumbeat.runtime.clock import Driven, SystemClock
from drumbeat.runtime.conclusion import unfinished
from drumbeat.runtime.store import SqliteStore
from drumbeat.runtime.store_commits import Commits
from drumbeat.runtime.store_ledger import Ledger
from drumbeat.runtime.store_schema import connect
from drumbeat.runtime.store_threads import _Call, run_through
from drumbeat.testing import example_intent

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
LEASE = timedelta(minutes=5)
PATIENCE = 30
"""Seconds of real time after which a test has failed."""


class FixedClock(SystemClock):
    def now(self) -> datetime:
        return NOW


def fire(slot: str) -> Fire:
    return Fire(id=slot, slug=f"s-{slot}", cause="manual", slot=slot, due=NOW, created_at=NOW)


def event() -> Event:
    return Event(id=0, at=NOW, kind="clock_jumped", slug=None, run_id=None, data={})


def finished(claim: Claim) -> RunRecord:
    assert claim.fire is not None
    intent = example_intent(
        id="intent",
        run_id=claim.run_id,
        slug=claim.slug,
        fire=claim.fire,
        created_at=NOW,
        attempt=0,
    )
    run = unfinished(claim, claim.fire, at=NOW)
    return attrs.evolve(run, state="succeeded", finished_at=NOW, intent=intent)


async def opened(path: Path, **rest: Any) -> SqliteStore:
    store = SqliteStore(path / "drumbeat.db", **{"clock": FixedClock(), **rest})
    await store.open(holder="test", lease=LEASE)
    return store


def commits(store: SqliteStore) -> Commits:
    return store._using().commits


async def slots(store: SqliteStore) -> list[str]:
    return sorted(one.slot for one in await store.fires())


@attrs.define
class Gate:
    """Work that is under way until it is let go."""

    entered: threading.Event = attrs.field(factory=threading.Event)
    leave: threading.Event = attrs.field(factory=threading.Event)

    def __call__(self, ledger: Ledger | None = None) -> None:
        self.entered.set()
        assert self.leave.wait(PATIENCE)

    async def reached(self) -> None:
        while not self.entered.is_set():
            await anyio.sleep(0.001)


@contextmanager
def locked(store: SqliteStore) -> Iterator[Callable[[], None]]:
    """Another process that writes, until the block ends or what it gives is called."""
    db = sqlite3.connect(store._path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    try:
        yield db.commit
    finally:
        db.close()


async def test_writers_that_come_together_share_one_transaction(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    said: list[str] = []
    db = commits(store)._db
    assert db is not None
    db.set_trace_callback(said.append)
    async with anyio.create_task_group() as group:
        for number in range(64):
            group.start_soon(store.add_fires, [fire(f"{number:02}")])
    assert said.count("COMMIT") == 2  # the first alone, all others behind it
    assert await slots(store) == [f"{number:02}" for number in range(64)]
    await store.close()


async def test_a_long_line_is_served_in_several_transactions(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    async with anyio.create_task_group() as group:
        for number in range(300):
            group.start_soon(store.add_fires, [fire(f"{number:03}")])
    assert len(await store.fires(limit=1000)) == 300
    await store.close()


async def test_a_writer_that_is_cancelled_in_line_writes_nothing(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    gate = Gate()
    scope = anyio.CancelScope()

    async def impatient() -> None:
        with scope:
            await store.add_fires([fire("cancelled")])

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(commits(store).run, gate)
            await gate.reached()
            group.start_soon(impatient)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(store.add_fires, [fire("patient")])
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            gate.leave.set()
    assert scope.cancelled_caught
    assert await slots(store) == ["patient"]
    await store.close()


async def test_a_writer_that_was_cancelled_before_writes_nothing(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.add_fires([fire("cancelled")])
    assert await slots(store) == []
    await store.close()


async def test_a_writer_that_is_cancelled_when_its_turn_comes_passes_the_lead_on(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    gate = Gate()
    scope = anyio.CancelScope()
    queue = commits(store)
    queue._appended = scope.cancel

    def last(ledger: Ledger) -> None:
        gate(ledger)
        ledger.appended = True

    async def impatient() -> None:
        with scope:
            await store.add_fires([fire("cancelled")])

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(queue.run, last)
            await gate.reached()
            group.start_soon(impatient)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(store.add_fires, [fire("patient")])
            await anyio.wait_all_tasks_blocked()
            gate.leave.set()
    assert scope.cancelled_caught
    assert await slots(store) == ["patient"]
    await store.add_fires([fire("alone")])
    assert await slots(store) == ["alone", "patient"]
    await store.close()


@pytest.mark.parametrize("leading", [True, False])
async def test_a_writer_that_is_cancelled_later_gets_its_result(
    tmp_path: Path, leading: bool
) -> None:
    """What was taken is written, so its caller has to learn of it."""
    store = await opened(tmp_path)
    before, gate = Gate(), Gate()
    results: list[str] = []
    scope = anyio.CancelScope()

    def work(ledger: Ledger) -> str:
        if leading:
            gate(ledger)
        ledger.add_fires([fire("done")], fold=False, marks=(), events=())
        return "done"

    async def impatient() -> None:
        with scope:
            results.append(await commits(store).run(work))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(commits(store).run, before)
            await before.reached()
            if not leading:
                group.start_soon(commits(store).run, gate)
                await anyio.wait_all_tasks_blocked()
            group.start_soon(impatient)
            await anyio.wait_all_tasks_blocked()
            before.leave.set()
            await gate.reached()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            gate.leave.set()
    assert results == ["done"]
    assert await slots(store) == ["done"]
    await store.close()


async def lose(store: SqliteStore, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Call it and cancel its task while it is being written."""
    with locked(store) as release:
        task = asyncio.create_task(call())
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            task.cancel()
            await anyio.wait_all_tasks_blocked()
        assert not task.done()
        release()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_claim_that_its_caller_never_sees_is_undone(tmp_path: Path) -> None:
    """`asyncio.Task.cancel` passes every shield; the thread is waited for all the same."""
    store = await opened(tmp_path)
    with anyio.fail_after(PATIENCE):
        await lose(store, lambda: store.claim_fire(now=NOW, run_id="lost"))
        await store.add_fires([fire("1")])
        await lose(store, lambda: store.claim_fire(now=NOW, run_id="lost"))
    (stored,) = await store.fires()
    assert (stored.attempt, stored.run_id) == (0, None)
    claim = await store.claim_fire(now=NOW, run_id="after")
    assert claim is not None
    await store.finish(claim, finished(claim))
    with anyio.fail_after(PATIENCE):
        await lose(store, lambda: store.claim_intent(now=NOW))
    intent = await store.claim_intent(now=NOW)
    assert intent is not None
    assert intent.attempt == 1
    with anyio.fail_after(PATIENCE):
        await lose(store, lambda: store.claim_intent(now=NOW))
    await store.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_undoing_a_hold_ends_none_that_was_there_before(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    with anyio.fail_after(PATIENCE):
        await lose(store, lambda: store.hold("talk", run_id="r1"))
        held = await store.hold("talk", run_id="r2")
        assert held is not None
        await lose(store, lambda: store.hold("talk", run_id="r2"))
        await lose(store, lambda: store.hold("talk", run_id="r3"))
    assert await store.renew([held]) == {"r2"}
    await store.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_opening_that_was_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    fresh = SqliteStore(store._path, clock=FixedClock())
    with anyio.fail_after(PATIENCE):
        await lose(store, lambda: fresh.open(holder="test", lease=LEASE))
        task = asyncio.create_task(fresh.open(holder="test", lease=LEASE))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    with pytest.raises(StoreError, match="store-closed"):
        await fresh.fires()
    await store.close()
    assert [file.name for file in tmp_path.iterdir()] == ["drumbeat.db"]


async def test_a_client_that_cannot_become_the_holder_goes_on_as_a_client(tmp_path: Path) -> None:
    store = await opened(tmp_path, busy_timeout=timedelta(milliseconds=5))
    with locked(store), pytest.raises(StoreError, match="store-locked"):
        await store.open(holder="test", lease=LEASE)
    await store.add_fires([fire("1")])
    assert await slots(store) == ["1"]
    await store.close()


async def test_an_interrupt_is_nobodys_success(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    seen: list[BaseException] = []

    def interrupted(batch: object, now: object) -> bool:
        raise KeyboardInterrupt

    async def add(slot: str) -> None:
        try:
            await store.add_fires([fire(slot)])
        except KeyboardInterrupt as error:
            seen.append(error)

    queue = commits(store)
    queue._commit = interrupted  # type: ignore[method-assign]
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(add, str(number))
    assert len(seen) == 3
    del queue._commit
    assert await slots(store) == []
    await store.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_members_of_a_transaction_are_undone_when_their_tasks_were_cancelled(
    tmp_path: Path,
) -> None:
    """They wait for the transaction they are in, then give back what they got."""
    store = await opened(tmp_path)
    await store.add_fires([fire("1")])
    first, second = Gate(), Gate()
    with anyio.fail_after(PATIENCE):
        ahead = asyncio.create_task(commits(store).run(first))
        await first.reached()
        leader = asyncio.create_task(commits(store).run(second))
        await anyio.wait_all_tasks_blocked()
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(store.claim_fire(now=NOW, run_id="lost")),
            asyncio.create_task(store.hold("talk", run_id="lost")),
            asyncio.create_task(store.claim_intent(now=NOW)),
            asyncio.create_task(store.add_fires([fire("2")])),
        ]
        await anyio.wait_all_tasks_blocked()
        first.leave.set()
        await second.reached()
        for _ in range(2):
            for task in [leader, *tasks]:
                task.cancel()
            await anyio.wait_all_tasks_blocked()
        assert not any(task.done() for task in [leader, *tasks])
        second.leave.set()
        await ahead
        for task in [leader, *tasks]:
            with pytest.raises(asyncio.CancelledError):
                await task
    fires = {one.slot: one for one in await store.fires()}
    assert set(fires) == {"1", "2"}
    assert (fires["1"].attempt, fires["1"].run_id) == (0, None)
    claim = await store.claim_fire(now=NOW, run_id="after")
    assert claim is not None
    assert claim.slug == "s-1"
    assert await store.hold("talk", run_id="after") is not None
    await store.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_question_whose_task_was_cancelled_waits_for_its_thread(tmp_path: Path) -> None:
    """Else two threads would use one connection."""
    store = await opened(tmp_path)
    gate = Gate()
    with anyio.fail_after(PATIENCE):
        asking = asyncio.create_task(store._read("gate", lambda db: gate()))
        await gate.reached()
        asking.cancel()
        await anyio.wait_all_tasks_blocked()
        assert not asking.done()
        gate.leave.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert await slots(store) == []
    await store.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_work_that_waits_for_a_thread_runs_though_its_task_was_cancelled() -> None:
    limiter = anyio.CapacityLimiter(1)
    limiter.acquire_on_behalf_of_nowait("somebody")
    ran: list[int] = []
    task = asyncio.create_task(run_through(lambda: ran.append(1), limiter))
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    await anyio.wait_all_tasks_blocked()
    assert not task.done()
    limiter.release_on_behalf_of("somebody")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ran == [1]


def test_a_call_runs_once_though_two_threads_begin_it() -> None:
    ran: list[int] = []
    call = _Call(lambda: ran.append(1))
    call()
    call()
    assert ran == [1]


async def test_a_lock_fails_all_who_wait_and_each_has_an_error_of_its_own(tmp_path: Path) -> None:
    store = await opened(tmp_path, busy_timeout=timedelta(milliseconds=5))
    errors: list[StoreError] = []

    async def add(number: int) -> None:
        try:
            await store.add_fires([fire(str(number))])
        except StoreError as error:
            errors.append(error)

    with locked(store):
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(add, number)
    assert [error.problem.code for error in errors] == ["store-locked"] * 5
    assert len(set(map(id, errors))) == 5
    assert "drumbeat.db is locked by another process" in str(errors[0])
    assert await slots(store) == []
    await store.add_fires([fire("after")])
    assert await slots(store) == ["after"]
    await store.close()


async def test_a_full_disk_fails_the_whole_transaction_and_the_store_recovers(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    gate = Gate()
    db = commits(store)._db
    assert db is not None
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 4}")
    codes: list[str] = []

    async def add(slot: str, size: int) -> None:
        try:
            await store.add_fires([attrs.evolve(fire(slot), payload=bytes(size))])
        except StoreError as error:
            codes.append(error.problem.code)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(commits(store).run, gate)
            await gate.reached()
            for slot, size in (("small", 1), ("large", 100_000), ("other", 1)):
                group.start_soon(add, slot, size)
            await anyio.wait_all_tasks_blocked()
            gate.leave.set()
    assert codes == ["store-full"] * 3
    assert await slots(store) == []
    assert await store.events(after=0, limit=9, wait=timedelta()) == []
    db.execute("PRAGMA max_page_count = 1000000")
    await add("large", 100_000)
    assert await slots(store) == ["large"]
    await store.close()


@attrs.define
class Failing:
    """A connection on a disk that fails with the end of a transaction."""

    db: sqlite3.Connection
    closed: bool = False

    @property
    def in_transaction(self) -> bool:
        return self.db.in_transaction

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql in {"COMMIT", "ROLLBACK"}:
            raise sqlite3.OperationalError("disk I/O error")
        return self.db.execute(sql, *args)

    def close(self) -> None:
        self.closed = True
        self.db.close()


async def test_a_connection_that_cannot_even_roll_back_is_replaced(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    queue = commits(store)
    queue.disconnect()
    failing = Failing(connect(store._path, busy=LEASE))
    queue._db = failing  # type: ignore[assignment]
    with pytest.raises(StoreError, match="store-failed") as caught:
        await store.add_fires([fire("lost")], events=[event()])
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert failing.closed
    await store.add_fires([fire("kept")])
    assert await slots(store) == ["kept"]
    await store.close()


async def test_what_one_writer_raises_touches_no_other(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    gate = Gate()
    seen: dict[str, BaseException] = {}

    def odd(ledger: Ledger) -> None:
        ledger.add_fires([fire("odd")], fold=False, marks=(), events=())
        raise ZeroDivisionError

    async def attempt(name: str, call: Callable[[], Any]) -> None:
        try:
            await call()
        except Exception as error:  # noqa: BLE001  looked at below
            seen[name] = error

    stale = [Mark(key="m", value=1, version=3)]
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(commits(store).run, gate)
            await gate.reached()
            for name, call in {
                "good": lambda: store.add_fires([fire("good")]),
                "lost": lambda: store.add_fires([fire("lost")], marks=stale),
                "odd": lambda: commits(store).run(odd),
                "twice": lambda: store.add_fires([attrs.evolve(fire("x"), id="good")]),
                "fine": lambda: store.add_fires([fire("fine")]),
            }.items():
                group.start_soon(attempt, name, call)
                await anyio.wait_all_tasks_blocked()
            gate.leave.set()
    assert {name: type(error) for name, error in seen.items()} == {
        "lost": ClaimLost,
        "odd": ZeroDivisionError,
        "twice": StoreError,
    }
    assert await slots(store) == ["fine", "good"]
    await store.close()


async def test_closing_lets_writers_in_line_finish_and_turns_later_ones_away(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    gate = Gate()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(commits(store).run, gate)
            await gate.reached()
            group.start_soon(store.add_fires, [fire("in-line")])
            await anyio.wait_all_tasks_blocked()
            group.start_soon(store.close)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(StoreError, match="store-closed"):
                await store.add_fires([fire("late")])
            gate.leave.set()
    store = await opened(tmp_path)
    assert await slots(store) == ["in-line"]
    await store.close()


@attrs.define(eq=False)
class Watched(FixedClock, Driven):
    """A clock that notes what is held of it."""

    names: set[str] = attrs.field(factory=set)
    going: list[str] = attrs.field(factory=list)

    @contextmanager
    def _held(self, what: str) -> Iterator[None]:
        self.names.add(what)
        self.going.append(what)
        try:
            yield
        finally:
            self.going.remove(what)

    def holding(self, what: str) -> Any:
        return self._held(what)

    async def nap(self, delay: timedelta) -> None:
        await self.sleep(delay)

    async def watch(self, delay: timedelta) -> None:
        await self.sleep(delay)


async def test_a_driven_clock_is_held_by_calls_and_not_by_waiting_for_events(
    tmp_path: Path,
) -> None:
    clock = Watched()
    store = await opened(tmp_path, clock=clock)
    gate = Gate()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: store._write("gate", gate))
            await gate.reached()
            group.start_soon(store.add_fires, [fire("1")])
            await anyio.wait_all_tasks_blocked()
            assert sorted(clock.going) == ["store add_fires", "store gate"]
            gate.leave.set()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: store.events(after=0, limit=1, wait=timedelta(days=1)))
            while "store events" not in clock.names or clock.going:
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
    await store.close()
    assert {"store open", "store close"} <= clock.names
    assert clock.going == []
