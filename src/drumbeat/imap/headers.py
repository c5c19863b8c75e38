"""A block of headers as a server gives it, split so that nothing a sender hides in it is missed."""

import re
from collections.abc import Sequence

__all__ = ["Headers", "message_id", "parse_headers"]

Headers = tuple[tuple[str, str], ...]

_FIELD = re.compile(rb"([^\s:][^:\r\n]*):(.*)", re.DOTALL)
_LONGEST_ID = 255
_ID = re.compile(rf"<[!-;=?-~]{{1,{_LONGEST_ID}}}>")


def parse_headers(block: bytes) -> Headers:
    """Split a block of headers into names and values, in order, up to the first empty line.

    A folded value becomes one line. Bytes beyond ASCII are read as UTF-8, or as Latin-1 where they
    are not. Lines that are no header are passed over, and what follows them is read: a program that
    stops there must not see fewer senders than one that goes on.
    """
    fields: list[list[bytes]] = []
    for line in re.split(rb"\r?\n", block):
        if not line:
            break
        if line[:1] in (b" ", b"\t") and fields:
            fields[-1].append(line)
        else:
            fields.append([line])
    found = (_FIELD.fullmatch(b"".join(lines)) for lines in fields)
    return tuple((_text(each[1]), _text(each[2]).strip()) for each in found if each is not None)


def message_id(headers: Sequence[tuple[str, str]]) -> str | None:
    """The one Message-ID, or None where there is none, several, or one that is out of shape."""
    ids = [value for name, value in headers if name.strip().lower() == "message-id"]
    return ids[0] if len(ids) == 1 and _ID.fullmatch(ids[0]) else None


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
