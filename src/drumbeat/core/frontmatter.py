"""From a file's bytes to its mapping, with the exact place of every key and value.

The one user of `strictyaml`, and inside it of the vendored parser that `strictyaml.parser` builds
on: the schema layer of strictyaml takes quadratic time and reports lines of a document that it has
written anew. Here the strict loader only composes nodes, under bounds, and what strictyaml would
check while building values (a key that stands twice) is checked on the nodes, so that one reading
finds all of it. The package is pinned, and a test holds every name used here.

A text that is no YAML has one problem, the first: behind it nothing can be told. Everything else
is collected.
"""

import re
from pathlib import PurePath
from typing import Any, NoReturn

import attrs
from strictyaml.parser import StrictYAMLLoader
from strictyaml.ruamel.error import MarkedYAMLError
from strictyaml.ruamel.nodes import MappingNode
from strictyaml.ruamel.nodes import Node as ParserNode
from strictyaml.ruamel.nodes import ScalarNode as ParserScalar

from drumbeat.core.file_text import Places, decode, file_refusal
from drumbeat.core.messages import on_lines, quoted
from drumbeat.core.nodes import Entry, ListNode, MapNode, Node, ScalarNode, problem_at
from drumbeat.core.yaml_traps import Trap, indicator_trap, plain_trap, syntax_trap
from drumbeat.errors import AutomationError, Problem

__all__ = [
    "MAX_DEPTH",
    "MAX_LINES",
    "MAX_NODES",
    "Document",
    "FrontMatter",
    "read_front_matter",
    "read_yaml",
]

MAX_DEPTH = 16
"""Levels of mappings and lists, counted apart for the bracketed ones."""
MAX_NODES = 2_000
"""Keys and values of one text."""
MAX_LINES = 20_000
"""Lines of one text: the parser takes a while for each, however short it is."""

_FENCE = "---"
_FENCE_LINE = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
# What no YAML text may hold; NEL, LS and PS are line ends to the parser and to no editor.
_CONTROL = re.compile(
    "[^\t\n\r\x20-\x7e\u00a0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\r(?!\n)"
)
_COLON = re.compile(r"\s*:")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@attrs.frozen(kw_only=True)
class Document:
    """A YAML text that is a mapping.

    `problems` holds what is wrong whatever the keys mean: keys that stand twice, merge keys, text
    that cannot be stored. They refuse the file, together with what its reader finds.
    """

    root: MapNode
    problems: tuple[Problem, ...]


@attrs.frozen(kw_only=True)
class FrontMatter:
    """A file's mapping and what stands below it.

    `text` is the whole file without a byte order mark, `body` everything below the closing `---`
    as it stands, and `body_line` the 1-based line of the file on which it begins.
    """

    root: MapNode
    problems: tuple[Problem, ...]
    text: str
    body: str
    body_line: int


def read_front_matter(
    content: str | bytes, *, path: PurePath | None = None, may_be_empty: bool = False
) -> FrontMatter:
    """Read a file that begins with front matter.

    Args:
        content: the file, as text or as UTF-8 bytes with or without a byte order mark.
        path: the file, for the problems' locations.
        may_be_empty: whether front matter without a key is a mapping without one.

    Raises:
        AutomationError: it is not UTF-8, holds a NUL, is over 1 MiB, does not begin with a line
            `---` or lacks a second one, or what stands between them is no mapping in strict YAML.
    """
    text = decode(content, path=path)
    opening = _FENCE_LINE.match(text)
    if opening is None:
        _refuse_start(text, path)
    start = opening.end()
    closing = _FENCE_LINE.search(text, start)
    if closing is not None:
        document = _parse(
            text[start : closing.start()], first_line=2, path=path, may_be_empty=may_be_empty
        )
        return FrontMatter(
            root=document.root,
            problems=document.problems,
            text=text,
            body=text[closing.end() :],
            body_line=text.count("\n", 0, closing.end()) + 1,
        )
    raise AutomationError(
        [
            Problem(
                code="front-matter-unclosed",
                message="the front matter has no end",
                remedy="put a line `---` below its last key",
                path=path,
                line=1,
                column=1,
            )
        ]
    )


def read_yaml(content: str | bytes, *, path: PurePath | None = None) -> Document:
    """Read a file that is YAML as a whole, under the rules of front matter.

    Args:
        content: the file, as text or as UTF-8 bytes with or without a byte order mark.
        path: the file, for the problems' locations.

    Raises:
        AutomationError: as `read_front_matter`, the `---` lines excepted.
    """
    return _parse(decode(content, path=path), first_line=1, path=path)


