"""The commands of `drumbeat`, called in this process: what they print and how they end."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

import anyio
import click
from click.testing import CliRunner, Result

from drumbeat import (
    Client,
    DrumbeatError,
    Engine,
    NotFound,
    Problem,
    Reply,
    Turn,
    lint_automation,
    validate_automation_content,
)
from drumbeat.cli.commands import drumbeat
from drumbeat.cli.group import Commands
from drumbeat.testing import ScriptedAgent

GOOD = """\
---
automation:
  name: Greeting
  trigger:
    type: schedule
    expression: daily at 07:00
  notify: always
  steps:
    - id: greet
      prompt: Say hello.
---
"""
BROKEN = GOOD.replace("notify: always", "notfy: always\n  conversation: sometimes")
UNSCHEDULABLE = GOOD.replace("daily at 07:00", "now and then")
UNEVEN = GOOD.replace("daily at 07:00", '"*/7 * * * *"')
HOST = """\
import signal
import anyio
from drumbeat import AgentError, DeliveryRefused
from drumbeat.testing import RecordingDeliverer, ScriptedAgent

async def stop():
    signal.raise_signal(signal.SIGINT)
    await anyio.sleep_forever()

def say(turn):
    if turn.step_id == "stop":
        return stop()
    if turn.step_id == "fail":
        return AgentError("the model said \\x1b[31mno", code="said-no")
    return "Hello \\x1b[2J there.\\nSecond line."

def agent():
    return ScriptedAgent(default=say)

class Printer:
    async def deliver(self, intent):
        print("DELIVERED", intent.slug, intent.gate)

class Down:
    async def deliver(self, intent):
        raise OSError("the channel is down")

class Refusing:
    async def deliver(self, intent):
        raise DeliveryRefused("no such channel")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder; what the command line sets for its process is taken back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "100")
    yield tmp_path
    sys.modules.pop("cli_test_host", None)


