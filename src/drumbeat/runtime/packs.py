"""The only reader of packs: what `drumpacks.txt` lists, and whether each pack is what it says."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

import attrs

from drumbeat.core.file_text import decode
from drumbeat.core.messages import did_you_mean
from drumbeat.core.model import Pack, Workspace
from drumbeat.core.nodes import ScalarNode
from drumbeat.core.pack_file import PackFile, read_pack_file
from drumbeat.errors import AutomationError, Finding, Problem, WorkspaceError
from drumbeat.runtime.file_problems import file_problem
from drumbeat.runtime.files import FileFault, read_inside
from drumbeat.runtime.threads import Threads

__all__ = [
    "LIST",
    "load_packs",
    "misnamed_list",
    "pack_cards",
    "pack_findings",
    "pack_paths",
    "read_packs",
]

LIST = "drumpacks.txt"
"""The workspace's list of packs: one folder a line."""
CARD = "drumpack.md"
"""The file that makes a folder a pack."""

_MISNAMED = frozenset({"drumpack.txt", "drum-packs.txt", "drum_packs.txt", "drumpacks.md"})

_COMMENT = re.compile(r"(?:^|\s)#.*")
_MOST = 200
"""Folders in one list: each is looked for on the disk, at every start."""
_LONGEST_SHOWN = 300
"""Characters of a path in a message."""


async def load_packs(
    workspace: Path, *, threads: Threads | None = None
) -> tuple[tuple[Pack, ...], tuple[Problem, ...]]:
    """Read the packs that the workspace's `drumpacks.txt` lists, in its order. Runs in a thread.

    One folder stands on each line, relative to the workspace or absolute; a `#` at the beginning
    or behind white space begins a comment. Without the file there are no packs. A pack is refused
    (spec, section 9) when its card is missing, empty or of an unknown format, and when `tools` and
    the programs in `bin/` are not the same: one that is listed and not there, not executable or a
    link out of the pack, or an executable one that is not listed. Two packs of one name (case
    aside) or with one tool are refused, too.

    Args:
        workspace: the workspace folder, absolute.
        threads: where they are read; None for some of its own.

    Returns:
        The packs that nothing is wrong with, their folders free of links; and every problem, at
        its line of `drumpacks.txt` or of the card, in the order of the list. The paths of problems
        are relative to the workspace where the list's are. An engine starts without problems only.
    """
    return await (threads or Threads()).run(read_packs, workspace)


def pack_paths(workspace: Path) -> Iterator[Path]:
    """Everything that `read_packs` looks at, as it stands; blocks on the disk.

    Where something cannot be read, it ends with that.
    """
    yield workspace / LIST
    try:
        lines = list(_lines(workspace))
    except WorkspaceError:
        return
    for line in lines[:_MOST]:
        folder = workspace / line.text
        yield from (folder, folder / CARD, folder / "bin")
        try:
            yield from [folder / "bin" / name for name in _names(folder / "bin")]
        except (OSError, ValueError):
            continue


def pack_cards(workspace: Path) -> list[PurePath]:
    """The cards of the packs that are listed, as the list names their folders."""
    try:
        return [line.card for line in _lines(workspace)]
    except WorkspaceError:
        return []


async def pack_findings(workspace: Workspace) -> list[Finding]:
    """What an author would want to know of packs that load, in their order.

    Finds tools that stand in the workspace's `bin/` too (`pack-tool-shadows`). Runs in a thread.
    """
    return await Threads().run(_findings, workspace)


async def misnamed_list(workspace: Path) -> list[Finding]:
    """Files that are meant as the list of packs and are never read: `packs-misnamed`.

    Runs in a thread; a folder that cannot be looked into has none.
    """
    return await Threads().run(_misnamed, workspace)


# ---- the list


@attrs.frozen(kw_only=True)
class _Line:
    """A line of the list that names a folder; `column` is where the name begins."""

    text: str
    line: int
    column: int

    def problem(self, code: str, message: str, remedy: str) -> WorkspaceError:
        return WorkspaceError(
            [
                Problem(
                    code=code,
                    message=message,
                    remedy=remedy,
                    path=PurePath(LIST),
                    line=self.line,
                    column=self.column,
                )
            ]
        )

    @property
    def card(self) -> PurePath:
        """The card, as the list names the folder."""
        return PurePath(self.text, CARD)


@attrs.frozen(kw_only=True)
class _Read:
    """A pack whose card was read."""

    line: _Line
    folder: Path
    file: PackFile


