"""The commands that watch and steer what an engine does: status, events, sessions, doctor."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

import anyio
from click.testing import CliRunner, Result

from drumbeat import (
    AgentError,
    Client,
    DeliveryRefused,
    Engine,
    MailBatch,
    MailError,
    Pin,
    Problem,
    SessionPins,
    Settings,
    SystemClock,
)
from drumbeat.cli.commands import drumbeat
from drumbeat.cli.examined import Examined, alone
from drumbeat.runtime.conclusion import unfinished
from drumbeat.runtime.store import SqliteStore
from drumbeat.runtime.store_schema import SCHEMA_VERSION
from drumbeat.testing import ManualClock, ScriptedAgent, ScriptedMailbox, drive

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
HOURLY = GREETING.replace("{type: manual}", "{type: schedule, expression: every 60 minutes}")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def workspace(here: Path) -> Path:
    path = here / "automations" / "greeting.md"
    path.parent.mkdir()
    path.write_text(GREETING, encoding="utf-8")
    return here


def call(*args: object) -> Result:
    result = CliRunner().invoke(drumbeat, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def lived(workspace: Path, slug: str = "greeting", **options: Any) -> None:
    """Let an engine run one automation and end."""

    async def live() -> None:
        async with Engine(workspace, agent=ScriptedAgent(), timezone="UTC", **options) as engine:
            await engine.run(slug)
            await engine.settled()

    anyio.run(live)


# ---- status


def test_status_of_a_folder_that_no_engine_ever_had(workspace: Path) -> None:
    result = call("status")
    assert result.exit_code == 0
    assert "stopped" in result.output
    assert "1 enabled, 0 disabled, 0 broken" in result.output
    assert not (workspace / ".drumbeat").exists()


def test_status_shows_times_by_the_clock_of_the_engine(workspace: Path) -> None:
    """As `upcoming` and `runs` do: the caller may sit elsewhere."""

    async def live() -> None:
        async with Engine(workspace, agent=ScriptedAgent(), timezone="Asia/Tokyo") as engine:
            await engine.run("greeting")
            await engine.fire("greeting", after=timedelta(hours=2))

    anyio.run(live)
    output = call("status").output
    (row,) = [line for line in output.splitlines() if "later" in line]
    assert "+0900" in row
    assert "Asia/Tokyo" in output
    (row,) = [line for line in call("sessions").output.splitlines() if "greeting" in line]
    assert "+0900" in row
    assert all("+09:00 " in line for line in call("events").output.splitlines())
    assert '+00:00"' in call("events", "--json").output
    assert "+09:00 has not run yet" in " ".join(call("why", "greeting").output.split())


def test_status_shows_what_runs_waits_and_is_paused(workspace: Path) -> None:
    """A run that was going, one that is due later, and the reason of a pause."""

    async def begin() -> None:
        now = SystemClock().now()
        async with Client(workspace) as client:
            await client.fire("greeting")
            await client.fire("greeting", after=timedelta(hours=2))
        store = SqliteStore(workspace / ".drumbeat" / "drumbeat.db")
        await store.open(holder=None, lease=timedelta(hours=1))
        claim = await store.claim_fire(now=now + timedelta(seconds=5), run_id="20260302T1-ab")
        assert claim is not None
        assert claim.fire is not None
        await store.record(claim=claim, run=unfinished(claim, claim.fire, at=now))
        await store.close()

    anyio.run(begin)
    assert call("pause", "greeting", "--reason", "holiday").output == "greeting is paused\n"
    output = call("status").output
    assert "cut off" in output
    assert "later" in output
    assert "paused" in output
    assert "holiday" in output
    assert call("cancel", "20260302T1-ab", "--reason", "no").exit_code == 0
    assert call("resume", "greeting").output == "greeting goes on\n"
    assert "holiday" not in call("status").output


def test_upcoming_says_what_is_paused(workspace: Path) -> None:
    (workspace / "automations" / "greeting.md").write_text(HOURLY, encoding="utf-8")
    call("pause", "greeting", "--reason", "holiday")
    assert "paused" in call("upcoming").output


# ---- asking


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["runs"],
        ["upcoming"],
        ["events"],
        ["sessions"],
        ["why", "greeting"],
        ["resume", "greeting"],
        ["cancel", "x", "--reason", "y"],
        ["run", "greeting", "--in", "5"],
    ],
)
def test_a_folder_that_cannot_be_meant_is_wrong_usage(workspace: Path, command: list[str]) -> None:
    lived(workspace)
    mistyped = call(*command, "--data-dir", "nowhere")
    assert mistyped.exit_code == 2
    assert "there is no folder nowhere" in mistyped.output
    assert not (workspace / "nowhere").exists()
    (workspace / "empty").mkdir()
    elsewhere = call(*command, "--workspace", "empty")
    assert elsewhere.exit_code == 2
    assert "is no workspace" in " ".join(elsewhere.output.split())


def test_status_names_what_is_broken_and_what_never_comes(workspace: Path) -> None:
    never = HOURLY.replace("every 60 minutes", "now and then")
    (workspace / "automations" / "never.md").write_text(never, encoding="utf-8")
    (workspace / "automations" / "torn.md").write_text("x", encoding="utf-8")
    shown = " ".join(call("status").output.split())
    assert "1 enabled, 0 disabled, 1 broken, 1 never due" in shown
    assert "torn broken automations/torn.md: " in shown
    assert "never never due its schedule cannot be read" in shown
    unknown = call("pause", "other", "--reason", "x")
    assert "the workspace has: greeting, never, torn" in unknown.output


def test_what_is_over_or_was_not_paused_is_said_to_be(workspace: Path) -> None:
    lived(workspace)
    assert "no conversation is pinned" not in call("rotate", "greeting", "--reason", "x").output
    (workspace / ".drumbeat" / "session_pins.json").unlink()
    assert "no conversation is pinned" in call("rotate", "greeting", "--reason", "x").output
    assert "greeting was not paused" in call("resume", "greeting").output
    call("pause", "greeting", "--reason", "x")
    assert "greeting goes on" in call("resume", "greeting").output
    with closing(sqlite3.connect(workspace / ".drumbeat" / "drumbeat.db")) as db, db:
        (run_id,) = db.execute("select run_id from runs").fetchone()
        db.execute(
            "update runs set state = 'cancelled', record = json_set(record, '$.state', 'cancelled')"
        )
    cancelled = call("cancel", run_id, "--reason", "x")
    assert cancelled.exit_code == 0
    assert f"{run_id} is over: it was cancelled" in cancelled.output


def test_what_is_unknown_is_wrong_usage(workspace: Path) -> None:
    for words in (
        ("pause", "chek", "--reason", "x"),
        ("rotate", "chek", "--reason", "x"),
        ("cancel", "no-run", "--reason", "x"),
        ("resume", "chek"),
        ("rotate", "greeting"),
    ):
        assert call(*words).exit_code == 2
    result = call("rotate", "greeting", "--reason", " ")
    assert result.exit_code == 1
    assert "reason-missing" in result.output


def test_a_rotation_that_was_asked_for_is_done_at_the_next_start(workspace: Path) -> None:
    lived(workspace)
    assert "greeting" in call("sessions").output
    assert call("rotate", "greeting", "--reason", "stale").output == "asked to rotate greeting\n"
    lived(workspace)
    events = [json.loads(line) for line in call("events", "--json").output.splitlines()]
    (rotated,) = [event for event in events if event["kind"] == "session_rotated"]
    assert rotated["data"]["reason"] == "operator"
    assert rotated["data"]["note"] == "stale"


# ---- sessions and events


def test_sessions_marks_orphans(workspace: Path) -> None:
    assert call("sessions").output == "No conversation is pinned.\n"
    lived(workspace)
    assert "orphan" not in call("sessions").output
    (workspace / "automations" / "greeting.md").unlink()
    assert "orphan" in call("sessions").output


def test_events_as_text_and_from_an_id(workspace: Path) -> None:
    assert call("events").output == ""
    lived(workspace)
    lines = call("events").output.splitlines()
    kinds = [line.split()[2] for line in lines]
    assert kinds[:2] == ["engine_started", "fire_added"]
    assert "run_completed" in kinds
    assert 'state="succeeded"' in lines[kinds.index("run_completed")]
    assert call("events", "--after", "2").output.splitlines() == lines[2:]


def test_events_that_are_not_kept_are_said_to_be_gone(workspace: Path) -> None:
    """Without an id the output begins with the first event that is kept."""
    start = datetime(2026, 3, 2, 12, tzinfo=UTC)
    clock, day = ManualClock(start), timedelta(days=1)

    async def live() -> None:
        settings = Settings(keep_events=day)
        async with Engine(
            workspace, agent=ScriptedAgent(), timezone="UTC", clock=clock, settings=settings
        ) as engine:
            await engine.run("greeting")
            await drive(engine, until=start + 3 * day)
            await engine.run("greeting")

    anyio.run(live)
    lines = call("events", "--json").output.splitlines()
    assert json.loads(lines[0])["kind"] == "fire_added"
    assert json.loads(lines[0])["id"] > 1
    gone = call("events", "--after", "1")
    assert gone.exit_code == 1
    assert "events-expired" in gone.output


@pytest.mark.slow
def test_events_are_followed_until_they_are_interrupted(workspace: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "drumbeat.cli", "events", "--follow", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=workspace,
    )
    try:
        lived(workspace)
        assert child.stdout is not None
        seen = [json.loads(child.stdout.readline())["kind"] for _ in range(3)]
        assert seen[:2] == ["engine_started", "fire_added"]
        assert child.poll() is None
        import signal

        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        assert child.returncode == 0
    finally:
        child.kill()
        child.communicate()


# ---- doctor


def test_doctor_says_what_is_wrong_with_the_configuration_once(workspace: Path) -> None:
    (workspace / "agent-config.yaml").write_text("nonsense: 1\n", encoding="utf-8")
    result = call("doctor", "--workspace", workspace)
    assert result.output.count("[unknown-key]") == 1


def test_a_doctor_finds_a_good_workspace_well(workspace: Path) -> None:
    result = call("doctor")
    assert result.exit_code == 0
    assert "none yet" in result.output
    assert not (workspace / ".drumbeat").exists()
    lived(workspace)
    result = call("doctor")
    assert result.exit_code == 0, result.output
    assert "FAIL" not in result.output
    assert f"schema {SCHEMA_VERSION}" in result.output
    assert "ok   sessions: 1 conversation" in result.output


def test_a_doctor_names_what_is_wrong_with_policy(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "automations" / "broken.md").write_text("x", encoding="utf-8")
    (workspace / "automations" / "odd.md").write_text(
        HOURLY.replace("every 60 minutes", "now and then"), encoding="utf-8"
    )
    (workspace / "agent-config.yaml").write_text("default: [", encoding="utf-8")
    monkeypatch.setenv("MAX_CONCURRENT_RUNS", "many")
    monkeypatch.setenv("TIMEZONE", "Mars/Olympus")
    result = call("doctor")
    assert result.exit_code == 1
    for code in (
        "front-matter-missing",
        "schedule-unknown-form",
        "setting-invalid",
        "zone-unknown",
        "yaml-syntax",
    ):
        assert f"[{code}]" in result.output


def test_a_doctor_names_a_slip_in_the_zone_of_the_system(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves each schedule of automation files to UTC."""
    monkeypatch.setenv("TZ", "Europe/Berln")
    result = call("doctor")
    assert result.exit_code == 1
    assert "FAIL zones: automation UTC (default, because $TZ names no zone)" in result.output
    assert "[zone-unknown]" in result.output
    assert "did you mean `Europe/Berlin`?" in result.output
    assert "\\n" not in result.output
    assert result.stderr == ""
    lived(workspace)  # under an engine whose zone the host gave, it moves none
    result = call("doctor")
    assert "ok   zones: " in result.output


