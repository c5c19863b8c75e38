"""An agent that is a command: a turn on its standard input, a reply on its standard output."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import attrs

from drumbeat.core.ceilings import is_context_ceiling
from drumbeat.core.model import Reply, Turn, Usage
from drumbeat.errors import (
    AgentError,
    AgentUnavailable,
    ContextCeiling,
    ConversationNotFound,
    FollowUpRefused,
)
from drumbeat.protocols import Agent
from drumbeat.runtime.processes import MIB, Ended, run_process

T = TypeVar("T")

VERSION = 1
"""Of the turn as it is written to a command's standard input."""
MAX_REPLY = 8 * MIB
"""Bytes of standard output that a command may write."""

_SLACK = timedelta(seconds=5)
_MOST_SECONDS = 1_000_000_000
_CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class CommandAgent(Agent):
    """Runs one command per turn.

    The command is started in `turn.cwd` with `turn.env` as its whole environment. It reads one JSON
    object from its standard input, to the end: `version` (1) and the facts of the turn under the
    names of `Turn`, with `text` (context and prompt joined), `timeout` in seconds, paths as text
    and `automation` as `{"name", "kind", "path"}`. Nothing of a turn is put into its arguments.

    It writes one JSON object to its standard output and exits with 0:

    - `{"text": "…"}`, and where it has them `usage` (`input_tokens`, `output_tokens`,
      `cached_tokens`, `cost_usd`), `provider`, `model`, `handle`, and `follow_ups`, a list of
      `{"prompt": "…", "after": seconds}` which are scheduled before the reply is returned (one that
      is over a limit is left out, and the reply counts all the same); or
    - `{"error": {"code": "…", "message": "…"}}`, and where it has it `usage`. The codes
      `agent-unavailable` (with `retry_after` in seconds, if it likes), `context-ceiling` and
      `conversation-missing` mean what `AgentUnavailable`, `ContextCeiling` and
      `ConversationNotFound` mean; any other is the code of an `AgentError`. It counts with any
      exit code.

    Its process group is ended on timeout, on cancellation and once it has exited.

    Args:
        argv: the command and its arguments. The first is an absolute path, or a name that is looked
            up on the PATH of `turn.env`.
        timeout: the most a turn may take, in real time, besides what the engine allows.

    Raises:
        ValueError: `argv` is empty, is one text, holds anything but text, or begins with a relative
            path; or `timeout` is no timedelta above zero.
    """

    def __init__(self, argv: Sequence[str], *, timeout: timedelta | None = None) -> None:
        if not _is_command(argv):
            msg = f"argv must be a list such as ['my-agent', '--json'], not {argv!r}"
            raise ValueError(msg)
        if "/" in argv[0] and not Path(argv[0]).is_absolute():
            msg = f"{argv[0]!r} would mean another file in each working folder; make it absolute"
            raise ValueError(msg)
        if not _is_limit(timeout):
            msg = f"timeout must be a timedelta above zero, or None, not {timeout!r}"
            raise ValueError(msg)
        self._argv = tuple(argv)
        self._timeout = timeout

    async def take_turn(self, turn: Turn, /) -> Reply:
        """Run the command once and return what it replied.

        A follow-up that is over a limit does not fail the turn: the work is done and its text would
        be lost, while an earlier follow-up of the same reply stays. The engine records the refusal
        and its reason as the event `follow_up_refused`. An agent that has to know at once asks for
        one follow-up in a run and lets the next run look.

        Raises:
            AgentUnavailable: the command said so.
            ContextCeiling: the command said so, or failed with a provider's words for it on
                standard error.
            ConversationNotFound: the command said so.
            AgentError: the command's own code; `agent-command-not-startable`;
                `agent-command-timeout`; `agent-command-failed`, with the last 2,000 characters of
                standard error; `agent-reply-invalid`, saying what is wrong with the reply;
                `agent-turn-invalid`, when the turn's configuration cannot be written as JSON.
            StoreError: a follow-up could not be committed.
        """
        # The engine's own limit comes first: it knows what the turn's time is measured on.
        limit = turn.timeout + _SLACK
        if self._timeout is not None:
            limit = min(limit, self._timeout)
        ended = await run_process(
            self._argv,
            cwd=turn.cwd,
            env=turn.env,
            timeout=limit,
            stdout_limit=MAX_REPLY,
            stdin=_turn_json(turn),
        )
        answer = self._answer(ended, limit)
        for prompt, after in answer.follow_ups:
            try:
                await turn.follow_ups.schedule(prompt, after=after)
            except FollowUpRefused:
                continue  # whoever refused has recorded why; the next may be within the limits
        return answer.reply

    def _answer(self, ended: Ended, limit: timedelta) -> "_Answer":
        name = self._argv[0]
        if ended.how == "not-startable":
            raise AgentError(
                f"{name} could not be started: {ended.detail}", code="agent-command-not-startable"
            )
        if ended.how == "timed-out":
            raise AgentError(
                f"{name} took longer than {limit.total_seconds():g} s and was ended",
                code="agent-command-timeout",
            )
        if ended.how == "too-large":
            what = f"{name} wrote more than {MAX_REPLY // MIB} MiB to standard output"
            raise _unusable(what)
        try:
            answer = _parse(ended.stdout)
        except _Unusable as unusable:
            if ended.exit_code == 0:
                raise _unusable(str(unusable)) from unusable
        else:
            if ended.exit_code == 0:
                return answer
        said = ended.stderr.strip()
        if is_context_ceiling(said):
            raise ContextCeiling(said)
        raise AgentError(
            f"{name} {ended.exit}" + (f"; standard error ended with: {said}" if said else ""),
            code="agent-command-failed",
        )


