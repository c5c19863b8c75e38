"""An engine's doors as Starlette routes, to mount in any ASGI host (extra `drumbeat[web]`).

The bodies of requests are never trusted in size, and no answer holds a secret.
"""

from datetime import timedelta

from drumbeat.client import Client
from drumbeat.core.asked import check_span
from drumbeat.errors import extra_missing

try:
    from starlette.routing import BaseRoute, Route
except ModuleNotFoundError as _error:
    raise extra_missing(_error, "drumbeat.web", extra="web", brings="starlette") from None

from drumbeat.web.ask import answer_question, show_page
from drumbeat.web.automations import run_automation
from drumbeat.web.doors import Door
from drumbeat.web.follow_ups import schedule_follow_up
from drumbeat.web.health import health
from drumbeat.web.webhooks import take_webhook

__all__ = ["routes"]

_MAX_BODY = 26_214_400
"""25 MiB, as much as GitHub sends at most."""
_BODY_TIMEOUT = timedelta(seconds=30)


def routes(
    engine: Client, *, max_body: int = _MAX_BODY, body_timeout: timedelta = _BODY_TIMEOUT
) -> list[BaseRoute]:
    """The routes of an engine's doors (spec, section 13.1).

    `/webhooks/{name}`, `POST /automations/{slug}/run`, `POST /followups`, `/ask` and `GET /health`,
    each also with a slash at its end.
    They may be made before the engine is entered: outside its `async with` they answer 503.

    Args:
        engine: an engine, or a client beside one of another process.
        max_body: how many bytes the body of a webhook may have; it is held in memory.
        body_timeout: how long the body of any request may take to come.

    Raises:
        TypeError: `body_timeout` is no timedelta.
    """
    check_span("body_timeout", body_timeout)
    look, show = health(engine), show_page(engine)
    webhook = take_webhook(engine, max_body=max_body, body_timeout=body_timeout)
    run = run_automation(engine, body_timeout=body_timeout)
    ask = answer_question(engine, body_timeout=body_timeout)
    follow_up = schedule_follow_up(engine, body_timeout=body_timeout)
    doors = {
        "/webhooks/{name}": Door({"*": webhook}),
        "/automations/{slug}/run": Door({"POST": run}),
        "/ask": Door({"GET": show, "HEAD": show, "POST": ask}),
        "/followups": Door({"POST": follow_up}),
        "/health": Door({"GET": look, "HEAD": look}),
    }
    # A router would send an address that ends in a slash elsewhere, and senders do not follow.
    return [Route(path + end, door) for path, door in doors.items() for end in ("", "/")]
