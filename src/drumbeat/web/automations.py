"""`POST /automations/{slug}/run`: start one by hand, durably."""

from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from drumbeat.client import Client
from drumbeat.core.webhooks import bounded_slot
from drumbeat.web.doors import Handler, admitted, answer, duration, json_object, shown, small_body

__all__ = ["run_automation"]

_MOST = 65_536
_LATEST = timedelta(days=30)
"""As for follow-ups: what is asked for later than that is a slip, or is never looked at again."""


def run_automation(client: Client, *, body_timeout: timedelta) -> Handler:
    """The handler: 202 with the id of the fire, once that is committed.

    The body may be a JSON object with `after`, in seconds, 30 days at most. An `Idempotency-Key` is
    the fire's slot: asked again under the same one, it is the same fire.

    Args:
        client: whose door it is.
        body_timeout: how long a body may take to come.
    """

    async def handle(request: Request) -> Response:
        refusal = admitted(client, request, "/automations/{slug}/run")
        if refusal is not None:
            return refusal
        body = await small_body(request, most=_MOST, within=body_timeout)
        if isinstance(body, Response):
            return body
        after = _read(body)
        if isinstance(after, str):
            return answer(400, code="body-invalid", reason=after)
        key = request.headers.get("Idempotency-Key", "").strip()
        fire = await client.fire(
            request.path_params["slug"],
            after=after,
            slot=bounded_slot(key) if key else None,
        )
        return shown({"fire": fire.id}, status=202)

    return handle


def _read(body: bytes) -> timedelta | str:
    """How long from now the body asks for, or what is wrong with it."""
    if not body.strip():
        return timedelta(0)
    value = json_object(body, keys=("after",), example={"after": 60})
    if isinstance(value, str):
        return f"{value}, or no body"
    after = duration(value.get("after", 0), key="after")
    if isinstance(after, str):
        return after
    if not timedelta(0) <= after <= _LATEST:
        return f"`after` has to be from 0 to {_LATEST.total_seconds():.0f} seconds"
    return after
