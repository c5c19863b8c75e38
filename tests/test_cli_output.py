"""The command line's printing: nothing from a file or a model reaches the terminal as a command."""

import io
from contextlib import redirect_stdout
from pathlib import PurePath

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from hypothesis import given
from hypothesis import strategies as st

from drumbeat import Finding, Problem
from drumbeat.cli.output import Output, problem_lines, visible


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb", "a\\rb"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x9b31m", "\\x9b31m"),
        ("\x07\x00\x7f", "\\x07\\x00\\x7f"),
        ("invoice\u202egpj.exe", "invoice\\u202egpj.exe"),
        ("\u2028\ud800", "\\u2028\\ud800"),
        ("Zürich 日本 👩‍🚀", "Zürich 日本 👩‍🚀"),
    ],
)
def test_control_characters_are_shown_not_sent(raw: str, shown: str) -> None:
    """Escape, carriage return, bell, direction marks and surrogates appear as escapes."""
    assert visible(raw) == shown


def test_lines_keep_their_ends_when_asked() -> None:
    """A message of several lines stays one, a carriage return in it does not."""
    assert visible("a\n\tb\r\nc", lines=True) == "a\n\tb\\r\nc"


@given(st.text())
def test_whatever_comes_is_one_printable_line(text: str) -> None:
    """Any text becomes one line without a control character that UTF-8 can carry."""
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    shown.encode()


def test_a_problem_prints_its_place_its_code_and_its_remedy() -> None:
    """A refusal begins with the place; a finding names its severity behind it."""
    place = {"path": PurePath("a\x1b.md"), "line": 3, "column": 5}
    problem = Problem(code="unknown-key", message="no \x1b[0m key", remedy="one\ntwo", **place)
    assert problem_lines(problem) == [
        "a\\x1b.md:3:5: no \\x1b[0m key [unknown-key]",
        "  one",
        "  two",
    ]
    finding = Finding(code="uneven-step", message="m", remedy="", severity="warning")
    assert problem_lines(finding) == ["warning: m [uneven-step]"]


def test_a_table_in_a_pipe_keeps_each_row_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is cut off or wrapped, and brackets are no markup."""
    long = "x" * 300
    Output().table(("name", "why"), [("[bold]a", long), ("b\nc", "y")])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert lines[0].split() == ["name", "why"]
    assert lines[1].split() == ["[bold]a", long]
    assert lines[2].split() == ["b\\nc", "y"]


def test_output_goes_into_any_stream() -> None:
    """A host that redirects standard output to an object of its own gets the text."""
    with redirect_stdout(io.StringIO()) as stream:
        Output().line("Hello.")
    assert stream.getvalue() == "Hello.\n"


def test_a_line_is_neither_wrapped_nor_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed is what was given, at any length."""
    text = "[red]" + "word " * 100
    Output().line(text)
    assert capsys.readouterr().out == text + "\n"


def test_whatever_is_printed_is_made_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    """No caller has to think of it, and one that did finds its text as it was."""
    output = Output()
    output.line("a\x1b[2J\nb")
    output.lines("a\x1b[2J\nb")
    output.error("a\x1b[2J\nb")
    output.error("a\x1b[2J\nb", lines=True)
    output.facts([("name", "a\x1b[2J\nb")])
    output.line(visible("a\x1b[2J\nb"))
    out, err = capsys.readouterr()
    one, two = "a\\x1b[2J\\nb\n", "a\\x1b[2J\nb\n"
    assert out == one + two + "  name  " + one + one
    assert err == one + two
