from datetime import UTC, date, datetime, timedelta

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.model import Lifecycle, Pin, Rotation, Step
from drumbeat.core.rotation import decide_rotation, steps_fingerprint

TODAY = date(2026, 3, 29)
PIN = Pin(
    session_id="00000000-0000-4000-8000-000000000001",
    fingerprint="f" * 64,
    provider="openai",
    day=TODAY,
    at=datetime(2026, 3, 29, 6, tzinfo=UTC),
)


def steps(*prompts: str) -> list[Step]:
    return [Step(id=f"s{number}", prompt=prompt) for number, prompt in enumerate(prompts)]


def test_a_fingerprint_is_the_same_on_every_machine_and_version() -> None:
    """A change of this value would abandon every conversation there is."""
    assert steps_fingerprint(steps("Look.", "Grüße\n")) == (
        "e1b73914d0fb58d127c63d807815811582a8bc65f1ece33ad9b4c31cd123b777"
    )


def test_ids_and_labels_leave_the_fingerprint_alone() -> None:
    plain = [Step(id="a", prompt="Look."), Step(id="b", prompt="Tell.")]
    dressed = [Step(id="x", prompt="Look.", label="L"), Step(id="y", prompt="Tell.", label="M")]
    assert steps_fingerprint(plain) == steps_fingerprint(dressed)


@given(st.lists(st.text()), st.lists(st.text()))
def test_only_equal_prompts_in_equal_order_share_a_fingerprint(
    one: list[str], other: list[str]
) -> None:
    same = steps_fingerprint(steps(*one)) == steps_fingerprint(steps(*other))
    assert same == (one == other)


@pytest.mark.parametrize(
    "one, other",
    [
        (["ab", "c"], ["a", "bc"]),
        (["a\n1\nb"], ["a", "b"]),
        (["a", ""], ["a"]),
        (["a", "b"], ["b", "a"]),
        (["1\na"], ["", "1\na"]),
        (["\ud800"], ["\ud801"]),
        ([], [""]),
    ],
)
def test_where_a_prompt_ends_counts(one: list[str], other: list[str]) -> None:
    assert steps_fingerprint(steps(*one)) != steps_fingerprint(steps(*other))


@pytest.mark.parametrize(
    "conversation, pin, reason",
    [
        ("continuous", None, None),
        ("fresh", None, None),
        ("daily", None, None),
        ("continuous", PIN, None),
        ("daily", PIN, None),
        ("fresh", PIN, "fresh"),
        ("daily", attrs.evolve(PIN, day=TODAY - timedelta(days=1)), "daily-boundary"),
        ("daily", attrs.evolve(PIN, day=TODAY + timedelta(days=1)), "daily-boundary"),
        ("continuous", attrs.evolve(PIN, day=TODAY - timedelta(days=9)), None),
        ("continuous", attrs.evolve(PIN, fingerprint="0" * 64), "steps-changed"),
        ("continuous", attrs.evolve(PIN, provider="anthropic"), "provider-changed"),
        ("continuous", attrs.evolve(PIN, provider=None), "provider-changed"),
        ("continuous", attrs.evolve(PIN, provider=" OpenAI "), None),
    ],
)
def test_each_reason_has_its_condition(
    conversation: Lifecycle, pin: Pin | None, reason: Rotation | None
) -> None:
    decided = decide_rotation(
        conversation, pin, fingerprint="f" * 64, provider="openai", today=TODAY
    )
    assert decided == reason


def test_the_first_reason_in_order_is_given() -> None:
    """The lifecycle comes before the steps, and the steps before the provider."""
    other = attrs.evolve(PIN, fingerprint="0", provider="x", day=TODAY - timedelta(days=1))
    asked: list[Lifecycle] = ["fresh", "daily", "continuous"]
    assert [
        decide_rotation(each, other, fingerprint="f" * 64, provider="openai", today=TODAY)
        for each in asked
    ] == ["fresh", "daily-boundary", "steps-changed"]


def test_no_provider_named_then_and_at_this_run_is_no_change() -> None:
    pin = attrs.evolve(PIN, provider=None)
    assert (
        decide_rotation("continuous", pin, fingerprint="f" * 64, provider=None, today=TODAY) is None
    )
