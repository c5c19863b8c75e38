"""When a clock that stands far ahead is believed."""

from datetime import UTC, datetime, timedelta

from drumbeat.core.belief import CONFIRMED, LEAP, Belief, believe

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
FAR = datetime(2040, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)


def test_what_is_not_far_ahead_is_believed_and_what_is_behind_too() -> None:
    """Up to a week."""
    for now in (NOW, NOW + LEAP, NOW - 400 * LEAP):
        assert believe(Belief(believed=NOW), now=now) == Belief(believed=now)
    ahead = NOW + LEAP + TICK
    assert believe(Belief(believed=NOW), now=ahead) == Belief(believed=NOW, doubted=ahead)


def test_time_that_has_passed_for_certain_is_no_leap() -> None:
    """However long nobody looked."""
    later = NOW + 400 * LEAP
    assert believe(Belief(believed=NOW), now=later, passed=399 * LEAP) == Belief(believed=later)
    assert believe(Belief(believed=NOW), now=later, passed=398 * LEAP).doubted == later


def test_a_leap_is_believed_when_the_clock_stands_by_it_for_a_day() -> None:
    """Counted from the first look that found it."""
    doubt = believe(Belief(believed=NOW), now=FAR)
    assert believe(doubt, now=FAR + CONFIRMED - TICK) == doubt
    assert believe(doubt, now=FAR + CONFIRMED) == Belief(believed=FAR + CONFIRMED)


def test_a_clock_that_comes_back_is_believed_at_once() -> None:
    """And a leap after that is doubted anew."""
    doubt = believe(Belief(believed=NOW), now=FAR)
    back = believe(doubt, now=NOW + TICK)
    assert back == Belief(believed=NOW + TICK)
    assert believe(back, now=FAR + CONFIRMED).doubted == FAR + CONFIRMED


def test_a_leap_to_before_an_earlier_one_is_doubted_anew() -> None:
    """Less far than before is no confirmation."""
    doubt = believe(Belief(believed=NOW), now=FAR)
    assert believe(doubt, now=FAR - TICK) == Belief(believed=NOW, doubted=FAR - TICK)


def test_without_a_belief_a_day_is_waited_for() -> None:
    """A folder of which nothing is known may be old."""
    first = believe(Belief(), now=NOW)
    assert first == Belief(doubted=NOW)
    assert believe(first, now=NOW + CONFIRMED) == Belief(believed=NOW + CONFIRMED)
