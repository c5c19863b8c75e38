"""The log of rotations: `session_rotations.jsonl`, a line for each, and the part before it.

Theory of operation. It is only ever appended to, each line is synced, and a line that a crash tore
is ended by the next one. Whoever writes holds the lock of the folder (`pins.py`).

A log that has grown to 16 MiB is renamed before the next line, over the part that was renamed
before: so an engine that runs for years keeps the last 16 MiB at least, and twice that at most. The
line that was written last therefore stands at the end of `session_rotations.jsonl`, or nowhere.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from drumbeat.runtime.files import sync_folder

__all__ = ["RotationLog"]

_NAME: Final = "session_rotations.jsonl"
_BEFORE: Final = "session_rotations.1.jsonl"
_LARGEST: Final = 16 * 1024 * 1024
_TAIL: Final = 256 * 1024
"""So much of the end is looked at: about a thousand lines."""


@attrs.frozen
class RotationLog:
    """The log in one folder, read and written in the calling thread."""

    folder: Path

    def latest(self, ids: Collection[str], *, last: Mapping[str, Any] | None) -> set[str]:
        """Which of `ids` are among the latest lines; a line that was torn holds none.

        Args:
            ids: of rotations.
            last: the line that was to be written last, whose length is looked at at least.
        """
        size = max(_TAIL, 0 if last is None else len(_encoded(last)) + 1)
        try:
            with (self.folder / _NAME).open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(0, end - size))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return set()
        return {found for _, found in _entries(lines)} & set(ids)

    def last_of_each(self) -> dict[str, str]:
        """The id of the last rotation of each slug, from all that there is."""
        found: dict[str, str] = {}
        for name in (_BEFORE, _NAME):
            try:
                with (self.folder / name).open("rb") as file:
                    found.update(_entries(file))
            except FileNotFoundError:
                continue
        return found

    def append(self, line: Mapping[str, Any] | None) -> None:
        """Make the log end with a whole line, `line` if it is given, and sync it."""
        path = self.folder / _NAME
        content = b"" if line is None else _encoded(line)
        if content and _size(path) >= _LARGEST:
            path.rename(self.folder / _BEFORE)
            sync_folder(self.folder)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(handle, 1, size - 1) != b"\n":
                content = b"\n" + content
            while content:
                content = content[file.write(content) :]
            os.fsync(handle)
        if not size:
            sync_folder(self.folder)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode("ascii") + b"\n"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _entries(lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """The slug and the id of each line that is whole."""
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield str(entry.get("slug")), str(entry.get("id"))
