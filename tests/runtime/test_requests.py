"""Pausing, cancelling and rotating: rows that the holder takes up, from any process."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from drumbeat import Client, DrumbeatError, Mark, NotFound, RunRecord
from drumbeat.core.model import Claim
from drumbeat.runtime import requests
from drumbeat.runtime.conclusion import unfinished
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import drive

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
HOURLY = {"type": "schedule", "expression": "every 60 minutes"}


# ---- what is refused


@pytest.mark.parametrize("verb", ["pause", "cancel", "rotate"])
async def test_a_reason_is_required(host: Any, verb: str) -> None:
    host.write()
    async with host.client() as asking:
        with pytest.raises(DrumbeatError) as caught:
            await getattr(asking, verb)("check", " \n")
        assert caught.value.problem.code == "reason-missing"
        assert not host.data.exists()


@pytest.mark.parametrize(
    "call, code",
    [
        (lambda asking: asking.pause("chek", "holiday"), "slug-unknown"),
        (lambda asking: asking.resume("chek"), "slug-unknown"),
        (lambda asking: asking.rotate("chek", "stale"), "slug-unknown"),
        (lambda asking: asking.cancel("20260302T120000000000Z-ab", "no"), "run-unknown"),
    ],
    ids=["pause", "resume", "rotate", "cancel"],
)
async def test_what_is_not_known_is_refused(
    host: Any, call: Callable[[Client], Any], code: str
) -> None:
    host.write()
    async with host.engine() as engine, host.client() as asking:
        for one in (engine, asking):
            with pytest.raises(NotFound) as caught:
                await call(one)
            assert caught.value.problem.code == code


async def test_a_session_is_no_run_to_cancel(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        with pytest.raises(NotFound, match="run-unknown"):
            await engine.cancel(run.session_id, "no")


# ---- pausing


async def test_a_paused_automation_is_skipped_and_runs_by_hand(host: Any) -> None:
    host.write(trigger=HOURLY)
    async with host.engine() as engine, host.client() as asking:
        await asking.pause("check", " on \n holiday ")
        assert (await engine.status()).paused == {"check": "on holiday"}
        assert (await asking.status()).paused == {"check": "on holiday"}
        assert await drive(engine, until=host.clock.now() + 3 * HOUR) == []
        fires = await engine.fires("check")
        assert [fire.verdict for fire in fires] == ["skipped"] * 3
        assert {fire.reason for fire in fires} == {"paused (on holiday)"}
        why = await engine.why("check", at=fires[0].due)
        assert why.endswith("was skipped: it was paused when its turn came (on holiday).")
        later = await engine.why("check", at=host.clock.now() - timedelta(minutes=30))
        assert "at present it is paused (on holiday)" in later
        assert (await engine.run("check")).state == "succeeded"


async def test_an_interval_counts_from_the_skip(host: Any) -> None:
    host.write(trigger=HOURLY)
    start = host.clock.now()
    async with host.engine() as engine:
        await engine.pause("check", "holiday")
        await drive(engine, until=start + HOUR + 10 * MINUTE)
        (skipped,) = await engine.fires("check")
        await engine.resume("check")
        (run,) = await drive(engine, until=start + 2 * HOUR + MINUTE)
        assert run.fire.due == skipped.due + HOUR


async def test_pausing_twice_is_pausing_once(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        await engine.pause("check", "holiday")
        await engine.pause("check", "holiday")
        await engine.pause("check", "still on holiday")
        await engine.resume("check")
        await engine.resume("check")
        assert (await engine.status()).paused == {}
        told = await host.events(engine, "automation_paused", "automation_resumed")
        assert [(event.kind, event.data["reason"]) for event in told] == [
            ("automation_paused", "holiday"),
            ("automation_paused", "still on holiday"),
            ("automation_resumed", "still on holiday"),
        ]


async def test_it_stays_paused_without_an_engine_and_without_its_file(host: Any) -> None:
    host.write(trigger=HOURLY)
    async with host.client() as asking:
        await asking.pause("check", "holiday")
        (host.workspace / "automations" / "check.md").unlink()
        assert (await asking.status()).paused == {"check": "holiday"}
        await asking.resume("check")
        assert (await asking.status()).paused == {}


async def test_two_who_pause_at_once_leave_one_reason(host: Any) -> None:
    host.write()
    async with host.client() as asking, anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(asking.pause, "check", f"reason {number}")
    async with host.client() as asking:
        assert (await asking.status()).paused["check"].startswith("reason ")


async def test_secrets_are_taken_out_of_reasons(host: Any) -> None:
    host.write()
    async with host.client(secrets={"TOKEN": "swordfish-1"}) as asking:
        await asking.pause("check", "swordfish-1 leaked")
        assert "swordfish" not in (await asking.status()).paused["check"]


# ---- cancelling


async def test_a_cancelled_run_ends_demoted_and_its_fire_is_settled(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(HOUR)
    async with host.engine() as engine, host.client() as asking:
        fire = await engine.fire("check", slot="ticket-1")
        await host.clock.advance(MINUTE)
        (going,) = (await asking.status()).running
        await asking.cancel(going.run_id, "wrong branch")
        await asking.cancel(going.run_id, "as I said")
        await host.clock.advance(MINUTE)
        run = await engine.find_run(going.run_id)
        assert (run.state, run.fire.verdict, run.fire.id) == ("cancelled", "ran", fire.id)
        assert run.intent is not None
        assert (run.intent.verdict, run.intent.gate) == ("demote", "run-failed")
        assert run.intent.reason == "the run was cancelled: wrong branch"
        assert run.failure is not None
        assert run.failure.code == "cancelled"
        assert "was cancelled" in await engine.why("check", at=fire.due)
        await asking.cancel(going.run_id, "again")
        await host.clock.advance(MINUTE)
        assert [mark.value for mark in await marks(engine)] == [None]
        assert host.deliverer.intents == []


async def test_an_engine_cancels_at_once(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(HOUR)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        (going,) = (await engine.status()).running
        await engine.cancel(going.run_id, "wrong")
        await engine.settled()
        assert (await engine.find_run(going.run_id)).state == "cancelled"


async def test_a_run_that_ended_otherwise_cannot_be_cancelled(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        with pytest.raises(NotFound, match="succeeded already") as caught:
            await engine.cancel(run.run_id, "too late")
        assert caught.value.problem.code == "run-ended"


async def test_a_run_that_succeeds_all_the_same_keeps_its_success(host: Any) -> None:
    host.write()
    host.agent = host.sleeper(5 * MINUTE, stubborn=True)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        (going,) = (await engine.status()).running
        await engine.cancel(going.run_id, "wrong")
        await host.clock.advance(HOUR)
        run = await engine.find_run(going.run_id)
        assert run.state in ("succeeded", "cancelled")
        assert run.intent is not None
        assert [mark.value for mark in await marks(engine)] == [None]


async def test_what_was_asked_for_wins_over_a_drain(host: Any) -> None:
    """A drain that has cancelled the run already does not make another attempt of it."""
    host.write()
    host.agent = host.sleeper(HOUR)
    async with host.engine() as engine:
        await engine.fire("check", slot="ticket-1")
        await host.clock.advance(MINUTE)
        (going,) = (await engine.status()).running
        async with host.client() as asking:
            await asking.cancel(going.run_id, "wrong")
    async with host.engine() as engine:
        await engine.settled()
        runs = await engine.runs()
        assert runs[-1].run_id == going.run_id
        assert await engine.sweep() == []


async def test_a_request_outlives_a_crash(host: Any) -> None:
    """The run that a crash cut off ends as cancelled, and has no other attempt."""
    host.write()
    now = host.clock.now()
    store = SqliteStore(host.data / "drumbeat.db", clock=host.clock)
    async with host.engine() as engine:
        fire = await engine.fire("check", slot="ticket-1", after=HOUR)
    await store.open(holder="died", lease=HOUR)
    claim = await store.claim_fire(now=now + HOUR, run_id="20260302T130000000000Z-ab")
    assert claim is not None
    await store.record(claim=claim, run=going_run(claim.fire, now))
    await store.close()
    async with host.client() as asking:
        await asking.cancel(claim.run_id, "wrong")
        await asking.rotate("check", "stale")
    await host.clock.advance(HOUR)
    async with host.engine() as engine:
        await engine.settled()
        (run,) = await engine.runs()
        assert (run.state, run.fire.verdict, run.fire.id) == ("cancelled", "ran", fire.id)
        # Answered; one without a value may be gone by now, as tidying takes those.
        assert all(mark.value is None for mark in await marks(engine))
        (rotated,) = await host.events(engine, "session_rotated")
        assert rotated.data["reason"] == "operator"


def going_run(fire: Any, now: Any) -> RunRecord:
    claim = Claim(slug=fire.slug, run_id=fire.run_id, token=1, fire=fire)
    return unfinished(claim, fire, at=now)


async def marks(engine: Any) -> list[Mark]:
    store = await engine._readable()
    found: list[Mark] = await store.marks("request:")
    return found


async def test_a_request_of_a_later_release_is_left_alone(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        store = await engine._writable()
        mark = Mark(key="request:levitate:check", value={"reason": "x", "at": "y"})
        await store.record(marks=(mark,))
        await host.clock.advance(MINUTE)
        assert (await marks(engine))[0].value == mark.value


# ---- rotating


async def test_a_rotation_leaves_its_three_marks(host: Any) -> None:
    host.write()
    async with host.engine() as engine, host.client() as asking:
        first = await engine.run("check")
        await asking.rotate("check", "it went round in circles")
        await host.clock.advance(MINUTE)
        assert await engine.sessions() == {}
        (event,) = await host.events(engine, "session_rotated")
        assert event.data["reason"] == "operator"
        assert event.data["note"] == "it went round in circles"
        assert event.data["session_id"] == first.session_id
        log = (host.data / "session_rotations.jsonl").read_text(encoding="utf-8")
        assert log.count("operator") == 1
        second = await engine.run("check")
        assert second.session_id != first.session_id


async def test_a_rotation_waits_for_the_run_that_is_going(host: Any) -> None:
    """Or that run would pin again what it talks in."""
    host.write()
    host.agent = host.sleeper(HOUR / 2)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(2 * HOUR)
        before = (await engine.sessions())["check"]
        await engine.fire("check")
        await engine.fire("check", slot="next")
        await host.clock.advance(MINUTE)
        await engine.rotate("check", "stale")
        await engine.rotate("check", "stale")
        await host.clock.advance(MINUTE)
        assert (await engine.sessions())["check"] == before
        await host.clock.advance(3 * HOUR)
        *_, first = runs = await engine.runs()
        assert [run.session_id == first.session_id for run in reversed(runs)] == [
            True,
            True,
            False,
        ]
        assert len(await host.events(engine, "session_rotated")) == 1


async def test_a_rotation_waits_for_whoever_talks_in_the_conversation(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        store = await engine._writable()
        talk = await store.hold(run.session_id, run_id="a-reply")
        await engine.rotate("check", "stale")
        await host.clock.advance(MINUTE)
        assert "check" in await engine.sessions()
        await store.finish(talk, None)
        await host.clock.advance(MINUTE)
        assert await engine.sessions() == {}


async def test_an_orphan_can_be_rotated_away(host: Any) -> None:
    host.write()
    host.write("gone")
    async with host.engine() as engine:
        await engine.run("gone")
        (host.workspace / "automations" / "gone.md").unlink()
        for _ in range(2):
            await engine.reload()
        assert "gone" in await engine.sessions()
        await engine.rotate("gone", "its file is gone")
        await engine.settled()
        assert await engine.sessions() == {}


async def test_a_request_that_somebody_else_answers_is_not_done_twice(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        await engine.run("check")
        services = engine._life.services
        store = services.store
        await requests.ask(store, requests.ROTATE + "check", "stale", clock=host.clock)
        mark = await requests.request_of(store, requests.ROTATE + "check")
        assert mark is not None
        await store.record(marks=(attrs.evolve(mark, value=None),))
        from drumbeat.runtime.rotations import rotate

        await rotate(
            services,
            "check",
            reason="operator",
            note="stale",
            now=host.clock.now(),
            run_id=None,
            answering=mark,
        )
        assert "check" in await engine.sessions()
        assert await host.events(engine, "session_rotated") == []


async def test_of_two_rotations_at_once_both_are_carried_out(host: Any) -> None:
    """The one that comes second carries out the first one's, and then its own."""
    host.write()
    from drumbeat.runtime.rotations import rotate, rotate_if_asked

    async with host.engine() as engine:
        await engine.run("check")
        services = engine._life.services
        key = requests.ROTATE + "check"
        await requests.ask(services.store, key, "stale", clock=host.clock)
        real = services.pins.get
        other_process = attrs.evolve(services, pinning=anyio.Lock())

        async def slow(slug: str) -> Any:
            services.pins.get = real
            found = await real(slug)
            await rotate(
                other_process,
                "check",
                reason="daily-boundary",
                note="",
                now=host.clock.now(),
                run_id=None,
            )
            return found

        services.pins.get = slow
        await rotate_if_asked(services, "check")
        reasons = [event.data["reason"] for event in await host.events(engine, "session_rotated")]
        assert reasons == ["daily-boundary", "operator"]
        assert await requests.request_of(services.store, key) is None


