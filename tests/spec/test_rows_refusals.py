"""Every refusal of spec, sections 3 to 3.2: its code, its place, and words an author can act on."""

from pathlib import PurePath

import pytest

from drumbeat import (
    AutomationError,
    Problem,
    lint_automation,
    validate_automation_content,
    validate_job_content,
)

PATH = PurePath("automations/check.md")
JOB_PATH = PurePath("jobs/check.md")
SMALLEST = {
    "name": "name: Check",
    "trigger": "trigger: {type: manual}",
    "steps": "steps: [{id: one, prompt: Do it.}]",
}
"""They stand on lines 3, 4 and 5; whatever a row adds stands on line 6."""


def automation_file(*more: str, body: str = "", **keys: str) -> str:
    lines = [line for line in (SMALLEST | keys).values() if line]
    block = "".join(f"  {line}\n" for line in [*lines, *more])
    return f"---\nautomation:\n{block}---\n{body}"


def problems_of(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(AutomationError) as caught:
        validate_automation_content(text, path=PATH)
    return caught.value.problems


def job_problems(*lines: str, body: str = "Do it.\n") -> tuple[Problem, ...]:
    text = "---\n" + "".join(f"{line}\n" for line in lines) + f"---\n{body}"
    with pytest.raises(AutomationError) as caught:
        validate_job_content(text, path=JOB_PATH)
    return caught.value.problems


def check(problem: Problem, place: str, code: str, says: str, remedy: str) -> None:
    """The first line prints as `path:line:column: message [code]`, and the words are there."""
    first, *rest = str(problem).splitlines()
    assert problem.path is not None
    assert first == f"{problem.path.as_posix()}:{place}: {problem.message} [{code}]"
    assert says in problem.message
    assert remedy in problem.remedy
    assert problem.remedy in "\n".join(rest)


# ---- section 3: the text itself

TEXTS: list[tuple[str | bytes, str, str, str, str]] = [
    (b"---\nautomation:\n  name: \xff\n---\n", "3:9", "not-utf8", "not UTF-8", "save it as UTF-8"),
    ("---\nautomation:\n  name: a\0\n---\n", "3:10", "nul-byte", "NUL", "take it out"),
    ("---\n---\n" + "x" * 1_048_569, "1:1", "file-too-large", "1,048,577 bytes", "move"),
    ("---\nautomation:\n  name: x\n", "1:1", "front-matter-unclosed", "no end", "line `---`"),
    ("automation:\n---\n", "1:1", "front-matter-missing", "not `---`", "begin the file"),
    ("\n---\n---\n", "1:1", "front-matter-missing", "not `---`", "above the `---`"),
    ("---\na: {}\n...\nb: c\n---\n", "4:1", "yaml-several-documents", "second", "one document"),
]


@pytest.mark.parametrize(
    "text, place, code, says, remedy",
    TEXTS,
    ids=[f"{number}-{row[2]}" for number, row in enumerate(TEXTS)],
)
def test_a_text_that_is_no_file_is_refused(
    text: str | bytes, place: str, code: str, says: str, remedy: str
) -> None:
    problem, *_ = problems_of(text)
    check(problem, place, code, says, remedy)


def test_duplicate_keys_name_both_lines() -> None:
    (problem,) = problems_of(automation_file("name: Other"))
    check(problem, "6:3", "duplicate-key", "on line 3 and on line 6", "keep one")


STRICT = [
    ("name: &a Check", "9", "yaml-anchor", "anchor", "put quotes around it"),
    ("name: *a", "9", "yaml-alias", "alias", "put quotes around it"),
    ("name: !x Check", "9", "yaml-tag", "tag", "put quotes around it"),
    ("<<: {a: b}", "3", "yaml-merge-key", "`<<`", "write the keys out"),
]
TRAPS = [
    ("name: * 7 * * 1", "9", "unquoted-indicator", "begin with *", "put quotes around it"),
    ("name: @daily", "9", "unquoted-indicator", "begin with @", "put quotes around it"),
    ("\tname: Check", "3", "tab", "a tab", "spaces"),
    ("name:\u00a0Check", "8", "no-break-space", "no-break space", "ordinary space"),
    ("name: Check: it", "9", "colon-in-value", "a colon and a space", "put quotes around it"),
    ("name: #check", "3", "value-is-comment", "is a comment", "put quotes around the value"),
    ("name: \u201cCheck\u201d", "9", "smart-quotes", "typographic quotes", "straight quotes"),
]


@pytest.mark.parametrize("line, column, code, says, remedy", [*STRICT, *TRAPS])
def test_what_strict_yaml_lacks_and_each_trap_has_a_remedy_of_its_own(
    line: str, column: str, code: str, says: str, remedy: str
) -> None:
    found = problems_of(automation_file(name=line))
    (problem,) = [each for each in found if each.code == code]
    check(problem, f"3:{column}", code, says, remedy)


def test_flow_style_is_accepted() -> None:
    text = "---\nautomation: {" + ", ".join(SMALLEST.values()) + "}\n---\n"
    assert validate_automation_content(text).name == "Check"


# ---- section 3.1: the automation file

ADDED = [
    ("colour: red", "3", "unknown-key", "'colour'", "or agent_config, or take it out"),
    ("notfy: auto", "3", "unknown-key", "did you mean 'notify'?", "take it out"),
    ("session: x", "3", "retired-key", "`session` is retired", "`conversation:`"),
    ("session_workspace: x", "3", "retired-key", "is retired", "workspace it lies in"),
    ("prompt_caching: yes", "3", "retired-key", "is retired", "`agent_config:`"),
    ("enabled: 'true'", "12", "not-boolean", "in quotes is text", "without quotes"),
    ("enabled: maybe", "12", "not-boolean", "not true or false", "`enabled: true`"),
    ("notify: urgent_only", "11", "invalid-choice", "did you mean 'urgent-only'?", "or never"),
    ("conversation: weekly", "17", "invalid-choice", "'weekly'", "fresh or daily"),
    ("guidance_delivery: inlined", "22", "invalid-choice", "mean 'inline'?", "or inline"),
    ("requires: mail-cli", "13", "wrong-type", "takes a list", "write"),
    ("requires: [/etc/x]", "14", "requires-outside-workspace", "'/etc/x'", "without `..`"),
    ("requires: [a/../b]", "14", "requires-outside-workspace", "'a/../b'", "without `..`"),
    ("requires: [..]", "14", "requires-outside-workspace", "'..'", "without `..`"),
    ("requires: ['\\share']", "14", "requires-outside-workspace", "share", "without `..`"),
    ("requires: [~/x]", "14", "requires-outside-workspace", "'~/x'", "without `..`"),
    ("requires: ['C:/x']", "14", "requires-outside-workspace", "'C:/x'", "without `..`"),
    ("inject: {argv: [a]}", "11", "wrong-type", "takes a list", "`argv:` and `label:`"),
    ("inject: [{label: a}]", "12", "key-missing", "no `argv:`", "items-cli"),
    ("inject: [{argv: [a]}]", "12", "key-missing", "no `label:`", "`label: open items`"),
    ("inject: [{argv: [], label: a}]", "19", "value-missing", "`argv`", "items-cli"),
    ("inject: [{argv: [''], label: a}]", "20", "value-missing", "`argv`", "name the tool"),
    ("inject: [{argv: [' '], label: a}]", "20", "value-missing", "`argv`", "name the tool"),
    ("inject: [{argv: [a], label: a, cwd: b}]", "34", "unknown-key", "'cwd'", "argv or label"),
    ("agent_config: {approval: x}", "18", "agent-config-unknown-key", "'approval'", "or debug"),
    ("agent_config: {mcp: ~}", "23", "agent-config-null", "`mcp` is null", "leave the key out"),
    (
        "agent_config: {mcp: [{Api-Key: x}]}",
        "25",
        "agent-config-credential",
        "`mcp[0].Api-Key`",
        "environment of the engine",
    ),
]


@pytest.mark.parametrize("line, column, code, says, remedy", ADDED, ids=[row[0] for row in ADDED])
def test_a_key_that_breaks_the_contract_is_refused(
    line: str, column: str, code: str, says: str, remedy: str
) -> None:
    (problem,) = problems_of(automation_file(line))
    check(problem, f"6:{column}", code, says, remedy)


TRIGGERS = [
    ("trigger: {type: event}", "19", "event-reserved", "never run", "`enabled: false`"),
    ("trigger: {type: schedule}", "3", "key-missing", "no `expression:`", "every 30 minutes"),
    ("trigger: {type: cron}", "19", "invalid-choice", "'cron'", "`type: schedule`"),
    ("trigger: {expression: every hour}", "12", "key-missing", "no `type:`", "`type: schedule`"),
    ("trigger: {type: manual, zone: UTC}", "27", "unknown-key", "'zone'", "is the engine's"),
    ("trigger: {type: manual, when: no}", "27", "unknown-key", "'when'", "type or expression"),
]
STEPS = [
    ("steps: Do it.", "10", "wrong-type", "takes a list", "`id:` and `prompt:`"),
    ("steps: [Do it.]", "11", "wrong-type", "not a mapping", "`id:` and `prompt:`"),
    ("steps: []", "10", "value-missing", "`steps`", "`id:` and `prompt:`"),
    ("steps: [{prompt: x}]", "11", "key-missing", "no `id:`", "single hyphens"),
    ("steps: [{id: a}]", "11", "key-missing", "no `prompt:`", "what the agent shall do"),
    ("steps: [{id: a, prompt: ' '}]", "27", "value-missing", "`prompt`", "shall do"),
    ("steps: [{id: A, prompt: x}]", "16", "step-id-invalid", "'A'", "lower-case"),
    ("steps: [{id: a--b, prompt: x}]", "16", "step-id-invalid", "'a--b'", "single hyphens"),
    ("steps: [{id: -a, prompt: x}]", "16", "step-id-invalid", "'-a'", "single hyphens"),
    ("steps: [{id: a, prompt: x, tool: y}]", "30", "unknown-key", "'tool'", "prompt or label"),
    (
        "steps: [{id: a, prompt: x}, {id: a, prompt: y}]",
        "36",
        "step-id-duplicate",
        "stands on line 5 already",
        "an id of its own",
    ),
]


@pytest.mark.parametrize("line, column, code, says, remedy", [*TRIGGERS, *STEPS])
def test_a_trigger_or_step_that_breaks_the_contract_is_refused(
    line: str, column: str, code: str, says: str, remedy: str
) -> None:
    key = line.partition(":")[0]
    (problem,) = problems_of(automation_file(**{key: line}))
    row = 4 if key == "trigger" else 5
    check(problem, f"{row}:{column}", code, says, remedy)


@pytest.mark.parametrize(
    "key, remedy",
    [
        ("name", "`name: Email check`"),
        ("trigger", "`type:` and, for a schedule, `expression:`"),
        ("steps", "each with `id:` and `prompt:`"),
    ],
)
def test_each_required_key_is_missed(key: str, remedy: str) -> None:
    (problem,) = problems_of(automation_file(**{key: ""}))
    check(problem, "3:3", "key-missing", f"no `{key}:`", remedy)


@pytest.mark.parametrize(
    "line",
    [
        "enabled: false",
        "notify: never",
        "requires: []",
        "inject: []",
        "conversation: fresh",
        "guidance_delivery: inline",
        "agent_config: {}",
    ],
)
def test_each_other_key_is_optional_and_told_to_be_indented_beside_automation(line: str) -> None:
    assert validate_automation_content(automation_file(line)).name == "Check"
    assert validate_automation_content(automation_file()).name == "Check"
    text = automation_file().removesuffix("---\n") + f"{line}\n---\n"
    (problem,) = problems_of(text)
    name = line.partition(":")[0]
    check(problem, "6:1", "misplaced-key", f"`{name}` stands beside `automation:`", "indent it")


def test_a_numbered_list_in_the_body_is_pointed_to_the_steps() -> None:
    (problem,) = problems_of(automation_file(body="What it does:\n\n  1. Look.\n  2. Tell.\n"))
    check(problem, "9:3", "steps-in-body", "numbered list", "`steps:`")


@pytest.mark.parametrize("key", ["notify", "cron"])
def test_a_step_is_told_where_a_key_of_another_level_belongs(key: str) -> None:
    (problem,) = problems_of(automation_file(steps=f"steps: [{{id: a, prompt: x, {key}: y}}]"))
    assert (problem.code, problem.line, problem.column) == ("misplaced-key", 5, 30)


# ---- section 3.2: the job file

JOBS: list[tuple[list[str], str, str, str, str]] = [
    (["cron: 0 25 * * *"], "2:9", "cron-out-of-range", "hour field", "0 to 23"),
    (["cron: 0 7 * * * *"], "2:17", "cron-field-count", "this has 6", "five fields"),
    (["cron: '*/90 * * * *'"], "2:8", "cron-step", "90", "`every 90 minutes`"),
    (["cron: 0 */0 * * *"], "2:9", "cron-step", "step of 0", "1 or more"),
    (["cron: \u0660 7 * * *"], "2:7", "cron-not-ascii", "U+0660", "plain digits"),
    (["cron: 0 0 31 2 *"], "2:11", "cron-never", "no date ever", "a day that the month has"),
    (["webhook: a b"], "2:10", "route-invalid", "'a b'", "ASCII letters"),
    (["auth: basic"], "2:1", "key-without-effect", "without `webhook:`", "add `webhook:`"),
    (["filter: a == b"], "2:1", "key-without-effect", "without `webhook:`", "add `webhook:`"),
    (["method: get"], "2:1", "key-without-effect", "without `webhook:`", "add `webhook:`"),
    (["webhook: a", "method: put"], "3:9", "invalid-choice", "'put'", "post or get"),
    (["webhook: a", "auth: gitgub"], "3:7", "auth-unknown", "mean 'github'?", "hmac:<"),
    (["webhook: a", "auth: basic:x"], "3:12", "auth-variant", "no variant", "`basic` alone"),
    (
        ["webhook: a", "method: get", "filter: a == b"],
        "4:1",
        "filter-without-body",
        "`method: get`",
        "take out `filter`",
    ),
    (["webhook: a", "filter: a==b&&c==d"], "3:13", "filter-syntax", "a space", " && "),
    (["allowFrom: a@b.c"], "2:1", "key-without-effect", "without `inbox:`", "add `inbox:`"),
    (["inbox: gmail:a@b.c"], "2:1", "allow-from-missing", "without `allowFrom:`", "@acme.com"),
    (["inbox: a@b.c", "allowFrom: a@b.c"], "2:8", "inbox-without-system", "system", "gmail:a@b.c"),
    (["timeoutSeconds: 0"], "2:17", "number-out-of-range", "timeoutSeconds", "1 to 86400"),
    (["timeoutSeconds: 1.5"], "2:17", "not-a-number", "'1.5'", "1 to 86400"),
    (["timeoutSeconds: 86401"], "2:17", "number-out-of-range", "1 to 86,400", "1 to 86400"),
    (["disabled: 'yes'"], "2:11", "not-boolean", "in quotes is text", "without quotes"),
    (["corn: 0 7 * * *"], "2:1", "unknown-key", "did you mean 'cron'?", "take it out"),
    (["steps: []"], "2:1", "misplaced-key", "a key of automation files", "below the closing"),
    (["repo: https://u:p@h/x"], "2:7", "repo-credentials", "password", "GITHUB_TOKEN"),
]


@pytest.mark.parametrize(
    "lines, place, code, says, remedy", JOBS, ids=["; ".join(row[0]) for row in JOBS]
)
def test_a_job_that_breaks_the_contract_is_refused(
    lines: list[str], place: str, code: str, says: str, remedy: str
) -> None:
    (problem,) = job_problems(*lines)
    check(problem, place, code, says, remedy)


def test_a_job_without_a_prompt_is_refused() -> None:
    (problem,) = job_problems(body=" \n")
    check(problem, "3:1", "prompt-blank", "no prompt", "below the closing `---`")


# ---- section 3.3: where the finding begins


@pytest.mark.parametrize("length, codes", [(4_000, []), (4_001, ["prompt-too-long"])])
def test_a_step_is_long_above_4000_characters(length: int, codes: list[str]) -> None:
    prompt = "x" * length
    text = automation_file("notify: always", steps=f"steps: [{{id: a, prompt: {prompt}}}]")
    assert [finding.code for finding in lint_automation(text)] == codes
