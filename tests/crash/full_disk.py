"""A host whose disk is full for a while, from the beginning on or later, or without descriptors.

Usage: full_disk.py FOLDER ELSEWHERE. FOLDER is a small file system of its own, where SQLite is told
to put temporary files. Prints a JSON object: by what was done to the host, what came of it.
"""

import json
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import attrs

from drumbeat import DeliveryIntent, Engine, Event, Reply, Settings, StoreError, Turn
from drumbeat.runtime.store import SqliteStore
from drumbeat.runtime.store_schema import SCHEMA_VERSION, prepare

STORED = Path(__file__).with_name("stored")
BLOCK = 4096
TEXT = "said " * 600
_FILE = """---
automation:
  name: Check
  trigger: {type: manual}
  conversation: continuous
  notify: always
  steps:
    - {id: one, prompt: One.}
    - {id: two, prompt: Two.}
---
"""


class Disk:
    """Takes all the room that there is, and gives it back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, *, blocks: int = 0) -> None:
        """Leave `blocks` of 4 KiB."""
        kept = self._folder / "kept"
        kept.write_bytes(bytes(blocks * BLOCK))
        number = 0
        for size in (1 << 16, BLOCK, 1):
            with suppress(OSError):
                while True:
                    (self._folder / f"fill-{number}").write_bytes(bytes(size))
                    number += 1
        kept.unlink()

    def end(self) -> None:
        for path in self._folder.glob("fill-*"):
            path.unlink()


class ReadOnly:
    """Mounts the file system for reading alone, as a system does whose disk has errors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _mount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self._folder)], check=True)

    def begin(self) -> None:
        self._mount("ro")

    def end(self) -> None:
        self._mount("rw")


class Descriptors:
    """Leaves this process none beside those that are open."""

    def begin(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        taken = len(list(Path("/proc/self/fd").iterdir()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest, taken) - 1, self._before[1]))

    def end(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._before)


