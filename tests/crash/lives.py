"""One life of a host that is going to be killed: all it does is written down outside of drumbeat.

What the host was told (`told`) and what its agent and deliverer did (`did`) stand in plain files
that are appended to with one write each, so that a KILL tears no line. A step is a point between
two of its effects: the kill comes from inside, when one is reached for the n-th time.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from drumbeat import (
    DeliveryIntent,
    Engine,
    MailBatch,
    MailMessage,
    Pin,
    Receipt,
    Reply,
    SessionPins,
    Settings,
    Turn,
)
from drumbeat.errors import AgentError, DrumbeatError, SessionBusy
from drumbeat.runtime.store import SqliteStore

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)
PACE = 600
"""Seconds of the host's time in one real second."""
SECRETS = {"AGENT_API_SECRET": "loopback-secret"}

_SCHEDULED = """---
automation:
  name: Look
  trigger: {type: schedule, expression: every 1 minutes}
  conversation: continuous
  notify: always
  steps:
    - {id: look, prompt: Look.}
    - {id: tell, prompt: Tell.}
---
"""
_FRESH = """---
automation:
  name: Fresh
  trigger: {type: schedule, expression: every 2 minutes}
  conversation: fresh
  notify: auto
  steps:
    - {id: look, prompt: "Look, or answer NOTHING_TO_REPORT."}
---
"""
_HOOK = "---\nwebhook: hook\n---\nTake the event.\n"
_INBOX = "---\ninbox: box:work@example.com\nallowFrom: ada@example.com\n---\nRead the mail.\n"
_BY_HAND = "---\n---\nDo it, and ask for more.\n"

STORE_STEPS = (
    "add_fires", "claim_fire", "hold", "take_over", "record", "finish", "claim_intent",
    "settle_intent", "renew", "purge",
)  # fmt: skip
STEPS = (
    *(f"{name}:{when}" for name in STORE_STEPS for when in ("before", "inside", "after")),
    *(f"pins.{name}:{when}" for name in ("set", "rotate") for when in ("before", "after")),
    *(f"{name}:{when}" for name in ("turn", "deliver") for when in ("before", "after")),
    *(f"tidy:{when}" for when in ("before", "aside", "inside", "after")),
    "artifact:opened", "artifact:renamed", "poll:after", "told:before",
)  # fmt: skip
"""Where a life may end: accept, claim, run, turn, settle, deliver, record, forget: before, inside
and after their transactions, and the files beside them."""


def lay_out(workspace: Path) -> None:
    """Write the files of a workspace in which every cause of a run occurs."""
    for folder in ("automations", "jobs"):
        (workspace / folder).mkdir(parents=True)
    (workspace / "automations" / "look.md").write_text(_SCHEDULED)
    (workspace / "automations" / "fresh.md").write_text(_FRESH)
    (workspace / "jobs" / "hook.md").write_text(_HOOK)
    (workspace / "jobs" / "mail.md").write_text(_INBOX)
    (workspace / "jobs" / "chain.md").write_text(_BY_HAND)


