"""What `drumbeat doctor` says of what engines left: runs, messages, pins, memory, mail."""

import os
import re
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp

from anyio import to_thread

from drumbeat import (
    Client,
    DrumbeatError,
    Due,
    Env,
    Finding,
    Problem,
    Status,
    WorkspaceError,
)
from drumbeat.cli.examined import LATELY, Examined, alone, counted
from drumbeat.cli.listed import slugs_seen
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.sign_of_life import read_sign

__all__ = ["examine_records"]

_HOLDER = re.compile(r"process ([0-9]+) on (.+) since ")
_SKEW = timedelta(minutes=5)
_LATE = timedelta(hours=1)
_SILENT = timedelta(minutes=5)
_NAMED = 3
"""So many automations are named where there may be thousands."""


async def examine_records(
    workspace: Path, folder: Path, env: Env, now: datetime
) -> AsyncIterator[Examined]:
    """What engines left in a data folder, area by area; arguments as for `examine`."""
    try:
        async with Client(workspace, data_dir=folder) as client:
            status = await client.status()
            stopped = status.state == "stopped"
            yield await alone("engine", lambda: _engine(client, status, now))
            yield await alone("sessions", lambda: _sessions(client, status))
            yield await alone("memory", lambda: to_thread.run_sync(_memory, status, folder, env))
            yield await alone("deliveries", lambda: _deliveries(client, now, stopped=stopped))
            yield _mail(status)
            yield await alone("records", lambda: _records(client, status, now))
    except DrumbeatError as error:
        yield Examined(name="records", found="cannot be read", problems=(error.problem,))


async def _engine(client: Client, status: Status, now: datetime) -> Examined:
    folder = client.data_dir
    holder = await EngineLock(folder).holder()
    problems: list[Problem] = []
    late = [fire for fire in status.waiting if now - fire.due > _LATE]
    if holder is None:
        late_slots = await _late_slots(client, status, now)
        if late or late_slots:
            count = counted(len(late) + len(late_slots), "fire")
            since = min([*(fire.due for fire in late), *(due.since for due in late_slots)])
            slugs = {fire.slug for fire in late} | {due.slug for due in late_slots}
            problems.append(
                Problem(
                    code="engine-missing",
                    message=f"{count} due for more than an hour, and no engine: the first since "
                    f"{since.isoformat(timespec='seconds')}, of {', '.join(sorted(slugs)[:_NAMED])}"
                    f"{' and others' if len(slugs) > _NAMED else ''}",
                    remedy="start one: drumbeat serve, or the host that embeds it",
                )
            )
        problems += [
            Finding(
                code="run-cut-off",
                message=f"{run.run_id} of {run.slug} was going when its engine ended, and nobody "
                "has heard of it yet",
                remedy="start the engine: it settles the run first, and says what became of it",
            )
            for run in status.running
        ]
        problems += [each for each in status.faults if each.code == "automations-folder-missing"]
        return Examined(name="engine", found="none", problems=tuple(problems))
    named = _HOLDER.match(holder)
    if named and named[2] == socket.gethostname() and not _lives(int(named[1])):
        problems.append(
            Problem(
                code="lock-stray",
                message=f"{holder} holds the lock, and there is no such process",
                remedy="end what that process has left behind: see what has engine.lock open",
                path=folder / "engine.lock",
            )
        )
    problems += await to_thread.run_sync(_said_by, holder, folder, now)
    problems += [
        Finding(
            code="fire-overdue",
            message=f"{fire.slug} has been due since {fire.due.isoformat(timespec='seconds')}",
            remedy="look at what runs: drumbeat status",
        )
        for fire in late
    ]
    return Examined(name="engine", found=holder, problems=tuple(problems))


async def _late_slots(client: Client, status: Status, now: datetime) -> list[Due]:
    """What schedules made due an hour ago or earlier, for which there is no fire yet."""
    try:
        coming = await client.upcoming(until=now)
    except WorkspaceError:
        return []  # said under `workspace`
    return [due for due in coming if now - due.since > _LATE and due.slug not in status.paused]


def _said_by(holder: str, folder: Path, now: datetime) -> list[Problem]:
    """What an engine says of itself, or that it has fallen silent."""
    sign = read_sign(folder)
    if sign is None or sign.holder != holder:
        return []
    silent = now - sign.at
    if silent < _SILENT:
        return list(sign.faults)
    return [
        *sign.faults,
        Finding(
            code="engine-silent",
            message=f"{holder} has given no sign of life since "
            f"{sign.at.isoformat(timespec='seconds')}",
            remedy="see what the process does, and what its log says: its loop stands still, or it "
            "cannot write engine.json",
        ),
    ]


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return True


async def _sessions(client: Client, status: Status) -> Examined:
    pins = await client.sessions()
    known = slugs_seen(status)
    orphans = [] if known is None else sorted(pins.keys() - known)
    problems = tuple(
        Finding(
            code="pin-orphan",
            message=f"a conversation is pinned for {slug}, and there is no such automation",
            remedy=f"put its file back, or forget it: drumbeat rotate {slug} --reason …",
        )
        for slug in orphans
    )
    return Examined(name="sessions", found=counted(len(pins), "conversation"), problems=problems)