def test_a_doctor_names_the_zones_of_the_engine_beside_those_of_its_own_environment(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.delenv("TIMEZONE", raising=False)
    said = "automation Europe/Berlin (system), job UTC (default, because $TIMEZONE is not set)"
    assert f"ok   zones: {said}\n" in call("doctor").output.replace("\n     ", " ")
    lived(workspace)
    (line,) = [
        line for line in call("doctor").output.splitlines() if line.startswith("ok   zones: ")
    ]
    assert line == (
        "ok   zones: automation UTC (timezone), job UTC (timezone) in the engine that last held "
        f"the data folder; by the environment of this command {said}"
    )


def test_damaged_rules_of_jobs_are_named_before_a_job_runs(workspace: Path) -> None:
    """By the doctor, once, and with the whole workspace, as what no job runs with."""
    (workspace / "SYSTEM.md").mkdir()
    for command in ("doctor", "validate"):
        named = ["--workspace", workspace] if command == "doctor" else [workspace]
        result = call(command, *named)
        assert result.exit_code == 1
        assert result.output.count("[system-prompt-unreadable]") == 1
        assert "no regular file" in result.output


def test_a_doctor_says_what_the_clones_of_jobs_lack(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No git is an error; no token is a warning, as public repositories need none."""
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    assert "repositories" not in call("doctor").output
    (workspace / "jobs").mkdir()
    for slug, repo in (("a", "https://github.com/acme/a"), ("b", "https://git.example/b")):
        (workspace / "jobs" / f"{slug}.md").write_text(f"---\nrepo: {repo}\n---\nX\n")
    found = call("doctor")
    assert found.exit_code == 0
    assert "warn repositories: 2 addresses" in found.output
    assert found.output.count("[git-token-missing]") == 1
    assert "https://github.com/acme/a" in found.output
    monkeypatch.setenv("GITHUB_TOKEN", "x")
    assert "ok   repositories: 2 addresses" in call("doctor").output
    monkeypatch.setenv("PATH", str(workspace))
    found = call("doctor")
    assert found.exit_code == 1
    assert "[git-missing]" in found.output


def test_a_doctor_names_damaged_skills(workspace: Path) -> None:
    (workspace / "skills" / "mail").mkdir(parents=True)
    found = call("doctor")
    assert found.exit_code == 1
    assert "FAIL skills" in found.output
    assert "[skill-broken]" in found.output
    assert found.output.count("skills/mail") == 1
    assert "skills/mail: there is no file SKILL.md" in found.output
    (workspace / "skills" / "mail" / "SKILL.md").write_text("Write.\n")
    assert "ok   skills: 1 skill\n" in call("doctor").output


def test_a_doctor_names_secrets_that_doors_lack(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each route by its own variable."""
    for name, auth in (("hub", "github"), ("chat", "slack")):
        path = workspace / "jobs" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"---\nwebhook: {name}\nauth: {auth}\n---\nLook.\n", encoding="utf-8")
    monkeypatch.setenv("AGENT_API_SECRET", "a-secret")
    monkeypatch.delenv("SLACK_SIGNING_SECRET", raising=False)
    result = call("doctor")
    assert "warn webhooks: 2 routes" in result.output
    assert result.output.count("[webhook-secret-missing]") == 1
    assert "SLACK_SIGNING_SECRET is not set, so chat refuses" in " ".join(result.output.split())


def test_a_doctor_bears_a_workspace_that_cannot_be_read(workspace: Path) -> None:
    lived(workspace)
    (workspace / "drumpacks.txt").write_text("nowhere\n", encoding="utf-8")
    result = call("doctor")
    assert result.exit_code == 1
    assert "[pack-missing]" in result.output
    assert "ok   records: runs, fires, clock" in result.output


def test_records_are_shown_and_steered_while_packs_are_broken(workspace: Path) -> None:
    lived(workspace)
    (workspace / "drumpacks.txt").write_text("nowhere\n", encoding="utf-8")
    for command in (["status"], ["runs"], ["upcoming"], ["sessions"]):
        result = call(*command)
        assert result.exit_code == 0
        assert "[pack-missing]" in result.output
    assert "1 enabled, 0 disabled, 0 broken" in call("status").output
    assert "ran" in call("why", "greeting").output
    for command in (["pause", "greeting"], ["rotate", "greeting"]):
        assert call(*command, "--reason", "x").exit_code == 0
    assert call("resume", "greeting").exit_code == 0
    assert call("run", "greeting", "--in", "60").exit_code == 0


def test_what_the_records_know_is_steered_while_the_files_are_away(workspace: Path) -> None:
    lived(workspace)
    (workspace / "automations").rename(workspace / "elsewhere")
    assert "[automations-folder-missing]" in call("status").output
    assert "succeeded" in call("runs", "greeting").output
    sessions = call("sessions").output
    assert "greeting" in sessions
    assert "orphan" not in sessions
    assert "pin-orphan" not in call("doctor").output
    later = call("why", "greeting", "--at", "2999-01-01T00:00Z").output
    assert "its file cannot be seen" in " ".join(later.split())
    assert call("pause", "greeting", "--reason", "x").exit_code == 0
    unknown = call("pause", "other", "--reason", "x")
    assert unknown.exit_code == 1
    assert "[automations-folder-missing]" in unknown.output
    assert "[automations-folder-missing]" in call("upcoming").output


def test_a_doctor_names_what_is_wrong_with_the_data_folder(workspace: Path) -> None:
    lived(workspace)
    data = workspace / ".drumbeat"
    data.chmod(0o755)
    (data / "session_pins.json").write_text("{", encoding="utf-8")
    result = call("doctor")
    assert result.exit_code == 1
    assert "[data-dir-open]" in result.output
    assert "[pins-damaged]" in result.output
    (data / "drumbeat.db").write_bytes(b"x" * 9000)
    result = call("doctor")
    assert "[store-damaged]" in result.output
    assert "sessions" not in result.output


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_doctor_names_a_folder_that_is_closed(workspace: Path) -> None:
    lived(workspace)
    data = workspace / ".drumbeat"
    data.chmod(0o500)
    try:
        assert "[data-dir-unwritable]" in call("doctor").output
    finally:
        data.chmod(0o700)


def test_a_doctor_names_what_is_left_over(workspace: Path) -> None:
    """Pins and memory of nobody, deliveries that hang, fires without an engine, a wrong clock."""
    data = workspace / ".drumbeat"
    ahead = ManualClock(SystemClock().now() + timedelta(days=2))
    behind = ManualClock(SystemClock().now() - timedelta(days=1))

    async def live() -> None:
        pin = Pin(
            session_id="s", fingerprint="f", provider=None, day=ahead.now().date(), at=ahead.now()
        )
        await SessionPins(data).set("gone", pin)
        async with Engine(workspace, agent=ScriptedAgent(), clock=behind, timezone="UTC") as engine:
            await engine.run("greeting")
            lost = await engine.run("greeting")
            store = await engine._writable()
            assert lost.intent is not None
            await store.settle_intent(lost.intent, "abandoned")
            await engine.fire("greeting")
        async with Client(workspace) as client:
            client._clock = behind
            await client.fire("greeting")
            client._clock = ahead
            await client.fire("greeting")

    anyio.run(live)
    (data / "memory" / "automations" / "gone").mkdir(parents=True)
    (data / "memory" / "automations" / "greeting").mkdir(exist_ok=True)
    (data / "memory" / "automations" / "note.txt").write_text("x", encoding="utf-8")
    result = call("doctor")
    assert result.exit_code == 1
    for code in (
        "pin-orphan",
        "memory-orphan",
        "delivery-waiting",
        "delivery-lost",
        "engine-missing",
        "clock-behind",
    ):
        assert f"[{code}]" in result.output, result.output


def test_a_doctor_looks_at_each_area_by_itself(workspace: Path) -> None:
    """A message that is damaged hides neither mail, nor memory, nor sessions."""

    class Refusing:
        async def deliver(self, intent: Any, /) -> None:
            raise DeliveryRefused("no")

    lived(workspace, deliverer=Refusing())
    with closing(sqlite3.connect(workspace / ".drumbeat" / "drumbeat.db")) as db, db:
        assert db.execute("UPDATE intents SET record = '{}'").rowcount == 1
    result = call("doctor")
    assert result.exit_code == 1
    for area in ("deliveries", "records"):
        assert f"{area}: cannot be read" in result.output, result.output
    assert result.output.count("[store-damaged]") == 2
    for area in (
        "engine: none",
        "sessions: 1 conversation",
        "memory: 1 folder",
        "mail: inboxes: 0",
    ):
        assert area in result.output, result.output


def test_what_the_system_lets_nobody_read_is_named_by_its_area(here: Path) -> None:
    async def look() -> Examined:
        (here / "gone").read_bytes()
        raise AssertionError

    found = anyio.run(alone, "memory", look)
    assert (found.name, found.found, found.failed) == ("memory", "cannot be read", True)
    assert found.problems[0].code == "area-unreadable"
    assert str(here / "gone") in found.problems[0].message


def test_a_doctor_reads_the_workspace_once(workspace: Path, looks: list[object]) -> None:
    """So what it says of the doors is of the files that it checked; a client looks for itself.

    Twice: for how things stand, and for what came due while no engine was there.
    """
    assert call("doctor").exit_code == 0
    assert len(looks) == 3


def test_a_doctor_names_messages_that_nobody_delivers(workspace: Path) -> None:
    """One attempt failed, and no engine is there for another."""

    class Refusing:
        async def deliver(self, intent: Any, /) -> None:
            msg = "no"
            raise OSError(msg)

    lived(workspace, deliverer=Refusing())
    result = call("doctor")
    assert "[delivery-waiting]" in result.output
    assert "1 message to deliver, and no engine [engine-missing]" in result.output


@pytest.mark.parametrize(
    "expression, remark",
    [("every 60 minutes", "missed"), ("daily at 07:00", "overdue"), ("30 * * * *", "overdue, +")],
)
def test_what_came_due_without_an_engine_is_named_by_all_that_look(
    workspace: Path, expression: str, remark: str
) -> None:
    """There is no fire of it yet: an engine that is gone cannot have made one."""
    scheduled = GREETING.replace("type: manual", f"type: schedule, expression: {expression}")
    (workspace / "automations" / "greeting.md").write_text(scheduled, encoding="utf-8")
    clock = ManualClock(SystemClock().now() - timedelta(days=2))
    left = clock.now()
    lived(workspace, clock=clock)
    doctor = call("doctor")
    assert doctor.exit_code == 1
    said = " ".join(doctor.output.split())
    assert "1 fire due for more than an hour, and no engine: the first since" in said
    assert "of greeting [engine-missing]" in said
    assert "which no engine has taken up yet" in " ".join(call("why", "greeting").output.split())
    assert f"stopped; last sign of life at {left:%a %Y-%m-%d %H:%M}" in call("status").output
    (first, *_) = [row for row in call("upcoming").output.splitlines() if " greeting " in row]
    assert remark in first

    async def pause() -> None:
        async with Client(workspace) as client:
            await client.pause("greeting", "a holiday")

    anyio.run(pause)
    assert "fire due for more than an hour" not in " ".join(call("doctor").output.split())


@pytest.mark.parametrize("minutes, late", [(5, False), (70, True)])
def test_an_engine_is_missed_after_an_hour_and_not_in_a_deploy(
    workspace: Path, minutes: int, late: bool
) -> None:
    """Of a schedule that comes each minute as well, whose newest moment is never an hour old."""
    for slug, expression in (("often", "* * * * *"), ("at-times", "every 3 minutes")):
        text = GREETING.replace("type: manual", f'type: schedule, expression: "{expression}"')
        (workspace / "automations" / f"{slug}.md").write_text(text, encoding="utf-8")

    async def live() -> None:
        clock = ManualClock(SystemClock().now() - timedelta(minutes=minutes))
        async with Engine(workspace, agent=ScriptedAgent(), timezone="UTC", clock=clock):
            pass

    anyio.run(live)
    result = call("doctor")
    assert result.exit_code == int(late)
    said = " ".join(result.output.split())
    assert ("2 fires due for more than an hour, and no engine" in said) == late


def test_a_doctor_names_a_zone_that_is_not_that_of_the_engine_before(workspace: Path) -> None:
    for zone in ("Europe/Berlin", "Asia/Tokyo", "Europe/Berlin"):

        async def live(zone: str = zone) -> None:
            async with Engine(workspace, agent=ScriptedAgent(), timezone=zone):
                pass

        anyio.run(live)
        result = call("doctor")
        assert result.exit_code == 0
        said = " ".join(result.output.split())
        assert ("[zone-changed]" in said) == (zone == "Asia/Tokyo")
        if zone == "Asia/Tokyo":
            assert "automations keep to the wall clock of Asia/Tokyo (timezone) since" in said
            assert "drumbeat serve --timezone Europe/Berlin" in said


def test_a_zone_that_moved_alone_is_mended_alone(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would rule both kinds of file would move the other one."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")

    async def live() -> None:
        async with Engine(workspace, agent=ScriptedAgent()):
            pass

    monkeypatch.setenv("TIMEZONE", "Europe/Berlin")
    anyio.run(live)
    monkeypatch.delenv("TIMEZONE")
    anyio.run(live)
    said = " ".join(call("doctor").output.split())
    assert "jobs keep to the wall clock of UTC (default, because $TIMEZONE is not set)" in said
    assert "start the engine with Europe/Berlin: TIMEZONE=Europe/Berlin in its environment" in said
    assert said.count("[zone-changed]") == 1


def test_status_names_the_messages_that_wait(workspace: Path) -> None:
    lived(workspace)
    (row,) = [line for line in call("status").output.splitlines() if "attempts: 0" in line]
    assert row.split()[:3] == ["greeting", "to", "deliver"]


def test_status_and_doctor_name_a_folder_that_is_away(workspace: Path) -> None:
    """One that had files as an engine saw it last, also when none runs."""
    (workspace / "jobs").mkdir(exist_ok=True)
    (workspace / "jobs" / "look.md").write_text("---\ncron: never\n---\nLook.\n", encoding="utf-8")
    lived(workspace)
    assert "automations-folder-missing" not in call("doctor").output
    (workspace / "jobs").rename(workspace / "away")
    for command in ("doctor", "status"):
        assert "[automations-folder-missing]" in call(command).output
    assert call("doctor").exit_code == 1


def test_a_doctor_names_a_data_folder_of_another_workspace(workspace: Path) -> None:
    """As long as that one stands: a workspace that was moved with its state is at home."""
    lived(workspace)
    assert "data-dir-elsewhere" not in call("doctor").output
    other = workspace / "other"
    (other / "automations").mkdir(parents=True)
    args = ("--workspace", "other", "--data-dir", ".drumbeat")
    for command in ("doctor", "status"):
        result = call(command, *args)
        assert result.exit_code == 0
        assert "[data-dir-elsewhere]" in result.output
        assert f"served {workspace}," in result.output.replace("\n", "")
    moved = workspace.parent / "moved"
    workspace.rename(moved)
    try:
        assert "elsewhere" not in call("doctor", "--workspace", moved).output
    finally:
        moved.rename(workspace)


def test_a_doctor_tries_the_folder_for_memory(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(workspace)
    monkeypatch.setenv("MEMORY_DIR", "/proc/nowhere/at/all")
    result = call("doctor")
    assert result.exit_code == 1
    assert "[memory-dir-unwritable]" in result.output
    monkeypatch.setenv("MEMORY_DIR", str(workspace / "deep" / "memory"))
    before = sorted(workspace.rglob("*"))
    assert "memory-dir" not in call("doctor").output
    assert sorted(workspace.rglob("*")) == before


def test_a_doctor_beside_an_engine_names_its_holder(workspace: Path) -> None:
    """And the lock of a process that is gone, and what has waited for too long."""
    behind = ManualClock(SystemClock().now() - timedelta(hours=3))

    async def put() -> None:
        async with Client(workspace) as client:
            client._clock = behind
            await client.fire("greeting")

    anyio.run(put)
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import anyio, pathlib, sys\n"
            "from drumbeat.runtime.lock import EngineLock\n"
            "async def main():\n"
            "    lock = EngineLock(pathlib.Path('.drumbeat'))\n"
            "    await lock.acquire(since='noon')\n"
            "    print('held', flush=True)\n"
            "    sys.stdin.read()\n"
            "anyio.run(main)\n",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        result = call("doctor")
        assert f"process {child.pid} on " in result.output
        assert "[fire-overdue]" in result.output
        assert "[lock-stray]" not in result.output
        lock = workspace / ".drumbeat" / "engine.lock"
        text = lock.read_text(encoding="utf-8").replace(f"process {child.pid}", "process 4194000")
        lock.write_text(text, encoding="utf-8")
        assert "[lock-stray]" in call("doctor").output
        lock.write_text(text.replace("process 4194000", "process 1"), encoding="utf-8")
        assert "[lock-stray]" not in call("doctor").output
    finally:
        child.kill()
        child.communicate()


def test_a_doctor_reports_a_run_without_an_intent(workspace: Path) -> None:
    lived(workspace)

    with closing(sqlite3.connect(workspace / ".drumbeat" / "drumbeat.db")) as db, db:
        db.execute("DELETE FROM intents")
    result = call("doctor")
    assert result.exit_code == 1
    assert "[run-without-intent]" in result.output


# ---- mail

DESK = """\
---
inbox: imap:desk@example.org
allowFrom: "@example.com"
---
Answer it.
"""


class Shut(ScriptedMailbox):
    """A mailbox that cannot be reached."""

    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        msg = "connection refused"
        raise OSError(msg)


class Away(Shut):
    """One whose source says so with a code of its own."""

    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        problem = Problem(code="mail-unreachable", message="no route to it", remedy="dial in")
        raise MailError(problem)


def test_status_and_doctor_tell_of_inboxes(workspace: Path) -> None:
    (workspace / "jobs").mkdir()
    (workspace / "jobs" / "desk.md").write_text(DESK, encoding="utf-8")
    output = call("status").output
    assert "imap:desk@example.org, not polled yet" in output
    lived(workspace)
    assert "imap:desk@example.org, no such mail system" in call("status").output
    result = call("doctor")
    assert result.exit_code == 1
    assert "imap:desk@example.org of desk is not polled" in result.output
    assert "[inbox-system-unknown]" in result.output

    async def fail(source: Shut) -> None:
        agent = ScriptedAgent()
        async with Engine(workspace, agent=agent, mail={"imap": source}) as engine:
            async for event in engine.events():
                if event.kind == "mail_poll_failed":
                    break

    anyio.run(fail, Shut())
    assert "cannot be polled: OSError: connection refused" in call("status").output
    result = call("doctor")
    assert result.exit_code == 1
    assert "[mail-poll-failed]" in result.output
    (workspace / ".drumbeat").rename(workspace / "before")
    anyio.run(fail, Away())
    result = call("doctor")
    assert "[mail-unreachable]" in result.output
    assert "[mail-poll-failed]" not in result.output


def test_status_tells_what_a_webhook_left_out(workspace: Path) -> None:
    """So that a slip in a filter can be seen."""
    (workspace / "jobs").mkdir()
    text = '---\nwebhook: door\nfilter: "action==opend"\n---\nLook.\n'
    (workspace / "jobs" / "look.md").write_text(text, encoding="utf-8")

    async def send() -> None:
        async with Client(workspace, secrets={"AGENT_API_SECRET": "of-the-doors"}) as client:
            await client.webhook(
                "door",
                method="POST",
                headers={"Authorization": "Bearer of-the-doors"},
                body=b'{"action": "opened"}',
            )

    anyio.run(send)
    shown = " ".join(call("status").output.split())
    assert "look webhook door; its filter 'action==opend' left out 1 event (at " in shown


def test_status_and_doctor_tell_of_parked_mail(workspace: Path) -> None:
    (workspace / "jobs").mkdir()
    (workspace / "jobs" / "desk.md").write_text(DESK, encoding="utf-8")
    mailbox = ScriptedMailbox()

    async def park() -> None:
        settings = Settings(inbox_poll=timedelta(milliseconds=20), inbox_attempts=1)
        agent = ScriptedAgent(default=AgentError("no"))
        engine = Engine(workspace, agent=agent, mail={"imap": mailbox}, settings=settings)
        async with engine:
            async for event in engine.events():
                if event.kind == "inbox_begun":
                    mailbox.send("ann@example.com", "desk@example.org", "Hello")
                elif event.kind == "mail_parked":
                    break

    anyio.run(park)
    assert "parked lately: 1" in call("status").output
    result = call("doctor")
    assert result.exit_code == 0
    assert "ann@example.com: Hello (id 1)" in result.output
    assert "[mail-parked]" in result.output
