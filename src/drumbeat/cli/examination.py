"""What `drumbeat doctor` looks at, each area by itself, so that one failing hides no other."""

import os
import re
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import attrs
from anyio import to_thread

from drumbeat import (
    Client,
    DrumbeatError,
    Env,
    Finding,
    Problem,
    Settings,
    Status,
    WebhookTrigger,
)
from drumbeat.cli.checking import check_workspace
from drumbeat.cli.listed import slugs_seen
from drumbeat.core.git_access import TOKEN, git_token, may_have_token
from drumbeat.core.signatures import parse_auth
from drumbeat.runtime.clone import no_git
from drumbeat.runtime.config_files import ConfigFiles
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.search_path import find_executable, search_path
from drumbeat.runtime.sign_of_life import read_sign
from drumbeat.runtime.skills import Layers
from drumbeat.runtime.state import open_to_others
from drumbeat.runtime.store_problems import store_away
from drumbeat.runtime.store_schema import SCHEMA_VERSION
from drumbeat.runtime.store_schema import examine as examine_store
from drumbeat.runtime.workspace import WorkspaceCache, survey
from drumbeat.runtime.zones import zones_for

__all__ = ["Examined", "examine"]

_HOLDER = re.compile(r"process ([0-9]+) on (.+) since ")
_LATE = timedelta(hours=1)
_ROOM = 16 * 1024 * 1024
"""Bytes that an engine should find free: what its store writes within minutes."""
_SILENT = timedelta(minutes=5)
_SKEW = timedelta(minutes=5)
_LATELY = timedelta(days=7)


