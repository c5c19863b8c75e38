"""Job files through an engine: when they run, where, under which rules (spec, 3.2, 6 and 13)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from drumbeat import Client, Reply, Turn
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

ENV = {"PATH": "/usr/bin:/bin", "TIMEZONE": "America/New_York"}
HOUR = timedelta(hours=1)


def job(host: Any, slug: str = "stock", prompt: str = "Count the stock.\n", **keys: str) -> Path:
    lines = "".join(f"{key}: {value}\n" for key, value in keys.items())
    path: Path = host.file(f"jobs/{slug}.md", f"---\n{lines}---\n{prompt}")
    return path


# ---- when


async def test_a_cron_job_runs_on_the_clock_of_its_own_zone(host: Any) -> None:
    """`$TIMEZONE` rules jobs; the start is 12:00 UTC, 07:00 in New York, before summer time."""
    job(host, cron='"30 8 * * *"')
    async with host.engine(env=ENV, timezone=None) as engine:
        (due,) = await engine.upcoming(until=host.clock.now() + 24 * HOUR)
        runs = await drive(engine, until=host.clock.now() + 24 * HOUR)
    assert due.slot == datetime(2026, 3, 2, 13, 30, tzinfo=UTC)
    assert [(run.slug, run.state, run.fire.cause, run.fire.due) for run in runs] == [
        ("stock", "succeeded", "schedule", due.slot)
    ]
    (turn,) = host.agent.turns
    assert "08:30:00" in turn.context
    assert "America/New_York (UTC-05:00)" in turn.context
    assert [intent.gate for intent in host.deliverer.intents] == ["policy-always"]


async def test_without_timezone_the_clock_of_jobs_is_utc(host: Any) -> None:
    job(host, cron='"30 8 * * *"')
    async with host.engine(timezone=None) as engine:
        (due,) = await engine.upcoming(until=host.clock.now() + 24 * HOUR)
    assert due.slot == datetime(2026, 3, 3, 8, 30, tzinfo=UTC)


@pytest.mark.slow
async def test_a_job_of_two_hours_delays_no_other_and_never_overlaps_itself(host: Any) -> None:
    """It is due again while it runs: that waits, and what comes after it folds into it."""
    job(host, "long", cron='"*/30 * * * *"', timeoutSeconds="10800")
    job(host, "brief", cron='"*/5 * * * *"')
    going: list[str] = []
    most: list[int] = []

    async def work(turn: Turn) -> str:
        assert turn.slug not in going
        going.append(turn.slug)
        most.append(len(going))
        await host.clock.sleep(2 * HOUR if turn.slug == "long" else timedelta(seconds=10))
        going.remove(turn.slug)
        return "done"

    host.agent = ScriptedAgent(default=work)
    start = host.clock.now()
    async with host.engine(env=ENV, timezone=None) as engine:
        await drive(engine, until=start + 5 * HOUR)
        runs = await engine.runs(limit=1000)
        folded = [fire for fire in await engine.fires("long") if fire.verdict == "folded"]
    brief = [run for run in runs if run.slug == "brief"]
    assert len(brief) == 60
    assert all(run.started_at == run.fire.due for run in brief)
    assert [run.started_at - start for run in runs[::-1] if run.slug == "long"] == [
        timedelta(minutes=30) + 2 * number * HOUR for number in range(3)
    ]
    assert len(folded) >= 4
    assert max(most) == 2


async def test_an_edit_of_the_schedule_is_followed_at_the_next_reload(host: Any) -> None:
    job(host, cron='"0 18 * * *"')
    async with host.engine() as engine:
        job(host, cron='"0 14 * * *"')
        await engine.reload()
        runs = await drive(engine, until=host.clock.now() + 4 * HOUR)
    assert [run.fire.due.hour for run in runs] == [14]


async def test_a_disabled_job_runs_by_hand_and_not_by_itself(host: Any) -> None:
    job(host, cron='"0 * * * *"', disabled="true")
    async with host.engine() as engine:
        assert await drive(engine, until=host.clock.now() + 3 * HOUR) == []
        run = await engine.run("stock")
    assert (run.state, run.fire.cause) == ("succeeded", "manual")


async def test_a_job_that_nothing_starts_waits_for_a_person(host: Any) -> None:
    job(host)
    async with host.engine() as engine:
        assert await drive(engine, until=host.clock.now() + 48 * HOUR) == []
        run = await engine.run("stock")
    assert run.state == "succeeded"


async def test_a_job_with_a_wrong_address_is_listed_as_broken_and_stops_nobody(host: Any) -> None:
    job(host, "clone", repo="example.org/a.git", cron='"0 * * * *"')
    job(host)
    async with host.engine() as engine:
        problems = (await engine.status()).workspace.problems
        assert {str(path): [each.code for each in found] for path, found in problems.items()} == {
            "jobs/clone.md": ["repo-invalid"],
        }
        assert (await engine.run("stock")).state == "succeeded"
        refused = await engine.run("clone")
        assert await drive(engine, until=host.clock.now() + 3 * HOUR) == []
    assert (refused.state, refused.failure.code) == ("aborted", "automation-broken")


async def test_one_slug_in_both_folders_runs_neither(host: Any) -> None:
    """What comes due is aborted and said, with both files named; no turn is spent."""
    host.write("stock")
    job(host, cron='"0 * * * *"')
    async with host.engine() as engine:
        by_hand = await engine.run("stock")
        runs = await drive(engine, until=host.clock.now() + 2 * HOUR)
    assert {run.state for run in (by_hand, *runs)} == {"aborted"}
    assert by_hand.failure.code == "automation-broken"
    assert "automations/stock.md" in by_hand.failure.message
    assert "jobs/stock.md" in by_hand.failure.message
    assert host.agent.turns == []


# ---- what it is given


async def test_the_prompt_is_the_text_below_the_front_matter_read_at_each_run(host: Any) -> None:
    job(host, prompt="\n  Count.  \n\nTwice.\n")
    async with host.engine() as engine:
        await engine.run("stock")
        job(host, prompt="Count once.")
        await engine.run("stock")
    first, second = host.agent.turns
    assert (first.prompt, second.prompt) == ("\n  Count.  \n\nTwice.\n", "Count once.")
    assert (first.origin, first.step_id) == ("step", "prompt")
    assert first.session_id != second.session_id
    assert first.is_new
    assert second.is_new


async def test_the_agent_works_in_the_run_s_own_folder_and_is_told_of_the_workspace(
    host: Any,
) -> None:
    job(host)
    (host.workspace / "systems").mkdir()
    (host.workspace / "worlds").mkdir()
    seen: list[bool] = []

    class Agent:
        async def take_turn(self, turn: Turn, /) -> Reply:
            seen.append(await anyio.Path(turn.cwd).is_dir())
            self.turn = turn
            return Reply(text="done")

    agent = Agent()
    async with host.engine(agent=agent) as engine:
        run = await engine.run("stock")
    turn = agent.turn
    assert seen == [True]
    assert turn.cwd == host.folder(run) / "work"
    assert turn.env["DRUMBEAT_WORKSPACE"] == str(host.workspace)
    assert f"- systems: {host.workspace / 'systems'}\n" in turn.context
    assert f"- worlds: {host.workspace / 'worlds'}\n" in turn.context


async def test_folders_that_are_not_there_are_not_told_of_and_automation_files_have_none(
    host: Any,
) -> None:
    host.write()
    (host.workspace / "systems").mkdir()
    (host.workspace / "worlds").touch()
    job(host)
    async with host.engine() as engine:
        await engine.run("check")
        await engine.run("stock")
    check, stock = host.agent.turns
    assert "- systems:" not in check.context
    assert "- systems:" in stock.context
    assert "- worlds:" not in stock.context
    assert check.cwd == host.workspace


async def test_a_job_has_a_memory_folder_that_outlives_its_runs(host: Any, tmp_path: Path) -> None:
    job(host)
    async with host.engine() as engine:
        await engine.run("stock")
        await engine.run("stock")
    folders = {turn.memory_dir for turn in host.agent.turns}
    assert folders == {host.data / "memory" / "jobs" / "stock"}
    assert all(folder.is_dir() for folder in folders)
    moved = tmp_path / "notes"
    async with host.engine(env={**ENV, "MEMORY_DIR": str(moved)}) as engine:
        await engine.run("stock")
    last = host.agent.turns[-1]
    assert last.memory_dir == moved / "jobs" / "stock"
    assert last.env["MEMORY_DIR"] == str(last.memory_dir)
    assert last.memory_dir.is_dir()


async def test_the_model_of_a_job_lies_over_the_workspace_s_default(host: Any) -> None:
    host.file("agent-config.yaml", "default:\n  provider:\n    config:\n      default_model: a\n")
    job(host, model="b")
    async with host.engine() as engine:
        await engine.run("stock")
    assert host.agent.turns[0].config == {"provider": {"config": {"default_model": "b"}}}


async def test_a_job_ends_when_its_own_time_is_up(host: Any) -> None:
    job(host, timeoutSeconds="90")

    class Slow:
        async def take_turn(self, turn: Turn, /) -> Reply:
            await host.clock.sleep(timedelta(days=1))
            return Reply(text="late")

    async with host.engine(agent=Slow()) as engine:
        run = await host.fire(engine, "stock")
    assert (run.state, run.failure.code) == ("failed", "run-timeout")
    assert run.finished_at - run.started_at == timedelta(seconds=90)


async def test_a_job_asks_for_a_later_run_of_itself(host: Any) -> None:
    """The text it wrote is the whole prompt, and the place and the memory are a job's."""
    job(host)

    class Agent:
        turns: list[Turn]

        def __init__(self) -> None:
            self.turns = []

        async def take_turn(self, turn: Turn, /) -> Reply:
            self.turns.append(turn)
            if len(self.turns) == 1:
                await turn.follow_ups.schedule("Look again.", after=HOUR)
            return Reply(text="done")

    agent = Agent()
    async with host.engine(agent=agent) as engine:
        await engine.run("stock")
        runs = await drive(engine, until=host.clock.now() + 2 * HOUR)
    (run,) = [run for run in runs if run.fire.cause == "follow-up"]
    first, second = agent.turns
    assert (second.prompt, second.origin, run.state) == ("Look again.", "follow-up", "succeeded")
    assert second.cwd == host.folder(run) / "work"
    assert second.memory_dir == first.memory_dir


