"""A deliverer that writes one line for each intent to a stream or a file."""

import json
import os
from collections.abc import Callable
from datetime import datetime
from functools import partial
from io import FileIO
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Literal, TextIO

import anyio
import attrs
from anyio import CapacityLimiter, to_thread

from drumbeat.core.model import DeliveryIntent, Receipt
from drumbeat.protocols import Deliverer


class StreamDeliverer(Deliverer):
    """Appends one line for each intent, flushed before the delivery counts.

    A line is a JSON object with the fields of `DeliveryIntent` (its fire without the payload), or
    with `format="text"` a line for people: the time in UTC, the automation's name and the text,
    line breaks as ` / ` and control characters as spaces. An intent that may have been delivered
    before has an `attempt` above 1; the line for people says so.

    A file is created for its owner alone, opened for each line, so that it may be moved away, and
    forced to the disk; of a line that cannot be written whole (the disk is full) nothing stays. A
    stream is the host's: it is flushed and never closed. Lines of one deliverer never mix.

    Args:
        target: a text stream such as `sys.stdout`, or the path of a file.
        format: `json` or `text`.

    Raises:
        ValueError: another `format`.
    """

    def __init__(
        self, target: TextIO | str | PathLike[str], *, format: Literal["json", "text"] = "json"
    ) -> None:
        if format not in ("json", "text"):
            msg = f"format must be 'json' or 'text', not {format!r}"
            raise ValueError(msg)
        self._put: Callable[[str], None]
        if isinstance(target, str | PathLike):
            self._put = partial(_append, Path(target).absolute())
        else:
            self._put = partial(_write, target)
        self._line = _json_line if format == "json" else _text_line
        self._one_at_a_time = anyio.Lock()
        self._writing = Lock()

    async def deliver(self, intent: DeliveryIntent, /) -> Receipt:
        """Write the line of `intent`; the receipt's id is the intent's.

        Cancellation returns at once; a line that a stalled reader holds up may then come later.

        Raises:
            OSError: it could not be written.
            ValueError: the stream is closed.
            BlockingIOError: the stream still holds up an earlier line.
        """
        line = self._line(intent)
        async with self._one_at_a_time:
            # A limiter of its own, so that a stalled reader does not use up the host's threads.
            await to_thread.run_sync(
                self._put_alone, line, abandon_on_cancel=True, limiter=CapacityLimiter(1)
            )
        return Receipt(id=intent.id)

    def _put_alone(self, line: str) -> None:
        if not self._writing.acquire(blocking=False):
            msg = "an earlier line is still being written"
            raise BlockingIOError(msg)
        try:
            self._put(line)
        finally:
            self._writing.release()


def _write(stream: TextIO, line: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(line.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _append(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with FileIO(descriptor, "r+") as file:
        left = memoryview(line.encode("utf-8", "backslashreplace"))
        if not _ends_a_line(file):
            left = memoryview(b"\n" + left)
        start, length = os.fstat(descriptor).st_size, len(left)
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(descriptor)
        except BaseException:
            # Half a line would read as a whole one, and the delivery is repeated in any case.
            written = length - len(left)
            if written and os.fstat(descriptor).st_size == start + written:
                file.truncate(start)
            raise


def _ends_a_line(file: FileIO) -> bool:
    """Say whether a line can begin at the end of a file: a crash may have left half of one."""
    size = os.fstat(file.fileno()).st_size
    return size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"


def _json_line(intent: DeliveryIntent) -> str:
    facts = attrs.asdict(
        intent,
        filter=lambda field, _: field.name != "payload",
        value_serializer=lambda _, __, value: (
            value.isoformat() if isinstance(value, datetime) else value
        ),
    )
    return json.dumps(facts) + "\n"


def _text_line(intent: DeliveryIntent) -> str:
    text = " / ".join(line.strip() for line in intent.text.splitlines() if line.strip())
    again = " (may be a repeat)" if intent.attempt > 1 else ""
    line = f"{intent.created_at:%Y-%m-%d %H:%M}Z {intent.name}{again}: {text}"
    return "".join(c if c.isprintable() else " " for c in line) + "\n"
