"""Failures are voiced once: when a run that went wrong is told to people (spec, section 10).

Theory. A `Streak` stands for one automation that keeps failing for one cause (`Problem.code`), and
is kept from run to run. Its first failure is told. After that only the schedule is quietened,
because only the schedule repeats by itself: a run that somebody or something asked for answers
whoever asked. Mail that failed repeats by itself as well, a few times, and its end is told: parked
or done. A quiet streak is told of again 1, 2, 4, 8 … days after its first failure, so nothing
that stays broken is ever forgotten. Success ends the streak (the engine drops it and emits
`automation_recovered`); another cause begins another one.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import attrs

from drumbeat.core.model import Cause, Decision
from drumbeat.errors import Problem

__all__ = [
    "Streak",
    "failure_text",
    "voice_cancellation",
    "voice_failure",
    "voice_interruption",
]

_DAY = timedelta(days=1)


@attrs.frozen(kw_only=True)
class Streak:
    """An automation that keeps failing for the same cause.

    `first_at` is the first failure, `voiced_at` the last one that people were told of (None when
    nobody was, as under `never`), `count` how many runs failed so far.
    """

    code: str
    first_at: datetime
    voiced_at: datetime | None
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return a plain mapping that `from_json` reads, its version included."""
        return {
            "version": 1,
            "code": self.code,
            "first_at": self.first_at.isoformat(),
            "voiced_at": None if self.voiced_at is None else self.voiced_at.isoformat(),
            "count": self.count,
        }

    @classmethod
    def from_json(cls, value: object) -> Self | None:
        """Read what `to_json` gave.

        Returns:
            The streak, or None for anything else (a record of another version, a damaged one):
            the next failure then counts as the first and is told, which errs to the loud side.
        """
        if not isinstance(value, Mapping) or value.get("version") != 1:
            return None
        code, count = value.get("code"), value.get("count")
        first_at, voiced_at = _instant(value.get("first_at")), _instant(value.get("voiced_at"))
        if not isinstance(code, str) or type(count) is not int or first_at is None:
            return None
        return cls(code=code, first_at=first_at, voiced_at=voiced_at, count=count)


def voice_failure(
    policy: str,
    streak: Streak | None,
    *,
    name: str,
    problem: Problem,
    cause: Cause,
    now: datetime,
    again_at: datetime | None = None,
    mail: Sequence[str] = (),
) -> tuple[Decision, Streak]:
    """Decide whether a failed or aborted run is told, and how the streak stands after it.

    Args:
        policy: the automation's notify policy; `never` withholds.
        streak: how it stood before this run; None after a success or at the first run.
        name: the automation's name, for people.
        problem: what failed; its `code` is the cause that makes two failures the same.
        cause: what the run was for. Only `schedule` is ever quietened, and mail that is tried
            again; mail that is not is parked, which is told each time.
        now: when it failed, aware.
        again_at: when the same work is tried again, where that is known; aware, in the zone in
            which it is to be shown.
        mail: a line for each message that the run was about.

    Returns:
        The decision (`deliver` or `withhold`, gate `run-failed` or `policy-never`; `demote` with
        `repeat-failure`) and the streak to keep.
    """
    if streak is None or streak.code != problem.code:
        streak = Streak(code=problem.code, first_at=now, voiced_at=None)
    else:
        # A clock that went back would keep the streak quiet until it has caught up again.
        streak = attrs.evolve(
            streak,
            count=streak.count + 1,
            first_at=min(streak.first_at, now),
            voiced_at=None if streak.voiced_at is None else min(streak.voiced_at, now),
        )
    text = failure_text(
        name=name,
        problem=problem,
        cause=cause,
        again_at=again_at,
        count=streak.count,
        first_at=streak.first_at,
        mail=mail,
    )
    if policy == "never":
        return (
            Decision(
                verdict="withhold",
                gate="policy-never",
                reason=f"the run failed ({problem.code}) and the policy is never",
                text=text,
            ),
            streak,
        )
    repeats = cause == "schedule" or (cause == "inbox" and again_at is not None)
    if repeats and not _is_due(streak, now):
        return (
            Decision(
                verdict="demote",
                gate="repeat-failure",
                reason=f"failure {streak.count} in a row with the cause {problem.code}, which "
                f"people were told of at {_shown(streak.voiced_at or now)}",
                text=text,
            ),
            streak,
        )
    again = "" if streak.count == 1 else f", failure {streak.count} in a row with this cause"
    return (
        Decision(
            verdict="deliver",
            gate="run-failed",
            reason=f"the run failed ({problem.code}{again}){_parked(cause, again_at)}",
            text=text,
        ),
        attrs.evolve(streak, voiced_at=now),
    )


