"""Four processes on one folder: an engine, a standby, a client, the command line; one is killed."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

pytestmark = pytest.mark.slow

HOST = Path(__file__).with_name("host.py")
CLIENT = """
import sys
from pathlib import Path
import anyio
from drumbeat import Client

async def main():
    async with Client(Path(sys.argv[1])) as client:
        for number in range(6):
            await client.fire(f"check-{number % 3}", slot=f"ticket-{number}")
        await client.fire("check-0")
    print("asked", flush=True)

anyio.run(main)
"""
CHECK = """
name: Check
trigger: {type: manual}
notify: always
steps:
  - id: look
    prompt: Look around.
"""


def is_over(process: Path) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Machine:
    """Starts processes on one workspace, and ends all of them."""

    def __init__(self, workspace: Path, backend: str) -> None:
        self.workspace = workspace
        self.deliveries = workspace.parent / "deliveries.jsonl"
        self.backend = backend
        self.children: list[subprocess.Popen[str]] = []

    def start(self, *argv: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def host(self, *actions: str) -> subprocess.Popen[str]:
        return self.start(
            sys.executable,
            str(HOST),
            self.backend,
            str(self.workspace),
            str(self.deliveries),
            *actions,
        )

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "drumbeat.cli", *words, "--workspace", str(self.workspace)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    def until(self, what: Callable[[], object]) -> None:
        for _ in range(600):
            if what():
                return
            time.sleep(0.05)  # noqa: TID251  processes say by files how far they are
        pytest.fail("it never came")

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        database = self.workspace / ".drumbeat" / "drumbeat.db"
        if not database.exists():
            return []
        with closing(sqlite3.connect(database)) as db:
            return db.execute(question).fetchall()

    def end_models(self) -> None:
        hung = self.workspace / "hung"
        if hung.exists():
            for process in hung.read_text(encoding="utf-8").split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)


@pytest.fixture(params=["asyncio", "trio"])
def machine(
    request: pytest.FixtureRequest, workspace: Path, write: Callable[..., None]
) -> Iterator[Machine]:
    for number in range(3):
        write(f"check-{number}", CHECK)
    machine = Machine(workspace, request.param)
    yield machine
    for child in machine.children:
        child.kill()
        child.communicate()
    machine.end_models()


def test_a_standby_takes_over_from_an_engine_that_was_killed(machine: Machine) -> None:
    """Every fire has one verdict and every run one intent; nobody hears a thing twice by id.

    The killed engine's model ends with it.
    """
    hang = machine.workspace / "hang"
    hang.touch()
    engine = machine.host("stay")
    machine.until((machine.workspace / ".drumbeat" / "drumbeat.db").exists)
    machine.until(lambda: "running" in machine.command("status"))
    standby = machine.host("standby", "stay")
    other = machine.host("standby", "stay")
    asking = machine.start(sys.executable, "-c", CLIENT, str(machine.workspace))
    said, _ = asking.communicate(timeout=60)
    assert said == "asked\n"
    assert machine.command("pause", "check-2", "--reason", "holiday") == "check-2 is paused\n"
    machine.until((machine.workspace / "hanging").exists)
    assert machine.command("rotate", "check-1", "--reason", "stale")
    model = Path("/proc", (machine.workspace / "hanging").read_text(encoding="utf-8") or "0")
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=60)
    hang.unlink()

    machine.until(lambda: machine.rows("SELECT 1 FROM events WHERE record LIKE '%took_over%'"))
    machine.until(
        lambda: (
            not machine.rows("SELECT 1 FROM fires WHERE verdict IS NULL")
            and not machine.rows("SELECT 1 FROM intents WHERE sent = 'pending'")
        )
    )
    machine.until(lambda: is_over(model))
    assert standby.poll() is None
    assert other.poll() is None
    assert machine.rows("SELECT verdict, count(*) FROM fires GROUP BY verdict") == [("ran", 7)]
    states = dict(machine.rows("SELECT state, count(*) FROM runs GROUP BY state"))
    assert states.pop("succeeded") >= 6
    assert states.keys() == {"interrupted"}
    assert machine.rows(
        "SELECT count(*) FROM runs r LEFT JOIN intents i ON i.run_id = r.run_id WHERE i.id IS NULL"
    ) == [(0,)]
    ids = [
        json.loads(line)["id"]
        for line in machine.deliveries.read_text(encoding="utf-8").splitlines()
    ]
    assert len(ids) == len(set(ids))
    assert len(machine.rows("SELECT 1 FROM events WHERE record LIKE '%took_over%'")) == 1
    assert "check-2" in machine.command("status")
    machine.command("resume", "check-2")
    assert "warn" not in machine.command("doctor").split("workspace")[0]