@attrs.frozen(kw_only=True)
class Examined:
    """One area: what was found in a few words, and what is wrong with it."""

    name: str
    found: str
    problems: tuple[Problem, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something is an error: all that is no finding, and findings that say so."""
        return any(
            not isinstance(problem, Finding) or problem.severity == "error"
            for problem in self.problems
        )


async def examine(
    workspace: Path, *, data_dir: Path | None, env: Env, now: datetime
) -> list[Examined]:
    """Examine a workspace and its data folder.

    Args:
        workspace: the folder with `automations/`.
        data_dir: where the state lies; `<workspace>/.drumbeat` for None.
        env: as an engine would have it.
        now: the present instant.
    """
    zones = _zones(env)
    folder = data_dir or workspace / ".drumbeat"
    areas = [await _files(workspace, env, now), await _configuration(workspace, env)]
    areas += [await _skills(workspace), *await _repositories(workspace, env)]
    areas += [*await _webhooks(workspace, env), zones]
    data = await to_thread.run_sync(_data_folder, folder)
    holder = await EngineLock(folder).holder()
    database = await to_thread.run_sync(_database, folder / "drumbeat.db", holder)
    areas += [data, database]
    if not database.failed:
        areas += [area async for area in _state(workspace, folder, env, now)]
    return areas


# ---- policy


async def _files(workspace: Path, env: Env, now: datetime) -> Examined:
    try:
        zones = zones_for(None, env)
    except DrumbeatError:
        zones = zones_for("UTC", {})  # what is wrong is said under `zones`
    checked = await check_workspace(
        workspace,
        zones={kind: zone.tzinfo for kind, zone in zones.items()},
        now=now,
        configuration=False,  # an area of its own
    )
    problems = tuple(problem for entry in checked for problem in entry.problems)
    files = sum(entry.policy for entry in checked)
    return Examined(name="workspace", found=_count(files, "file"), problems=problems)


async def _configuration(workspace: Path, env: Env) -> Examined:
    problems: list[Problem] = []
    change = await ConfigFiles(workspace, env=env).reload()
    if change.error is not None:
        problems += change.error.problems
    try:
        Settings.from_env(env)
    except DrumbeatError as error:
        problems.append(error.problem)
    return Examined(
        name="configuration", found="agent-config.yaml, variables", problems=tuple(problems)
    )


async def _skills(workspace: Path) -> Examined:
    try:
        skills = await Layers(workspace=await to_thread.run_sync(workspace.absolute)).skills()
    except DrumbeatError as error:
        return Examined(name="skills", found="not usable", problems=(error.problem,))
    return Examined(name="skills", found=_count(len(skills), "skill"))


async def _repositories(workspace: Path, env: Env) -> list[Examined]:
    """What the clones of jobs need; nothing where no job has a `repo`."""
    try:
        settings = Settings.from_env(env)
    except DrumbeatError:
        return []  # said under `configuration`
    loaded = (await survey(workspace)).workspace  # what is wrong with it is said under `workspace`
    repos = sorted({job.repo for job in loaded.automations if job.repo is not None})
    if not repos:
        return []
    problems: list[Problem] = []
    path = search_path(workspace=workspace, packs=loaded.packs, base=env.get("PATH", os.defpath))
    if await to_thread.run_sync(partial(find_executable, "git", path=path, cwd=workspace)) is None:
        problems.append(no_git())
    problems += [
        Finding(
            code="git-token-missing",
            message=f"{repo} is on a host of Settings.git_hosts, and there is no {TOKEN}",
            remedy=f"set {TOKEN}; a public repository needs none, unless the job pushes",
        )
        for repo in repos
        if git_token(env, {}) is None and may_have_token(repo, settings.git_hosts)
    ]
    found = _count(len(repos), "address", "addresses")
    return [Examined(name="repositories", found=found, problems=tuple(problems))]


async def _webhooks(workspace: Path, env: Env) -> list[Examined]:
    # What is wrong with the folder is said under `workspace`.
    known = (await WorkspaceCache(workspace).reload()).workspace
    doors = [
        (automation.slug, trigger)
        for automation in known.automations
        for trigger in automation.triggers
        if isinstance(trigger, WebhookTrigger)
    ]
    if not doors:
        return []
    problems = tuple(
        Finding(
            code="webhook-secret-missing",
            message=f"{secret} is not set, so {slug} refuses whoever sends to it",
            remedy=f"set {secret} where the engine runs",
        )
        for slug, trigger in doors
        if not env.get(secret := parse_auth(trigger.auth).secret_name, "").strip()
    )
    return [Examined(name="webhooks", found=_count(len(doors), "route"), problems=problems)]


def _zones(env: Env) -> Examined:
    try:
        zones = zones_for(None, env)
    except DrumbeatError as error:
        return Examined(name="zones", found="no zone", problems=(error.problem,))
    found = ", ".join(f"{kind} {zone.name} ({zone.source})" for kind, zone in zones.items())
    return Examined(name="zones", found=found)


# ---- the data folder


def _data_folder(folder: Path) -> Examined:
    if not folder.exists():
        return Examined(name="data folder", found=f"none yet at {folder}")
    problems = list(_open_to_others(folder))
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        problems.append(
            Problem(
                code="data-dir-unwritable",
                message="this user cannot write the data folder",
                remedy="make it writable for the user that runs the engine, or name another one",
                path=folder,
            )
        )
    free = shutil.disk_usage(folder).free
    if free < _ROOM:
        problems.append(
            Problem(
                code="data-dir-full",
                message=f"there are {free // 1024} KiB left on the disk of the data folder",
                remedy="free space on it: without room the engine starts nothing",
                path=folder,
            )
        )
    return Examined(name="data folder", found=str(folder), problems=tuple(problems))


def _open_to_others(folder: Path) -> Iterator[Problem]:
    for path in open_to_others(folder):
        yield Problem(
            code="data-dir-open",
            message="other users of this machine may read it",
            remedy=f"chmod go= {path}",
            path=path,
        )


def _database(path: Path, holder: str | None) -> Examined:
    if not path.exists():
        away = () if holder is None else (store_away(path, holder).problem,)
        return Examined(name="database", found="none" if away else "none yet", problems=away)
    try:
        version = examine_store(path)
    except DrumbeatError as error:
        return Examined(name="database", found=path.name, problems=(error.problem,))
    size = path.stat().st_size // 1024
    said = "" if version == SCHEMA_VERSION else f", {SCHEMA_VERSION} once it is opened"
    return Examined(name="database", found=f"schema {version}{said}, {size} KiB")


# ---- what happened


async def _state(workspace: Path, folder: Path, env: Env, now: datetime) -> AsyncIterator[Examined]:
    try:
        async with Client(workspace, data_dir=folder) as client:
            status = await client.status()
            yield await _engine(status, folder, now)
            yield await _sessions(client, status)
            yield await to_thread.run_sync(_memory, status, folder, env)
            yield await _deliveries(client, now, alone=status.state == "stopped")
            yield _mail(status)
            yield await _records(client, status, now)
    except DrumbeatError as error:
        yield Examined(name="records", found="cannot be read", problems=(error.problem,))


async def _engine(status: Status, folder: Path, now: datetime) -> Examined:
    holder = await EngineLock(folder).holder()
    problems: list[Problem] = []
    late = [fire for fire in status.waiting if now - fire.due > _LATE]
    if holder is None:
        if late:
            problems.append(
                Finding(
                    code="engine-missing",
                    message=f"{_count(len(late), 'fire')} due for more than an hour, and no engine",
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
    try:
        pins = await client.sessions()
    except DrumbeatError as error:
        return Examined(name="sessions", found="cannot be read", problems=(error.problem,))
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
    return Examined(name="sessions", found=_count(len(pins), "conversation"), problems=problems)


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
    return Examined(name="memory", found=_count(found, "folder"), problems=tuple(problems))


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


async def _deliveries(client: Client, now: datetime, *, alone: bool) -> Examined:
    pending, abandoned = await client.intents("pending"), await client.intents("abandoned")
    problems: list[Problem] = [
        Finding(
            code="delivery-waiting",
            message=f"{intent.id} has waited since "
            f"{intent.created_at.isoformat(timespec='seconds')}, attempts: {intent.attempt}",
            remedy="look at the deliverer, or acknowledge it if it arrived",
        )
        for intent in pending
        if now - intent.created_at > _LATE or intent.attempt > (0 if alone else 1)
    ]
    if problems and alone:
        problems.append(
            Finding(
                code="engine-missing",
                message=f"{_count(len(pending), 'message')} to deliver, and no engine",
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
        if now - intent.created_at < _LATELY
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
                    code="mail-poll-failed",
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


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
