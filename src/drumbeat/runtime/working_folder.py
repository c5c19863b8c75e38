"""The folder that a run works in: what its file asks for, made ready before the first turn.

Theory of operation. An automation file works in the workspace, and nothing is laid there. A job
works in its run's own `work/`: a fresh clone, where its file names a repository, and then the
payload and the skills. Of a clone these are hidden (`clone.py`), so that the agent can add all that
it changed; a payload that cannot be hidden lies beside the clone.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import attrs

from drumbeat.core.git_access import fenced_env, git_env
from drumbeat.core.model import Automation, InboxTrigger, Kind, RunRecord, WebhookTrigger
from drumbeat.errors import AgentError, DrumbeatError, Problem
from drumbeat.runtime.clock import holding
from drumbeat.runtime.clone import Clone, clone_repository
from drumbeat.runtime.files import remedy_for
from drumbeat.runtime.log import log
from drumbeat.runtime.services import Services
from drumbeat.runtime.skills import lay_skills, skills_at_hand

_EVENT = "WEBHOOK_PAYLOAD.json"
_MAIL = "INBOX_TRIGGER.json"
_IGNORE_ALL = b"*\n"


@attrs.frozen(kw_only=True)
class WorkingFolder:
    """A folder that is ready to be worked in, and what stands in it for the turns."""

    path: Path
    skills: tuple[Path, ...]
    payload: Path | None


def folder_env(
    services: Services, env: Mapping[str, str], cwd: Path, *, kind: Kind, repo: str | None
) -> dict[str, str]:
    """The environment of whoever works in a run's folder.

    Args:
        services: the engine's.
        env: what all tools of the run have.
        cwd: the folder.
        kind: of the file that the run is, or was, of.
        repo: the address of what was, or is to be, cloned there.
    """
    if kind != "job":
        return dict(env)
    if repo is None:
        return fenced_env(env, folder=str(cwd.parent))
    return git_env(
        env,
        address=repo,
        hosts=services.settings.git_hosts,
        token=services.git_token,
        folder=str(cwd.parent),
    )


async def standing_skills(services: Services, kind: Kind, cwd: Path) -> tuple[Path, ...]:
    """The skills for a folder as it stands; nothing is laid.

    Raises:
        DrumbeatError: one of the workspace's or the engine's is damaged.
    """
    with holding(services.clock, "skills"):
        ours = await services.skills.skills()
        if kind != "job":
            return tuple(ours.values())
        return await skills_at_hand(ours, cwd, threads=services.threads)


async def skills_for_turn(services: Services, kind: Kind, cwd: Path) -> tuple[Path, ...]:
    """The same for a turn that is no part of a run.

    Raises:
        AgentError: one of the workspace's or the engine's is damaged.
    """
    try:
        return await standing_skills(services, kind, cwd)
    except DrumbeatError as error:
        raise AgentError(error.problem.message, code=error.problem.code) from error


async def make_ready(
    services: Services,
    automation: Automation,
    record: RunRecord,
    *,
    cwd: Path,
    env: Mapping[str, str],
    limit: timedelta,
) -> WorkingFolder:
    """Make the folder of a run ready.

    Args:
        services: the engine's.
        automation: what its file says.
        record: the run.
        cwd: where it works.
        env: what `folder_env` made.
        limit: how long the run has left.

    Raises:
        DrumbeatError: a folder, a clone, the payload or a skill could not be had; no turn is spent.
    """
    if automation.kind != "job":
        skills = await standing_skills(services, automation.kind, cwd)
        payload = await _payload(services, record)
        return WorkingFolder(path=cwd, skills=skills, payload=payload)
    with holding(services.clock, "skills"):
        ours = await services.skills.skills()
    try:
        await services.artifacts.prepare(cwd)
    except OSError as error:
        raise _unwritable(cwd, error) from error
    clone = None
    if automation.repo is not None:
        clone = await _cloned(services, record, automation.repo, cwd=cwd, env=env, limit=limit)
        await services.threads.run(_refuse_clash, automation, record, cwd)
    payload = await _payload(services, record)
    with holding(services.clock, "skills"):
        laid = await lay_skills(ours, cwd, threads=services.threads)
        if clone is not None:
            try:
                payload = await _hide(clone, laid.names, payload)
            except OSError as error:
                raise _unwritable(cwd, error) from error
    return WorkingFolder(path=cwd, skills=laid.paths, payload=payload)


async def _cloned(
    services: Services,
    record: RunRecord,
    address: str,
    *,
    cwd: Path,
    env: Mapping[str, str],
    limit: timedelta,
) -> Clone:
    began = services.clock.monotonic()
    with holding(services.clock, f"cloning {address}"):
        clone = await clone_repository(
            address,
            cwd,
            env=env,
            timeout=min(limit, services.settings.clone_timeout),
            threads=services.threads,
        )
        commit = await clone.commit()
    log.info(
        "repo_cloned",
        slug=record.slug,
        run_id=record.run_id,
        repo=address,
        commit=commit,
        seconds=round(services.clock.monotonic() - began, 3),
    )
    return clone


async def _payload(services: Services, record: RunRecord) -> Path | None:
    payload = record.fire.payload
    if payload is None:
        return None
    name = _payload_name(record)
    try:
        return await services.artifacts.payload(record.slug, record.run_id, name, payload)
    except OSError as error:
        raise DrumbeatError(
            Problem(
                code="payload-unwritable",
                message=f"{name} could not be written: {error.strerror or error}",
                remedy=remedy_for(error, "let the engine write into the data folder")
                + "; the payload itself is kept in the store",
            )
        ) from error


def _payload_name(record: RunRecord) -> str:
    return _MAIL if record.fire.cause == "inbox" else _EVENT


def _refuse_clash(automation: Automation, record: RunRecord, cwd: Path) -> None:
    """Refuse a repository with a file of a payload's name: prompts name it, and mean ours.

    A job that takes events or mail looks for them under either name, whatever this run is for: in
    one that nobody sent anything for, such a file would be an event that a repository made up.
    """
    takes = any(isinstance(each, WebhookTrigger | InboxTrigger) for each in automation.triggers)
    names = {_EVENT, _MAIL} if takes else set()
    if record.fire.payload is not None:
        names.add(_payload_name(record))
    for name in sorted(names):
        if os.path.lexists(cwd / name):
            raise DrumbeatError(
                Problem(
                    code="payload-blocked",
                    message=f"the repository has a {name} of its own, where this job looks for "
                    "what came from outside",
                    remedy="rename that file in the repository",
                )
            )


async def _hide(clone: Clone, skills: tuple[str, ...], payload: Path | None) -> Path | None:
    """Keep git from picking up what was laid into a clone; say where the payload is then."""
    name = None if payload is None else payload.name
    names = [*skills, *([name] if name else [])]
    await clone.exclude(names)
    seen = await clone.picked_up(names)
    if payload is not None and name in seen:
        beside = clone.folder.parent / payload.name
        await clone.threads.run(payload.rename, beside)
        payload = beside
    for skill in skills:
        if not any(each.startswith(f"{skill}/") for each in seen):
            continue
        # The nearest file has the last word, and is not read below a folder that it leaves out.
        await clone.threads.run((clone.folder / skill / ".gitignore").write_bytes, _IGNORE_ALL)
    return payload


def _unwritable(folder: Path, error: OSError) -> DrumbeatError:
    return DrumbeatError(
        Problem(
            code="work-folder-unwritable",
            message=f"{folder} could not be made ready: {error.strerror or error}",
            remedy=remedy_for(error, "let the engine write into the data folder"),
        )
    )
