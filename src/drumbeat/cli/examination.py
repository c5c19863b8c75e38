"""What `drumbeat doctor` looks at, each area by itself, so that one failing hides no other."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from anyio import to_thread

from drumbeat import (
    DrumbeatError,
    Env,
    Finding,
    Problem,
    Settings,
    SystemClock,
    WebhookTrigger,
    Workspace,
)
from drumbeat.cli.checking import check_workspace
from drumbeat.cli.examined import LATELY, Examined, alone, counted
from drumbeat.cli.examined_records import examine_records
from drumbeat.core.git_access import TOKEN, git_token, may_have_token
from drumbeat.core.model import Kind
from drumbeat.core.signatures import parse_auth
from drumbeat.runtime.clone import no_git
from drumbeat.runtime.config_files import ConfigFiles
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.rules import Rules, read_rules
from drumbeat.runtime.search_path import find_executable, search_path
from drumbeat.runtime.skills import Layers
from drumbeat.runtime.state import State, open_to_others
from drumbeat.runtime.store_problems import store_away
from drumbeat.runtime.store_schema import SCHEMA_VERSION
from drumbeat.runtime.store_schema import examine as examine_store
from drumbeat.runtime.threads import Threads
from drumbeat.runtime.workspace import Survey, survey
from drumbeat.runtime.zones import GIVEN, system_zone_problem, zones_for

__all__ = ["examine"]

_ROOM = 16 * 1024 * 1024
"""Bytes that an engine should find free: what its store writes within minutes."""

_LEASE = timedelta(minutes=5)
"""Asked for with a store, and taken by nobody who only reads."""


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
    folder = data_dir or workspace / ".drumbeat"
    seen = await survey(workspace)  # what is wrong with it is said under `workspace`
    known = seen.workspace
    areas = [
        await alone("workspace", lambda: _files(workspace, env, now, seen)),
        await alone("configuration", lambda: _configuration(workspace, env)),
        await alone("skills", lambda: _skills(workspace)),
    ]
    if repos := sorted({job.repo for job in known.automations if job.repo is not None}):
        areas.append(await alone("repositories", lambda: _repositories(repos, known, env)))
    if doors := [
        (automation.slug, trigger)
        for automation in known.automations
        for trigger in automation.triggers
        if isinstance(trigger, WebhookTrigger)
    ]:
        areas.append(_webhooks(doors, env))
    areas += [
        await alone("zones", lambda: _zones(folder, env, now)),
        await alone("data folder", lambda: to_thread.run_sync(_data_folder, folder)),
        database := await alone("database", lambda: _database(folder)),
    ]
    if not database.failed:
        areas += [area async for area in examine_records(workspace, folder, env, now)]
    return areas


# ---- policy


async def _files(workspace: Path, env: Env, now: datetime, seen: Survey) -> Examined:
    try:
        zones = zones_for(None, env)
    except DrumbeatError:
        zones = zones_for("UTC", {})  # what is wrong is said under `zones`
    checked = await check_workspace(
        workspace,
        zones={kind: zone.tzinfo for kind, zone in zones.items()},
        now=now,
        configuration=False,  # an area of its own
        seen=seen,
    )
    problems = tuple(problem for entry in checked for problem in entry.problems)
    files = sum(entry.policy for entry in checked)
    return Examined(name="workspace", found=counted(files, "file"), problems=problems)


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
    skills = await Layers(workspace=await to_thread.run_sync(workspace.absolute)).skills()
    return Examined(name="skills", found=counted(len(skills), "skill"))


async def _repositories(repos: Sequence[str], known: Workspace, env: Env) -> Examined:
    """What the clones of jobs need."""
    try:
        settings = Settings.from_env(env)
    except DrumbeatError:
        settings = Settings()  # said under `configuration`
    problems: list[Problem] = []
    path = search_path(workspace=known.path, packs=known.packs, base=env.get("PATH", os.defpath))
    find_git = partial(find_executable, "git", path=path, cwd=known.path)
    if await to_thread.run_sync(find_git) is None:
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
    found = counted(len(repos), "address", "addresses")
    return Examined(name="repositories", found=found, problems=tuple(problems))


def _webhooks(doors: Sequence[tuple[str, WebhookTrigger]], env: Env) -> Examined:
    problems = tuple(
        Finding(
            code="webhook-secret-missing",
            message=f"{secret} is not set, so {slug} refuses whoever sends to it",
            remedy=f"set {secret} where the engine runs",
        )
        for slug, trigger in doors
        if not env.get(secret := parse_auth(trigger.auth).secret_name, "").strip()
    )
    return Examined(name="webhooks", found=counted(len(doors), "route"), problems=problems)


async def _zones(folder: Path, env: Env, now: datetime) -> Examined:
    """The zones by this environment, and those of the engine that last held the folder."""
    try:
        here = zones_for(None, env)
    except DrumbeatError as error:
        return Examined(name="zones", found="no zone", problems=(error.problem,))
    named = {kind: (zone.name, zone.source) for kind, zone in here.items()}
    rules = await _rules(folder)
    ruling, problems = named, list[Problem]()
    if rules is not None:
        ruling = {kind: (name, source) for kind, (_, name, source) in rules.zones.items()}
        problems += _moved(rules, now)
    found = _zones_told(named)
    if [name for name, _ in ruling.values()] != [name for name, _ in named.values()]:
        found = (
            f"{_zones_told(ruling)} in the engine that last held the data folder; "
            f"by the environment of this command {found}"
        )
    problem = system_zone_problem()
    if problem is not None and ruling["automation"][1] != GIVEN:
        problems.append(problem)
    return Examined(name="zones", found=found, problems=tuple(problems))


async def _rules(folder: Path) -> Rules | None:
    """What the records tell of the engine that last held the folder, None if they cannot be."""
    threads = Threads()
    state = State(
        folder, store=None, clock=SystemClock(), lease=_LEASE, redact=str, threads=threads
    )
    try:
        return await read_rules(await state.readable(), threads=threads)
    except DrumbeatError:
        return None  # said under `database` or `records`
    finally:
        await state.close()


def _moved(rules: Rules, now: datetime) -> Iterator[Problem]:
    for kind, (before, given, at) in rules.moved.items():
        if now - at < LATELY:
            _, name, source = rules.zones[kind]
            variable = "TIMEZONE" if kind == "job" else "TZ"
            mended = (
                f"Engine(timezone={before!r}), or drumbeat serve --timezone {before}"
                if given == GIVEN
                else f"{variable}={before} in its environment"
            )
            yield Finding(
                code="zone-changed",
                message=f"{kind}s keep to the wall clock of {name} ({source}) since "
                f"{at.isoformat(timespec='seconds')}, and kept to that of {before} before",
                remedy=f"if that is not meant, start the engine with {before}: {mended}",
            )


def _zones_told(zones: Mapping[Kind, tuple[str, str]]) -> str:
    return ", ".join(f"{kind} {name} ({source})" for kind, (name, source) in zones.items())


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


async def _database(folder: Path) -> Examined:
    holder = await EngineLock(folder).holder()
    return await to_thread.run_sync(_database_file, folder / "drumbeat.db", holder)


def _database_file(path: Path, holder: str | None) -> Examined:
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
