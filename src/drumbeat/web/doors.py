"""What every door shares: a bounded body, who asks, and small answers in JSON.

Theory of operation. Whoever can open a connection can begin a request and never end it. So all that
the head of a request decides is decided before its body is read, and what is read is bounded in
size and time. A server waits for the rest of a body that was not read, and at its end for every
request that was not answered: such a connection is let go of with the answer.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import anyio
import attrs
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from drumbeat.client import Client
from drumbeat.core.json_parts import has_more_parts
from drumbeat.errors import DrumbeatError, NotFound
from drumbeat.runtime.threads import Threads

__all__ = [
    "Door",
    "Handler",
    "admitted",
    "answer",
    "duration",
    "failure",
    "json_object",
    "read_apart",
    "read_body",
    "retry_after",
    "shown",
    "small_body",
    "unavailable",
]

T = TypeVar("T")

Handler = Callable[[Request], Awaitable[Response]]

_AGAIN = "30"
"""Seconds after which it is worth asking again while something here is in the way."""
_ELSEWHERE = {
    "ask-elsewhere": "this process has no agent; ask the one whose engine holds the data folder",
    "run-token-elsewhere": "this process takes no turns; `base_url` has to lead to the one whose "
    "engine holds the data folder",
}
"""What a process never does, however often it is asked, and who does it."""
_LENGTH = re.compile("[0-9]{1,30}")
_MOST_PARTS = 100
"""So many lists and objects the body of a request may have: no door asks for more than one."""
_QUICK = 65_536
"""Bytes: a longer body is read in a thread, so that nobody else waits for it."""
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
        incoming = _Incoming(receive)
        request = Request(scope, incoming.receive)
        try:
            response = await handler(request)
        except ClientDisconnect:
            return  # there is nobody left who could be told
        except DrumbeatError as error:
            response = failure(error)
        # HTTP/2 has no such header, and ends the one stream.
        if scope["http_version"] in ("1.0", "1.1") and incoming.has_more(request.headers):
            response.headers["Connection"] = "close"
        await response(scope, receive, send)

    async def _no_method(self, request: Request) -> Response:
        served = ", ".join(sorted(self.handlers))
        return answer(
            405,
            code="method-not-served",
            reason=f"this address takes {served} alone",
            headers={"Allow": served},
        )


@attrs.define
class _Incoming:
    """What comes of a request, and whether all of it has."""

    _receive: Receive
    _ended: bool = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._ended = True
        return message

    def has_more(self, headers: Mapping[str, str]) -> bool:
        """Whether the body was not read to its end, as far as the headers say that it has one."""
        length = headers.get("Content-Length", "0").strip()
        return not self._ended and ("Transfer-Encoding" in headers or length != "0")


def answer(
    status: int, *, code: str, reason: str, headers: Mapping[str, str] | None = None
) -> Response:
    """A refusal as a small JSON object, which says when to come again if that is of any use."""
    return JSONResponse(
        {"code": code, "reason": reason},
        status_code=status,
        headers={**retry_after(status, code=code), **(headers or {})},
    )


def retry_after(status: int, *, code: str) -> dict[str, str]:
    """The header that says when to come again; none for what is not done here at any time."""
    return {"Retry-After": _AGAIN} if status == 503 and code not in _ELSEWHERE else {}


def unavailable(code: str, otherwise: str) -> str:
    """What is told of a 503: who does what this process never does, or `otherwise`."""
    return _ELSEWHERE.get(code, otherwise)


def failure(error: DrumbeatError) -> Response:
    """The answer for what could not be done: 404 for what is not there, else 503.

    It says what kind of trouble it is and leaves where it is to the log: messages name paths.
    """
    code = error.problem.code
    if isinstance(error, NotFound):
        return answer(404, code=code, reason="there is nothing of that name")
    reason = unavailable(code, "it cannot be done at present; ask again later")
    return answer(503, code=code, reason=reason)


def admitted(client: Client, request: Request, door: str) -> Response | None:
    """None for a caller that brings `AGENT_API_SECRET`, else the answer that it gets.

    A request that a browser made for another site's page is refused, although it may bring that.

    Args:
        client: who knows the secret.
        request: as it came.
        door: the address, for the count of who is turned away.
    """
    refused = client.admit(request.headers, method=request.method, door=door)
    if refused is None:
        return None
    challenge = {"WWW-Authenticate": _CHALLENGE} if refused.status == 401 else None
    return answer(refused.status, code=refused.code, reason=refused.reason, headers=challenge)


async def small_body(request: Request, *, most: int, within: timedelta) -> bytes | Response:
    """The raw body, or the answer for one that is too long (413) or comes too slowly (408).

    Raises:
        ClientDisconnect: the client hung up before the end of it.
    """
    try:
        body = await read_body(request, most=most, within=within)
    except TimeoutError:
        reason = f"the body did not come within {within.total_seconds():g} s"
        return answer(408, code="body-too-slow", reason=reason)
    if body is None:
        return answer(413, code="body-too-large", reason=f"more than {most} bytes")
    return body


async def read_body(request: Request, *, most: int, within: timedelta) -> bytes | None:
    """The raw body, or None as soon as it has more than `most` bytes.

    They are counted as they come, whatever the request said of their number; one that says itself
    that there are too many is not read at all.

    Raises:
        ClientDisconnect: the client hung up before the end of it.
        TimeoutError: the end of it did not come within that time.
    """
    with anyio.fail_after(within.total_seconds()):
        return await _read(request, most)


async def _read(request: Request, most: int) -> bytes | None:
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


async def read_apart(body: bytes, read: Callable[[bytes], T], *, threads: Threads) -> T:
    """What `read` makes of a body, in a thread for one that takes longer than a moment."""
    return read(body) if len(body) <= _QUICK else await threads.run(read, body)


def json_object(
    body: bytes, *, keys: Sequence[str], example: Mapping[str, Any]
) -> dict[str, Any] | str:
    """The JSON object of a body, or what is wrong with it: it has none but `keys`, maybe not all.

    Args:
        body: as it was read.
        keys: those that the door knows.
        example: an object that it takes, for who sent something else.
    """
    send = f"send an object such as {json.dumps(example)}"
    if has_more_parts(body, _MOST_PARTS):
        return f"the body has more than {_MOST_PARTS} lists and objects: {send}"
    try:
        value: Any = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return f"the body is no JSON: {send}"
    if not isinstance(value, dict):
        return f"the body is no JSON object: {send}"
    # What they are called is not said again: whoever sent them chose it.
    if value.keys() - set(keys):
        known = " and ".join(f"`{key}`" for key in keys)
        return f"the body has keys other than {known}: {send}"
    return value


def duration(seconds: object, *, key: str) -> timedelta | str:
    """A number of seconds from a body, or what is wrong with it.

    One that no `timedelta` holds is as long as one gets: it is over every limit.

    Args:
        seconds: what stands there.
        key: where, for what is said.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return f"`{key}` has to be a number of seconds"
    try:
        return timedelta(seconds=seconds)
    except ValueError:
        return f"`{key}` is no number"
    except OverflowError:
        return timedelta.max if seconds > 0 else timedelta.min


def shown(value: Mapping[str, Any], *, status: int = 200) -> Response:
    """A small JSON object that nobody keeps."""
    return JSONResponse(value, status_code=status, headers={"Cache-Control": "no-store"})
