"""Front matter: framing, places, traps, bounds, and the seam to the YAML parser."""

import importlib.metadata
import inspect
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strictyaml.parser import StrictYAMLLoader
from strictyaml.ruamel.error import MarkedYAMLError
from strictyaml.ruamel.nodes import MappingNode, SequenceNode
from strictyaml.ruamel.nodes import ScalarNode as ParserScalar

from drumbeat.core.file_text import MAX_BYTES, Places, decode
from drumbeat.core.frontmatter import (
    MAX_DEPTH,
    MAX_LINES,
    MAX_NODES,
    read_front_matter,
    read_yaml,
)
from drumbeat.core.nodes import ListNode, MapNode, Node, ScalarNode, describe
from drumbeat.core.yaml_traps import syntax_trap
from drumbeat.errors import AutomationError, Problem

PATH = PurePath("automations/x.md")
GOOD = sorted((Path(__file__).parents[1] / "corpus" / "good").glob("*.md"))


def refusal(content: str | bytes) -> Problem:
    with pytest.raises(AutomationError) as caught:
        read_front_matter(content, path=PATH)
    (problem,) = caught.value.problems
    assert problem.path == PATH
    return problem


def yaml_refusal(text: str) -> tuple[str, int | None, int | None]:
    with pytest.raises(AutomationError) as caught:
        read_yaml(text)
    (problem,) = caught.value.problems
    assert problem.remedy
    return problem.code, problem.line, problem.column


def problems_of(read: Callable[[Any], Any], content: str | bytes) -> tuple[Problem, ...]:
    """What `read` refuses, or collects, or nothing; any other exception goes on."""
    try:
        found: tuple[Problem, ...] = read(content).problems
    except AutomationError as error:
        found = error.problems
    return found


def read_or_refused(read: Callable[[Any], Any], content: str | bytes) -> None:
    """Either there is a mapping, or there are problems, each with its place and a remedy."""
    try:
        document = read(content)
    except AutomationError as error:
        problems = error.problems
        assert problems
    else:
        problems = document.problems
        assert isinstance(document.root, MapNode)
    for each in problems:
        assert each.remedy
        assert each.line
        assert each.column


def scalar(root: MapNode, name: str) -> ScalarNode:
    entry = root.find(name)
    assert entry is not None
    assert isinstance(entry.value, ScalarNode)
    return entry.value


# ---- framing


def test_the_body_is_everything_below_the_closing_line_as_it_stands() -> None:
    read = read_front_matter("---\na: b\n---\r\n\n one\r\ntwo  ")
    assert read.body == "\n one\r\ntwo  "
    assert read.body_line == 4
    assert read.problems == ()


@pytest.mark.parametrize("end", ["---", "---\n", "--- \t\n", "---\r\n"])
def test_the_closing_line_may_end_the_file_and_may_carry_blanks(end: str) -> None:
    read = read_front_matter(f"--- \na: b\n{end}")
    assert read.body == ""
    assert scalar(read.root, "a").text == "b"


def test_text_keeps_the_whole_file_without_its_byte_order_mark() -> None:
    assert read_front_matter(b"\xef\xbb\xbf---\na: b\n---\nx").text == "---\na: b\n---\nx"


def test_a_line_of_more_than_three_dashes_ends_nothing() -> None:
    assert refusal("---\na: |\n  x\n----\n").code == "front-matter-unclosed"


@pytest.mark.parametrize(
    "content, code, line, column",
    [
        ("", "front-matter-missing", 1, 1),
        ("x\n---\na: b\n---\n", "front-matter-missing", 1, 1),
        ("\n---\na: b\n---\n", "front-matter-missing", 1, 1),
        ("--- a: b\n---\n", "front-matter-missing", 1, 1),
        ("---", "front-matter-unclosed", 1, 1),
        ("---\na: b\n", "front-matter-unclosed", 1, 1),
        (b"---\na: \xff\n---\n", "not-utf8", 2, 4),
        ("---\n\u00e4: \ud800\n---\n", "not-utf8", 2, 4),
        (b"\xff\xfe-\x00-\x00", "not-utf8", 1, 1),
        (b"---\na: b\n---\nbody\x00", "nul-byte", 4, 5),
        (b"\xef\xbb\xbf\x00", "nul-byte", 1, 1),
        (b"---\na: b\n---\n" + b"x" * MAX_BYTES, "file-too-large", 1, 1),
        ("\u00e4" * MAX_BYTES, "file-too-large", 1, 1),
        ("---\na: b\x07c\n---\n", "control-character", 2, 5),
        ("---\na: b\u2028c\n---\n", "control-character", 2, 5),
        ("---\na: b\x85c\n---\n", "control-character", 2, 5),
        ("---\r\na: b\r\nc: d\re: f\r\n---\n", "line-end", 3, 5),
        ("---\n---\n", "yaml-not-a-mapping", 2, 1),
        ("---\n# only a comment\n---\n", "yaml-not-a-mapping", 2, 1),
        ("---\ntext\n---\n", "yaml-not-a-mapping", 2, 1),
        ("---\n\n- a\n---\n", "yaml-not-a-mapping", 3, 1),
    ],
)
def test_a_broken_frame_is_refused_with_its_place(
    content: str | bytes, code: str, line: int, column: int
) -> None:
    problem = refusal(content)
    assert (problem.code, problem.line, problem.column) == (code, line, column)
    assert problem.remedy


