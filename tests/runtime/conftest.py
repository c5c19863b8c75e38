"""What the tests of one run share: a host on disk, on a driven clock."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from drumbeat import Agent, Client, Engine, Event, RunRecord, Settings, Turn
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import ManualClock, RecordingDeliverer, ScriptedAgent, drive

START = datetime(2026, 3, 2, 12, tzinfo=UTC)


class FaultyStore(SqliteStore):
    """A real store that fails when it is told to."""

    def __init__(self, path: Path, *, clock: ManualClock) -> None:
        super().__init__(path, clock=clock)
        self.faults: dict[str, list[Exception | None]] = {}
        """By method: what each of the next calls raises, None for a call that passes.

        `record` with a kind of event behind it is a call that brings one of that kind.
        """

    def _fault(self, method: str) -> None:
        fault = self.faults[method].pop(0) if self.faults.get(method) else None
        if fault is not None:
            raise fault

    async def record(self, **given: Any) -> None:
        kinds = {event.kind for event in given.get("events", ())}
        for method in ("record", *(f"record {kind}" for kind in sorted(kinds))):
            self._fault(method)
        await super().record(**given)

    async def add_fires(self, *given: Any, **named: Any) -> Any:
        self._fault("add_fires")
        return await super().add_fires(*given, **named)

    async def take_over(self) -> Any:
        self._fault("take_over")
        return await super().take_over()

    async def finish(self, *given: Any, **named: Any) -> None:
        self._fault("finish")
        await super().finish(*given, **named)

    async def runs(self, **given: Any) -> Any:
        self._fault("runs")
        return await super().runs(**given)

    async def marks(self, prefix: str) -> Any:
        self._fault("marks")
        return await super().marks(prefix)

    async def hold(self, session_id: str, *, run_id: str) -> Any:
        self._fault("hold")
        return await super().hold(session_id, run_id=run_id)


class Host:
    """A workspace, and engines on it."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.clock = ManualClock(START)
        self.agent: Agent = ScriptedAgent(default="done")
        self.deliverer = RecordingDeliverer()
        self.data = workspace / ".drumbeat"

    def write(self, slug: str = "check", **keys: Any) -> None:
        """Write an automation file; `steps` may be the prompts alone."""
        steps = keys.pop("steps", ["Look around."])
        block = {
            "name": slug.title(),
            "trigger": {"type": "manual"},
            "notify": "always",
            "steps": [
                {"id": f"step-{number}", "prompt": step} if isinstance(step, str) else step
                for number, step in enumerate(steps, start=1)
            ],
        }
        lines = "\n".join(f"  {key}: {json.dumps(value)}" for key, value in (block | keys).items())
        self.file(f"automations/{slug}.md", f"---\nautomation:\n{lines}\n---\n")

    def file(self, name: str, text: str) -> Path:
        """Write a file of the workspace."""
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def tool(self, name: str, script: str) -> Path:
        """Write a tool, a shell script, into the workspace's `bin/`."""
        path = self.file(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def engine(self, **options: Any) -> Engine:
        """An engine on this workspace; `settings` may be a mapping."""
        settings = options.pop("settings", {})
        options.setdefault("env", {"PATH": "/usr/bin:/bin"})
        return Engine(
            self.workspace,
            agent=options.pop("agent", self.agent),
            deliverer=options.pop("deliverer", self.deliverer),
            timezone=options.pop("timezone", "UTC"),
            clock=self.clock,
            settings=settings if isinstance(settings, Settings) else Settings(**settings),
            **options,
        )

    def client(self, **options: Any) -> Client:
        """A client that lives at the same time as the engines."""
        made = Client(self.workspace, **options)
        made._clock = self.clock
        return made

    def sleeper(
        self, takes: timedelta, *, stubborn: bool = False, **slugs: timedelta
    ) -> ScriptedAgent:
        """An agent whose turns take some time on the clock, of some slugs another time.

        A stubborn one ignores its cancellation.
        """

        async def think(turn: Turn) -> str:
            with anyio.CancelScope(shield=stubborn):
                await self.clock.sleep(slugs.get(turn.slug, takes))
            return "done"

        return ScriptedAgent(default=think)

    def faulty(self) -> FaultyStore:
        """A store for `engine(store=…)` whose faults can be chosen."""
        return FaultyStore(self.data / "drumbeat.db", clock=self.clock)

    async def fire(
        self, engine: Engine, slug: str = "check", *, within: timedelta = timedelta(hours=3)
    ) -> RunRecord:
        """Run one automation while the clock moves on, and return its record."""
        fire = await engine.fire(slug)
        runs = await drive(engine, until=self.clock.now() + within)
        (run,) = [run for run in runs if run.fire.id == fire.id]
        return run

    async def look(self, times: int = 1) -> None:
        """Let the engine look at the workspace by itself, `Settings.reload_interval` apart."""
        for _ in range(times):
            await self.clock.advance(timedelta(seconds=10))

    async def events(self, engine: Engine, *kinds: str) -> list[Event]:
        """The events so far of these kinds."""
        return [event async for event in engine.events(follow=False) if event.kind in kinds]

    def folder(self, run: RunRecord) -> Path:
        """The run's folder."""
        return self.data / "runs" / run.slug / run.run_id


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """Every statement that SQLite is given from here on, with the values for its question marks."""
    seen: list[tuple[str, tuple[Any, ...]]] = []

    class Recording(sqlite3.Connection):
        def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
            seen.append((sql, tuple(values)))
            return super().execute(sql, values)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Recording))
    return seen


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with an empty workspace."""
    workspace = tmp_path / "workspace"
    (workspace / "automations").mkdir(parents=True)
    return Host(workspace)
