"""What came of a call of the agent: a reply that keeps its types, or the turn's one error."""

from decimal import Decimal
from typing import TypeGuard, cast

from drumbeat.core.model import Reply, Usage
from drumbeat.errors import AgentError, DrumbeatError
from drumbeat.runtime.clock import SelfCancelled


def _only(error: BaseException) -> BaseException:
    """What is in a group of one: an agent with a task group of its own raises its errors so."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def failure_of(error: BaseException) -> AgentError:
    """What ended a call of the agent, as the one error that a turn fails with."""
    error = _only(error)
    if isinstance(error, AgentError):
        return error
    if isinstance(error, SelfCancelled):
        failure = AgentError("the agent cancelled its own turn", code="agent-cancelled-itself")
    elif isinstance(error, DrumbeatError):
        failure = AgentError(error.problem.message, code=error.problem.code)
        failure.problem = error.problem
    else:
        msg = f"the agent raised {type(error).__name__}: {error}"
        failure = AgentError(msg, code="agent-raised")
    failure.__cause__ = error
    return failure


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
    return all(type(count) is int for count in counts) and (
        cost is None or (isinstance(cost, Decimal) and cost.is_finite())
    )


def described(value: object) -> str:
    """What an agent returned instead of a reply, in words."""
    if not isinstance(value, Reply):
        return f"{type(value).__name__}, not a Reply"
    return "a Reply whose fields are not of the types that drumbeat.Reply names"
