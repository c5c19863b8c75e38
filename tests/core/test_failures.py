import json
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any, get_args
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.failures import (
    Streak,
    failure_text,
    voice_cancellation,
    voice_failure,
    voice_interruption,
)
from drumbeat.core.model import Cause, Decision
from drumbeat.errors import Problem

START = datetime(2026, 1, 5, 7, tzinfo=UTC)
DAY = timedelta(days=1)
PROBLEM = Problem(
    code="requires-unmet", message="mail-cli is not on the PATH", remedy="install the mail pack"
)
CAUSES: tuple[Cause, ...] = get_args(Cause)


def fail(
    streak: Streak | None,
    at: datetime,
    *,
    policy: str = "auto",
    cause: Cause = "schedule",
    code: str = "requires-unmet",
) -> tuple[Decision, Streak]:
    return voice_failure(
        policy,
        streak,
        name="Mail",
        problem=attrs.evolve(PROBLEM, code=code),
        cause=cause,
        now=at,
    )


def voiced(every: timedelta, until: timedelta) -> list[timedelta]:
    """When a schedule that fails from `START` on is told of."""
    streak: Streak | None = None
    told: list[timedelta] = []
    at = START
    while at <= START + until:
        decision, streak = fail(streak, at)
        if decision.verdict == "deliver":
            assert decision.gate == "run-failed"
            told.append(at - START)
        else:
            assert (decision.verdict, decision.gate) == ("demote", "repeat-failure")
        at += every
    return told


@pytest.mark.parametrize("policy", ["always", "auto", "urgent-only"])
@pytest.mark.parametrize("cause", CAUSES)
def test_a_first_failure_is_told(policy: str, cause: Cause) -> None:
    decision, streak = fail(None, START, policy=policy, cause=cause)
    assert (decision.verdict, decision.gate) == ("deliver", "run-failed")
    assert "requires-unmet" in decision.reason
    assert streak == Streak(code="requires-unmet", first_at=START, voiced_at=START, count=1)


def test_scheduled_repeats_are_told_after_1_2_4_8_days() -> None:
    days = [each / DAY for each in voiced(timedelta(hours=6), 40 * DAY)]
    assert days == [0, 1, 2, 4, 8, 16, 32]


def test_a_rare_schedule_is_told_at_most_once_for_what_it_slept_through() -> None:
    days = [each / DAY for each in voiced(7 * DAY, 70 * DAY)]
    assert days == [0, 7, 14, 21, 35, 70]


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause != "schedule"])
def test_only_the_schedule_is_quietened(cause: Cause) -> None:
    _, streak = fail(None, START)
    decision, streak = fail(streak, START + timedelta(hours=1), cause=cause)
    assert (decision.verdict, decision.gate) == ("deliver", "run-failed")
    assert "failure 2 in a row" in decision.reason
    decision, _ = fail(streak, START + timedelta(hours=2))
    assert (decision.verdict, decision.gate) == ("demote", "repeat-failure")


def test_a_failure_told_by_hand_quietens_the_schedule_until_the_next_of_its_days() -> None:
    _, streak = fail(None, START, cause="manual")
    assert fail(streak, START + timedelta(hours=1))[0].verdict == "demote"
    _, streak = fail(streak, START + timedelta(hours=30), cause="manual")
    assert fail(streak, START + timedelta(hours=31))[0].verdict == "demote"
    assert fail(streak, START + 2 * DAY)[0].verdict == "deliver"


def test_another_cause_begins_another_streak() -> None:
    _, streak = fail(None, START)
    decision, streak = fail(streak, START + timedelta(hours=1), code="agent-error")
    assert decision.verdict == "deliver"
    assert streak == Streak(
        code="agent-error",
        first_at=START + timedelta(hours=1),
        voiced_at=START + timedelta(hours=1),
        count=1,
    )


def test_never_withholds_and_is_told_once_the_policy_changes() -> None:
    decision, streak = fail(None, START, policy="never")
    assert (decision.verdict, decision.gate) == ("withhold", "policy-never")
    assert streak.voiced_at is None
    decision, streak = fail(streak, START + timedelta(hours=1))
    assert (decision.verdict, decision.gate) == ("deliver", "run-failed")
    assert streak.count == 2


def test_a_clock_that_went_back_does_not_silence_for_longer_than_a_day() -> None:
    _, streak = fail(None, START + 4000 * DAY)
    decision, streak = fail(streak, START)
    assert decision.verdict == "demote"
    assert fail(streak, START + DAY)[0].verdict == "deliver"


def test_a_clock_that_was_ahead_for_a_while_does_not_silence_what_follows() -> None:
    _, streak = fail(None, START)
    _, streak = fail(streak, START + 4000 * DAY)
    decision, streak = fail(streak, START + 3 * DAY)
    assert decision.verdict == "demote"
    assert fail(streak, START + 4 * DAY)[0].verdict == "deliver"


