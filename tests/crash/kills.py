"""Kills a host over and over, at every step and at random, and reads what is left each time.

Usage: kills.py FOLDER [--kills 2000] [--seed 1] [--each 40] [--backend asyncio] [--keep]. Every
`--each` kills one host is left alive to bring everything to its end, and another folder is begun.
Prints one JSON object with the counts, and ends with 1 if anything was violated; the folders in
which that was so stay, with `--keep` all of them.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
from invariants import violations
from lives import STEPS, Ledger, lay_out, live

AT_RANDOM = "at random"
RARE = ("take_over", "purge", "poll", "renew", "tidy")
"""Steps that a life reaches seldom."""
_LONGEST = 2.0
"""Real seconds after which a life that did not reach its step is killed from outside."""
_PATIENCE = 250.0
"""Real seconds for the last life of a folder."""


def fork_life(folder: Path, backend: str, **life: Any) -> int:
    """Begin a life in a process of its own: all that it needs is imported already."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        errors = os.open(folder / "errors", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(errors, 1)
        os.dup2(errors, 2)

        async def body() -> None:
            await live(folder, **life)

        anyio.run(body, backend=backend)
        code = 0
    except BaseException:  # noqa: BLE001  the parent reads of it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def end_of(child: int, limit: float) -> tuple[bool, bool]:
    """Wait for a life, and kill it after `limit` real seconds.

    Returns:
        Whether it was killed, and whether that came from inside.
    """
    end = time.monotonic() + limit  # noqa: TID251
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, True
        if time.monotonic() > end:  # noqa: TID251
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True, False
        time.sleep(0.005)  # noqa: TID251


class Worlds:
    """Folders in which hosts live one after another."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.chance = random.Random(asked.seed)
        self.counts: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.targets: list[str] = []
        self.violations: list[str] = []

    def next_step(self) -> str:
        """Each step once, then each again in another order."""
        if not self.targets:
            self.targets = [*STEPS, *[AT_RANDOM] * 6]
            self.chance.shuffle(self.targets)
        return self.targets.pop()

    def live_on(self, folder: Path, kills: int) -> list[str]:
        """Kill `kills` hosts in one folder, let the last one live, and return what was violated."""
        lay_out(folder / "workspace")
        began = time.time()  # noqa: TID251
        wrong: list[str] = []
        for life in range(kills):
            step = self.next_step()
            with (folder / "mail").open("a") as mail:
                mail.writelines(f"mail-{life}-{n}\n" for n in range(self.chance.randrange(3)))
            child = fork_life(
                folder,
                self.asked.backend,
                life=life,
                began=began,
                step=step,
                number=1 if step.startswith(RARE) else self.chance.randint(1, 6),
                seed=self.chance.randrange(1 << 30),
                last=False,
            )
            limit = self.chance.uniform(0.05, 0.5) if step == AT_RANDOM else _LONGEST
            killed, inside = end_of(child, limit)
            self.counts["kills"] += killed
            self.steps[step if inside else AT_RANDOM] += killed
            if not killed:
                wrong.append(f"life {life} ended by itself: {self.errors(folder)}")
            left = anyio.run(lambda: violations(folder, over=False))
            wrong += [f"after life {life} at {step}: {each}" for each in left]
        child = fork_life(
            folder, self.asked.backend, life=-1, began=began, step="", number=0, seed=0, last=True
        )
        end_of(child, _PATIENCE)
        wrong += anyio.run(lambda: violations(folder, over=True))
        if wrong:
            wrong.append(f"what the hosts said last: {self.errors(folder)}")
        did = Ledger.read(folder / "did")
        runs = {line["run"] for line in did if line["what"] == "begin" and line["run"]}
        self.counts["runs"] += len(runs)
        self.counts["acknowledged"] += len(Ledger.read(folder / "told"))
        return wrong

    def errors(self, folder: Path) -> str:
        return (folder / "errors").read_text()[-3000:]

    def go(self) -> None:
        asked = self.asked
        for world, done in enumerate(range(0, asked.kills, asked.each)):
            folder = asked.folder / f"world-{world}"
            wrong = self.live_on(folder, min(asked.each, asked.kills - done))
            self.violations += [f"{folder.name}: {each}" for each in wrong]
            if not wrong and not asked.keep:
                shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--each", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="asyncio", choices=["asyncio", "trio"])
    parser.add_argument("--keep", action="store_true")
    worlds = Worlds(parser.parse_args())
    worlds.go()
    found = {**worlds.counts, "steps": dict(sorted(worlds.steps.items()))}
    sys.stdout.write(json.dumps({**found, "violations": worlds.violations}, indent=1) + "\n")
    return 1 if worlds.violations else 0


if __name__ == "__main__":
    sys.exit(main())
