"""How a file that is looked at again and again is known to be as it was.

Theory of operation. A stamp (times, size, inode, device, mode) costs one stat. A second edit within
one tick of the file system's clock leaves no trace in it. So what was read is read once more at the
next look, and the stamp is believed when the same bytes were found under it twice.
"""

import os
from hashlib import sha256
from typing import TypeAlias

import attrs

__all__ = ["LastRead", "Stamp", "stamp_of"]

Stamp: TypeAlias = tuple[int, int, int, int, int, int]


def stamp_of(info: os.stat_result) -> Stamp:
    """What is different about a file after it was written, replaced, or its volume swapped."""
    return (
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_size,
        info.st_ino,
        info.st_dev,
        info.st_mode,
    )


@attrs.frozen(kw_only=True)
class LastRead:
    """What is kept of the last reading of a file; made without arguments, of none."""

    stamp: Stamp | None = None
    digest: bytes = b""
    believed: bool = False

    def holds(self, stamp: Stamp | None) -> bool:
        """Whether a file that has this stamp need not be read again."""
        return self.believed and stamp == self.stamp

    def says(self, data: bytes) -> bool:
        """Whether this is what was read."""
        return sha256(data).digest() == self.digest

    def then(self, stamp: Stamp | None, data: bytes) -> "LastRead":
        """The same for the reading that came after it.

        Args:
            stamp: taken before the file was read; None for a file that changes without a trace in
                it, and is read every time.
            data: what was read.
        """
        return LastRead(
            stamp=stamp,
            digest=sha256(data).digest(),
            believed=stamp is not None and stamp == self.stamp and self.says(data),
        )