class Sizes:
    """Lets this process write to no file beyond its first byte, which also sends it SIGXFSZ."""

    def begin(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    def end(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


@attrs.define
class Host:
    """The model and the way out: at the moment that is named the trouble begins."""

    at: str
    begin: Callable[[], None]
    did: list[str] = attrs.field(factory=list)

    def _reach(self, what: str) -> None:
        self.did.append(what)
        if what == self.at and self.did.count(what) == 1:
            self.begin()

    async def take_turn(self, turn: Turn, /) -> Reply:
        await anyio.lowlevel.checkpoint()
        self._reach(f"turn {turn.prompt}")
        return Reply(text=f"{turn.prompt} {TEXT}")

    async def deliver(self, intent: DeliveryIntent, /) -> None:
        await anyio.lowlevel.checkpoint()
        self._reach("deliver")


async def live(folder: Path, trouble: Any, at: str) -> dict[str, Any]:
    (folder / "workspace" / "automations").mkdir(parents=True)
    (folder / "workspace" / "automations" / "check.md").write_text(_FILE)
    host = Host(at, trouble.begin)
    brief = timedelta(seconds=0.1)
    engine = Engine(
        folder / "workspace",
        agent=host,
        deliverer=host,
        timezone="UTC",
        settings=Settings(store_probe=brief, request_poll=brief, reload_interval=brief),
        env={},
    )
    told: dict[str, Any] = {"accepted": []}
    async with engine:
        fire = await engine.fire("check", slot="ticket-17")
        told["accepted"].append(fire.id)
        with anyio.fail_after(20):
            while at not in host.did:
                await anyio.sleep(0.01)
            while not (health := await engine.health()).faults:
                with suppress(StoreError):
                    fire = await engine.fire("check")
                    told["accepted"].append(fire.id)
                await anyio.sleep(0.01)
        told["health"] = {"ok": health.ok, "faults": list(health.faults)}
        told["did"] = list(host.did)
        trouble.end()
        with anyio.fail_after(20):
            while (await engine.health()).faults:
                await anyio.sleep(0.01)
            await engine.settled()
        told["after"] = [run.fire.id for run in await engine.runs()]
        told["states"] = sorted({run.state for run in await engine.runs()})
        told["deliveries"] = sorted({run.delivery or "" for run in await engine.runs()})
        told["texts"] = sorted(
            {run.intent.text == f"Two. {TEXT}" for run in await engine.runs() if run.intent}
        )
        told["turns"] = [len(run.turns) for run in await engine.runs()]
        told["invalid"] = await engine.sweep()
        told["pinned"] = list(await engine.sessions())
    told["rubbish"] = [
        path.name
        for path in (folder / "workspace" / ".drumbeat").rglob("*")
        if path.name.endswith((".partial", ".tmp", ".draft"))
    ]
    told["turns taken"] = sum(what.startswith("turn") for what in host.did)
    return told


async def enter(folder: Path, disk: Disk, blocks: int) -> list[Any]:
    """Enter an engine on a folder that is not there while the disk is full, and when it is not."""
    (folder / "workspace" / "automations").mkdir(parents=True)

    def engine() -> Engine:
        host = Host("", disk.begin)
        return Engine(folder / "workspace", agent=host, timezone="UTC", env={})

    disk.begin(blocks=blocks)
    try:
        async with engine():
            told: list[Any] = []
    except StoreError as error:
        told = [error.problem.code, error.problem.remedy, str(error.problem.path)]
    disk.end()
    data = folder / "workspace" / ".drumbeat"
    async with engine() as whole:
        told.append((await whole.health()).ok)
    told.append((data / ".gitignore").read_text())
    shutil.rmtree(folder)
    return told


async def enter_read_only(folder: Path, disk: ReadOnly) -> list[Any]:
    """Enter an engine where nothing can be written: first without a data folder, then with one."""
    workspace = folder / "workspace"
    (workspace / "automations").mkdir(parents=True)
    (workspace / "automations" / "check.md").write_text(_FILE)
    told: list[Any] = []
    for _ in range(2):
        engines = [
            Engine(workspace, agent=Host("", disk.begin), timezone="UTC", env={}) for _ in range(2)
        ]
        before = content(workspace)
        disk.begin()
        try:
            async with engines[0]:
                told.append(["entered", ""])
        except StoreError as error:
            told.append([error.problem.code, error.problem.remedy])
        disk.end()
        told[-1].append(content(workspace) == before)
        async with engines[1]:
            await engines[1].run("check")
            told[-1].append([run.state for run in await engines[1].runs()])
    shutil.rmtree(folder)
    return told


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lay(path: Path, schema: int | None) -> None:
    """Make the folder of a store, and a store of an earlier schema in it, or none."""
    path.parent.mkdir()
    if schema is not None:
        with closing(sqlite3.connect(path)) as db:
            db.executescript((STORED / f"schema-{schema}.sql").read_text(encoding="utf-8"))
            db.execute("PRAGMA journal_mode = WAL")


def written(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("PRAGMA integrity_check").fetchall()
        for table in ("fires", "runs"):
            found += db.execute(f"SELECT * FROM {table}").fetchall()
        return found


def make(folder: Path, disk: Disk, schema: int | None) -> dict[str, Any]:
    """Make a store, or upgrade one, with more and more room, until there is enough."""
    told: dict[str, Any] = {"codes": [], "left": [], "changed": []}
    path = folder / "state" / "drumbeat.db"
    busy = timedelta(seconds=5)
    for blocks in range(0, 200, 4):
        lay(path, schema)
        before = written(path) if schema else None
        disk.begin(blocks=blocks)
        try:
            prepare(path, busy=busy)
        except StoreError as error:
            told["codes"].append(error.problem.code)
            told["left"] += [file.name for file in path.parent.glob("*.draft*")]
        else:
            disk.end()
            told["enough"] = blocks
            break
        finally:
            disk.end()
        prepare(path, busy=busy)
        told["changed"] += [blocks] if before and written(path) != before else []
        if schema:
            backup = path.with_name(f"{path.name}.v{schema}.backup")
            told["changed"] += [blocks] if written(backup) != before else []
        shutil.rmtree(path.parent)
    shutil.rmtree(path.parent)
    return told


async def forget(folder: Path) -> int:
    """Let a store in `folder` forget what takes more than a little to be undone."""
    at = datetime(2026, 3, 1, tzinfo=UTC)
    event = Event(id=0, at=at, kind="spoken", slug=None, run_id=None, data={"text": TEXT})
    store = SqliteStore(folder / "drumbeat.db")
    await store.open(holder="host", lease=timedelta(minutes=5))
    await store.record(events=[event] * 1000)
    day = timedelta(days=1)
    purged = await store.purge(now=at + 9 * day, keep_events=day, keep_runs=day)
    await store.close()
    return purged.events


def main() -> None:
    folder = Path(sys.argv[1])
    found: dict[str, Any] = {}
    disk = Disk(folder)
    found["entered"] = [anyio.run(enter, folder / "first", disk, blocks) for blocks in (0, 2, 4)]
    found["read-only"] = anyio.run(enter_read_only, folder / "second", ReadOnly(folder))
    disk.begin()
    found["forgotten"] = anyio.run(forget, Path(sys.argv[2]))
    disk.end()
    found["made"] = make(folder, disk, None)
    found["upgraded"] = make(folder, disk, SCHEMA_VERSION - 1)
    for at in ("turn One.", "turn Two.", "deliver"):
        name = at.replace(" ", "-")
        found[f"disk at {at}"] = anyio.run(live, folder / name, Disk(folder), at)
    for backend in ("asyncio", "trio"):
        for limit in (Descriptors(), Sizes()):
            name = f"{type(limit).__name__} on {backend}"
            workspace = folder / name.replace(" ", "-")
            found[name] = anyio.run(live, workspace, limit, "turn One.", backend=backend)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
