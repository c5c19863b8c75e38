"""A file of the workspace that cannot be read, as a problem that says how to mend it."""

from collections.abc import Mapping
from pathlib import PurePath

from drumbeat.errors import Problem
from drumbeat.runtime.files import FaultKind, FileFault

_CODES: Mapping[FaultKind, str] = {
    "missing": "file-missing",
    "outside": "file-outside",
    "not-a-file": "file-not-a-file",
    "unreadable": "file-unreadable",
}
_REMEDIES: Mapping[FaultKind, str] = {
    "missing": "take the link away, or make what it points to",
    "outside": "put the file itself there instead of the link",
    "not-a-file": "put a regular file there",
    "unreadable": "let the engine's user read it",
}


def file_problem(
    fault: FileFault, path: PurePath, *, not_a_file: str = _REMEDIES["not-a-file"]
) -> Problem:
    """Make the problem of a file that has to be readable where it stands.

    Args:
        fault: what was met; `missing` is a link to nothing, since the file's lack as such has a
            problem of its own or is none.
        path: the file, as its owner knows it.
        not_a_file: what to do about a folder or a pipe that stands there.
    """
    remedy = not_a_file if fault.kind == "not-a-file" else _REMEDIES[fault.kind]
    return Problem(code=_CODES[fault.kind], message=str(fault), remedy=remedy, path=path)
