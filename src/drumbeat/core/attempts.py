"""Whether a fire whose run is over gets another run, and when (spec, sections 5 and 13.2)."""

from datetime import datetime

from drumbeat.core.backoff import inbox_pause
from drumbeat.core.model import Fire, RunState

__all__ = ["is_owed", "next_attempt"]

_LASTING = ("webhook", "follow-up")


def next_attempt(
    fire: Fire, state: RunState, *, now: datetime, inbox_attempts: int
) -> datetime | None:
    """When the fire is due again after a run of it that ended as `state`; None for never.

    An interruption is made up for once, at once: for what somebody or something is waiting for,
    which is a webhook, mail, a follow-up, and a fire by hand that was given a slot. Mail is tried
    again after a failure, too, and after further interruptions: up to `inbox_attempts` runs, with
    growing pauses between them.

    Args:
        fire: as it was claimed, with this run counted in its `attempt`.
        state: how the run ended; `cancelled` is never tried again.
        now: when it ended.
        inbox_attempts: how many runs one batch of mail gets.
    """
    if state == "interrupted" and fire.attempt == 1 and _lasts(fire, inbox_attempts):
        # Due as it was, so that it keeps its place among the others.
        return fire.due
    if (
        fire.cause == "inbox"
        and state in ("failed", "aborted", "interrupted")
        and fire.attempt < inbox_attempts
    ):
        return now + inbox_pause(fire.attempt)
    return None


def _lasts(fire: Fire, inbox_attempts: int) -> bool:
    if fire.cause == "inbox":
        return inbox_attempts > 1
    return is_owed(fire)


def is_owed(fire: Fire) -> bool:
    """Whether nobody brings it again: a webhook, mail, a follow-up, a fire by hand with a slot."""
    owed = fire.cause in (*_LASTING, "inbox")
    return owed or (fire.cause == "manual" and fire.slot != fire.id)
