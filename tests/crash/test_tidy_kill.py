"""A host that is killed while it forgets: what is pending is whole, and nothing is half there."""

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from drumbeat import Client, Engine
from drumbeat.testing import ManualClock, ScriptedAgent

pytestmark = pytest.mark.slow

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
KILLS = (1, 3, 4, 6, 9, 13, 20)
"""How many steps each life takes; together they go from the first folder into the purge."""
FILES = tuple(f"deep/er/{number}.txt" for number in range(5))
AUTOMATION = """---
automation:
  name: {name}
  trigger: {{type: manual}}
  conversation: continuous
  notify: {notify}
  steps:
    - {{id: look, prompt: Look.}}
---
"""
LIFE = """
import json, os, signal, sqlite3, sys
from functools import partial
from pathlib import Path
from datetime import datetime, timedelta

import anyio

from drumbeat import Engine, Settings
from drumbeat.testing import ManualClock, ScriptedAgent

workspace, now, left = Path(sys.argv[1]), datetime.fromisoformat(sys.argv[2]), int(sys.argv[3])
going = False

def step():
    global left
    if going:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def look(event, args):
    # Both before and, by the event of what comes next, after each of them.
    if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
        step()

class Counted(sqlite3.Connection):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.set_trace_callback(lambda said: said.startswith(("DELETE", "COMMIT")) and step())

sqlite3.connect = partial(sqlite3.connect, factory=Counted)
sys.addaudithook(look)

async def main():
    global going
    engine = Engine(
        workspace,
        agent=ScriptedAgent(default="done"),
        timezone="UTC",
        clock=ManualClock(now),
        settings=Settings(keep_artifacts=timedelta(days=2), keep_events=timedelta(days=2),
                          keep_runs=timedelta(days=10)),
        env={},
    )
    async with engine:
        going = True
        # By itself it waits, as this clock has leapt.
        await engine._life.retention.tidy()
        going = False

anyio.run(main)
"""


def life(workspace: Path, now: datetime, steps: int) -> int:
    """Let a host forget in a process of its own, killed at a step; 0 steps let it end."""
    command = [sys.executable, "-c", LIFE, str(workspace), now.isoformat(), str(steps)]
    return subprocess.run(command, check=False, timeout=60).returncode


async def live(workspace: Path) -> dict[str, list[str]]:
    """Run three automations, and leave the intent of one pending and a fire of it open."""
    (workspace / "automations").mkdir(parents=True)
    for slug, notify in (("old", "never"), ("gone", "never"), ("kept", "always")):
        text = AUTOMATION.format(name=slug.title(), notify=notify)
        (workspace / "automations" / f"{slug}.md").write_text(text, encoding="utf-8")
    found: dict[str, list[str]] = {"old": [], "gone": [], "kept": []}
    engine = Engine(
        workspace,
        agent=ScriptedAgent(default="done"),
        timezone="UTC",
        clock=ManualClock(START),
        env={},
    )
    async with engine:
        for slug in ("old", "old", "gone", "kept"):
            run = await engine.run(slug)
            found[slug].append(run.run_id)
            for name in FILES:
                path = workspace / ".drumbeat" / "runs" / slug / run.run_id / "work" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("made", encoding="utf-8")
        await engine.fire("kept", slot="later", after=timedelta(days=900))
    (workspace / "automations" / "gone.md").unlink()
    return found


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


async def recorded(workspace: Path) -> dict[str, Any]:
    async with Client(workspace) as client:
        return {
            "runs": {run.run_id for run in await client.runs()},
            "pending": [intent.run_id for intent in await client.intents("pending")],
            "open": [fire.slot for fire in await client.fires() if fire.verdict is None],
            "invalid": await client.sweep(),
        }


def test_a_host_that_is_killed_while_it_forgets_leaves_nothing_by_half(tmp_path: Path) -> None:
    """Between two files of a folder, between folders and records, and inside the purge."""
    workspace = tmp_path / "workspace"
    run_ids = anyio.run(live, workspace)
    runs = workspace / ".drumbeat" / "runs"
    whole = {run_id: files(runs / slug / run_id) for slug, ids in run_ids.items() for run_id in ids}
    (kept,) = run_ids["kept"]
    now = START + timedelta(days=100)
    met: set[str] = set()
    for steps in (*KILLS, 0):
        ended = life(workspace, now, steps)
        assert ended == (-signal.SIGKILL if steps else 0), steps
        for folder in runs.glob("*/*"):
            if folder.parent.name == ".gone":
                met.add("aside")
            elif folder.name != kept and files(folder) != whole[folder.name]:
                # A run is taken apart in one step, its `work/` before the rest of it in another.
                assert files(folder) == [
                    name for name in whole[folder.name] if not name.startswith("work")
                ]
        assert files(runs / "kept" / kept) == whole[kept]
        left = anyio.run(recorded, workspace)
        assert left["pending"] == [kept]
        assert left["open"] == ["later"]
        assert left["invalid"] == []
        assert left["runs"] in ({kept}, set(whole)), "one transaction took all or none"
        met.add("forgotten" if left["runs"] == {kept} else "remembered")
        with closing(sqlite3.connect(workspace / ".drumbeat" / "drumbeat.db")) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert met == {"aside", "forgotten", "remembered"}
    assert [path.name for path in runs.iterdir() if path.name != "old"] == ["kept"], "no orphans"
    assert files(runs / "old") == []
    assert json.loads((runs / "kept" / kept / "result.json").read_text())["state"] == "succeeded"
