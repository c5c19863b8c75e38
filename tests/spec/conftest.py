"""What the rows of the contract share: a workspace on disk and engines on a driven clock."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Agent, Engine, Event, SqliteStore
from drumbeat.testing import ManualClock, RecordingDeliverer, ScriptedAgent

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
"""A Monday."""


class Host:
    """A workspace, and engines on it one after the other."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.data = workspace / ".drumbeat"
        self.clock = ManualClock(START)
        self.agent: Agent = ScriptedAgent(default="done")
        self.deliverer = RecordingDeliverer()

    def write(self, slug: str = "check", **keys: Any) -> Path:
        """Write an automation file; a key that is given replaces the one of the smallest file."""
        block = {
            "name": slug.title(),
            "trigger": {"type": "manual"},
            "notify": "always",
            "steps": [{"id": "look", "prompt": "Look around."}],
        }
        lines = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in (block | keys).items())
        path = self.workspace / "automations" / f"{slug}.md"
        path.write_text(f"---\nautomation:\n{lines}---\n", encoding="utf-8")
        return path

    def engine(self, **options: Any) -> Engine:
        """An engine on this workspace."""
        return Engine(
            self.workspace,
            agent=self.agent,
            deliverer=self.deliverer,
            timezone="UTC",
            clock=self.clock,
            env=options.pop("env", {"PATH": "/usr/bin:/bin"}),
            **options,
        )

    def store(self) -> SqliteStore:
        """The file of the data folder, for what another process would do with it."""
        return SqliteStore(self.data / "drumbeat.db", clock=self.clock)

    async def events(self, engine: Engine, *kinds: str) -> list[Event]:
        """The events so far of these kinds."""
        return [event async for event in engine.events(follow=False) if event.kind in kinds]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with an empty workspace."""
    workspace = tmp_path / "workspace"
    (workspace / "automations").mkdir(parents=True)
    return Host(workspace)
