"""The words of messages: quotations, near words, lists, and places."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.messages import (
    closest,
    did_you_mean,
    exactly,
    lasting,
    listed,
    on_lines,
    quoted,
    shown,
)
from drumbeat.core.vocabulary import AUTOMATION


@pytest.mark.parametrize(
    "text, said",
    [
        ("a", "'a'"),
        ("a\nb", "'a\\nb'"),
        ("x" * 60, "'" + "x" * 60 + "'"),
        ("x" * 61, "'" + "x" * 57 + "\u2026'"),
    ],
)
def test_a_quotation_is_short_and_on_one_line(text: str, said: str) -> None:
    assert quoted(text) == said


@given(st.text())
def test_any_text_can_be_quoted(text: str) -> None:
    assert len(quoted(text).splitlines()) == 1
    assert shown(text).isprintable()


@pytest.mark.parametrize(
    "text, said",
    [("a", "a"), ('it\'s "a"', 'it\'s "a"'), ("a\nb\x07", "a\\nb\\x07"), ("\\", "\\")],
)
def test_what_is_shown_has_no_quotes_of_its_own(text: str, said: str) -> None:
    """A quote or a backslash that an author wrote is not escaped: the line can be copied."""
    assert shown(text) == said


def test_what_is_shown_may_be_longer_and_holds_no_secret() -> None:
    token = "ghp_" + "a1B2" * 10
    assert shown("x" * 100, longest=100) == "x" * 100
    assert shown("x" * 101, longest=100) == "x" * 97 + "\u2026"
    assert shown(f"a {token}") == "a [hidden]"


def test_a_thing_that_stands_twice_on_one_line_names_it_once() -> None:
    assert on_lines(3, 8) == "on line 3 and on line 8"
    assert on_lines(8, 8) == "both times on line 8"


@pytest.mark.parametrize(
    "word, option",
    [
        ("nmae", "name"),
        ("Requires", "requires"),
        ("guidance-delivery", "guidance_delivery"),
        ("agentConfig", "agent_config"),
        ("step", "steps"),
        ("conversaton ", "conversation"),
        ("colour", None),
        ("", None),
        ("x" * 10_000, None),
    ],
)
def test_a_misspelt_word_finds_the_nearest_option(word: str, option: str | None) -> None:
    assert closest(word, AUTOMATION.names) == option
    said = did_you_mean(word, AUTOMATION.names)
    assert said == ("" if option is None else f"; did you mean {option!r}?")


@pytest.mark.parametrize(
    "names, said", [((), ""), (("a",), "a"), (("a", "b"), "a or b"), (("a", "b", "c"), "a, b or c")]
)
def test_words_are_joined_for_a_sentence(names: tuple[str, ...], said: str) -> None:
    assert listed(names) == said


@pytest.mark.parametrize(
    "seconds, said",
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (7_200, "2 h"),
        (86_400, "1 d"),
        (4 * 86_400 + 4 * 3_600 + 45 * 60 + 46.077628, "4 d 4 h 45 min"),
    ],
)
def test_a_duration_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert lasting(timedelta(seconds=seconds)) == said


@pytest.mark.parametrize(
    "span, said",
    [
        (timedelta(0), "0 s"),
        (timedelta(seconds=-1), "-1 s"),
        (timedelta(seconds=0.2), "0.2 s"),
        (timedelta(microseconds=-1), "-0.000001 s"),
        (timedelta(seconds=90), "1 min 30 s"),
        (timedelta(hours=1), "1 h"),
        (timedelta(days=30), "30 d"),
        (timedelta(days=30, seconds=1), "30 d 1 s"),
        (timedelta(days=-1, seconds=60), "-23 h 59 min"),
        (timedelta.max, "999999999 d 23 h 59 min 59.999999 s"),
        (timedelta(days=-999_999_999, microseconds=1), "-999999998 d 23 h 59 min 59.999999 s"),
        (timedelta.min, "-999999999 d"),
    ],
)
def test_a_limit_and_what_breaks_it_are_told_apart(span: timedelta, said: str) -> None:
    assert exactly(span) == said
