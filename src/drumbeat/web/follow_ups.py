"""`POST /followups`: what runs in a turn asks for a later run of its own automation."""

from datetime import timedelta

import attrs
from starlette.requests import Request
from starlette.responses import Response

from drumbeat.client import Client
from drumbeat.errors import FollowUpRefused, NotFound, Problem
from drumbeat.runtime.threads import Threads
from drumbeat.web.doors import Handler, answer, duration, json_object, read_apart, shown, small_body

__all__ = ["schedule_follow_up"]

_MOST = 1024 * 1024
"""Bytes: the longest prompt, with each of its characters written as an escape."""
_KEYS = ("prompt", "after_seconds", "slug")
_STATUS = {
    "follow-up-prompt-invalid": 400,
    "follow-up-delay": 400,
    "run-token-unknown": 401,
    "follow-up-run-ended": 401,
    "follow-up-other-automation": 403,
    "follow-up-too-deep": 409,
    "follow-ups-pending": 429,
}
_CHALLENGE = 'Bearer realm="drumbeat"'


def schedule_follow_up(client: Client, *, body_timeout: timedelta) -> Handler:
    """The handler: 202 with the fire, once that is committed.

    It takes the token of a run and no other secret, since a turn has no other. The body is a JSON
    object: `prompt`, `after_seconds`, and where the caller wants to be sure `slug`.

    Args:
        client: whose door it is.
        body_timeout: how long a body may take to come.
    """
    threads = Threads()

    async def handle(request: Request) -> Response:
        token = _token(request)
        try:
            await client.check_run_token(token)
        except NotFound as error:
            if token:
                return _refused(error.problem)
            needed = "the run's token is needed: `Authorization: Bearer $DRUMBEAT_RUN_TOKEN`"
            return _refused(attrs.evolve(error.problem, message=needed))
        body = await small_body(request, most=_MOST, within=body_timeout)
        if isinstance(body, Response):
            return body
        asked = await read_apart(body, _read, threads=threads)
        if isinstance(asked, str):
            return answer(400, code="body-invalid", reason=asked)
        try:
            fire = await client.follow_up(token, asked.prompt, after=asked.after, slug=asked.slug)
        except (FollowUpRefused, NotFound) as error:
            return _refused(error.problem)
        return shown({"fire": fire.id, "slug": fire.slug, "due": fire.due.isoformat()}, status=202)

    return handle


def _refused(problem: Problem) -> Response:
    status = _STATUS[problem.code]
    challenge = {"WWW-Authenticate": _CHALLENGE} if status == 401 else None
    return answer(status, code=problem.code, reason=problem.message, headers=challenge)


def _token(request: Request) -> str:
    """The one token that a request brings; "" for none."""
    given = request.headers.getlist("Authorization")
    if len(given) != 1:
        return ""
    scheme, _, token = given[0].strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


@attrs.frozen
class _Asked:
    prompt: str
    after: timedelta
    slug: str | None


def _read(body: bytes) -> _Asked | str:
    """What the body asks for, or what is wrong with it."""
    value = json_object(body, keys=_KEYS, example={"prompt": "Look again.", "after_seconds": 600})
    if isinstance(value, str):
        return value
    prompt, seconds, slug = (value.get(key) for key in _KEYS)
    if not isinstance(prompt, str):
        return "`prompt` has to be there, and to be text"
    if seconds is None:
        return "`after_seconds` has to be there, and to be a number"
    after = duration(seconds, key="after_seconds")
    if isinstance(after, str):
        return after
    if slug is not None and not isinstance(slug, str):
        return "`slug` has to be text, or to be left out"
    return _Asked(prompt, after, slug)
