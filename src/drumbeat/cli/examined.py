"""What `drumbeat doctor` found in one area."""

import attrs

from drumbeat import Finding, Problem

__all__ = ["Examined", "counted"]


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


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
