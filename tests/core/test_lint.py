"""Findings: each rule, when it speaks and when it keeps silent, and where it points."""

from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.findings import LONGEST_PROMPT
from drumbeat.core.lint import lint_automation
from drumbeat.core.model import Kind
from drumbeat.core.notify import NOTHING_TO_REPORT, URGENT_MARKER
from drumbeat.errors import AutomationError, Finding

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def text_of(
    *lines: str,
    trigger: str = "{type: manual}",
    notify: str = "always",
    prompt: str = "Do it.",
    body: str = "",
) -> str:
    """A file whose `notify` is line 4, `trigger` line 5, the prompt's text line 9."""
    return "\n".join(
        [
            "---",
            "automation:",
            "  name: Check",
            f"  notify: {notify}",
            f"  trigger: {trigger}",
            "  steps:",
            "    - id: one",
            "      prompt: |",
            *(f"        {line}" for line in prompt.split("\n")),
            *(f"  {line}" for line in lines),
            "---",
            body,
        ]
    )


def places(findings: list[Finding]) -> list[tuple[str, str, int | None, int | None]]:
    return [(each.code, each.severity, each.line, each.column) for each in findings]


def test_a_sound_file_has_no_findings() -> None:
    assert lint_automation(text_of(), zone=BERLIN, now=NOW) == []


def test_a_file_that_does_not_load_is_refused() -> None:
    with pytest.raises(AutomationError):
        lint_automation("---\n---\n")


@pytest.mark.parametrize("kind", ["automation", "job"])
@pytest.mark.parametrize("zone", [None, BERLIN])
def test_a_naive_now_is_refused_by_name_whatever_the_file_says(
    kind: Kind, zone: ZoneInfo | None
) -> None:
    """Also without a zone, or a schedule for which it would have been needed."""
    text = text_of() if kind == "automation" else "---\n---\nDo it."
    with pytest.raises(ValueError, match=r"^now must be an aware datetime"):
        lint_automation(text, kind=kind, zone=zone, now=datetime(2026, 1, 1))  # noqa: DTZ001


def test_only_the_two_kinds_of_file_have_rules() -> None:
    other: Any = "jobs"
    assert lint_automation(text_of(), kind="automation") == []
    with pytest.raises(ValueError, match="'jobs'"):
        lint_automation(text_of(), kind=other)


def test_findings_carry_the_path_and_a_remedy() -> None:
    (finding,) = lint_automation(text_of(notify="auto"), path=PurePath("automations/x.md"))
    assert finding.location == "automations/x.md:4:11"
    assert finding.remedy


# ---- schedules


@pytest.mark.parametrize(
    "expression, column",
    [
        ("whenever", 41),
        ("'whenever'", 42),
        ("every 0 minutes", 47),
        ('"0 7 31 2 *"', 46),
        ("'0  99 * * *'", 45),
        ('"when\\tever"', 41),
    ],
)
def test_an_expression_outside_the_grammar_is_an_error_at_its_column(
    expression: str, column: int
) -> None:
    trigger = f"{{type: schedule, expression: {expression}}}"
    (finding,) = lint_automation(text_of(trigger=trigger))
    assert (finding.severity, finding.line, finding.column) == ("error", 5, column)
    assert finding.code.startswith(("schedule-", "cron-"))


@pytest.mark.parametrize("kind", ["manual", "event"])
def test_an_expression_that_does_nothing_is_an_error(kind: str) -> None:
    text = text_of("enabled: off", trigger=f"{{type: {kind}, expression: every hour}}")
    expected = [("expression-without-schedule", "error", 5, 12 + len(kind) + 21)]
    assert places(lint_automation(text)) == expected


def test_what_a_schedule_holds_in_store_is_told_when_zone_and_now_are_given() -> None:
    trigger = "{type: schedule, expression: '*/7  2 1 * 1'}"
    text = text_of(trigger=trigger)
    assert lint_automation(text) == []
    assert lint_automation(text, zone=BERLIN) == []
    assert lint_automation(text, now=NOW) == []
    findings = lint_automation(text, zone=BERLIN, now=NOW)
    by_code = {finding.code: finding for finding in findings}
    assert set(by_code) >= {"schedule-day-or-weekday", "schedule-uneven-step"}
    assert {finding.severity for finding in findings} == {"warning"}
    assert {finding.line for finding in findings} == {5}
    assert by_code["schedule-uneven-step"].column == 42
    # The third field, behind the two spaces that the expression has and its value does not.
    assert by_code["schedule-day-or-weekday"].column == 49


