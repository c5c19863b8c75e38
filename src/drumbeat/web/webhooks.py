"""`/webhooks/{name}`: events of other systems."""

from datetime import timedelta
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from drumbeat.client import Client
from drumbeat.web.doors import Handler, answer, read_body

__all__ = ["take_webhook"]


def take_webhook(client: Client, *, max_body: int, body_timeout: timedelta) -> Handler:
    """The handler, for every method: which of them a route takes stands in its file.

    Args:
        client: whoever takes the event.
        max_body: how many bytes a body may have; no more are read.
        body_timeout: how long it may take to come.
    """

    async def handle(request: Request) -> Response:
        told = await client.webhook(
            request.path_params["name"],
            method=request.method,
            headers=request.headers,
            body=partial(read_body, request, most=max_body, within=body_timeout),
        )
        if told.status == 413:
            # How much is too much is said by this door, and known to it alone.
            reason = (
                f"the body has more than {max_body} bytes, which is the `max_body` of this door"
            )
            return answer(413, code="webhook-too-large", reason=reason)
        return Response(told.body, status_code=told.status, headers=dict(told.headers))

    return handle
