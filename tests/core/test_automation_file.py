"""Automation files: what each key takes, what is refused where, and the value that comes out."""

from collections.abc import Callable
from datetime import time, timedelta
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.core.automation_file import read_automation, validate_automation_content
from drumbeat.core.body import numbered_lists
from drumbeat.core.config_layers import read_operator_config, read_workspace_config
from drumbeat.core.fields import FieldReader
from drumbeat.core.lint import lint_automation
from drumbeat.core.model import (
    Automation,
    Cron,
    DailyAt,
    InjectSpec,
    Interval,
    ScheduleTrigger,
    Step,
)
from drumbeat.core.pack_file import read_pack_file
from drumbeat.core.rotation import steps_fingerprint
from drumbeat.core.vocabulary import AGENT_CONFIG_KEYS, GUESSED, INJECT, RETIRED, STEP, TRIGGER
from drumbeat.errors import AutomationError, Problem, WorkspaceError

ROOT = Path(__file__).parents[2]
GOOD = sorted((ROOT / "tests" / "corpus" / "good").glob("*.md"))


def text_of(block: str, *, body: str = "") -> str:
    """A file with `block` below `automation:`, where it begins on line 3."""
    indented = "".join(f"  {line}\n" for line in block.strip("\n").split("\n"))
    return f"---\nautomation:\n{indented}---\n{body}"


SMALLEST = {
    "name": "name: Check",
    "trigger": "trigger: {type: manual}",
    "steps": "steps: [{id: one, prompt: Do it.}]",
}


def block_with(**keys: str) -> str:
    """A block of one line per key, the smallest one with some keys replaced or added."""
    return text_of("\n".join((SMALLEST | keys).values()))


def load(**keys: str) -> Automation:
    return validate_automation_content(block_with(**keys))


def problems_of(text: str | bytes, *, path: PurePath | None = None) -> tuple[Problem, ...]:
    with pytest.raises(AutomationError) as caught:
        validate_automation_content(text, path=path)
    return caught.value.problems


def only_problem(**keys: str) -> Problem:
    (problem,) = problems_of(block_with(**keys))
    return problem


# ---- the value


def test_the_smallest_file_has_every_default() -> None:
    steps = (Step(id="one", prompt="Do it."),)
    assert load() == Automation(
        slug="", name="Check", kind="automation", steps=steps, fingerprint=steps_fingerprint(steps)
    )


def test_every_key_reaches_the_value() -> None:
    path = ROOT / "tests" / "corpus" / "good" / "every-key.md"
    automation = validate_automation_content(path.read_bytes(), path=path)
    look, judge = automation.steps
    assert look == Step(
        id="look",
        label="Look around",
        prompt="Look at what runs low.\n\n1. This list is part of the prompt.\n2. So is this.\n",
    )
    assert judge.prompt == (
        "If it cannot wait, begin a line with URGENT: and the reason; most runs need no such line."
    )
    assert automation == Automation(
        slug="every-key",
        path=path,
        kind="automation",
        name="Every key: all of them",
        enabled=False,
        triggers=(
            ScheduleTrigger(
                expression="every 50 minutes", schedule=Interval(every=timedelta(minutes=50))
            ),
        ),
        steps=(look, judge),
        fingerprint=steps_fingerprint((look, judge)),
        notify="urgent-only",
        requires=("stock-cli", "guidance/STOCK.md"),
        inject=(
            InjectSpec(argv=("stock-cli", "low", ""), label="what runs low"),
            InjectSpec(argv=("clock-cli",), label="time"),
        ),
        conversation="daily",
        guidance_delivery="inline",
        agent_config={
            "provider": {
                "module": "openai",
                "config": {
                    "default_model": "gpt-5-mini",
                    "max_tokens": 4000,
                    "temperature": 0.5,
                    "stream": True,
                    "version": "1.0",
                },
            },
            "debug": {"level": 16},
        },
    )


def test_the_worked_example_of_the_documentation_loads_without_findings() -> None:
    page = (ROOT / "docs" / "automation-file.md").read_text(encoding="utf-8")
    example = page.split("```markdown\n")[1].split("```")[0]
    automation = validate_automation_content(example, path=PurePath("backup-check.md"))
    assert [step.id for step in automation.steps] == ["compare", "keep-the-plan"]
    assert lint_automation(example) == []


