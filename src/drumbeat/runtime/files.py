"""Files as such: reading one inside a folder; telling them apart; syncing; what may be wrong."""

import errno
import os
import stat
from pathlib import Path, PurePath
from typing import BinaryIO, Final, Literal, TypeAlias

MAX_FILE = 1024 * 1024
"""Bytes of the largest file that a workspace may ask to be read (spec, section 3)."""

ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says where nothing more can be written for want of room."""

_FREE: Final = "free space on that disk; one with space may be out of inodes (df -i) or of quota"
_REMEDIES: Final = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EROFS: "mount that file system for writing; the system makes one read-only when its disk "
    "has errors",
    errno.EFBIG: "let the engine's process write larger files (ulimit -f)",
    errno.EMFILE: "let the engine's process have more files open (ulimit -n)",
    errno.ENFILE: "let the system have more files open (fs.file-max)",
    errno.ENAMETOOLONG: "choose a folder with a shorter path",
}

FaultKind: TypeAlias = Literal["missing", "outside", "not-a-file", "unreadable"]


class FileFault(Exception):  # noqa: N818  a signal between rooms, never shown to a host
    """A file cannot be read, for the reason that `kind` names; `str()` says what was met."""

    kind: FaultKind

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_inside(folder: Path, name: PurePath) -> bytes:
    """Read a file of `folder`; blocks on the disk.

    Nothing but a regular file is read, and no link out of the folder is followed.

    Args:
        folder: an absolute folder.
        name: relative to `folder`.

    Returns:
        The bytes, at most `MAX_FILE` + 1 of them: whoever gets that many knows it is too large.

    Raises:
        FileFault: there is no such file, it is outside the folder, it is no file, or the system
            does not let it be read.
    """
    if name.is_absolute() or ".." in name.parts:
        raise FileFault("outside", "it is not a path inside the folder")
    path = folder / name
    if "\0" in str(name):
        raise FileFault("unreadable", f"{path} cannot be read: no path holds a null byte")
    try:
        target = path.resolve(strict=True)
        inside = target.is_relative_to(folder.resolve(strict=True))
    except (FileNotFoundError, NotADirectoryError):
        raise FileFault("missing", f"there is no file {path}") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise FileFault("unreadable", f"{path} cannot be read: {error}") from None
    if not inside:
        raise FileFault("outside", f"{path} is a link out of the folder, to {target}")
    try:
        file = open_regular(target)
        if file is None:
            raise FileFault("not-a-file", f"{path} is no regular file")
        with file:
            return file.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise FileFault("missing", f"there is no file {path}") from None
    except OSError as error:
        raise FileFault("unreadable", f"{path} cannot be read: {error.strerror}") from None


def open_regular(path: Path) -> BinaryIO | None:
    """Open a regular file to read it; None where something else stands, also from a moment ago on.

    A pipe that nobody writes to would hold up its reader for ever, and what opens a device may have
    an effect on it: so it is looked at before, and once more when it is open.

    Raises:
        OSError: there is nothing, or a link, or it cannot be opened.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        return None
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    return None


def identity(path: Path) -> tuple[int, int] | None:
    """What tells the file at `path` from one that takes its place; None when there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def remedy_for(error: OSError, otherwise: str) -> str:
    """How to mend what the system says of a disk or a limit; else what is said `otherwise`."""
    return _REMEDIES.get(error.errno or 0, otherwise)


def sync_folder(folder: Path) -> None:
    """Make durable which names stand in a folder; blocks on the disk.

    Raises:
        OSError: it cannot be synced.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
