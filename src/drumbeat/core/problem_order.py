"""The order in which the problems of one file are reported, each place once."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from drumbeat.errors import Problem

__all__ = ["in_file_order"]


P = TypeVar("P", bound=Problem)


def in_file_order(damage: Sequence[P], meant: Iterable[P]) -> list[P]:
    """Join the problems of a text with those of what it says, in file order.

    Args:
        damage: what is wrong with the text as such, whatever it means.
        meant: what is wrong with what it says. A place that is damaged needs no second verdict, so
            those that stand at one are left out.
    """
    damaged = {(problem.line, problem.column) for problem in damage}
    rest = [each for each in meant if (each.line, each.column) not in damaged]
    return sorted([*damage, *rest], key=lambda each: (each.line or 0, each.column or 0))