def _memory(status: Status, folder: Path, env: Env) -> Examined:
    root = Path(env["MEMORY_DIR"]) if env.get("MEMORY_DIR") else folder / "memory"
    known, found = slugs_seen(status), 0
    problems: list[Problem] = list(_unwritable(root)) if env.get("MEMORY_DIR") else []
    for path in sorted(root.glob("*s/*")):
        if not path.is_dir():
            continue
        found += 1
        if known is not None and path.name not in known:
            problems.append(
                Finding(
                    code="memory-orphan",
                    message=f"there is no automation {path.name} that would read it",
                    remedy="put its file back, or move the folder away",
                    path=path,
                )
            )
    return Examined(name="memory", found=counted(found, "folder"), problems=tuple(problems))


def _unwritable(root: Path) -> Iterator[Problem]:
    """Whether memory folders can be made there, by making one: rights do not say it of all."""
    above = next(path for path in (root, *root.absolute().parents) if path.exists())
    try:
        Path(mkdtemp(prefix=".drumbeat-", dir=above)).rmdir()
    except OSError as error:
        yield Problem(
            code="memory-dir-unwritable",
            message=f"$MEMORY_DIR is {root}, where no folder can be made: {error.strerror}",
            remedy="name a folder that the user that runs the engine may write",
        )


async def _deliveries(client: Client, now: datetime, *, stopped: bool) -> Examined:
    pending = await client.intents("pending", payloads=False)
    abandoned = await client.intents("abandoned", payloads=False)
    problems: list[Problem] = [
        Finding(
            code="delivery-waiting",
            message=f"{intent.id} of {intent.slug} has waited since "
            f"{intent.created_at.isoformat(timespec='seconds')}, attempts: {intent.attempt}",
            remedy="look at the deliverer, or acknowledge it if it arrived",
        )
        for intent in pending
        if now - intent.created_at > _LATE or intent.attempt > (0 if stopped else 1)
    ]
    if problems and stopped:
        problems.append(
            Problem(
                code="engine-missing",
                message=f"{counted(len(pending), 'message')} to deliver, and no engine",
                remedy="start one that has a deliverer, or pull them with a client",
            )
        )
    problems += [
        Finding(
            code="delivery-lost",
            message=f"{intent.id} was abandoned, and nobody heard of it",
            remedy="read it in its run's folder; events say why it could not be delivered",
        )
        for intent in abandoned
        if now - intent.created_at < LATELY
    ]
    found = f"{len(pending)} pending, {len(abandoned)} abandoned"
    return Examined(name="deliveries", found=found, problems=tuple(problems))


def _mail(status: Status) -> Examined:
    problems: list[Problem] = []
    for inbox in status.inboxes:
        name = f"{inbox.system}:{inbox.address} of {inbox.slug}"
        if not inbox.served:
            problems.append(
                Problem(
                    code="inbox-system-unknown",
                    message=f"{name} is not polled: the last engine had not this mail system",
                    remedy="let the host give it, as in Engine(mail={…}), or name another one",
                )
            )
        elif inbox.fault:
            problems.append(
                Problem(
                    code=inbox.code,
                    message=f"{name} could not be polled: {inbox.fault}",
                    remedy="look at the mailbox and at how the host reaches it",
                )
            )
        problems += [
            Finding(
                code="mail-parked",
                message=f"{name} has parked a message: {line}",
                remedy="mend what made the run fail; do it by hand, or have it sent again",
            )
            for line in inbox.parked
        ]
    return Examined(name="mail", found=f"inboxes: {len(status.inboxes)}", problems=tuple(problems))


async def _records(client: Client, status: Status, now: datetime) -> Examined:
    runs, fires = await client.runs(limit=1), await client.fires(limit=1)
    newest = max(
        [*(run.started_at for run in runs), *(fire.created_at for fire in fires)], default=now
    )
    problems: list[Problem] = [
        Finding(code=each.code, message=each.message, remedy=each.remedy)
        for each in status.faults
        if each.code == "data-dir-elsewhere"
    ]
    if newest - now > _SKEW:
        problems.append(
            Problem(
                code="clock-behind",
                message=f"the clock says {now.isoformat(timespec='seconds')}, and the newest record"
                f" is of {newest.isoformat(timespec='seconds')}",
                remedy="if it is wrong, set it. If it is right and was ahead before, leave it: "
                "schedules of the wall clock wait until that time has come when it is within a "
                "day; else, and for intervals, they count from now",
            )
        )
    problems += [
        Problem(
            code="run-without-intent",
            message=f"the run {run_id} has ended, and nothing says who hears of it",
            remedy="report it with what its folder holds: it must not happen",
        )
        for run_id in await client.sweep()
    ]
    return Examined(name="records", found="runs, fires, clock", problems=tuple(problems))
