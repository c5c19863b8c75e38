"""What goes out to people, and what stays on record (spec, sections 10 and 11)."""

from typing import Any

import pytest

from drumbeat.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

QUIET = "NOTHING_TO_REPORT"


@pytest.mark.parametrize(
    ("policy", "judgment", "verdict", "delivery"),
    [
        ("always", "", "deliver", "delivered"),
        ("never", "", "withhold", None),
        ("auto", "Two mails.", "deliver", "delivered"),
        ("auto", QUIET, "withhold", None),
        ("auto", f"**{QUIET}**", "demote", None),
        ("urgent-only", "URGENT: disk full", "deliver", "delivered"),
        ("urgent-only", "Two mails.", "demote", None),
    ],
)
async def test_only_what_is_to_be_delivered_has_a_delivery(
    host: Any, policy: str, judgment: str, verdict: str, delivery: str | None
) -> None:
    """The rest is a record: never pending, never handed to the deliverer, never to be pulled."""
    host.write(notify=policy)
    host.agent = ScriptedAgent({"judgment": judgment}, default="the report")
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.settled()
        after = await engine.find_run(run.run_id)
        assert await engine.intents("pending") == []
        delivered = await engine.intents("delivered")
        assert await engine.intents() == [after.intent]
    assert (after.intent.verdict, after.delivery) == (verdict, delivery)
    assert run.delivery == ("pending" if delivery else None)
    expected = [run.intent.id] if delivery else []
    assert [intent.id for intent in host.deliverer.intents] == expected
    assert [intent.id for intent in delivered] == expected


async def test_an_intent_names_the_fire_that_asked(host: Any) -> None:
    """A host finds the thread, the issue or the mail by it."""
    host.write()
    async with host.engine() as engine:
        fire = await engine.fire("check", slot="issue-17")
        await engine.settled()
    (intent,) = host.deliverer.intents
    assert (intent.fire.id, intent.fire.cause, intent.fire.slot) == (fire.id, "manual", "issue-17")
    assert (intent.slug, intent.attempt) == ("check", 1)
