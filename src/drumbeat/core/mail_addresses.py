"""Addresses in mail headers, read so that there is one answer or none.

Theory. Whoever forges a header looks for two programs that read it differently. So what RFC 5322
(section 3.4) says plainly is read, and what readers are known to disagree about (an @ outside the
angle brackets, spaces or encoded words inside an address, brackets within brackets, routes) makes
that mailbox `doubtful`, never a guess. The standard library's parser is not asked: which address
it finds in such a header differs between patch releases of one Python version.
"""

import re
from collections.abc import Iterator
from email.errors import HeaderParseError
from email.header import decode_header
from typing import TypeAlias

import attrs

__all__ = ["Mailbox", "ascii_lower", "decoded", "mailboxes"]

_ATOM = re.compile(r"[^\s\"(),.:;<>@\[\]\\]+")
_DOMAIN = re.compile(r"[^\s\"(),:;<>@\[\]\\]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_DOT_ATOM = re.compile(r"[^\s\"(),.:;<>@\[\]\\]+(?:\.[^\s\"(),.:;<>@\[\]\\]+)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_LONGEST_SHOWN = 2_000
_UPPER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

_Token: TypeAlias = tuple[str, str]
"""Its kind (`"`, `word`, `space`, or the special character itself) and its text."""


@attrs.frozen(kw_only=True)
class Mailbox:
    """One entry of an address header.

    `address` is `local@domain` as written, with the quotes of a local part only where they are
    needed; "" when none can be told. `name` is the display name as written. `doubtful` tells an
    entry that other readers may see another address in.
    """

    address: str
    name: str
    doubtful: bool = False


_DOUBTFUL = Mailbox(address="", name="", doubtful=True)
_FEWEST = 3
"""Tokens of an address: the name of a mailbox, the sign, a domain."""


def ascii_lower(text: str) -> str:
    """Lower-case ASCII letters and nothing else: to Unicode, a Kelvin sign is a `k`."""
    return text.translate(_UPPER)


def decoded(raw: str) -> str:
    """A header's text for people: unfolded, encoded words decoded, without control characters.

    What cannot be decoded stays as it is, or is shown with U+FFFD. At most the first 2,000
    characters of `raw` are looked at.
    """
    raw = _CONTROL.sub(" ", raw[:_LONGEST_SHOWN])
    try:
        parts = decode_header(raw)
    except HeaderParseError:
        return raw.strip()
    text = "".join(
        part if isinstance(part, str) else _decoded_bytes(part, charset) for part, charset in parts
    )
    return _CONTROL.sub(" ", text).strip()


def _decoded_bytes(part: bytes, charset: str | None) -> str:
    try:
        # What stands between encoded words comes back as bytes in this form.
        return part.decode(charset or "raw-unicode-escape", "replace")
    except (LookupError, ValueError):
        return part.decode("ascii", "replace")


def mailboxes(raw: str) -> tuple[Mailbox, ...]:
    """Read an address header: every entry, doubtful ones included, groups opened.

    Args:
        raw: the header's value, folded or not.
    """
    found: list[Mailbox] = []
    entry: list[_Token] = []
    depth = 0
    specific = False
    for token in (*_tokens(raw), ("end", "")):
        kind = token[0]
        if kind == "end" or (kind in (",", ";") and depth <= 0):
            mailbox = _mailbox(entry)
            if mailbox is not None:
                found.append(mailbox)
            entry, depth, specific = [], 0, False
        elif kind == ":" and not specific:
            entry = []  # a group's name
        else:
            entry.append(token)
            depth += (kind == "<") - (kind == ">")
            specific = specific or kind in ("<", "@")
    return tuple(found)


def _tokens(raw: str) -> Iterator[_Token]:
    at = 0
    while at < len(raw):
        char = raw[at]
        if char == '"':
            match = _QUOTED.match(raw, at)
            if match is None:
                yield "broken", raw[at:]
                return
            yield '"', re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL)
            at = match.end()
        elif char == "(":
            end = _comment_end(raw, at)
            if end is None:
                yield "broken", raw[at:]
                return
            yield "space", " "
            at = end
        elif char.isspace():
            yield "space", " "
            at += 1
        else:
            word = _ATOM.match(raw, at)
            text = char if word is None else word[0]
            yield ("word" if word else char), text
            at += len(text)


def _comment_end(raw: str, at: int) -> int | None:
    depth = 0
    while at < len(raw):
        if raw[at] == "\\":
            at += 1
        elif raw[at] == "(":
            depth += 1
        elif raw[at] == ")":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return None


def _mailbox(entry: list[_Token]) -> Mailbox | None:
    """Read the tokens of one entry; None where there are none to speak of."""
    entry = _trimmed(entry)
    if not entry:
        return None
    kinds = [kind for kind, _ in entry]
    if "@" not in kinds and "<" not in kinds:
        return _DOUBTFUL
    if "<" not in kinds:
        # A header may have tens of thousands of entries that are too short for an address.
        return _spec(entry, "") if len(entry) >= _FEWEST else _DOUBTFUL
    begin = kinds.index("<")
    name, inside = _trimmed(entry[:begin]), entry[begin + 1 :]
    shown = "".join(text for _, text in name)
    closed = bool(inside) and inside[-1][0] == ">"
    mailbox = _spec(_trimmed(inside[:-1] if closed else inside), shown)
    # An address before the brackets is one to some readers, unless it is the same one.
    outside = any(kind == "@" for kind, _ in name) and ascii_lower(shown) != ascii_lower(
        mailbox.address
    )
    odd = not closed or outside or any(kind in ("broken", "<", ">") for kind, _ in name)
    return Mailbox(address=mailbox.address, name=mailbox.name, doubtful=True) if odd else mailbox


def _trimmed(tokens: list[_Token]) -> list[_Token]:
    begin, end = 0, len(tokens)
    while begin < end and tokens[begin][0] == "space":
        begin += 1
    while end > begin and tokens[end - 1][0] == "space":
        end -= 1
    return tokens[begin:end]


def _spec(tokens: list[_Token], name: str) -> Mailbox:
    """Read `local@domain`, which stands alone or between angle brackets."""
    doubtful = Mailbox(address="", name=name, doubtful=True)
    kinds = [kind for kind, _ in tokens]
    if kinds.count("@") != 1 or "broken" in kinds:
        return doubtful
    at = kinds.index("@")
    local, domain = tokens[:at], "".join(text for _, text in tokens[at + 1 :])
    if kinds[:at] == ['"']:
        inner = local[0][1]
        text = inner if _DOT_ATOM.fullmatch(inner) else f'"{inner}"'
    else:
        text = "".join(part for _, part in local)
        if not _DOT_ATOM.fullmatch(text) or '"' in kinds[:at]:
            return doubtful
    encoded = "=?" in text or "=?" in domain
    if encoded or not _DOMAIN.fullmatch(domain) or '"' in kinds[at:]:
        return doubtful
    return Mailbox(address=f"{text}@{domain}", name=name)
