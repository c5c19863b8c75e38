"""A pack's `drumpack.md`, judged against the contract and turned into what it says."""

import math
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import attrs

from drumbeat.core.fields import FieldReader
from drumbeat.core.frontmatter import FrontMatter, read_front_matter
from drumbeat.core.messages import quoted
from drumbeat.core.model import Json
from drumbeat.core.nodes import Entry, ListNode, MapNode, Node, ScalarNode
from drumbeat.core.problem_order import in_file_order
from drumbeat.core.slug import SLUG, SLUG_RULE
from drumbeat.core.typed_values import is_null, typed_value
from drumbeat.core.vocabulary import Key, Level
from drumbeat.errors import AutomationError, Problem, WorkspaceError

__all__ = ["FORMAT", "PACK", "PackFile", "read_pack_file"]

FORMAT = "1"
"""The only `pack_format` there is."""

TOOL = "[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"
"""The name of a program in `bin/`, as a regular expression."""

PACK = Level(
    name="the front matter",
    keys=(
        Key(
            name="pack_format",
            form="choice",
            meaning="the form of this file, so that another one can follow",
            remedy="write `pack_format: 1`",
            required=True,
            choices=(FORMAT,),
        ),
        Key(
            name="name",
            form="text",
            meaning="what the pack is called, unique in its workspace",
            remedy=f"write a name such as `name: mail`: {SLUG_RULE}",
            required=True,
            pattern=SLUG,
        ),
        Key(
            name="description",
            form="text",
            meaning="one sentence for people: what the tools are for",
            remedy="write a sentence such as `description: Reads a mailbox`",
            required=True,
        ),
        Key(
            name="tools",
            form="texts",
            meaning="the name of every program in the pack's `bin/`",
            remedy="write a list of the names of the programs in `bin/`, such as "
            "`tools: [mailbox]`; a card is only ever read beside a tool",
            required=True,
            nonempty=True,
            pattern=TOOL,
        ),
        Key(
            name="activity",
            form="mapping",
            meaning="whatever a host wants to know about the pack; the engine only hands it on",
            remedy="write `key: value` lines indented below it, or take it out",
            default="{}",
        ),
    ),
)
"""The keys of `drumpack.md` (spec, section 9)."""

_NAME = re.compile(SLUG)
_TOOL = re.compile(TOOL)


@attrs.frozen(kw_only=True)
class PackFile:
    """What a `drumpack.md` says.

    `name` and `tools` are nodes: what is wrong with them on the disk, or beside other packs, is
    reported at their places. `card` is everything below the front matter, verbatim.
    """

    name: ScalarNode
    description: str
    tools: tuple[ScalarNode, ...]
    activity: Json
    card: str


def read_pack_file(content: str | bytes, *, path: PurePath | None = None) -> PackFile:
    """Judge a `drumpack.md` and return what it says.

    Args:
        content: the file, as text or as UTF-8 bytes with or without a byte order mark.
        path: the file, for the problems' locations.

    Raises:
        WorkspaceError: the file breaks the contract. It carries all problems, in file order; of a
            text that cannot be read as YAML the first, and of a `pack_format` that is not known
            nothing but this, since another format may have other keys.
    """
    try:
        front_matter = read_front_matter(content, path=path)
    except AutomationError as error:
        raise WorkspaceError([_of_a_card(each) for each in error.problems]) from error
    reader = _PackReader(path)
    pack = reader.pack(front_matter)
    problems = in_file_order(front_matter.problems, reader.problems)
    if pack is None or problems:
        raise WorkspaceError(problems)
    return pack


def _of_a_card(problem: Problem) -> Problem:
    if problem.code != "file-too-large":
        return problem
    return attrs.evolve(
        problem, remedy="shorten the card: it is given to the agent whole, on every run"
    )