def _refuse_start(text: str, path: PurePath | None) -> NoReturn:
    if text.lstrip().startswith(_FENCE):
        remedy = "take out what stands above the `---`, and leave the `---` alone on its line"
    else:
        remedy = "begin the file with a line `---`, then the keys, then another line `---`"
    raise file_refusal("front-matter-missing", "the first line is not `---`", remedy, "", path)


# ---- from the parser's nodes to ours


class _Stop(Exception):  # noqa: N818  a signal inside this file, always translated
    """The loader met something that is refused wherever it stands."""

    def __init__(self, trap: Trap) -> None:
        super().__init__(trap)
        self.trap = trap


class _Loader(StrictYAMLLoader):  # type: ignore[misc]  # strictyaml has no types
    """The strict loader under bounds, refusing at the place itself what it would refuse later."""

    label = ""
    allow_flow_style = True

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text
        self._depth = 0
        self._nodes = 0

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: Any) -> None:  # noqa: N803
        if len(self.flow_context) >= MAX_DEPTH:
            raise _Stop(_too_complex(self.index))
        super().fetch_flow_collection_start(TokenClass, to_push)

    def fetch_alias(self) -> NoReturn:
        raise _Stop(indicator_trap(self._text, self.index))

    def fetch_anchor(self) -> NoReturn:
        raise _Stop(indicator_trap(self._text, self.index))

    def fetch_tag(self) -> NoReturn:
        raise _Stop(
            Trap(
                code="yaml-tag",
                message="a value that begins with ! is a tag to YAML, and those are not accepted",
                remedy="if it is text, put quotes around it, else take it out",
                index=self.index,
            )
        )

    def fetch_directive(self) -> NoReturn:
        raise _Stop(
            Trap(
                code="yaml-directive",
                message="a line that begins with % is a directive to YAML, and those are not "
                "accepted",
                remedy="take the line out",
                index=self.index,
            )
        )

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._nodes += 1
        self._depth += 1
        if self._nodes > MAX_NODES or self._depth > MAX_DEPTH:
            raise _Stop(_too_complex(self.peek_event().start_mark.index))
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _too_complex(index: int) -> Trap:
    return Trap(
        code="yaml-too-complex",
        message=f"more than {MAX_DEPTH} levels, {MAX_NODES:,} keys and values or "
        f"{MAX_LINES:,} lines",
        remedy="make it smaller: lists and mappings this large belong in a file of their own",
        index=index,
    )


def _parse(
    text: str, *, first_line: int, path: PurePath | None, may_be_empty: bool = False
) -> Document:
    control = _CONTROL.search(text)
    if control is None:
        text = text.replace("\r\n", "\n")
    places = Places(text, first_line)
    if control is not None:
        raise AutomationError([_control_problem(control, places, path)])
    try:
        if text.count("\n") > MAX_LINES:
            raise _Stop(_too_complex(len(text) - len(text.split("\n", MAX_LINES)[-1])))
        node = _compose(text)
    except _Stop as stop:
        raise AutomationError([_problem(stop.trap, places, path)]) from stop
    if node is None and may_be_empty:
        return Document(root=MapNode(entries=(), line=first_line, column=1), problems=())
    reader = _NodeReader(text, places, path)
    if not isinstance(node, MappingNode):
        line, column = places.at(0 if node is None else node.start_mark.index)
        raise AutomationError(
            [
                Problem(
                    code="yaml-not-a-mapping",
                    message="there are no keys here" if node is None else "this is no mapping",
                    remedy="write `key: value` lines",
                    path=path,
                    line=line,
                    column=column,
                )
            ]
        )
    root = reader.mapping(node)
    return Document(root=root, problems=tuple(reader.problems))


