"""A state of every schema that there has been is taken up whole, however often that is killed."""

import runpy
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Engine
from drumbeat.runtime.store_schema import SCHEMA_VERSION, prepare
from drumbeat.testing import ManualClock, RecordingDeliverer, ScriptedAgent

STORED = Path(__file__).with_name("stored")
MAKE = runpy.run_path(str(Path(__file__).with_name("make_stored.py")))
START, HOUR = MAKE["START"], MAKE["HOUR"]
VERSIONS = range(1, SCHEMA_VERSION + 1)
TABLES = ("fires", "payloads", "runs", "intents", "events", "marks")
BUSY = timedelta(seconds=5)


def restore(version: int, workspace: Path) -> Path:
    """Make the state of that schema; return its database."""
    MAKE["lay_out"](workspace)
    data = workspace / ".drumbeat"
    data.mkdir(mode=0o700)
    path = data / "drumbeat.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript((STORED / f"schema-{version}.sql").read_text(encoding="utf-8"))
        db.execute("PRAGMA journal_mode = WAL")
    shutil.copy(STORED / f"schema-{version}.pins.json", data / "session_pins.json")
    return path


def rows(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as db:
        return {table: sorted(db.execute(f"SELECT * FROM {table}")) for table in TABLES}


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the disk knows no backend
@pytest.mark.parametrize("version", VERSIONS)
async def test_work_goes_on_where_an_earlier_release_left_it(tmp_path: Path, version: int) -> None:
    """History, pins, pauses, what is put off and what is to be delivered: all of it counts."""
    path = restore(version, tmp_path / "workspace")
    before = rows(path)
    clock = ManualClock(START + 20 * HOUR)
    deliverer = RecordingDeliverer()
    engine = Engine(
        tmp_path / "workspace",
        agent=ScriptedAgent({"poll/judgment": "NOTHING_TO_REPORT"}, default="Looked."),
        deliverer=deliverer,
        timezone="UTC",
        clock=clock,
        env={},
    )
    async with engine:
        known = [(run.run_id, run.state) for run in reversed(await engine.runs())]
        assert known == [(run_id, state) for _, run_id, _, _, state, *_ in before["runs"]]
        assert [state for _, state in known].count("failed") == 1
        pins = await engine.sessions()
        await clock.advance(6 * HOUR)
        assert [intent.slug for intent in deliverer.intents][:1] == ["check"], "it was pending"
        assert {run.slug for run in (await engine.runs())[: -len(known)]} == {"poll"}, "one waits"
        skipped = [fire for fire in await engine.fires(slug="brief") if fire.verdict == "skipped"]
        assert [fire.reason for fire in skipped] == ["paused (holidays)"]
        await clock.advance(120 * HOUR)
        ran = [fire for fire in await engine.fires(slug="check") if fire.verdict == "ran"]
        assert {(fire.cause, fire.prompt) for fire in ran} == {
            ("manual", None),
            ("follow-up", "Look again."),
        }
        assert len(ran) == 3
        assert all(
            run.session_id == pins["check"].session_id for run in await engine.runs(slug="check")
        )
        assert await engine.sweep() == []
        ids = [event.id async for event in engine.events(follow=False)]
        assert ids == list(range(1, len(ids) + 1))
    assert version_of(path) == SCHEMA_VERSION
    backup = path.with_name(f"{path.name}.v{version}.backup")
    assert backup.exists() == (version < SCHEMA_VERSION)
    if version < SCHEMA_VERSION:
        assert version_of(backup) == version
        assert rows(backup) == before


def test_there_is_a_stored_state_of_each_schema() -> None:
    """`make_stored.py` makes it; nothing can make that of a release that is gone."""
    found = sorted(int(path.stem.removeprefix("schema-")) for path in STORED.glob("*.sql"))
    assert found == list(VERSIONS)


@pytest.mark.long
@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_a_kill_at_any_step_of_an_upgrade_or_its_backup_leaves_one_schema_or_the_other(
    tmp_path: Path, version: int
) -> None:
    whole = restore(version, tmp_path / "whole")
    before = rows(whole)
    left = []
    for path in upgraded(whole, tmp_path):
        left.append(version_of(path))
        assert rows(path) == before, path
        prepare(path, busy=BUSY)
        assert version_of(path) == SCHEMA_VERSION
        assert rows(path) == before, path
        backup = path.with_name(f"{path.name}.v{version}.backup")
        assert rows(backup) == before, path
        assert list(path.parent.glob("*.draft*")) == []
    assert set(left) == {version, SCHEMA_VERSION}
    assert len(left) > 25


UPGRADES = """
import os, shutil, signal, sqlite3, sys
from datetime import timedelta
from functools import partial
from pathlib import Path

from drumbeat.runtime.store_schema import prepare

whole, folder = map(Path, sys.argv[1:])
left = 0

def count(_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def look(event, args):
    # What a backup does beside statements: it is made, synced, named and cleared away.
    if event in ("os.rename", "os.remove") or event == "open" and ".draft" in str(args[0]):
        count(event)

def page(status, remaining, total):
    if remaining:
        count("a part of the backup")

class Counted(sqlite3.Connection):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.set_trace_callback(count)

    def backup(self, target):
        super().backup(target, pages=8, progress=page)

sqlite3.connect = partial(sqlite3.connect, factory=Counted)
number, status = 0, None
while status != 0:
    number += 1
    path = folder / f"kill-{number}" / "drumbeat.db"
    path.parent.mkdir()
    shutil.copy(whole, path)
    child = os.fork()
    if not child:
        left = number
        sys.addaudithook(look)
        prepare(path, busy=timedelta(seconds=5))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    print(path)
"""


def upgraded(whole: Path, folder: Path) -> list[Path]:
    """Copies that were upgraded, each in a process that was killed a step later.

    The last is whole. Forked from a process of one thread, which this one need not be.
    """
    done = subprocess.run(
        [sys.executable, "-c", UPGRADES, str(whole), str(folder)],
        check=True,
        timeout=240,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [Path(line) for line in done.stdout.splitlines()]
