"""What came of a call of the agent: a reply that keeps its types, or the turn's one error."""

from datetime import timedelta
from decimal import Decimal
from enum import Enum
from re import fullmatch
from typing import Any, TypeGuard, cast

import attrs

from drumbeat.core.model import Reply, Usage
from drumbeat.errors import (
    AgentError,
    AgentUnavailable,
    ContextCeiling,
    ConversationNotFound,
    DrumbeatError,
    Problem,
)
from drumbeat.runtime.clock import SelfCancelled

_LONGEST_CODE = 64
_MOST = 10**15
"""No turn costs more tokens or dollars: what is more is a mistake, and too long to be kept."""


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


def failure_of(error: BaseException) -> AgentError:
    """What ended a call of the agent, as the one error that a turn fails with.

    Its message and its code are texts and its usage can be added up, whatever the agent put there.
    """
    error = only(error)
    try:
        failure = _failure(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  an exception of a host's own may break in any of its parts
        failure = AgentError(
            f"the agent raised {type(error).__name__}, which cannot be read", code="agent-raised"
        )
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
        failure = _coded(problem.code, _text(problem.message))
        if failure.code == problem.code and _is_text(problem.message, problem.remedy):
            failure.problem = problem
        return failure
    return AgentError(f"the agent raised {said(error)}", code="agent-raised")


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
        and (error.usage is None or is_usage(error.usage))
        and (wait is None or isinstance(wait, timedelta))
    )


def _mended(error: AgentError) -> AgentError:
    """The same failure, of the kinds of it that the engine tells apart."""
    message = _text(error.problem.message)
    usage = error.usage if is_usage(error.usage) else None
    if isinstance(error, AgentUnavailable):
        wait: object = error.retry_after
        retry_after = wait if isinstance(wait, timedelta) else None
        return AgentUnavailable(message, retry_after=retry_after, usage=usage)
    for kind in (ContextCeiling, ConversationNotFound):
        if isinstance(error, kind):
            return kind(message, usage=usage)
    return _coded(error.problem.code, message, usage)


def _is_text(*values: object) -> bool:
    return all(type(value) is str for value in values)


def _text(value: object) -> str:
    if isinstance(value, BaseException):
        return said(value)
    return str.__str__(value) if isinstance(value, str) else f"{value}"


def _coded(value: object, message: str, usage: Usage | None = None) -> AgentError:
    """A failure under the code that its repeats share: an enumeration's member may name it too."""
    failure = AgentError(message, usage=usage)
    text = value.value if isinstance(value, Enum) else value
    if isinstance(text, str) and _is_code(str.__str__(text)):
        given: dict[str, Any] = {"code": str.__str__(text)}
        failure.problem = attrs.evolve(failure.problem, **given)
    return failure


def _is_code(text: str) -> bool:
    """Whether it can be a code: one that people look up and records keep, and no text at large."""
    return len(text) <= _LONGEST_CODE and fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text) is not None


# Type hints bind nobody at run time, and what is kept here is read again after a restart.


def is_reply(value: object) -> TypeGuard[Reply]:
    """Whether it is a whole reply."""
    if not isinstance(value, Reply) or not isinstance(cast("object", value.text), str):
        return False
    texts: tuple[object, ...] = (value.provider, value.model, value.handle)
    return (value.usage is None or is_usage(value.usage)) and all(
        text is None or isinstance(text, str) for text in texts
    )


def is_usage(value: object) -> TypeGuard[Usage]:
    """Whether it is a usage that can be added up."""
    if not isinstance(value, Usage):
        return False
    counts: tuple[object, ...] = (value.input_tokens, value.output_tokens, value.cached_tokens)
    cost: object = value.cost_usd
    return all(type(count) is int and abs(count) <= _MOST for count in counts) and (
        cost is None or (isinstance(cost, Decimal) and cost.is_finite() and abs(cost) <= _MOST)
    )


def described(value: object) -> str:
    """What an agent returned instead of a reply, in words."""
    if not isinstance(value, Reply):
        return f"{type(value).__name__}, not a Reply"
    return "a Reply whose fields are not of the types, or of a size, that drumbeat.Reply names"
