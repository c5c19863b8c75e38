"""What callers ask for, checked as it comes in.

Type hints bind nobody at run time, and what is put in here is found wrong in a run, hours later.
"""

from datetime import datetime, timedelta

__all__ = ["check_aware", "check_due", "check_fire"]


def check_fire(after: object, slot: object, payload: object) -> None:
    """Refuse what no fire can be made of.

    Raises:
        TypeError: one is of another type.
        ValueError: `after` is negative, or `slot` is blank.
    """
    if not isinstance(after, timedelta):
        msg = f"after must be a timedelta, not {type(after).__name__}"
        raise TypeError(msg)
    if after < timedelta(0):
        msg = f"after must not be negative, not {after}"
        raise ValueError(msg)
    if slot is not None and not isinstance(slot, str):
        msg = f"slot must be text, not {type(slot).__name__}"
        raise TypeError(msg)
    if slot is not None and not slot.strip():
        msg = "slot must not be blank"
        raise ValueError(msg)
    if payload is not None and not isinstance(payload, bytes):
        msg = f"payload must be bytes, not {type(payload).__name__}: encode it first"
        raise TypeError(msg)


def check_due(now: datetime, after: timedelta) -> None:
    """Refuse what would be due when no clock can say so.

    Raises:
        ValueError: it ends beyond the year 9999.
    """
    if after > datetime.max.replace(tzinfo=now.tzinfo) - now:
        msg = f"after ends beyond the year 9999, not {after}"
        raise ValueError(msg)


def check_aware(name: str, at: datetime) -> None:
    """Refuse an instant that lies in no zone.

    Raises:
        ValueError: `at` is naive.
    """
    if at.utcoffset() is None:
        msg = f"{name} must be an aware datetime, not {at!r}"
        raise ValueError(msg)