def read_packs(workspace: Path) -> tuple[tuple[Pack, ...], tuple[Problem, ...]]:
    """As `load_packs`, in the calling thread."""
    problems: list[Problem] = []
    packs: list[Pack] = []
    earlier: list[_Read] = []
    folders: dict[Path, _Line] = {}
    try:
        lines = list(_lines(workspace))
    except WorkspaceError as error:
        return (), error.problems
    if len(lines) > _MOST:
        return (), lines[_MOST].problem(
            "packs-too-many",
            f"{LIST} names {len(lines)} folders, and {_MOST} is the most",
            "list the packs that are used, one a line",
        ).problems
    for line in lines:
        try:
            folder = _folder(workspace, line)
            if folder in folders:
                raise line.problem(
                    "pack-listed-twice",
                    f"this folder stands on line {folders[folder].line} already",
                    "take one of the lines out",
                )
            folders[folder] = line
            file = _card(folder, line)
        except WorkspaceError as error:
            problems += error.problems
            continue
        read = _Read(line=line, folder=folder, file=file)
        wrong = [*_clashes(read, earlier), *_programs(read)]
        wrong.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
        earlier.append(read)
        problems += wrong
        if not wrong:
            packs.append(_pack(read))
    return tuple(packs), tuple(problems)


def _pack(read: _Read) -> Pack:
    return Pack(
        name=read.file.name.text,
        description=read.file.description,
        folder=read.folder,
        tools=tuple(tool.text for tool in read.file.tools),
        activity=read.file.activity,
        card=read.file.card,
    )


def _lines(workspace: Path) -> Iterator[_Line]:
    try:
        text = decode(read_inside(workspace, PurePath(LIST)), path=PurePath(LIST))
    except FileFault as fault:
        if fault.kind == "missing" and not (workspace / LIST).is_symlink():
            return
        raise WorkspaceError([file_problem(fault, PurePath(LIST))]) from fault
    except AutomationError as error:
        raise WorkspaceError(error.problems) from error
    for number, line in enumerate(text.split("\n"), start=1):
        named = _COMMENT.sub("", line)
        stripped = named.strip()
        if stripped:
            yield _Line(text=stripped, line=number, column=named.index(stripped) + 1)


def _folder(workspace: Path, line: _Line) -> Path:
    """The folder that a line names, free of links, so that a pack stays the one that was judged."""
    named = workspace / line.text
    try:
        folder = named.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        if not line.text.isprintable():
            remedy = "write one folder a line, without control characters"
        elif line.text[0] in "\"'~$":
            remedy = "write the path itself: quotes, `~` and variables stand for themselves here"
        else:
            remedy = "correct the line, put a # before it, or create the folder"
        raise line.problem("pack-missing", f"there is no folder {_shown(named)}", remedy) from None
    except (OSError, RuntimeError) as error:
        raise _unreadable(line, named, error) from error
    if not folder.is_dir():
        raise line.problem(
            "pack-not-a-folder",
            f"{_shown(named)} is no folder",
            f"name the folder that {CARD} lies in",
        )
    if os.pathsep in str(folder):
        raise line.problem(
            "pack-folder-unusable",
            f"{_shown(folder)} has a {os.pathsep!r} in it, which divides the folders of a PATH",
            "rename the folder",
        )
    return folder


def _unreadable(line: _Line, path: Path, error: OSError | RuntimeError) -> WorkspaceError:
    return line.problem(*_cannot_read(path, error))


def _cannot_read(path: Path, error: OSError | RuntimeError) -> tuple[str, str, str]:
    said = getattr(error, "strerror", None) or "its links lead in a circle"
    return (
        "file-unreadable",
        f"{_shown(path)} cannot be read: {said}",
        "let the engine's user read it",
    )


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def _shown(path: Path) -> str:
    text = str(path)
    text = text if text.isprintable() else ascii(text)
    half = _LONGEST_SHOWN // 2
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:half]}…{text[-half:]}"


# ---- one pack


def _card(folder: Path, line: _Line) -> PackFile:
    try:
        content = read_inside(folder, PurePath(CARD))
    except FileFault as fault:
        if fault.kind == "missing" and not (folder / CARD).is_symlink():
            raise _no_card(folder, line) from None
        raise WorkspaceError([file_problem(fault, line.card)]) from fault
    return read_pack_file(content, path=line.card)


def _no_card(folder: Path, line: _Line) -> WorkspaceError:
    try:
        names = _names(folder)
        below = [name for name in names if (folder / name / CARD).is_file()]
    except OSError as error:
        return _unreadable(line, folder, error)
    if below:
        remedy = f"name the folder that holds it, such as {PurePath(line.text, below[0])}"
    else:
        remedy = f"write a {CARD} there that says what its tools are for"
    meant = did_you_mean(CARD, names)
    return line.problem("pack-card-missing", f"{_shown(folder)} has no {CARD}{meant}", remedy)