@pytest.mark.parametrize(
    "written, value",
    [
        ("true", True),
        ("True", True),
        ("YES", True),
        ("on", True),
        ("false", False),
        ("No", False),
        ("oFF", False),
    ],
)
def test_enabled_takes_unquoted_words_in_any_case(written: str, value: bool) -> None:
    assert load(enabled=f"enabled: {written}").enabled is value


@pytest.mark.parametrize(
    "expression, schedule",
    [
        ("every 30 minutes", Interval(every=timedelta(minutes=30))),
        ("daily at 07:30", DailyAt(at=time(7, 30))),
        ('"*/15 * * * *"', Cron(expression="*/15 * * * *")),
        ("30 7 * * 1-5", Cron(expression="30 7 * * 1-5")),
        ("whenever", None),
        ('"0 0 31 2 *"', None),
        ("every 0 minutes", None),
        ("\u0663 * * * *", None),
    ],
)
def test_an_expression_outside_the_grammar_loads_without_a_schedule(
    expression: str, schedule: Any
) -> None:
    automation = load(trigger=f"trigger: {{type: schedule, expression: {expression}}}")
    written = ScheduleTrigger(expression=expression.strip('"'), schedule=schedule)
    assert automation.triggers == (written,)
    assert automation.schedule == schedule


@pytest.mark.parametrize("trigger", ["{type: manual}", "{type: manual, expression: every hour}"])
def test_manual_has_no_trigger_whatever_the_expression(trigger: str) -> None:
    assert load(trigger=f"trigger: {trigger}").triggers == ()


def test_a_disabled_event_loads_and_an_enabled_one_does_not() -> None:
    assert load(enabled="enabled: off", trigger="trigger: {type: event}").triggers == ()
    problem = only_problem(trigger="trigger: {type: event}")
    assert (problem.code, problem.line, problem.column) == ("event-reserved", 4, 19)


def test_nothing_is_held_against_an_event_whose_enabled_cannot_be_read() -> None:
    problem = only_problem(enabled="enabled: flase", trigger="trigger: {type: event}")
    assert problem.code == "not-boolean"


@pytest.mark.parametrize("key", ["notify", "conversation", "guidance_delivery"])
@pytest.mark.parametrize("written", ["'{}'", '"{}"', "{}"])
def test_a_choice_may_be_quoted(key: str, written: str) -> None:
    choice = {"notify": "never", "conversation": "fresh", "guidance_delivery": "inline"}[key]
    assert getattr(load(**{key: f"{key}: {written.format(choice)}"}), key) == choice


@pytest.mark.parametrize("step_id", ["a", "1", "check-inbox", "a-1-b", "2fa"])
def test_a_step_id_of_the_right_characters_is_taken(step_id: str) -> None:
    assert load(steps=f"steps: [{{id: {step_id}, prompt: x}}]").steps[0].id == step_id


def test_what_may_be_empty_may_be_empty() -> None:
    automation = load(requires="requires: []", inject="inject: []", agent_config="agent_config: {}")
    assert (automation.requires, automation.inject, automation.agent_config) == ((), (), {})


@pytest.mark.parametrize("entry", ["mail-cli", "guidance/EMAIL.md", "./a/b..c", "a..b", "..a"])
def test_names_and_paths_inside_the_workspace_are_required_as_written(entry: str) -> None:
    assert load(requires=f"requires: [{entry}]").requires == (entry,)


def test_a_name_loses_the_white_space_around_it() -> None:
    assert load(name='name: " Check  it\\n"').name == "Check  it"


def test_the_fingerprint_covers_the_prompts_and_nothing_else() -> None:
    same = load(
        name="name: Other",
        steps="steps: [{id: two, label: L, prompt: Do it.}]",
        notify="notify: never",
    )
    assert same.fingerprint == load().fingerprint
    assert load(steps="steps: [{id: one, prompt: Do it!}]").fingerprint != same.fingerprint


def test_the_slug_is_the_stem_of_the_path_as_it_stands() -> None:
    path = PurePath("automations/Mail.v2_x.md")
    automation = validate_automation_content(block_with(), path=path)
    assert (automation.slug, automation.path) == ("Mail.v2_x", path)


def test_the_source_keeps_the_nodes_and_the_text() -> None:
    source = read_automation(block_with())
    assert [entry.name for entry in source.block] == ["name", "trigger", "steps"]
    assert source.front_matter.text == block_with()