async def test_a_work_folder_that_cannot_be_made_aborts_before_any_turn(host: Any) -> None:
    job(host)
    host.file(".drumbeat/runs/stock", "in the way")
    async with host.engine() as engine:
        run = await engine.run("stock")
    assert (run.state, run.failure.code) == ("aborted", "work-folder-unwritable")
    assert host.agent.turns == []


# ---- under which rules


async def test_the_workspace_s_system_prompt_is_that_of_jobs_read_at_each_run(host: Any) -> None:
    host.write()
    job(host)
    async with host.engine() as engine:
        await engine.run("stock")
        host.file("SYSTEM.md", "Never spend money.\n")
        await engine.run("stock")
        host.file("SYSTEM.md", "Ask first.\n")
        await engine.run("stock")
        await engine.run("check")
    prompts = [turn.system_prompt for turn in host.agent.turns]
    assert prompts == [None, "Never spend money.\n", "Ask first.\n", None]


def _blank(path: Path) -> None:
    path.write_text(" \n")


def _not_utf8(path: Path) -> None:
    path.write_bytes(b"a\xff")


def _too_large(path: Path) -> None:
    path.write_bytes("é".encode() * 600_000)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere.md")


@pytest.mark.parametrize(
    "make, words",
    [
        (_blank, "blank"),
        (_not_utf8, "byte 1"),
        (_too_large, "1 MiB"),
        (_dangling, "no file"),
        (Path.mkdir, "no regular file"),
    ],
)
async def test_no_job_runs_without_the_rules_that_stand_there(
    host: Any, make: Any, words: str
) -> None:
    """A damaged `SYSTEM.md` aborts the run; it never counts as none."""
    job(host)
    make(host.workspace / "SYSTEM.md")
    async with host.engine() as engine:
        run = await engine.run("stock")
    assert (run.state, run.failure.code) == ("aborted", "system-prompt-unreadable")
    assert words in run.failure.message
    assert "SYSTEM.md" in run.failure.remedy
    assert host.agent.turns == []


async def test_damaged_rules_are_a_fault_from_the_start_until_they_are_mended(host: Any) -> None:
    """Known before a job aborts, to the engine and to who looks without one; one event of it."""
    job(host)
    _blank(host.workspace / "SYSTEM.md")
    async with host.engine() as engine:
        assert (await engine.health()).faults == ("system-prompt-unreadable",)
        assert (await engine.health()).ok
        (fault,) = (await engine.status()).faults
        await engine.reload()
        (event,) = await host.events(engine, "workspace_error")
        host.file("SYSTEM.md", "Ask first.\n")
        await engine.reload()
        assert (await engine.status()).faults == ()
        (host.workspace / "SYSTEM.md").unlink()
        await engine.reload()
        assert (await engine.status()).faults == ()
        _not_utf8(host.workspace / "SYSTEM.md")
        await engine.reload()
        assert "byte 1" in (await engine.status()).faults[0].message
    assert fault.code == "system-prompt-unreadable"
    assert "blank" in fault.message
    assert event.data["what"] == "system prompt"
    async with Client(host.workspace, data_dir=host.data) as client:
        (fault,) = (await client.status()).faults
    assert fault.code == "system-prompt-unreadable"
