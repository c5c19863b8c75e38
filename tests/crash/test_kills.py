"""Hosts that are killed at every step lose nothing; the long run is `nox -s crash`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

KILLS = Path(__file__).with_name("kills.py")
READ = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import anyio, json
from invariants import violations
print(json.dumps(anyio.run(lambda: violations(Path(sys.argv[2]), over=True))))
"""


def kill(folder: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(KILLS), str(folder), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def left(world: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(KILLS.parent), str(world)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.long
def test_killed_hosts_lose_nothing_that_they_accepted(tmp_path: Path) -> None:
    """Ten kills on each backend, over the steps in an order that the seed gives."""
    for number, backend in enumerate(("asyncio", "trio")):
        counts = kill(tmp_path / backend, "--kills=10", f"--seed={number}", f"--backend={backend}")
        assert counts["violations"] == []
        assert counts["kills"] == 10
        assert counts["acknowledged"] > 0


def test_what_is_lost_is_found(tmp_path: Path) -> None:
    """The reader of what is left sees an event that is gone, and a message that went out twice."""
    assert kill(tmp_path, "--kills=2", "--seed=5", "--keep")["violations"] == []
    world = tmp_path / "world-0"
    assert left(world) == []
    with (world / "told").open("a") as file:
        lost = {"what": "event", "delivery": "x", "fire": "webhook-gone", "status": 202}
        file.write(json.dumps(lost) + "\n")
    assert any("acknowledged and is lost" in each for each in left(world))
    did = (world / "did").read_text().splitlines()
    again = next(line for line in did if '"delivered"' in line)
    with (world / "did").open("a") as file:
        file.write(again + "\n")
    assert any("was handed over in the attempts" in each for each in left(world))