# ---- refusals: one row per key of the table

ROWS = [
    ("name", "name: ", "value-missing", 1),
    ("name", "name: '  '", "value-missing", 7),
    ("name", "name: [a]", "wrong-type", 7),
    ("enabled", "enabled: 'yes'", "not-boolean", 10),
    ("enabled", "enabled: 1", "not-boolean", 10),
    ("enabled", "enabled: null", "not-boolean", 10),
    ("enabled", "enabled: {}", "wrong-type", 10),
    ("enabled", "enabled:", "value-missing", 1),
    ("trigger", "trigger: every hour", "wrong-type", 10),
    ("trigger", "trigger:", "value-missing", 1),
    ("trigger", "trigger: {type: shedule}", "invalid-choice", 17),
    ("trigger", "trigger: {type: [manual]}", "wrong-type", 17),
    ("trigger", "trigger: {type: schedule}", "key-missing", 1),
    ("trigger", "trigger: {type: schedule, expression: }", "value-missing", 27),
    ("trigger", "trigger: {type: manual, expression: {}}", "wrong-type", 37),
    ("trigger", "trigger: {expression: every hour}", "key-missing", 10),
    ("trigger", "trigger: {type: manual, zone: UTC}", "unknown-key", 25),
    ("steps", "steps: []", "value-missing", 8),
    ("steps", "steps:", "value-missing", 1),
    ("steps", "steps: Do it.", "wrong-type", 8),
    ("steps", "steps: [Do it.]", "wrong-type", 9),
    ("steps", "steps: [{id: one}]", "key-missing", 9),
    ("steps", "steps: [{prompt: Do it.}]", "key-missing", 9),
    ("steps", "steps: [{id: One, prompt: x}]", "step-id-invalid", 14),
    ("steps", 'steps: [{id: "one\\n", prompt: x}]', "step-id-invalid", 14),
    ("steps", "steps: [{id: \u0663, prompt: x}]", "step-id-invalid", 14),
    ("steps", "steps: [{id: a, prompt: x}, {id: a, prompt: y}]", "step-id-duplicate", 34),
    ("steps", "steps: [{id: a, prompt: ' '}]", "value-missing", 25),
    ("steps", "steps: [{id: a, prompt: x, label: ''}]", "value-missing", 35),
    ("steps", "steps: [{id: a, prompt: x, run: y}]", "unknown-key", 28),
    ("steps", "steps: [{id: a, prompt: x, enabled: no}]", "misplaced-key", 28),
    ("notify", "notify: sometimes", "invalid-choice", 9),
    ("notify", "notify: Auto", "invalid-choice", 9),
    ("notify", "notify:", "value-missing", 1),
    ("notify", "notify: []", "wrong-type", 9),
    ("requires", "requires: mail-cli", "wrong-type", 11),
    ("requires", "requires: [/etc/passwd]", "requires-outside-workspace", 12),
    ("requires", "requires: [a/../../b]", "requires-outside-workspace", 12),
    ("requires", "requires: [' a']", "requires-invalid", 12),
    ("requires", "requires: ['']", "value-missing", 12),
    ("requires", "requires: [{a: b}]", "wrong-type", 12),
    ("inject", "inject: tool", "wrong-type", 9),
    ("inject", "inject: [tool]", "wrong-type", 10),
    ("inject", "inject: [{argv: [a]}]", "key-missing", 10),
    ("inject", "inject: [{label: a}]", "key-missing", 10),
    ("inject", "inject: [{argv: [], label: a}]", "value-missing", 17),
    ("inject", "inject: [{argv: [''], label: a}]", "value-missing", 18),
    ("inject", "inject: [{argv: a b, label: a}]", "wrong-type", 17),
    ("inject", "inject: [{argv: [a, [b]], label: a}]", "wrong-type", 21),
    ("inject", "inject: [{argv: [a], label: a, cwd: b}]", "unknown-key", 32),
    ("conversation", "conversation: weekly", "invalid-choice", 15),
    ("guidance_delivery", "guidance_delivery: verbatim", "invalid-choice", 20),
    ("agent_config", "agent_config: {approval: x}", "agent-config-unknown-key", 16),
    ("agent_config", "agent_config: {provider: {api_key: x}}", "agent-config-credential", 27),
    ("agent_config", "agent_config: {provider: {model: ~}}", "agent-config-null", 34),
    ("agent_config", "agent_config:", "agent-config-null", 1),
    ("agent_config", "agent_config: text", "wrong-type", 15),
    ("colour", "colour: red", "unknown-key", 1),
    ("session", "session: abc", "retired-key", 1),
    ("session_workspace", "session_workspace: x", "retired-key", 1),
    ("prompt_caching", "prompt_caching: true", "retired-key", 1),
    ("expression", "expression: every hour", "misplaced-key", 1),
    ("argv", "argv: [a]", "misplaced-key", 1),
]


