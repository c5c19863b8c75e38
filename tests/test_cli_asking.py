"""The commands with which a person asks the agent, or for a run later on."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

import anyio
from click.testing import CliRunner, Result

from drumbeat import Client, Engine, Fire, Turn
from drumbeat.cli.commands import drumbeat
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.sign_of_life import SignOfLife, write_sign
from drumbeat.testing import ScriptedAgent

HOST = """\
from drumbeat import AgentError
from drumbeat.testing import ScriptedAgent

GOOD = '''jobs/shelf-look.md
---
cron: "0 7 * * MON"
---

Look at the shelf \\x1b[2J.
'''
agent = ScriptedAgent({"ask": "All \\x1b[2J is well.\\nBye.", "draft": GOOD})
wrong = ScriptedAgent({"ask": AgentError("out of money", code="quota"), "draft": "no"})
"""
GREETING = """\
---
automation:
  name: Greeting
  trigger: {type: manual}
  notify: always
  steps:
    - id: greet
      prompt: Say hello.
---
"""
GOOD = ("--agent", "cli_asking_host:agent")
WRONG = ("--agent", "cli_asking_host:wrong")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "cli_asking_host.py").write_text(HOST, encoding="utf-8")
    (tmp_path / "automations").mkdir()
    (tmp_path / "automations" / "greeting.md").write_text(GREETING, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("cli_asking_host", None)


def call(*args: object) -> Result:
    result = CliRunner().invoke(drumbeat, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def fires() -> list[Fire]:
    async def read() -> list[Fire]:
        async with Client(".") as client:
            return await client.fires()

    return anyio.run(read)


# ---- ask


@pytest.mark.slow
def test_ask_prints_the_answer_and_nothing_else() -> None:
    """Harmlessly, and leaves no run."""
    result = call("ask", "What ran?", *GOOD)
    assert (result.exit_code, result.stdout) == (0, "All \\x1b[2J is well.\nBye.\n")
    assert fires() == []


def test_ask_takes_a_profile(workspace: Path) -> None:
    """One that is not there is wrong usage."""
    config = workspace / "agent-config.yaml"
    config.write_text("profiles:\n  deep:\n    debug: {level: high}\n", encoding="utf-8")
    assert call("ask", "What ran?", "--profile", "deep", *GOOD).exit_code == 0
    result = call("ask", "What ran?", "--profile", "depe", *GOOD)
    assert result.exit_code == 2
    assert "profile-unknown" in result.stderr


def test_an_agent_that_does_not_answer_is_a_failure() -> None:
    result = call("ask", "What ran?", *WRONG)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "out of money [quota]"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["ask", "create-job"])
def test_what_cannot_be_asked_is_wrong_usage(command: str) -> None:
    blank = call(command, " ", *GOOD)
    assert (blank.exit_code, "blank" in blank.stderr) == (2, True)
    assert call(command, "What ran?").exit_code == 2
    assert call(command, "What ran?", "--agent", "cli_asking_host:none").exit_code == 2


@pytest.mark.slow
def test_a_folder_that_another_engine_holds_is_named(workspace: Path) -> None:
    async def hold() -> Result:
        async with Engine(workspace, agent=ScriptedAgent(), timezone="UTC"):
            return await anyio.to_thread.run_sync(lambda: call("ask", "What ran?", *GOOD))

    result = anyio.run(hold)
    assert result.exit_code == 1
    assert "process" in result.stderr


# ---- create-job


def test_create_job_writes_the_file_and_shows_it(workspace: Path) -> None:
    result = call("create-job", "look at the shelf on Mondays", *GOOD)
    path = workspace / "jobs" / "shelf-look.md"
    assert result.exit_code == 0
    assert "Look at the shelf \\x1b[2J." in result.stdout
    assert result.stdout.splitlines()[-1] == f"wrote {path}"
    assert "\x1b[2J" in path.read_text()


def test_create_job_can_be_tried_out(workspace: Path) -> None:
    result = call("create-job", "look at the shelf on Mondays", "--dry-run", *GOOD)
    assert result.exit_code == 0
    assert 'cron: "0 7 * * MON"' in result.stdout
    assert result.stdout.splitlines()[-1].startswith("would be ")
    assert not (workspace / "jobs").exists()


def test_create_job_shows_what_is_wrong_with_the_last_answer(workspace: Path) -> None:
    result = call("create-job", "look at the shelf on Mondays", *WRONG)
    assert result.exit_code == 1
    assert result.stdout.startswith("no\n")
    assert "draft-unreadable" in result.stdout
    assert "nothing was written" in result.stderr
    assert not (workspace / "jobs").exists()


# ---- run --in


def test_a_run_can_be_left_to_whatever_engine_is_there_then() -> None:
    """It needs no agent, and says when no engine is there at present."""
    result = call("run", "greeting", "--in", "7200", "--timezone", "Asia/Kathmandu")
    (fire,) = fires()
    assert result.exit_code == 0, result.output
    assert (fire.cause, fire.slug, fire.verdict) == ("manual", "greeting", None)
    assert fire.due - fire.created_at == timedelta(hours=2)
    assert result.stdout.startswith("greeting is due ")
    assert "+0545" in result.stdout
    assert fire.id in result.stdout
    assert "no engine holds the data folder" in result.stderr


def test_a_run_that_is_left_to_an_engine_which_drains_waits_for_the_next_one(
    workspace: Path,
) -> None:
    call("run", "greeting", "--in", "7200")  # makes the store
    data = workspace / ".drumbeat"
    lock = EngineLock(data)
    holder = anyio.run(partial(lock.acquire, since="noon"))
    try:
        write_sign(
            data, SignOfLife(holder=holder, at=datetime(2026, 3, 2, tzinfo=UTC), draining=True)
        )
        result = call("run", "greeting", "--in", "0")
        told = call("status")
    finally:
        anyio.run(lock.release)
    assert "it runs after the next start" in result.stderr
    assert f"draining: {holder}" in told.stdout


@pytest.mark.slow
def test_beside_an_engine_it_is_taken_up(workspace: Path) -> None:
    async def beside() -> tuple[Result, Any]:
        async with Engine(workspace, agent=ScriptedAgent(), timezone="Asia/Kathmandu") as engine:
            result = await anyio.to_thread.run_sync(lambda: call("run", "greeting", "--in", "0"))
            with anyio.fail_after(30):
                async for event in engine.events():
                    if event.kind == "run_completed":
                        break
            return result, await engine.runs()

    result, runs = anyio.run(beside)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "+0545" in result.stdout.splitlines()[0]  # as the engine's wall clock has it
    assert [run.slug for run in runs] == ["greeting"]


def test_a_zone_that_is_unknown_puts_nothing_in() -> None:
    result = call("run", "greeting", "--in", "0", "--timezone", "Mars/Base")
    assert result.exit_code == 1
    assert "zone-unknown" in result.stderr
    assert fires() == []


def test_what_a_later_run_has_no_use_for_is_named() -> None:
    """What to leave out, and not only that it does not go together."""
    result = call("run", "greeting", "--in", "1", *GOOD, "--mail", "cli_asking_host:agent")
    assert result.exit_code == 2
    assert "leave out --agent and --mail: --in leaves" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("greeting", "--in", "-1"),
        ("greeting", "--in", "nan"),
        ("greeting", "--in", "1e300"),
        ("greeting", "--in", "1e12"),
        ("greeting", "--in", "soon"),
        ("greting", "--in", "1"),
        ("greeting", "--in", "1", *GOOD),
        ("greeting", "--in", "1", "--deliverer", "cli_asking_host:agent"),
        ("greeting",),
    ],
)
def test_what_nobody_can_run_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    """And nothing is put in."""
    assert call("run", *arguments).exit_code == 2
    assert fires() == []


# ---- status


def test_status_lists_the_follow_ups_that_wait(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When each is due, and how its prompt begins: on one line, and without a secret."""
    monkeypatch.setenv("AGENT_API_SECRET", "s3cret-value")

    async def say(turn: Turn) -> str:
        for prompt in ("Look\nagain with s3cret-value.", "Later " * 50):
            await turn.follow_ups.schedule(prompt, after=timedelta(hours=2))
        return "done"

    async def live() -> None:
        agent = ScriptedAgent(default=say)
        async with Engine(workspace, agent=agent, timezone="UTC") as engine:
            await engine.run("greeting")

    anyio.run(live)
    output = call("status").output
    assert re.search(r"^  follow-ups +2$", output, re.MULTILINE)
    lines = [line for line in output.splitlines() if "follow-up follow-up-" in line]
    assert len(lines) == 2
    assert "number 1 of its chain: Look again with [redacted AGENT_API_SECRET]." in output
    assert max(map(len, lines)) < 220
    assert "s3cret-value" not in output
