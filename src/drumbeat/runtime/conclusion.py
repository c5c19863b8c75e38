"""How a run ends: one decision, one record, one transaction."""

from datetime import datetime
from typing import Literal

import attrs

from drumbeat.core.attempts import next_attempt
from drumbeat.core.failures import (
    Streak,
    voice_cancellation,
    voice_failure,
    voice_interruption,
)
from drumbeat.core.identity import intent_id
from drumbeat.core.model import (
    Automation,
    Claim,
    Decision,
    DeliveryIntent,
    Event,
    Fire,
    RunRecord,
    Usage,
)
from drumbeat.core.notify import evaluate_judgment_failed, evaluate_notify
from drumbeat.errors import ClaimLost, Problem
from drumbeat.runtime.inbox_marks import after_run, lines_of
from drumbeat.runtime.journal import Journal
from drumbeat.runtime.log import log
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.requests import CANCEL, cancelled, request_of
from drumbeat.runtime.services import Services

_TEXT_LIMIT = 64 * 1024
_EMPTY = Problem(
    code="final-reply-empty",
    message="the final reply is empty",
    remedy="let the last step say what it did, or that there was nothing to do",
)
_INTERRUPTED = Problem(
    code="interrupted",
    message="the engine stopped, or was killed, in the middle of the run",
    remedy="look at what stopped the host at that time; what the run had done stays done",
)


@attrs.frozen(kw_only=True)
class Ending:
    """Why a run is over. `final` is the last step's reply."""

    state: Literal["succeeded", "failed", "aborted", "interrupted", "cancelled"]
    problem: Problem | None = None
    final: str = ""
    judgment: str | None = None
    judgment_failure: str | None = None


def unfinished(claim: Claim, fire: Fire, *, at: datetime) -> RunRecord:
    """The record of a run of which nothing is known yet but that it began at `at`."""
    return RunRecord(
        run_id=claim.run_id,
        slug=claim.slug,
        fire=fire,
        state="running",
        started_at=at,
        finished_at=None,
        config_hash="",
        session_id=None,
        rotation=None,
        turns=(),
        usage=Usage(),
        failure=None,
        intent=None,
        delivery=None,
        receipt=None,
    )


def health_key(slug: str) -> str:
    """The mark that keeps an automation's last finish and its streak of failures."""
    return f"health:{slug}"


async def conclude(  # noqa: PLR0917  a run is these six things
    services: Services,
    journal: Journal,
    claim: Claim,
    automation: Automation,
    record: RunRecord,
    ending: Ending,
) -> RunRecord | None:
    """Decide who hears of the run, and commit everything about its end at once.

    Returns None when the claim is somebody else's by then, or when the engine drains while the
    store takes nothing: the next start settles the run as interrupted. A run that is interrupted
    before a request to cancel it was taken up ends as cancelled.
    """
    fire = claim.fire
    assert fire is not None, "a run needs the claim of a fire"
    ending = attrs.evolve(ending, problem=_redacted(services, ending.problem))
    now = services.clock.now()
    key = health_key(record.slug)
    texts: dict[str, str] = {}
    finished: RunRecord | None = None

    async def write() -> None:
        nonlocal finished, ending
        if ending.state == "interrupted":
            ending = await _as_asked(services, record, ending)
        if ending.state != "succeeded" and ending.problem is None:
            ending = attrs.evolve(ending, problem=_INTERRUPTED)
        mark = await mark_of(services.store, key)
        before = None if mark.value is None else mark.value["streak"]
        streak = None if before is None else Streak.from_json(before)
        final, judged = _judged(services, automation.notify, ending)
        again_at = next_attempt(
            fire, final.state, now=now, inbox_attempts=services.settings.inbox_attempts
        )
        decision, after = judged, None
        if decision is None:
            decision, after = _voiced(
                services, automation, final, streak, fire=fire, now=now, again_at=again_at
            )
        if decision.text not in texts:  # a store in trouble asks for it again
            texts[decision.text] = await _capped(journal, decision.text)
        intent = DeliveryIntent(
            id=intent_id(record.run_id),
            run_id=record.run_id,
            slug=record.slug,
            name=services.redactor.text(automation.name),
            session_id=record.session_id,
            fire=services.shown(fire),
            created_at=now,
            attempt=0,
            verdict=decision.verdict,
            gate=decision.gate,
            reason=services.redactor.text(decision.reason),
            text=texts[decision.text],
        )
        run = attrs.evolve(
            record,
            state=final.state,
            finished_at=now,
            failure=final.problem,
            intent=intent,
            delivery="pending" if decision.verdict == "deliver" else None,
        )
        value = {
            "finished": now.isoformat(),
            "streak": None if after is None else after.to_json(),
        }
        kept = tuple(journal.kept)
        again = again_at is not None
        events = _events(services, run, fire, again=again, recovered=before is not None)
        lines = [services.redactor.text(line) for line in lines_of(fire)]
        mail = await after_run(services.store, fire, final.state, again=again, lines=lines)
        await services.store.finish(
            claim,
            run,
            again_at=again_at,
            marks=(attrs.evolve(mark, value=value), *mail),
            events=(*kept, *events),
        )
        journal.taken(kept)
        finished = run

    try:
        await services.insist(write)
    except ClaimLost as error:
        services.claim_lost(record.slug, record.run_id, error)
    if finished is None:
        return None
    await _tell(journal, finished)
    return finished


