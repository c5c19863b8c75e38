"""What a webhook's route was asked and left out: the sum that is kept of it, and how it is told."""

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any

from drumbeat.core.messages import quoted
from drumbeat.core.model import LeftOut, WebhookState, WebhookTrigger

__all__ = [
    "LEFT_OUT",
    "LEFT_OUT_MARKS",
    "left_out_key",
    "told_left_out",
    "webhook_state",
    "with_left_out",
]

LEFT_OUT_MARKS = "left-out:"
"""What the marks begin with; a slug follows."""

LEFT_OUT = {
    "webhook_filtered": "filtered",
    "webhook_repeated": "repeated",
    "webhook_conflicting": "conflicting",
}
"""Kinds of events, and the fields of `WebhookState` in which they are summed up."""


def left_out_key(slug: str) -> str:
    """The key of the mark that sums up what the route of `slug` left out."""
    return f"{LEFT_OUT_MARKS}{slug}"


def with_left_out(
    value: Any, event: str, added: LeftOut, *, expression: str | None = None
) -> dict[str, Any]:
    """The value of a mark, with requests added to it.

    Args:
        value: as it is kept, None for nothing yet.
        event: one of `LEFT_OUT`.
        added: what comes to it.
        expression: the filter that left them out. What another one left out is forgotten.
    """
    kept = dict(value or {})
    field = LEFT_OUT[event]
    before = kept.get(field)
    if before is not None and before.get("filter") == expression:
        earlier = _read(before)
        added = LeftOut(
            count=earlier.count + added.count,
            since=min(earlier.since, added.since),
            last=max(earlier.last, added.last),
        )
    kept[field] = {
        "count": added.count,
        "since": added.since.isoformat(),
        "last": added.last.isoformat(),
    }
    if expression is not None:
        kept[field]["filter"] = expression
    return kept


def webhook_state(slug: str, trigger: WebhookTrigger, value: Any) -> WebhookState:
    """How a route stands.

    Args:
        slug: whose it is.
        trigger: as its file has it. What another filter than its left out is not told.
        value: of its mark, None for nothing.
    """
    kept: Mapping[str, Any] = value or {}
    found = {
        field: _read(kept[field])
        for field in LEFT_OUT.values()
        if field in kept and kept[field].get("filter") in (None, trigger.filter)
    }
    return WebhookState(slug=slug, route=trigger.route, filter=trigger.filter, **found)


def told_left_out(state: WebhookState, zone: tzinfo = UTC) -> list[str]:
    """What a route left out, in a half sentence for each way.

    Args:
        state: of the route.
        zone: whose wall clock the times are read off; each has its offset.
    """
    said = []
    if state.filtered is not None:
        filter_ = quoted(state.filter or "")
        said.append(f"its filter {filter_} left out {_told(state.filtered, zone, 'event')}")
    if state.repeated is not None:
        said.append(_told(state.repeated, zone, "delivery", "had come before", many="deliveries"))
    if state.conflicting is not None:
        what = "had the id of an earlier delivery and another body, and started nothing"
        said.append(_told(state.conflicting, zone, "event", what))
    return said


def _read(kept: Mapping[str, Any]) -> LeftOut:
    return LeftOut(
        count=kept["count"],
        since=datetime.fromisoformat(kept["since"]),
        last=datetime.fromisoformat(kept["last"]),
    )


def _told(found: LeftOut, zone: tzinfo, one: str, what: str = "", *, many: str = "") -> str:
    named = one if found.count == 1 else many or f"{one}s"
    said = " ".join(filter(None, (str(found.count), named, what)))
    if found.since == found.last:
        return f"{said} (at {_time(found.last, zone)})"
    return f"{said} (from {_time(found.since, zone)} to {_time(found.last, zone)})"


def _time(at: datetime, zone: tzinfo) -> str:
    return at.astimezone(zone).isoformat(timespec="seconds").replace("+00:00", "Z")
