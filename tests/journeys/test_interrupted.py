"""Ctrl-C that meets the code of a host's agent or deliverer ends the host, and loses nothing."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HOST = """
import sys
import anyio
from drumbeat import Engine, Reply

class Both:
    async def take_turn(self, turn):
        if sys.argv[3] == "turn":
            raise KeyboardInterrupt
        return Reply(text="done")

    async def deliver(self, intent):
        if sys.argv[3] == "deliver":
            raise KeyboardInterrupt

async def main():
    async with Engine(sys.argv[2], agent=Both(), deliverer=Both(), timezone="UTC") as engine:
        await engine.run("check")
        await engine.settled()
        await engine.drain("nothing stopped it")

try:
    anyio.run(main, backend=sys.argv[1])
except* KeyboardInterrupt:  # trio has it in a group
    print("interrupted")
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("where", ["turn", "deliver"])
def test_an_interrupt_in_a_hosts_own_code_ends_the_host(
    workspace: Path, write: Callable[..., None], backend: str, where: str
) -> None:
    """It is neither a failed turn nor a failed delivery: the next start makes up for both."""
    write("check")
    ended = subprocess.run(
        [sys.executable, "-c", HOST, backend, str(workspace), where],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.stdout.splitlines()[-1] == "interrupted", ended.stderr
    with closing(sqlite3.connect(workspace / ".drumbeat" / "drumbeat.db")) as db, db:
        kinds = {kind for (kind,) in db.execute("SELECT record ->> '$.kind' FROM events")}
        states = [state for (state,) in db.execute("SELECT state FROM runs")]
    assert "run_started" in kinds
    assert not kinds & {"automation_error", "delivery_failed"}
    assert states in ([["running"], ["interrupted"]] if where == "turn" else [["succeeded"]])