async def _as_asked(services: Services, record: RunRecord, ending: Ending) -> Ending:
    request = await request_of(services.store, CANCEL + record.run_id)
    if request is None:
        return ending
    return Ending(state="cancelled", problem=cancelled(request.value))


async def _tell(journal: Journal, run: RunRecord) -> None:
    services = journal.services
    for hear in tuple(services.on_end):
        hear(run.run_id)
    _say(run)
    try:
        await services.artifacts.result(run)
    except OSError as error:
        await journal.artifact_failed("result.json", error)
    services.fires_changed.notify()
    services.intents_changed.notify()
    services.conversations_freed.notify()
    services.mail_settled.notify()
    services.state_changed.notify()


def _judged(services: Services, policy: str, ending: Ending) -> tuple[Ending, Decision | None]:
    """How the run ended after all, and what is decided over its reply if it succeeded."""
    if ending.state != "succeeded":
        return ending, None
    final = services.redactor.text(ending.final)
    if ending.judgment_failure is not None:
        decision = evaluate_judgment_failed(policy, final, ending.judgment_failure)
    elif ending.judgment is None:
        decision = evaluate_notify(policy, final)
    else:
        judgment = services.redactor.text(ending.judgment)
        decision = evaluate_notify(policy, final, judgment=judgment)
    if decision.gate == "final-reply-empty":
        return Ending(state="failed", problem=_EMPTY), None
    return ending, decision


def _voiced(
    services: Services,
    automation: Automation,
    ending: Ending,
    streak: Streak | None,
    *,
    fire: Fire,
    now: datetime,
    again_at: datetime | None,
) -> tuple[Decision, Streak | None]:
    """Who hears of a run that did not succeed, and the streak of failures after it."""
    policy, name, cause, problem = automation.notify, automation.name, fire.cause, ending.problem
    assert problem is not None, "what did not succeed has a reason"
    shown = None
    if again_at is not None:
        shown = max(again_at, now).astimezone(services.zone(automation.kind))
    mail = lines_of(fire) if again_at is None else []
    if ending.state == "interrupted":
        decision = voice_interruption(
            policy, name=name, problem=problem, cause=cause, again_at=shown, mail=mail
        )
        return decision, streak
    if ending.state == "cancelled":
        return voice_cancellation(name=name, problem=problem, cause=cause, mail=mail), streak
    return voice_failure(
        policy,
        streak,
        name=name,
        problem=problem,
        cause=cause,
        now=now,
        again_at=shown,
        mail=mail,
    )


def _redacted(services: Services, problem: Problem | None) -> Problem | None:
    if problem is None:
        return None
    code = problem.code
    if services.redactor.text(code) != code:
        code = "agent-error"  # nothing else lets a host name it
    return attrs.evolve(
        problem,
        code=code,
        message=services.redactor.text(problem.message),
        remedy=services.redactor.text(problem.remedy),
    )


async def _capped(journal: Journal, text: str) -> str:
    redacted = journal.services.redactor.text(text)
    whole = redacted.encode("utf-8", "backslashreplace")
    if len(whole) <= _TEXT_LIMIT:
        return redacted
    path = journal.services.artifacts.folder(journal.slug, journal.run_id) / "intent.md"
    written = await journal.artifact("intent.md", redacted)
    rest = f"the whole text: {path}" if written else f"the whole text could not be kept in {path}"
    tail = f"\n\n… cut at 64 KiB; {rest}"
    head = whole[: _TEXT_LIMIT - len(tail.encode())].decode("utf-8", "ignore")
    return head + tail


def _events(
    services: Services, run: RunRecord, fire: Fire, *, again: bool, recovered: bool
) -> list[Event]:
    intent = run.intent
    assert intent is not None, "a finished run has an intent"
    assert run.finished_at is not None, "a finished run has an end"
    at, slug, run_id = run.finished_at, run.slug, run.run_id
    events = []
    if run.state == "succeeded":
        if recovered:
            events.append(services.event("automation_recovered", at, slug, run_id))
    elif run.state in ("failed", "aborted"):
        failure = run.failure
        events.append(
            services.event(
                "automation_error",
                at,
                slug,
                run_id,
                state=run.state,
                code=None if failure is None else failure.code,
                message=None if failure is None else failure.message,
            )
        )
    events.append(
        services.event("run_completed", at, slug, run_id, state=run.state, turns=len(run.turns))
    )
    events.append(
        services.event(
            "delivery_intent",
            at,
            slug,
            run_id,
            intent=intent.id,
            verdict=intent.verdict,
            gate=intent.gate,
            reason=intent.reason,
        )
    )
    if again:
        return events
    if fire.cause == "inbox" and run.state != "succeeded":
        lines = [services.redactor.text(line) for line in lines_of(fire)]
        events.append(
            services.event(
                "mail_parked", at, slug, run_id, fire=fire.id, state=run.state, messages=lines
            )
        )
    events.append(services.event("fire_settled", at, slug, run_id, fire=fire.id, verdict="ran"))
    return events


def _say(run: RunRecord) -> None:
    assert run.intent is not None, "a finished run has an intent"
    facts = {
        "slug": run.slug,
        "run_id": run.run_id,
        "state": run.state,
        "verdict": run.intent.verdict,
        "gate": run.intent.gate,
    }
    if run.failure is not None:
        facts["code"], facts["message"] = run.failure.code, run.failure.message
    if run.state in ("failed", "aborted"):
        log.error("automation_error", **facts)
    else:
        log.info("run_completed", **facts)
