"""An engine's doors as Starlette routes, to mount in any ASGI host (extra `drumbeat[web]`).

The bodies of requests are never trusted in size, and no answer holds a secret.
"""

from starlette.routing import BaseRoute, Route

from drumbeat.client import Client
from drumbeat.web.ask import answer_question, show_page
from drumbeat.web.automations import run_automation
from drumbeat.web.doors import Door
from drumbeat.web.follow_ups import schedule_follow_up
from drumbeat.web.health import health
from drumbeat.web.webhooks import take_webhook

__all__ = ["routes"]

_MAX_BODY = 26_214_400
"""25 MiB, as much as GitHub sends at most."""


def routes(engine: Client, *, max_body: int = _MAX_BODY) -> list[BaseRoute]:
    """The routes of an engine's doors (spec, section 13.1).

    `/webhooks/{name}`, `POST /automations/{slug}/run`, `POST /followups`, `/ask` and `GET /health`.
    They may be made before the engine is entered: outside its `async with` they answer 503.

    Args:
        engine: an engine, or a client beside one of another process.
        max_body: how many bytes the body of a webhook may have; it is held in memory.
    """
    look, ask = health(engine), show_page(engine)
    return [
        Route("/webhooks/{name}", Door({"*": take_webhook(engine, max_body=max_body)})),
        Route("/automations/{slug}/run", Door({"POST": run_automation(engine)})),
        Route("/ask", Door({"GET": ask, "HEAD": ask, "POST": answer_question(engine)})),
        Route("/followups", Door({"POST": schedule_follow_up(engine)})),
        Route("/health", Door({"GET": look, "HEAD": look})),
    ]