@given(
    st.sampled_from(["always", "auto", "urgent-only", "never"]),
    st.lists(
        st.tuples(
            st.integers(-100, 3000),
            st.sampled_from(CAUSES),
            st.sampled_from(["a", "b"]),
        ),
        min_size=1,
    ),
)
def test_every_failure_has_an_answer_with_a_reason_and_a_text(
    policy: str, failures: list[tuple[int, Cause, str]]
) -> None:
    streak: Streak | None = None
    at = START
    for hours, cause, code in failures:
        at += timedelta(hours=hours)
        decision, streak = fail(streak, at, policy=policy, cause=cause, code=code)
        assert decision.reason.strip()
        assert decision.text.strip()
        if policy == "never":
            assert decision.verdict == "withhold"
        else:
            assert decision.verdict == "deliver" or cause == "schedule"
        assert Streak.from_json(json.loads(json.dumps(streak.to_json()))) == streak


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"version": 2, "code": "a", "first_at": START.isoformat(), "voiced_at": None, "count": 1},
        {"version": 1, "code": 7, "first_at": START.isoformat(), "voiced_at": None, "count": 1},
        {"version": 1, "code": "a", "first_at": "soon", "voiced_at": None, "count": 1},
        {"version": 1, "code": "a", "first_at": 5, "voiced_at": None, "count": 1},
        {"version": 1, "code": "a", "first_at": "2026-01-05T07:00", "voiced_at": None, "count": 1},
        {
            "version": 1,
            "code": "a",
            "first_at": START.isoformat(),
            "voiced_at": None,
            "count": True,
        },
    ],
)
def test_a_streak_that_cannot_be_read_is_none_so_that_the_next_failure_is_told(
    value: object,
) -> None:
    assert Streak.from_json(value) is None


@pytest.mark.parametrize("policy", ["always", "auto", "urgent-only", "never"])
def test_an_interrupted_run_with_another_attempt_due_is_demoted(policy: str) -> None:
    decision = voice_interruption(
        policy, name="Mail", problem=PROBLEM, cause="webhook", again_at=START
    )
    assert (decision.verdict, decision.gate) == ("demote", "run-failed")
    assert "tried again" in decision.reason
    assert "It is tried again at 2026-01-05 07:00 UTC." in decision.text


@pytest.mark.parametrize(
    "policy, verdict, gate",
    [
        ("always", "deliver", "run-failed"),
        ("auto", "deliver", "run-failed"),
        ("urgent-only", "deliver", "run-failed"),
        ("never", "withhold", "policy-never"),
    ],
)
def test_an_interrupted_run_without_one_is_told_except_under_never(
    policy: str, verdict: str, gate: str
) -> None:
    decision = voice_interruption(
        policy, name="Mail", problem=PROBLEM, cause="schedule", again_at=None
    )
    assert (decision.verdict, decision.gate) == (verdict, gate)
    assert decision.reason.strip()


@pytest.mark.parametrize("message", ["superseded", ""])
def test_a_cancelled_run_is_demoted(message: str) -> None:
    decision = voice_cancellation(
        name="Mail",
        problem=Problem(code="cancelled", message=message, remedy=""),
        cause="manual",
    )
    assert (decision.verdict, decision.gate) == ("demote", "run-failed")
    assert decision.reason == f"the run was cancelled: {message or 'cancelled'}"


def test_the_text_says_what_failed_why_how_to_mend_it_and_what_happens_next() -> None:
    problem = attrs.evolve(PROBLEM, path=PurePath("automations/mail.md"), line=7, column=5)
    assert failure_text(name="Mail", problem=problem, cause="webhook") == (
        "Mail failed (requires-unmet).\n"
        "\n"
        "automations/mail.md:7:5: mail-cli is not on the PATH\n"
        "\n"
        "To mend it: install the mail pack\n"
        "\n"
        "The event is not tried again by itself. Other events start runs as before."
    )


def test_the_text_for_a_run_by_hand_speaks_of_that_run_alone() -> None:
    """Its schedule may go on all the same."""
    text = failure_text(name="Mail", problem=PROBLEM, cause="manual")
    assert text.endswith("This run is not tried again by itself.")


def test_the_text_of_a_repeat_says_how_often_and_since_when() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    text = failure_text(
        name="Mail",
        problem=Problem(code="x", message=" ", remedy=""),
        cause="inbox",
        again_at=(START + DAY).astimezone(berlin),
        count=3,
        first_at=START,
    )
    assert text == (
        "Mail failed (x).\n"
        "\n"
        "no message was given\n"
        "\n"
        "This is failure 3 in a row for this cause, since 2026-01-05 07:00 UTC.\n"
        "It is tried again at 2026-01-06 08:00 CET."
    )


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_says_what_happens_next(cause: Cause) -> None:
    assert "again" in failure_text(name="Mail", problem=PROBLEM, cause=cause).splitlines()[-1]


# ---- mail


def test_mail_that_is_tried_again_is_quiet_while_the_cause_stays_and_its_end_is_told() -> None:
    """The first failure says when it is tried again; the last one names what is parked."""
    again = START + timedelta(minutes=5)
    given: dict[str, Any] = {"name": "Mail", "problem": PROBLEM, "cause": "inbox", "now": START}
    first, streak = voice_failure("always", None, **given, again_at=again)
    assert (first.verdict, first.gate) == ("deliver", "run-failed")
    assert "It is tried again at" in first.text
    second, streak = voice_failure("always", streak, **given, again_at=again)
    assert (second.verdict, second.gate) == ("demote", "repeat-failure")
    last, _ = voice_failure("always", streak, **given, mail=["ann@example.com: Hello (id 1)"])
    assert (last.verdict, last.gate) == ("deliver", "run-failed")
    assert last.reason.endswith(", and its mail is parked")
    assert "The mail is parked" in last.text
    assert last.text.endswith("- ann@example.com: Hello (id 1)")


def test_mail_of_a_run_that_is_not_made_up_for_is_named() -> None:
    mail = ["ann@example.com: Hello (id 1)"]
    cut = voice_interruption(
        "always", name="Mail", problem=PROBLEM, cause="inbox", again_at=None, mail=mail
    )
    ended = voice_cancellation(name="Mail", problem=PROBLEM, cause="inbox", mail=mail)
    for decision in (cut, ended):
        assert decision.reason.endswith("its mail is parked")
        assert decision.text.endswith(f"- {mail[0]}")
