"""How runs, fires, intents and turns are named."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.identity import intent_id, run_began, run_id, slot_of, turn_id

INSTANTS = st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def test_a_run_id_reads_as_its_instant() -> None:
    now = datetime(2026, 3, 2, 12, 5, 9, 42, tzinfo=UTC)
    assert run_id(now, "ab12") == "20260302T120509000042Z-ab12"


@given(INSTANTS, INSTANTS)
def test_run_ids_sort_by_time(one: datetime, other: datetime) -> None:
    if one < other:
        assert run_id(one, "f") < run_id(other, "a")


@given(INSTANTS)
def test_run_ids_of_one_instant_differ_by_their_salt(now: datetime) -> None:
    assert run_id(now, "a") != run_id(now, "b")


@given(INSTANTS)
def test_a_run_id_says_when_the_run_began(now: datetime) -> None:
    assert run_began(run_id(now, "ab12")) == now


@pytest.mark.parametrize(
    "name", ["", "work", "20260302", "20260302T120509000042Z-", "20261302T120509000042Z-ab12"]
)
def test_what_is_no_run_id_says_nothing(name: str) -> None:
    assert run_began(name) is None


def test_a_slot_is_the_instant_in_utc() -> None:
    assert slot_of(datetime(2026, 3, 2, 7, tzinfo=UTC)) == "2026-03-02T07:00:00Z"
    late = datetime(2026, 3, 2, 7, tzinfo=UTC) + timedelta(microseconds=5)
    assert slot_of(late) == "2026-03-02T07:00:00.000005Z"


@given(INSTANTS)
def test_a_slot_can_be_read_back(instant: datetime) -> None:
    assert datetime.fromisoformat(slot_of(instant)) == instant


def test_an_intent_and_a_turn_are_named_after_their_run() -> None:
    """Derived, so that a second attempt to write them names the same ones."""
    assert intent_id("r1") == "intent-r1"
    assert [turn_id("r1", 1), turn_id("r1", 12)] == ["r1-01", "r1-12"]
