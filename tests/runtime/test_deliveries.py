"""From a committed intent to the deliverer, whatever that does and whenever the engine ends."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
from structlog.testing import capture_logs

from drumbeat import DeliveryIntent, DeliveryRefused, Receipt
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import RecordingDeliverer, drive

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Says:
    """A deliverer that does one thing after the other; the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.attempts: list[DeliveryIntent] = []

    async def deliver(self, intent: DeliveryIntent, /) -> Any:
        self.attempts.append(intent)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Exiting(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise SystemExit(3)


class Stop(BaseException):
    """What no handler expects."""


class Unspeakable(Exception):  # noqa: N818
    def __str__(self) -> str:
        msg = "cannot say"
        raise RuntimeError(msg)


@pytest.mark.parametrize(
    "error, said",
    [
        (ValueError("no"), "ValueError: no"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit: "),
        (Stop("now"), "Stop: now"),
        (BaseExceptionGroup("one", [Stop("now")]), "Stop: now"),
        pytest.param(OSError("x" * 10_000_000), "OSError: " + "x" * 1991, id="long"),
        pytest.param(
            ExceptionGroup("one", [ValueError("no")]), "ValueError: no", id="group-of-one"
        ),
        (
            ExceptionGroup("two", [ValueError("no"), OSError("down")]),
            "ExceptionGroup: two (2 sub-exceptions)",
        ),
        (Unspeakable(), "Unspeakable"),
        (Exiting(), "Exiting"),
        (OSError("no way to correct-horse"), "OSError: no way to [redacted KEY]"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_a_deliverer_raises_is_one_failed_attempt(
    host: Any, error: BaseException, said: str
) -> None:
    host.write()
    deliverer = Says(error, None)
    async with host.engine(deliverer=deliverer, secrets={"KEY": "correct-horse"}) as engine:
        run = await engine.run("check")
        await drive(engine, until=START + HOUR)
        assert (await engine.find_run(run.run_id)).delivery == "delivered"
        (failed,) = await host.events(engine, "delivery_failed")
    assert failed.data["reason"] == said
    assert [intent.attempt for intent in deliverer.attempts] == [1, 2]


async def test_a_refusal_that_cannot_be_read_is_one_all_the_same(host: Any) -> None:
    host.write()
    refusal = DeliveryRefused(Exiting())  # type: ignore[arg-type]
    async with host.engine(deliverer=Says(refusal)) as engine:
        run = await engine.run("check")
        await engine.settled()
        assert (await engine.find_run(run.run_id)).delivery == "abandoned"
        (abandoned,) = await host.events(engine, "delivery_abandoned")
    assert abandoned.data["reason"] == "refused, and the reason cannot be read"


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_deliverer_that_cancels_itself_has_failed_once(host: Any) -> None:
    """Only asyncio lets a call raise a cancellation that nobody asked for."""
    host.write()

    class Odd(Says):
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            self.attempts.append(intent)
            if len(self.attempts) == 1:
                raise anyio.get_cancelled_exc_class()

    async with host.engine(deliverer=Odd(None)) as engine:
        run = await engine.run("check")
        await drive(engine, until=START + HOUR)
        assert (await engine.find_run(run.run_id)).delivery == "delivered"
        (failed,) = await host.events(engine, "delivery_failed")
        assert failed.data["reason"] == "the deliverer cancelled itself; it may have arrived"


ODD: Any = 5
"""What no type checker would let pass."""


class Mute(Receipt):
    """A host's own, which has lost what it was about."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(3) if name == "id" else AttributeError(name)


@pytest.mark.parametrize(
    "answer",
    ["done", 7, Receipt(id=ODD), Receipt(url=ODD), Receipt(id="x" * 4097), Mute()],
    ids=["text", "number", "id", "url", "size", "mute"],
)
async def test_returning_means_delivered_whatever_comes_back(host: Any, answer: Any) -> None:
    """What is no receipt is not kept, and the log says so."""
    host.write()
    with capture_logs() as logs:
        async with host.engine(deliverer=Says(answer)) as engine:
            run = await engine.run("check")
            await engine.settled()
            after = await engine.find_run(run.run_id)
    assert (after.delivery, after.receipt) == ("delivered", None)
    assert [line["type"] for line in logs if line["event"] == "receipt_ignored"] == [
        type(answer).__name__
    ]


async def test_a_deliverer_that_writes_on_its_intent_ends_nothing(host: Any) -> None:
    class Writes:
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            for name in ("id", "run_id", "slug"):
                object.__setattr__(intent, name, "mine")

    host.write()
    async with host.engine(deliverer=Writes()) as engine:
        run = await engine.run("check")
        await engine.settled()
        assert (await engine.find_run(run.run_id)).delivery == "delivered"
        assert (await engine.status()).state == "running"


class OwnReceipt(Receipt):
    """A host's own, made in another way."""

    def __init__(self, message: int) -> None:
        super().__init__(id=f"chat-{message}")


@attrs.frozen(kw_only=True)
class WithMore(Receipt):
    """A host's own, with what no record can hold."""

    client: object = attrs.field(factory=object)


@pytest.mark.parametrize(
    "answer", [OwnReceipt(1), WithMore(id="chat-1")], ids=["constructor", "fields"]
)
async def test_a_receipt_of_the_hosts_own_class_counts_for_what_it_says(
    host: Any, answer: Receipt
) -> None:
    """And stops nothing: the message is out, and the engine goes on."""
    host.write()
    async with host.engine(deliverer=Says(answer)) as engine:
        run = await engine.run("check")
        await engine.settled()
        found = await engine.find_run("chat-1")
        assert (await engine.status()).state == "running"
    assert (found.run_id, found.receipt) == (run.run_id, Receipt(id="chat-1"))


async def test_a_receipt_is_kept_and_names_the_run(host: Any) -> None:
    host.write()
    receipt = Receipt(id="chat-1", url="https://chat.test/1")
    async with host.engine(deliverer=Says(receipt)) as engine:
        run = await engine.run("check")
        await engine.settled()
        found = await engine.find_run("chat-1")
    assert (found.run_id, found.receipt) == (run.run_id, receipt)


async def test_an_intent_that_waits_for_its_retry_goes_out_after_a_restart(host: Any) -> None:
    """To the minute, though nobody remembers when it was to be."""
    host.write()
    async with host.engine(deliverer=Says(ConnectionError("down"))) as engine:
        await engine.run("check")
        await drive(engine, until=START + 2 * MINUTE)
    recording = RecordingDeliverer()
    async with host.engine(deliverer=recording) as engine:
        await drive(engine, until=START + 5 * MINUTE)
        assert recording.intents == []
        await drive(engine, until=START + 8 * MINUTE)
        assert [intent.attempt for intent in recording.intents] == [3]
        (delivered,) = await host.events(engine, "delivered")
        assert delivered.at <= START + 7 * MINUTE


async def test_a_retry_in_hours_makes_no_stop_each_minute(host: Any) -> None:
    """A driven clock is moved from one thing that is due to the next."""
    host.write()
    stops = 0

    async def count() -> None:
        nonlocal stops
        while True:
            await host.clock.nap(timedelta(seconds=1))
            stops += 1

    async with (
        host.engine(deliverer=Says(ConnectionError("down"))) as engine,
        anyio.create_task_group() as group,
    ):
        await engine.run("check")
        group.start_soon(count)
        await drive(engine, until=START + 24 * HOUR)
        group.cancel_scope.cancel()
    assert stops < 40


async def test_a_refusal_is_final_and_its_reason_kept(host: Any) -> None:
    host.write()
    async with host.engine(deliverer=Says(DeliveryRefused("nobody there"))) as engine:
        run = await engine.run("check")
        await engine.settled()
        (event,) = await host.events(engine, "delivery_abandoned")
        assert event.data["reason"] == "nobody there"
        why = await engine.why("check", at=START)
        assert "its message was to be delivered and was abandoned" in why
        await engine.acknowledge(str(event.data["intent"]))
        assert (await engine.find_run(run.run_id)).delivery == "abandoned"


async def test_a_long_reason_is_cut_after_it_was_redacted(host: Any) -> None:
    host.write()
    secret = "correct-horse"
    deliverer = Says(ValueError("x" * 1985 + secret), None)
    async with host.engine(deliverer=deliverer, secrets={"KEY": secret}) as engine:
        await engine.run("check")
        await engine.settled()
        (failed,) = await host.events(engine, "delivery_failed")
    assert len(failed.data["reason"]) == 2000
    assert "corr" not in failed.data["reason"]


async def test_no_more_than_eight_deliveries_go_at_once(host: Any) -> None:
    going = most = 0

    class Slow:
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            nonlocal going, most
            going += 1
            most = max(most, going)
            await host.clock.sleep(timedelta(seconds=10))
            going -= 1

    for number in range(20):
        host.write(f"check-{number}")
    async with host.engine(deliverer=Slow(), settings={"max_concurrent_runs": 20}) as engine:
        for number in range(20):
            await engine.fire(f"check-{number}")
        await drive(engine, until=START + HOUR)
        assert await engine.intents("pending") == []
        assert len(await engine.intents("delivered")) == 20
    assert most == 8


async def test_a_delivery_longer_than_a_lease_is_handed_over_once(host: Any) -> None:
    host.write()
    attempts: list[int] = []

    class Slow:
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            attempts.append(intent.attempt)
            await host.clock.sleep(20 * MINUTE)

    settings = {"deliver_timeout": 30 * MINUTE, "lease": MINUTE}
    async with host.engine(deliverer=Slow(), settings=settings) as engine:
        run = await engine.run("check")
        await drive(engine, until=START + HOUR)
        assert (await engine.find_run(run.run_id)).delivery == "delivered"
    assert attempts == [1]


async def test_an_answer_is_not_written_while_a_claim_is(host: Any) -> None:
    """Else a lease that is renewed just then would be taken for a message that is to be sent."""
    host.write()
    host.write("other")
    host.data.mkdir()
    attempts: list[int] = []
    met: list[bool] = []
    called, answered, settled = anyio.Event(), anyio.Event(), anyio.Event()

    class Watched(SqliteStore):
        async def claim_intent(self, *, now: datetime) -> DeliveryIntent | None:
            claimed = await super().claim_intent(now=now)
            if claimed is not None and claimed.attempt == 2:
                await answered.wait()
                for _ in range(100):
                    await anyio.lowlevel.checkpoint()
                met.append(settled.is_set())
            return claimed

        async def settle_intent(self, *given: Any, **named: Any) -> None:
            if given[0].slug == "check":
                settled.set()
            await super().settle_intent(*given, **named)

    class Slow:
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            if intent.slug == "check":
                attempts.append(intent.attempt)
                called.set()
                await host.clock.sleep(3 * MINUTE)
                answered.set()

    settings = {"deliver_timeout": 30 * MINUTE}
    store = Watched(host.data / "drumbeat.db", clock=host.clock)
    async with host.engine(deliverer=Slow(), settings=settings, store=store) as engine:
        run = await engine.run("check")
        await called.wait()
        with closing(sqlite3.connect(host.data / "drumbeat.db")) as db, db:
            db.execute("UPDATE intents SET leased_until = NULL")  # as after a stall of the loop
        await engine.fire("other")  # makes the pump look again
        await drive(engine, until=START + HOUR)
        assert (await engine.find_run(run.run_id)).delivery == "delivered"
    assert attempts == [1]
    assert met == [False]


async def test_leaving_gives_the_last_intents_a_chance_to_go_out(host: Any) -> None:
    """Also that of the run which the leaving itself interrupted."""
    host.write()

    host.agent = host.sleeper(HOUR)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
    assert [intent.gate for intent in host.deliverer.intents] == ["run-failed"]


async def test_an_intent_acknowledged_by_hand_lets_the_next_one_out(host: Any) -> None:
    host.write()
    deliverer = Says(ConnectionError("down"), None)
    async with host.engine(deliverer=deliverer) as engine:
        first = await engine.run("check")
        await engine.settled()
        second = await engine.run("check")
        await engine.settled()
        assert first.intent is not None
        assert second.intent is not None
        assert len(deliverer.attempts) == 1
        await engine.acknowledge(first.intent.id)
        await engine.settled()
        assert [intent.id for intent in deliverer.attempts] == [first.intent.id, second.intent.id]


async def test_no_answer_in_time_is_a_failed_attempt_that_may_have_arrived(host: Any) -> None:
    host.write()

    class Slow(Says):
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            self.attempts.append(intent)
            if intent.attempt == 1:
                await host.clock.sleep(HOUR)

    deliverer = Slow(None)
    async with host.engine(deliverer=deliverer) as engine:
        await engine.run("check")
        await drive(engine, until=START + HOUR)
        (failed,) = await host.events(engine, "delivery_failed")
        assert failed.data["reason"] == "no answer within 1 min; it may have arrived"
        assert await engine.intents("pending") == []
    assert [intent.attempt for intent in deliverer.attempts] == [1, 2]


async def test_the_last_attempt_that_fails_abandons_the_intent(host: Any) -> None:
    host.write()
    settings = {"deliver_attempts": 2}
    async with host.engine(deliverer=Says(OSError("down")), settings=settings) as engine:
        run = await engine.run("check")
        await drive(engine, until=START + HOUR)
        (event,) = await host.events(engine, "delivery_abandoned")
        assert event.data["reason"] == "given up after attempt 2: OSError: down"
        assert (await engine.find_run(run.run_id)).delivery == "abandoned"


async def test_an_intent_that_is_gone_from_the_store_stops_nothing(host: Any) -> None:
    class Forgetful(SqliteStore):
        async def settle_intent(self, intent: DeliveryIntent, *given: Any, **named: Any) -> None:
            gone = attrs.evolve(intent, id="another")
            await super().settle_intent(gone, *given, **named)

    host.write()
    store = Forgetful(host.data / "drumbeat.db", clock=host.clock)
    with capture_logs() as logs:
        async with host.engine(store=store) as engine:
            await engine.run("check")
            await engine.settled()
            assert (await engine.status()).state == "running"
    assert "intent_gone" in [line["event"] for line in logs]


async def test_draining_gives_a_delivery_what_is_left_of_the_time(host: Any) -> None:
    host.write()

    class Slow(Says):
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            self.attempts.append(intent)
            await host.clock.sleep(MINUTE / 2 * len(self.attempts) ** 2)

    deliverer = Slow(None)
    settings = {"drain_timeout": MINUTE / 4 * 3}
    for delivered in (1, 1):
        async with host.engine(deliverer=deliverer, settings=settings) as engine:
            await engine.run("check")
            await host.clock.advance(timedelta(seconds=1))
            async with anyio.create_task_group() as group:
                group.start_soon(engine.drain, "a deploy")
                await host.clock.advance(MINUTE)
            assert (await engine.status()).state == "stopped"
            assert len(await engine.intents("delivered")) == delivered


class Slowly(Says):
    """A deliverer that sends, and then waits for the channel to say so."""

    def __init__(self, clock: Any, takes: timedelta) -> None:
        super().__init__(None)
        self.clock, self.takes = clock, takes

    async def deliver(self, intent: DeliveryIntent, /) -> None:
        self.attempts.append(intent)
        await self.clock.sleep(self.takes)


@pytest.mark.parametrize("how", ["drained", "cancelled"])
async def test_what_a_drain_interrupts_is_delivered_once_by_the_next_engine(
    host: Any, how: str
) -> None:
    """No delivery begins when it could only be cut off."""
    host.write()
    host.agent = host.sleeper(HOUR)
    deliverer = Slowly(host.clock, MINUTE / 200)
    with anyio.CancelScope() as scope:
        async with host.engine(deliverer=deliverer) as engine:
            await engine.fire("check")
            await host.clock.advance(MINUTE)
            if how == "cancelled":
                scope.cancel()
                await anyio.sleep_forever()
            async with anyio.create_task_group() as group:
                group.start_soon(engine.drain, "a deploy")
                await host.clock.advance(MINUTE)
            (run,) = await engine.runs()
            assert (run.state, run.delivery) == ("interrupted", "pending")
    assert deliverer.attempts == []
    async with host.engine(deliverer=deliverer) as engine:
        await host.clock.advance(MINUTE)
        (run,) = await engine.runs()
        assert (run.state, run.delivery) == ("interrupted", "delivered")
        assert await host.events(engine, "delivery_failed") == []
    assert [(intent.run_id, intent.attempt) for intent in deliverer.attempts] == [(run.run_id, 1)]


async def test_a_delivery_that_the_end_cuts_off_is_a_failed_attempt_with_a_reason(
    host: Any,
) -> None:
    """The next engine tries again at once, and people can read why it may be a repeat."""
    host.write()
    deliverer = Slowly(host.clock, MINUTE / 4 * 3)
    async with host.engine(deliverer=deliverer, settings={"drain_timeout": MINUTE / 2}) as engine:
        await engine.run("check")
        await host.clock.advance(timedelta(seconds=1))
        async with anyio.create_task_group() as group:
            group.start_soon(engine.drain, "a deploy")
            await host.clock.advance(MINUTE / 2)
        (failed,) = await host.events(engine, "delivery_failed")
        told = await engine.why("check", at=host.clock.now())
    assert failed.data["attempt"] == 1
    assert failed.data["reason"] == "cut off as the engine stopped; it may have arrived"
    assert "cut off as the engine stopped; it may have arrived" in told
    async with host.engine(deliverer=deliverer) as engine:
        await host.clock.advance(MINUTE)
        assert [run.delivery for run in await engine.runs()] == ["delivered"]
    assert [intent.attempt for intent in deliverer.attempts] == [1, 2]


async def test_what_is_claimed_as_the_time_of_a_drain_ends_is_handed_to_nobody(host: Any) -> None:
    """A store may claim for good although nobody waits for its answer any more."""
    host.write()
    host.write("quick")
    host.agent = host.sleeper(timedelta(0), check=HOUR)
    host.data.mkdir()

    class Unmoved(SqliteStore):
        async def claim_intent(self, *, now: datetime) -> DeliveryIntent | None:
            with anyio.CancelScope(shield=True):
                claimed = await super().claim_intent(now=now)
                if claimed is not None and not held.is_set():
                    held.set()
                    await let_go.wait()
            return claimed

    held, let_go = anyio.Event(), anyio.Event()
    deliverer = Says(None)
    store = Unmoved(host.data / "drumbeat.db", clock=host.clock)
    async with host.engine(deliverer=deliverer, store=store) as engine:
        await engine.fire("check")
        await engine.run("quick")
        await held.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(engine.drain, "a deploy")
            await host.clock.advance(MINUTE)
            let_go.set()
        failed = await host.events(engine, "delivery_failed")
        assert [event.data["reason"] for event in failed] == [
            "the engine stopped before it was handed over"
        ]
        assert await engine.intents("delivered") == []
    assert deliverer.attempts == []


async def test_a_refusal_out_of_a_task_group_of_the_deliverer_is_a_refusal(host: Any) -> None:
    host.write()
    refusal = ExceptionGroup("its group", [DeliveryRefused("no such channel")])
    async with host.engine(deliverer=Says(refusal)) as engine:
        run = await engine.run("check")
        await engine.settled()
        assert (await engine.find_run(run.run_id)).delivery == "abandoned"
        (event,) = await host.events(engine, "delivery_abandoned")
    assert event.data["reason"] == "no such channel"


async def test_deliveries_that_ignore_their_cancellation_are_told_and_hold_up_nobody_else(
    host: Any,
) -> None:
    """Their lapsed leases count for no attempt, and their answers are written all the same."""
    let_go = anyio.Event()
    delivered: list[tuple[str, int]] = []

    class Stuck:
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            if intent.slug != "sound" and not let_go.is_set():
                with anyio.CancelScope(shield=True):
                    # On the clock, so that time goes on.
                    while not let_go.is_set():
                        await host.clock.sleep(MINUTE)
                msg = "too late"
                raise OSError(msg)
            delivered.append((intent.slug, intent.attempt))

    slugs = [f"stuck-{number}" for number in range(9)]
    for slug in [*slugs, "sound"]:
        host.write(slug)
    async with host.engine(deliverer=Stuck()) as engine:
        for slug in [*slugs, "sound"]:
            await engine.fire(slug)
        await host.clock.advance(5 * MINUTE)
        assert delivered == [("sound", 1)]
        runs = {run.slug: run for run in await engine.runs()}
        assert set((await engine.status()).stuck) == {runs[slug].intent.id for slug in slugs}
        assert len(await host.events(engine, "delivery_stuck")) == 9
        await host.clock.advance(3 * HOUR)
        let_go.set()
        await host.clock.advance(MINUTE)
        assert (await engine.status()).stuck == ()
        assert len(await host.events(engine, "delivery_stuck")) == 9
        await host.clock.advance(2 * MINUTE)
        assert {run.delivery for run in await engine.runs()} == {"delivered"}
