"""The tables of keys, what follows from them, and the words for misspelt ones."""

import re
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

from drumbeat.core.messages import listed
from drumbeat.core.model import (
    Automation,
    GuidanceDelivery,
    InjectSpec,
    Lifecycle,
    Notify,
    RouteMethod,
    Step,
)
from drumbeat.core.vocabulary import (
    AGENT_CONFIG_KEYS,
    AUTOMATION,
    FILE,
    INJECT,
    JOB,
    RETIRED,
    STEP,
    TRIGGER,
    Key,
    Level,
    json_schema,
)

LEVELS = (FILE, AUTOMATION, TRIGGER, STEP, INJECT)
DOCUMENT = Path(__file__).parents[2] / "docs" / "automation-file.md"


def test_the_vocabulary_is_the_one_of_the_contract() -> None:
    assert {level.name: level.names for level in LEVELS} == {
        "the front matter": ("automation",),
        "`automation`": (
            "name",
            "enabled",
            "trigger",
            "steps",
            "notify",
            "requires",
            "inject",
            "conversation",
            "guidance_delivery",
            "agent_config",
        ),
        "`trigger`": ("type", "expression"),
        "a step": ("id", "prompt", "label"),
        "an `inject` entry": ("argv", "label"),
    }
    assert set(RETIRED) == {"session", "session_workspace", "prompt_caching"}


def test_exactly_the_contracts_keys_are_required() -> None:
    required = {(level.name, key.name) for level in LEVELS for key in level.keys if key.required}
    assert required == {
        ("the front matter", "automation"),
        ("`automation`", "name"),
        ("`automation`", "trigger"),
        ("`automation`", "steps"),
        ("`trigger`", "type"),
        ("a step", "id"),
        ("a step", "prompt"),
        ("an `inject` entry", "argv"),
        ("an `inject` entry", "label"),
    }


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_every_key_says_what_it_means_and_how_to_write_it(level: Level) -> None:
    for key in level.keys:
        assert key.meaning
        assert key.remedy.startswith("write ")
        assert level.find(key.name) is key
    assert level.find("nothing") is None


def test_a_choice_is_offered_exactly_as_the_value_takes_it() -> None:
    """The words of `Literal`s and of the tables are the same, and a remedy lists them all."""
    keys = {key.name: key for key in (*AUTOMATION.keys, *JOB.keys) if key.choices}
    literals = {
        "notify": Notify,
        "conversation": Lifecycle,
        "guidance_delivery": GuidanceDelivery,
        "method": RouteMethod,
    }
    assert {name: key.choices for name, key in keys.items()} == {
        name: get_args(literal) for name, literal in literals.items()
    }
    for key in keys.values():
        assert key.remedy == f"write {listed(key.choices)}"


def test_the_values_have_a_field_for_every_key() -> None:
    fields = {
        AUTOMATION: {field.name for field in attrs.fields(Automation)},
        STEP: {field.name for field in attrs.fields(Step)},
        INJECT: {field.name for field in attrs.fields(InjectSpec)},
    }
    for level, names in fields.items():
        assert {"triggers" if name == "trigger" else name for name in level.names} <= names


@pytest.mark.parametrize("key", AUTOMATION.keys, ids=lambda key: key.name)
def test_a_default_is_the_one_of_the_value(key: Key) -> None:
    meant = {"true": True, "[]": (), "{}": {}}
    smallest = Automation(slug="", name="", kind="automation", steps=())
    if key.default is not None:
        assert getattr(smallest, key.name) == meant.get(key.default, key.default)


# ---- the JSON schema


def test_the_schema_knows_every_key_and_no_other() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    block = schema["properties"]["automation"]
    parts = {
        FILE: schema,
        AUTOMATION: block,
        TRIGGER: block["properties"]["trigger"],
        STEP: block["properties"]["steps"]["items"],
        INJECT: block["properties"]["inject"]["items"],
    }
    for level, part in parts.items():
        assert part["type"] == "object"
        assert part["additionalProperties"] is False
        assert tuple(part["properties"]) == level.names
        assert part["required"] == [key.name for key in level.keys if key.required]


def test_the_schema_says_what_a_key_takes() -> None:
    block = json_schema()["properties"]["automation"]["properties"]
    scalar = ["string", "number", "boolean"]
    assert block["notify"]["enum"] == ["always", "auto", "urgent-only", "never"]
    assert block["notify"]["default"] == "auto"
    assert block["enabled"]["default"] is True
    assert block["requires"]["items"] == {"type": scalar}
    assert block["requires"]["default"] == []
    assert "minItems" not in block["requires"]
    assert block["steps"]["minItems"] == 1
    assert tuple(block["agent_config"]["properties"]) == AGENT_CONFIG_KEYS
    assert block["name"] == {
        "description": AUTOMATION.keys[0].meaning,
        "type": scalar,
        "pattern": r"\S",
    }
    step_id = re.compile(block["steps"]["items"]["properties"]["id"]["pattern"])
    assert step_id.match("check-inbox-2")
    assert not step_id.match("Check")


@pytest.mark.parametrize(
    "word, fits",
    [("true", True), ("OFF", True), ("Yes", True), ("nO", True), ("maybe", False), ("on ", False)],
)
def test_the_schema_takes_every_spelling_of_a_boolean(word: str, fits: bool) -> None:
    enabled = json_schema()["properties"]["automation"]["properties"]["enabled"]
    assert enabled["type"] == ["boolean", "string"]
    assert bool(re.search(enabled["pattern"], word)) is fits


def test_a_table_that_leaves_out_a_level_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Level(name="x", keys=(Key(name="k", form="mapping", meaning="m", remedy="r"),))
    monkeypatch.setattr("drumbeat.core.vocabulary.FILE", broken)
    with pytest.raises(ValueError, match="k takes mappings"):
        json_schema()


# ---- the documentation


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_documented_table_of_keys_is_the_vocabulary() -> None:
    """Key, required, default and values, in the order of the vocabulary."""

    def row(key: Key) -> list[str]:
        needed = "yes" if key.required else "no"
        default = "" if key.default is None else f"`{key.default}`"
        return [f"`{key.name}`", needed, default]

    documented = [cells[:3] for cells in rows("Keys")]
    assert documented == [row(key) for key in AUTOMATION.keys]
    pairs = [
        (choice, cells[3])
        for key, cells in zip(AUTOMATION.keys, rows("Keys"), strict=True)
        for choice in key.choices
    ]
    assert len(pairs) == 4 + 3 + 2
    for choice, cell in pairs:
        assert f"`{choice}`" in cell


def test_the_documented_keys_of_a_step_are_the_vocabulary() -> None:
    documented: list[Any] = [cells[:2] for cells in rows("Steps")]
    assert documented == [[f"`{key.name}`", "yes" if key.required else "no"] for key in STEP.keys]