class _PackReader(FieldReader):
    def pack(self, front_matter: FrontMatter) -> PackFile | None:
        """What the file says; None only after a problem was reported."""
        root = front_matter.root
        if self.read(root, PACK, "pack_format", self._format) is False:
            return None
        self.names(root, PACK)
        name = self.read(root, PACK, "name", self._name)
        description = self.read(root, PACK, "description", self.text)
        tools = self.read_all(root, PACK, "tools", self._tools)
        activity = self.read(root, PACK, "activity", self._activity)
        if not front_matter.body.strip():
            self.problems.append(
                Problem(
                    code="pack-card-empty",
                    message="there is no card: nothing stands below the front matter",
                    remedy="write below the second `---` what an agent has to know to use the "
                    "tools",
                    path=self.path,
                    line=front_matter.body_line,
                    column=1,
                )
            )
        if name is None or description is None:
            return None
        return PackFile(
            name=name,
            description=description.strip(),
            tools=tools,
            activity=activity or {},
            card=front_matter.body,
        )

    def _format(self, entry: Entry, key: Key) -> bool | None:
        """Whether the format is known; None, and no verdict on the rest, where it is not told."""
        text = self.text(entry, key)
        if text is None:
            return None
        if text == FORMAT:
            return True
        self.report(
            "pack-format-unknown",
            f"`pack_format` is {quoted(text)}, and only {FORMAT} is known",
            f"write `pack_format: {FORMAT}` if the file keeps to it, or use a drumbeat that knows "
            "the other one",
            entry.value,
        )
        return False

    def _name(self, entry: Entry, key: Key) -> ScalarNode | None:
        text = self.text(entry, key)
        if text is None or not isinstance(entry.value, ScalarNode):
            return None
        if not _NAME.fullmatch(text):
            message = f"{quoted(text)} cannot be the name of a pack"
            self.report("pack-name-invalid", message, key.remedy, entry.value)
            return None
        return entry.value

    def _tools(self, entry: Entry, key: Key) -> Iterator[ScalarNode]:
        lines: dict[str, int] = {}
        for item in self.texts(entry, key):
            if not item.text.strip():
                self.blank_item(item, key, "name a tool, or take it out")
            elif not _TOOL.fullmatch(item.text):
                self.report(
                    "pack-tool-invalid",
                    f"{quoted(item.text)} cannot be the name of a tool",
                    "write the bare name of a file in `bin/`, without a path: ASCII letters, "
                    "digits, `-`, `_`, `.` and `+`, at most 100, beginning with a letter, a digit "
                    "or `_`",
                    item,
                )
            elif item.text in lines:
                self.report(
                    "pack-tool-duplicate",
                    f"the tool {quoted(item.text)} stands on line {lines[item.text]} already",
                    "take one of them out",
                    item,
                )
            else:
                lines[item.text] = item.line
                yield item

    def _activity(self, entry: Entry, key: Key) -> dict[str, Any] | None:
        mapping = self.mapping(entry, key)
        return None if mapping is None else self._values(mapping)

    def _values(self, mapping: MapNode) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for entry in mapping:
            if is_null(entry.value):
                self._null(entry.value, entry.place)
            else:
                values[entry.name] = self._value(entry.value)
        return values

    def _value(self, node: Node) -> Any:
        if isinstance(node, MapNode):
            return self._values(node)
        if isinstance(node, ListNode):
            return [self._value(item) for item in node.items]
        if is_null(node):
            self._null(node, node)
            return None
        value = typed_value(node)
        if isinstance(value, float) and not math.isfinite(value):
            self.report(
                "wrong-type",
                "`activity` holds a number that cannot be written as JSON",
                "write a finite number, or put quotes around it if it is text",
                node,
            )
        return value

    def _null(self, node: ScalarNode, at: Node) -> None:
        code = "value-is-comment" if node.comment_follows else "value-missing"
        behind = ": what stands behind the # is a comment" if node.comment_follows else ""
        self.report(
            code,
            f"a value of `activity` is empty{behind}",
            "write one, put quotes around it if it is text, or take it out",
            at,
        )
