"""How long to wait before trying again."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.backoff import delivery_pause, inbox_pause, turn_pause

SECOND = timedelta(seconds=1)


def test_a_turn_waits_twice_as_long_each_time_up_to_a_bound() -> None:
    pauses = [turn_pause(attempt, None) for attempt in range(1, 12)]
    assert pauses[:3] == [2 * SECOND, 4 * SECOND, 8 * SECOND]
    assert pauses[7:] == [256 * SECOND] * 4


@given(st.integers(1, 100), st.timedeltas(timedelta(0), timedelta(days=1)))
def test_a_turn_never_waits_less_than_the_provider_asked_for(
    attempt: int, asked: timedelta
) -> None:
    assert turn_pause(attempt, asked) == max(asked, turn_pause(attempt, None))


def test_a_delivery_is_tried_over_about_a_day() -> None:
    """Seven pauses between eight attempts (spec, section 11); the last one repeats."""
    pauses = [delivery_pause(attempt) for attempt in range(1, 8)]
    assert pauses == sorted(pauses)
    assert timedelta(hours=22) < sum(pauses, timedelta()) < timedelta(hours=26)
    assert delivery_pause(50) == pauses[-1]


def test_a_batch_of_mail_is_tried_over_most_of_a_day() -> None:
    """Five pauses between six runs (spec, section 13.2); the last one repeats."""
    pauses = [inbox_pause(attempt) for attempt in range(1, 6)]
    assert pauses == sorted(set(pauses))
    assert sum(pauses, timedelta()) < timedelta(hours=18)
    assert inbox_pause(50) == pauses[-1]
