"""Layers of agent configuration: how they add up, and what each of the two files may say."""

import copy
import json
import math
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.automation_file import validate_automation_content
from drumbeat.core.config_layers import (
    CONFIG_FILE,
    ConfigLayers,
    WorkspaceConfig,
    config_hash,
    merge_config,
    provider_of,
    read_operator_config,
    read_workspace_config,
)
from drumbeat.core.model import Automation, Json, Step
from drumbeat.errors import AutomationError, NotFound, Problem, WorkspaceError

ROOT = Path(__file__).parents[2]
# No file brings a number that JSON cannot hold: `read_agent_config` refuses it.
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.text(max_size=3) | st.booleans() | st.integers() | FLOATS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
LAYERS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def automation(config: Json) -> Automation:
    return Automation(
        slug="a",
        name="A",
        kind="automation",
        steps=(Step(id="s", prompt="p"),),
        agent_config=config,
    )


# ---- merging


@pytest.mark.parametrize(
    "layers, merged",
    [
        ((), {}),
        (({"a": 1},), {"a": 1}),
        (({"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
        (({"a": 1}, {"a": 2}), {"a": 2}),
        (({"a": 1}, {"a": 2}, {"a": 3}), {"a": 3}),
        (({"a": {"b": 1}}, {"a": {"c": 2}}), {"a": {"b": 1, "c": 2}}),
        (({"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}}), {"a": {"b": {"c": 1, "d": 2}}}),
        (({"a": {"b": 1}}, {"a": {}}), {"a": {"b": 1}}),
        (({"a": {"b": 1}}, {}), {"a": {"b": 1}}),
        (({"a": [1, 2]}, {"a": [3]}), {"a": [3]}),
        (({"a": [1, 2]}, {"a": []}), {"a": []}),
        (({"a": [{"b": 1}]}, {"a": [{"c": 2}]}), {"a": [{"c": 2}]}),
        (({"a": {"b": 1}}, {"a": "text"}), {"a": "text"}),
        (({"a": "text"}, {"a": {"b": 1}}), {"a": {"b": 1}}),
        (({"a": {"b": 1}}, {"a": [1]}), {"a": [1]}),
        (({"a": {"b": 1}}, {"a": False}, {"a": {"c": 2}}), {"a": {"c": 2}}),
        (({"a": (1, {"b": (2,)})},), {"a": [1, {"b": [2]}]}),
    ],
)
def test_mappings_recurse_and_everything_else_replaces(
    layers: tuple[Json, ...], merged: Json
) -> None:
    assert merge_config(*layers) == merged


@given(st.lists(LAYERS, max_size=3))
def test_merging_changes_no_layer_and_shares_nothing_with_one(layers: list[Any]) -> None:
    before = copy.deepcopy(layers)
    merged = merge_config(*layers)
    _spoil(merged)
    assert layers == before


def _spoil(value: Any) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _spoil(inner)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inner in value:
            _spoil(inner)
        value.append("spoilt")


@given(LAYERS, LAYERS)
def test_an_empty_layer_adds_nothing_and_a_repeated_one_neither(below: Any, above: Any) -> None:
    merged = merge_config(below, above)
    assert merge_config({}, below, {}, above, {}, above) == merged
    assert merge_config(below, merged) == merged


# ---- what a configuration is known by


def test_the_hash_is_known_and_carries_its_version() -> None:
    expected = "1:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert config_hash({}) == expected


@given(LAYERS)
def test_the_order_of_keys_does_not_count(config: Any) -> None:
    turned = json.loads(json.dumps(dict(reversed(config.items()))))
    assert config_hash(turned) == config_hash(config)


@pytest.mark.parametrize(
    "other", [{"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}, {"b": 1}, {}, {"a": {"b": 1}}]
)
def test_another_configuration_has_another_hash(other: Json) -> None:
    assert config_hash(other) != config_hash({"a": 1})


def test_any_text_can_be_hashed_and_what_json_cannot_say_is_refused() -> None:
    assert config_hash({"a": "é\ud800"}) != config_hash({"a": "é"})
    with pytest.raises(TypeError):
        config_hash({"a": object()})


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_no_file_brings_is_refused_rather_than_hashed(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        config_hash({"a": [number]})


@pytest.mark.parametrize(
    "config, provider",
    [
        ({"provider": {"module": "openai", "config": {}}}, "openai"),
        ({"provider": {"module": "OpenAI "}}, "OpenAI "),
        ({"provider": {"config": {"default_model": "x"}}}, None),
        ({"provider": {"module": " "}}, None),
        ({"provider": {"module": 1}}, None),
        ({"provider": {"module": ["openai"]}}, None),
        ({"provider": "openai"}, None),
        ({"provider": ["openai"]}, None),
        ({"providers": [{"module": "openai"}]}, None),
        ({}, None),
    ],
)
def test_the_provider_is_the_module_that_is_named(config: Json, provider: str | None) -> None:
    assert provider_of(config) == provider


# ---- the layers of a turn


def model(name: str) -> Json:
    return {"provider": {"config": {"default_model": name}}}


LAYERED = ConfigLayers(
    operator={"provider": {"module": "openai", "config": {"default_model": "o"}}, "debug": False},
    default={**model("d"), "skills": ["s"]},
    profiles={"deep": {**model("p"), "mcp": {"x": 1}}, "quick": {}},
)


def resolved_model(config: Json) -> Any:
    return config["provider"]["config"]["default_model"]


def test_each_layer_wins_over_the_one_below() -> None:
    assert resolved_model(ConfigLayers(operator=LAYERED.operator).resolve(automation({}))) == "o"
    assert resolved_model(LAYERED.resolve(automation({}))) == "d"
    assert resolved_model(LAYERED.resolve(automation(model("b")))) == "b"
    assert resolved_model(LAYERED.resolve(automation(model("b")), "deep")) == "p"
    assert resolved_model(LAYERED.resolve(automation(model("b")), "quick")) == "b"


def test_all_layers_reach_the_turn_and_without_a_profile_none_does() -> None:
    assert LAYERED.resolve(automation({"skills": []})) == {
        "provider": {"module": "openai", "config": {"default_model": "d"}},
        "debug": False,
        "skills": [],
    }


def test_a_question_has_no_automation() -> None:
    assert LAYERED.resolve(None) == LAYERED.resolve(automation({}))
    assert LAYERED.resolve(None, "deep")["mcp"] == {"x": 1}


def test_without_files_a_turn_has_the_automation_s_block() -> None:
    assert ConfigLayers().resolve(automation(model("b"))) == model("b")


@pytest.mark.parametrize("name, meant", [("Deep", "'deep'"), ("qick", "'quick'")])
def test_an_unknown_profile_is_refused_with_the_nearest_and_all(name: str, meant: str) -> None:
    with pytest.raises(NotFound) as caught:
        LAYERED.resolve(None, name)
    problem = caught.value.problem
    assert problem.code == "profile-unknown"
    assert f"did you mean {meant}?" in problem.message
    assert problem.remedy == "name one of 'deep', 'quick'"


@pytest.mark.parametrize("name", ["", "deep"])
def test_without_profiles_the_remedy_says_where_to_write_one(name: str) -> None:
    with pytest.raises(NotFound) as caught:
        ConfigLayers().resolve(None, name)
    assert "`profiles:` in agent-config.yaml" in caught.value.problem.remedy


# ---- the files


def test_the_operator_s_file_is_one_layer() -> None:
    text = "provider:\n  module: openai\ndebug: true\n"
    assert read_operator_config(text) == {"provider": {"module": "openai"}, "debug": True}
    assert read_operator_config(f"\ufeff---\n{text}".encode()) == read_operator_config(text)
    assert read_operator_config("{}") == {}


def test_json_is_read_as_the_yaml_that_it_is() -> None:
    config = {"provider": {"module": "o", "config": {"n": 1.5, "b": True, "t": "1"}}, "mcp": ["x"]}
    assert read_operator_config(json.dumps(config)) == config
    assert read_operator_config(json.dumps(config, indent=2)) == config


def test_the_workspace_s_file_has_a_default_and_profiles() -> None:
    text = (
        "default:\n  debug: 1\nprofiles:\n  quick: {debug: 0}\n  deep thought:\n    skills: [a]\n"
    )
    assert read_workspace_config(text) == WorkspaceConfig(
        default={"debug": 1}, profiles={"quick": {"debug": 0}, "deep thought": {"skills": ["a"]}}
    )
    assert read_workspace_config("default: {debug: 1}") == WorkspaceConfig(default={"debug": 1})
    assert read_workspace_config("profiles: {}") == WorkspaceConfig()
    assert read_workspace_config("{}") == WorkspaceConfig()


def operator_problems(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(WorkspaceError) as caught:
        read_operator_config(text, path=PurePath("op.yaml"))
    assert {problem.path for problem in caught.value.problems} == {PurePath("op.yaml")}
    return caught.value.problems


def workspace_problems(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(WorkspaceError) as caught:
        read_workspace_config(text, path=PurePath("agent-config.yaml"))
    assert {problem.path for problem in caught.value.problems} == {PurePath("agent-config.yaml")}
    return caught.value.problems


def automation_problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(AutomationError) as caught:
        validate_automation_content(text)
    return caught.value.problems


def located(problems: tuple[Problem, ...]) -> list[str]:
    return [f"{each.line}:{each.column} {each.code}" for each in problems]


def in_each_layer(block: str) -> list[tuple[int, tuple[Problem, ...]]]:
    """What is wrong with a block in each place where one may stand, and on which line it begins."""

    def indented(by: int) -> str:
        return "".join(f"{' ' * by}{line}\n" for line in block.splitlines())

    head = "---\nautomation:\n  name: A\n  trigger: {type: manual}\n"
    steps = "  steps: [{id: s, prompt: p}]\n---\n"
    return [
        (1, operator_problems(block)),
        (2, workspace_problems(f"default:\n{indented(2)}")),
        (3, workspace_problems(f"profiles:\n  quick:\n{indented(4)}")),
        (6, automation_problems(f"{head}  agent_config:\n{indented(4)}{steps}")),
    ]


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "apiKey",
        "API-KEY",
        "api key",
        "token",
        "TOKEN",
        "access_token",
        "accessToken",
        "secret",
        "clientSecret",
        "client-secret",
        "authorization",
        "Authorization",
        "password",
        "db_password",
    ],
)
@pytest.mark.parametrize(
    "around, where, line",
    [
        ("{key}: hunter2", "{key}", 0),
        ("provider:\n  {key}: hunter2", "provider.{key}", 1),
        ("provider:\n  config:\n    {key}: hunter2", "provider.config.{key}", 2),
        ("providers:\n  - module: a\n    {key}: hunter2", "providers[0].{key}", 2),
        ("mcp:\n  - - x\n    - {key}: {{a: hunter2}}", "mcp[0][1].{key}", 2),
        ("debug:\n  {key}: [hunter2]", "debug.{key}", 1),
        ("skills:\n  {key}:", "skills.{key}", 1),
    ],
)
def test_a_credential_is_refused_in_every_layer_by_its_path_and_its_value_is_nowhere(
    key: str, around: str, where: str, line: int
) -> None:
    for begin, problems in in_each_layer(around.format(key=key)):
        (problem,) = problems
        assert (problem.code, problem.line) == ("agent-config-credential", begin + line)
        assert where.format(key=key) in problem.message
        assert "hunter2" not in str(problem)


@pytest.mark.parametrize("key", ["max_tokens", "tokens", "secret_name", "token_limit", "passwords"])
def test_a_key_that_only_reminds_of_a_credential_loads(key: str) -> None:
    block = f"provider: {{{key}: 1}}"
    assert read_operator_config(block) == {"provider": {key: 1}}
    assert read_workspace_config(f"default: {{{block}}}").default == {"provider": {key: 1}}


@pytest.mark.parametrize("null", ["null", "Null", "NULL", "~", "", "# x"])
@pytest.mark.parametrize(
    "around, where",
    [
        ("provider: {}", "provider"),
        ("provider:\n  module: {}", "provider.module"),
        ("mcp:\n  - {}", "mcp[0]"),
        ("mcp:\n  - a: {}", "mcp[0].a"),
    ],
)
def test_a_null_is_refused_in_every_layer_by_its_path(null: str, around: str, where: str) -> None:
    for begin, problems in in_each_layer(around.format(null)):
        (problem,) = problems
        assert (problem.code, problem.line) == (
            "agent-config-null",
            begin + around.count("\n"),
        )
        assert f"{where}` is null" in problem.message


def test_the_vocabulary_is_closed_in_every_layer() -> None:
    for begin, problems in in_each_layer("approval: x\nprovder: {}"):
        assert [(each.code, each.line) for each in problems] == [
            ("agent-config-unknown-key", begin),
            ("agent-config-unknown-key", begin + 1),
        ]
        assert "did you mean 'provider'?" in problems[1].message


def test_paths_in_the_workspace_s_file_begin_at_its_top() -> None:
    problems = workspace_problems("default: {mcp: ~}\nprofiles: {deep: {mcp: [~]}}")
    assert [each.message for each in problems] == [
        "`default.mcp` is null",
        "`profiles.deep.mcp[0]` is null",
    ]


def test_only_default_and_profiles_stand_at_the_top_of_the_workspace_s_file() -> None:
    problems = workspace_problems("defalt: {}\nprovider: {}\ntoken: hunter2\nprofile: x\n")
    assert located(problems) == [
        "1:1 unknown-key",
        "2:1 misplaced-key",
        "3:1 agent-config-credential",
        "4:1 unknown-key",
    ]
    assert "did you mean 'default'?" in problems[0].message
    assert "indent it below `default:`" in problems[1].remedy
    assert "hunter2" not in str(WorkspaceError(problems))


def test_another_file_s_keys_in_the_operator_s_are_told_where_to_go() -> None:
    text = "default: {debug: 1}\nagent_config: {debug: 1}\nprofiles: {}\nother: x"
    problems = operator_problems(text)
    assert located(problems) == [
        "1:1 misplaced-key",
        "2:1 misplaced-key",
        "3:1 misplaced-key",
        "4:1 agent-config-unknown-key",
    ]
    assert "take `default:` out" in problems[0].remedy
    assert "agent-config.yaml" in problems[2].remedy


@pytest.mark.parametrize("null", ["null", "~", "", "# x"])
def test_a_layer_that_is_null_is_refused(null: str) -> None:
    text = f"default: {null}\nprofiles: {null}\n"
    assert [each.code for each in workspace_problems(text)] == ["agent-config-null"] * 2
    (problem,) = workspace_problems(f"profiles:\n  quick: {null}\n")
    assert "`profiles.quick` is null" in problem.message


def test_a_layer_of_another_shape_is_refused() -> None:
    text = "default: [debug]\nprofiles:\n  - quick\n"
    assert located(workspace_problems(text)) == ["1:10 wrong-type", "3:3 wrong-type"]
    (problem,) = workspace_problems("profiles: {quick: openai}")
    assert "`profiles.quick` takes a mapping, and this is text" in problem.message


def test_a_profile_is_not_named_like_a_credential() -> None:
    (problem,) = workspace_problems("profiles: {api_key: hunter2, quick: {}}")
    assert problem.code == "agent-config-credential"
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize("text", ["", "\n", "# all of it a comment\n", "- a", "text"])
def test_a_file_without_keys_is_refused_with_what_to_do_instead(text: str) -> None:
    """It is what a file looks like that was cut off while it was written."""
    (problem,) = operator_problems(text)
    assert problem.code == "yaml-not-a-mapping"
    assert "unset AMPLIFIER_AGENT_CONFIG" in problem.remedy
    (problem,) = workspace_problems(text)
    assert problem.code == "yaml-not-a-mapping"
    assert "delete the file" in problem.remedy


def test_what_is_wrong_with_the_text_is_reported_beside_what_it_says() -> None:
    text = "default:\n  debug: 1\n  debug: 2\n  token: x\nprofiles: {a: {debug: &b}}\n"
    assert located(workspace_problems(text)) == ["5:23 yaml-anchor"]
    assert located(workspace_problems(text.replace("&b", "'\\0'"))) == [
        "3:3 duplicate-key",
        "4:3 agent-config-credential",
    ]
    assert located(operator_problems("debug: 1\ndebug: 2\ntoken: x")) == [
        "2:1 duplicate-key",
        "3:1 agent-config-credential",
    ]


def test_a_file_that_is_no_text_is_refused() -> None:
    assert located(operator_problems(b"debug: \xff")) == ["1:8 not-utf8"]
    (problem,) = workspace_problems(b"x" * (1024 * 1024 + 1))
    assert problem.code == "file-too-large"
    assert "automation" not in problem.remedy


def test_a_secret_in_a_key_is_in_no_message() -> None:
    secret = "ghp_" + "a1B2" * 10
    for _, problems in in_each_layer(f'mcp:\n  {secret}:\n    token: x\n    "a\\Lb": ~\n'):
        assert len(problems) == 2
        assert secret not in "".join(map(str, problems))
        assert "\u2028" not in "".join(map(str, problems))


@given(st.text(max_size=80))
def test_whatever_stands_there_only_a_workspace_error_is_raised(text: str) -> None:
    for read in (read_operator_config, read_workspace_config):
        try:
            read(text)
        except WorkspaceError as error:
            lacking = [each for each in error.problems if not (each.remedy and each.line)]
            assert (bool(error.problems), lacking) == (True, [])  # noqa: PT017


def test_the_documentation_has_every_key() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    for key in CONFIG_FILE.keys:
        assert f"| `{key.name}` | {key.meaning}" in page
