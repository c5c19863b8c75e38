"""A host with a webhook door is killed as it acknowledges events: each runs all the same."""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from drumbeat import Client, Fire, RunRecord

pytestmark = pytest.mark.slow

HOST = Path(__file__).with_name("webhook_host.py")
KILLS = int(os.environ.get("DRUMBEAT_WEBHOOK_KILLS", "20"))
DOORS = 4
BURST = 12


class Machine:
    """Starts hosts on one workspace, sends events to them, and kills them."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.log = folder / "turns.jsonl"
        (self.workspace / "jobs").mkdir(parents=True)
        for number in range(DOORS):
            job = f"---\nwebhook: door-{number}\n---\nLook at it.\n"
            (self.workspace / "jobs" / f"look-{number}.md").write_text(job, encoding="utf-8")
        self.launcher = subprocess.Popen(
            [sys.executable, str(HOST), str(self.workspace), str(self.log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = self.pid = 0

    def start(self) -> None:
        assert self.launcher.stdin is not None
        assert self.launcher.stdout is not None
        self.launcher.stdin.write("start\n")
        self.launcher.stdin.flush()
        words = self.launcher.stdout.readline().split()
        self.port, self.pid = int(words[1]), int(words[3])

    def kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.pid = 0

    def end(self) -> None:
        self.kill()
        self.launcher.communicate(timeout=60)

    def send(self, event: str) -> tuple[int, str]:
        """The status and the fire that the sender is told; 0 when the host died before."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                "POST",
                f"/webhooks/door-{int(event.partition('-')[2]) % DOORS}",
                body=event.encode(),
                headers={
                    "Authorization": "Bearer a-secret-of-the-doors",
                    "Idempotency-Key": event,
                },
            )
            response = connection.getresponse()
            return response.status, json.loads(response.read())["fire"]
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def turns(self) -> list[dict[str, object]]:
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    async def records(self) -> tuple[list[Fire], list[RunRecord]]:
        async with Client(self.workspace) as client:
            return await client.fires(limit=1_000_000), await client.runs(limit=1_000_000)

    async def all_settled(self) -> tuple[list[Fire], list[RunRecord]]:
        with anyio.fail_after(120):
            while True:
                fires, runs = await self.records()
                if all(fire.verdict for fire in fires):
                    return fires, runs
                await anyio.sleep(0.1)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.end()


@pytest.mark.long
def test_what_was_acknowledged_runs_whatever_is_killed(machine: Machine) -> None:
    """None is lost, none runs beyond its second attempt, and that one is told of the first."""
    chance = random.Random(7)
    told: dict[str, str] = {}
    sent: set[str] = set()
    with ThreadPoolExecutor(BURST) as senders:
        for life in range(KILLS):
            machine.start()
            # What was acknowledged before is known again.
            for event in chance.sample(sorted(told), min(2, len(told))):
                assert machine.send(event) == (200, told[event])
            burst = [f"{life}-{number}" for number in range(BURST)]
            sent.update(burst)
            answers = {senders.submit(machine.send, event): event for event in burst}
            wanted = chance.randint(1, BURST)
            killed = False
            while not killed:
                done = sum(answer.done() for answer in answers)
                if done >= wanted:
                    machine.kill()
                    killed = True
                time.sleep(0.0005)  # noqa: TID251  whoever kills looks from outside
            for answer, event in answers.items():
                status, fire = answer.result()
                if status:
                    assert status == 202
                    told[event] = fire
    machine.start()
    fires, runs = anyio.run(machine.all_settled)
    machine.kill()

    assert len(told) >= KILLS
    known = {fire.id: fire for fire in fires}
    assert {event: known[fire].slot for event, fire in told.items()} == {
        event: event for event in told
    }
    assert {fire.slot for fire in fires} <= sent
    assert len({fire.slot for fire in fires}) == len(fires)
    assert {fire.verdict for fire in fires} == {"ran"}

    attempts: dict[str, list[RunRecord]] = defaultdict(list)
    for run in reversed(runs):
        attempts[run.fire.id].append(run)
    assert attempts.keys() == known.keys()
    turns: dict[object, list[object]] = defaultdict(list)
    for turn in machine.turns():
        turns[turn["event"]].append(turn["told"])
    for fire_id, made in attempts.items():
        states = [run.state for run in made]
        assert states in (["succeeded"], ["interrupted", "succeeded"], ["interrupted"] * 2), states
        seen = turns[known[fire_id].slot]
        assert len(seen) <= len(made)
        if states[-1] == "succeeded":
            # The last attempt was told whether there had been another.
            assert seen[-1] is (len(made) == 2)
    again = sum(len(made) == 2 for made in attempts.values())
    print(  # noqa: T201  figures for who runs it by hand
        f"{KILLS} kills, {len(sent)} sent, {len(told)} acknowledged, {len(fires)} fires, "
        f"{again} with a second attempt"
    )


def test_one_delivery_in_three_lives_is_one_run(machine: Machine) -> None:
    """Twice at once, killed when it had run, and sent once more after the restart."""
    machine.start()
    with ThreadPoolExecutor(2) as senders:
        answers = list(senders.map(machine.send, ["0-1", "0-1"]))
    anyio.run(machine.all_settled)
    machine.kill()
    machine.start()
    answers.append(machine.send("0-1"))
    fires, runs = anyio.run(machine.all_settled)
    assert sorted(status for status, _ in answers) == [200, 200, 202]
    assert len({fire for _, fire in answers}) == 1
    assert (len(fires), len(runs), len(machine.turns())) == (1, 1, 1)
