"""`/ask`: a person's question to the agent, from a page or as JSON."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from urllib.parse import parse_qs

import anyio
import attrs
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from drumbeat.client import Client
from drumbeat.core.model import Reply
from drumbeat.engine import Engine
from drumbeat.errors import AgentError, DrumbeatError, EngineBusy, NotFound, Problem
from drumbeat.runtime.threads import Threads
from drumbeat.web.ask_page import page
from drumbeat.web.doors import (
    Handler,
    admitted,
    answer,
    json_object,
    read_apart,
    retry_after,
    shown,
    small_body,
    unavailable,
)

__all__ = ["answer_question", "show_page"]

_MOST = 256 * 1024
_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"
_TIMEOUTS = {"ask-timeout", "turn-timeout", "agent-command-timeout"}


def show_page(client: Client) -> Handler:
    """The handler of GET: the empty form, for who brings the secret; 503 where nobody answers."""

    async def handle(request: Request) -> Response:
        refusal = admitted(client, request, "/ask")
        if refusal is not None:
            return refusal
        try:
            engine = _engine(client)
            found = await engine.health()
        except DrumbeatError as error:
            return _told(page, _Trouble.of(error), "", "")
        if found.state == "running":
            return page()
        trouble = _Trouble(503, f"engine-{found.state}", f"the engine is {found.state}")
        return _told(page, trouble, "", "")

    return handle


def answer_question(client: Client, *, body_timeout: timedelta) -> Handler:
    """The handler of POST: 200 and the answer, in the form in which it was asked.

    502 when the agent failed, 504 when its time was up, 503 where no questions are taken at
    present. A client that hangs up ends the turn.

    Args:
        client: whose door it is.
        body_timeout: how long a body may take to come.
    """
    threads = Threads()

    async def handle(request: Request) -> Response:
        refusal = admitted(client, request, "/ask")
        if refusal is not None:
            return refusal
        body = await small_body(request, most=_MOST, within=body_timeout)
        if isinstance(body, Response):
            return body
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind not in (_FORM, _JSON):
            reason = f'send {_JSON}, such as {{"question": "What ran?"}}, or a form'
            return answer(415, code="body-invalid", reason=reason)
        read = _read_form if kind == _FORM else _read_json
        asked = await read_apart(body, read, threads=threads)
        if isinstance(asked, str):
            return answer(400, code="body-invalid", reason=asked)
        form = page if kind == _FORM else None
        try:
            engine = _engine(client)
            reply = await _unless_gone(request, lambda: engine.ask(asked.question, asked.profile))
        except DrumbeatError as error:
            return _told(form, _Trouble.of(error), asked.question, asked.profile or "")
        if form is not None:
            return form(question=asked.question, profile=asked.profile or "", answer=reply.text)
        # JSON as it is sent is UTF-8, in which no half of a surrogate pair can stand.
        return shown({"text": reply.text.encode("utf-8", "backslashreplace").decode()})

    return handle


def _engine(client: Client) -> Engine:
    if isinstance(client, Engine):
        return client
    raise EngineBusy(
        Problem(
            code="ask-elsewhere",
            message="a client has no agent that could answer",
            remedy="ask the process whose engine holds the data folder",
        )
    )


async def _unless_gone(request: Request, ask: Callable[[], Awaitable[Reply]]) -> Reply:
    """Await `ask()`, and cancel it when the client hangs up.

    Raises:
        ClientDisconnect: it did.
        DrumbeatError: what `ask` raised.
    """
    reply: Reply | None = None
    failed: DrumbeatError | None = None

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        try:
            reply = await ask()
        except DrumbeatError as error:
            failed = error  # raised outside: the group would wrap it
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed
    if reply is None:
        raise ClientDisconnect
    return reply


# ---- what is answered when there is no answer


@attrs.frozen
class _Trouble:
    status: int
    code: str
    reason: str

    @classmethod
    def of(cls, error: DrumbeatError) -> "_Trouble":
        """What is told of an error: its kind. What an agent said of itself stands in the log."""
        code = error.problem.code
        if isinstance(error, AgentError):
            if code in _TIMEOUTS:
                return cls(504, code, "the agent took longer than it may")
            return cls(502, code, "the agent failed; the log of the engine says why")
        if isinstance(error, NotFound):
            return cls(400, code, "there is no such profile")
        later = "no questions are answered here at present; ask again later"
        return cls(503, code, unavailable(code, later))


def _told(
    form: Callable[..., Response] | None, trouble: _Trouble, question: str, profile: str
) -> Response:
    if form is None:
        return answer(trouble.status, code=trouble.code, reason=trouble.reason)
    said = f"{trouble.reason[0].upper()}{trouble.reason[1:]} ({trouble.code})."
    response = form(question=question, profile=profile, trouble=said, status=trouble.status)
    response.headers.update(retry_after(trouble.status, code=trouble.code))
    return response


# ---- what was asked


@attrs.frozen
class _Asked:
    question: str
    profile: str | None


def _read_json(body: bytes) -> _Asked | str:
    """What the body asks, or what is wrong with it."""
    value = json_object(body, keys=("question", "profile"), example={"question": "What ran?"})
    if isinstance(value, str):
        return value
    question, profile = value.get("question"), value.get("profile")
    if not isinstance(question, str):
        return "`question` has to be there, and to be text"
    if profile is not None and not isinstance(profile, str):
        return "`profile` has to be text, or to be left out"
    return _sound(question, profile or None)


def _read_form(body: bytes) -> _Asked | str:
    """The same for a form."""
    try:
        fields = parse_qs(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=10, errors="strict"
        )
    except ValueError:
        return "the body is no form in UTF-8"
    questions, profiles = fields.get("question", []), fields.get("profile", [""])
    if len(questions) != 1 or len(profiles) != 1:
        return "`question` has to be there, and nothing twice"
    # A browser ends each line of a form as mail does.
    return _sound(questions[0].replace("\r\n", "\n"), profiles[0].strip() or None)


def _sound(question: str, profile: str | None) -> _Asked | str:
    if not question.strip():
        return "`question` is blank"
    try:
        (question + (profile or "")).encode("utf-8")
    except UnicodeEncodeError:
        return "the body has half of a surrogate pair, which is no character"
    if "\0" in question or "\0" in (profile or ""):
        return "the body has a null character"
    return _Asked(question, profile)
