"""What becomes of a webhook request, decided without any I/O (spec, section 13.1)."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from drumbeat.core.asked import check_aware
from drumbeat.core.callers import is_foreign
from drumbeat.core.filters import TooManyParts, parse_filter, read_payload
from drumbeat.core.json_parts import MOST_PARTS
from drumbeat.core.messages import quoted
from drumbeat.core.model import Accepted, Automation, Ignored, Refused, WebhookTrigger
from drumbeat.core.redaction import one_line
from drumbeat.core.signatures import Auth, Headers, check_proof, check_signature, parse_auth
from drumbeat.errors import Problem

__all__ = ["DELIVERY_HEADERS", "bounded_slot", "check_head", "check_webhook", "route_clashes"]

DELIVERY_HEADERS = ("X-GitHub-Delivery", "svix-id", "webhook-id", "Idempotency-Key")
"""Where a sender puts the id of a delivery, in the order in which they are looked for."""

_LONGEST_SLOT = 255
_EVENT = b"event_callback"


def check_webhook(
    trigger: WebhookTrigger,
    *,
    method: str,
    headers: Mapping[str, str],
    body: bytes,
    secrets: Mapping[str, str],
    now: datetime,
) -> Accepted | Ignored | Refused:
    """Decide about one request to a trigger's route (spec, section 13.1).

    Checked in this order: the method, that the secret is there, the sender, under `basic` that no
    other site's page made a browser send it, Slack's `url_verification`, the filter. Whether a
    delivery was seen before is asked of the store, by the `slot` of what is accepted. Where a
    signature covers an id, that one counts: under svix it, under `slack` the `event_id` of an event
    and for all else the signature. Under the other schemes it is the first of `DELIVERY_HEADERS`
    that is there, else the `event_id` of a Slack event. It is kept as given; one that is longer
    than 255 characters or not printable is replaced by `sha256:` and its digest.

    Args:
        trigger: the route's, out of a file that loaded.
        method: as in the request, in any case.
        headers: by name, in any case; values without or with white space at their edges.
        body: the raw bytes, before anything decoded them.
        secrets: value by name. The names used are `AGENT_API_SECRET`, `SLACK_SIGNING_SECRET` and
            `SVIX_SECRET`; one that is blank counts as missing.
        now: an aware instant.

    Returns:
        `Accepted`; or `Ignored`, status 200, for an event that is filtered out or greets; or
        `Refused` with status 400 (`webhook-not-json`, `webhook-too-many-parts`), 401 (see
        `check_signature`), 403 (`webhook-foreign`), 405 (`webhook-method`) or 503
        (`webhook-secret-missing`, `webhook-secret-unusable`: the sender tries again, and by then
        the secret may be there). No reason holds a secret or a header.

    Raises:
        InvalidValue: the trigger was made by hand and would have refused its file.
        TypeError: `now` is no datetime.
        ValueError: `now` is not aware.
    """
    refused = check_head(trigger, method=method, headers=headers, secrets=secrets, now=now)
    if refused is not None:
        return refused
    auth, found = parse_auth(trigger.auth), Headers(headers)
    expression = None if trigger.filter is None else parse_filter(trigger.filter)
    secret = one_line(secrets[auth.secret_name])
    checked = check_signature(auth, headers=found, body=body, secret=secret, now=now)
    if isinstance(checked, Refused):
        return checked
    given = _given_id(checked.delivery_id, found)
    payload: Any = None
    unread: Refused | None = None
    if expression is not None or _may_matter(auth, body, given):
        payload, unread = _payload(body)
    if auth.scheme == "slack" and _kind(payload) == "url_verification":
        challenge = payload.get("challenge")
        return Ignored(
            reason="Slack asked whether this is the right address",
            body=challenge.encode("utf-8", "replace") if isinstance(challenge, str) else b"",
        )
    if expression is not None:
        if unread is not None:
            return unread
        if not expression.matches(payload):
            return Ignored(
                reason=f"the filter {quoted(str(trigger.filter))} leaves this event out",
                filtered=True,
            )
    return Accepted(
        slot=_slot(auth, given, payload),
        payload=body if trigger.method == "post" else None,
    )


def check_head(
    trigger: WebhookTrigger,
    *,
    method: str,
    headers: Mapping[str, str],
    secrets: Mapping[str, str],
    now: datetime,
) -> Refused | None:
    """Decide about one request before its body is there, as far as that can be.

    So nobody who is refused anyway is waited for, and nothing that he sends is held in memory.

    Args:
        trigger: as for `check_webhook`, like all others.
        method: in any case.
        headers: by name.
        secrets: value by name.
        now: an aware instant.

    Returns:
        What `check_webhook` would refuse it with, None when that depends on the body.

    Raises:
        InvalidValue: as `check_webhook`.
        TypeError: `now` is no datetime.
        ValueError: `now` is not aware.
    """
    check_aware("now", now)
    auth = parse_auth(trigger.auth)
    if trigger.filter is not None:
        parse_filter(trigger.filter)
    if method.lower() != trigger.method:
        return Refused(
            code="webhook-method",
            reason=f"this route takes {trigger.method.upper()} alone",
            status=405,
        )
    secret = one_line(secrets.get(auth.secret_name, ""))
    if not secret.strip():
        return Refused(
            code="webhook-secret-missing",
            reason=f"{auth.secret_name} is not set: `auth: {auth.scheme}` cannot check who sends",
            status=503,
        )
    found = Headers(headers)
    refused = check_proof(auth, headers=found, secret=secret, now=now)
    if refused is not None:
        return refused
    if auth.scheme == "basic" and is_foreign(found):
        return Refused(
            code="webhook-foreign",
            reason="this request was made by the page of another site",
            status=403,
        )
    return None


def route_clashes(automations: Iterable[Automation]) -> tuple[Problem, ...]:
    """Find files that ask for one route; each problem names both files.

    Routes are compared without case, like slugs: a route is typed into the settings of a sender.

    Args:
        automations: those of one workspace, each with its path, in any order.

    Returns:
        One problem for each file that clashes, located at that file, in path order.
    """
    routes: dict[str, list[Automation]] = {}
    for automation in sorted(automations, key=lambda each: str(each.path)):
        for trigger in automation.triggers:
            if isinstance(trigger, WebhookTrigger):
                routes.setdefault(trigger.route.lower(), []).append(automation)
    return tuple(
        Problem(
            code="route-clash",
            message=f"{automation.path} and {_other(automation, sharing).path} have the same "
            f"`webhook: {route}`",
            remedy="give one of them a route of its own",
            path=automation.path,
        )
        for route, sharing in routes.items()
        if len(sharing) > 1
        for automation in sharing
    )


def _other(automation: Automation, sharing: list[Automation]) -> Automation:
    return next(each for each in sharing if each is not automation)


# ---- what the body says


def _payload(body: bytes) -> tuple[Any, Refused | None]:
    """What a body says; or why it is not known, for a filter alone: jobs read what they get."""
    try:
        return read_payload(body), None
    except TooManyParts:
        return None, Refused(
            code="webhook-too-many-parts",
            reason="this route filters by what the event says, and the body has more than "
            f"{MOST_PARTS} lists and objects",
            status=400,
        )
    except ValueError:
        return None, Refused(
            code="webhook-not-json",
            reason="this route filters by what the event says, and the body is no JSON; "
            "let the sender use application/json",
            status=400,
        )


def _kind(payload: Any) -> Any:
    return payload.get("type") if isinstance(payload, dict) else None


def _may_matter(auth: Auth, body: bytes, given: str | None) -> bool:
    """Whether what a body says may matter although nothing filters by it.

    To read a large one takes long, and only Slack's events say something that is asked for.
    """
    if auth.scheme == "slack":
        return b"url_verification" in body or _EVENT in body
    return given is None and _EVENT in body


def _given_id(signed: str | None, headers: Headers) -> str | None:
    """The id of the delivery, as far as the headers say it."""
    names = [headers.first(name) for name in DELIVERY_HEADERS]
    return next(filter(None, [signed, *names]), None)


def _slot(auth: Auth, given: str | None, payload: Any) -> str | None:
    # Another sender's field of this name may mean something that several deliveries share.
    event = payload.get("event_id") if _kind(payload) == "event_callback" else None
    event_id = event if isinstance(event, str) else None
    # A captured request could be sent again under another id, if one that is not signed came first.
    order = [event_id, given] if auth.scheme == "slack" else [given, event_id]
    found = next(filter(None, order), None)
    return None if found is None else bounded_slot(found)


def bounded_slot(given: str) -> str:
    """An id that a caller gave, as a slot: kept as it is unless it is long or not printable.

    One that is longer than 255 characters or not printable becomes `sha256:` and its digest.
    """
    if len(given) <= _LONGEST_SLOT and given.isprintable():
        return given
    return f"sha256:{sha256(given.encode('utf-8', 'surrogatepass')).hexdigest()}"
