"""The gate before a run: is everything there that its file requires, and what does it say."""

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePath

from drumbeat.core.model import Automation, Pack, Requirement
from drumbeat.errors import Problem
from drumbeat.runtime.files import MAX_FILE, FaultKind, FileFault, read_inside
from drumbeat.runtime.search_path import find_executable
from drumbeat.runtime.threads import Threads

_FAULT_CODES = {
    "missing": "requirement-missing",
    "outside": "requirement-outside",
    "not-a-file": "requirement-not-a-file",
    "unreadable": "requirement-unreadable",
}
_REMEDIES: dict[FaultKind, str] = {
    "missing": "create the file, or take the entry out of `requires`",
    "outside": "name a file inside the workspace, relative to it and without `..`",
    "not-a-file": "name a file in `requires`, not a folder",
    "unreadable": "let the engine's user read the file",
}


async def check_requirements(
    automation: Automation,
    *,
    workspace: Path,
    packs: Sequence[Pack],
    search_path: Sequence[Path],
    threads: Threads | None = None,
) -> tuple[tuple[Requirement, ...], tuple[Problem, ...]]:
    """Check every entry of `requires`, and read what is there afresh.

    An entry with a `/` is a file of the workspace; one without is a file if the workspace has it,
    else a tool on the search path (spec, section 9). Runs in a thread.

    Args:
        automation: whose `requires` are checked.
        workspace: the workspace folder, absolute.
        packs: where the cards of tools come from.
        search_path: absolute folders, in order.
        threads: the engine's; None for its own.

    Returns:
        The requirements that are met, each entry once and in order, and a problem for each that is
        not, which says what was looked for and where. Codes: `requirement-missing`,
        `requirement-outside`, `requirement-not-a-file`, `requirement-unreadable`,
        `requirement-too-large`, `requirement-not-utf8`, `requirement-tool-missing`.
    """
    check = partial(_check, automation, workspace, tuple(packs), tuple(search_path))
    return await (threads or Threads()).run(check)


def _check(
    automation: Automation, workspace: Path, packs: Sequence[Pack], path: Sequence[Path]
) -> tuple[tuple[Requirement, ...], tuple[Problem, ...]]:
    met: list[Requirement] = []
    unmet: list[Problem] = []
    for name in dict.fromkeys(automation.requires):
        try:
            met.append(_one(name, workspace, packs, path))
        except _Unmet as unmet_one:
            unmet.append(unmet_one.problem(name, automation.path))
    return tuple(met), tuple(unmet)


class _Unmet(Exception):  # noqa: N818  caught a few lines above
    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy

    def problem(self, name: str, path: PurePath | None) -> Problem:
        message = f"required {name!r} is not usable: {self.message}"
        return Problem(code=self.code, message=message, remedy=self.remedy, path=path)


def _one(name: str, workspace: Path, packs: Sequence[Pack], path: Sequence[Path]) -> Requirement:
    try:
        return _file(name, workspace)
    except _Unmet as no_file:
        if "/" in name or no_file.code not in ("requirement-missing", "requirement-not-a-file"):
            raise
        tool = _tool(name, workspace, packs, path)
        if tool is None:
            raise _no_tool(name, no_file, path) from None
        return tool


def _file(name: str, workspace: Path) -> Requirement:
    try:
        data = read_inside(workspace, PurePath(name))
    except FileFault as fault:
        raise _Unmet(_FAULT_CODES[fault.kind], str(fault), _REMEDIES[fault.kind]) from None
    path = workspace / name
    if len(data) > MAX_FILE:
        raise _Unmet(
            "requirement-too-large",
            f"{path} is larger than 1 MiB",
            "prune it: it is given to the agent whole, on every run",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Unmet(
            "requirement-not-utf8",
            f"{path} is not UTF-8 (byte {error.start})",
            "save it as UTF-8",
        ) from None
    return Requirement(name=name, kind="file", path=path, text=text)


def _tool(
    name: str, workspace: Path, packs: Sequence[Pack], path: Sequence[Path]
) -> Requirement | None:
    found = find_executable(name, path=path, cwd=workspace)
    if found is None:
        return None
    cards = [pack.card for pack in packs if pack.folder / "bin" == found.parent]
    return Requirement(name=name, kind="tool", path=found, text="".join(cards[:1]))


def _no_tool(name: str, failure: _Unmet, path: Sequence[Path]) -> _Unmet:
    folders = os.pathsep.join(map(str, path))
    present = shutil.which(name, mode=os.F_OK, path=folders)
    if present is not None:
        return _Unmet(
            "requirement-tool-missing",
            f"{failure.message}, and {present} is not executable",
            f"make it executable: chmod +x {present}",
        )
    # Not the folders: a failure is told to people, and `status().path` has them.
    where = "in bin/ of the workspace or packs, nor on the PATH of the engine"
    return _Unmet(
        "requirement-tool-missing",
        f"{failure.message}, and no such tool {where if path else 'on an empty search path'}",
        "create the file, put the tool into bin/ or install it, or take the entry out",
    )
