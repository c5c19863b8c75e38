"""What became of a moment is said in one sentence, and it is true."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
import pytest

from drumbeat.core.explain import (
    Around,
    Known,
    Subject,
    explain,
    paused_reason,
    removed_note,
    subject_of,
)
from drumbeat.core.model import DeliveryIntent, Fire, RunRecord, Usage
from drumbeat.errors import Problem

AT = datetime(2026, 3, 2, 7, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def fire(due: datetime = AT, **fields: Any) -> Fire:
    values: dict[str, Any] = {"id": f"f-{due:%d%H%M}", "slug": "brief", "cause": "schedule"}
    values |= {"slot": due.isoformat(), "due": due, "created_at": due}
    return Fire(**(values | fields))


def run(of: Fire, state: Any = "succeeded", *, delivery: Any = None, **intent: Any) -> RunRecord:
    failure = None
    if state in ("failed", "aborted"):
        failure = Problem(code="requirement-unmet", message="no file x.", remedy="")
    values: dict[str, Any] = {"verdict": "withhold", "gate": "nothing-to-report", "attempt": 0}
    values |= {"reason": "nothing to report.", "text": "", "id": "i", "run_id": "r1"}
    values |= {
        "slug": "brief",
        "name": "Brief",
        "session_id": None,
        "fire": of,
        "created_at": of.due,
    }
    return RunRecord(
        run_id="r1",
        slug="brief",
        fire=of,
        state=state,
        started_at=of.due,
        finished_at=None,
        config_hash="",
        session_id=None,
        rotation=None,
        turns=(),
        usage=Usage(),
        failure=failure,
        intent=DeliveryIntent(**(values | intent)),
        delivery=delivery,
        receipt=None,
    )


def said(
    *fires: Fire,
    at: datetime = AT,
    record: RunRecord | None = None,
    now: datetime = AT + HOUR,
    upcoming: datetime | None = None,
    note: str = "",
    known: Known | None = None,
) -> str:
    return explain(
        "brief",
        at,
        subject=subject_of(at, fires),
        run=record,
        now=now,
        upcoming=upcoming,
        note=note,
        known=known or Known(),
    )


RAN = fire(verdict="ran", reason="succeeded", run_id="r1")
WHAT = "brief (schedule) due at 2026-03-02T07:00:00Z"


@pytest.mark.parametrize(
    "record, sentence",
    [
        (
            run(RAN),
            "ran as r1 and succeeded; its message was withheld by gate nothing-to-report: "
            "nothing to report.",
        ),
        (
            run(RAN, verdict="demote", gate="near-sentinel", reason="almost"),
            "ran as r1 and succeeded; its message was kept on record and not sent, by gate "
            "near-sentinel: almost.",
        ),
        (
            run(RAN, verdict="deliver", gate="policy-always", delivery="pending"),
            "ran as r1 and succeeded; its message is to be delivered, by gate policy-always: "
            "nothing to report.",
        ),
        (
            run(RAN, verdict="deliver", gate="policy-always", delivery="pending", attempt=2),
            "ran as r1 and succeeded; its message is not delivered yet (2 attempts so far) and "
            "stays to be, by gate policy-always: nothing to report.",
        ),
        (
            run(RAN, verdict="deliver", gate="policy-always", delivery="delivered", attempt=1),
            "ran as r1 and succeeded; its message was delivered, by gate policy-always: "
            "nothing to report.",
        ),
        (
            run(RAN, verdict="deliver", gate="policy-always", delivery="abandoned", attempt=8),
            "ran as r1 and succeeded; its message was to be delivered and was abandoned, by gate "
            "policy-always: nothing to report.",
        ),
        (
            run(RAN, "failed", verdict="deliver", gate="run-failed", reason="it\nfailed"),
            "ran as r1 and failed [requirement-unmet] (no file x); its message is to be delivered, "
            "by gate run-failed: it failed.",
        ),
        (
            run(RAN, "aborted", verdict="demote", gate="repeat-failure", reason="again"),
            "ran as r1 and was aborted [requirement-unmet] (no file x); its message was kept on "
            "record and not sent, by gate repeat-failure: again.",
        ),
        (
            run(
                RAN,
                "cancelled",
                verdict="demote",
                gate="run-failed",
                reason="the run was cancelled: by hand",
            ),
            "ran as r1 and was cancelled; its message was kept on record and not sent, by gate "
            "run-failed: the run was cancelled: by hand.",
        ),
        (
            run(RAN, "interrupted", verdict="deliver", gate="run-failed", reason="stopped"),
            "ran as r1 and was interrupted; its message is to be delivered, by gate run-failed: "
            "stopped.",
        ),
        (
            attrs.evolve(run(RAN), intent=None),
            "ran as r1 and succeeded; it left no intent, so the record is invalid.",
        ),
        (None, "ran (succeeded), and the record of that run is no longer kept."),
    ],
)
def test_a_fire_that_ran(record: RunRecord | None, sentence: str) -> None:
    assert said(RAN, record=record) == f"{WHAT} {sentence}"


def test_a_run_that_is_going() -> None:
    going = fire(run_id="r1")
    sentence = f"{WHAT} ran as r1 and is still running."
    assert said(going, record=run(going, "running")) == sentence


def test_a_run_that_its_engine_left_behind() -> None:
    """Nothing runs where no engine is."""
    going = fire(run_id="r1")
    sentence = (
        f"{WHAT} ran as r1, was going when its engine ended, and is settled at the next start."
    )
    assert said(going, record=run(going, "running"), known=Known(engine=False)) == sentence


@pytest.mark.parametrize(
    "delivery, attempt, known, words",
    [
        (
            "pending",
            3,
            Known(failure="ConnectionError: no route."),
            "its message is not delivered yet (3 attempts so far, the last failure being: "
            "ConnectionError: no route) and stays to be, by gate policy-always",
        ),
        ("pending", 1, Known(), "its message is not delivered yet (1 attempt so far) and stays"),
        (
            "pending",
            0,
            Known(behind=True),
            "its message waits behind an earlier message of this automation, by gate",
        ),
        (
            "abandoned",
            8,
            Known(failure="given up after attempt 8: no route"),
            "was abandoned (given up after attempt 8: no route), by gate policy-always",
        ),
    ],
)
def test_how_a_delivery_stands(delivery: Any, attempt: int, known: Known, words: str) -> None:
    """Attempts so far, the last reason, and what a message waits for."""
    record = run(RAN, verdict="deliver", gate="policy-always", delivery=delivery, attempt=attempt)
    assert words in said(RAN, record=record, known=known)


def test_a_fire_that_waits() -> None:
    assert said(fire()) == f"{WHAT} has not run yet."


def test_mail_is_named_by_when_it_was_found_and_by_when_it_is_tried_again() -> None:
    """Its fire is due again after each run that failed."""
    again = fire(AT + HOUR, cause="inbox", created_at=AT, run_id="r1")
    told = said(again, record=run(again, "failed", verdict="demote", gate="repeat-failure"))
    assert told.startswith("brief (inbox) for mail found at 2026-03-02T07:00:00Z ran as r1 and")
    assert told.endswith("; one more attempt is due at 2026-03-02T08:00:00Z.")


def test_an_interrupted_fire_that_runs_again() -> None:
    """A webhook's fire moves on to the crash, and is still found where it was asked for."""
    again = fire(AT + HOUR, cause="webhook", created_at=AT, run_id="r1")
    record = run(again, "interrupted", verdict="demote", gate="run-failed", reason="again due")
    assert said(again, record=record) == (
        "brief (webhook) due at 2026-03-02T08:00:00Z ran as r1 and was interrupted; its message "
        "was kept on record and not sent, by gate run-failed: again due; one more attempt is due."
    )


