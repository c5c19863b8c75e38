"""What an author most likely did when YAML cannot be read, or reads as something else."""

import re

import attrs

ODD_SPACES = "\u00a0\u1680\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff"
"""Characters that look like a space, or like nothing, and are none to YAML; a regex class body."""

_SMART_QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a"
_QUOTED_SMARTLY = re.compile(rf"[{_SMART_QUOTES}][^{_SMART_QUOTES}]*[{_SMART_QUOTES}]")
_ODD_SPACE = re.compile(f"[{ODD_SPACES}]")
# Where YAML looks for structure: the indentation, and what stands right behind a `:` or a `-`.
_TAB_IN_STRUCTURE = re.compile(r"^[ ]*(?:- *)?(?:[^\s:#'\"]{1,100}:)?[ ]*(\t)")
_ODD_IN_STRUCTURE = re.compile(rf"(?:^[ ]*(?:- *)?|^[^:#]{{0,100}}[:-][ ]*)([{ODD_SPACES}])")
_SMART_VALUE = re.compile(rf"^(?:[ ]*(?:- +)?|[^\"'#]{{0,200}}[:\[{{,][ ]*)([{_SMART_QUOTES}])")
_SECOND_COLON = re.compile(r"^[ ]*(?:- +)*[^\s:#][^:]{0,100}:[ ]+(\S)")
# What is longer is no name that anybody gave, and no message that anybody reads.
_ALIAS = re.compile(r"[*&][A-Za-z0-9_-]{1,64}(?=[\s,\]}]|$)")

QUOTE_IT = "put quotes around it"
RETYPE_SPACE = "delete it and type an ordinary space"
NO_SMART_QUOTES = "use straight quotes, ' or \", or no quotes"


@attrs.frozen(kw_only=True)
class Trap:
    """A diagnosis: `index` counts characters in the YAML text."""

    code: str
    message: str
    remedy: str
    index: int


def indicator_trap(text: str, index: int) -> Trap:
    """Explain a value that begins with a `*` or `&`: an alias or anchor, or text without quotes."""
    char = text[index]
    match = _ALIAS.match(text, index)
    if match is None:
        return _unquoted(char, index)
    code, what = ("yaml-alias", "an alias") if char == "*" else ("yaml-anchor", "an anchor")
    return Trap(
        code=code,
        message=f"{match[0]!r} is {what} to YAML, and those are not accepted",
        remedy=f"write the value out where it is needed; if {match[0]!r} is text, {QUOTE_IT}",
        index=index,
    )


def plain_trap(text: str) -> tuple[str, str, str] | None:
    """Judge an unquoted text that YAML reads, though hardly as its author meant it.

    Returns:
        Code, message and remedy, or None.
    """
    if _QUOTED_SMARTLY.fullmatch(text):
        return (
            "smart-quotes",
            "typographic quotes around a value are part of its text, they do not quote it",
            NO_SMART_QUOTES,
        )
    if text and (_ODD_SPACE.match(text[0]) or _ODD_SPACE.match(text[-1])):
        return (
            "no-break-space",
            "a no-break space (or another invisible character) stands at the edge of this text",
            RETYPE_SPACE,
        )
    return None


def syntax_trap(text: str, said: str, index: int, context: int | None) -> Trap:
    """Turn a parser's complaint into what the author has to mend.

    Args:
        text: the YAML text, with LF line ends.
        said: the parser's own words for the problem.
        index: where it noticed, in characters.
        context: where the thing began that it could not finish, in characters.
    """
    index = min(index, len(text))
    for start in _suspects(text, index, context):
        trap = _structure_trap(text, start)
        if trap is not None:
            return trap
    if "mapping values are not allowed" in said:
        return _second_colon(text, index)
    if "cannot start any token" in said:
        return _stray_character(text, index)
    if "found another document" in said or "expected '<document start>'" in said:
        return several_documents(index)
    for words, at_context, message, remedy in _COMPLAINTS:
        if words in said:
            where = context if at_context and context is not None else index
            return Trap(code="yaml-syntax", message=message, remedy=remedy, index=where)
    return Trap(
        code="yaml-syntax",
        message="this does not line up with what stands above it",
        remedy="indent the keys of one mapping, and the dashes of one list, alike and with spaces",
        index=index,
    )


