"""One true sentence about one moment of one automation, from what was recorded of it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

import attrs

from drumbeat.core.model import Fire, RunRecord

__all__ = [
    "NEAR",
    "REMOVED",
    "Around",
    "Known",
    "Subject",
    "explain",
    "is_paused_reason",
    "paused_reason",
    "removed_note",
    "subject_of",
]

NEAR = timedelta(minutes=1)
"""A fire that is less than this away from a moment is the one that is meant."""

REMOVED = "removed"
"""The reason with which a fire is skipped because its file counts as removed."""

_NEVER = "; no earlier fire is remembered"
_SKIPPED = {
    "disabled": "its file was disabled when its turn came",
    REMOVED: "its file was gone when its turn came",
}
_PAUSED = "paused ("


def paused_reason(why: str) -> str:
    """The reason with which a fire is skipped because its automation was paused for `why`."""
    return f"{_PAUSED}{why})"


def removed_note(path: str, at: datetime, zone: tzinfo) -> str:
    """Why nothing is due at present of a file that lay at `path` and counts as removed since."""
    return f"its file {path} is gone and has counted as removed since {_time(at, zone)}"


def is_paused_reason(reason: str) -> bool:
    """Whether `paused_reason` made it."""
    return reason.startswith(_PAUSED)


@attrs.frozen(kw_only=True)
class Subject:
    """The fire whose fate answers for a moment, and how it does.

    `at`: it is the fire of that moment. `folded`: it stands for `slots` earlier slots, and the
    moment lies where these were. `before`: it is the last fire before the moment. `none`: there is
    no fire.
    """

    how: Literal["at", "folded", "before", "none"]
    fire: Fire | None = None
    slots: int = 0


@attrs.frozen(kw_only=True)
class Known:
    """What is known of a run beside its record.

    `engine`: whether an engine holds the data folder, so that a run without an end is going on.
    `behind`: whether its message waits for an earlier one of the same automation. `failure`: why
    the last attempt to deliver it failed; "" when none did or that is not kept.
    """

    engine: bool = True
    behind: bool = False
    failure: str = ""


_NOTHING_MORE = Known()


@attrs.frozen(kw_only=True)
class Around:
    """What is known of the time around a moment.

    `owed`: the moment itself, when a schedule made it due and no engine has taken it up. `removed`:
    whether the file counts as removed, so that none will.
    `absent`: from when until when no engine was there, without an end when that lasts.
    `forgotten`: the instant before which records are gone.
    """

    owed: datetime | None = None
    removed: bool = False
    absent: tuple[datetime, datetime | None] | None = None
    forgotten: datetime | None = None


_NOTHING_AROUND = Around()


def subject_of(at: datetime, fires: Sequence[Fire]) -> Subject:
    """Find the fire that answers for the instant `at`.

    Args:
        at: an aware instant; a fire less than a minute away from it is meant, by the moment it was
            due or, when no schedule made it, by the moment it was asked for.
        fires: the fires of one slug that are remembered, in any order.
    """
    near = [(distance, fire) for fire in fires if (distance := _distance(fire, at)) < NEAR]
    if near:
        return Subject(how="at", fire=min(near, key=lambda pair: pair[0])[1])
    ordered = sorted(fires, key=lambda fire: fire.due)
    slots = [fire for fire in ordered if fire.cause == "schedule" and fire.due > at]
    if slots and slots[0].verdict != "folded":
        # What was folded into it as a fire of its own has a record of its own, and was due later.
        count = slots[0].folded_slots - sum(
            1 + fire.folded_slots for fire in fires if fire.folded_into == slots[0].id
        )
        if count > 0:
            return Subject(how="folded", fire=slots[0], slots=count)
    earlier = [fire for fire in ordered if fire.due <= at]
    return Subject(how="before", fire=earlier[-1]) if earlier else Subject(how="none")


def _distance(fire: Fire, at: datetime) -> timedelta:
    moments = [fire.due] if fire.cause == "schedule" else [fire.due, fire.created_at]
    return min(abs(moment - at) for moment in moments)


def explain(
    slug: str,
    at: datetime,
    *,
    subject: Subject,
    run: RunRecord | None,
    now: datetime,
    upcoming: datetime | None = None,
    note: str = "",
    known: Known = _NOTHING_MORE,
    around: Around = _NOTHING_AROUND,
    zone: tzinfo = UTC,
    left_out: Sequence[str] = (),
) -> str:
    """Say what became of `slug` at the instant `at`.

    Args:
        slug: the automation.
        at: an aware instant.
        subject: what `subject_of` found for it.
        run: the last run of the subject's fire, if it is remembered.
        now: the present instant.
        upcoming: the first moment from a minute before `at` on, and not past, at which it is due;
            one that is past when nobody has taken it up yet.
        note: what keeps it from being due at present, as half a sentence.
        known: what is known of `run` beside its record.
        around: what is known of the time around `at`.
        zone: whose wall clock the times are read off; each has its offset.
        left_out: what its webhook was sent and left out, in half sentences.
    """
    fire, absent = subject.fire, _absent(around, zone)
    if fire is not None and subject.how == "at":
        return _sentence(
            _fate(fire, run, known, zone) + (absent if fire.cause == "schedule" else "")
        )
    if fire is not None and subject.how == "folded":
        count = "1 earlier slot" if subject.slots == 1 else f"{subject.slots} earlier slots"
        return _sentence(
            f"{_fate(fire, run, known, zone)}; it stands for {count} as well, and if {slug} was due"
            f" at {_time(at, zone)}, that was one of them{absent}"
        )
    if around.owed is not None:
        said = f"{slug} was due at {_time(around.owed, zone)}, and no engine "
        said += f"took that up; {note}" if around.removed else "has taken that up yet"
        return _sentence(said + absent)
    if at > now and upcoming is not None and abs(upcoming - at) < NEAR:
        return _sentence(f"{slug} will be due at {_time(upcoming, zone)}")
    if around.forgotten is not None and at < around.forgotten:
        said = f"the records of the time before {_time(around.forgotten, zone)} are gone, so"
        said += f" nothing says what became of {slug} at {_time(at, zone)}{absent}"
    else:
        said = f"{slug} {'is' if at > now else 'was'} not due at {_time(at, zone)}{absent}"
        said += f"; before that, {_fate(fire, run, known, zone)}" if fire else _NEVER
    if note:
        said += f"; at present {note}"
    said += "".join(f"; {each}" for each in left_out)
    return _sentence(said + _next(upcoming, now, zone))


def _next(upcoming: datetime | None, now: datetime, zone: tzinfo) -> str:
    if upcoming is None:
        return "; no later moment is planned"
    if upcoming < now:
        return f"; it has been due since {_time(upcoming, zone)}, which no engine has taken up yet"
    return f"; it is next due at {_time(upcoming, zone)}"


def _absent(around: Around, zone: tzinfo) -> str:
    if around.absent is None:
        return ""
    since, until = around.absent
    if until is None:
        return f"; no engine has been there since {_time(since, zone)}"
    return f"; no engine was there from {_time(since, zone)} to {_time(until, zone)}"


def _fate(fire: Fire, run: RunRecord | None, known: Known, zone: tzinfo) -> str:
    what = f"{fire.slug} ({fire.cause}) {_since(fire, zone)}"
    if fire.verdict == "folded":
        return f"{what} was folded into the fire {fire.folded_into}"
    if fire.verdict == "missed":
        return f"{what} was missed: {fire.reason}"
    if fire.verdict == "skipped":
        return f"{what} was skipped: {_choice(fire.reason)}"
    if run is None:
        if fire.verdict is None:
            return f"{what} has not run yet"
        return f"{what} ran ({fire.reason}), and the record of that run is no longer kept"
    said = f"{what} ran as {run.run_id}"
    if run.started_at - fire.due >= NEAR:
        said += f" at {_time(run.started_at, zone)}"
    if run.state == "running":
        if known.engine:
            return f"{said} and is still running"
        return f"{said}, was going when its engine ended, and is settled at the next start"
    said += f" and {_ended(run)}; {_told(run, known)}"
    return (
        said if fire.verdict is not None else f"{said}; one more attempt is due{_again(fire, zone)}"
    )


def _since(fire: Fire, zone: tzinfo) -> str:
    # Mail is due again after each run that failed, so when it is due is not when it came.
    if fire.cause == "inbox":
        return f"for mail found at {_time(fire.created_at, zone)}"
    return f"due at {_time(fire.due, zone)}"


def _again(fire: Fire, zone: tzinfo) -> str:
    return f" at {_time(fire.due, zone)}" if fire.cause == "inbox" else ""


def _choice(reason: str) -> str:
    """Whose choice it was that a fire was skipped."""
    if is_paused_reason(reason):
        return f"it was paused when its turn came {reason.removeprefix('paused ')}"
    return _SKIPPED.get(reason, reason)


def _ended(run: RunRecord) -> str:
    ended = {
        "aborted": "was aborted",
        "interrupted": "was interrupted",
        "cancelled": "was cancelled",
    }.get(run.state, run.state)
    if run.failure is None or run.state in ("interrupted", "cancelled"):
        # What is told of the message says why.
        return ended
    return f"{ended} [{run.failure.code}] ({run.failure.message.rstrip('.')})"


def _told(run: RunRecord, known: Known) -> str:
    intent = run.intent
    if intent is None:
        return "it left no intent, so the record is invalid"
    why = f"by gate {intent.gate}: {intent.reason.rstrip('.')}"
    if intent.verdict == "withhold":
        return f"its message was withheld {why}"
    if intent.verdict == "demote":
        return f"its message was kept on record and not sent, {why}"
    if run.delivery == "delivered":
        return f"its message was delivered, {why}"
    if run.delivery == "abandoned":
        because = f" ({_clause(known.failure)})" if known.failure else ""
        return f"its message was to be delivered and was abandoned{because}, {why}"
    if known.behind:
        return f"its message waits behind an earlier message of this automation, {why}"
    if intent.attempt:
        count = "1 attempt" if intent.attempt == 1 else f"{intent.attempt} attempts"
        because = f", the last failure being: {_clause(known.failure)}" if known.failure else ""
        return f"its message is not delivered yet ({count} so far{because}) and stays to be, {why}"
    return f"its message is to be delivered, {why}"


def _clause(text: str) -> str:
    return text.strip().rstrip(".")


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".") + "."


def _time(at: datetime, zone: tzinfo) -> str:
    return at.astimezone(zone).isoformat(timespec="seconds").replace("+00:00", "Z")
