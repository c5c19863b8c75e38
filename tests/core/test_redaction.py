from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.identity import run_token
from drumbeat.core.model import Fire
from drumbeat.core.redaction import Redactor

TOKEN = "tok-12345678"


@pytest.mark.parametrize(
    "secrets, text, expected",
    [
        ({"T": TOKEN}, f"a {TOKEN} b {TOKEN}", "a [redacted T] b [redacted T]"),
        ({"T": TOKEN}, "nothing here", "nothing here"),
        ({"T": TOKEN}, TOKEN.upper(), TOKEN.upper()),
        ({"T": "1234567"}, "1234567", "1234567"),
        ({"T": "12345678"}, "12345678", "[redacted T]"),
        ({"T": " " * 8}, " " * 9, " " * 9),
        ({"A": "abcdefgh", "B": "abcdefghij"}, "abcdefghij abcdefgh", "[redacted B] [redacted A]"),
        ({"A": "cdefghij", "B": "abcdefghijkl"}, "abcdefghijkl", "[redacted B]"),
        (
            {"A": "abcdefghij", "B": "ghijklmnop"},
            "-abcdefghijklmnop-",
            "-[redacted A][redacted B]-",
        ),
        ({"A": "abcdefgh", "B": "ijklmnop"}, "abcdefghijklmnop", "[redacted A][redacted B]"),
        ({"B": TOKEN, "A": TOKEN}, TOKEN, "[redacted A]"),
        ({"K": "line one\nline two"}, "x line one\nline two y", "x [redacted K] y"),
        ({"R": ".*+?[a-z]"}, "a .*+?[a-z] b", "a [redacted R] b"),
        ({}, TOKEN, TOKEN),
        ({"T": f"{TOKEN}\r\n"}, f"a {TOKEN} b", "a [redacted T] b"),
        ({"T": "1234567\n"}, "1234567\n", "1234567\n"),
        ({"T": TOKEN}, f"…{TOKEN[1:]} b", "…[redacted T] b"),
        ({"T": TOKEN}, f"… said: …{TOKEN[-4:]}", "… said: …[redacted T]"),
        ({"T": TOKEN}, f"…{TOKEN[-3:]} {TOKEN[1:]}", f"…{TOKEN[-3:]} {TOKEN[1:]}"),
        ({"T": TOKEN}, f"…{TOKEN}", "…[redacted T]"),
        ({"T": TOKEN}, f"…{TOKEN[1:6]} b", f"…{TOKEN[1:6]} b"),
    ],
)
def test_known_values_are_replaced_by_their_names(
    secrets: dict[str, str], text: str, expected: str
) -> None:
    assert Redactor(secrets).text(text) == expected


RUN = run_token("Ab-_" * 10 + "xyz")


@pytest.mark.parametrize(
    "text, expected",
    [
        (f"Bearer {RUN}.", "Bearer [redacted DRUMBEAT_RUN_TOKEN]."),
        (f"{RUN}{RUN}", "[redacted DRUMBEAT_RUN_TOKEN][redacted DRUMBEAT_RUN_TOKEN]"),
        (RUN[:25], "[redacted DRUMBEAT_RUN_TOKEN]"),
        (RUN[:24], RUN[:24]),
        (f"…{RUN[1:]} b", "…[redacted DRUMBEAT_RUN_TOKEN] b"),
        (f"…{RUN[-20:]} b", "…[redacted DRUMBEAT_RUN_TOKEN] b"),
        (f"…{RUN[-19:]} b", f"…{RUN[-19:]} b"),
        (f"…{'a' * 49}", f"…{'a' * 49}"),
        (RUN[-20:], RUN[-20:]),
    ],
)
def test_the_tokens_of_runs_go_by_their_form(text: str, expected: str) -> None:
    """Whoever writes need not know the run."""
    assert Redactor({}).text(text) == expected


