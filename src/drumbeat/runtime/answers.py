"""What came of a call of a host's own: a value that keeps its types, or the turn's one error."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from re import fullmatch
from typing import Any, Literal, TypeVar

import anyio
import attrs

from drumbeat.core.model import Receipt, Reply, Usage
from drumbeat.core.redaction import Redactor
from drumbeat.errors import (
    AgentError,
    AgentUnavailable,
    ContextCeiling,
    ConversationNotFound,
    DrumbeatError,
    Problem,
)
from drumbeat.protocols import Clock
from drumbeat.runtime.clock import OverTime, SelfCancelled, bounded, holding, is_interrupt

T = TypeVar("T")

_LONGEST_CODE = 64
_MOST = 10**15
"""No turn costs more tokens or dollars: what is more is a mistake, and too long to be kept."""
_LONGEST_REPLY = 8 * 1024 * 1024
"""Characters: as much as a `CommandAgent` may write. More is no answer to anybody, and what is done
with a text would hold up the host's loop for seconds."""
_LONGEST_NAME = 64 * 1024
_LONGEST_MESSAGE = 64 * 1024
"""Characters of what a failure says: it stands in records, events and messages, again and again."""
_LONGEST_RECEIPT = 4096
"""Characters of an id or an address: each is kept, and looked up by."""
_ODD_REPLY = "a Reply whose fields are not of the types, or of a size, that drumbeat.Reply names"


@attrs.frozen(kw_only=True)
class Raised:
    """A call that came to nothing: its time was up, it cancelled itself, or it raised `error`.

    An error that came in a group of one is the one that was in it.
    """

    how: Literal["over-time", "self-cancelled", "raised"]
    error: BaseException


async def answered(
    clock: Clock,
    limit: timedelta | None,
    call: Callable[[], Awaitable[T]],
    *,
    what: str,
    stuck_after: timedelta | None = None,
    stuck: Callable[[], Awaitable[None]] | None = None,
) -> T | Raised:
    """Await a call of a host's own, and return what it returned or how it came to nothing.

    Whatever it raises is a value here, but for Ctrl-C and the caller's own cancellation. A driven
    clock stands still while the call goes on.

    Args:
        clock: what the limit is measured on.
        limit: cancel the call after this long; None for never.
        call: what to await.
        what: what a driven clock names while it waits for the call.
        stuck_after: how long a cancelled call may go on before `stuck` is awaited.
        stuck: told once when the call ignores its cancellation.
    """

    async def held() -> T:
        with holding(clock, what):
            return await call()

    try:
        return await bounded(clock, limit, held, stuck_after=stuck_after, stuck=stuck)
    except OverTime as error:
        return Raised(how="over-time", error=error)
    except SelfCancelled as error:
        return Raised(how="self-cancelled", error=error)
    except anyio.get_cancelled_exc_class():
        raise
    except BaseException as error:  # a host's own code may raise anything
        if is_interrupt(error):
            raise
        return Raised(how="raised", error=only(error))


def only(error: BaseException) -> BaseException:
    """What is in a group of one: who has a task group of its own raises its errors so."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def said(error: BaseException) -> str:
    """The type of an exception, and what it says for itself."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  a host's exception may not even be able to say what it is
        return name


def failure_of(error: BaseException, redactor: Redactor) -> AgentError:
    """What ended a call of the agent, as the one error that a turn fails with.

    Its message and its code are texts and its usage can be added up, whatever the agent put there.
    A message that is longer than any can be is redacted and cut.
    """
    error = only(error)
    try:
        failure = _shortened(_failure(error), redactor)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  an exception of a host's own may break in any of its parts
        failure = _raised(f"{type(error).__name__}, which cannot be read")
    if failure is not error:
        failure.__cause__ = error
    return failure


def _failure(error: BaseException) -> AgentError:
    if isinstance(error, AgentError):
        return error if _is_sound(error) else _mended(error)
    if isinstance(error, SelfCancelled):
        return AgentError("the agent cancelled its own turn", code="agent-cancelled-itself")
    if isinstance(error, DrumbeatError):
        problem = error.problem
        failure = _coded(AgentError(_text(problem.message)), problem.code)
        if failure.code == problem.code and _is_text(problem.message, problem.remedy):
            failure.problem = problem
        return failure
    return _raised(said(error))


def _shortened(failure: AgentError, redactor: Redactor) -> AgentError:
    """The same failure with texts that can be kept; one that is too long is none of the host's."""
    problem = failure.problem
    if not _is_short(problem):
        failure.problem = attrs.evolve(
            problem,
            message=_cut(problem.message, redactor),
            remedy=_cut(problem.remedy, redactor),
        )
    return failure


def _is_short(problem: Problem) -> bool:
    return max(len(problem.message), len(problem.remedy)) <= _LONGEST_MESSAGE


def _cut(text: str, redactor: Redactor) -> str:
    if len(text) <= _LONGEST_MESSAGE:
        return text
    return f"{redactor.head(text, _LONGEST_MESSAGE)} … cut, of {len(text)} characters"


def _raised(what: str) -> AgentError:
    failure = AgentError(f"the agent raised {what}", code="agent-raised")
    remedy = "mend the agent, or let it raise an AgentError for what it meets"
    failure.problem = attrs.evolve(failure.problem, remedy=remedy)
    return failure


