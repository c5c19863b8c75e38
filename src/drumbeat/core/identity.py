"""How runs, fires and intents are named."""

import re
from datetime import UTC, datetime
from typing import Final

TOKEN_FORM: Final = r"dbrt_[A-Za-z0-9_-]{20,43}"  # noqa: S105  what all of them look like
"""What a run's token looks like, as a regular expression; one that lost its end is one too."""

_RUN_ID: Final = re.compile(r"([0-9]{8}T[0-9]{12})Z-.+")


def run_id(now: datetime, salt: str) -> str:
    """A run's id: sorts by time, safe as a folder name, made unique by `salt`."""
    return f"{now:%Y%m%dT%H%M%S}{now.microsecond:06d}Z-{salt}"


def run_began(run: str) -> datetime | None:
    """When the run of that id began, or None when it is no run's id."""
    found = _RUN_ID.fullmatch(run)
    if found is None:
        return None
    try:
        return datetime.strptime(found[1], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)
    except ValueError:
        return None


def run_token(salt: str) -> str:
    """A run's token, of 43 random characters; its form alone tells that it is one."""
    return f"dbrt_{salt}"


def slot_of(instant: datetime) -> str:
    """The slot of a scheduled instant: ISO 8601 in UTC, microseconds only where there are any."""
    return instant.isoformat().replace("+00:00", "Z")


def intent_id(run: str) -> str:
    """The id of a run's one intent: derived, so that no crash can make two."""
    return f"intent-{run}"


def turn_id(run: str, number: int) -> str:
    """The id of a run's turn, by its place in the run, from 1."""
    return f"{run}-{number:02d}"