@pytest.mark.parametrize(
    "text, longest, expected",
    [
        ("abcdef", 3, "abc"),
        ("abc", 3, "abc"),
        ("abc", 9, "abc"),
        (f"ab{TOKEN}cd", 9, "ab[redact"),
        (f"abcdefgh{TOKEN}", 9, "abcdefgh["),
        (f"abcdefghi{TOKEN}", 9, "abcdefghi"),
        (f"{TOKEN}abcdef", 12, "[redacted T]"),
        (f"{TOKEN}{TOKEN}abc", 23, "[redacted T][redacted T"),
        (f"{RUN}abc", 30, "[redacted DRUMBEAT_RUN_TOKEN]a"[:29]),
    ],
)
def test_a_beginning_holds_no_part_of_a_value(text: str, longest: int, expected: str) -> None:
    """What is cut is what was redacted, and a value is taken out wholly wherever the cut is."""
    assert Redactor({"T": TOKEN}).head(text, longest) == expected


@given(st.text("xy", min_size=8, max_size=10), st.text("xyz", max_size=60), st.integers(0, 40))
def test_a_beginning_is_that_of_the_whole(secret: str, text: str, longest: int) -> None:
    redactor = Redactor({"A": secret})
    assert redactor.text(text).startswith(redactor.head(text, longest))


def test_the_rest_of_a_text_is_not_looked_at() -> None:
    class Counted(str):
        __slots__ = ()
        taken = 0

        def __getitem__(self, key: Any) -> str:
            taken = super().__getitem__(key)
            Counted.taken += len(taken)
            return taken

    assert Redactor({"T": TOKEN}).head(Counted("x" * 100_000), 10) == "x" * 10
    assert Counted.taken < 1000


def test_values_of_json_are_replaced_wherever_they_stand() -> None:
    value = {"a": [TOKEN, 1, None, True, 1.5], TOKEN: ("x", {"b": f"<{TOKEN}>"}), "raw": b"bytes"}
    assert Redactor({"T": TOKEN}).json(value) == {
        "a": ["[redacted T]", 1, None, True, 1.5],
        "[redacted T]": ["x", {"b": "<[redacted T]>"}],
        "raw": b"bytes",
    }


def test_later_changes_of_the_mapping_do_not_reach_it() -> None:
    secrets = {"T": TOKEN}
    redactor = Redactor(secrets)
    secrets.clear()
    assert redactor.text(TOKEN) == "[redacted T]"


def test_its_own_description_holds_no_value() -> None:
    assert repr(Redactor({"T": TOKEN, "S": "short"})) == "Redactor(1 values)"


@given(
    st.dictionaries(st.just("A") | st.just("B"), st.text("xy", min_size=8, max_size=10)),
    st.text("xyz"),
    st.data(),
)
def test_no_known_value_is_left_and_nothing_else_is_lost(
    secrets: dict[str, str], text: str, data: st.DataObject
) -> None:
    redacted = Redactor(secrets).text(text)
    assert not any(value in redacted for value in secrets.values())
    assert redacted.count("z") == text.count("z")
    if not any(value in text for value in secrets.values()):
        assert redacted == text


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_without_secrets_json_comes_back_equal(value: Any) -> None:
    assert Redactor({}).json(value) == value


def test_what_a_caller_and_an_agent_wrote_into_a_fire_is_taken_out() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    fire = Fire(id="f", slug="a", cause="manual", slot="for hunter2hunter2", due=at, created_at=at)
    redactor = Redactor({"KEY": "hunter2hunter2"})
    assert redactor.fire(fire) == attrs.evolve(fire, slot="for [redacted KEY]")
    asked = attrs.evolve(fire, slot="s", prompt="use hunter2hunter2")
    assert redactor.fire(asked) == attrs.evolve(asked, prompt="use [redacted KEY]")


def test_a_text_full_of_cuts_is_compared_with_hardly_anything() -> None:
    """A reply can be nothing but ellipses; the work must not grow with the secrets behind each."""

    class Counted(str):
        __slots__ = ()
        compared = 0

        def startswith(self, *given: Any) -> bool:
            Counted.compared += 1
            return str.startswith(self, *given)

    redactor = Redactor({f"S{number}": f"{number:03}{'x' * 40}y" for number in range(100)})
    assert redactor.text(Counted("… a…bcde…" * 1000)) == "… a…bcde…" * 1000
    assert Counted.compared == 0
    assert redactor.text(Counted("…xxxy…")) == "…[redacted S0]…"
