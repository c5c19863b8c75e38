"""Findings in job files: each rule, when it speaks and keeps silent, and where it points."""

from datetime import UTC, datetime
from pathlib import Path, PurePath
from zoneinfo import ZoneInfo

import pytest

from drumbeat.core.findings import LONGEST_PROMPT
from drumbeat.core.lint import lint_automation
from drumbeat.errors import AutomationError, Finding

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
PATH = PurePath("jobs/x.md")
GOOD = sorted((Path(__file__).parents[1] / "corpus" / "good" / "jobs").glob("*.md"))


def lint(*lines: str, body: str = "Do it.\n") -> list[Finding]:
    text = "\n".join(["---", *lines, "---", body])
    return lint_automation(text, path=PATH, zone=BERLIN, now=NOW)


def places(findings: list[Finding]) -> list[tuple[str, str, int | None, int | None]]:
    return [(each.code, each.severity, each.line, each.column) for each in findings]


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_sound_job_has_no_findings(path: Path) -> None:
    assert lint_automation(path.read_bytes(), path=path, zone=BERLIN, now=NOW) == []


def test_a_file_in_the_folder_of_jobs_is_a_job_unless_it_is_said_otherwise() -> None:
    text = "---\n---\nDo it."
    assert lint_automation(text, path=PATH) == []
    assert lint_automation(text, kind="job") == []
    for path, kind in ((None, None), (PurePath("automations/x.md"), None), (PATH, "automation")):
        with pytest.raises(AutomationError):
            lint_automation(text, path=path, kind=kind)  # type: ignore[arg-type]


def test_a_job_that_does_not_load_is_refused() -> None:
    with pytest.raises(AutomationError):
        lint("cron: x")


def test_findings_carry_the_path_and_stand_in_file_order() -> None:
    token = "ghp_" + "a1B2" * 10
    found = lint(f"model: {token}", "inbox: imap:a@b.c", "allowFrom: x", body="x" * 5000)
    assert [each.code for each in found] == [
        "secret-in-file",
        "allow-from-no-address",
        "prompt-too-long",
    ]
    assert {each.path for each in found} == {PATH}
    assert [each.code for each in found if not each.remedy] == []
    assert token not in str(found)


# ---- schedules


def test_what_a_schedule_holds_in_store_is_told_when_zone_and_now_are_given() -> None:
    text = "---\ncron: '*/7  2 1 * 1'\n---\nDo it."
    assert lint_automation(text, path=PATH) == []
    assert lint_automation(text, path=PATH, zone=BERLIN) == []
    assert lint_automation(text, path=PATH, now=NOW) == []
    found = {each.code: each for each in lint("cron: '*/7  2 1 * 1'")}
    assert set(found) >= {"schedule-day-or-weekday", "schedule-uneven-step"}
    assert {each.severity for each in found.values()} == {"warning"}
    assert (found["schedule-uneven-step"].line, found["schedule-uneven-step"].column) == (2, 8)
    # The third field, behind the two spaces that the expression has and its value does not.
    assert found["schedule-day-or-weekday"].column == 15
    assert "OR" in found["schedule-day-or-weekday"].message


def test_a_time_in_a_gap_or_fold_is_told() -> None:
    assert places(lint("webhook: x", 'cron: "30 2 * * *"')) == [
        ("schedule-in-gap", "warning", 3, 7),
        ("schedule-in-fold", "warning", 3, 7),
    ]


def test_an_interval_is_said_to_be_for_automation_files() -> None:
    """A job cannot say it: its `cron` takes five fields alone."""
    (found,) = lint("cron: '*/7 * * * *'")
    assert found.code == "schedule-uneven-step"
    assert found.remedy.endswith("or `every 7 minutes` in an automation file")


def test_a_schedule_that_never_comes_in_its_zone_is_an_error() -> None:
    """The fifth Sunday on a 29th of March is the day of the change, and 2 o'clock is skipped."""
    found = lint("cron: '*/10 2 29 3 SUN#5'")
    assert places(found) == [("schedule-never", "error", 2, 7)]


