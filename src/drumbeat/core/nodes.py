"""What a YAML text says, as frozen values that know where in the file they stand."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import TypeAlias

import attrs

from drumbeat.errors import Problem


@attrs.frozen(kw_only=True)
class ScalarNode:
    """A text. `plain` tells an unquoted one, the only kind that may be read as more than text.

    `line` and `column` are 1-based, in the file, of the first character: the quote of a quoted
    text, the `|` or `>` of a block, and the place behind the `:` or `-` of an empty value.
    `comment_follows` tells an empty value that has a comment behind it on its line.
    """

    text: str
    line: int
    column: int
    plain: bool
    block: bool = False
    comment_follows: bool = False

    @property
    def empty(self) -> bool:
        """Nothing was written at all; a quoted `""` was."""
        return self.plain and not self.text


@attrs.frozen(kw_only=True)
class ListNode:
    """A list; `line` and `column` are those of its first `-` or of its `[`."""

    items: tuple["Node", ...]
    line: int
    column: int


@attrs.frozen(kw_only=True)
class Entry:
    """One `key: value` of a mapping."""

    key: ScalarNode
    value: "Node"

    @property
    def name(self) -> str:
        """The key's text."""
        return self.key.text

    @property
    def place(self) -> "Node":
        """Where to point: the value, or the key when nothing is written behind it."""
        if isinstance(self.value, ScalarNode) and self.value.empty:
            return self.key
        return self.value


@attrs.frozen(kw_only=True)
class MapNode:
    """A mapping in file order, without second entries of one key.

    `line` and `column` are those of its first key or of its `{`.
    """

    entries: tuple[Entry, ...]
    line: int
    column: int

    def find(self, name: str) -> Entry | None:
        """The entry of that key, or None."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        return None

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries in file order."""
        return iter(self.entries)


Node: TypeAlias = ScalarNode | ListNode | MapNode


def problem_at(
    at: Node, code: str, message: str, remedy: str, *, path: PurePath | None = None
) -> Problem:
    """Make a problem at the place of a node."""
    return Problem(
        code=code,
        message=message,
        remedy=remedy,
        path=path,
        line=at.line,
        column=at.column,
    )


def describe(node: Node) -> str:
    """Name the shape of a node in words an author knows."""
    if isinstance(node, MapNode):
        return "a mapping"
    if isinstance(node, ListNode):
        return "a list"
    return "empty" if node.empty else "text"