def problem_of(error: BaseException) -> Problem | None:
    """What an exception of ours says is wrong, if a host that made it kept its types."""
    problem: object = getattr(error, "problem", None) if isinstance(error, DrumbeatError) else None
    if (
        isinstance(problem, Problem)
        and _is_text(problem.code, problem.message, problem.remedy)
        and _is_code(problem.code)
    ):
        return problem
    return None


def _is_sound(error: AgentError) -> bool:
    wait: object = error.retry_after if isinstance(error, AgentUnavailable) else None
    return (
        problem_of(error) is not None
        and _is_short(error.problem)
        and (error.usage is None or _sound_usage(error.usage) is error.usage)
        and (wait is None or isinstance(wait, timedelta))
    )


def _mended(error: AgentError) -> AgentError:
    """The same failure, of the kinds of it that the engine tells apart: what is sound of it stays.

    Its code above all: two failures of one cause are to have one, whatever else is wrong with one.
    """
    problem = problem_of(error)
    if problem is None:
        return _coded(_of_kind(error, _text(error.problem.message)), error.problem.code)
    failure = _of_kind(error, problem.message)
    failure.problem = problem
    return failure


def _of_kind(error: AgentError, message: str) -> AgentError:
    usage = _sound_usage(error.usage)
    if isinstance(error, AgentUnavailable):
        wait: object = error.retry_after
        retry_after = wait if isinstance(wait, timedelta) else None
        return AgentUnavailable(message, retry_after=retry_after, usage=usage)
    for kind in (ContextCeiling, ConversationNotFound):
        if isinstance(error, kind):
            return kind(message, usage=usage)
    return AgentError(message, usage=usage)


def _sound_usage(value: object) -> Usage | None:
    """The usage itself where it can be added up, as a plain one where it is of another class."""
    try:
        plain = _plain_usage(value)
    except _Odd:
        return None
    return value if type(value) is Usage else plain


def _is_text(*values: object) -> bool:
    return all(type(value) is str for value in values)


def _text(value: object) -> str:
    if isinstance(value, BaseException):
        return said(value)
    return str.__str__(value) if isinstance(value, str) else f"{value}"


def _coded(failure: AgentError, value: object) -> AgentError:
    """A failure under the code that its repeats share: an enumeration's member may name it too."""
    text = value.value if isinstance(value, Enum) else value
    if isinstance(text, str) and _is_code(str.__str__(text)):
        given: dict[str, Any] = {"code": str.__str__(text)}
        failure.problem = attrs.evolve(failure.problem, **given)
    return failure


def _is_code(text: str) -> bool:
    """Whether it can be a code: one that people look up and records keep, and no text at large."""
    return len(text) <= _LONGEST_CODE and fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text) is not None


# Type hints bind nobody at run time, and what is kept here is read again after a restart. A class
# derived from one of these may do anything in its constructor and its parts, so what it says is
# taken over into the class itself, each part once.


class _Odd(Exception):  # noqa: N818  caught a few lines below
    """A part is not of the type, or of a size, that its class names."""


def plain_reply(value: object) -> Reply:
    """What an agent returned, as a `Reply` and nothing else.

    Raises:
        AgentError: `agent-reply-invalid`, it is no whole reply, or larger than one can be.
        BaseException: whatever a class of the agent's own raises while it is read.
    """
    try:
        if not isinstance(value, Reply):
            raise _Odd(f"{type(value).__name__}, not a Reply")
        text = _plain(value.text, _LONGEST_REPLY)
        if text is None:
            raise _Odd(_ODD_REPLY)
        usage: object = value.usage
        return Reply(
            text=text,
            usage=None if usage is None else _plain_usage(usage),
            provider=_plain(value.provider, _LONGEST_NAME),
            model=_plain(value.model, _LONGEST_NAME),
            handle=_plain(value.handle, _LONGEST_NAME),
        )
    except _Odd as odd:
        raise AgentError(f"the agent returned {odd}", code="agent-reply-invalid") from None


def plain_receipt(value: object) -> Receipt | None:
    """What a channel gave back, as a `Receipt` and nothing else; None where it cannot be kept."""
    if not isinstance(value, Receipt):
        return None
    try:
        return Receipt(
            id=_plain(value.id, _LONGEST_RECEIPT), url=_plain(value.url, _LONGEST_RECEIPT)
        )
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  a class of the host's own; the message is out all the same
        return None


def _plain_usage(value: object) -> Usage:
    if not isinstance(value, Usage):
        raise _Odd(_ODD_REPLY)
    inputs, outputs, cached = value.input_tokens, value.output_tokens, value.cached_tokens
    counts: tuple[object, ...] = (inputs, outputs, cached)
    if not all(type(count) is int and abs(count) <= _MOST for count in counts):
        raise _Odd(_ODD_REPLY)
    cost: object = value.cost_usd
    if cost is not None and not (
        isinstance(cost, Decimal) and cost.is_finite() and abs(cost) <= _MOST
    ):
        raise _Odd(_ODD_REPLY)
    return Usage(
        input_tokens=inputs,
        output_tokens=outputs,
        cached_tokens=cached,
        cost_usd=None if cost is None else Decimal(cost),
    )


def _plain(value: object, longest: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _Odd(_ODD_REPLY)
    text = str.__str__(value)  # the characters alone, of whatever class they were
    if len(text) > longest:
        raise _Odd(_ODD_REPLY)
    return text
