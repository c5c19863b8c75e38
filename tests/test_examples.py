"""The examples run as their pages say, as processes of their own, and leave nothing behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import drumbeat
from drumbeat import lint_automation, validate_automation_content, validate_job_content

EXAMPLES = Path(__file__).parent.parent / "examples"
ENV = os.environ | {"PYTHONPATH": str(Path(drumbeat.__file__).parent.parent)}
FILES = sorted(EXAMPLES.glob("*/workspace/automations/*.md"))
JOBS = sorted(EXAMPLES.glob("*/workspace/jobs/*.md"))


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples, as somebody would have them after a clone.

    Above them lies what is set up for the tests of drumbeat itself, which no example may need.
    """
    shutil.copy(EXAMPLES.parent / "pyproject.toml", tmp_path)
    (tmp_path / "conftest.py").write_text("raise RuntimeError('no set-up for an example')\n")
    copy = tmp_path / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__", ".drumbeat"))
    return copy


def python(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        env=ENV | {"TMPDIR": str(cwd)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_there_are_automations_to_look_at() -> None:
    """The tests below have files to work on."""
    assert len(FILES) >= 8
    assert len(JOBS) >= 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_loads_without_a_finding(path: Path) -> None:
    """What is shown as an example heeds all advice."""
    text = path.read_bytes()
    assert validate_automation_content(text, path=path).slug == path.stem
    now = datetime(2026, 3, 2, tzinfo=UTC)
    assert lint_automation(text, path=path, zone=ZoneInfo("Europe/Berlin"), now=now) == []


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_of_an_example_loads_without_a_finding(path: Path) -> None:
    """The same for jobs."""
    text = path.read_bytes()
    assert validate_job_content(text, path=path).slug == path.stem
    assert lint_automation(text, path=path, kind="job") == []


@pytest.mark.slow
@pytest.mark.parametrize("rich", ["rich", "without rich"])
def test_the_first_run_shows_one_of_each(examples: Path, tmp_path: Path, rich: str) -> None:
    """A run is delivered, one withheld, one demoted, one aborted, and the artifacts are there."""
    script = "import runpy, sys\n"
    if rich == "without rich":
        script += "sys.modules['rich'] = sys.modules['rich.console'] = None\n"
    script += "runpy.run_path('examples/first-run/demo.py', run_name='__main__')\n"
    ended = python("-c", script, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    rows = {
        words[0]: words[1:4]
        for line in ended.stdout.splitlines()
        if len(words := re.split(r"\s*[│┃]\s*|\s{2,}", line.strip("│┃ "))) >= 5
    }
    assert rows.keys() >= {path.stem for path in FILES if "first-run" in path.parts}
    assert rows["inbox-check"] == ["succeeded", "deliver", "judged-worth-saying"]
    assert rows["calendar-watch"] == ["succeeded", "withhold", "nothing-to-report"]
    assert rows["disk-watch"] == ["succeeded", "demote", "urgent-marker-missing"]
    assert rows["ledger-review"] == ["aborted", "deliver", "run-failed"]
    assert rows["morning-note"] == ["succeeded", "deliver", "policy-always"]
    for name in ("Inbox check", "Ledger review", "Morning note"):
        assert re.search(rf"^\d{{4}}-\d\d-\d\d .*{name}: ", ended.stdout, re.MULTILINE)
    kept = Path(ended.stdout.splitlines()[-1].rpartition(" ")[2])
    assert {path.parent.parent.name for path in kept.rglob("result.json")} == {*rows} - {
        "automation"
    }
    assert not (examples / "first-run/workspace/.drumbeat").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_host_serves_until_it_is_told_to_stop(examples: Path, number: signal.Signals) -> None:
    """The host says what it serves, and a signal ends it well."""
    with subprocess.Popen(
        [sys.executable, "host.py"],
        cwd=examples / "first-run",
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "serving morning-note\n":
                break
        else:
            pytest.fail("the host ended without serving")
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_the_host_is_as_short_as_its_page_says() -> None:
    """About forty lines."""
    lines = (EXAMPLES / "first-run/host.py").read_text().splitlines()
    assert 35 <= len(lines) <= 50


@pytest.mark.slow
def test_the_custom_agent_says_what_its_page_shows(examples: Path) -> None:
    """The first run is tried again, the second goes on in the same thread."""
    ended = python("custom-agent/run.py", cwd=examples)
    assert ended.returncode == 0, ended.stderr
    shown = [line for line in ended.stdout.splitlines() if line.startswith("thread_")]
    page = (examples / "custom-agent/README.md").read_text().splitlines()
    assert shown == [line for line in page if line.startswith("thread_")]
    assert len(shown) == 2


@pytest.mark.slow
def test_the_crossed_answers_are_those_that_the_page_shows(examples: Path) -> None:
    """Each question is answered from where it belongs."""
    ended = python("chat-replies/crossed_answers.py", cwd=examples)
    assert ended.returncode == 0, ended.stderr
    page = (examples / "chat-replies/README.md").read_text()
    assert f"crossed_answers.py\n{ended.stdout}```" in page
    assert not (examples / "chat-replies/workspace/.drumbeat").exists()


@pytest.mark.slow
def test_the_chain_of_follow_ups_is_the_one_that_the_page_shows(examples: Path) -> None:
    """Over HTTP, and over a restart."""
    ended = python("follow-up-chain/watch_build.py", cwd=examples)
    assert ended.returncode == 0, ended.stderr
    page = (examples / "follow-up-chain/README.md").read_text()
    assert f"watch_build.py\n{ended.stdout}```" in page
    assert not (examples / "follow-up-chain/workspace/.drumbeat").exists()


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--imap",)])
def test_a_day_at_the_desk_is_what_its_page_shows(examples: Path, options: tuple[str]) -> None:
    """Whoever brings the mail: ids apart, an IMAP server and the stand-in come to the same."""
    ended = python("mail-triage/triage.py", *options, cwd=examples)
    assert ended.returncode == 0, ended.stderr
    page = (examples / "mail-triage/README.md").read_text()
    shown = ended.stdout.replace("<3@example>", "3")
    assert f"triage.py\n{shown}```" in page
    assert not (examples / "mail-triage/workspace/.drumbeat").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "passed"),
    [
        ("custom-agent", 7),
        ("in-your-tests", 7),
        ("chat-replies", 4),
        ("follow-up-chain", 3),
        ("fastapi-host", 2),
    ],
)
def test_the_tests_of_an_example_pass(examples: Path, example: str, passed: int) -> None:
    """They do what their pages say, and leave nothing that a second time would find."""
    ended = python("-m", "pytest", "-q", "-p", "no:cacheprovider", example, cwd=examples)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{passed} passed" in ended.stdout
    page = (examples / example / "README.md").read_text()
    assert re.search(
        rf"^\$ pip .*pytest\n\$ python -m pytest examples/{example}$", page, re.MULTILINE
    )
    assert list(examples.rglob(".drumbeat")) == []


@pytest.mark.slow
def test_the_tests_of_a_broken_automation_fail(examples: Path) -> None:
    """The tests that a team is shown do find what they are there to find."""
    file = examples / "in-your-tests/workspace/automations/queue-watch.md"
    file.write_text(file.read_text().replace("06:30", "6.30"))
    ended = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "in-your-tests", cwd=examples)
    assert ended.returncode == 1
    assert "test_a_file_has_no_findings[queue-watch]" in ended.stdout
    assert "test_a_week_of_schedule" in ended.stdout