def _is_command(argv: object) -> bool:
    return (
        isinstance(argv, Sequence)
        and not isinstance(argv, str)
        and all(isinstance(part, str) and "\0" not in part for part in argv)
        and bool(argv and argv[0])
    )


def _is_limit(timeout: object) -> bool:
    return timeout is None or (isinstance(timeout, timedelta) and timeout > timedelta(0))


def _turn_json(turn: Turn) -> bytes:
    automation = turn.automation
    facts = {
        "version": VERSION,
        "turn_id": turn.turn_id,
        "attempt": turn.attempt,
        "slug": turn.slug,
        "session_id": turn.session_id,
        "is_new": turn.is_new,
        "handle": turn.handle,
        "automation": automation
        and {
            "name": automation.name,
            "kind": automation.kind,
            "path": automation.path and str(automation.path),
        },
        "run_id": turn.run_id,
        "origin": turn.origin,
        "step_id": turn.step_id,
        "label": turn.label,
        "prompt": turn.prompt,
        "context": turn.context,
        "text": turn.text,
        "requirements": [
            {
                "name": requirement.name,
                "kind": requirement.kind,
                "path": str(requirement.path),
                "text": requirement.text,
            }
            for requirement in turn.requirements
        ],
        "system_prompt": turn.system_prompt,
        "skills": [str(skill) for skill in turn.skills],
        "config": turn.config,
        "memory_dir": str(turn.memory_dir),
        "cwd": str(turn.cwd),
        "timeout": turn.timeout.total_seconds(),
    }
    try:
        return json.dumps(facts, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise AgentError(
            f"the turn cannot be written as JSON: {error}", code="agent-turn-invalid"
        ) from error


# ---- the reply


@attrs.frozen
class _Answer:
    reply: Reply
    follow_ups: tuple[tuple[str, timedelta], ...]


class _Unusable(Exception):  # noqa: N818  a signal inside this module
    """What was written is no reply; a command cannot say this of itself, as it can any code."""


def _unusable(what: str) -> AgentError:
    return AgentError(f"the reply cannot be used: {what}", code="agent-reply-invalid")


def _invalid(what: str) -> NoReturn:
    raise _Unusable(what)


def _parse(data: bytes) -> _Answer:
    """Read a reply.

    Raises:
        AgentError: the error that it stands for.
        _Unusable: it is none.
    """
    try:
        answer: object = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_float=Decimal,
            parse_constant=_constant,
        )
    except (ValueError, RecursionError) as error:
        _invalid(f"it is not one JSON object in UTF-8: {error}")
    except ArithmeticError:
        _invalid("it has a number that is beyond all bounds")
    if not isinstance(answer, dict):
        _invalid(f"it is {_kind(answer)}, not one JSON object")
    if "error" in answer:
        _keys(answer, "the reply", {"error", "usage"})
        raise _error(answer["error"], _usage(answer.get("usage")))
    _keys(
        answer,
        "the reply",
        {"text", "usage", "provider", "model", "handle", "follow_ups"},
        {"text"},
    )
    reply = Reply(
        text=_text(answer["text"], "text"),
        usage=_usage(answer.get("usage")),
        provider=_optional(answer, "provider", _text),
        model=_optional(answer, "model", _text),
        handle=_optional(answer, "handle", _text),
    )
    return _Answer(reply, tuple(_follow_ups(answer.get("follow_ups"))))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        msg = f"a key stands twice: {next(name for name in names if names.count(name) > 1)!r}"
        raise ValueError(msg)
    return found