@pytest.mark.parametrize("key, line, code, column", ROWS, ids=[row[1] for row in ROWS])
def test_a_refusal_has_its_code_its_place_and_a_remedy(
    key: str, line: str, code: str, column: int
) -> None:
    problem = only_problem(**{key: line})
    row = list((SMALLEST | {key: line}).values()).index(line) + 3
    assert (problem.code, problem.line, problem.column) == (code, row, column + 2)
    assert problem.remedy
    assert str(problem).startswith(f"<text>:{row}:{column + 2}: {problem.message} [{code}]\n  ")


@pytest.mark.parametrize("key", ["name", "trigger", "steps"])
def test_a_missing_key_is_named_with_what_to_write(key: str) -> None:
    lines = {name: line for name, line in SMALLEST.items() if name != key}
    (problem,) = problems_of(text_of("\n".join(lines.values())))
    assert problem.code == "key-missing"
    assert f"`{key}:`" in problem.message
    assert problem.remedy.startswith("write ")


@pytest.mark.parametrize(
    "key, line, meant",
    [
        ("notify", "notify: urgent_only", "urgent-only"),
        ("notify", "notify: allways", "always"),
        ("conversation", "conversation: Daily", "daily"),
        ("guidance_delivery", "guidance_delivery: references", "reference"),
        ("trigger", "trigger: {type: Manual}", "manual"),
        ("enabled", "enabled: flase", "false"),
        ("enabled", "enabled: ture", "true"),
        ("enabled", "enabled: of", "off"),
        ("requries", "requries: []", "requires"),
        ("steps", "steps: [{id: a, prompt: x, lable: y}]", "label"),
        ("inject", "inject: [{argv: [a], label: a, arg: b}]", "argv"),
    ],
)
def test_a_misspelt_key_or_value_is_asked_about(key: str, line: str, meant: str) -> None:
    assert f"did you mean {meant!r}?" in only_problem(**{key: line}).message


@pytest.mark.parametrize("key", [*GUESSED, "time_zone", "Time-Zone"])
@pytest.mark.parametrize(
    "place",
    ["---\n{}: x\nautomation:\n  {rest}\n---\n", "---\nautomation:\n  {}: x\n  {rest}\n---\n"],
)
def test_a_key_that_authors_guess_is_answered_with_what_does_it(key: str, place: str) -> None:
    text = place.replace("{}", key).replace("{rest}", "\n  ".join(SMALLEST.values()))
    (problem,) = problems_of(text)
    assert problem.code == "unknown-key"
    meant = "`type: schedule`" if key == "schedule" else "Engine(timezone=...)"
    assert meant in problem.remedy


@pytest.mark.parametrize("key", RETIRED)
@pytest.mark.parametrize(
    "place",
    ["---\n{}: x\nautomation:\n  {rest}\n---\n", "---\nautomation:\n  {}: x\n  {rest}\n---\n"],
)
def test_a_retired_key_has_a_remedy_of_its_own_wherever_it_stands(key: str, place: str) -> None:
    text = place.replace("{}", key).replace("{rest}", "\n  ".join(SMALLEST.values()))
    (problem,) = problems_of(text)
    assert (problem.code, problem.remedy) == ("retired-key", RETIRED[key])


def test_keys_beside_automation_are_told_to_be_indented() -> None:
    problems = problems_of("---\nautomation:\nname: x\nnotfy: auto\nnotify: auto\n---\n")
    assert [(each.code, each.line) for each in problems] == [
        ("misplaced-key", 3),
        ("unknown-key", 4),
        ("misplaced-key", 5),
    ]
    assert problems[0].remedy.startswith("indent it")
    assert "did you mean 'notify'?" in problems[1].message


