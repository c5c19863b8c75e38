"""What the receiving server found out about a message's sender (RFC 8601)."""

import re
from collections.abc import Sequence
from typing import Literal

__all__ = ["dmarc_result"]

_SPECIAL = re.compile(r'[\\"();]')
_RESULT = re.compile(r"dmarc\s*(?:/\s*\d+\s*)?=\s*([a-z]+)(?![a-z0-9-])", re.IGNORECASE)


def dmarc_result(
    headers: Sequence[tuple[str, str]], authserv_id: str | None
) -> Literal["pass", "fail"] | None:
    """The DMARC result in the topmost Authentication-Results of a server that is trusted.

    Servers put their headers above those that a message came with, so what a sender claims stands
    below. Of the headers that begin with `authserv_id`, the first that speaks of DMARC decides. A
    header that can be read in several ways ends the search.

    Args:
        headers: in the order of the message.
        authserv_id: by what name the receiving server calls itself there; None trusts no header.

    Returns:
        None for any result but `pass` and `fail`: none, an error, a policy of one's own.
    """
    if authserv_id is None:
        return None
    for name, value in headers:
        if name.strip().lower() != "authentication-results":
            continue
        parts = _parts(value)
        if parts is None:
            return None
        server = parts[0].split()
        if not server or server[0].lower() != authserv_id.lower():
            continue
        results = {match[1].lower() for part in parts[1:] if (match := _RESULT.match(part.strip()))}
        if "fail" in results:
            return "fail"
        if results:
            return "pass" if results == {"pass"} else None
    return None


def _parts(value: str) -> list[str] | None:
    """The parts between semicolons, without comments and quotes; None when one never ends."""
    parts: list[list[str]] = [[]]
    depth, at, quoted = 0, 0, False
    while match := _SPECIAL.search(value, at):
        plain = value[at : match.start()]
        char, at = match[0], match.end()
        if not depth:
            parts[-1].append(plain)
        if char == "\\":
            if not depth:
                parts[-1].append(value[at : at + 1])
            at += 1
        elif quoted or (char == '"' and not depth):
            quoted = quoted != (char == '"')
            if char != '"':
                parts[-1].append(char)
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth < 0:
                return None
        elif char == ";" and not depth:
            parts.append([])
    if depth or quoted:
        return None
    parts[-1].append(value[at:])
    return ["".join(each) for each in parts]
