"""Refused requests are counted: one event a minute for each kind, whatever comes."""

from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from drumbeat import Event, LeftOut, Problem, StoreError, WebhookState, WebhookTrigger
from drumbeat.core.left_out import webhook_state
from drumbeat.core.redaction import Redactor
from drumbeat.runtime.refusals import Refusals

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
FULL = StoreError(Problem(code="store-full", message="there is no room", remedy="make some"))


@pytest.fixture
async def store(host: Any) -> Any:
    store = host.faulty()
    await store.open(holder=None, lease=MINUTE)
    yield store
    await store.close()


async def refused(store: Any) -> list[Event]:
    return [
        event
        for event in await store.events(after=0, limit=1000, wait=timedelta())
        if event.kind == "webhook_refused"
    ]


async def test_a_kind_is_one_event_with_its_count(host: Any, store: Any) -> None:
    """The route, the code, how many, and since when."""
    refusals = Refusals(clock=host.clock)
    since = host.clock.now().isoformat()
    for _ in range(1000):
        refusals.note("webhook_refused", "look", route="door", code="webhook-signature")
    refusals.note("webhook_refused", "look", route="door", code="webhook-unsigned")
    assert (refusals.any, refusals.due) == (True, False)
    await host.clock.advance(MINUTE)
    assert refusals.due
    await refusals.write(store, Redactor({}))
    assert (refusals.any, refusals.due) == (False, False)
    await refusals.write(store, Redactor({}))
    first, second = await refused(store)
    assert (first.slug, first.run_id) == ("look", None)
    assert first.data == {
        "route": "door",
        "code": "webhook-signature",
        "count": 1000,
        "since": since,
    }
    assert second.data["count"] == 1


async def test_names_from_outside_are_bounded(host: Any, store: Any) -> None:
    """Twenty are told apart; the rest, and what could be no route, are one number."""
    refusals = Refusals(clock=host.clock)
    code = "webhook-route-unknown"
    for number in range(5000):
        refusals.note("webhook_refused", None, route=f"route-{number}", code=code)
    refusals.note("webhook_refused", None, route="route-3", code=code)
    refusals.note("webhook_refused", None, route="../../x\n" * 1000, code=code)
    refusals.note("webhook_refused", "look", route="door", code="webhook-unsigned")
    await refusals.write(store, Redactor({}))
    counts = {event.data["route"]: event.data["count"] for event in await refused(store)}
    assert len(counts) == 22
    assert (counts["route-3"], counts["door"]) == (2, 1)
    assert counts[None] == 5000 - 20 + 1


async def test_a_secret_in_a_name_is_shown_nowhere(host: Any, store: Any) -> None:
    """Somebody may have put it into the address."""
    refusals = Refusals(clock=host.clock)
    refusals.note("webhook_refused", None, route="correct-horse", code="webhook-route-unknown")
    with capture_logs() as logs:
        await refusals.write(store, Redactor({"AGENT_API_SECRET": "correct-horse"}))
    (event,) = await refused(store)
    assert "correct-horse" not in str((event, logs))


async def test_what_the_store_does_not_take_is_counted_on(host: Any, store: Any) -> None:
    """It is tried again a minute later, with what came meanwhile."""
    refusals = Refusals(clock=host.clock)
    since = host.clock.now().isoformat()
    refusals.note("webhook_refused", "look", route="door", code="webhook-unsigned")
    store.faults["record"] = [FULL]
    with capture_logs() as logs:
        await refusals.write(store, Redactor({}))
    assert [(line["event"], line["code"]) for line in logs] == [("refusals_not_kept", "store-full")]
    assert not refusals.due
    await host.clock.advance(MINUTE)
    refusals.note("webhook_refused", "look", route="door", code="webhook-unsigned")
    assert refusals.due
    await refusals.write(store, Redactor({}))
    (event,) = await refused(store)
    assert (event.data["count"], event.data["since"]) == (2, since)


async def test_what_comes_while_the_store_refuses_is_added(host: Any, store: Any) -> None:
    """A slow disk that fails at last costs no count of what came meanwhile."""
    refusals = Refusals(clock=host.clock)
    refusals.note("webhook_refused", "look", route="door", code="webhook-unsigned")

    class Slow:
        async def record(self, **_: Any) -> None:
            await host.clock.advance(SECOND)
            refusals.note("webhook_refused", "look", route="door", code="webhook-unsigned")
            raise FULL

    since = host.clock.now().isoformat()
    await refusals.write(Slow(), Redactor({}))
    await refusals.write(store, Redactor({}))
    (event,) = await refused(store)
    assert (event.data["count"], event.data["since"]) == (2, since)


async def test_what_routes_leave_out_is_summed_up(host: Any, store: Any) -> None:
    """Over minutes and writers, also when two write at the same instant; a thousand are one row."""
    first, second = Refusals(clock=host.clock), Refusals(clock=host.clock)
    since = host.clock.now()
    for _ in range(1000):
        first.note("webhook_filtered", "look", route="door", filter="a==b")
    first.note("webhook_conflicting", "look", route="door")
    await host.clock.advance(MINUTE)
    second.note("webhook_filtered", "look", route="door", filter="a==b")
    last = host.clock.now()

    class Raced:
        """Another process writes between the look at the marks and what is written."""

        async def marks(self, prefix: str) -> Any:
            return await store.marks(prefix)

        async def record(self, **given: Any) -> None:
            await first.write(store, Redactor({}))
            await store.record(**given)

    with capture_logs() as logs:
        await second.write(Raced(), Redactor({}))
    assert sorted((line["event"], line["log_level"], line["count"]) for line in logs) == [
        ("webhook_conflicting", "warning", 1),
        ("webhook_filtered", "info", 1),
        ("webhook_filtered", "info", 1000),
    ]
    trigger = WebhookTrigger(route="door", filter="a==b")
    (mark,) = await store.marks("left-out:")
    assert webhook_state("look", trigger, mark.value) == WebhookState(
        slug="look",
        route="door",
        filter="a==b",
        filtered=LeftOut(count=1001, since=since, last=last),
        conflicting=LeftOut(count=1, since=since, last=since),
    )
    assert len(await store.events(after=0, limit=1000, wait=timedelta())) == 3


async def test_what_fails_otherwise_is_counted_on_and_said(host: Any, store: Any) -> None:
    """A fault, or a cancellation in the middle, loses no count."""
    refusals = Refusals(clock=host.clock)
    refusals.note("webhook_refused", "look", route="door", code="webhook-unsigned")
    store.faults["record"] = [RuntimeError("broken")]
    with pytest.raises(RuntimeError):
        await refusals.write(store, Redactor({}))
    assert refusals.any
