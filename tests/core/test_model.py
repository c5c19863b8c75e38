"""What the nouns answer about themselves."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from drumbeat.core.model import (
    Automation,
    InboxTrigger,
    Interval,
    Schedule,
    ScheduleTrigger,
    Trigger,
    Turn,
    Usage,
    Workspace,
)
from drumbeat.errors import Problem

HOURLY = Interval(every=timedelta(hours=1))
INBOX = InboxTrigger(system="imap", address="a@b.c", allow_from=())


@pytest.mark.parametrize(
    "triggers, schedule",
    [
        ((), None),
        ((INBOX,), None),
        ((ScheduleTrigger(expression="x", schedule=None),), None),
        ((INBOX, ScheduleTrigger(expression="every hour", schedule=HOURLY)), HOURLY),
    ],
)
def test_an_automation_has_the_schedule_of_its_schedule_trigger(
    triggers: tuple[Trigger, ...], schedule: Schedule | None
) -> None:
    """None where there is no such trigger, or one outside the grammar."""
    automation = Automation(slug="a", name="A", kind="automation", steps=(), triggers=triggers)
    assert automation.schedule == schedule


def test_a_workspace_finds_an_automation_by_its_slug() -> None:
    one, two = (Automation(slug=slug, name="x", kind="job", steps=()) for slug in ("one", "two"))
    workspace = Workspace(path=Path("/w"), automations=(one, two), problems={}, packs=())
    assert workspace.find("two") is two
    assert workspace.find("three") is None


@pytest.mark.parametrize(
    "left, right, cost",
    [
        (None, None, None),
        (Decimal("0.5"), None, Decimal("0.5")),
        (None, Decimal(0), Decimal(0)),
        (Decimal("0.1"), Decimal("0.2"), Decimal("0.3")),
    ],
)
def test_usage_adds_up_and_an_unknown_cost_stays_unknown(
    left: Decimal | None, right: Decimal | None, cost: Decimal | None
) -> None:
    total = Usage(input_tokens=1, output_tokens=2, cached_tokens=3, cost_usd=left) + Usage(
        input_tokens=10, output_tokens=20, cached_tokens=30, cost_usd=right
    )
    assert total == Usage(input_tokens=11, output_tokens=22, cached_tokens=33, cost_usd=cost)


@pytest.mark.parametrize("context, text", [("", "Do it."), ("Local time", "Local time\n\nDo it.")])
def test_a_turn_is_one_text_for_agents_that_take_one(context: str, text: str) -> None:
    fields: dict[str, Any] = dict.fromkeys(field.name for field in attrs.fields(Turn))
    assert Turn(**fields | {"prompt": "Do it.", "context": context}).text == text


def test_a_workspace_says_for_which_slugs_there_are_files() -> None:
    sound = Automation(slug="sound", name="Sound", kind="job", steps=())
    problem = Problem(code="body-blank", message="blank", remedy="write a prompt")
    workspace = Workspace(
        path=Path("w"),
        automations=(sound,),
        problems={Path("jobs/broken.md"): (problem,)},
        packs=(),
    )
    assert [workspace.stands(slug) for slug in ("sound", "broken", "brok", "gone")] == [
        True,
        True,
        False,
        False,
    ]
