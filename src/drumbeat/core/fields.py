"""Reads the values of keys by the tables of the vocabulary, and collects what is wrong."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TypeVar

from drumbeat.core.messages import did_you_mean, listed, quoted, shown
from drumbeat.core.nodes import Entry, ListNode, MapNode, Node, ScalarNode, describe, problem_at
from drumbeat.core.vocabulary import Key, Level
from drumbeat.errors import Problem

__all__ = ["FieldReader"]

_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_LONGEST_NUMBER = 10

T = TypeVar("T")


class FieldReader:
    """Reads one file's nodes.

    A method answers None, or leaves an element out, only after it has put the reason into
    `problems`: without problems, everything was read.

    Args:
        path: the file, for the problems' locations.
    """

    def __init__(self, path: PurePath | None) -> None:
        self.path = path
        self.problems: list[Problem] = []

    # ---- keys

    def names(self, mapping: MapNode, level: Level) -> None:
        """Report the keys that `level` does not know, and the required ones that are missing."""
        for entry in mapping:
            if level.find(entry.name) is None:
                self.unknown(entry, level)
        for key in level.keys:
            if key.required and mapping.find(key.name) is None:
                self.report(
                    "key-missing", f"{level.name} has no `{key.name}:`", key.remedy, mapping
                )

    def unknown(self, entry: Entry, level: Level) -> None:
        """Report a key that `level` does not know."""
        self.report(
            "unknown-key",
            f"{level.name} has no key {quoted(entry.name)}{did_you_mean(entry.name, level.names)}",
            f"write {listed(level.names)}, or take it out",
            entry.key,
        )

    def read(
        self, mapping: MapNode, level: Level, name: str, form: Callable[[Entry, Key], T | None]
    ) -> T | None:
        """The value of one key by `form`, or None where it is missing or was refused."""
        key, entry = level.find(name), mapping.find(name)
        return None if key is None or entry is None else form(entry, key)

    def read_all(
        self, mapping: MapNode, level: Level, name: str, form: Callable[[Entry, Key], Iterable[T]]
    ) -> tuple[T, ...]:
        """The elements of one key's value by `form`; none where it is missing."""
        return tuple(self.read(mapping, level, name, form) or ())

    # ---- forms

    def text(self, entry: Entry, key: Key) -> str | None:
        """A text that is not blank."""
        value = entry.value
        if not isinstance(value, ScalarNode):
            wanted = {
                "boolean": "true or false",
                "number": "a number",
                "choice": listed(key.choices),
            }
            self.wrong(entry, key, wanted.get(key.form, "one text"))
            return None
        if not value.text.strip():
            self.blank(entry, key)
            return None
        return value.text

    def choice(self, entry: Entry, key: Key) -> str | None:
        """One of the key's words, as it is spelt."""
        text = self.text(entry, key)
        if text is None or text in key.choices:
            return text
        self.report(
            "invalid-choice",
            f"`{key.name}` is {quoted(text)}, which is not {listed(key.choices)}"
            f"{did_you_mean(text, key.choices)}",
            key.remedy,
            entry.value,
        )
        return None

    def boolean(self, entry: Entry, key: Key) -> bool | None:
        """An unquoted true, false, yes, no, on or off in any case."""
        text = self.text(entry, key)
        if text is None:
            return None
        value = _BOOLEANS.get(text.casefold())
        if value is not None and isinstance(entry.value, ScalarNode) and entry.value.plain:
            return value
        what = "which in quotes is text"
        if value is None:
            what = f"not true or false{did_you_mean(text, _BOOLEANS)}"
        self.report(
            "not-boolean", f"`{key.name}` is {quoted(text)}, {what}", key.remedy, entry.value
        )
        return None

    def number(self, entry: Entry, key: Key) -> int | None:
        """A whole number without quotes, within the key's bounds."""
        text = self.text(entry, key)
        if text is None:
            return None
        whole = _NUMBER.fullmatch(text) is not None
        if not whole or not (isinstance(entry.value, ScalarNode) and entry.value.plain):
            what = "which in quotes is text" if whole else "which is no whole number"
            self.report(
                "not-a-number", f"`{key.name}` is {quoted(text)}, {what}", key.remedy, entry.value
            )
            return None
        least, greatest = key.bounds
        if len(text) <= _LONGEST_NUMBER and least <= int(text) <= greatest:
            return int(text)
        self.report(
            "number-out-of-range",
            f"`{key.name}` is {shown(text)}, which is not from {least:,} to {greatest:,}",
            key.remedy,
            entry.value,
        )
        return None

    def mapping(self, entry: Entry, key: Key) -> MapNode | None:
        """A mapping."""
        if isinstance(entry.value, MapNode):
            return entry.value
        self.wrong(entry, key, "a mapping")
        return None

    def mappings(self, entry: Entry, key: Key) -> Iterator[MapNode]:
        """The mappings of a list."""
        for item in self._items(entry, key):
            if isinstance(item, MapNode):
                yield item
            else:
                self._wrong_item(item, key, "a mapping")

    def texts(self, entry: Entry, key: Key) -> Iterator[ScalarNode]:
        """The texts of a list, blank ones too."""
        for item in self._items(entry, key):
            if isinstance(item, ScalarNode):
                yield item
            else:
                self._wrong_item(item, key, "text")

    def text_or_texts(self, entry: Entry, key: Key) -> Iterator[ScalarNode]:
        """One text, or the texts of a list, blank ones too."""
        if isinstance(entry.value, ScalarNode):
            if self.text(entry, key) is not None:
                yield entry.value
        elif isinstance(entry.value, ListNode):
            yield from self.texts(entry, key)
        else:
            self.wrong(entry, key, "a text or a list of texts")

    def _items(self, entry: Entry, key: Key) -> Sequence[Node]:
        if not isinstance(entry.value, ListNode):
            self.wrong(entry, key, "a list")
            return ()
        if key.nonempty and not entry.value.items:
            self.report("value-missing", f"`{key.name}` is empty", key.remedy, entry.value)
        return entry.value.items

    def _wrong_item(self, item: Node, key: Key, wanted: str) -> None:
        self.report(
            "wrong-type",
            f"an entry of `{key.name}` is {describe(item)}, not {wanted}",
            key.remedy,
            item,
        )

    # ---- reports

    def wrong(self, entry: Entry, key: Key, wanted: str) -> None:
        """Report a value of another shape, or an empty one."""
        if isinstance(entry.value, ScalarNode) and entry.value.empty:
            self.blank(entry, key)
            return
        self.report(
            "wrong-type",
            f"`{key.name}` takes {wanted}, and this is {describe(entry.value)}",
            key.remedy,
            entry.value,
        )

    def blank(self, entry: Entry, key: Key) -> None:
        """Report a value that is empty or blank, or that a comment took the place of."""
        if isinstance(entry.value, ScalarNode) and entry.value.comment_follows:
            self.report(
                "value-is-comment",
                f"`{key.name}` is empty: what stands behind the # is a comment",
                "put quotes around the value if the # belongs to it",
                entry.place,
            )
            return
        self.report(
            "value-missing", f"`{key.name}` is {_lacking(entry.value)}", key.remedy, entry.place
        )

    def blank_item(self, item: ScalarNode, key: Key, remedy: str) -> None:
        """Report an element of a list that is empty or blank."""
        self.report("value-missing", f"an entry of `{key.name}` is {_lacking(item)}", remedy, item)

    def report(self, code: str, message: str, remedy: str, at: Node) -> None:
        """Put down a problem, at the place of `at`."""
        self.problems.append(problem_at(at, code, message, remedy, path=self.path))


def _lacking(node: Node) -> str:
    """Whether nothing stands there, or something that cannot be seen."""
    return "blank" if isinstance(node, ScalarNode) and node.text else "empty"