@pytest.mark.parametrize("expression", ["every 7 minutes", "daily at 12:00", "0 7 * * 1-5"])
def test_a_harmless_schedule_has_no_findings(expression: str) -> None:
    text = text_of(trigger=f"{{type: schedule, expression: {expression}}}")
    assert lint_automation(text, zone=BERLIN, now=NOW) == []


def test_a_time_in_a_gap_points_to_the_expression() -> None:
    text = text_of(trigger="{type: schedule, expression: daily at 02:30}")
    findings = lint_automation(text, zone=BERLIN, now=NOW)
    assert places(findings) == [
        ("schedule-in-gap", "warning", 5, 41),
        ("schedule-in-fold", "warning", 5, 41),
    ]


# ---- secrets

TOKEN = "ghp_" + "a1B2" * 10


@pytest.mark.parametrize(
    "arguments, line, column",
    [
        ({"prompt": f"Use {TOKEN}."}, 9, 13),
        ({"body": f"My token: {TOKEN}"}, 11, 4),
        ({"notify": f"always # {TOKEN}"}, 4, 20),
    ],
)
def test_what_looks_like_a_secret_is_an_error_anywhere_and_not_shown(
    arguments: dict[str, Any], line: int, column: int
) -> None:
    (finding,) = lint_automation(text_of(**arguments))
    assert places([finding]) == [("secret-in-file", "error", line, column)]
    assert TOKEN not in str(finding)


def test_a_secret_in_an_expression_is_not_shown_by_any_rule() -> None:
    findings = lint_automation(text_of(trigger=f"{{type: schedule, expression: {TOKEN}}}"))
    assert len(findings) == 2
    assert TOKEN not in "".join(str(finding) for finding in findings)


# ---- sentinels


@pytest.mark.parametrize(
    "notify, prompt, silent",
    [
        ("auto", "Do it.", False),
        ("auto", "Say URGENT: x", False),
        ("auto", "Else reply NOTHING_TO_REPORT.", True),
        ("urgent-only", "Do it.", False),
        ("urgent-only", "Else reply NOTHING_TO_REPORT.", False),
        ("urgent-only", "Begin with URGENT: and why.", True),
        ("always", "Do it.", True),
        ("never", "Do it.", True),
    ],
)
def test_a_policy_needs_its_sentinel_in_a_step(notify: str, prompt: str, silent: bool) -> None:
    findings = lint_automation(text_of(notify=notify, prompt=prompt))
    assert places(findings) == ([] if silent else [("sentinel-not-named", "warning", 4, 11)])


def test_a_default_policy_points_to_the_block() -> None:
    text = text_of().replace("  notify: always\n", "")
    assert places(lint_automation(text)) == [("sentinel-not-named", "warning", 3, 3)]


# ---- guidance


def test_a_remedy_shows_no_more_of_a_name_than_anybody_reads() -> None:
    (found,) = lint_automation(
        text_of("requires: []", prompt=f"Read guidance/{'a' * 1000}.md now.")
    )
    assert found.code == "guidance-not-required"
    assert len(found.remedy) < 300


@pytest.mark.parametrize(
    "prompt, requires, names",
    [
        ("Follow guidance/EMAIL.md.", "[]", ["guidance/EMAIL.md"]),
        (
            "Follow ./guidance/EMAIL.md, then guidance/b/C.md",
            "[]",
            ["guidance/EMAIL.md", "guidance/b/C.md"],
        ),
        ("Follow guidance/EMAIL.md and guidance/EMAIL.md", "[]", ["guidance/EMAIL.md"]),
        ("Follow `guidance/EMAIL.md`.", "[guidance/EMAIL.md]", []),
        ("Follow guidance/EMAIL.md", "[./guidance/EMAIL.md]", []),
        ("Follow guidance/EMAIL.md", "[guidance/OTHER.md]", ["guidance/EMAIL.md"]),
        ("Look into my/guidance/EMAIL.md and guidance/", "[]", []),
    ],
)
def test_a_guidance_file_that_a_step_names_has_to_be_required(
    prompt: str, requires: str, names: list[str]
) -> None:
    findings = lint_automation(text_of(f"requires: {requires}", prompt=prompt))
    assert places(findings) == [("guidance-not-required", "warning", 8, 15)] * len(names)
    assert [
        name for name, each in zip(names, findings, strict=True) if name in each.remedy
    ] == names