@pytest.mark.parametrize(
    "reason, sentence",
    [
        ("disabled", "its file was disabled when its turn came"),
        ("removed", "its file was gone when its turn came"),
        (paused_reason("holiday"), "it was paused when its turn came (holiday)"),
        ("by a person", "by a person"),
    ],
)
def test_a_skipped_fire(reason: str, sentence: str) -> None:
    skipped = fire(verdict="skipped", reason=reason)
    assert said(skipped) == f"{WHAT} was skipped: {sentence}."


def test_a_missed_fire() -> None:
    assert said(fire(verdict="missed", reason="2 days late")) == f"{WHAT} was missed: 2 days late."


def test_a_folded_fire() -> None:
    folded = fire(verdict="folded", reason="folded into f-0", folded_into="f-0")
    assert said(folded) == f"{WHAT} was folded into the fire f-0."


def test_a_fire_less_than_a_minute_away_is_meant_and_the_nearest_wins() -> None:
    near, nearer = fire(AT - 30 * MINUTE / 60), fire(AT + 20 * MINUTE / 60)
    assert subject_of(AT, [near, nearer]) == Subject(how="at", fire=nearer)
    assert subject_of(AT, [fire(AT - MINUTE)]).how == "before"
    assert subject_of(AT, [fire(AT + MINUTE)]).how == "none"


def test_a_schedule_is_found_by_its_slot_and_not_by_when_it_was_made() -> None:
    late = fire(AT - HOUR, created_at=AT)
    assert subject_of(AT, [late]) == Subject(how="before", fire=late)


def test_a_slot_that_was_folded_without_a_record_of_its_own() -> None:
    catch_up = fire(AT + HOUR, folded_slots=3, verdict="ran", reason="succeeded")
    assert said(catch_up) == (
        "brief (schedule) due at 2026-03-02T08:00:00Z ran (succeeded), and the record of that run "
        "is no longer kept; it stands for 3 earlier slots as well, and if brief was due at "
        "2026-03-02T07:00:00Z, that was one of them."
    )
    assert "stands for 1 earlier slot as well" in said(attrs.evolve(catch_up, folded_slots=1))


