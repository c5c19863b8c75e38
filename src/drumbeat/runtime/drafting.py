"""Lets the agent write a job file, and puts what keeps the contract into the workspace.

Theory of operation. Whatever the agent says is judged as the workspace would judge the file; what
is wrong goes back to it, twice. A file is created in one step, wholly or not at all, and never over
another one: also not over one that appeared while the agent was at work. Nothing here changes a
file that is there.
"""

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import attrs

from drumbeat.core.drafting import (
    JobDraft,
    read_draft,
    render_draft_context,
    render_problems,
)
from drumbeat.core.lint import lint_automation
from drumbeat.core.model import Draft
from drumbeat.core.overview import automation_lines
from drumbeat.core.webhooks import route_clashes
from drumbeat.errors import Problem, WorkspaceError
from drumbeat.runtime.clock import holding
from drumbeat.runtime.files import sync_folder
from drumbeat.runtime.listing import FOLDERS
from drumbeat.runtime.log import log
from drumbeat.runtime.services import Services
from drumbeat.runtime.talks import begin_talk
from drumbeat.runtime.workspace import judged

T = TypeVar("T")

_ANSWERS = 3
_JOBS = "jobs"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


@attrs.define(kw_only=True)
class Drafting:
    """One job that is being drafted."""

    services: Services

    async def draft(self, description: str, *, dry_run: bool) -> Draft:
        """As `Engine.draft_job`, whose docstring says what is raised."""
        workspace = self.services.workspace_dir
        await self._on_disk(lambda: _check_folder(workspace))
        talk = await begin_talk(self.services, "draft", context=self._context(), profile=None)
        prompt = description
        answer = ""
        problems: tuple[Problem, ...] = ()
        for _ in range(_ANSWERS):
            answer = (await talk.say(prompt)).text
            draft = read_draft(answer)
            if isinstance(draft, Problem):
                problems = (draft,)
            else:
                answer = draft.text
                problems = await self._problems(draft)
                path = workspace / _JOBS / f"{draft.slug}.md"
                if not problems and not dry_run:
                    problems = await self._written(path, draft)
                if not problems:
                    return Draft(text=draft.text, path=path, problems=())
            if any(problem.code.startswith("jobs-folder-") for problem in problems):
                break  # no answer would mend that
            prompt = self.services.redactor.text(render_problems(problems))
        return Draft(text=answer, path=None, problems=problems)

    def _context(self) -> str:
        services = self.services
        known = services.workspace.workspace
        return render_draft_context(
            zone=services.zones["job"][1],
            systems=sorted(services.mail),
            automations=automation_lines(known.automations, map(str, known.problems)),
        )

    async def _on_disk(self, call: Callable[[], T]) -> T:
        with holding(self.services.clock, "drafting a job"):
            return await self.services.threads.run(call)

    async def _problems(self, draft: JobDraft) -> tuple[Problem, ...]:
        """What keeps the draft from being a file of this workspace."""
        services = self.services
        path = Path(_JOBS, f"{draft.slug}.md")
        if services.redactor.text(draft.text) != draft.text:
            return (
                Problem(
                    code="draft-secret",
                    message="the value of a secret stands in the file",
                    remedy="take it out: the agent of the job has what it needs by other ways",
                    path=path,
                ),
            )
        job, problems = judged(draft.text.encode("utf-8", "surrogatepass"), path, services.mail)
        taken = await self._on_disk(lambda: _clash(services.workspace_dir, draft.slug))
        problems = (*problems, *taken)
        if job is not None:
            others = (
                other
                for other in services.workspace.workspace.automations
                if other.slug.casefold() != draft.slug.casefold()
            )
            problems += tuple(
                problem for problem in route_clashes([*others, job]) if problem.path == path
            )
            findings = lint_automation(
                draft.text,
                path=path,
                zone=services.zone("job"),
                now=services.clock.now(),
                kind="job",
            )
            problems += tuple(found for found in findings if found.severity == "error")
        return problems

    async def _written(self, path: Path, draft: JobDraft) -> tuple[Problem, ...]:
        """Create the file; what keeps it from being created."""
        workspace, data = self.services.workspace_dir, draft.text.encode("utf-8")
        try:
            problems = await self._on_disk(lambda: _create(workspace, draft.slug, data))
        except WorkspaceError as error:
            return error.problems
        except OSError as error:
            return (
                Problem(
                    code="jobs-folder-unwritable",
                    message=f"{path} could not be written: {error.strerror or error}",
                    remedy="let the engine's user write into `jobs/`, or put it there by hand",
                    path=path,
                ),
            )
        if not problems:
            log.info("job_drafted", slug=draft.slug, path=str(path))
        return problems


def _check_folder(workspace: Path) -> None:
    """Make sure that what is put into `jobs/` lands in the workspace.

    Raises:
        WorkspaceError: it is a link out of the workspace or into a hidden folder of it, or no
            folder.
    """
    folder = workspace / _JOBS
    if folder.is_dir():
        whole, real = workspace.resolve(), folder.resolve()
        inside = real.is_relative_to(whole)
        # Of what others keep in the workspace, such as hooks of Git, a link makes no jobs.
        if inside and not any(part.startswith(".") for part in real.relative_to(whole).parts):
            return
        where = "into a hidden folder" if inside else "out of the workspace"
        code, what = "jobs-folder-outside", f"{folder} is a link {where}"
    elif not os.path.lexists(folder):
        return
    else:
        code, what = "jobs-folder-unusable", f"{folder} is no folder"
    remedy = "let `jobs/` be a folder inside the workspace, or take it away"
    raise WorkspaceError((Problem(code=code, message=what, remedy=remedy, path=folder),))


def _names(workspace: Path) -> Iterable[Path]:
    for folder in FOLDERS:
        with suppress(FileNotFoundError):
            for entry in (workspace / folder).iterdir():
                yield entry.relative_to(workspace)


def _clash(workspace: Path, slug: str) -> tuple[Problem, ...]:
    """The files that there are whose slug is this one, case aside, whether they load or not."""
    if slug.casefold() == "readme":
        what = "a file of that name is read by people only"
        remedy = "choose another slug"
        return (Problem(code="slug-invalid", message=what, remedy=remedy),)
    return tuple(
        _taken(slug, path)
        for path in sorted(_names(workspace))
        if path.suffix.casefold() == ".md" and path.stem.casefold() == slug.casefold()
    )


def _taken(slug: str, by: Path) -> Problem:
    return Problem(
        code="slug-clash",
        message=f"{by} has that slug already, case aside",
        remedy="choose another slug",
        path=Path(_JOBS, f"{slug}.md"),
    )


def _create(workspace: Path, slug: str, data: bytes) -> tuple[Problem, ...]:
    """Create `jobs/<slug>.md` with all of `data`, unless there is such a file by now.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    folder = workspace / _JOBS
    folder.mkdir(exist_ok=True)
    _check_folder(workspace)
    taken = _clash(workspace, slug)
    if taken:
        return taken
    target = folder / f"{slug}.md"
    # With a dot before its name nobody reads it.
    partial = folder / f".{slug}.{token_hex(4)}.partial"
    try:
        _write_new(partial, data)
        try:
            os.link(partial, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # On a file system without links a reload may see half of it, and see all at the next.
            _write_new(target, data)
    except FileExistsError:
        # By the time it is looked for, what was in the way may be gone again.
        return _clash(workspace, slug) or (_taken(slug, Path(_JOBS, f"{slug}.md")),)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
    sync_folder(folder)
    return ()


def _write_new(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink()
        raise
