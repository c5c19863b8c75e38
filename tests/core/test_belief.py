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
    assert believe(Belief(believed=NOW), now=ahead) == doubt_at(ahead)


def test_time_that_has_passed_for_certain_is_no_leap() -> None:
    """However long nobody looked."""
    later = NOW + 400 * LEAP
    assert believe(Belief(believed=NOW), now=later, passed=399 * LEAP) == Belief(believed=later)
    assert believe(Belief(believed=NOW), now=later, passed=398 * LEAP).doubted == later


def doubt_at(now: datetime, stood: timedelta = timedelta(0)) -> Belief:
    return Belief(believed=NOW, doubted=now, stood=stood)


def test_a_leap_is_believed_when_the_clock_stands_by_it_for_a_day() -> None:
    """Counted from the first look that found it, over all looks."""
    doubt = believe(Belief(believed=NOW), now=FAR)
    assert doubt == doubt_at(FAR)
    half = believe(doubt, now=FAR + CONFIRMED / 2, looked=CONFIRMED / 2)
    assert half == doubt_at(FAR, CONFIRMED / 2)
    late = FAR + CONFIRMED - TICK
    assert believe(half, now=late, looked=CONFIRMED / 2 - TICK) == doubt_at(FAR, CONFIRMED - TICK)
    day = FAR + CONFIRMED
    assert believe(half, now=day, looked=CONFIRMED / 2) == Belief(believed=day)


def test_a_day_is_one_that_has_passed_and_not_one_that_the_clock_says() -> None:
    """A clock that goes ahead for a few days more has stood by nothing."""
    minute = timedelta(minutes=1)
    ahead = FAR + 3 * CONFIRMED
    assert believe(doubt_at(FAR), now=ahead, looked=minute) == doubt_at(FAR, minute)
    assert believe(doubt_at(FAR), now=FAR + minute, looked=CONFIRMED).doubted is None


def test_a_second_leap_is_a_doubt_of_its_own() -> None:
    """Further than a week beyond what the first one and the time since then come to."""
    further = FAR + CONFIRMED / 2 + LEAP
    doubt = doubt_at(FAR, timedelta(0))
    assert believe(doubt, now=further, looked=CONFIRMED / 2) == doubt_at(FAR, CONFIRMED / 2)
    assert believe(doubt, now=further + TICK, looked=CONFIRMED / 2) == doubt_at(further + TICK)


def test_in_another_process_the_clock_alone_says_how_long_it_stood_by_it() -> None:
    """For up to a week: what is further ahead is a second leap."""
    recalled = Belief(believed=NOW, doubted=FAR)
    assert believe(recalled, now=FAR + LEAP) == Belief(believed=FAR + LEAP)
    assert believe(recalled, now=FAR + CONFIRMED).doubted is None
    assert believe(recalled, now=FAR + LEAP + TICK) == doubt_at(FAR + LEAP + TICK)
    hour = timedelta(hours=1)
    short = believe(recalled, now=FAR + hour)
    assert short == doubt_at(FAR, hour)
    day = FAR + CONFIRMED
    assert believe(short, now=day, looked=CONFIRMED - hour) == Belief(believed=day)


def test_a_clock_that_comes_back_is_believed_at_once() -> None:
    """And a leap after that is doubted anew."""
    doubt = believe(Belief(believed=NOW), now=FAR)
    back = believe(doubt, now=NOW + TICK)
    assert back == Belief(believed=NOW + TICK)
    assert believe(back, now=FAR + CONFIRMED).doubted == FAR + CONFIRMED


def test_a_leap_to_before_an_earlier_one_is_doubted_anew() -> None:
    """Less far than before is no confirmation."""
    doubt = believe(Belief(believed=NOW), now=FAR)
    assert believe(doubt, now=FAR - TICK) == doubt_at(FAR - TICK)


def test_without_a_belief_a_day_is_waited_for() -> None:
    """A folder of which nothing is known may be old."""
    first = believe(Belief(), now=NOW)
    assert first == Belief(doubted=NOW, stood=timedelta(0))
    day = NOW + CONFIRMED
    assert believe(first, now=day, looked=CONFIRMED) == Belief(believed=day)
