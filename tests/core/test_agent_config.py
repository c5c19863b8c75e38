"""A layer of agent configuration: types, nulls, credentials, the closed vocabulary."""

from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.agent_config import AgentConfigLayer, is_credential_key, read_agent_config
from drumbeat.core.frontmatter import read_yaml


def layer(text: str, *, path: PurePath | None = None) -> AgentConfigLayer:
    entry = read_yaml(text).root.find("default")
    assert entry is not None
    return read_agent_config(entry, path=path)


def value_of(written: str) -> Any:
    read = layer(f"default: {{provider: {{x: {written}}}}}")
    assert read.problems == ()
    return read.values["provider"]["x"]


@pytest.mark.parametrize(
    "written, value",
    [
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("False", False),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("yes", "yes"),
        ("on", "on"),
        ("0", 0),
        ("1", 1),
        ("-17", -17),
        ("+17", 17),
        ("007", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1e3", -1000.0),
        ("1e-3", 0.001),
        ("1.2.3", "1.2.3"),
        ("12:30", "12:30"),
        ("\u0661", "\u0661"),
        ("2026-01-01", "2026-01-01"),
        ("gpt-5-mini", "gpt-5-mini"),
        ("'true'", "true"),
        ('"1"', "1"),
        ("'null'", "null"),
        ("''", ""),
        ("'~'", "~"),
        ("[1, '2', {a: true}]", [1, "2", {"a": True}]),
        ("[]", []),
        ("{}", {}),
    ],
)
def test_unquoted_texts_are_typed_as_yaml_1_2_says_and_quoted_ones_are_text(
    written: str, value: Any
) -> None:
    read = value_of(written)
    assert read == value
    assert type(read) is type(value)


def test_a_block_is_text() -> None:
    assert layer("default:\n  mcp: |\n    1\n").values == {"mcp": "1\n"}


def test_all_top_keys_are_taken_in_order() -> None:
    read = layer(
        "default: {provider: {module: openai}, providers: [], mcp: a, skills: b, debug: 1}"
    )
    assert read.problems == ()
    assert read.values == {
        "provider": {"module": "openai"},
        "providers": [],
        "mcp": "a",
        "skills": "b",
        "debug": 1,
    }


def test_an_empty_mapping_is_an_empty_layer() -> None:
    assert layer("default: {}") == AgentConfigLayer(values={}, problems=())


@pytest.mark.parametrize("written", ["null", "Null", "NULL", "~", ""])
@pytest.mark.parametrize(
    "around, where",
    [
        ("  provider: {}\n", "provider"),
        ("  provider:\n    config:\n      x: {}\n", "provider.config.x"),
        ("  mcp:\n    - a\n    - {}\n", "mcp[1]"),
        ("  mcp:\n    - - a\n      - {}\n", "mcp[0][1]"),
        ("  mcp:\n    - k: {}\n", "mcp[0].k"),
    ],
)
def test_null_is_refused_anywhere_and_named_by_its_path(
    written: str, around: str, where: str
) -> None:
    text = "default:\n" + around.replace("{}", written)
    (problem,) = layer(text).problems
    assert problem.code == "agent-config-null"
    assert f"`{where}`" in problem.message


@pytest.mark.parametrize("written", ["~", "", "#x", "null"])
def test_a_layer_that_is_null_is_refused(written: str) -> None:
    read = layer(f"default: {written}\nother: x")
    assert [problem.code for problem in read.problems] == ["agent-config-null"]
    assert ("comment" in read.problems[0].message) is (written == "#x")


@pytest.mark.parametrize("written", ["text", "'null'", "[a]"])
def test_a_layer_that_is_no_mapping_is_refused(written: str) -> None:
    (problem,) = layer(f"default: {written}").problems
    assert (problem.code, problem.line, problem.column) == ("wrong-type", 1, 10)


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "apiKey",
        "API-KEY",
        "api key",
        "x-api-key",
        "OPENAI_API_KEY",
        "token",
        "Token",
        "access_token",
        "accessToken",
        "secret",
        "clientSecret",
        "client.secret",
        "authorization",
        "Authorization",
        "password",
        "db-password",
        "\uff54oken",
    ],
)
def test_a_key_that_names_a_credential_is_one(key: str) -> None:
    assert is_credential_key(key)


@pytest.mark.parametrize(
    "key", ["max_tokens", "maxTokens", "tokenizer", "secrets_file", "key", "api", "passwords", ""]
)
def test_a_key_that_only_looks_a_little_like_one_is_none(key: str) -> None:
    assert not is_credential_key(key)


@pytest.mark.parametrize(
    "text, where, line, column",
    [
        ("default:\n  apiKey: hunter2\n", "apiKey", 2, 3),
        (
            "default:\n  provider:\n    config:\n      api_key: hunter2\n",
            "provider.config.api_key",
            4,
            7,
        ),
        (
            "default:\n  mcp:\n    - a\n    - {env: {GH_TOKEN: hunter2}}\n",
            "mcp[1].env.GH_TOKEN",
            4,
            14,
        ),
        ("default:\n  debug:\n    token: {a: hunter2, b: }\n", "debug.token", 3, 5),
        ("default:\n  debug:\n    token:\n", "debug.token", 3, 5),
    ],
)
def test_a_credential_is_refused_by_its_path_and_its_value_is_nowhere(
    text: str, where: str, line: int, column: int
) -> None:
    read = layer(text, path=PurePath("a.yaml"))
    (problem,) = read.problems
    assert problem.code == "agent-config-credential"
    assert f"`{where}`" in problem.message
    assert (problem.path, problem.line, problem.column) == (PurePath("a.yaml"), line, column)
    assert "hunter2" not in str(problem)
    assert "hunter2" not in str(read.values)


def test_other_top_keys_are_refused_with_the_nearest_one() -> None:
    approval, provider = layer("default:\n  approval: never\n  provder: {}\n").problems
    assert (approval.code, approval.line, approval.column) == ("agent-config-unknown-key", 2, 3)
    assert "did you mean" not in approval.message
    assert "did you mean 'provider'?" in provider.message


@pytest.mark.parametrize("written", [".inf", "-.INF", ".NaN", "1e999", "9" * 301, "0x" + "f" * 400])
def test_a_number_that_json_cannot_hold_is_refused(written: str) -> None:
    (problem,) = layer(f"default: {{debug: {written}}}").problems
    assert (problem.code, problem.line, problem.column) == ("agent-config-number", 1, 18)
    assert "`debug`" in problem.message


@pytest.mark.slow
@given(
    st.recursive(
        st.booleans() | st.integers() | st.text("ab1 ~", min_size=1),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
        max_leaves=8,
    )
)
def test_what_json_writes_is_read_as_it_was(value: Any) -> None:
    """JSON is YAML in flow style, with every text quoted."""
    import json

    assert layer(f"default: {{debug: {json.dumps(value)}}}").values == {"debug": value}
