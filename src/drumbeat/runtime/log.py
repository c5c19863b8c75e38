"""The log of the engine, which never gets in the way of what it tells of."""

from itertools import islice
from traceback import TracebackException
from typing import Any

import attrs
import structlog

from drumbeat.core.redaction import Redactor

_LONGEST_PART = 4096
"""Characters of what one exception in a traceback says: behind it stand the others."""
_LONGEST_TRACE = 256 * 1024
"""Characters of a traceback: each line of a note is a part, and there may be millions of them."""


@attrs.frozen
class Log:
    """Lines with a fixed event name and facts, written by structlog as the host configured it.

    No method raises an `Exception`: where the lines go is the host's, and its disk can be full, its
    reader gone, or its stream unable to encode a name. A line that cannot be written is dropped.
    """

    name: str

    def info(self, event: str, /, **facts: Any) -> None:
        """Say what is as it should be."""
        self._write("info", event, facts)

    def warning(self, event: str, /, **facts: Any) -> None:
        """Say what was made up for."""
        self._write("warning", event, facts)

    def error(self, event: str, /, **facts: Any) -> None:
        """Say what somebody has to look at."""
        self._write("error", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        try:
            # Asked for each time: a host may configure structlog at any time, a test does.
            getattr(structlog.get_logger(self.name), level)(event, **facts)
        except Exception:  # noqa: BLE001, S110
            # There is nowhere left to say so, and no run and no host may end for want of a line:
            # what the lines tell of stands in the store, in events and in `status()` as well.
            pass


log: Log = Log("drumbeat")
"""The one log of drumbeat."""


def traced(error: BaseException, redactor: Redactor) -> str:
    """Where an exception came from, for a line: redacted, which `exc_info` is not."""
    try:
        parts: list[str] = []
        length = 0
        for part in TracebackException.from_exception(error, compact=True).format():
            parts.append(part)
            length += min(len(part), _LONGEST_PART)
            # What is behind the end is only there for a secret that begins before it.
            if length > _LONGEST_TRACE + redactor.reach:
                break
        text = "".join(_part(parts, at, redactor) for at in range(len(parts)))
        if len(text) <= _LONGEST_TRACE:
            return redactor.text(text)
        return f"{redactor.head(text, _LONGEST_TRACE)} …\n"
    except Exception:  # noqa: BLE001  an exception of a host's own may break in any of its parts
        return "the traceback cannot be read"


def _part(parts: list[str], at: int, redactor: Redactor) -> str:
    if len(parts[at]) <= _LONGEST_PART:
        return parts[at]
    # Never within a secret, which may go on in the lines of a note that follow.
    until, seen = _LONGEST_PART + redactor.reach, ""
    for part in islice(parts, at, None):
        seen += part[:until]
        if len(seen) >= until:
            break
    return f"{redactor.head(seen, _LONGEST_PART)} …\n"
