"""Webhook filters: a small expression over a JSON payload, read strictly, compared as text."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NoReturn, TypeAlias

import attrs

from drumbeat.core.json_parts import MOST_PARTS, has_more_parts
from drumbeat.core.messages import quoted, shown
from drumbeat.errors import InvalidValue, Problem

__all__ = [
    "Comparison",
    "Filter",
    "TooManyParts",
    "doubtful_values",
    "parse_filter",
    "read_payload",
]

Operator: TypeAlias = Literal["==", "!=", "~="]

_JOINT = re.compile(r" (&&|\|\|) ")
_UNSPACED = re.compile(r"&&|\|\|")
_OPERATOR = re.compile(r"[=!~]=")
_NEAR_OPERATOR = re.compile(r"=~|<=|>=|<>|[=<>~!]")
_INNER_OPERATOR = re.compile(r"(?<=\S)\s*[=!~]=\s*(?=[^\s=])")
_INNER_JOINT = re.compile(r"(?<=\s)(?:and|or)(?=\s)|[,;]", re.IGNORECASE)
_KEY = re.compile(r"[^\s.=!~<>&|()\[\]\"']+")
_INDEX = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)
_FORMS = "`path==value`, `path!=value` or `path~=value`, joined by ` && ` and ` || `"
_QUOTES = ('"', "'")


_KNOWN_NUMBERS = 10_000
"""So many numbers of one body are known again."""


class TooManyParts(ValueError):  # noqa: N818  a signal between rooms, never shown to a host
    """A body has more lists and objects than are read."""


class _Number(str):
    """A JSON number as it is written: `1.50` is not `1.5` to a comparison of texts."""

    __slots__ = ()


@attrs.frozen(kw_only=True)
class Comparison:
    """One comparison: the way to a value in the payload, an operator, and a text.

    `column` is where the text begins in the filter; it is no part of what the comparison means.
    """

    path: tuple[str, ...]
    operator: Operator
    value: str
    column: int = attrs.field(default=1, eq=False)

    def holds(self, payload: Any) -> bool:
        """Whether it holds for a payload. What is missing equals and contains nothing."""
        text = _text_at(payload, self.path)
        if self.operator == "!=":
            return text != self.value
        if text is None:
            return False
        return self.value in text if self.operator == "~=" else text == self.value


@attrs.frozen(kw_only=True)
class Filter:
    """A filter: it matches when all comparisons of any one of its alternatives hold."""

    alternatives: tuple[tuple[Comparison, ...], ...]

    def matches(self, payload: Any) -> bool:
        """Whether a payload passes.

        Args:
            payload: what `read_payload` returned, or any value made of JSON's kinds.
        """
        return any(all(each.holds(payload) for each in every) for every in self.alternatives)


@lru_cache(maxsize=1024)
def parse_filter(text: str) -> Filter:
    """Read a filter (spec, section 13.1).

    A comparison is a dot path, `==`, `!=` or `~=` (contains), and a text without quotes; a number
    in the path is an index into a list. ` && ` binds tighter than ` || `, and the spaces around
    them are what splits the expression.

    >>> from drumbeat.core.filters import parse_filter
    >>> draft = parse_filter("action==opened && pull_request.draft==false")
    >>> draft.matches({"action": "opened", "pull_request": {"draft": False}})
    True

    Args:
        text: the expression.

    Raises:
        InvalidValue: it is malformed (code `filter-syntax`); `problem.column` counts within it.
    """
    alternatives: list[tuple[Comparison, ...]] = []
    every: list[Comparison] = []
    start = 0
    for joint in (*_JOINT.finditer(text), None):
        end = len(text) if joint is None else joint.start()
        every.append(_comparison(text, start, end))
        if joint is None or joint[1] == "||":
            alternatives.append(tuple(every))
            every = []
        start = end if joint is None else joint.end()
    return Filter(alternatives=tuple(alternatives))


def doubtful_values(expression: Filter) -> Iterator[Problem]:
    """Texts that look like a second comparison, or like several values.

    By the grammar all of `1 and b==2` is what `a==1 and b==2` compares `a` with, so it may be
    meant, and hardly ever is. Lists and objects are left alone: compact JSON has commas.

    Args:
        expression: what `parse_filter` returned.

    Yields:
        One problem for each such text; its column counts in the filter.
    """
    for comparison in (each for every in expression.alternatives for each in every):
        value = comparison.value
        if value[0] in "[{":
            continue
        found = _INNER_JOINT.search(value) or _INNER_OPERATOR.search(value)
        if found is None:
            continue
        path = ".".join(comparison.path)
        yield Problem(
            code="filter-value-doubtful",
            message=f"{quoted(value)} is one text, `{found[0].strip()}` and all that follows "
            f"included, with which `{shown(path)}` is compared",
            remedy="join comparisons by ` && ` or ` || `, each with a path of its own; nothing is "
            "wrong if the whole text is meant",
            column=comparison.column,
        )


def read_payload(body: bytes) -> Any:
    """Read a request's body as JSON, keeping the spelling of its numbers.

    A number that comes again is mostly the same object: a body may be made of nothing else, and
    each object takes many times the room of its digits.

    Raises:
        TooManyParts: it has more than `MOST_PARTS` lists and objects. A `ValueError` as well.
        ValueError: it is no JSON in UTF-8 (RFC 8259), or is nested too deeply to be read.
    """
    if has_more_parts(body, MOST_PARTS):
        raise TooManyParts
    known: dict[str, _Number] = {}

    def number(text: str) -> _Number:
        found = known.get(text)
        if found is None:
            found = _Number(text)
            if len(known) < _KNOWN_NUMBERS:
                known[text] = found
        return found

    try:
        return json.loads(
            body.decode("utf-8-sig"),
            parse_int=number,
            parse_float=number,
            parse_constant=_refuse_constant,
        )
    except RecursionError as error:
        msg = "nested too deeply"
        raise ValueError(msg) from error


def _refuse_constant(word: str) -> NoReturn:
    msg = f"{word} is no JSON"
    raise ValueError(msg)


# ---- reading


def _comparison(text: str, start: int, end: int) -> Comparison:
    part = text[start:end]
    unspaced = _UNSPACED.search(part)
    if unspaced is not None:
        sign = unspaced[0]
        _refuse(
            f"`{sign}` needs a space on both sides, and a comparison on both sides",
            f"write `a==1 {sign} b==2`",
            start + unspaced.start(),
        )
    begin = start + len(part) - len(part.lstrip())
    part = part.strip()
    if not part:
        _refuse("a comparison is missing here", f"write {_FORMS}", min(start, len(text)))
    operator = _OPERATOR.search(part)
    near = _NEAR_OPERATOR.search(part)
    if operator is None or (near is not None and near.start() < operator.start()):
        _refuse_operator(part, begin, near)
    path = _path(part[: operator.start()].rstrip(), begin)
    value = part[operator.end() :].lstrip()
    at = begin + len(part) - len(value)
    if not value:
        _refuse(
            f"no value stands behind `{operator[0]}`",
            "write the text that is compared; an empty one cannot be",
            begin + operator.start(),
        )
    if value.startswith(("=", "~")):
        sign = f"{operator[0]}{value[0]}"
        _refuse(f"`{sign}` is no operator", f"write {_FORMS}", begin + operator.start())
    if len(value) > 1 and value[0] == value[-1] and value[0] in _QUOTES:
        _refuse(
            "quotes are part of the text that is compared, so this hardly ever matches",
            f"write {shown(value[1:-1])} without quotes",
            at,
        )
    return Comparison(path=path, operator=_OPERATORS[operator[0]], value=value, column=at + 1)


_OPERATORS: Mapping[str, Operator] = {"==": "==", "!=": "!=", "~=": "~="}


def _path(path: str, begin: int) -> tuple[str, ...]:
    if not path:
        _refuse("no path stands before the operator", f"write the path of a value: {_FORMS}", begin)
    keys = path.split(".")
    at = begin
    for key in keys:
        if not _KEY.fullmatch(key) or (key == "$" and at == begin):
            _refuse(f"{quoted(path)} is no path into the payload", _mend_path(path, key), at)
        at += len(key) + 1
    return tuple(keys)


def _mend_path(path: str, key: str) -> str:
    if path.startswith("$."):
        return "leave out `$.`: a path begins with a key"
    if "[" in key:
        return "write an index as a key of its own, such as `commits.0.id`"
    if "(" in key or ")" in key:
        return "take the parentheses out: `&&` binds tighter than `||`, and that is all there is"
    return "write keys and list indices joined by dots, such as `pull_request.labels.0.name`"


def _refuse_operator(part: str, begin: int, near: re.Match[str] | None) -> NoReturn:
    if near is None:
        _refuse(f"{quoted(part)} compares nothing", f"write {_FORMS}", begin)
    remedy = {"=": "write `==`", "=~": "write `~=` for contains", "~": "write `~=` for contains"}
    _refuse(
        f"`{near[0]}` is no operator", remedy.get(near[0], f"write {_FORMS}"), begin + near.start()
    )


def _refuse(message: str, remedy: str, index: int) -> NoReturn:
    raise InvalidValue(
        Problem(code="filter-syntax", message=message, remedy=remedy, column=index + 1)
    )


# ---- looking into a payload


def _text_at(payload: Any, path: tuple[str, ...]) -> str | None:
    """The text of the value that a path leads to, None where it leads nowhere."""
    value = payload
    for key in path:
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif _is_list(value) and _INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value if isinstance(value, str) else _json(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _json(value: Any) -> str:
    """Write a value as compact JSON.

    It keeps a list of what is left to write instead of calling itself: a payload may be nested
    more deeply than calls can be.
    """
    parts: list[str] = []
    left: list[tuple[bool, Any]] = [(True, value)]
    while left:
        is_value, item = left.pop()
        if not is_value or isinstance(item, _Number):
            parts.append(item)
        elif isinstance(item, Mapping):
            parts.append("{")
            left.append((False, "}"))
            for place, (key, inner) in reversed(list(enumerate(item.items()))):
                comma = "," if place else ""
                name = json.dumps(str(key), ensure_ascii=False)
                left += [(True, inner), (False, f"{comma}{name}:")]
        elif _is_list(item):
            parts.append("[")
            left.append((False, "]"))
            for place, inner in reversed(list(enumerate(item))):
                left.append((True, inner))
                left += [(False, ",")] if place else []
        else:
            parts.append(json.dumps(item, ensure_ascii=False, default=str))
    return "".join(parts)