def _clashes(read: _Read, earlier: Sequence[_Read]) -> Iterator[Problem]:
    """The name and the tools that an earlier pack of the list has."""
    for other in earlier:
        name = read.file.name
        if name.text.casefold() == other.file.name.text.casefold():
            yield _at(
                read,
                name,
                "pack-name-duplicate",
                f"the pack in {_shown(other.folder)} is called {other.file.name.text!r}, too",
                f"give one of them another name, or take one out of {LIST}",
            )
        theirs = {tool.text for tool in other.file.tools}
        for tool in read.file.tools:
            if tool.text in theirs:
                yield _at(
                    read,
                    tool,
                    "pack-tool-duplicate",
                    f"the pack {other.file.name.text!r} has a tool {tool.text!r}, too, and only "
                    "the first on the search path would ever run",
                    f"rename one of them, or take one of the packs out of {LIST}",
                )


def _programs(read: _Read) -> Iterator[Problem]:
    """How `tools` and the programs in `bin/` differ."""
    folder = read.folder / "bin"
    first = read.file.tools[0]
    try:
        inside = folder.resolve(strict=True).is_relative_to(read.folder)
        names = _names(folder)
    except (FileNotFoundError, NotADirectoryError):
        message = f"there is no folder {_shown(folder)}"
        yield _at(read, first, "pack-tool-missing", message, "create it, and put the tools there")
        return
    except (OSError, RuntimeError) as error:
        yield from _unreadable(read.line, folder, error).problems
        return
    if not inside:
        message = f"{_shown(folder)} is a link out of the pack"
        yield _at(read, first, "pack-tool-outside", message, "put the folder itself there")
        return
    declared = {tool.text for tool in read.file.tools}
    for tool in read.file.tools:
        wrong = _program(read, folder / tool.text, names)
        if wrong is not None:
            yield _at(read, tool, *wrong)
    for name in names:
        path = folder / name
        if name not in declared and os.access(path, os.X_OK) and path.is_file():
            yield _at(
                read,
                first,
                "pack-tool-undeclared",
                f"{_shown(path)} is executable, and `tools` does not list it",
                f"add {name!r} to `tools`, move it out of `bin/`, or take its right to be executed "
                "away if it is no tool",
            )


def _program(read: _Read, path: Path, names: Sequence[str]) -> tuple[str, str, str] | None:
    """What keeps a declared tool from running: code, message and remedy; None when nothing does."""
    name = path.name
    try:
        target = path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        if name in names:
            return (
                "pack-tool-missing",
                f"{_shown(path)} is a link to nothing",
                "make what it points to, or take the tool out of `tools`",
            )
        return (
            "pack-tool-missing",
            f"there is no {_shown(path)}{did_you_mean(name, names)}",
            "put the program there, or take it out of `tools`",
        )
    except (OSError, RuntimeError) as error:
        return _cannot_read(path, error)
    if not target.is_relative_to(read.folder):
        return (
            "pack-tool-outside",
            f"{_shown(path)} is a link out of the pack, to {_shown(target)}",
            "put the program itself there, or a script that calls the other one",
        )
    if not target.is_file():
        return (
            "pack-tool-missing",
            f"{_shown(path)} is no regular file",
            "put the program there, or take it out of `tools`",
        )
    if not os.access(target, os.X_OK):
        return (
            "pack-tool-not-executable",
            f"{_shown(path)} is not executable for the engine's user",
            f"run: chmod +x {_shown(path)}",
        )
    return None


def _at(read: _Read, node: ScalarNode, code: str, message: str, remedy: str) -> Problem:
    return Problem(
        code=code,
        message=message,
        remedy=remedy,
        path=read.line.card,
        line=node.line,
        column=node.column,
    )


def _misnamed(workspace: Path) -> list[Finding]:
    try:
        names = _names(workspace)
    except OSError:
        return []  # whoever loads the workspace says so
    return [
        Finding(
            code="packs-misnamed",
            message="a file of this name is never read",
            remedy=f"rename it to {LIST}, or take it away",
            path=PurePath(name),
            severity="error",
        )
        for name in names
        if name != LIST and name.casefold() in {LIST, *_MISNAMED} and (workspace / name).is_file()
    ]


def _findings(workspace: Workspace) -> list[Finding]:
    own = workspace.path / "bin"
    # A workspace may be a pack itself: one folder is no two.
    others = [pack for pack in workspace.packs if pack.folder / "bin" != own.resolve()]
    return [
        Finding(
            code="pack-tool-shadows",
            message=f"{_shown(own / tool)} never runs: the pack {pack.name!r} has a tool of that "
            "name, and packs come first on the search path",
            remedy="rename it, or take it away",
            path=PurePath("bin", tool),
        )
        for pack in others
        for tool in pack.tools
        if os.access(own / tool, os.X_OK) and (own / tool).is_file()
    ]