@pytest.fixture
def workspace(here: Path) -> Path:
    """A workspace of one automation, with a host beside it."""
    write(here / "ws/automations/greeting.md", GOOD)
    write(here / "cli_test_host.py", HOST)
    return here / "ws"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def call(*args: object) -> Result:
    result = CliRunner().invoke(drumbeat, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


# ---- init


def test_init_writes_a_workspace_that_validates_without_a_finding(here: Path) -> None:
    """What is written loads, is disabled, keeps lint silent, and its tool runs."""
    result = call("init", "ws")
    assert result.exit_code == 0
    assert "wrote ws/automations/open-tasks.md" in result.output
    text = (here / "ws/automations/open-tasks.md").read_text()
    automation = validate_automation_content(text)
    assert not automation.enabled
    assert lint_automation(text) == []
    assert all((here / "ws" / path).is_file() for path in automation.requires)
    checked = call("validate", "--workspace", "ws")
    assert checked.exit_code == 0
    assert "1 file checked: 0 problems, 0 errors, 0 warnings" in checked.output


@pytest.mark.parametrize(
    ("tasks", "printed"),
    [
        ("# note\nx done\n\nCall Ana\n", "Call Ana\n"),
        ("# note\nx done\n", "INJECT_IDLE\n"),
        ("", "INJECT_IDLE\n"),
    ],
)
def test_the_tool_of_init_prints_what_is_open(here: Path, tasks: str, printed: str) -> None:
    """Open tasks come out as they stand; with none open the tool says that it is idle."""
    call("init")
    (here / "tasks.txt").write_text(tasks)
    tool = here / "bin/open-tasks"
    assert os.access(tool, os.X_OK)
    assert subprocess.run([tool], capture_output=True, text=True, check=True).stdout == printed


def test_the_tool_of_init_fails_without_its_file(here: Path) -> None:
    """No list is not the same as an empty list."""
    call("init")
    (here / "tasks.txt").unlink()
    ended = subprocess.run([here / "bin/open-tasks"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "cannot read" in ended.stderr


def test_init_overwrites_nothing(here: Path) -> None:
    """A file that is there stays, even as a dangling link, and a second call changes nothing."""
    write(here / ".gitignore", "mine\n")
    (here / "tasks.txt").symlink_to("nowhere.txt")
    first = call("init")
    assert "kept .gitignore (it was there already)" in first.output
    assert (here / ".gitignore").read_text() == "mine\n"
    assert not (here / "nowhere.txt").exists()
    before = tree(here)
    second = call("init")
    assert second.exit_code == 0
    assert "wrote" not in second.output
    assert tree(here) == before


def test_init_says_what_stood_in_its_way(here: Path) -> None:
    """A file in the place of a folder ends the command with the system's reason."""
    write(here / "automations", "a file")
    result = call("init")
    assert result.exit_code == 1
    assert "automations: File exists" in result.stderr


# ---- validate


def test_validate_prints_every_problem_with_its_place_and_remedy(here: Path) -> None:
    """Both problems of one file are printed, and the exit code is 1."""
    write(here / "a.md", BROKEN)
    result = call("validate", "a.md")
    assert result.exit_code == 1
    heads = [line for line in result.stdout.splitlines() if line.startswith("a.md:")]
    assert [head.split(":")[1:3] for head in heads] == [["7", "3"], ["8", "17"]]
    assert "did you mean" in result.output
    assert all(head.endswith("]") for head in heads)
    assert "1 file checked: 2 problems, 0 errors, 0 warnings" in result.output


def test_validate_fails_on_an_error_and_passes_a_warning(here: Path) -> None:
    """A finding that must be mended ends with 1, one worth knowing with 0."""
    write(here / "error.md", UNSCHEDULABLE)
    write(here / "warning.md", UNEVEN)
    error = call("validate", "error.md")
    assert error.exit_code == 1
    assert "error.md:6:17: error: " in error.output
    assert "0 problems, 1 error, 0 warnings" in error.output
    warning = call("validate", "warning.md", "--zone", "UTC")
    assert warning.exit_code == 0
    assert "warning: " in warning.output
    assert "0 problems, 0 errors, 1 warning" in warning.output


def test_validate_uses_the_zone_it_is_given(here: Path) -> None:
    """A time inside a gap of the named zone is a finding, and none in UTC."""
    write(here / "gap.md", GOOD.replace("07:00", "02:30"))
    assert "0 warnings" in call("validate", "gap.md", "--zone", "UTC").output
    assert "[schedule-in-gap]" in call("validate", "gap.md", "--zone", "Europe/Berlin").output
    wrong = call("validate", "gap.md", "--zone", "Mars/Base")
    assert wrong.exit_code == 2
    assert "'--zone': " in wrong.stderr
    assert "Mars/Base" in wrong.stderr


def test_validate_takes_folders_and_skips_what_a_workspace_skips(here: Path) -> None:
    """A folder stands for its files; README.md, dotfiles and names with _ are left out."""
    for name in ("a.md", "README.md", ".b.md", "_c.md", "d.txt"):
        write(here / "some" / name, GOOD)
    assert "1 file checked" in call("validate", "some").output
    write(here / "none/README.md", "")
    empty = call("validate", "none")
    assert empty.exit_code == 2
    assert "no automation file in none" in empty.stderr


def test_validate_checks_what_stands_between_files_of_a_workspace(workspace: Path) -> None:
    """A workspace is checked as a whole: broken files, equal slugs, empty files, findings."""
    write(workspace / "automations/broken.md", BROKEN)
    write(workspace / "automations/Greeting.md", GOOD)
    write(workspace / "automations/uneven.md", UNEVEN)
    empty = GOOD.replace("  steps:", "  requires: [guidance/EMPTY.md]\n  steps:")
    write(workspace / "automations/needs-empty.md", empty)
    write(workspace / "guidance/EMPTY.md", " \n")
    for args in (["--workspace", "ws"], ["ws"]):
        result = call("validate", *args, "--zone", "UTC")
        assert result.exit_code == 1
        assert "ws/automations/broken.md:7:3: " in result.output
        assert "ws/automations/greeting.md: " in result.output
        assert "ws/automations/Greeting.md: " in result.output
        assert "ws/automations/uneven.md:6:" in result.output
        assert "ws/automations/needs-empty.md: warning: " in result.output
        assert "5 files checked: 4 problems, 0 errors, 2 warnings" in result.output


def test_validate_says_when_a_folder_is_no_workspace(here: Path) -> None:
    """A folder that was named wrongly is not found to be fine."""
    (here / "elsewhere").mkdir()
    result = call("validate", "--workspace", "elsewhere")
    assert result.exit_code == 1
    assert "[automations-folder-missing]" in result.output
    assert "0 files checked: 1 problem," in result.output


def test_validate_checks_the_current_folder_by_default(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without PATHS and --workspace the workspace is where one stands."""
    monkeypatch.chdir(workspace)
    result = call("validate")
    assert result.exit_code == 0
    assert "1 file checked" in result.output


JOB = """\
---
cron: "30 7 * * *"
---
Count the stock.
"""


@pytest.mark.parametrize("path", ["ws/jobs/stock.md", "ws/jobs", "ws"])
def test_validate_judges_a_job_as_a_job(workspace: Path, path: str) -> None:
    """Alone, with its folder and with its workspace: problems and findings are those of a job."""
    write(workspace / "jobs/stock.md", JOB)
    assert call("validate", path).exit_code == 0
    write(workspace / "jobs/stock.md", JOB.replace("30 7", "*/7 7"))
    uneven = call("validate", path)
    assert (uneven.exit_code, "[schedule-uneven-step]" in uneven.output) == (0, True)
    write(workspace / "jobs/stock.md", JOB.replace("cron", "cronn"))
    broken = call("validate", path)
    assert broken.exit_code == 1
    assert "ws/jobs/stock.md:2:1: " in broken.output
    assert "did you mean 'cron'?" in broken.output


def test_validate_knows_a_job_from_inside_its_folder(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder decides, whether or not it is named."""
    write(workspace / "jobs/stock.md", JOB)
    monkeypatch.chdir(workspace / "jobs")
    assert "1 file checked: 0 problems" in call("validate", "stock.md").output
    assert "1 file checked: 0 problems" in call("validate", ".").output


def test_validate_reads_a_job_s_schedule_by_the_zone_of_jobs(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time that summer time skips there is a finding, whatever the system's zone is."""
    write(workspace / "jobs/stock.md", JOB.replace("30 7", "30 2"))
    monkeypatch.setenv("TIMEZONE", "UTC")
    assert "0 warnings" in call("validate", "ws").output
    monkeypatch.setenv("TIMEZONE", "Europe/Berlin")
    assert "[schedule-in-gap]" in call("validate", "ws").output
    assert "0 warnings" in call("validate", "ws", "--zone", "UTC").output


def test_validate_finds_a_tool_that_a_pack_hides(workspace: Path) -> None:
    """What is odd about packs that load is said with the workspace."""
    card = "---\npack_format: 1\nname: a\ndescription: A.\ntools: [count]\n---\nCounts.\n"
    write(workspace / "drumpacks.txt", "drumpacks/a\n")
    write(workspace / "drumpacks/a/drumpack.md", card)
    for tool in ("drumpacks/a/bin/count", "bin/count"):
        write(workspace / tool, "#!/bin/sh\n").chmod(0o755)
    result = call("validate", "ws")
    assert "ws/bin/count: warning: " in result.output
    assert "[pack-tool-shadows]" in result.output
    assert result.exit_code == 0


def test_validate_refuses_paths_together_with_a_workspace(workspace: Path) -> None:
    """Either files or a workspace."""
    result = call("validate", "ws", "--workspace", workspace)
    assert result.exit_code == 2
    assert "not both" in result.stderr


def test_validate_reports_a_file_it_cannot_read(here: Path) -> None:
    """A dangling link in a folder is a problem of its own, not a file less."""
    (here / "automations").mkdir()
    (here / "automations/gone.md").symlink_to("nowhere.md")
    result = call("validate", "automations")
    assert result.exit_code == 1
    assert "gone.md: the file cannot be read: No such file" in result.output


@pytest.mark.parametrize("args", [["validate", "missing.md"], ["validate", "--workspace", "none"]])
def test_validate_calls_a_missing_path_wrong_usage(args: list[str]) -> None:
    """What is not there cannot be fine."""
    assert call(*args).exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["status", "\x1b[2J"],
        ["status", "--no\x1b[2J"],
        ["schema", "\x1b[2J"],
        ["why", "a", "--at", "\x1b[2J"],
        ["runs", "--limit", "\x1b[2J"],
        ["validate", "\x1b[2J.md"],
        ["\x1b[2J"],
        ["--no\x1b[2J"],
    ],
    ids=" ".join,
)
def test_wrong_usage_sends_no_escapes_to_a_terminal(here: Path, words: list[str]) -> None:
    """A shell puts the names of files in place of `*`, and these may be anything."""
    result = CliRunner().invoke(drumbeat, words, color=True)
    assert result.exit_code == 2
    assert "\x1b" not in result.output
    assert "\\x1b[2J" in result.output


def test_validate_shows_escapes_of_a_file_instead_of_sending_them(here: Path) -> None:
    """Neither a key nor a file name can drive the terminal."""
    write(here / "automations/\x1b]0;owned\x07.md", GOOD.replace("notify:", '"\\e[2Jnotify":'))
    result = call("validate", "automations")
    assert result.exit_code == 1
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
    assert "\\x1b]0;owned\\x07.md" in result.output


# ---- upcoming


def test_upcoming_prints_moments_and_zone_and_writes_nothing(workspace: Path) -> None:
    """A week of a daily automation is seven moments; no data folder appears."""
    before = tree(workspace)
    result = call("upcoming", "--workspace", workspace)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Times are those of ")
    moments = [line for line in lines if "greeting" in line]
    assert len(moments) == 7
    assert all("07:00 " in line for line in moments)
    assert tree(workspace) == before
    assert not (workspace / ".drumbeat").exists()


def test_moments_and_runs_are_shown_by_the_zone_that_rules_each_kind(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs follow `$TIMEZONE`, and the first line says so."""
    monkeypatch.setenv("TIMEZONE", "Asia/Kathmandu")
    write(workspace / "jobs/stock.md", JOB)
    write(workspace / "jobs/broken.md", "no front matter")
    result = call("upcoming", "--workspace", workspace, "--days", "2")
    lines = result.stdout.splitlines()
    assert lines[0].endswith("; of jobs, those of Asia/Kathmandu ($TIMEZONE).")
    assert all("07:30 +0545" in line for line in lines if "stock" in line)
    assert sum("07:30 +0545" in line for line in lines) == 2
    assert not any("+0545" in line for line in lines if "greeting" in line)
    for slug in ("stock", "greeting"):
        call("run", slug, "--agent", "cli_test_host:agent", "--workspace", workspace)
    shown = call("runs", "--workspace", workspace).stdout.splitlines()
    assert shown[0] == lines[0]
    assert {line.split()[5]: "+0545" in line for line in shown[2:]} == {
        "stock": True,
        "greeting": False,
    }
    write(workspace / "jobs/stock.md", "no front matter")
    assert "+0545" in call("runs", "stock", "--workspace", workspace).stdout.splitlines()[2]


def test_an_engine_s_own_zone_is_the_one_that_is_shown(workspace: Path) -> None:
    """What `--timezone` ruled is read off the records; the moment of `why` goes by it too."""
    arguments = ("--agent", "cli_test_host:agent", "--workspace", workspace)
    call("run", "greeting", *arguments, "--timezone", "Asia/Kathmandu")
    result = call("upcoming", "--workspace", workspace, "--days", "1")
    lines = result.stdout.splitlines()
    assert lines[0] == "Times are those of Asia/Kathmandu (timezone)."
    assert any("07:00 +0545" in line for line in lines if "greeting" in line)
    assert "+0545" in call("runs", "--workspace", workspace).stdout
    said = call("why", "greeting", "--at", "2026-03-02T07:00", "--workspace", workspace).stdout
    assert (
        said
        == call(
            "why", "greeting", "--at", "2026-03-02T07:00+05:45", "--workspace", workspace
        ).stdout
    )


def test_upcoming_prints_no_more_than_asked(workspace: Path) -> None:
    """What is left out is counted."""
    result = call("upcoming", "--workspace", workspace, "--days", "14", "--limit", "3")
    assert sum("greeting" in line for line in result.stdout.splitlines()) == 3
    assert "… and 11 more" in result.output


def test_upcoming_names_what_will_never_come(workspace: Path) -> None:
    """Broken, disabled and unschedulable files are not passed over."""
    write(workspace / "automations/broken.md", BROKEN)
    write(workspace / "automations/someday.md", UNSCHEDULABLE)
    disabled = UNSCHEDULABLE.replace("  notify:", "  enabled: false\n  notify:")
    write(workspace / "automations/disabled.md", disabled)
    result = call("upcoming", "--workspace", workspace)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "automations/broken.md does not load, so nothing of it comes; see drumbeat validate",
        "disabled is disabled, so its schedule brings nothing",
        "someday is never due: its schedule cannot be read; see drumbeat validate",
    ]


def test_upcoming_accuses_no_automation_of_a_file_beside_it(workspace: Path) -> None:
    write(workspace / "automations/greeting.markdown", BROKEN)
    told = " ".join(call("upcoming", "--workspace", "ws").stderr.split())
    assert "automations/greeting.markdown is not read;" in told
    assert "abort" not in told


def test_upcoming_names_a_schedule_that_its_zone_never_brings(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clocks in Berlin skip that hour on the last Sunday of March, its only day."""
    monkeypatch.setenv("TIMEZONE", "Europe/Berlin")
    write(workspace / "jobs/gap.md", '---\ncron: "*/10 2 * 3 L0"\n---\nLook.\n')
    result = call("upcoming", "--workspace", workspace)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "gap is never due: its schedule has no moment in Europe/Berlin; see drumbeat validate"
    ]


def test_upcoming_says_when_nothing_comes(here: Path) -> None:
    """A workspace without schedules is said to bring nothing."""
    manual = GOOD.replace("schedule\n    expression: daily at 07:00", "manual")
    write(here / "automations/greeting.md", manual)
    result = call("upcoming", "--days", "3")
    assert result.exit_code == 0
    assert "Nothing comes within 3 days." in result.output


# ---- run


def test_run_prints_the_decision_and_where_the_artifacts_lie(workspace: Path) -> None:
    """One run, its intent, its folder; the message is printed harmlessly."""
    result = call("run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "greeting succeeded"
    facts = dict(line.split(maxsplit=1) for line in lines[1:7])
    assert facts["verdict"] == "deliver"
    assert facts["gate"] == "policy-always"
    assert facts["delivery"] == "pending"
    assert Path(facts["artifacts"], "result.json").is_file()
    assert lines[-2:] == ["Hello \\x1b[2J there.", "Second line."]


def test_run_says_that_its_message_is_still_to_be_sent(workspace: Path) -> None:
    """Somebody hears of it later, also of what a stand-in said."""
    result = call("run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace)
    assert "1 message waits to be sent by the next engine that has a deliverer" in result.stderr
    result = call("run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace)
    assert "2 messages wait" in result.stderr


def test_a_run_that_is_tried_leaves_nothing_behind(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record, no message, no conversation, no memory; and it needs no folder that is free."""
    memory = workspace.parent / "memory"
    monkeypatch.setenv("MEMORY_DIR", str(memory))
    write(workspace / "jobs/look.md", "---\ncron: 0 7 * * *\n---\nLook around.\n")
    call("run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace)

    async def pending() -> int:
        async with Client(workspace) as client:
            return len(await client.intents("pending"))

    before = sorted(workspace.rglob("*"))
    for slug in ("greeting", "look"):
        result = call(
            "run", slug, "--try", "--agent", "cli_test_host:agent", "--workspace", workspace
        )
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith(f"{slug} succeeded")
        assert "artifacts  none are kept" in result.stdout
        assert "delivery   none" in result.stdout
        assert "wait" not in result.stderr
    assert sorted(workspace.rglob("*")) == before
    assert anyio.run(pending) == 1
    assert not (memory / "jobs").exists()


@pytest.mark.parametrize(
    "options", [("--in", "5"), ("--deliverer", "cli_test_host:Printer"), ("--data-dir", ".")]
)
def test_what_does_not_go_with_a_trial_is_wrong_usage(
    workspace: Path, options: tuple[str, str]
) -> None:
    result = call(
        "run", "greeting", "--try", *options, "--agent", "cli_test_host:agent",
        "--workspace", workspace,
    )  # fmt: skip
    assert result.exit_code == 2
    assert "--try" in result.stderr


def test_run_hands_the_message_to_a_deliverer(workspace: Path) -> None:
    """With a deliverer the message is out before the command ends."""
    result = call(
        "run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace,
        "--deliverer", "cli_test_host:Printer",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "DELIVERED greeting policy-always" in result.output
    assert "delivery   delivered" in result.output


@pytest.mark.parametrize(
    ("deliverer", "delivery", "reason", "again"),
    [
        ("Down", "pending", "OSError: the channel is down", True),
        ("Refusing", "abandoned", "no such channel", False),
    ],
)
def test_run_says_why_its_message_is_not_out(
    workspace: Path, deliverer: str, delivery: str, reason: str, again: bool
) -> None:
    """The run itself went well, so the command ends with 0."""
    result = call(
        "run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace,
        "--deliverer", f"cli_test_host:{deliverer}", "--log-level", "error",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert re.search(rf"^ +delivery +{delivery}$", result.stdout, re.MULTILINE)
    told = " ".join(result.stderr.split())
    assert reason in told
    assert ("it is tried again by the next engine that has a deliverer" in told) == again


@pytest.mark.parametrize(
    ("notify", "options", "said"),
    [
        ("always", (), "its message waits for the next engine that has a deliverer"),
        ("never", (), "its message is kept on record and not sent: "),
        ("always", ("--try",), "stopped; nothing of the run is kept"),
    ],
    ids=["always", "never", "trial"],
)
def test_ctrl_c_says_what_is_left_of_a_run(
    workspace: Path, notify: str, options: tuple[str, ...], said: str
) -> None:
    text = GOOD.replace("id: greet", "id: stop").replace("notify: always", f"notify: {notify}")
    write(workspace / "automations/stopped.md", text)
    result = call(
        "run", "stopped", *options, "--agent", "cli_test_host:agent", "--workspace", workspace
    )
    assert result.exit_code == 1
    told = " ".join(result.stderr.split())
    assert said in told
    assert ("of stopped is recorded as interrupted" in told) == (not options)
    assert "Aborted!" in told


def test_run_ends_with_1_when_the_run_failed(workspace: Path) -> None:
    """A failed run prints its problem, and nothing of it drives the terminal."""
    write(workspace / "automations/failing.md", GOOD.replace("id: greet", "id: fail"))
    result = call("run", "failing", "--agent", "cli_test_host:agent", "--workspace", workspace)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "failing failed"
    assert "[said-no]" in result.output
    assert "\x1b" not in result.output


def test_run_ends_with_1_when_the_run_was_aborted(workspace: Path) -> None:
    """An unmet requirement aborts, and the exit code says so."""
    needy = GOOD.replace("  steps:", "  requires: [no-such-tool-anywhere]\n  steps:")
    write(workspace / "automations/needy.md", needy)
    result = call("run", "needy", "--agent", "cli_test_host:agent", "--workspace", workspace)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "needy aborted"
    assert "no-such-tool-anywhere" in result.output


def test_run_calls_an_unknown_slug_wrong_usage(workspace: Path) -> None:
    """The library's message is printed as it is, without a traceback."""
    result = call("run", "greting", "--agent", "cli_test_host:agent", "--workspace", workspace)
    assert result.exit_code == 2
    assert "greting" in result.stderr
    assert "Traceback" not in result.output
    assert not (workspace / ".drumbeat").exists()  # no engine was there


@pytest.mark.parametrize("command", [["run", "greeting"], ["serve"]])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Missing option '--agent'"),
        (["--agent", "nowhere:agent"], "cannot be imported"),
        (["--agent", "cli_test_host:agent", "--deliverer", "cli_test_host:say"], "could not make"),
    ],
)
def test_run_and_serve_refuse_what_they_cannot_load(
    workspace: Path, command: list[str], options: list[str], said: str
) -> None:
    """A wrong agent or deliverer is wrong usage, and no state is written."""
    result = call(*command, "--workspace", workspace, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (workspace / ".drumbeat").exists()


@pytest.mark.parametrize("command", [["run", "greeting"], ["serve"]])
def test_an_unknown_zone_ends_with_the_library_s_message(
    workspace: Path, command: list[str]
) -> None:
    """What the engine refuses is printed, exit code 1."""
    result = call(
        *command, "--agent", "cli_test_host:agent", "--workspace", workspace, "--timezone", "Mars/X"
    )
    assert result.exit_code == 1
    assert "Mars/X" in result.stderr
    assert "Traceback" not in result.output


# ---- runs and why


def test_runs_lists_the_latest_first(workspace: Path) -> None:
    """Each run is one line with its decision; a slug and a limit narrow the list."""
    write(workspace / "automations/failing.md", GOOD.replace("id: greet", "id: fail"))
    for slug in ("greeting", "failing"):
        call("run", slug, "--agent", "cli_test_host:agent", "--workspace", workspace)
    lines = call("runs", "--workspace", workspace).stdout.splitlines()
    assert lines[0].startswith("Times are those of ")
    assert lines[1].split()[:3] == ["due", "started", "automation"]
    assert "failing     failed" in lines[2]
    assert "run-failed" in lines[2]
    assert "greeting    succeeded  deliver  policy-always  pending" in lines[3]
    assert len(lines) == 4
    one = call("runs", "greeting", "--workspace", workspace).stdout
    assert "failing" not in one
    assert "greeting" in one
    assert len(call("runs", "--limit", "1", "--workspace", workspace).stdout.splitlines()) == 3


def test_runs_shows_one_that_is_going(workspace: Path) -> None:
    """A run without an intent yet is listed by its state."""
    seen: list[str] = []

    class Looking(ScriptedAgent):
        async def take_turn(self, turn: Turn, /) -> Reply:
            result = await anyio.to_thread.run_sync(call, "runs", "--workspace", workspace)
            seen.append(result.stdout)
            return Reply(text="Hello.")

    async def run() -> None:
        async with Engine(workspace, agent=Looking()) as engine:
            await engine.run("greeting")

    anyio.run(run)
    assert "greeting    running" in seen[0]


def test_runs_says_when_there_are_none(workspace: Path) -> None:
    """Nothing on record, and nothing is written by looking."""
    result = call("runs", "--workspace", workspace)
    assert result.exit_code == 0
    assert "No run is on record." in result.stdout
    assert not (workspace / ".drumbeat").exists()


def test_why_answers_in_a_sentence(workspace: Path) -> None:
    """For the present moment, for one with an offset and for one without."""
    call("run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace)
    assert "ran as" in call("why", "greeting", "--workspace", workspace).stdout
    for at in ("2026-03-02T07:00+01:00", "2026-03-02T07:00"):
        result = call("why", "greeting", "--at", at, "--workspace", workspace)
        assert result.exit_code == 0
        assert "greeting was not due at 2026-03-02" in result.stdout
    wrong = call("why", "greeting", "--at", "noon", "--workspace", workspace)
    assert wrong.exit_code == 2
    assert "'noon' is no instant" in wrong.stderr


def test_why_takes_the_moment_that_runs_prints(workspace: Path) -> None:
    """Copied from the table as it stands, weekday, seconds and offset included."""
    call("run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace)
    row = call("runs", "--workspace", workspace).stdout.splitlines()[2]
    moment = re.match(r"[A-Z][a-z]+ \S+ \S+ [+-]\d{4}", row)
    assert moment is not None
    result = call("why", "greeting", "--at", moment[0], "--workspace", workspace)
    assert result.exit_code == 0
    assert "greeting (manual) due at" in result.stdout
    assert "ran as" in result.stdout


def test_runs_of_an_unknown_slug_is_wrong_usage(workspace: Path) -> None:
    """A slug that is misspelt is told from one that has not run."""
    result = call("runs", "greetng", "--workspace", workspace)
    assert result.exit_code == 2
    assert "the workspace has: greeting" in result.stderr
    assert call("runs", "greeting", "--workspace", workspace).exit_code == 0
    call("run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace)
    (workspace / "automations/greeting.md").unlink()
    assert call("runs", "greeting", "--workspace", workspace).exit_code == 0


def test_a_run_whose_engine_is_gone_is_not_shown_as_running(workspace: Path) -> None:
    """Its records say `running` until the next start; nobody is at it."""
    state = workspace.parent / "as-it-was"

    class Cut(ScriptedAgent):
        async def take_turn(self, turn: Turn, /) -> Reply:
            await anyio.to_thread.run_sync(shutil.copytree, workspace / ".drumbeat", state)
            return Reply(text="Hello.")

    async def run() -> None:
        async with Engine(workspace, agent=Cut()) as engine:
            await engine.run("greeting")

    anyio.run(run)
    shown = call("runs", "--workspace", workspace, "--data-dir", state).stdout
    assert "greeting    cut off" in shown
    assert "the next start of one settles it" in shown
    why = call("why", "greeting", "--workspace", workspace, "--data-dir", state).stdout
    assert "is settled at the next start" in why
    status = call("status", "--workspace", workspace, "--data-dir", state).stdout
    assert "greeting    cut off" in status
    doctor = call("doctor", "--workspace", workspace, "--data-dir", state).stdout
    assert "run-cut-off" in doctor


def test_upcoming_says_that_a_file_that_broke_keeps_its_schedule(workspace: Path) -> None:
    """It is listed, so it is not said to bring nothing."""
    call("run", "greeting", "--agent", "cli_test_host:agent", "--workspace", workspace)
    write(workspace / "automations/greeting.md", BROKEN)
    result = call("upcoming", "--workspace", workspace)
    assert ("greeting" in result.stdout) == ("keeps the schedule it had" in result.stderr)
    assert ("greeting" in result.stdout) != ("nothing of it comes" in result.stderr)
    assert "greeting" in result.stdout


# ---- the group


def test_several_errors_of_the_library_are_all_printed() -> None:
    """Errors that arrive in a group lose nothing and show no traceback."""
    problem = Problem(code="one", message="first \x1b[0m", remedy="mend it")
    other = NotFound(Problem(code="two", message="second", remedy=""))

    @click.command
    def both() -> None:
        inner = ExceptionGroup("inner", [other])
        raise ExceptionGroup("outer", [DrumbeatError(problem), inner])

    result = CliRunner().invoke(Commands(commands={"both": both}), ["both"])
    assert result.exit_code == 1
    assert result.stderr == "first \\x1b[0m [one]\n  mend it\nsecond [two]\n"


def test_a_fault_keeps_its_traceback() -> None:
    """What is no refusal of the library is a defect, and is not dressed up."""

    @click.command
    def faulty() -> None:
        raise ExceptionGroup("outer", [RuntimeError("a defect")])

    result = CliRunner().invoke(Commands(commands={"faulty": faulty}), ["faulty"])
    assert isinstance(result.exception, ExceptionGroup)


def test_help_names_every_command() -> None:
    """`-h` is `--help`."""
    result = call("-h")
    assert result.exit_code == 0
    for name in ("init", "validate", "upcoming", "run", "serve", "runs", "why", "schema"):
        assert f"\n  {name} " in result.output


def test_schema_prints_the_json_schema_of_the_front_matter() -> None:
    """An editor can be pointed at it."""
    result = call("schema")
    assert result.exit_code == 0
    assert "automation" in json.loads(result.output)["properties"]
    assert call("schema", "--kind", "automation").output == result.output


def test_schema_of_a_job_has_the_keys_of_jobs() -> None:
    """Each kind of file has a schema of its own, and there is no third."""
    result = call("schema", "--kind", "job")
    assert result.exit_code == 0
    properties = json.loads(result.output)["properties"]
    assert "cron" in properties
    assert "automation" not in properties
    assert call("schema", "--kind", "other").exit_code == 2


# ---- what an engine would find on this machine

NEEDY = GOOD.replace(
    "  steps:",
    "  requires:\n    - guidance/RULES.md\n    - no-such-tool-here\n  inject:\n"
    '    - argv: ["bin/feed"]\n      label: feed\n    - argv: ["sh", "-c", "true"]\n'
    "      label: shell\n  steps:",
)


def test_validate_says_what_a_run_would_lack(workspace: Path) -> None:
    """A missing file is an error; a missing tool may be there where the engine runs."""
    write(workspace / "automations/needy.md", NEEDY)
    result = call("validate", "ws")
    assert result.exit_code == 1
    assert "needy.md: error: required 'guidance/RULES.md' is not usable" in result.output
    assert "needy.md: warning: required 'no-such-tool-here' is not usable" in result.output
    assert "needy.md: warning: no executable 'bin/feed' was found in the workspace" in result.output
    assert "'sh'" not in result.output
    assert os.environ["PATH"] not in result.output
    write(workspace / "guidance/RULES.md", "Be kind.\n")
    write(workspace / "bin/feed", "#!/bin/sh\n").chmod(0o755)
    write(workspace / "bin/no-such-tool-here", "#!/bin/sh\n").chmod(0o755)
    result = call("validate", "ws")
    assert (result.exit_code, result.output) == (
        0,
        "2 files checked: 0 problems, 0 errors, 0 warnings\n",
    )


def test_validate_refuses_the_configuration_that_an_engine_refuses(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workspace's file and the one that the environment names, with their places."""
    write(workspace / "agent-config.yaml", "default:\n  provider:\n    api_key: hush\n")
    monkeypatch.setenv("AMPLIFIER_AGENT_CONFIG", str(workspace / "nowhere.yaml"))
    result = call("validate", "ws")
    assert result.exit_code == 1
    assert "ws/agent-config.yaml:3" in result.output
    assert "[agent-config-missing]" in result.output
    assert "hush" not in result.output


def test_validate_finds_secrets_around_the_automations(workspace: Path) -> None:
    """In whatever of a workspace people write, once each and never shown."""
    key = "sk-ant-api03-AAAABBBBCCCCDDDDEEEE"
    token = "ghp_" + "a1B2" * 9
    card = f"---\nformat: 1\nname: Desk\nactivity: {{note: {key}}}\n---\nHelps.\n"
    written = {
        "agent-config.yaml": f"default:\n  provider: {key}\n",
        "SYSTEM.md": f"Use {key}.\n",
        "drumpacks.txt": "packs/desk\n",
        "packs/desk/drumpack.md": card,
        "guidance/deep/TASKS.md": f"one\ntwo {token}\n",
        "skills/mail/SKILL.md": f"---\nname: mail\n---\n{token}\n",
        "bin/look": f"#!/bin/sh\ncurl https://user:hunter2@host.test/ {token}\n",
        "needed.txt": f"{token}\n",
        "automations/broken.md": BROKEN + f"\n{token}\n",
        "automations/needs.md": GOOD.replace("  steps:", "  requires: [needed.txt]\n  steps:"),
    }
    for name, text in written.items():
        write(workspace / name, text)
    (workspace / "guidance" / "picture.png").write_bytes(b"\x89PNG\xff" + token.encode())
    result = call("validate", "--workspace", "ws")
    assert result.exit_code == 1
    for name in written.keys() - {"drumpacks.txt", "automations/needs.md"}:
        assert f"ws/{name}:" in result.output
    assert "ws/guidance/deep/TASKS.md:2:5: error: this looks like a GitHub token" in result.output
    assert result.output.count("[secret-in-file]") == 9
    assert not any(secret in result.output for secret in (key, token, "hunter2", "picture.png"))
    assert "3 files checked" in result.output
    alone = call("validate", "ws/automations/broken.md")
    assert "[secret-in-file]" in alone.output


@pytest.mark.parametrize("name", ["greeting.markdown", "sub/deeper/greeting.md"])
def test_validate_names_what_is_taken_for_an_automation_and_not_read(
    workspace: Path, name: str
) -> None:
    write(workspace / "automations" / name, GOOD)
    write(workspace / "automations" / "sub" / "README.md", GOOD)
    write(workspace / "automations" / "_kept" / "old.md", GOOD)
    (workspace / "automations" / "greeting.md").rename(workspace / "automations" / "other.md")
    result = call("validate", "--workspace", "ws")
    code = "file-suffix" if name.endswith("markdown") else "file-in-subfolder"
    assert f"ws/automations/{name}: " in result.output
    assert f"[{code}]" in result.output
    assert ("1 problem" if code == "file-suffix" else "1 warning") in result.output


def test_validate_judges_the_files_also_when_a_pack_is_broken(workspace: Path) -> None:
    write(workspace / "drumpacks.txt", "nowhere\n")
    write(workspace / "automations/broken.md", BROKEN)
    needs = GOOD.replace("  steps:", "  requires: [tool-of-the-pack]\n  steps:")
    write(workspace / "automations/needs.md", needs)
    result = call("validate", "--workspace", "ws")
    assert "[pack-missing]" in result.output
    assert "ws/automations/broken.md:7:3: " in result.output
    assert "tool-of-the-pack" not in result.output


def test_validate_reports_packs_and_configuration_together(workspace: Path) -> None:
    """One start would refuse both, so one look says both, each where it stands."""
    write(workspace / "drumpacks.txt", "drumpacks/none\n")
    write(workspace / "agent-config.yml", "default: {}\n")
    result = call("validate", "ws")
    assert result.exit_code == 1
    assert "ws/drumpacks.txt:1:1: " in result.output
    assert "[agent-config-misnamed]" in result.output


@pytest.mark.parametrize("name", ["drumpack.txt", "Drumpacks.txt"])
def test_validate_notices_a_misnamed_list_of_packs(workspace: Path, name: str) -> None:
    """A list that nothing reads is an error, and says the right name."""
    write(workspace / name, "drumpacks/mail\n")
    result = call("validate", "ws")
    assert result.exit_code == 1
    assert f"ws/{name}: error: " in result.output
    assert "rename it to drumpacks.txt" in result.output


def test_an_automation_can_be_tried_without_an_agent_of_one_s_own(workspace: Path) -> None:
    """The stand-in of the testing kit answers every prompt, as the quickstart says."""
    agent = "drumbeat.testing:ScriptedAgent"
    result = call("run", "greeting", "--agent", agent, "--workspace", workspace)
    assert result.exit_code == 0
    assert "greeting succeeded" in result.stdout


def test_without_a_command_the_help_is_printed_once() -> None:
    result = call()
    assert result.exit_code == 2
    assert result.output.count("Usage: drumbeat") == 1
    assert "Error" not in result.output
    assert "doctor" in result.output
