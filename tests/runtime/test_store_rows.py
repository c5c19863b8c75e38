"""Records of the store: what goes in comes out, in a form that later releases can read."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.model import (
    Cause,
    Event,
    Fire,
    FireVerdict,
    Origin,
    Pin,
    Receipt,
    Reply,
    RunRecord,
    RunState,
    TurnRecord,
    Usage,
)
from drumbeat.errors import Finding, Problem, StoreError
from drumbeat.runtime.store_rows import (
    RECORD_VERSION,
    decode,
    decode_value,
    encode,
    encode_value,
    instant,
    storable,
)

TEXT = st.text(max_size=12)
NAMES = st.none() | TEXT
COUNTS = st.integers(0, 1 << 70)
INSTANTS = st.datetimes(timezones=st.just(UTC))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FIRES = st.builds(
    Fire,
    id=TEXT,
    slug=TEXT,
    cause=st.sampled_from(get_args(Cause)),
    slot=TEXT,
    due=INSTANTS,
    created_at=INSTANTS,
    payload=st.none() | st.binary(max_size=9),
    prompt=NAMES,
    parent_run=NAMES,
    depth=COUNTS,
    attempt=COUNTS,
    folded_slots=COUNTS,
    verdict=st.none() | st.sampled_from(get_args(FireVerdict)),
    reason=TEXT,
    run_id=NAMES,
    folded_into=NAMES,
)
USAGES = st.builds(
    Usage,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cached_tokens=COUNTS,
    cost_usd=st.none() | st.decimals(allow_nan=False),
)
TURNS = st.builds(
    TurnRecord,
    turn_id=TEXT,
    origin=st.sampled_from(get_args(Origin)),
    step_id=NAMES,
    attempts=COUNTS,
    started_at=INSTANTS,
    finished_at=INSTANTS,
    reply=st.none()
    | st.builds(
        Reply,
        text=TEXT,
        usage=st.none() | USAGES,
        provider=NAMES,
        model=NAMES,
        handle=NAMES,
    ),
)
PROBLEMS = st.builds(
    Problem,
    code=TEXT,
    message=TEXT,
    remedy=TEXT,
    path=st.none() | st.just(PurePosixPath("jobs/a b.md")),
    line=st.none() | st.integers(1),
    column=st.none() | st.integers(1),
)
RUNS = st.builds(
    RunRecord,
    run_id=TEXT,
    slug=TEXT,
    fire=FIRES,
    state=st.sampled_from(get_args(RunState)),
    started_at=INSTANTS,
    finished_at=st.none() | INSTANTS,
    config_hash=TEXT,
    session_id=NAMES,
    rotation=st.none() | st.just("fresh"),
    turns=st.lists(TURNS, max_size=2).map(tuple),
    usage=USAGES,
    failure=st.none() | PROBLEMS,
    intent=st.none(),
    delivery=st.none(),
    receipt=st.none(),
)


@given(FIRES)
def test_a_fire_comes_back(fire: Fire) -> None:
    text = encode(fire, without=("payload",))
    assert decode(Fire, text, "a fire", payload=fire.payload) == fire


@given(RUNS)
def test_a_run_comes_back(run: RunRecord) -> None:
    apart = {name: getattr(run, name) for name in ("fire", "intent", "delivery", "receipt")}
    assert decode(RunRecord, encode(run, without=apart), "a run", **apart) == run


@given(JSON)
def test_a_bare_value_comes_back(value: Any) -> None:
    assert decode_value(encode_value(value), "a mark") == value


@given(st.text(alphabet=st.characters() | st.characters(categories=["Cs"])))
def test_any_text_is_stored_as_utf_8_can_write_it(text: str) -> None:
    assert decode_value(encode_value(text), "a mark") == storable(text)
    assert encode_value(text).encode("utf-8")


@given(INSTANTS, INSTANTS)
def test_the_order_of_stored_instants_is_that_of_time(one: datetime, other: datetime) -> None:
    assert (instant(one) < instant(other)) == (one < other)
    assert datetime.fromisoformat(instant(one)) == one


def test_instants_of_other_zones_are_stored_in_utc() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    at = datetime(2026, 3, 1, 9, 0, tzinfo=zone)
    assert instant(at) == "2026-03-01T03:30:00.000000+00:00"


def test_values_of_ours_inside_an_event_become_json() -> None:
    at = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
    event = Event(
        id=7,
        at=at,
        kind="k",
        slug=None,
        run_id=None,
        data={
            "at": at,
            "day": date(2026, 3, 1),
            "after": timedelta(seconds=1.5),
            "cost": Decimal("0.10"),
            "path": PurePosixPath("a/b"),
            "receipt": Receipt(id="r"),
            "pair": (1, 2),
        },
    )
    back = decode(Event, encode(event, without=("id",)), "an event", id=7)
    assert back.data == {
        "at": "2026-03-01T09:00:00.000000+00:00",
        "day": "2026-03-01",
        "after": 1.5,
        "cost": "0.10",
        "path": "a/b",
        "receipt": {"id": "r", "url": None},
        "pair": [1, 2],
    }


def test_days_durations_and_paths_of_a_value_come_back() -> None:
    @attrs.frozen(kw_only=True)
    class Odd:
        after: timedelta
        day: date

    odd = Odd(after=timedelta(days=3, microseconds=1), day=date(2026, 3, 1))
    assert decode(Odd, encode(odd), "odd") == odd
    pin = Pin(
        session_id="s",
        fingerprint="f",
        provider=None,
        day=odd.day,
        at=datetime.max.replace(tzinfo=UTC),
    )
    assert decode(Pin, encode(pin), "a pin") == pin


def test_a_finding_is_kept_as_the_problem_it_is() -> None:
    finding = Finding(code="c", message="m", remedy="r", line=3)
    back = decode(Problem, encode(finding), "a problem")
    assert back == Problem(code="c", message="m", remedy="r", line=3)


def test_a_field_that_a_record_lacks_takes_its_default() -> None:
    """So a later release may add fields; one that it dropped is passed over."""
    text = json.dumps({"record_version": RECORD_VERSION, "id": "chat", "colour": "red"})
    assert decode(Receipt, text, "a receipt") == Receipt(id="chat", url=None)


@pytest.mark.parametrize(
    "text, code",
    [
        ("", "store-damaged"),
        ("[]", "store-damaged"),
        ('{"id": "x"}', "store-damaged"),
        ('{"record_version": 1, "input_tokens": "many"}', "store-damaged"),
        ('{"record_version": 1, "cost_usd": "dear"}', "store-damaged"),
        ('{"record_version": 2}', "store-newer"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(text: str, code: str) -> None:
    with pytest.raises(StoreError, match="the usage of r1") as caught:
        decode(Usage, text, "the usage of r1")
    assert caught.value.problem.code == code


def test_a_record_that_lacks_what_it_needs_is_named() -> None:
    text = json.dumps({"record_version": RECORD_VERSION})
    with pytest.raises(StoreError, match="the fire f1"):
        decode(Fire, text, "the fire f1")
    with pytest.raises(StoreError, match="the mark m"):
        decode_value(text, "the mark m")


def test_a_naive_instant_and_a_value_that_is_no_json_are_refused() -> None:
    naive = datetime(2026, 3, 1)  # noqa: DTZ001  the fault
    with pytest.raises(ValueError, match="2026-03-01T00:00:00 has none"):
        encode_value({"at": naive})
    with pytest.raises(TypeError, match="not JSON serializable"):
        encode_value([b"bytes"])
