"""What the sender of a webhook is told (spec, section 13.1)."""

import json
from typing import Any

from drumbeat.core.explain import is_paused_reason
from drumbeat.core.model import Answer, Fire, Ignored, Refused, WebhookTrigger
from drumbeat.core.signatures import parse_auth

__all__ = ["accepted", "ignored", "known_before", "refused", "settled"]

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_AGAIN = "30"
"""Seconds after which a sender may come again while something here is in the way."""
_CHALLENGES = {"bearer": 'Bearer realm="drumbeat"', "basic": 'Basic realm="drumbeat"'}


def accepted(fire: Fire) -> Answer:
    """The event is kept and starts a run: 202."""
    return _answer(202, {"fire": fire.id}, fire=fire)


def settled(fire: Fire, reason: str) -> Answer:
    """The event is on record and starts no run, by somebody's choice: 200."""
    return _answer(200, {"fire": fire.id, "reason": reason}, fire=fire)


def known_before(fire: Fire, *, same: bool = True) -> Answer:
    """The same delivery came before, and `fire` is what became of it: 200.

    It says what became of that one, because somebody may have sent it again to have it done: a
    `verdict`, None until there is one, and the `state` in which its run ended or why there was no
    run.

    Args:
        fire: of the delivery that came before.
        same: whether it had the same body.
    """
    reason = "this delivery was received before"
    if not same:
        reason = "another event was received before under the id of this delivery"
    state = None if fire.verdict is None else fire.reason
    if state is not None and is_paused_reason(state):
        state = "paused"  # why is nobody else's affair
    said = {"fire": fire.id, "reason": reason, "verdict": fire.verdict, "state": state}
    return _answer(200, said, fire=fire)


def ignored(found: Ignored) -> Answer:
    """The event is in order and nobody's concern, or it greets: 200, and what a greeting asks."""
    if found.body:
        return Answer(status=found.status, headers={"Content-Type": _TEXT}, body=found.body)
    return _answer(found.status, {"fire": None, "reason": found.reason})


def refused(found: Refused, trigger: WebhookTrigger | None = None) -> Answer:
    """The request is not in order, or cannot be taken at present.

    Args:
        found: why; none of it is secret.
        trigger: the route's, which says in the headers how to ask instead.
    """
    headers = {"Retry-After": _AGAIN} if found.status == 503 else {}
    if trigger is not None and found.status == 405:
        headers["Allow"] = trigger.method.upper()
    if trigger is not None and found.status == 401:
        challenge = _CHALLENGES.get(parse_auth(trigger.auth).scheme)
        if challenge is not None:
            headers["WWW-Authenticate"] = challenge
    return _answer(found.status, {"code": found.code, "reason": found.reason}, headers=headers)


def _answer(
    status: int,
    said: dict[str, Any],
    *,
    fire: Fire | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    return Answer(
        status=status,
        headers={"Content-Type": _JSON, **(headers or {})},
        body=json.dumps(said).encode(),
        fire=fire,
    )
