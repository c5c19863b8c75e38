"""Makes a stored state, by whichever drumbeat is on the path: once for each schema there has been.

Usage: PYTHONPATH=<src of that release> make_stored.py FOLDER STORED. Leaves the state of a host
that ran for a day in FOLDER, and writes its database as SQL and its pins into STORED, as
`schema-<n>.sql` and `schema-<n>.pins.json`. Only what every release knew is used.
"""

import json
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio

from drumbeat import AgentError, DeliveryIntent, Engine, Reply, Turn
from drumbeat.testing import ManualClock, RecordingDeliverer, drive

START = datetime(2026, 3, 2, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)
_FILE = """---
automation:
  name: {name}
  trigger: {trigger}
  conversation: {conversation}
  notify: {notify}
  steps:
    - {{id: look, prompt: Look.}}
---
"""
_FILES = (
    ("brief", "{type: schedule, expression: daily at 07:00}", "continuous", "always"),
    ("poll", "{type: schedule, expression: every 4 hours}", "fresh", "auto"),
    ("check", "{type: manual}", "continuous", "always"),
)


def lay_out(workspace: Path) -> None:
    """Write the automations of which the state is."""
    (workspace / "automations").mkdir(parents=True)
    for slug, trigger, conversation, notify in _FILES:
        text = _FILE.format(
            name=slug.title(), trigger=trigger, conversation=conversation, notify=notify
        )
        (workspace / "automations" / f"{slug}.md").write_text(text)


async def live(workspace: Path) -> None:
    """Run for a day: successes, a failure, a rotation, a pause, and much that is left pending."""
    lay_out(workspace)
    clock = ManualClock(START)

    class Worker:
        async def take_turn(self, turn: Turn, /) -> Reply:
            await anyio.lowlevel.checkpoint()
            if turn.slug == "check" and turn.origin == "step":
                await turn.follow_ups.schedule("Look again.", after=72 * HOUR)
            if turn.origin == "judgment":
                return Reply(text="NOTHING_TO_REPORT")
            if turn.slug == "poll" and clock.now().hour == 14:
                raise AgentError("the model is confused", code="confused")
            return Reply(text=f"Looked for {turn.slug}.")

    class Door(RecordingDeliverer):
        async def deliver(self, intent: DeliveryIntent, /) -> object:
            if intent.slug == "check":
                raise OSError("no line")
            return await super().deliver(intent)

    async with Engine(
        workspace, agent=Worker(), deliverer=Door(), timezone="UTC", clock=clock, env={}
    ) as engine:
        await drive(engine, until=START + 9 * HOUR)
        await engine.fire("check", slot="ticket-17")
        await clock.advance(HOUR)
        await engine.pause("brief", "holidays")
        await engine.fire("check", slot="later", after=120 * HOUR)
        await clock.advance(9 * HOUR)


def dump(data: Path, stored: Path) -> None:
    """Write the state that lies in `data` as text, which a repository keeps better than a file."""
    with closing(sqlite3.connect(data / "drumbeat.db")) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        pragmas = (f"PRAGMA application_id={application};", f"PRAGMA user_version={version};")
        lines = "\n".join((*pragmas, *db.iterdump()))
    (stored / f"schema-{version}.sql").write_text(lines + "\n", encoding="utf-8")
    pins = json.loads((data / "session_pins.json").read_text(encoding="utf-8"))
    (stored / f"schema-{version}.pins.json").write_text(json.dumps(pins, indent=2) + "\n")


if __name__ == "__main__":
    anyio.run(live, Path(sys.argv[1]))
    dump(Path(sys.argv[1]) / ".drumbeat", Path(sys.argv[2]))