def _compose(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    except _Stop:
        raise
    except MarkedYAMLError as error:
        mark, context = error.problem_mark, error.context_mark
        trap = syntax_trap(
            text,
            f"{error.context} {error.problem}",
            loader.index if mark is None else mark.index,
            None if context is None else context.index,
        )
        raise _Stop(trap) from error
    except Exception as error:
        # An escape beyond Unicode is a ValueError, and the parser is known for AssertionError,
        # TypeError and others of the kind. Whatever the text is, its author gets a place.
        said = "escape" if isinstance(error, ValueError) else ""
        raise _Stop(syntax_trap(text, said, loader.index, None)) from error


def _problem(trap: Trap, places: Places, path: PurePath | None) -> Problem:
    line, column = places.at(trap.index)
    return Problem(
        code=trap.code,
        message=trap.message,
        remedy=trap.remedy,
        path=path,
        line=line,
        column=column,
    )


def _control_problem(control: re.Match[str], places: Places, path: PurePath | None) -> Problem:
    if control[0] == "\r":
        code = "line-end"
        message = "a carriage return alone does not end a line"
        remedy = "save the file with LF or CRLF line ends"
    else:
        code = "control-character"
        message = f"the invisible character U+{ord(control[0]):04X} stands here"
        remedy = "delete it; where it divides lines, begin an ordinary line"
    trap = Trap(code=code, message=message, remedy=remedy, index=control.start())
    return _problem(trap, places, path)


class _NodeReader:
    """Converts nodes, collecting what is wrong with them whatever they mean."""

    def __init__(self, text: str, places: Places, path: PurePath | None) -> None:
        self.problems: list[Problem] = []
        self._text = text
        self._places = places
        self._path = path

    def node(self, node: ParserNode) -> Node:
        if isinstance(node, ParserScalar):
            return self.scalar(node)
        if isinstance(node, MappingNode):
            return self.mapping(node)
        line, column = self._places.at(node.start_mark.index)
        return ListNode(
            items=tuple(self.node(item) for item in node.value), line=line, column=column
        )

    def mapping(self, node: MappingNode) -> MapNode:
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node)
            if isinstance(value_node, ParserScalar) and not value_node.value:
                value: Node = self.scalar(value_node, behind=key_node)
            else:
                value = self.node(value_node)
            if key is None:
                continue
            first = entries.get(key.text)
            if first is not None:
                self._report(
                    "duplicate-key",
                    f"the key {quoted(key.text)} stands twice: "
                    f"{on_lines(first.key.line, key.line)}",
                    "keep one of them",
                    key,
                )
                continue
            entries[key.text] = Entry(key=key, value=value)
        line, column = self._places.at(node.start_mark.index)
        return MapNode(entries=tuple(entries.values()), line=line, column=column)

    def key(self, node: ParserNode) -> ScalarNode | None:
        if not isinstance(node, ParserScalar):
            line, column = self._places.at(node.start_mark.index)
            self.problems.append(
                Problem(
                    code="yaml-key-not-text",
                    message="a key is a word, and this one is a list or a mapping",
                    remedy="write a word; if this is text, put quotes around the value it is in",
                    path=self._path,
                    line=line,
                    column=column,
                )
            )
            return None
        key = self.scalar(node)
        if not key.text.strip():
            self._report("yaml-key-not-text", "the key is empty", "write one before the `:`", key)
            return None
        if key.plain and key.text == "<<":
            self._report(
                "yaml-merge-key",
                "merge keys (`<<`) are not accepted",
                "write the keys out where they are needed",
                key,
            )
            return None
        return key

    def scalar(self, node: ParserScalar, *, behind: ParserNode | None = None) -> ScalarNode:
        index: int = node.start_mark.index
        plain = node.style is None
        if plain and behind is not None:
            # The parser places an empty value that is the last of its mapping at the next token.
            colon = _COLON.match(self._text, behind.end_mark.index)
            index = behind.end_mark.index if colon is None else colon.end()
        text: str = node.value
        if node.style == ">":
            # The loader marks folded line ends with BEL, for writing the same text again. None of
            # the author's can be there: control characters are refused, and blocks know no escape.
            text = text.replace("\a", "")
        line, column = self._places.at(index)
        scalar = ScalarNode(
            text=text,
            line=line,
            column=column,
            plain=plain,
            block=node.style in ("|", ">"),
            comment_follows=plain and not text and self._comment_follows(index),
        )
        if _UNSTORABLE.search(text):
            self._report(
                "unstorable-escape",
                "an escape stands for a NUL or for half a character, which cannot be stored",
                "take the escape out, or write the character itself",
                scalar,
            )
        elif plain:
            trap = plain_trap(text)
            if trap is not None:
                self._report(*trap, scalar)
        return scalar

    def _comment_follows(self, index: int) -> bool:
        end = self._text.find("\n", index)
        rest = self._text[index : len(self._text) if end < 0 else end]
        return rest.lstrip(" ").startswith("#")

    def _report(self, code: str, message: str, remedy: str, at: ScalarNode) -> None:
        self.problems.append(problem_at(at, code, message, remedy, path=self._path))