def test_a_file_of_exactly_the_largest_size_is_read() -> None:
    head = b"---\na: b\n---\n"
    assert len(decode(head + b"x" * (MAX_BYTES - len(head)))) == MAX_BYTES


def test_a_control_character_below_the_front_matter_is_the_authors_business() -> None:
    assert read_front_matter("---\na: b\n---\n\x07").body == "\x07"


def test_a_first_line_that_is_not_alone_is_told_from_one_that_is_missing() -> None:
    assert "take out what stands above" in refusal("\n---\na: b\n---\n").remedy
    assert "begin the file with" in refusal("# Title\n").remedy


# ---- places


def test_keys_and_values_know_their_line_and_column_in_the_file() -> None:
    read = read_front_matter(
        "---\n# c\na:   b\nlist:\n  - x\n  - 'y'\n  - k: v\n    l: |\n      t\n"
        "flow: [1, {m: n}]\n---\n"
    )
    places: dict[str, tuple[int, int]] = {}

    def walk(node: Node) -> None:
        if isinstance(node, ScalarNode):
            places[node.text] = node.line, node.column
        elif isinstance(node, ListNode):
            for item in node.items:
                walk(item)
        else:
            for entry in node:
                walk(entry.key)
                walk(entry.value)

    walk(read.root)
    assert places == {
        "a": (3, 1),
        "b": (3, 6),
        "list": (4, 1),
        "x": (5, 5),
        "y": (6, 5),
        "k": (7, 5),
        "v": (7, 8),
        "l": (8, 5),
        "t\n": (8, 8),
        "flow": (10, 1),
        "1": (10, 8),
        "m": (10, 12),
        "n": (10, 15),
    }
    flow = read.root.find("flow")
    assert flow is not None
    assert (flow.value.line, flow.value.column) == (10, 7)


def test_columns_count_characters_also_behind_wide_ones_and_crlf() -> None:
    read = read_yaml("\u00e4\U0001f305: x\r\nb: {c: d}\r\n")
    assert [(entry.value.line, entry.value.column) for entry in read.root] == [(1, 5), (2, 4)]


@pytest.mark.parametrize(
    "text, value, plain, block",
    [
        ("a: b c", "b c", True, False),
        ("a: b\n  c", "b c", True, False),
        ("a: 'it''s'", "it's", False, False),
        ('a: "x\\ty"', "x\ty", False, False),
        ("a: |\n  x\n   y\n", "x\n y\n", False, True),
        ("a: >-\n  x\n  y\n\n  z\n", "x y\nz", False, True),
        ("a: >+\n  x\n\n", "x\n\n", False, True),
        ("a: true", "true", True, False),
        ("a: ~", "~", True, False),
        ("a: \u201cx\u201d and y", "\u201cx\u201d and y", True, False),
        ("a:", "", True, False),
        ("a: ''", "", False, False),
    ],
)
def test_every_scalar_is_text_and_knows_how_it_was_written(
    text: str, value: str, plain: bool, block: bool
) -> None:
    node = scalar(read_yaml(text).root, "a")
    assert (node.text, node.plain, node.block) == (value, plain, block)
    assert node.empty == (text == "a:")