HOMES = [
    ("expression", "`trigger`"),
    ("type", "`trigger`"),
    ("id", "a step"),
    ("prompt", "a step"),
    ("label", "a step"),
    ("argv", "an `inject` entry"),
    *((key, "`agent_config`") for key in AGENT_CONFIG_KEYS),
]


@pytest.mark.parametrize("key, home", HOMES)
def test_a_key_beside_automation_is_sent_to_the_level_it_belongs_to(key: str, home: str) -> None:
    (problem,) = problems_of(f"---\n{key}: x\n{text_of(chr(10).join(SMALLEST.values()))[4:]}")
    assert (problem.code, problem.line, problem.column) == ("misplaced-key", 2, 1)
    assert problem.message == f"`{key}` stands beside `automation:`: it belongs to {home}"
    assert problem.remedy == f"move it into {home}, below `automation:`, or take it out"


def test_every_key_of_the_vocabulary_has_a_home() -> None:
    """Whichever level it is of; those of `automation:` itself are told to be indented."""
    levels = (TRIGGER, STEP, INJECT)
    assert {key for key, _ in HOMES} == {
        *(name for level in levels for name in level.names),
        *AGENT_CONFIG_KEYS,
    }


def test_a_misspelt_key_beside_automation_may_be_of_any_level() -> None:
    problem, *_ = problems_of("---\nexpresion: every hour\nautomation:\n---\n")
    assert problem.code == "unknown-key"
    assert "did you mean 'expression'?" in problem.message


@pytest.mark.parametrize("key", AGENT_CONFIG_KEYS)
def test_a_key_of_the_agent_configuration_is_sent_there(key: str) -> None:
    problem = only_problem(**{key: f"{key}: x"})
    assert problem.code == "misplaced-key"
    assert "`agent_config`" in problem.remedy


@pytest.mark.parametrize("text", ["---\ncron: 0 7 * * *\n---\n", "---\nmodel: x\n---\n"])
def test_keys_of_a_job_file_point_to_the_folder_of_jobs(text: str) -> None:
    first, *_ = problems_of(text)
    assert first.code == "misplaced-key"
    assert "`jobs/`" in first.remedy


@pytest.mark.parametrize("read", [read_workspace_config, read_operator_config, read_pack_file])
def test_no_other_file_is_told_to_move_among_the_jobs(read: Callable[[str], Any]) -> None:
    """`model` is a key of job files, which is no news about a file of another kind."""
    text = "---\nmodel: x\n---\ntext" if read is read_pack_file else "model: x\n"
    with pytest.raises(WorkspaceError) as caught:
        read(text)
    assert "unknown-key" in caught.value.problems[0].code
    assert "jobs" not in str(caught.value)


def test_a_blank_value_is_called_blank_and_an_empty_one_empty() -> None:
    assert only_problem(name="name: ' '").message == "`name` is blank"
    assert only_problem(name="name: ''").message == "`name` is empty"
    assert only_problem(requires="requires: [' ']").message == "an entry of `requires` is blank"
    assert only_problem(requires="requires: ['']").message == "an entry of `requires` is empty"


def test_keys_that_belong_elsewhere_say_where() -> None:
    step = only_problem(steps="steps: [{id: a, prompt: x, notify: auto}]")
    assert "the whole automation" in step.message
    trigger = only_problem(prompt="prompt: Do it.")
    assert "it belongs to a step" in trigger.message


@pytest.mark.parametrize("value", ["{}", "text", "[a]", "'#x'"])
def test_automation_takes_a_mapping(value: str) -> None:
    problems = problems_of(f"---\nautomation: {value}\n---\n")
    assert {problem.code for problem in problems} == {
        "key-missing" if value == "{}" else "wrong-type"
    }


def test_an_empty_automation_alone_is_empty() -> None:
    (problem,) = problems_of("---\nautomation:\n---\n")
    assert (problem.code, problem.line, problem.column) == ("value-missing", 2, 1)


def test_all_problems_come_at_once_in_file_order() -> None:
    text = text_of(
        """
name: ""
notify: maybe
notify: auto
trigger: {type: later}
steps:
  - id: A
    prompt: "\\0"
  - prompt:
colour: red
""",
        body="\n1. Look.\n",
    )
    assert [(each.code, each.line, each.column) for each in problems_of(text)] == [
        ("value-missing", 3, 9),
        ("invalid-choice", 4, 11),
        ("duplicate-key", 5, 3),
        ("invalid-choice", 6, 19),
        ("step-id-invalid", 8, 11),
        ("unstorable-escape", 9, 15),
        ("key-missing", 10, 7),
        ("value-missing", 10, 7),
        ("unknown-key", 11, 3),
        ("steps-in-body", 14, 1),
    ]


