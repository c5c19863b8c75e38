"""`/webhooks/{name}`: events of other systems."""

from starlette.requests import Request
from starlette.responses import Response

from drumbeat.client import Client
from drumbeat.web.doors import Handler, read_body, unread

__all__ = ["take_webhook"]


def take_webhook(client: Client, *, max_body: int) -> Handler:
    """The handler, for every method: which of them a route takes stands in its file.

    Args:
        client: whoever takes the event.
        max_body: how many bytes a body may have; no more are read.
    """

    async def handle(request: Request) -> Response:
        body = await read_body(request, most=max_body)
        told = await client.webhook(
            request.path_params["name"],
            method=request.method,
            headers=request.headers,
            body=body,
        )
        return Response(
            told.body,
            status_code=told.status,
            headers={**told.headers, **(unread(request) if body is None else {})},
        )

    return handle
