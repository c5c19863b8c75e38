"""The slug: the filename stem that names an automation in records, pins, routes and memory."""

import re
from collections.abc import Iterable
from pathlib import PurePath

from drumbeat.core.messages import quoted
from drumbeat.errors import Problem

__all__ = ["MAX_LENGTH", "SLUG", "SLUG_RULE", "slug_clashes", "slug_problem"]

MAX_LENGTH = 100
"""Characters in the longest slug (spec, section 1)."""

SLUG = rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_LENGTH - 1}}}"
"""A slug, as a regular expression; routes and the names of packs have the same form."""

SLUG_RULE = (
    "ASCII letters, digits, `-`, `_` and `.`, beginning with a letter or digit, "
    f"at most {MAX_LENGTH} characters"
)
"""The same in words, for a remedy."""

_SLUG = re.compile(SLUG)


def slug_problem(stem: str, path: PurePath | None) -> Problem | None:
    """Say what keeps a filename stem from being a slug, or None when nothing does.

    `SLUG_RULE` says what a slug is made of (spec, section 1).

    Args:
        stem: the filename without its last suffix, as it stands.
        path: the file, for the problem's location.
    """
    if len(stem) > MAX_LENGTH:
        what = f"the file name is {len(stem)} characters long without its suffix"
    elif not _SLUG.fullmatch(stem):
        what = f"the file name {quoted(stem)} cannot name an automation"
    else:
        return None
    return Problem(code="slug-invalid", message=what, remedy=f"rename it: {SLUG_RULE}", path=path)


def slug_clashes(paths: Iterable[PurePath]) -> tuple[Problem, ...]:
    """Find files whose slugs are equal without case; each problem names both files.

    Args:
        paths: every automation and job file of one workspace, in any order.

    Returns:
        One problem for each file that clashes, located at that file, in path order.
    """
    groups: dict[str, list[PurePath]] = {}
    for path in sorted(paths):
        groups.setdefault(path.stem.casefold(), []).append(path)
    return tuple(
        Problem(
            code="slug-clash",
            message=f"{path} and {_other(path, group)} have the same slug, case aside",
            remedy="rename it, or the other one",
            path=path,
        )
        for group in groups.values()
        if len(group) > 1
        for path in group
    )


def _other(path: PurePath, group: list[PurePath]) -> PurePath:
    return next(other for other in group if other != path)