class Ledger:
    """A file of JSON lines; one write each."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, **line: Any) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        )


class Steps:
    """Counts how often each step is reached, and dies at one."""

    def __init__(self, name: str, number: int) -> None:
        self._name, self._left = name, number

    def reach(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


class FastClock:
    """The same time for every life, faster than the real one."""

    def __init__(self, began: float) -> None:
        self._began = began

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=(time.time() - self._began) * PACE)  # noqa: TID251

    def monotonic(self) -> float:
        return time.monotonic() * PACE  # noqa: TID251

    async def sleep(self, delay: timedelta, /) -> None:
        await anyio.sleep(max(0.0, delay.total_seconds()) / PACE)


def stepping_store(steps: Steps) -> type[SqliteStore]:
    """A store that reaches a step before, inside and after each of its transactions."""
    inside = {"of": ""}

    def tell(statement: str) -> None:
        if statement.startswith("COMMIT"):
            steps.reach(f"{inside['of']}:inside")

    class Watched(sqlite3.Connection):
        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            self.set_trace_callback(tell)

    class Stepping(SqliteStore):
        async def open(self, **given: Any) -> None:
            real = sqlite3.connect
            sqlite3.connect = partial(real, factory=Watched)  # type: ignore[assignment]
            try:
                await super().open(**given)
            finally:
                sqlite3.connect = real

    def wrap(name: str) -> None:
        real = getattr(SqliteStore, name)

        async def method(self: SqliteStore, *args: Any, **given: Any) -> Any:
            steps.reach(f"{name}:before")
            inside["of"] = name  # of several at once the last: they share a commit
            result = await real(self, *args, **given)
            steps.reach(f"{name}:after")
            return result

        setattr(Stepping, name, method)

    for name in STORE_STEPS:
        wrap(name)
    return Stepping


class SteppingPins(SessionPins):
    """Pins that reach a step before and after each change."""

    def __init__(self, data_dir: Path, steps: Steps, clock: FastClock) -> None:
        super().__init__(data_dir, clock=clock)
        self._steps = steps

    async def set(self, slug: str, pin: Pin, /) -> None:
        self._steps.reach("pins.set:before")
        await super().set(slug, pin)
        self._steps.reach("pins.set:after")

    async def rotate(self, slug: str, /, **given: Any) -> Pin | None:
        self._steps.reach("pins.rotate:before")
        pin = await super().rotate(slug, **given)
        self._steps.reach("pins.rotate:after")
        return pin


def told_of(turn: Turn) -> dict[str, Any]:
    """What a line of `did` holds of a turn."""
    return {
        "slug": turn.slug,
        "run": turn.run_id,
        "session": turn.session_id,
        "origin": turn.origin,
    }


class Worker:
    """The model: it answers at once, and now and then fails, asks for more, or is unreachable."""

    def __init__(self, steps: Steps, did: Ledger, chance: random.Random) -> None:
        self._steps, self._did, self._chance = steps, did, chance

    async def take_turn(self, turn: Turn, /) -> Reply:
        facts = told_of(turn)
        self._did.add(what="begin", context=turn.context, **facts)
        self._steps.reach("turn:before")
        try:
            await anyio.sleep(self._chance.uniform(0, 0.01))
            if turn.slug == "chain":
                await turn.follow_ups.schedule("Go on.", after=timedelta(seconds=30))
            if self._chance.random() < 0.1:
                raise AgentError("the model is confused", code="confused")
        except DrumbeatError as error:
            if isinstance(error, AgentError):
                raise
        finally:
            self._did.add(what="end", **facts)
        self._steps.reach("turn:after")
        return Reply(text="NOTHING_TO_REPORT" if turn.origin == "judgment" else f"did {turn.slug}")


class Door:
    """The deliverer: what it confirmed stands in the ledger before it returns."""

    def __init__(self, steps: Steps, did: Ledger) -> None:
        self._steps, self._did = steps, did

    async def deliver(self, intent: DeliveryIntent, /) -> Receipt:
        self._steps.reach("deliver:before")
        self._did.add(what="delivered", intent=intent.id, attempt=intent.attempt, slug=intent.slug)
        self._steps.reach("deliver:after")
        return Receipt(id=f"receipt-{intent.id}")


class Mailbox:
    """A mail source that reads a file: the mark is the number of lines."""

    def __init__(self, path: Path, steps: Steps, did: Ledger) -> None:
        self._path, self._steps, self._did = path, steps, did

    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        first = len(lines) if after is None else int(after)
        if after is None:
            self._did.add(what="mail begun", at=first)
        messages = tuple(
            MailMessage(
                id=line,
                headers=(("From", "ada@example.com"), ("To", address), ("Subject", line)),
            )
            for line in lines[first : first + 3]
        )
        self._steps.reach("poll:after")
        return MailBatch(messages=messages, mark=str(first + len(messages)))


async def live(
    folder: Path, *, life: int, began: float, step: str, number: int, seed: int, last: bool
) -> None:
    """Run a host until it is killed, or for the last time until everything is settled."""
    steps = Steps("" if last else step, number)
    chance = random.Random(seed)
    told, did = Ledger(folder / "told"), Ledger(folder / "did")
    did.add(what="born", life=life)
    data_dir = folder / "workspace" / ".drumbeat"
    clock = FastClock(began)

    going: list[str] = []

    def look(event: str, args: tuple[Any, ...]) -> None:
        path = str(args[0]) if args else ""
        if "/runs/.gone" in path:
            # Of a folder that goes: it lies aside, and its files and then itself are removed.
            if event == "shutil.rmtree":
                steps.reach("tidy:aside")
                going.append(path)
            if event == "os.rmdir":
                steps.reach("tidy:after")
                going.clear()
        elif event == "os.rename" and "/runs/.gone" in str(args[1]):
            steps.reach("tidy:before")
        elif event == "os.remove" and going:
            steps.reach("tidy:inside")
        if event == "open" and "/runs/" in path:
            steps.reach("artifact:opened")
        if event == "os.rename" and "/runs/" in path:
            steps.reach("artifact:renamed")

    sys.addaudithook(look)
    long = timedelta(days=300)
    engine = Engine(
        folder / "workspace",
        agent=Worker(steps, did, chance),
        deliverer=Door(steps, did),
        timezone="UTC",
        secrets=SECRETS,
        mail={"box": Mailbox(folder / "mail", steps, did)},
        clock=clock,
        store=stepping_store(steps)(data_dir / "drumbeat.db", clock=clock),
        pins=SteppingPins(data_dir, steps, clock),
        settings=Settings(
            run_timeout=long,
            deliver_timeout=long,
            drain_timeout=long,
            stuck_after=long,
            lease=long,
            inbox_poll=timedelta(minutes=1),
            tidy_interval=timedelta(minutes=2),
            keep_artifacts=timedelta(minutes=10),
            keep_work=timedelta(minutes=2),
            keep_events=timedelta(days=30),
        ),
        env={},
    )
    async with engine:
        if last:
            await finish_everything(engine, did)
            return
        async with anyio.create_task_group() as group:
            for task in (send_events, ask_by_hand, answer_people):
                group.start_soon(task, engine, told, steps, life, random.Random(seed + 1))


async def finish_everything(engine: Engine, did: Ledger) -> None:
    """Let what waits come to an end, chains of follow-ups and failing mail included."""
    for slug in ("look", "fresh"):
        await engine.pause(slug, "the end")
    # Mail that fails is tried again for 17 hours, which are 105 seconds at this pace.
    with anyio.fail_after(240):
        while True:
            # Schedules go on, so there is something open again in a moment.
            at = engine.clock.now()
            await engine.settled()
            fires = await engine.fires(limit=1_000_000)
            if all(fire.verdict for fire in fires if fire.created_at <= at):
                break
            await anyio.sleep(0.05)
    did.add(what="over", at=at.isoformat())


Task = Callable[[Engine, Ledger, Steps, int, random.Random], Awaitable[None]]


async def send_events(
    engine: Engine, told: Ledger, steps: Steps, life: int, chance: random.Random
) -> None:
    """Another system: it sends events, some twice at once, and believes what it is answered."""
    for number in range(1_000_000):
        delivery = f"{life}-{chance.randrange(number + 1) if chance.random() < 0.2 else number}"
        headers = {
            "Authorization": f"Bearer {SECRETS['AGENT_API_SECRET']}",
            "Idempotency-Key": delivery,
        }
        async with anyio.create_task_group() as group:
            for _ in range(1 + (chance.random() < 0.2)):
                group.start_soon(send_event, engine, told, steps, headers, delivery)
        await anyio.sleep(chance.uniform(0.02, 0.2))


async def send_event(
    engine: Engine, told: Ledger, steps: Steps, headers: Mapping[str, str], delivery: str
) -> None:
    answer = await engine.webhook("hook", method="post", headers=headers, body=b'{"a": 1}')
    steps.reach("told:before")
    assert answer.status in (200, 202, 503), answer
    if answer.status != 503:
        assert answer.fire is not None
        told.add(what="event", delivery=delivery, fire=answer.fire.id, status=answer.status)


async def ask_by_hand(
    engine: Engine, told: Ledger, steps: Steps, life: int, chance: random.Random
) -> None:
    """People: fires with and without a slot, and requests."""
    for number in range(1_000_000):
        slot = f"ticket-{life}-{number}" if chance.random() < 0.7 else None
        fire = await engine.fire("chain" if chance.random() < 0.2 else "look", slot=slot)
        steps.reach("told:before")
        told.add(what="asked", fire=fire.id, slot=slot)
        if chance.random() < 0.3:
            await engine.rotate(chance.choice(["look", "hook"]), "because")
        await anyio.sleep(chance.uniform(0.02, 0.2))


async def answer_people(
    engine: Engine, told: Ledger, steps: Steps, life: int, chance: random.Random
) -> None:
    """People again: answers to what was delivered."""
    while True:
        await anyio.sleep(chance.uniform(0, 0.1))
        runs = [run for run in await engine.runs(limit=20) if run.session_id and run.receipt]
        if not runs:
            continue
        receipt = chance.choice(runs).receipt
        assert receipt is not None
        assert receipt.id is not None
        try:
            await engine.reply(receipt.id, "Thank you.")
        except (SessionBusy, AgentError):
            continue
        told.add(what="answered", target=receipt.id)
