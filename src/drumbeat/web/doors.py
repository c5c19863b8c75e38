"""What every door shares: a bounded body, who asks, and small answers in JSON."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from drumbeat.client import Client
from drumbeat.errors import DrumbeatError, NotFound

__all__ = ["Door", "Handler", "admitted", "answer", "failure", "read_body", "shown", "unread"]

Handler = Callable[[Request], Awaitable[Response]]

_AGAIN = "30"
"""Seconds after which it is worth asking again while something here is in the way."""
_LENGTH = re.compile("[0-9]{1,30}")
_CHALLENGE = 'Basic realm="drumbeat", charset="UTF-8"'


@attrs.frozen
class Door:
    """An ASGI application: one handler for each method that is served, 405 for all others.

    With the key `*` the handler gets every method. A client that hangs up in the middle gets no
    answer, and nothing is done for it.
    """

    handlers: Mapping[str, Handler]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        handler = self.handlers.get(scope["method"]) or self.handlers.get("*") or self._no_method
        try:
            response = await handler(Request(scope, receive))
        except ClientDisconnect:
            return  # there is nobody left who could be told
        except DrumbeatError as error:
            response = failure(error)
        await response(scope, receive, send)

    async def _no_method(self, request: Request) -> Response:
        served = ", ".join(sorted(self.handlers))
        return answer(
            405,
            code="method-not-served",
            reason=f"this address takes {served} alone",
            headers={"Allow": served},
        )


def answer(
    status: int, *, code: str, reason: str, headers: Mapping[str, str] | None = None
) -> Response:
    """A refusal as a small JSON object; one with status 503 says when to come again."""
    extra = {"Retry-After": _AGAIN} if status == 503 else {}
    return JSONResponse(
        {"code": code, "reason": reason}, status_code=status, headers={**extra, **(headers or {})}
    )


def failure(error: DrumbeatError) -> Response:
    """The answer for what could not be done: 404 for what is not there, else 503.

    It says what kind of trouble it is and leaves where it is to the log: messages name paths.
    """
    code = error.problem.code
    if isinstance(error, NotFound):
        return answer(404, code=code, reason="there is nothing of that name")
    return answer(503, code=code, reason="it cannot be done at present; ask again later")


def admitted(client: Client, request: Request) -> Response | None:
    """None for a caller that brings `AGENT_API_SECRET`, else the answer that it gets.

    A request that a browser made for another site's page is refused, although it may bring that.
    """
    refused = client.admit(request.headers, method=request.method)
    if refused is None:
        return None
    challenge = {"WWW-Authenticate": _CHALLENGE} if refused.status == 401 else None
    return answer(refused.status, code=refused.code, reason=refused.reason, headers=challenge)


async def read_body(request: Request, *, most: int) -> bytes | None:
    """The raw body, or None as soon as it has more than `most` bytes.

    They are counted as they come, whatever the request said of their number; one that says itself
    that there are too many is not read at all.

    Raises:
        ClientDisconnect: the client hung up before the end of it.
    """
    declared = request.headers.get("Content-Length", "")
    # Only as many digits as can be looked at: a number of any length is not one to work out.
    if _LENGTH.fullmatch(declared) and int(declared) > most:
        return None
    # Not through `Request.stream`: trio minds a generator that is left half-way.
    parts: list[bytes] = []
    length = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        part = message.get("body", b"")
        length += len(part)
        if length > most:
            return None
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def unread(request: Request) -> dict[str, str]:
    """The header of an answer to a request that was not read to its end: let go of the connection.

    Servers would wait for the rest of it. HTTP/2 has no such header, and ends the one stream.
    """
    return {"Connection": "close"} if request.scope["http_version"] in ("1.0", "1.1") else {}


def shown(value: Mapping[str, Any], *, status: int = 200) -> Response:
    """A small JSON object that nobody keeps."""
    return JSONResponse(value, status_code=status, headers={"Cache-Control": "no-store"})