# ---- senders


@pytest.mark.parametrize(
    "value, column",
    [
        ("you@acme.com, acme.com", 26),
        ("'you@acme.com,  acme.com'", 28),
        ("*@acme.com", None),
        ("'*@acme.com'", 13),
        ("[you@acme.com, acme.com]", 27),
        ('"You <you@acme.com>"', 13),
        ("a@acme.com, b", 24),
        ("acme.com, @acme.com, acme.com", 12),
    ],
)
def test_an_entry_that_is_no_address_is_an_error_at_its_place(
    value: str, column: int | None
) -> None:
    lines = ("inbox: imap:a@b.c", f"allowFrom: {value}")
    if column is None:
        with pytest.raises(AutomationError):  # YAML takes it for an alias
            lint(*lines)
        return
    found = lint(*lines)
    assert places(found)[0] == ("allow-from-no-address", "error", 3, column)
    assert "matches nobody" in found[0].message


def test_each_such_entry_is_told() -> None:
    found = lint("inbox: imap:a@b.c", "allowFrom:", "  - x", "  - a@b.c", "  - y")
    assert [(each.line, each.column) for each in found] == [(4, 5), (6, 5)]


# ---- the rest


@pytest.mark.parametrize("over", [0, 1])
def test_a_prompt_over_the_limit_is_a_warning_where_it_begins(over: int) -> None:
    found = lint("model: x", body="x" * (LONGEST_PROMPT + over))
    assert places(found) == [("prompt-too-long", "warning", 4, 1)][:over]


def test_a_secret_in_the_prompt_is_an_error_and_not_shown() -> None:
    token = "ghp_" + "a1B2" * 10
    (found,) = lint("model: x", body=f"\nUse {token}.")
    assert places([found]) == [("secret-in-file", "error", 5, 5)]
    assert token not in str(found)


@pytest.mark.parametrize(
    "auth, warned",
    [
        ("github", True),
        ("hmac:X-Sig", True),
        ("bearer", False),
        ("gitlab", False),
        ("slack", False),
        ("svix", False),
    ],
)
def test_a_signature_over_no_body_is_a_warning(auth: str, warned: bool) -> None:
    found = lint("webhook: x", "method: get", f"auth: {auth}")
    assert places(found) == [("signature-covers-nothing", "warning", 4, 7)][:warned]
    assert lint("webhook: x", f"auth: {auth}") == []


@pytest.mark.parametrize(
    "written, columns",
    [
        ("a==1 and b==2", [13]),
        ("a==1, b==2", [13]),
        ("a==1 AND b==2", [13]),
        ("a==opened or closed", [13]),
        ("a==opened,closed", [13]),
        ("a==1; b==2", [13]),
        ("a==1 & b != 2", [13]),
        ("a~=1 b==2 && c == x and y || d==1", [13, 28]),
        ("a==Anderson", []),
        ("a==nor mandatory", []),
        ("a==dG9rZW4==", []),
        ("a==x =", []),
        ('a==["bug","docs"]', []),
        ('a=={"b":1,"c":2}', []),
        ("a==1 && b==2 || c~=page me", []),
    ],
)
def test_a_filter_whose_text_seems_to_hold_another_comparison_is_a_warning(
    written: str, columns: list[int]
) -> None:
    """By the grammar it is one text, so it loads; nothing would ever run."""
    found = lint("webhook: x", f"filter: '{written}'")
    assert places(found) == [("filter-value-doubtful", "warning", 3, at) for at in columns]


def test_a_doubtful_text_is_shown_with_what_it_is_compared_with() -> None:
    (found,) = lint("webhook: x", 'filter: "a.b==1 and c==2"')
    assert found.message == (
        "'1 and c==2' is one text, `and` and all that follows included, with which `a.b` is "
        "compared"
    )
    assert "` && `" in found.remedy