def test_a_damaged_text_gets_one_verdict() -> None:
    problem = only_problem(notify="notify: \u201cauto\u201d")
    assert problem.code == "smart-quotes"


def test_a_bad_name_of_the_file_is_reported_beside_everything_else() -> None:
    path = PurePath("automations/my file.md")
    assert [each.code for each in problems_of("no front matter", path=path)] == [
        "slug-invalid",
        "front-matter-missing",
    ]
    assert [each.code for each in problems_of(text_of("name: x"), path=path)] == [
        "slug-invalid",
        "key-missing",
        "key-missing",
    ]
    assert [each.code for each in problems_of(block_with(), path=path)] == ["slug-invalid"]


def test_a_secret_is_in_no_message() -> None:
    secret = "ghp_" + "a1B2" * 10
    block = block_with(
        notify=f"notify: {secret}",
        requires=f"requires: [/{secret}]",
        agent_config=f"agent_config: {{provider: {{token: {secret}}}, {secret}: x}}",
        steps=f"steps: [{{id: {secret}, prompt: x}}]",
        colour=f"{secret}: x",
    )
    problems = problems_of(block)
    assert len(problems) == 6
    assert secret not in "".join(str(problem) for problem in problems)


# ---- numbered lists in the body


@pytest.mark.parametrize(
    "body, expected",
    [
        ("1. Look.", [(0, 1)]),
        ("\n\n   1) Look.\n   2) Judge.", [(2, 4)]),
        ("\n3. Look.", [(1, 1)]),
        ("# Steps\n7. Look.", [(1, 1)]),
        ("It was\n1. Look.", [(1, 1)]),
        ("It was in\n2024. Then nothing.", []),
        ("    1. code", []),
        ("1.Look.", []),
        ("1. ", []),
        ("- 1\n- 2", []),
        ("1234567890. Look.", []),
        ("\u0661. Look.", []),
        ("```\n1. Look.\n```\ntext", []),
        ("~~~ md\n1. Look.\n```\n2. x\n~~~~\n\n3. Look.", [(6, 1)]),
        ("````\n```\n1. Look.\n````", []),
        ("```\n1. never closed", []),
        ("``` `code` ```\n\n1. Look.", [(2, 1)]),
        ("```\n``` not a close\n1. Look.\n```\n\n1. Look.", [(5, 1)]),
    ],
)
def test_numbered_lists_are_found_outside_code_fences(
    body: str, expected: list[tuple[int, int]]
) -> None:
    assert list(numbered_lists(body))[:1] == expected
    text = block_with() + body
    if expected:
        (problem,) = problems_of(text)
        assert (problem.code, problem.line) == ("steps-in-body", expected[0][0] + 7)
    else:
        assert validate_automation_content(text).name == "Check"


# ---- whatever comes in


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good file with bytes taken out, put in or moved."""
    raw = bytearray(draw(st.sampled_from(GOOD)).read_bytes())
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(raw)))
        end = min(len(raw), start + draw(st.integers(0, 40)))
        filling = draw(
            st.sampled_from([b"", b"\n", b":", b"- ", b"  ", b"\t", b"#", b'"', b"{", b"["])
        )
        raw[start:end] = draw(
            st.sampled_from([filling, bytes(raw[:40]), b"\xc2\xa0", b"\xff", b"*"])
        )
    return bytes(raw)


@pytest.mark.slow
@given(damaged())
@settings(max_examples=300)
def test_a_damaged_file_is_read_or_refused(raw: bytes) -> None:
    problems: tuple[Problem, ...] = ()
    steps: tuple[Step, ...] = ()
    try:
        steps = validate_automation_content(raw, path=PurePath("x.md")).steps
    except AutomationError as error:
        problems = error.problems
    assert bool(steps) is not bool(problems)
    for each in problems:
        assert each.message
        assert each.remedy
        assert each.line


def test_a_reader_of_fields_reads_nothing_for_a_key_it_does_not_know() -> None:
    reader = FieldReader(None)
    source = read_automation(block_with())
    assert reader.read(source.block, STEP, "name", reader.text) is None
    assert reader.problems == []