async def test_those_who_ask_at_once_leave_one_request(host: Any) -> None:
    host.write()
    async with host.client() as asking:
        await asking.fire("check", after=HOUR)
        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(asking.rotate, "check", f"reason {number}")
            for number in range(4):
                group.start_soon(asking.pause, "check", f"reason {number}")
        assert len(await marks(asking)) == 1


async def test_a_run_that_is_still_to_be_settled_keeps_its_request(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        store = await engine._writable()
        await engine.fire("check", after=HOUR)
        now = host.clock.now() + HOUR
        claim = await store.claim_fire(now=now, run_id="20260302T130000000000Z-ab")
        assert claim is not None
        await store.record(claim=claim, run=going_run(claim.fire, now))
        await engine.cancel(claim.run_id, "wrong")
        await engine.settled()
        assert [mark.value["reason"] for mark in await marks(engine)] == ["wrong"]
        await store.finish(claim, None)


async def test_a_request_that_another_answers_meanwhile_is_let_be(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        desk, store = engine._life.desk, await engine._writable()
        stale = Mark(key=requests.CANCEL + "gone", value={"reason": "x", "at": "y"}, version=7)
        await desk._take_up(stale)
        assert await marks(engine) == []
        assert await store.marks("request:") == []


async def test_trouble_with_the_store_keeps_a_request(host: Any) -> None:
    host.write()
    store = host.faulty()
    async with host.engine(store=store) as engine:
        await engine.run("check")
        from drumbeat import Problem, StoreError

        problem = Problem(code="store-full", message="no room", remedy="wait")
        await engine.rotate("check", "stale")
        store.faults["record"] = [StoreError(problem)]
        await host.clock.advance(timedelta(minutes=5))
        assert await engine.sessions() == {}
        assert (await engine.status()).faults == ()


async def test_pins_that_cannot_be_read_keep_one_request_waiting_and_nothing_else(
    host: Any,
) -> None:
    """The database is well: no trouble with it is reported, and no loop asks again and again."""
    host.write()
    host.write("other")
    async with host.engine() as engine:
        await engine.run("check")
        await engine.run("other")
        (host.data / "session_rotations.jsonl").mkdir()
        with capture_logs() as lines:
            await engine.rotate("check", "one")
            await engine.rotate("other", "two")
            await host.clock.advance(MINUTE)
        assert [line for line in lines if line["event"] == "store_trouble"] == []
        failed = [line["code"] for line in lines if line["event"] == "request_failed"]
        assert set(failed) <= {"pins-inaccessible"}
        assert 0 < len(failed) <= 2
        assert (await engine.status()).faults == ()
