"""How long to wait before trying again."""

from datetime import timedelta

_DELIVERY = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=20),
    timedelta(hours=1),
    timedelta(hours=3),
    timedelta(hours=7),
    timedelta(hours=13),
)
"""Seven pauses between eight attempts: 24 h 26 min, "about a day" (spec, section 11)."""

_INBOX = (
    timedelta(minutes=5),
    timedelta(minutes=20),
    timedelta(hours=1),
    timedelta(hours=4),
    timedelta(hours=12),
)
"""Five pauses between six runs over one batch of mail: 17 h 25 min (spec, section 13.2)."""


def delivery_pause(attempt: int) -> timedelta:
    """The pause after a delivery's `attempt`, counted from 1; the last one repeats."""
    return _DELIVERY[min(attempt, len(_DELIVERY)) - 1]


def inbox_pause(attempt: int) -> timedelta:
    """The pause after a run's `attempt` at a batch of mail, from 1; the last one repeats."""
    return _INBOX[min(attempt, len(_INBOX)) - 1]


def turn_pause(attempt: int, retry_after: timedelta | None) -> timedelta:
    """The pause after a turn's `attempt`, counted from 1: 2, 4, 8 … 256 s.

    Never less than `retry_after`, which the provider asked for.
    """
    pause = timedelta(seconds=2 ** min(attempt, 8))
    return pause if retry_after is None else max(pause, retry_after)
