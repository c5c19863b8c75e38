"""What SQLite and the disk complain of, in the words of the store."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from drumbeat.errors import Problem, StoreError
from drumbeat.runtime.files import ROOM, remedy_for

__all__ = [
    "store_away",
    "store_closed",
    "store_damaged",
    "store_error",
    "store_gone",
    "store_newer",
    "store_older",
]

_LOCKED: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNSAID: Final = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
"""Where SQLite does not say what the system told it."""
_LITTLE: Final = 64 * 1024
"""With fewer bytes than this the disk is full for SQLite, which takes 32 KiB at a time."""
_LONGEST: Final = 512
"""Bytes of the longest path that SQLite opens, at most."""
_CHECK: Final = (
    "check that the file and its folder exist, may be read and written by the user that runs the "
    "engine, and lie on a local disk that is mounted for writing; and that its process has reached "
    "no quota and no limit on files (ulimit -a)"
)
_PRIMARY: Final = 0xFF
"""SQLite keeps the primary code in the lowest byte of an extended one."""


def store_error(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """Translate what went wrong with the file `path`: locked, full, damaged, or else failed.

    It may look at the disk: to be called in a worker thread.
    """
    said = str(error)
    if isinstance(error, OSError):
        if error.errno in ROOM:
            return _full(path)
        return _failed(path, said, remedy=remedy_for(error, _CHECK))
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    if code in _LOCKED:
        return StoreError(
            Problem(
                code="store-locked",
                message=f"{path.name} is locked by another process",
                remedy="close what keeps it locked (a backup, a database browser) and try again",
                path=path,
            )
        )
    if code == sqlite3.SQLITE_FULL or (code in _UNSAID and _is_full(path.parent)):
        return _full(path)
    if code in _DAMAGED:
        return store_damaged(path, said)
    if code == sqlite3.SQLITE_CANTOPEN and len(os.fsencode(path.absolute())) > _LONGEST - 40:
        return _failed(
            path,
            f"{said}; SQLite opens no path of more than about {_LONGEST} bytes, names of drafts "
            "and logs included",
            remedy="choose a data folder with a shorter path",
        )
    return _failed(path, said, remedy=_CHECK)


def _is_full(folder: Path) -> bool:
    """Whether the disk has no room, or no inode, for any more."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LITTLE or (found.f_files > 0 and found.f_favail == 0)


def store_damaged(path: Path, said: str) -> StoreError:
    """Return the error for a file that is no (whole) drumbeat store; it was left as it is."""
    return StoreError(
        Problem(
            code="store-damaged",
            message=f"{path.name} is damaged or is no drumbeat store ({said}); "
            "it was left as it is",
            remedy=f"move it away, together with {path.name}-wal and {path.name}-shm, and put a "
            "backup in its place, or nothing to begin with an empty state",
            path=path,
        )
    )


def store_newer(path: Path, found: int, known: int) -> StoreError:
    """Return the error for a schema of a later release."""
    return StoreError(
        Problem(
            code="store-newer",
            message=f"{path.name} has the schema {found}, and this drumbeat knows {known} at most; "
            "it was left as it is",
            remedy="use the drumbeat release that wrote it, or a later one, or put back the backup "
            f"of {path.name} made by the upgrade",
            path=path,
        )
    )


def store_older(path: Path, found: int, known: int) -> StoreError:
    """Return the error for a schema that only the holder of the data folder may upgrade."""
    return StoreError(
        Problem(
            code="store-older",
            message=f"{path.name} has the schema {found}, and this drumbeat works with {known}",
            remedy="start the engine of this release on it first: it makes a backup and upgrades",
            path=path,
        )
    )


def store_gone(path: Path) -> StoreError:
    """Return the error for a file that was taken away while it was open: nobody would find it."""
    return StoreError(
        Problem(
            code="store-gone",
            message=f"{path.name} was removed or replaced while it was open; nothing is written to "
            "what is left of it",
            remedy=f"put the file back where it was, or stop the engine, see to {path.name} (a "
            "backup, or none to begin with an empty state) and start again",
            path=path,
        )
    )


def store_away(path: Path, holder: str) -> StoreError:
    """Return the error for a file that is not there, although an engine has one."""
    return StoreError(
        Problem(
            code="store-gone",
            message=f"there is no {path.name}, although an engine holds the folder ({holder}); "
            "none is made in its place",
            remedy=f"put {path.name} back where it was, or stop that engine, see to the file (a "
            "backup, or none to begin with an empty state) and start again; of an engine with a "
            "store of its own, ask with that store",
            path=path,
        )
    )


def store_closed(path: Path) -> StoreError:
    """Return the error for a call on a store that is not open."""
    return StoreError(
        Problem(
            code="store-closed",
            message=f"the store {path.name} is not open",
            remedy="use it between `open` and `close`, or inside the engine's `async with`",
            path=path,
        )
    )


def _full(path: Path) -> StoreError:
    return StoreError(
        Problem(
            code="store-full",
            message=f"there is no room left on the disk for {path.name}",
            remedy="free space on that disk (one with space may be out of inodes, see df -i, or of "
            "quota); nothing was half-written, and an engine that runs tries again",
            path=path,
        )
    )


def _failed(path: Path, said: str, *, remedy: str) -> StoreError:
    return StoreError(
        Problem(
            code="store-failed",
            message=f"{path.name} could not be used: {said}",
            remedy=remedy,
            path=path,
        )
    )