@pytest.mark.parametrize(
    "text, follows",
    [
        ("a: #x", True),
        ("a:   # x\nb: c", True),
        ("k:\n  a: #x\nb: c", True),
        ("? a\n: #x", True),
        ("a:\n  # x", False),
        ("a:\n\n# x", False),
        ("a:", False),
        ("? a", False),
        ("a: b #x", False),
        ("a: '' #x", False),
    ],
)
def test_an_empty_value_knows_the_comment_behind_it(text: str, follows: bool) -> None:
    root = read_yaml(text).root
    inner = root.find("k")
    if inner is not None and isinstance(inner.value, MapNode):
        root = inner.value
    node = scalar(root, "a")
    assert node.comment_follows is follows
    if not text.startswith(("k", "?")):
        assert (node.line, node.column) == (1, 3 if node.empty else 4)


def test_an_entry_points_to_its_value_or_to_its_key_when_nothing_is_written() -> None:
    empty, quoted_empty, listed = read_yaml("a:\nb: ''\nc: []").root
    assert empty.place is empty.key
    assert quoted_empty.place is quoted_empty.value
    assert listed.place is listed.value


def test_the_shape_of_a_node_has_a_name() -> None:
    root = read_yaml("a:\nb: c\nd: []").root
    assert [describe(entry.value) for entry in root] == ["empty", "text", "a list"]
    assert describe(root) == "a mapping"
    assert root.find("z") is None


def test_places_count_from_the_first_line_given() -> None:
    places = Places("ab\r\nc", 5)
    assert [places.at(index) for index in (0, 1, 4, 5)] == [(5, 1), (5, 2), (6, 1), (6, 2)]


# ---- what is collected


def test_problems_of_the_text_itself_are_all_collected() -> None:
    read = read_yaml(
        'a: 1\na: 2\na: 3\n<<: {}\n"<<": fine\n[x]: y\n"": z\nb: "\\0"\nc: "\\udfff"\n'
        "d: \u201cq\u201d\ne\u00a0: f\n"
    )
    assert [(each.code, each.line, each.column) for each in read.problems] == [
        ("duplicate-key", 2, 1),
        ("duplicate-key", 3, 1),
        ("yaml-merge-key", 4, 1),
        ("yaml-key-not-text", 6, 1),
        ("yaml-key-not-text", 7, 1),
        ("unstorable-escape", 8, 4),
        ("unstorable-escape", 9, 4),
        ("smart-quotes", 10, 4),
        ("no-break-space", 11, 1),
    ]
    assert "on line 1 and on line 3" in read.problems[1].message
    assert [entry.name for entry in read.root] == ["a", "<<", "b", "c", "d", "e\u00a0"]
    assert scalar(read.root, "a").text == "1"


@pytest.mark.parametrize(
    "text",
    ["a: \u00a0b", "a: b\u00a0", "a: \u200bb", "a: \ufeffb", "- \u3000b"],
)
def test_an_invisible_space_at_the_edge_of_an_unquoted_text_is_a_problem(text: str) -> None:
    (problem,) = read_yaml(f"k:\n  {text}").problems
    assert problem.code == "no-break-space"
    assert "ordinary space" in problem.remedy


def test_typography_inside_text_and_in_quotes_is_left_alone() -> None:
    read = read_yaml('a: don\u2019t\nb: "\u201cq\u201d"\nc: 10\u00a0km\nd: |\n  \u201cq\u201d\n')
    assert read.problems == ()