def _constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "text"
        case int() | Decimal():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def _keys(
    value: Mapping[str, Any], where: str, allowed: Collection[str], needed: Collection[str] = ()
) -> None:
    unknown = sorted(value.keys() - set(allowed))
    if unknown:
        _invalid(f"{where} has unknown keys: {', '.join(map(repr, unknown))}")
    lacking = sorted(set(needed) - value.keys())
    if lacking:
        _invalid(f"{where} lacks {', '.join(map(repr, lacking))}")


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _invalid(f"{where} is {_kind(value)}, not an object")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        _invalid(f"{where} is {_kind(value)}, not text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        _invalid(f"{where} has half of a surrogate pair, which is no character")
    return value


def _number(value: object, where: str) -> int | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        _invalid(f"{where} is {_kind(value)}, not a number")
    if value < 0:
        _invalid(f"{where} is less than zero")
    return value


def _count(value: object, where: str) -> int:
    number = _number(value, where)
    if not isinstance(number, int):
        _invalid(f"{where} is not a whole number")
    return number


def _cost(value: object, where: str) -> Decimal:
    return Decimal(_number(value, where))


def _seconds(value: object, where: str) -> timedelta:
    number = _number(value, where)
    if number > _MOST_SECONDS:
        _invalid(f"{where} is more than {_MOST_SECONDS} seconds")
    return timedelta(seconds=float(number))


def _optional(value: Mapping[str, Any], key: str, read: Callable[[object, str], T]) -> T | None:
    found = value.get(key)
    return None if found is None else read(found, key)


def _usage(value: object) -> Usage | None:
    if value is None:
        return None
    usage = _mapping(value, "usage")
    _keys(usage, "usage", {"input_tokens", "output_tokens", "cached_tokens", "cost_usd"})
    return Usage(
        input_tokens=_optional(usage, "input_tokens", _count) or 0,
        output_tokens=_optional(usage, "output_tokens", _count) or 0,
        cached_tokens=_optional(usage, "cached_tokens", _count) or 0,
        cost_usd=_optional(usage, "cost_usd", _cost),
    )


def _error(value: object, usage: Usage | None) -> AgentError:
    error = _mapping(value, "error")
    _keys(error, "error", {"code", "message", "retry_after"}, {"code", "message"})
    code = _text(error["code"], "error.code")
    message = _text(error["message"], "error.message")
    retry_after = _optional(error, "retry_after", _seconds)
    if not message.strip():
        _invalid("error.message is blank")
    if not _CODE.fullmatch(code):
        _invalid(f"error.code is {code!r}, not a code such as 'quota-used-up'")
    if code == "agent-unavailable":
        return AgentUnavailable(message, retry_after=retry_after, usage=usage)
    if retry_after is not None:
        _invalid("error.retry_after belongs to the code 'agent-unavailable' alone")
    if code == "context-ceiling":
        return ContextCeiling(message, usage=usage)
    if code == "conversation-missing":
        return ConversationNotFound(message, usage=usage)
    return AgentError(message, code=code, usage=usage)


def _follow_ups(value: object) -> list[tuple[str, timedelta]]:
    if value is None:
        return []
    if not isinstance(value, list):
        _invalid(f"follow_ups is {_kind(value)}, not a list")
    found: list[tuple[str, timedelta]] = []
    for number, entry in enumerate(value):
        where = f"follow_ups[{number}]"
        follow_up = _mapping(entry, where)
        _keys(follow_up, where, {"prompt", "after"}, {"prompt", "after"})
        prompt = _text(follow_up["prompt"], f"{where}.prompt")
        if not prompt.strip():
            _invalid(f"{where}.prompt is blank")
        found.append((prompt, _seconds(follow_up["after"], f"{where}.after")))
    return found
