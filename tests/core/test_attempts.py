"""Whether a fire whose run is over gets another run, and when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.attempts import is_owed, next_attempt
from drumbeat.core.model import Fire

DUE = datetime(2026, 3, 2, 12, tzinfo=UTC)
NOW = DUE + timedelta(minutes=30)
MINUTE = timedelta(minutes=1)


def fire(cause: Any, attempt: int, *, slot: str = "slot") -> Fire:
    return Fire(id="f", slug="s", cause=cause, slot=slot, due=DUE, created_at=DUE, attempt=attempt)


def after(given: Fire, state: Any, *, attempts: int = 6) -> datetime | None:
    return next_attempt(given, state, now=NOW, inbox_attempts=attempts)


@pytest.mark.parametrize("cause", ["webhook", "inbox", "follow-up", "manual"])
def test_an_interruption_is_made_up_for_once_where_somebody_waits(cause: Any) -> None:
    assert after(fire(cause, 1), "interrupted") == DUE
    if cause != "inbox":
        assert after(fire(cause, 2), "interrupted") is None


@pytest.mark.parametrize("given", [fire("schedule", 1), fire("manual", 1, slot="f")])
def test_it_is_not_where_nobody_does(given: Fire) -> None:
    assert after(given, "interrupted") is None
    assert not is_owed(given)


@pytest.mark.parametrize("cause", ["webhook", "inbox", "follow-up", "manual"])
def test_what_nobody_brings_again_is_owed(cause: Any) -> None:
    assert is_owed(fire(cause, 1))


@pytest.mark.parametrize("state", ["failed", "aborted", "succeeded", "cancelled"])
def test_only_mail_is_tried_again_after_a_failure(state: Any) -> None:
    for cause in ("schedule", "webhook", "follow-up", "manual"):
        assert after(fire(cause, 1), state) is None
    again = after(fire("inbox", 1), state)
    assert (again is not None) == (state in ("failed", "aborted"))


@pytest.mark.parametrize("state", ["failed", "aborted", "interrupted"])
def test_mail_gets_so_many_runs_with_growing_pauses(state: Any) -> None:
    pauses = [after(fire("inbox", attempt), state) for attempt in range(2, 7)]
    assert pauses == [NOW + minutes * MINUTE for minutes in (20, 60, 240, 720)] + [None]
    assert after(fire("inbox", 1), state, attempts=1) is None
    assert after(fire("inbox", 9), state, attempts=10) == NOW + 720 * MINUTE
