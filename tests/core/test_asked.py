"""What callers ask for is checked as it comes in."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.asked import check_aware, check_due, check_fire

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("given", [(HOUR, None, None), (timedelta(0), "a slot", b"payload")])
def test_a_fire_can_be_made_of_these(given: tuple[Any, Any, Any]) -> None:
    check_fire(*given)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ((60, None, None), TypeError, "after must be a timedelta, not int"),
        ((-HOUR, None, None), ValueError, "after must not be negative"),
        ((HOUR, 7, None), TypeError, "slot must be text, not int"),
        ((HOUR, " ", None), ValueError, "slot must not be blank"),
        ((HOUR, None, "text"), TypeError, "payload must be bytes, not str: encode it first"),
    ],
)
def test_no_fire_can_be_made_of_these(
    given: tuple[Any, Any, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        check_fire(*given)


def test_nothing_is_due_beyond_the_last_year_there_is() -> None:
    last = datetime.max.replace(tzinfo=UTC) - NOW
    check_due(NOW, last)
    with pytest.raises(ValueError, match="beyond the year 9999"):
        check_due(NOW, last + timedelta(microseconds=1))


def test_an_instant_has_a_zone() -> None:
    check_aware("at", NOW)
    with pytest.raises(ValueError, match="until must be an aware datetime"):
        check_aware("until", NOW.replace(tzinfo=None))
    with pytest.raises(TypeError, match="until must be an aware datetime, not date"):
        check_aware("until", NOW.date())
