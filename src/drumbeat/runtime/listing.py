"""Which files lie in the folders of a workspace, and which of the folders cannot be looked into."""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePath

import attrs

from drumbeat.errors import Problem, WorkspaceError

FOLDERS = ("automations", "jobs")
"""Where files that say what runs are looked for; nothing below these is entered."""
FOLDER_CODES = frozenset(
    {
        "workspace-missing",
        "workspace-not-a-folder",
        "workspace-unreadable",
        "automations-folder-missing",
    }
)
"""What is wrong where files may stand that nobody sees."""


MARKDOWN = (".md", ".markdown", ".mdown", ".mkd")
"""Endings, whatever their case, of what looks like a file to read; only `.md` is read."""


@attrs.frozen(kw_only=True)
class Listing:
    """Every entry that is, or looks like, a file to read, with its path relative to the workspace.

    What is wrong with a folder stands by its name: one of `vanished` is not there any more, and any
    other one cannot be read.
    """

    entries: Mapping[Path, os.DirEntry[str]]
    faults: Mapping[str, Problem]
    vanished: frozenset[str]


def check_there(root: Path) -> None:
    """Refuse a workspace of which nothing is there.

    Raises:
        WorkspaceError: there is no such folder (`workspace-missing`).
        OSError: it cannot be told.
    """
    if not root.exists():
        raise _fault("workspace-missing", f"there is no folder {root}", "name an existing folder")


def listed(root: Path, known: Collection[Path]) -> Listing:
    """Look into both folders.

    Args:
        root: the workspace.
        known: the files that were there before.

    Raises:
        WorkspaceError: the workspace cannot be looked into, or neither of its folders, or what is
            left of them holds no file.
    """
    try:
        check_there(root)
        if not root.is_dir():
            raise _fault("workspace-not-a-folder", f"{root} is no folder", "name the folder itself")
        found = [folder for folder in FOLDERS if (root / folder).exists()]
    except OSError as error:
        raise WorkspaceError([_closed(root, error)]) from error
    vanished = {path.parent.name for path in known}.difference(found)
    if not found:
        raise WorkspaceError([_missing(root, folder) for folder in sorted(vanished) or FOLDERS[:1]])
    faults = {folder: _missing(root, folder) for folder in sorted(vanished)}
    entries: dict[Path, os.DirEntry[str]] = {}
    for folder in found:
        try:
            entries.update(_entries(root, folder))
        except OSError as error:
            faults[folder] = _closed(root / folder, error)
    if faults and not entries:
        raise WorkspaceError(tuple(faults.values()))
    return Listing(entries=entries, faults=faults, vanished=frozenset(vanished))


def lost_folders(root: Path, known: Collection[Path]) -> dict[str, Problem]:
    """The folders of `known` that are not there, and what to say of each; blocks on the disk.

    Args:
        root: the workspace.
        known: files relative to it that stood there once.
    """
    folders = {path.parent.name for path in known}.intersection(FOLDERS)
    return {
        folder: _missing(root, folder)
        for folder in sorted(folders)
        if not os.path.lexists(root / folder)
    }


def _entries(root: Path, folder: str) -> Iterator[tuple[Path, os.DirEntry[str]]]:
    with os.scandir(root / folder) as entries:
        for entry in entries:
            name = entry.name
            if _meant(name):
                # Bytes that are no text have to be shown and stored all the same.
                shown = os.fsencode(name).decode("utf-8", "backslashreplace")
                yield Path(folder, shown), entry


def buried(root: Path) -> list[PurePath]:
    """The files below the folders that somebody may take for automations; blocks on the disk.

    Folders and files that a workspace leaves out by their names are left out.
    """
    found: list[PurePath] = []
    for folder in FOLDERS:
        for place, folders, names in os.walk(root / folder):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
            here = PurePath(place).relative_to(root)
            if len(here.parts) > 1:
                found += [here / name for name in sorted(names) if _meant(name)]
    return found


def _meant(name: str) -> bool:
    left_out = name.startswith((".", "_")) or name.lower() == "readme.md"
    return not left_out and name.lower().endswith(MARKDOWN)


def _fault(code: str, message: str, remedy: str) -> WorkspaceError:
    return WorkspaceError([Problem(code=code, message=message, remedy=remedy)])


def _missing(root: Path, folder: str) -> Problem:
    return Problem(
        code="automations-folder-missing",
        message=f"there is no folder {root / folder}",
        remedy="mount or check out what held it; if nothing is to be left in it, create it empty",
    )


def _closed(folder: Path, error: OSError) -> Problem:
    return Problem(
        code="workspace-unreadable",
        message=f"{error.filename or folder} cannot be read: {error.strerror}",
        remedy="let the engine's user read the folder",
    )
