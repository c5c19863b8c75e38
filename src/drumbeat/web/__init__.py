"""An engine's doors as Starlette routes, to mount in any ASGI host (extra `drumbeat[web]`).

The bodies of requests are never trusted in size, and no answer holds a secret.
"""

from starlette.routing import BaseRoute, Route

from drumbeat.client import Client
from drumbeat.web.automations import run_automation
from drumbeat.web.doors import Door
from drumbeat.web.follow_ups import schedule_follow_up
from drumbeat.web.health import health

__all__ = ["routes"]

MAX_BODY = 26_214_400
"""25 MiB, as much as GitHub sends."""


def routes(engine: Client, *, max_body: int = MAX_BODY) -> list[BaseRoute]:
    """The routes of an engine's doors (spec, section 13.1).

    `POST /automations/{slug}/run`, `POST /followups` and `GET /health`; what each answers is on the
    page on webhooks. They may be made before the engine is entered: outside its `async with` they
    answer 503.

    Args:
        engine: an engine, or a client beside one of another process.
        max_body: how many bytes the body of a webhook may have; it is held in memory.
    """
    look = health(engine)
    # for the doors that take more
    _ = max_body
    return [
        Route("/automations/{slug}/run", Door({"POST": run_automation(engine)})),
        Route("/followups", Door({"POST": schedule_follow_up(engine)})),
        Route("/health", Door({"GET": look, "HEAD": look})),
    ]
