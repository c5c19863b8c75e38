"""A file's bytes as text, and the places in it."""

import re
from bisect import bisect_right
from pathlib import PurePath

from drumbeat.errors import AutomationError, Problem

__all__ = ["MAX_BYTES", "Places", "decode", "file_refusal"]

MAX_BYTES = 1024 * 1024
"""The largest file that is read (spec, section 3)."""


class Places:
    """Turns an index into a text into the line and column of the file.

    Args:
        text: the text, with LF or CRLF line ends.
        first_line: the 1-based line of the file on which it begins.
    """

    def __init__(self, text: str, first_line: int) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._first_line = first_line

    def at(self, index: int) -> tuple[int, int]:
        """The 1-based line and column of the character at `index`."""
        row = bisect_right(self._starts, index) - 1
        return row + self._first_line, index - self._starts[row] + 1


def decode(content: str | bytes, *, path: PurePath | None = None) -> str:
    """Return a file's text, without its byte order mark.

    Raises:
        AutomationError: it is over 1 MiB, not UTF-8, or holds a NUL.
    """
    try:
        raw = content.encode() if isinstance(content, str) else content
        if len(raw) > MAX_BYTES:
            raise file_refusal(
                "file-too-large",
                f"the file has {len(raw):,} bytes, more than {MAX_BYTES:,}",
                "move what is not policy into files that the automation requires",
                "",
                path,
            )
        text = raw.decode()
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        good = content[: error.start]
        raise file_refusal(
            "not-utf8",
            "the file is not UTF-8 here",
            "save it as UTF-8",
            good if isinstance(good, str) else good.decode(),
            path,
        ) from error
    text = text.removeprefix("\ufeff")
    nul = text.find("\x00")
    if nul >= 0:
        raise file_refusal(
            "nul-byte",
            "the file holds a NUL byte, so it is no text",
            "take it out, or save the file anew as UTF-8 text",
            text[:nul],
            path,
        )
    return text


def file_refusal(
    code: str, message: str, remedy: str, before: str, path: PurePath | None
) -> AutomationError:
    """Make the error of a file that is refused as a whole, at the end of the text `before`."""
    before = before.removeprefix("\ufeff")
    line_start = before.rfind("\n") + 1
    return AutomationError(
        [
            Problem(
                code=code,
                message=message,
                remedy=remedy,
                path=path,
                line=before.count("\n") + 1,
                column=len(before) - line_start + 1,
            )
        ]
    )