def several_documents(index: int) -> Trap:
    """Explain a second document."""
    return Trap(
        code="yaml-several-documents",
        message="a second YAML document begins here",
        remedy="keep one document: take out the line that ends the first one",
        index=index,
    )


# What the parser says, whether to point where the unfinished thing began, and what it means.
_COMPLAINTS = (
    (
        "could not find expected ':'",
        True,
        "this line is neither `key: value` nor a list item",
        "put a colon and a space behind the key, or indent the line under the key it belongs to",
    ),
    (
        "found unexpected end of stream",
        True,
        "the quote that opens here is never closed",
        "close it; inside '…' write a quote twice, inside \"…\" put a backslash before it",
    ),
    (
        "found unexpected document separator",
        True,
        "the quote that opens here is never closed",
        "close it before the end of the front matter",
    ),
    (
        "escape",
        False,
        "a backslash inside double quotes begins an escape, and this is none",
        "use single quotes, or write the backslash twice",
    ),
    (
        "found '<scalar>'",
        False,
        "more text stands behind a value that is complete",
        "put one pair of quotes around the whole value",
    ),
    (
        "expected the node content",
        False,
        "a value cannot begin with this character",
        QUOTE_IT,
    ),
    (
        "expected ',' or",
        True,
        "this list or mapping in brackets is never closed, or misses a comma",
        "close the bracket, and put commas between the items",
    ),
    (
        "sequence entries are not allowed here",
        False,
        "a list item cannot begin here",
        "begin each item on a line of its own, below the key of the list",
    ),
    (
        "block scalar",
        True,
        "behind | or > there may be -, + and a number, nothing else",
        "begin the text on the next line, indented",
    ),
)


def _suspects(text: str, index: int, context: int | None) -> list[int]:
    """Starts of the lines worth a look: the context's, the one before, the parser's own."""
    here = _line_start(text, index)
    lines = {here}
    if here:
        before = _line_start(text, here - 1)
        # A deeper line is the inside of a text, where these characters mean themselves.
        if _indentation(_line(text, before)) <= _indentation(_line(text, here)):
            lines.add(before)
    if context is not None:
        lines.add(_line_start(text, context))
    return sorted(lines)


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _line(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start:] if end < 0 else text[start:end]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _structure_trap(text: str, start: int) -> Trap | None:
    line = _line(text, start)
    if match := _TAB_IN_STRUCTURE.search(line):
        return _tab(start + match.start(1))
    if match := _ODD_IN_STRUCTURE.search(line):
        return Trap(
            code="no-break-space",
            message="a no-break space (or another invisible character) stands where YAML "
            "needs an ordinary one",
            remedy=RETYPE_SPACE,
            index=start + match.start(1),
        )
    if match := _SMART_VALUE.search(line):
        return Trap(
            code="smart-quotes",
            message="typographic quotes do not quote anything in YAML",
            remedy=NO_SMART_QUOTES,
            index=start + match.start(1),
        )
    return None


def _tab(index: int) -> Trap:
    return Trap(
        code="tab",
        message="a tab stands where YAML takes spaces only",
        remedy="replace it with spaces; inside a value, put quotes around the value",
        index=index,
    )


def _unquoted(char: str, index: int) -> Trap:
    return Trap(
        code="unquoted-indicator",
        message=f"a value cannot begin with {char} unless it is quoted",
        remedy=QUOTE_IT,
        index=index,
    )


def _stray_character(text: str, index: int) -> Trap:
    char = text[index : index + 1]
    return _tab(index) if char == "\t" else _unquoted(char, index)


def _second_colon(text: str, index: int) -> Trap:
    start = _line_start(text, index)
    match = _SECOND_COLON.match(text[start:index])
    if match is None:
        return Trap(
            code="yaml-syntax",
            message="a key cannot stand here: the line above is text without a colon, or has its "
            "value already",
            remedy="line the key up with the others of its mapping, or mend the line above",
            index=index,
        )
    return Trap(
        code="colon-in-value",
        message="a colon and a space inside an unquoted value begin another key",
        remedy=f"{QUOTE_IT}, or move the text below the key with `>-`",
        index=start + match.start(1),
    )
