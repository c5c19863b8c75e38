"""`GET /health`: whether this process does its work."""

from starlette.requests import Request
from starlette.responses import Response

from drumbeat.client import Client
from drumbeat.errors import DrumbeatError
from drumbeat.web.doors import Handler, shown

__all__ = ["health"]


def health(client: Client) -> Handler:
    """The handler: 200 while work is done here, else 503.

    It needs no secret, so it says no more than a state and the codes of what is wrong.
    """

    async def handle(_: Request) -> Response:
        try:
            found = await client.health()
        except DrumbeatError as error:
            fault = error.problem.code
            return shown({"ok": False, "state": "stopped", "faults": [fault]}, status=503)
        return shown(
            {"ok": found.ok, "state": found.state, "faults": list(found.faults)},
            status=200 if found.ok else 503,
        )

    return handle
