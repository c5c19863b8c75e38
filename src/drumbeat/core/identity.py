"""How runs, fires and intents are named."""

from datetime import datetime


def run_id(now: datetime, salt: str) -> str:
    """A run's id: sorts by time, safe as a folder name, made unique by `salt`."""
    return f"{now:%Y%m%dT%H%M%S}{now.microsecond:06d}Z-{salt}"


def slot_of(instant: datetime) -> str:
    """The slot of a scheduled instant: ISO 8601 in UTC, microseconds only where there are any."""
    return instant.isoformat().replace("+00:00", "Z")


def intent_id(run: str) -> str:
    """The id of a run's one intent: derived, so that no crash can make two."""
    return f"intent-{run}"


def turn_id(run: str, number: int) -> str:
    """The id of a run's turn, by its place in the run, from 1."""
    return f"{run}-{number:02d}"
