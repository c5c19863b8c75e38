"""A pack's card: what it says, and what is refused where."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.nodes import ScalarNode
from drumbeat.core.pack_file import PACK, PackFile, read_pack_file
from drumbeat.core.problem_order import in_file_order
from drumbeat.errors import Problem, WorkspaceError

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus" / "packs"
GOOD = sorted((CORPUS / "good").glob("*.md"))
BAD = sorted((CORPUS / "bad").glob("*.md"))

KEYS = {
    "pack_format": "pack_format: 1",
    "name": "name: mail",
    "description": "description: Reads a mailbox",
    "tools": "tools: [mailbox]",
}


def text_of(*, card: str = "A card.\n", **keys: str) -> str:
    """A card with some keys replaced or added, each a line from line 2 on."""
    return "\n".join(("---", *(KEYS | keys).values(), "---", card))


def problems_of(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(WorkspaceError) as caught:
        read_pack_file(text)
    return caught.value.problems


def only_problem(text: str | bytes) -> Problem:
    (problem,) = problems_of(text)
    return problem


def located(problem: Problem) -> str:
    return f"{problem.line}:{problem.column} {problem.code}"


# ---- whole files


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_card_loads_as_bytes_as_text_and_with_a_byte_order_mark(path: Path) -> None:
    raw = path.read_bytes()
    pack = read_pack_file(raw, path=path)
    assert pack.tools
    assert read_pack_file(raw.decode(), path=path) == pack
    assert read_pack_file(b"\xef\xbb\xbf" + raw, path=path) == pack


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_card_is_refused_for_exactly_the_problems_beside_it(path: Path) -> None:
    with pytest.raises(WorkspaceError) as caught:
        read_pack_file(path.read_bytes(), path=path)
    problems = caught.value.problems
    expected = path.with_suffix(".problems").read_text().splitlines()
    assert [located(problem) for problem in problems] == expected
    for problem in problems:
        assert problem.path == path
        assert problem.message
        assert problem.remedy


def test_every_bad_card_has_its_problems_beside_it() -> None:
    beside = sorted((CORPUS / "bad").glob("*.problems"))
    assert [path.stem for path in beside] == [path.stem for path in BAD]
    assert len(GOOD) >= 3
    assert len(BAD) >= 10


# ---- the value


def test_every_key_reaches_the_value() -> None:
    pack = read_pack_file((CORPUS / "good" / "every-key.md").read_bytes())
    assert pack == PackFile(
        name=ScalarNode(text="Team.mail_2", line=3, column=7, plain=True),
        description="Reads a mailbox and marks mail as done",
        tools=(
            ScalarNode(text="mailbox", line=8, column=5, plain=True),
            ScalarNode(text="mark-done.py", line=9, column=5, plain=True),
            ScalarNode(text="_c++", line=10, column=5, plain=True),
        ),
        activity={
            "mailbox": "Reading mail",
            "weight": 2,
            "shown": True,
            "groups": [["reads", "1"], {"name": "all"}],
        },
        card="\n# Mail\n\n`mailbox list` prints one line per message.\n---\n"
        "A rule is part of the card.\n",
    )


def test_without_activity_there_is_none() -> None:
    assert read_pack_file(text_of()).activity == {}


@pytest.mark.parametrize("card", [" x", "\r\n# Card\r\n\r\n", "é\u2028\tz  \n\n", "---\n", "\n\nx"])
def test_the_card_is_everything_below_the_front_matter_as_it_stands(card: str) -> None:
    assert read_pack_file(text_of(card=card)).card == card


def test_crlf_is_kept_in_the_card_alone() -> None:
    crlf = read_pack_file(text_of(card="one\ntwo\n").replace("\n", "\r\n").encode())
    assert crlf.card == "one\r\ntwo\r\n"
    assert (crlf.name.text, crlf.description) == ("mail", "Reads a mailbox")


@pytest.mark.parametrize("name", ["m", "M", "1", "a.b-c_d", "a" * 100])
def test_a_name_is_made_like_a_slug(name: str) -> None:
    assert read_pack_file(text_of(name=f"name: {name}")).name.text == name


@pytest.mark.parametrize(
    "name", ["-m", ".m", "_m", "a b", "a/b", "ä", "'m '", "a" * 101, '"m\\n"', "\u0661"]
)
def test_another_name_is_refused(name: str) -> None:
    problem = only_problem(text_of(name=f"name: {name}"))
    assert (located(problem), problem.remedy) == ("3:7 pack-name-invalid", PACK.keys[1].remedy)


# ---- refusals


@pytest.mark.parametrize("card", ["", "\n", " \t\r\n\n", "\u00a0\n"])
def test_a_blank_card_is_refused(card: str) -> None:
    assert located(only_problem(text_of(card=card))) == "7:1 pack-card-empty"


@pytest.mark.parametrize("written", ["2", "1.0", "0", "01", "one", "'1 '", "true", "~"])
def test_another_format_is_refused_and_nothing_else_is_held_against_the_file(written: str) -> None:
    text = text_of(pack_format=f"pack_format: {written}", name="", tools="programs: [x]", card="")
    problem = only_problem(text)
    assert located(problem) == "2:14 pack-format-unknown"
    assert "only 1 is known" in problem.message


@pytest.mark.parametrize("written", ["1", "'1'", '"1"'])
def test_the_known_format_may_stand_in_quotes(written: str) -> None:
    assert read_pack_file(text_of(pack_format=f"pack_format: {written}")).name.text == "mail"


@pytest.mark.parametrize("key", KEYS)
def test_each_key_is_needed(key: str) -> None:
    problem = only_problem(text_of(**{key: "activity: {}"}))
    assert problem.code == "key-missing"
    assert f"`{key}:`" in problem.message
    found = PACK.find(key)
    assert found is not None
    assert problem.remedy == found.remedy


def test_a_misspelt_key_is_refused_with_the_nearest_one() -> None:
    problem = only_problem(text_of(extra="activty: {}"))
    assert located(problem) == "6:1 unknown-key"
    assert "did you mean 'activity'?" in problem.message


def test_a_tool_that_stands_twice_is_refused_with_both_lines() -> None:
    problem = only_problem(text_of(tools="tools:\n  - a\n  - b\n  - a"))
    assert located(problem) == "8:5 pack-tool-duplicate"
    assert "line 6" in problem.message


def test_tools_that_differ_by_case_are_two() -> None:
    assert len(read_pack_file(text_of(tools="tools: [a, A]")).tools) == 2


def test_a_pack_without_tools_is_refused_since_nobody_would_read_its_card() -> None:
    problem = only_problem(text_of(tools="tools: []"))
    assert located(problem) == "5:8 value-missing"
    assert "a card is only ever read beside a tool" in problem.remedy


def test_a_card_over_a_mebibyte_is_to_be_shortened() -> None:
    problem = only_problem(text_of(card="x" * 1024 * 1024))
    assert problem.code == "file-too-large"
    assert problem.remedy.startswith("shorten the card")
    assert only_problem(b"---\n\xff\n---\n").code == "not-utf8"


def test_a_secret_is_in_no_message() -> None:
    secret = "ghp_" + "a1B2" * 10
    text = text_of(name=f"name: {secret} x", tools=f"tools: [/{secret}]", x=f"{secret}: {secret}")
    problems = problems_of(text)
    assert len(problems) == 3
    assert secret not in str(WorkspaceError(problems))


@given(st.text(max_size=60), st.text(max_size=60))
def test_whatever_stands_there_only_a_workspace_error_is_raised(front: str, card: str) -> None:
    for text in (front, f"---\n{front}\n---\n{card}", text_of(extra=front, card=card)):
        try:
            pack = read_pack_file(text)
        except WorkspaceError as error:
            lacking = [each for each in error.problems if not (each.remedy and each.line)]
            assert (bool(error.problems), lacking) == (True, [])  # noqa: PT017
        else:
            assert text.endswith(pack.card)
            assert pack.card.strip()


def test_problems_stand_in_file_order_and_a_damaged_place_has_one() -> None:
    def at(code: str, line: int | None, column: int | None = 1) -> Problem:
        return Problem(code=code, message="m", remedy="r", line=line, column=column)

    damage = [at("tab", 3), at("tab", 1)]
    meant = [at("b", 2, 5), at("c", 3), at("a", 2), at("none", None, None)]
    ordered = in_file_order(damage, meant)
    assert [each.code for each in ordered] == ["none", "tab", "a", "b", "tab"]


def test_the_documentation_has_every_key() -> None:
    page = (ROOT / "docs" / "packs.md").read_text("utf-8")
    for key in PACK.keys:
        assert f"| `{key.name}` | {key.meaning}" in page