@pytest.mark.parametrize(
    "prompt, silent",
    [
        ("Update guidance/A.md with what you learned.", False),
        ("Append it to guidance/A.md.", False),
        ("Update guidance/A.md; prune or consolidate.", True),
        ("Update guidance/A.md and keep it short.", True),
        ("Load and follow guidance/A.md.", True),
        ("Update your notes.", True),
        ("Read guidance/A.md and put the answer in the reply", True),
        ("Update guidance/A.md, but do not remove anything", False),
    ],
)
def test_a_last_step_that_updates_guidance_has_to_prune_it(prompt: str, silent: bool) -> None:
    findings = lint_automation(text_of("requires: [guidance/A.md]", prompt=prompt))
    assert places(findings) == ([] if silent else [("guidance-not-pruned", "warning", 8, 15)])


def test_only_the_last_step_is_asked_to_prune() -> None:
    text = text_of("  - {id: two, prompt: Done.}", prompt="Update guidance/A.md.").replace(
        "  steps:", "  requires: [guidance/A.md]\n  steps:"
    )
    assert lint_automation(text) == []


# ---- the rest


def test_a_requirement_that_stands_twice_names_both_lines() -> None:
    text = text_of(
        "requires:", "  - mail-cli", "  - ./a/b", "  - mail-cli", "  - a/b", "  - mail-cli"
    )
    findings = lint_automation(text)
    assert places(findings) == [
        ("requires-duplicate", "warning", 13, 7),
        ("requires-duplicate", "warning", 14, 7),
        ("requires-duplicate", "warning", 15, 7),
    ]
    assert "on line 11 and on line 15" in findings[2].message


def test_a_requirement_that_stands_twice_on_one_line_names_it_once() -> None:
    (finding,) = lint_automation(text_of("requires: [a, a]"))
    assert finding.message == "'a' stands in `requires` twice: both times on line 10"


def test_a_sentinel_is_the_one_that_the_policy_goes_by() -> None:
    for notify, word in (("auto", NOTHING_TO_REPORT), ("urgent-only", URGENT_MARKER)):
        (finding,) = lint_automation(text_of(notify=notify))
        assert word in finding.message
        assert lint_automation(text_of(notify=notify, prompt=finding.remedy)) == []


@pytest.mark.parametrize("length, silent", [(LONGEST_PROMPT, True), (LONGEST_PROMPT + 1, False)])
def test_a_prompt_over_the_limit_is_warned_about(length: int, silent: bool) -> None:
    # The line end of the block counts too.
    findings = lint_automation(text_of(prompt="x" * (length - 1)))
    assert places(findings) == ([] if silent else [("prompt-too-long", "warning", 8, 15)])


def test_findings_come_in_file_order() -> None:
    text = text_of(
        "requires: [a, a]",
        notify="auto",
        trigger="{type: manual, expression: x}",
        prompt="Follow guidance/A.md",
        body=f"token: {TOKEN}",
    )
    assert [each.code for each in lint_automation(text)] == [
        "sentinel-not-named",
        "expression-without-schedule",
        "guidance-not-required",
        "requires-duplicate",
        "secret-in-file",
    ]


@pytest.mark.slow
@given(st.text("*/,-0123456789 MONLJA#every daily at:", max_size=30))
def test_any_expression_is_judged_and_placed(expression: str) -> None:
    import json

    written = json.dumps(expression)
    text = text_of(trigger=f"{{type: schedule, expression: {written}}}")
    try:
        findings = lint_automation(text, zone=BERLIN, now=NOW)
    except AutomationError:
        assert not expression.strip()
    else:
        ends = 41 + len(written)
        for each in findings:
            assert each.line == 5
            assert 41 <= (each.column or 0) <= ends