# ---- what stops the reading


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a: *x", ("yaml-alias", 1, 4)),
        # Nobody would read a name of that length.
        (f"a: *{'x' * 65}", ("unquoted-indicator", 1, 4)),
        ("a: [*x, b]", ("yaml-alias", 1, 5)),
        ("a: * * * * *", ("unquoted-indicator", 1, 4)),
        ("a:\n  - */5 * * * *", ("unquoted-indicator", 2, 5)),
        ("a: **bold**", ("unquoted-indicator", 1, 4)),
        ("a: @ana", ("unquoted-indicator", 1, 4)),
        ("a: `code`", ("unquoted-indicator", 1, 4)),
        ("a: %x", ("unquoted-indicator", 1, 4)),
        ("a: &x b", ("yaml-anchor", 1, 4)),
        ("a: & b", ("unquoted-indicator", 1, 4)),
        ("a: !!str b", ("yaml-tag", 1, 4)),
        ("%YAML 1.2\n---\na: b", ("yaml-directive", 1, 1)),
        ("a: b\n---\nc: d", ("yaml-several-documents", 2, 1)),
        ("a: b\n...\nc: d", ("yaml-several-documents", 3, 1)),
        ("a:\n\tb: c", ("tab", 2, 1)),
        ("a:\tb", ("tab", 1, 3)),
        ("a: b\tc", ("tab", 1, 5)),
        ("a:\n  - b\n\t- c", ("tab", 3, 1)),
        ("a:\u00a0b\nc: d", ("no-break-space", 1, 3)),
        ("a:\n\u00a0 b: c\n  d: e", ("no-break-space", 2, 1)),
        ("a: b: c", ("colon-in-value", 1, 4)),
        ("- x\n- a: b: c", ("colon-in-value", 2, 6)),
        ("a: \u201cb: c\u201d", ("smart-quotes", 1, 4)),
        ("a: [\u201cb: c\u201d: d: e]", ("smart-quotes", 1, 5)),
        ("a: 'b\nc: d", ("yaml-syntax", 1, 4)),
        ('a: "b\n---\n', ("yaml-syntax", 1, 4)),
        ('a: "\\q"', ("yaml-syntax", 1, 6)),
        ('a: "\\U00110000"', ("yaml-syntax", 1, 7)),
        ("a: [b, c", ("yaml-syntax", 1, 4)),
        ("a: {b, c", ("yaml-syntax", 1, 4)),
        ("a: ]", ("yaml-syntax", 1, 4)),
        ("a: - b", ("yaml-syntax", 1, 4)),
        ("a: |x\n  b", ("yaml-syntax", 1, 4)),
        ("a: 'b' c", ("yaml-syntax", 1, 8)),
        ("a: b\nc\nd: e", ("yaml-syntax", 2, 1)),
        ("a: b\n  c: d", ("yaml-syntax", 2, 4)),
        ("text\nb: c", ("yaml-syntax", 2, 2)),
        ("a:\n  b: c\n d: e", ("yaml-syntax", 3, 2)),
        ("a: " + "[" * (MAX_DEPTH + 1), ("yaml-too-complex", 1, MAX_DEPTH + 4)),
        ("a: {\n" * (MAX_DEPTH + 1), ("yaml-too-complex", MAX_DEPTH, 1)),
        ("- " * (MAX_DEPTH + 1), ("yaml-too-complex", 1, 2 * MAX_DEPTH + 1)),
        ("a: [" + "x," * MAX_NODES + "]", ("yaml-too-complex", 1, 2 * MAX_NODES - 1)),
        ("a: b\n" + "\n" * MAX_LINES, ("yaml-too-complex", MAX_LINES + 1, 1)),
    ],
)
def test_what_is_no_strict_yaml_is_refused_with_its_first_problem(
    text: str, expected: tuple[str, int, int]
) -> None:
    assert yaml_refusal(text) == expected


@pytest.mark.parametrize("text", ["a: * * * * *", "a: @ana", "a: *x", "a: b: c", "a: &x"])
def test_the_remedy_of_an_unquoted_value_is_quotes(text: str) -> None:
    with pytest.raises(AutomationError, match="put quotes around it"):
        read_yaml(text)


def test_odd_characters_inside_the_text_above_are_not_blamed() -> None:
    text = "a: |\n  \u201chello\u201d: \u00a0x\nb c\nd: e"
    assert yaml_refusal(text) == ("yaml-syntax", 3, 1)


def test_a_complaint_that_nobody_knows_still_has_a_place() -> None:
    trap = syntax_trap("a: b", "nobody has ever said this", 99, 0)
    assert (trap.code, trap.index) == ("yaml-syntax", 4)


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1])
def test_nesting_within_the_bound_is_read(depth: int) -> None:
    assert read_yaml("a: " + "[" * (depth - 1) + "]" * (depth - 1)).root.find("a") is not None


def test_a_key_that_stands_twice_on_one_line_names_it_once() -> None:
    (problem,) = problems_of(read_yaml, "a: {b: 1, b: 2}")
    assert problem.message == "the key 'b' stands twice: both times on line 1"


# ---- whatever comes in

YAMLISH = st.text(
    alphabet=st.sampled_from(list("abc01:-?[]{},#&*!|>'\"%@` \n\t\r\\~<\u00a0\u201c\ufeffxu.="))
)


@pytest.mark.slow
@given(st.one_of(YAMLISH, st.text()))
@settings(max_examples=400)
def test_any_text_is_read_or_refused(text: str) -> None:
    for content in (text, f"---\n{text}\n---\n{text}"):
        for read in (read_yaml, read_front_matter):
            read_or_refused(read, content)


