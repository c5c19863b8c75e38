"""The small file in which an engine says that it lives, and what is wrong with it.

Theory of operation. What stands in the store says nothing while the store is in trouble, and
nothing of an engine that was killed. So the holder of a data folder writes `engine.json` beside the
lock: when its faults change, as it begins to drain, and each minute. The file is overwritten in
place and keeps its size, since a disk that is full takes no other file; who reads it in that
instant reads again. It is not synced: after a power cut it may be older, never wrong for what it is
used for.
"""

import json
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import attrs

from drumbeat.errors import Problem

__all__ = ["NAME", "SignOfLife", "read_sign", "write_sign"]

NAME: Final = "engine.json"
_VERSION: Final = 1
_SIZE: Final = 4096
"""The file's size is a multiple of this, one block of most disks."""
_LOOKS: Final = 3


@attrs.frozen(kw_only=True)
class SignOfLife:
    """What an engine wrote of itself: who it is, when, whether it drains, what is wrong with it."""

    holder: str
    at: datetime
    faults: tuple[Problem, ...] = ()
    draining: bool = False


def write_sign(data_dir: Path, sign: SignOfLife) -> None:
    """Write the file; blocks on the disk.

    Raises:
        OSError: it cannot be written.
    """
    value = {
        "version": _VERSION,
        "holder": sign.holder,
        "at": sign.at.isoformat(),
        "draining": sign.draining,
        "faults": [
            {"code": fault.code, "message": fault.message, "remedy": fault.remedy}
            for fault in sign.faults
        ],
    }
    body = json.dumps(value).encode() + b"\n"
    size = -(-len(body) // _SIZE) * _SIZE
    handle = os.open(data_dir / NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.pwrite(handle, body.ljust(size), 0)
        os.ftruncate(handle, size)
    finally:
        os.close(handle)


def read_sign(data_dir: Path) -> SignOfLife | None:
    """Read the file; None where there is none that can be understood. Blocks on the disk."""
    for _ in range(_LOOKS):
        try:
            return _sign(json.loads((data_dir / NAME).read_bytes()))
        except OSError:
            return None
        except (ValueError, KeyError, TypeError):
            continue  # read in the instant in which it was written
    return None


def _sign(value: Any) -> SignOfLife:
    at = datetime.fromisoformat(value["at"])
    if value["version"] != _VERSION or at.utcoffset() is None:
        raise ValueError(value)
    return SignOfLife(
        holder=str(value["holder"]),
        at=at,
        faults=tuple(_faults(value["faults"])),
        draining=value.get("draining") is True,  # an earlier release says nothing of it
    )


def _faults(values: Iterable[Any]) -> Iterable[Problem]:
    for value in values:
        yield Problem(
            code=str(value["code"]), message=str(value["message"]), remedy=str(value["remedy"])
        )
