"""A host that is stopped for a while, as a machine is suspended, goes on as if nothing had been."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

HOST = """
import json, os, sys
from datetime import timedelta
from pathlib import Path
import anyio
from drumbeat import DeliveryIntent, Engine, Reply, Settings, Turn

workspace, name = Path(sys.argv[1]), sys.argv[2]

said = os.open(workspace / f"{name}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def say(**facts):
    os.write(said, json.dumps(facts).encode() + b"\\n")

class Host:
    async def take_turn(self, turn: Turn, /) -> Reply:
        say(turn=turn.prompt, run=turn.run_id)
        await anyio.sleep(0.5)
        return Reply(text="done")

    async def deliver(self, intent: DeliveryIntent, /) -> None:
        say(intent=intent.id, attempt=intent.attempt, verdict=intent.verdict, gate=intent.gate)
        await anyio.sleep(0.05)

async def main():
    host = Host()
    brief = timedelta(seconds=0.2)
    settings = Settings(request_poll=brief, max_sleep=brief)
    async with Engine(
        workspace, agent=host, deliverer=host, timezone="UTC", settings=settings, env={},
        standby=name == "standby",
    ) as engine:
        say(state=(await engine.status()).state)
        if name == "engine":
            await engine.fire("check", slot="ticket-2", after=timedelta(seconds=1))
            await engine.fire("check", slot="ticket-1")
        while not (workspace / "stop").exists():
            await anyio.sleep(0.05)
        await engine.settled() if name == "engine" else None
        if name == "engine":
            say(
                runs=[[run.state, run.fire.slot, run.delivery] for run in await engine.runs()],
                invalid=await engine.sweep(),
            )
        say(state=(await engine.status()).state)

anyio.run(main)
"""
CHECK = """---
automation:
  name: Check
  trigger: {type: manual}
  notify: always
  steps:
    - {id: one, prompt: One.}
    - {id: two, prompt: Two.}
---
"""


def said(workspace: Path, name: str) -> list[dict[str, Any]]:
    path = workspace / f"{name}.said"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(workspace: Path, name: str, key: str) -> None:
    end = time.monotonic() + 30  # noqa: TID251  a child that says nothing has failed
    while not any(key in line for line in said(workspace, name)):
        assert time.monotonic() < end, key  # noqa: TID251
        time.sleep(0.01)  # noqa: TID251


def test_a_host_that_stands_still_loses_nothing_to_a_standby(
    tmp_path: Path,
) -> None:
    """It holds the folder as long as it lives, however long it does not move.

    What is due while it stands still runs once, when it goes on.

    Claims outlive this stop: a lease is a minute at least, and what comes of one that has passed
    is said by `check_store`.
    """
    (tmp_path / "automations").mkdir()
    (tmp_path / "automations" / "check.md").write_text(CHECK)

    def start(name: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", HOST, str(tmp_path), name]
        with (tmp_path / f"{name}.log").open("w") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    engine = start("engine")
    standby = None
    try:
        wait_for(tmp_path, "engine", "turn")
        os.kill(engine.pid, signal.SIGSTOP)
        standby = start("standby")
        wait_for(tmp_path, "standby", "state")
        time.sleep(2.5)  # noqa: TID251  the standby asks for the folder many times
        os.kill(engine.pid, signal.SIGCONT)
        time.sleep(0.3)  # noqa: TID251  what was due meanwhile happens at once
        (tmp_path / "stop").touch()
        assert engine.wait(60) == 0
        assert standby.wait(60) == 0
    finally:
        for process in (engine, standby):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
    heard = said(tmp_path, "engine")
    assert [line["turn"] for line in heard if "turn" in line] == ["One.", "Two."] * 2
    assert [line["attempt"] for line in heard if "attempt" in line] == [1, 1]
    (told,) = [line for line in heard if "runs" in line]
    assert told == {
        "runs": [["succeeded", f"ticket-{number}", "delivered"] for number in (2, 1)],
        "invalid": [],
    }
    waited = said(tmp_path, "standby")
    assert waited[0] == {"state": "standby"}
    assert not any("turn" in line or "attempt" in line for line in waited)
