"""What the journeys share: processes that work on a workspace on disk."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

START = datetime(2026, 3, 1, tzinfo=UTC)


class Machine:
    """Starts processes on one workspace, looks at what they leave, and ends all of them."""

    def __init__(self, workspace: Path, backend: str) -> None:
        self.workspace = workspace
        self.deliveries = workspace.parent / "deliveries.jsonl"
        self.backend = backend
        self.children: list[subprocess.Popen[str]] = []

    def start(self, *argv: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def host(self, *actions: str, program: str = "host.py") -> subprocess.Popen[str]:
        path = Path(__file__).with_name(program)
        folders = [str(self.workspace), str(self.deliveries)]
        return self.start(sys.executable, str(path), self.backend, *folders, *actions)

    def live(self, *actions: str, program: str = "host.py") -> None:
        """Let one host live through `actions` to its end."""
        child = self.host(*actions, program=program)
        said, _ = child.communicate(timeout=60)
        assert said.splitlines()[-1] == "done"
        assert child.returncode == 0

    def until(
        self, what: Callable[[], object], *, child: subprocess.Popen[str] | None = None
    ) -> None:
        """Wait for what processes say by files; `child` must not end meanwhile."""
        for _ in range(3000):
            if what():
                return
            assert child is None or child.poll() is None
            time.sleep(0.02)  # noqa: TID251  processes say by files how far they are
        pytest.fail("it never came")

    def kill(self, child: subprocess.Popen[str]) -> None:
        """With no chance to clean up."""
        child.kill()
        child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL

    def turns(self) -> list[dict[str, Any]]:
        return _lines(self.workspace / "model.log")

    def delivered(self) -> list[dict[str, Any]]:
        return _lines(self.deliveries)

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
            hung.unlink()


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.fixture(params=["asyncio", "trio"])
def machine(
    request: pytest.FixtureRequest, workspace: Path, write: Callable[..., None]
) -> Iterator[Machine]:
    """A workspace with one automation, and processes that end with the test."""
    write("check")
    machine = Machine(workspace, request.param)
    yield machine
    for child in machine.children:
        child.kill()
        child.communicate()
    machine.end_models()
