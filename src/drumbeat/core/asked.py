"""What callers ask for, checked as it comes in.

Type hints bind nobody at run time, and what is put in here is found wrong in a run, hours later.
"""

from datetime import datetime, timedelta

__all__ = ["check_aware", "check_due", "check_fire", "check_instant", "check_span"]


def check_fire(after: object, slot: object, payload: object) -> None:
    """Refuse what no fire can be made of.

    Raises:
        TypeError: one is of another type.
        ValueError: `after` is negative, or `slot` is blank.
    """
    after = check_span("after", after)
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


def check_span(name: str, value: object) -> timedelta:
    """Return a duration, and refuse what is none: a number says nothing of its unit.

    Raises:
        TypeError: `value` is of another type.
    """
    if not isinstance(value, timedelta):
        msg = f"{name} must be a timedelta, not {type(value).__name__}"
        raise TypeError(msg)
    return value


def check_instant(name: str, at: object) -> datetime:
    """Return an instant, aware or not, and refuse what is none.

    Raises:
        TypeError: `at` is of another type.
    """
    if not isinstance(at, datetime):
        msg = f"{name} must be an aware datetime, not {type(at).__name__}"
        raise TypeError(msg)
    return at


def check_aware(name: str, at: object) -> datetime:
    """Return an instant, and refuse one that lies in no zone.

    Raises:
        TypeError: `at` is no datetime.
        ValueError: `at` is naive.
    """
    checked = check_instant(name, at)
    if checked.utcoffset() is None:
        msg = f"{name} must be an aware datetime, not {at!r}: give it a tzinfo, such as UTC"
        raise ValueError(msg)
    return checked
