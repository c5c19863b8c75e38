"""What an agent is told of a workspace and its runs: a line each, whatever people wrote."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import pytest

from drumbeat.core.model import (
    Automation,
    Fire,
    InboxTrigger,
    RunRecord,
    ScheduleTrigger,
    Step,
    Usage,
    WebhookTrigger,
)
from drumbeat.core.overview import automation_lines, printable, run_lines
from drumbeat.errors import Problem
from drumbeat.testing import example_intent

AT = datetime(2026, 3, 2, 7, tzinfo=UTC)
ZONE = ZoneInfo("Europe/Berlin")


def automation(slug: str = "mail", prompt: str = "Look.", **fields: Any) -> Automation:
    given: dict[str, Any] = {"name": slug, "kind": "automation"}
    return Automation(slug=slug, steps=(Step(id="a", prompt=prompt),), **given | fields)


def run(*, text: str = "All is well.", **fields: Any) -> RunRecord:
    intent = example_intent(text=text)
    fire = Fire(id="f", slug="mail", cause="schedule", slot="s", due=AT, created_at=AT)
    values: dict[str, Any] = {
        "run_id": "r1",
        "slug": "mail",
        "fire": fire,
        "state": "succeeded",
        "started_at": AT,
        "finished_at": AT,
        "config_hash": "",
        "session_id": None,
        "rotation": None,
        "turns": (),
        "usage": Usage(),
        "failure": None,
        "intent": intent,
        "delivery": None,
        "receipt": None,
    }
    return RunRecord(**(values | fields))


@pytest.mark.parametrize(
    "given, line",
    [
        (automation(), "- automations/mail.md (by hand): Look."),
        (
            automation(
                kind="job",
                enabled=False,
                triggers=(
                    ScheduleTrigger(expression="0 7 * * 1", schedule=None),
                    WebhookTrigger(route="mail"),
                    InboxTrigger(system="imap", address="a@b.example", allow_from=("@b.example",)),
                ),
            ),
            "- jobs/mail.md (0 7 * * 1; webhook mail; mail to imap:a@b.example, disabled): Look.",
        ),
        (
            automation(prompt="One\n\n- two\t three"),
            "- automations/mail.md (by hand): One - two three",
        ),
        (automation(prompt="a" * 900), f"- automations/mail.md (by hand): {'a' * 199}…"),
        (attrs.evolve(automation(), steps=()), "- automations/mail.md (by hand): "),
    ],
)
def test_an_automation_is_one_line(given: Automation, line: str) -> None:
    assert automation_lines([given]) == [line]


def test_a_broken_file_and_too_many_of_them_are_told_of() -> None:
    lines = automation_lines(
        [automation(f"a{n}") for n in range(200)], ["jobs/x\n.md", "jobs/y.md"]
    )
    assert automation_lines([], ["jobs/x\n.md"]) == ["- jobs/x .md: does not load"]
    assert len(lines) == 201
    assert lines[-1] == "- and 2 more"


@pytest.mark.parametrize(
    "given, said",
    [
        (run(), "succeeded, deliver (policy-always): All is well."),
        (
            run(text="a\nb " * 400),
            "succeeded, deliver (policy-always): " + ("a b " * 50)[:199] + "…",
        ),
        (run(text=" \n"), "succeeded, deliver (policy-always)"),
        (run(state="running", intent=None), "running"),
        (
            run(state="failed", failure=Problem(code="run-timeout", message="a\nb", remedy="")),
            "failed, deliver (policy-always): a b [run-timeout]",
        ),
    ],
)
def test_a_run_is_one_line(given: RunRecord, said: str) -> None:
    assert run_lines([given], ZONE) == [f"- 2026-03-02 08:00 mail, schedule: {said}"]


def test_twenty_runs_are_told_of() -> None:
    """The first ones that are given: the latest."""
    runs = [run(started_at=AT - timedelta(days=day)) for day in range(30)]
    lines = run_lines(runs, ZONE)
    assert len(lines) == 20
    assert lines[0].startswith("- 2026-03-02")


def test_what_would_drive_a_terminal_is_shown_instead() -> None:
    assert printable("a\x1b[2Jb") == r"'a\x1b[2Jb'"
    assert printable("ä b") == "ä b"
