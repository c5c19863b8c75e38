"""What `drumbeat doctor` found in one area."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import attrs

from drumbeat import DrumbeatError, Finding, Problem

__all__ = ["LATELY", "Examined", "alone", "counted"]

LATELY = timedelta(days=7)
"""For so long something that happened once is worth a look."""


@attrs.frozen(kw_only=True)
class Examined:
    """One area: what was found in a few words, and what is wrong with it."""

    name: str
    found: str
    problems: tuple[Problem, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something is an error: all that is no finding, and findings that say so."""
        return any(
            not isinstance(problem, Finding) or problem.severity == "error"
            for problem in self.problems
        )


async def alone(name: str, look: Callable[[], Awaitable[Examined]]) -> Examined:
    """Look at the area of that name; what keeps it from being looked at hides no other."""
    try:
        return await look()
    except DrumbeatError as error:
        problem = error.problem
    except OSError as error:
        problem = Problem(
            code="area-unreadable",
            message=f"it cannot be looked at: {error}",
            remedy="let the user that runs this read what the message names, or mend the disk",
        )
    return Examined(name=name, found="cannot be read", problems=(problem,))


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
