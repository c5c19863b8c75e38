"""What can go wrong, as one small family of exceptions that each carry a `Problem`.

Few classes, because a host catches differently for few reasons; many codes, because an author
mends differently for many. Every class survives pickling, and `str()` of any of them is fit to be
shown to the person who has to act.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

import attrs

if TYPE_CHECKING:
    from drumbeat.core.model import Fire, Usage

__all__ = [
    "AgentError",
    "AgentUnavailable",
    "AutomationError",
    "ClaimLost",
    "ContextCeiling",
    "ConversationNotFound",
    "DeliveryRefused",
    "DrumbeatError",
    "EngineBusy",
    "EventsExpired",
    "Finding",
    "FollowUpRefused",
    "InvalidValue",
    "MailError",
    "NotFound",
    "NotRun",
    "Problem",
    "ScheduleError",
    "SessionBusy",
    "StoreError",
    "WorkspaceError",
]


@attrs.frozen(kw_only=True)
class Problem:
    """One thing that is wrong, where it is, and how to mend it.

    `code` is kebab-case and never changes; `docs/errors.md` has a heading for each. `line` and
    `column` are 1-based positions, in the file, of the offending key or value.
    """

    code: str
    message: str
    remedy: str
    path: PurePath | None = None
    line: int | None = None
    column: int | None = None

    @property
    def location(self) -> str:
        """`path:line:column` as far as known; `<text>` stands for a missing path."""
        if self.path is None and self.line is None:
            return ""
        parts = ["<text>" if self.path is None else str(self.path)]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)

    def __str__(self) -> str:
        """Return `path:line:column: message [code]`, then the remedy on a line of its own."""
        head = f"{self.message} [{self.code}]"
        if self.location:
            head = f"{self.location}: {head}"
        return f"{head}\n  {self.remedy}" if self.remedy else head


@attrs.frozen(kw_only=True)
class Finding(Problem):
    """Something in a file that loads, which its author would want to know."""

    severity: Literal["error", "warning"] = "warning"


class DrumbeatError(Exception):
    """Base of every exception that drumbeat raises on purpose.

    Args:
        problem: what is wrong, where, and how to mend it.
    """

    problem: Problem

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        """Return the problem as `Problem.__str__` prints it."""
        return str(self.problem)


class _ManyProblems(DrumbeatError):
    problems: tuple[Problem, ...]

    def __init__(self, problems: Sequence[Problem]) -> None:
        if not problems:
            msg = "at least one problem is needed"
            raise ValueError(msg)
        self.problems = tuple(problems)
        super().__init__(self.problems[0])
        self.args: tuple[Any, ...] = (self.problems,)

    def __str__(self) -> str:
        """Return every problem, one after the other, in file order."""
        return "\n".join(str(problem) for problem in self.problems)


class AutomationError(_ManyProblems):
    """A file breaks the contract and does not load. `problems` holds all of them, in file order."""


class WorkspaceError(_ManyProblems):
    """The workspace around the files is wrong: a folder, a pack, `agent-config.yaml`."""


class InvalidValue(DrumbeatError, ValueError):
    """A value that was handed in is none of those that are known, or cannot be read.

    A notify policy, a way of `auth`, a webhook filter, an environment variable. Where the value is
    an expression, `problem.column` counts within it.
    """


class ScheduleError(InvalidValue):
    """A schedule expression is outside the grammar; `problem.column` counts within it."""


class StoreError(DrumbeatError):
    """The store could not do what was asked: disk full, locked, damaged, a newer schema.

    Nothing of the transaction was written.
    """


class EventsExpired(DrumbeatError):
    """`events(after=…)` was asked to start where there are no events.

    `events-expired`: before the oldest one that is kept. `events-ahead`: behind the last one, as
    after a backup was put back, whose ids then come a second time.

    Args:
        problem: what was asked for.
        after: what to ask for instead, to read all that is kept.
    """

    after: int

    def __init__(self, problem: Problem, after: int) -> None:
        super().__init__(problem)
        self.after = after
        self.args: tuple[Any, ...] = (problem, after)


class EngineBusy(DrumbeatError):
    """Another engine holds the data folder; the message names it."""


class NotFound(DrumbeatError, LookupError):
    """No such slug, run, session or intent, or a run that had no conversation."""


class NotRun(DrumbeatError):
    """`Engine.run()` was asked for a run whose fire was skipped.

    Args:
        problem: why.
        fire: the settled fire, its `reason` included.
    """

    fire: Fire

    def __init__(self, problem: Problem, fire: Fire) -> None:
        super().__init__(problem)
        self.fire = fire
        self.args: tuple[Any, ...] = (problem, fire)


class SessionBusy(DrumbeatError):
    """The conversation is in use; nothing was lost, ask again later."""


class FollowUpRefused(DrumbeatError):
    """A follow-up is over a limit. The message says which."""


class ClaimLost(DrumbeatError):
    """A claim's lease lapsed, or a mark moved since it was read; nothing was written."""