def voice_interruption(
    policy: str,
    *,
    name: str,
    problem: Problem,
    cause: Cause,
    again_at: datetime | None,
    mail: Sequence[str] = (),
) -> Decision:
    """Decide for a run that a crash or a shutdown interrupted (spec, section 5).

    Args:
        policy: the automation's notify policy.
        name: the automation's name, for people.
        problem: what interrupted it.
        cause: what the run was for.
        again_at: when its fire gets another attempt, which demotes; None when it gets none, which
            delivers, except under `never`.
        mail: a line for each message that the run was about.
    """
    text = failure_text(name=name, problem=problem, cause=cause, again_at=again_at, mail=mail)
    if again_at is not None:
        return Decision(
            verdict="demote",
            gate="run-failed",
            reason=f"the run was interrupted ({problem.code}) and is tried again",
            text=text,
        )
    if policy == "never":
        return Decision(
            verdict="withhold",
            gate="policy-never",
            reason=f"the run was interrupted ({problem.code}) and the policy is never",
            text=text,
        )
    return Decision(
        verdict="deliver",
        gate="run-failed",
        reason=f"the run was interrupted ({problem.code}) and is not tried again"
        + _parked(cause, again_at),
        text=text,
    )


def voice_cancellation(
    *, name: str, problem: Problem, cause: Cause, mail: Sequence[str] = ()
) -> Decision:
    """Decide for a run that `cancel()` ended: demoted, since whoever ended it knows."""
    return Decision(
        verdict="demote",
        gate="run-failed",
        reason=f"the run was cancelled: {problem.message or problem.code}{_parked(cause, None)}",
        text=failure_text(name=name, problem=problem, cause=cause, mail=mail),
    )


_NEXT: Mapping[Cause, str] = {
    "schedule": "It runs again as scheduled. While it keeps failing for this cause you hear of it "
    "again 1, 2, 4, 8 … days after the first failure.",
    "webhook": "The event is not tried again by itself. Other events start runs as before.",
    "inbox": "The mail is parked: it is not tried again by itself. Other mail starts runs as "
    "before.",
    "follow-up": "The follow-up is not tried again by itself.",
    "manual": "This run is not tried again by itself.",
}


def failure_text(
    *,
    name: str,
    problem: Problem,
    cause: Cause,
    again_at: datetime | None = None,
    count: int = 1,
    first_at: datetime | None = None,
    mail: Sequence[str] = (),
) -> str:
    """Write the message about a failure: what failed, why, how to mend it, what happens next.

    Args:
        name: the automation's name.
        problem: what failed.
        cause: what the run was for.
        again_at: when the same work is tried again; shown in its own zone.
        count: how many runs in a row failed for this cause, this one included.
        first_at: when the first of them failed; shown in its own zone.
        mail: a line for each message that the run was about, such as who wrote it.
    """
    where = f"{problem.location}: " if problem.location else ""
    what = problem.message.strip() or "no message was given"
    lines = [f"{name} failed ({problem.code}).", "", f"{where}{what}"]
    if problem.remedy.strip():
        lines += ["", f"To mend it: {problem.remedy.strip()}"]
    lines.append("")
    if count > 1 and first_at is not None:
        lines.append(f"This is failure {count} in a row for this cause, since {_shown(first_at)}.")
    if again_at is not None:
        lines.append(f"It is tried again at {_shown(again_at)}.")
    else:
        lines.append(_NEXT[cause])
    if mail:
        lines += ["", *(f"- {line}" for line in mail)]
    return "\n".join(lines)


def _parked(cause: Cause, again_at: datetime | None) -> str:
    return ", and its mail is parked" if cause == "inbox" and again_at is None else ""


def _is_due(streak: Streak, now: datetime) -> bool:
    """Whether nobody was told yet, or a day 1, 2, 4, 8 … of the streak came since."""
    if streak.voiced_at is None:
        return True
    days = (now - streak.first_at) // _DAY
    if days < 1:
        return False
    latest = 1 << (days.bit_length() - 1)
    return streak.voiced_at - streak.first_at < latest * _DAY


def _shown(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} {instant.tzname() or ''}".rstrip()


def _instant(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if instant.tzinfo is None else instant.astimezone(UTC)
