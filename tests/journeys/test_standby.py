"""Four processes on one folder: an engine, a standby, a client, the command line; one is killed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

pytestmark = pytest.mark.slow

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


def is_over(process: Path) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def command(machine: Any, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "drumbeat.cli", *words, "--workspace", str(machine.workspace)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.long
def test_a_standby_takes_over_from_an_engine_that_was_killed(
    machine: Any, write: Callable[..., None]
) -> None:
    """Every fire has one verdict and every run one intent; nobody hears a thing twice by id.

    The killed engine's model ends with it.
    """
    for number in range(3):
        write(f"check-{number}")
    hang = machine.workspace / "hang"
    hang.touch()
    engine = machine.host("stay")
    machine.until((machine.workspace / ".drumbeat" / "drumbeat.db").exists)
    machine.until(lambda: "running" in command(machine, "status"))
    standby = machine.host("standby", "stay")
    other = machine.host("standby", "stay")
    asking = machine.start(sys.executable, "-c", CLIENT, str(machine.workspace))
    said, _ = asking.communicate(timeout=60)
    assert said == "asked\n"
    assert command(machine, "pause", "check-2", "--reason", "holiday") == "check-2 is paused\n"
    machine.until((machine.workspace / "hanging").exists)
    assert command(machine, "rotate", "check-1", "--reason", "stale")
    model = Path("/proc", (machine.workspace / "hanging").read_text(encoding="utf-8") or "0")
    machine.kill(engine)
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
    ids = [line["id"] for line in machine.delivered()]
    assert len(ids) == len(set(ids))
    assert len(machine.rows("SELECT 1 FROM events WHERE record LIKE '%took_over%'")) == 1
    assert "check-2" in command(machine, "status")
    command(machine, "resume", "check-2")
    assert "warn" not in command(machine, "doctor").split("workspace")[0]