def test_slots_that_were_folded_later_are_not_taken_for_earlier_ones() -> None:
    """A waiting fire counts what folds into it, and each of these has its own record."""
    waiting = fire(AT + HOUR, folded_slots=3)
    later = fire(AT + 2 * HOUR, verdict="folded", folded_into=waiting.id, folded_slots=2)
    assert subject_of(AT, [later, waiting]) == Subject(how="none")
    between = AT + HOUR + 30 * MINUTE
    assert subject_of(between, [later, waiting]) == Subject(how="before", fire=waiting)


def test_a_moment_between_two_fires() -> None:
    before = fire(AT - HOUR, verdict="missed", reason="too late")
    assert said(before, upcoming=AT + 24 * HOUR) == (
        "brief was not due at 2026-03-02T07:00:00Z; before that, brief (schedule) due at "
        "2026-03-02T06:00:00Z was missed: too late; it is next due at 2026-03-03T07:00:00Z."
    )


def test_a_moment_of_something_that_was_never_due() -> None:
    assert said(note="its file says that it is disabled") == (
        "brief was not due at 2026-03-02T07:00:00Z; no earlier fire is remembered; at present its "
        "file says that it is disabled; no later moment is planned."
    )


def test_a_moment_to_come() -> None:
    now = AT - HOUR
    assert said(now=now, upcoming=AT) == "brief will be due at 2026-03-02T07:00:00Z."
    assert said(now=now, upcoming=AT + HOUR) == (
        "brief is not due at 2026-03-02T07:00:00Z; no earlier fire is remembered; it is next due "
        "at 2026-03-02T08:00:00Z."
    )


def test_a_run_that_began_late_is_told_with_when() -> None:
    assert said(RAN, record=attrs.evolve(run(RAN), started_at=AT + 3 * HOUR)).startswith(
        f"{WHAT} ran as r1 at 2026-03-02T10:00:00Z and succeeded; "
    )


def test_a_moment_that_no_engine_has_taken_up() -> None:
    assert told(Around(owed=AT)) == (
        "brief was due at 2026-03-02T07:00:00Z, and no engine has taken that up yet."
    )
    assert told(Around(owed=AT, absent=(AT - HOUR, None))).endswith(
        "up yet; no engine has been there since 2026-03-02T06:00:00Z."
    )


def test_a_moment_that_was_not_taken_up_before_its_file_was_removed() -> None:
    note = removed_note("automations/brief.md", AT + MINUTE, UTC)
    assert told(Around(owed=AT, removed=True), note=note) == (
        "brief was due at 2026-03-02T07:00:00Z, and no engine took that up; its file "
        "automations/brief.md is gone and has counted as removed since 2026-03-02T07:01:00Z."
    )


def test_a_time_without_an_engine() -> None:
    """It is told of moments that a schedule makes, and of no fire that somebody put in."""
    gap = Around(absent=(AT - HOUR, AT + HOUR))
    words = "no engine was there from 2026-03-02T06:00:00Z to 2026-03-02T08:00:00Z"
    missed = fire(verdict="missed", reason="late")
    assert told(gap, missed).endswith(f"was missed: late; {words}.")
    assert told(gap, fire(AT + MINUTE, verdict="missed", reason="late", folded_slots=2)).endswith(
        f"that was one of them; {words}."
    )
    assert f"not due at 2026-03-02T07:00:00Z; {words}; no earlier fire" in told(gap)
    assert words not in told(gap, fire(cause="manual", verdict="skipped", reason="removed"))


def test_a_time_of_which_the_records_are_gone() -> None:
    gone = Around(forgotten=AT + MINUTE)
    assert told(gone, note="it is paused (a look)") == (
        "the records of the time before 2026-03-02T07:01:00Z are gone, so nothing says what became "
        "of brief at 2026-03-02T07:00:00Z; at present it is paused (a look); no later moment is "
        "planned."
    )
    assert "was not due" in told(Around(forgotten=AT))


def told(around: Around, *fires: Fire, note: str = "") -> str:
    subject = subject_of(AT, fires)
    return explain("brief", AT, subject=subject, run=None, now=AT + HOUR, note=note, around=around)


def test_times_are_read_off_the_wall_clock_of_a_zone() -> None:
    told = explain(
        "brief",
        AT,
        subject=subject_of(AT, [RAN]),
        run=run(RAN),
        now=AT + HOUR,
        upcoming=AT + 24 * HOUR,
        zone=timezone(HOUR),
    )
    assert told.startswith("brief (schedule) due at 2026-03-02T08:00:00+01:00 ran as r1")


def test_an_interval_that_nobody_took_up_is_said_to_be_due() -> None:
    told = said(RAN, at=AT + 5 * HOUR, now=AT + 6 * HOUR, upcoming=AT + 2 * HOUR)
    assert told.endswith(
        "; it has been due since 2026-03-02T09:00:00Z, which no engine has taken up yet."
    )


def test_a_file_that_is_gone_is_named_with_the_time_since_when() -> None:
    at = datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert removed_note("jobs/a.md", at, timezone(timedelta(hours=1))) == (
        "its file jobs/a.md is gone and has counted as removed since 2026-03-02T13:00:00+01:00"
    )