class MailError(DrumbeatError):
    """A mailbox could not be read; the code says why. The same mark may be asked for again."""


class DeliveryRefused(DrumbeatError):
    """Raised by a `Deliverer`: this intent can never be delivered, abandon it at once.

    Args:
        message: why, for the record.
    """

    def __init__(self, message: str) -> None:
        super().__init__(Problem(code="delivery-refused", message=message, remedy=""))
        self.args: tuple[Any, ...] = (message,)


class AgentError(DrumbeatError):
    """Raised by an `Agent`: the turn failed.

    Args:
        message: what happened, for people; an engine keeps 64 Ki characters of it.
        code: kebab-case, 64 characters at most; an engine takes any other for `agent-error`. Two
            failures with one code count as "the same cause" when repeats of a failure are kept from
            being voiced again and again.
        usage: what the failed turn cost, where known.
    """

    usage: Usage | None

    def __init__(
        self, message: str, *, code: str = "agent-error", usage: Usage | None = None
    ) -> None:
        super().__init__(Problem(code=code, message=message, remedy=""))
        self.usage = usage
        self.args: tuple[Any, ...] = (message,)

    @property
    def code(self) -> str:
        """The cause, as given."""
        return self.problem.code

    def __str__(self) -> str:
        """Return the message alone: a failure is shown beside its code elsewhere."""
        return self.problem.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the keyword arguments: they live in `__dict__`, which is restored after `args`."""
        return (type(self), self.args, self.__dict__)


class AgentUnavailable(AgentError):
    """The agent cannot be reached for the moment; the turn is tried again.

    Args:
        message: what happened, for people.
        retry_after: the shortest wait before the next attempt, where the provider named one; a
            `timedelta`, such as `timedelta(seconds=12)`.
        usage: what the failed attempt cost, where known.

    Raises:
        TypeError: `retry_after` is anything else, such as a number of seconds.
    """

    retry_after: timedelta | None

    def __init__(
        self,
        message: str,
        *,
        retry_after: timedelta | None = None,
        usage: Usage | None = None,
    ) -> None:
        given: object = retry_after
        if given is not None and not isinstance(given, timedelta):
            msg = f"retry_after must be a timedelta or None, not {type(given).__name__}"
            raise TypeError(msg)
        super().__init__(message, code="agent-unavailable", usage=usage)
        self.retry_after = retry_after


class ContextCeiling(AgentError):
    """The conversation has outgrown the model's context; the engine rotates it.

    Args:
        message: what the provider said.
        usage: what the failed turn cost, where known.
    """

    def __init__(
        self, message: str, *, code: str = "context-ceiling", usage: Usage | None = None
    ) -> None:
        super().__init__(message, code=code, usage=usage)


class ConversationNotFound(AgentError):
    """The agent does not know the conversation (any more); the engine starts another one.

    Args:
        message: what the backend said.
        usage: what the failed turn cost, where known.
    """

    def __init__(
        self, message: str, *, code: str = "conversation-missing", usage: Usage | None = None
    ) -> None:
        super().__init__(message, code=code, usage=usage)


def extra_missing(
    error: ModuleNotFoundError, module: str, *, extra: str, brings: str
) -> ModuleNotFoundError:
    """What an edge raises whose library could not be imported: how to get it, if that is missing.

    Args:
        error: what the import raised.
        module: the edge.
        extra: which of drumbeat's extras the edge needs.
        brings: the library that the extra brings.

    Returns:
        `error` itself when another module is missing: a broken installation shows itself.
    """
    if str(error.name).partition(".")[0] != brings:
        return error
    return ModuleNotFoundError(
        f"{module} needs {brings}, which is not installed; in a clone of the repository: "
        f"pip install '.[{extra}]'",
        name=error.name,
        path=error.path,
    )
