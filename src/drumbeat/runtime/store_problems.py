"""What SQLite and the disk complain of, in the words of the store."""

import errno
import sqlite3
from pathlib import Path
from typing import Final

from drumbeat.errors import Problem, StoreError

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
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_PRIMARY: Final = 0xFF
"""SQLite keeps the primary code in the lowest byte of an extended one."""


def store_error(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """Translate what went wrong with the file `path`: locked, full, damaged, or else failed."""
    said = str(error)
    if isinstance(error, OSError):
        return _full(path) if error.errno in _FULL else _failed(path, said)
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
    if code == sqlite3.SQLITE_FULL:
        return _full(path)
    if code in _DAMAGED:
        return store_damaged(path, said)
    return _failed(path, said)


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
            remedy="free space on that disk; nothing was half-written, and it is tried again",
            path=path,
        )
    )


def _failed(path: Path, said: str) -> StoreError:
    return StoreError(
        Problem(
            code="store-failed",
            message=f"{path.name} could not be used: {said}",
            remedy="check that the file and its folder exist, may be read and written by the user "
            "that runs the engine, and lie on a local disk",
            path=path,
        )
    )
