"""What routes leave out: how it is summed up, and how it is told."""

from datetime import UTC, datetime, timedelta

from drumbeat.core.left_out import (
    LEFT_OUT_MARKS,
    left_out_key,
    told_left_out,
    webhook_state,
    with_left_out,
)
from drumbeat.core.model import LeftOut, WebhookState, WebhookTrigger

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DOOR = WebhookTrigger(route="door", filter="a==b")


def left_out(count: int, since: datetime, last: datetime) -> LeftOut:
    return LeftOut(count=count, since=since, last=last)


def test_nothing_was_left_out() -> None:
    state = webhook_state("look", DOOR, None)
    assert state == WebhookState(slug="look", route="door", filter="a==b")
    assert told_left_out(state) == []


def test_sums_go_from_the_first_to_the_last() -> None:
    """In whatever order they are added; each kind is a sum of its own."""
    value = with_left_out(None, "webhook_filtered", left_out(2, AT, AT + HOUR), expression="a==b")
    value = with_left_out(value, "webhook_filtered", left_out(1, AT - HOUR, AT), expression="a==b")
    value = with_left_out(value, "webhook_repeated", left_out(2, AT, AT + HOUR))
    value = with_left_out(value, "webhook_conflicting", left_out(1, AT, AT))
    state = webhook_state("look", DOOR, value)
    assert state.filtered == left_out(3, AT - HOUR, AT + HOUR)
    assert told_left_out(state) == [
        "its filter 'a==b' left out 3 events (from 2026-03-02T11:00:00Z to 2026-03-02T13:00:00Z)",
        "2 deliveries had come before (from 2026-03-02T12:00:00Z to 2026-03-02T13:00:00Z)",
        "1 event had the id of an earlier delivery and another body, and started nothing "
        "(at 2026-03-02T12:00:00Z)",
    ]


def test_each_slug_has_a_mark_of_its_own() -> None:
    assert left_out_key("look") == f"{LEFT_OUT_MARKS}look"


def test_one_delivery_is_one() -> None:
    value = with_left_out(None, "webhook_repeated", left_out(1, AT, AT))
    (said,) = told_left_out(webhook_state("look", DOOR, value))
    assert said == "1 delivery had come before (at 2026-03-02T12:00:00Z)"


def test_another_filter_begins_again() -> None:
    """What the one before left out is told no more, and not added to."""
    value = with_left_out(None, "webhook_filtered", left_out(9, AT, AT), expression="a==c")
    assert webhook_state("look", DOOR, value).filtered is None
    value = with_left_out(value, "webhook_filtered", left_out(1, AT, AT), expression="a==b")
    state = webhook_state("look", DOOR, value)
    assert state.filtered == left_out(1, AT, AT)