@given(st.binary())
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for content in (raw, b"---\n" + raw + b"\n---\n"):
        read_or_refused(read_front_matter, content)


HOSTILE: dict[str, tuple[str, list[str]]] = {
    "brackets": ("[" * 65_536, ["yaml-too-complex"]),
    "braces": ("{" * 65_536, ["yaml-too-complex"]),
    "dashes": ("- " * 32_768, ["yaml-too-complex"]),
    "question marks": ("? " * 32_768, ["yaml-too-complex"]),
    "colons": (": " * 32_768, ["yaml-too-complex"]),
    "comments": ("#\n" * MAX_LINES, ["yaml-not-a-mapping"]),
    "one key again and again": ("a: b\n" * 13_000, ["yaml-too-complex"]),
    "many keys": ("".join(f"a{number}: b\n" for number in range(7_000)), ["yaml-too-complex"]),
    "a long list": ("a:\n" + "- x\n" * 16_000, ["yaml-too-complex"]),
    "a deepening": ("".join(" " * depth + "a:\n" for depth in range(360)), ["yaml-too-complex"]),
    "quotes": ("a: " + "'" * 65_536, []),
    "lines in quotes": ('a: "' + "\n" * MAX_LINES + '"', []),
    "escapes": ('a: "' + "\\n" * 32_768 + '"', []),
    "tabs": ("\t" * 65_536, ["tab"]),
    "no-break spaces": ("a:\n" + "\u00a0" * 32_768 + "x: *", ["no-break-space"]),
    "smart quotes": ("a: " + "\u201c" * 20_000 + ": :", ["smart-quotes"]),
    "colons without spaces": ("a: " + "x:" * 32_768, ["colon-in-value"]),
    "a block": ("a: >\n" + " x\n" * (MAX_LINES - 1), []),
    "lines": ("a\n" * 32_768, ["yaml-too-complex"]),
    "comments in a list": ("a: [x,\n" + "# c\n" * 16_000 + "]", []),
    "stars": ("*" * 65_536, ["unquoted-indicator"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("text, codes", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_read_or_refused(text: str, codes: list[str]) -> None:
    """Each would take minutes, or the stack, without the bounds."""
    assert [each.code for each in problems_of(read_yaml, text)] == codes
    read_or_refused(read_yaml, text)


# ---- the seam: what is relied on inside strictyaml 1.7.3


class Loader(StrictYAMLLoader):  # type: ignore[misc]  # strictyaml has no types
    label = ""
    allow_flow_style = True


def test_strictyaml_is_the_version_whose_inside_is_known() -> None:
    assert importlib.metadata.version("strictyaml") == "1.7.3"


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("fetch_flow_collection_start", ["self", "TokenClass", "to_push"]),
        ("fetch_alias", ["self"]),
        ("fetch_anchor", ["self"]),
        ("fetch_tag", ["self"]),
        ("fetch_directive", ["self"]),
        ("compose_node", ["self", "parent", "index"]),
        ("peek_event", ["self"]),
        ("get_single_node", ["self"]),
    ],
)
def test_the_loader_has_the_methods_that_are_bounded_or_called(
    name: str, arguments: list[str]
) -> None:
    assert list(inspect.signature(getattr(StrictYAMLLoader, name)).parameters) == arguments


def test_composing_gives_nodes_whose_marks_are_indices_into_the_text() -> None:
    loader = Loader("a: 'b'\nc: [d]\n")
    assert loader.index == 0
    assert list(loader.flow_context) == []
    root = loader.get_single_node()
    (_, quoted), (key, sequence) = root.value
    assert isinstance(root, MappingNode)
    assert isinstance(quoted, ParserScalar)
    assert isinstance(sequence, SequenceNode)
    assert (quoted.style, quoted.value, quoted.start_mark.index) == ("'", "b", 3)
    assert (key.style, key.value, key.start_mark.index) == (None, "c", 7)
    assert sequence.start_mark.index == 10
    folded = Loader("a: >\n  b\n  c\n").get_single_node().value[0][1]
    assert (folded.style, folded.value) == (">", "b\a c\n")
    assert Loader("").get_single_node() is None


def test_complaints_carry_words_and_marks() -> None:
    loader = Loader("a: [b\n")
    with pytest.raises(MarkedYAMLError) as caught:
        loader.get_single_node()
    assert "expected ',' or ']'" in caught.value.problem
    assert caught.value.context_mark.index == 3
    assert caught.value.problem_mark.index == 6
