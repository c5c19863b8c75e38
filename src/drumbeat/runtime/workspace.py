"""The only reader of automation files: what stands in a workspace folder, and what changed there.

Theory of operation. A file costs `WorkspaceCache` one stat while its stamp is believed
(`stamps.py`). Links are read every time. Content that is unchanged is never parsed again.

What is missing is not what is gone: a file counts as removed after two reloads in a row, since
editors and version control replace files by taking them away first. The two folders are judged each
for itself. One that vanished with files in it is an error for as long as it is away, and its files
stand as they were last known: disks get unmounted, and a deploy may lay out half of a workspace.
Who means its files to go leaves it there, empty.
"""

import os
import stat
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path, PurePath
from typing import Literal

import anyio
import attrs

from drumbeat.core.automation_file import validate_automation_content
from drumbeat.core.job_file import validate_job_content
from drumbeat.core.model import Automation, Kind, Workspace
from drumbeat.core.routes import said_route
from drumbeat.core.slug import slug_clashes, slug_problem
from drumbeat.core.webhooks import route_clashes
from drumbeat.errors import AutomationError, Finding, NotFound, Problem, WorkspaceError
from drumbeat.runtime.file_problems import file_problem
from drumbeat.runtime.files import FileFault, read_inside
from drumbeat.runtime.listing import listed, lost_folders
from drumbeat.runtime.packs import load_packs
from drumbeat.runtime.stamps import LastRead, Stamp, stamp_of
from drumbeat.runtime.threads import Threads

FileState = Literal["there", "broken", "missing"]
"""How a file that loaded lies on the disk: broken by itself now, or not there, or neither."""


@attrs.frozen(kw_only=True)
class Survey:
    """What can be seen of a workspace, and what is wrong where files, or packs, cannot.

    `last_good` has, by slug, the last versions that loaded of broken files, as far as known.
    `unseen` is about the workspace and its two folders: there may be more files than are listed.
    """

    workspace: Workspace
    last_good: Mapping[str, Automation] = attrs.field(factory=dict)
    unseen: tuple[Problem, ...] = ()
    pack_problems: tuple[Problem, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong around the files."""
        return (*self.unseen, *self.pack_problems)

    def stands(self, slug: str) -> bool:
        """Whether a file for `slug` is seen, broken or not."""
        return self.workspace.stands(slug)


@attrs.frozen(kw_only=True)
class WorkspaceChange:
    """What a reload found: the workspace as it stands, and what is worse than at the last reload.

    `removed` holds the slugs whose files are gone, sorted. `broken` holds the keys of
    `workspace.problems` that are there for the first time or say something else. An `error` says
    what could not be read: one of the folders, or, when it was `blind`, all; then the workspace is
    the last one known, and nothing is listed.
    """

    workspace: Workspace
    removed: tuple[str, ...] = ()
    broken: tuple[Path, ...] = ()
    error: WorkspaceError | None = None
    blind: bool = False


async def load_workspace(
    path: str | PathLike[str], *, systems: Collection[str] | None = None
) -> Workspace:
    """Read a workspace once: the files that load, and why the others do not.

    Args:
        path: the workspace folder.
        systems: the mail systems the host has, for the inboxes of job files.

    Raises:
        WorkspaceError: the workspace is no folder that can be read (`workspace-missing`,
            `workspace-not-a-folder`, `workspace-unreadable`), or it has neither `automations/`
            nor `jobs/` (`automations-folder-missing`), or a pack is wrong. A broken automation
            file is never a reason.
    """
    found = await survey(path, systems=systems)
    if found.problems:
        raise WorkspaceError(found.unseen or found.pack_problems)
    return found.workspace


async def survey(
    path: str | PathLike[str],
    *,
    systems: Collection[str] | None = None,
    threads: Threads | None = None,
) -> Survey:
    """Read a workspace once, as far as it can be read; nothing wrong with it is raised.

    Args:
        path: the workspace folder.
        systems: the mail systems the host has, for the inboxes of job files.
        threads: where it is read; None for some of its own.
    """
    change = await WorkspaceCache(path, systems=systems, threads=threads).reload()
    packs, problems = await load_packs(Path(path), threads=threads)
    return Survey(
        workspace=attrs.evolve(change.workspace, packs=packs),
        unseen=() if change.error is None else change.error.problems,
        pack_problems=problems,
    )


async def workspace_findings(workspace: Workspace) -> list[Finding]:
    """What an author would want to know that no file shows by itself, in order of slug.

    Finds required files that hold nothing but white space (`required-file-empty`).
    """
    return await Threads().run(_findings, workspace)


def kind_of(workspace: Workspace, slug: str) -> Kind:
    """Which kind of file a slug names; one whose file is gone counts as an automation file."""
    automation = workspace.find(slug)
    if automation is not None:
        return automation.kind
    broken = (path for path in workspace.problems if path.stem == slug)
    return "job" if any(path.parent.name == "jobs" for path in broken) else "automation"


def standing_slugs(workspace: Workspace) -> set[str]:
    """The slugs of all files, broken ones included."""
    loaded = {automation.slug for automation in workspace.automations}
    return loaded.union(path.stem for path in workspace.problems)


class WorkspaceCache:
    """A workspace that is read again and again; nothing is read before the first `reload`.

    Args:
        path: the workspace folder.
        systems: the mail systems the host has, for the inboxes of job files.
        threads: where it is read; None for some of its own.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        systems: Collection[str] | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        self._systems = systems
        nothing = Workspace(path=self._path, automations=(), problems={}, packs=())
        self._seen = _Seen(workspace=nothing)
        self._lock = anyio.Lock()
        self._threads = threads or Threads()

    @property
    def workspace(self) -> Workspace:
        """The workspace as the last reload that succeeded left it."""
        return self._seen.workspace

    @property
    def slugs(self) -> frozenset[str]:
        """Those for which a file stands in it, broken or not."""
        return self._seen.slugs

    @property
    def paths(self) -> Mapping[str, str]:
        """By slug, where the file lies that stands in it, relative to it; broken or not."""
        return self._seen.paths

    @property
    def last_good(self) -> Mapping[str, Automation]:
        """By slug, the last version that loaded of every file that stands there, broken or not."""
        return self._seen.last_good

    @property
    def said_routes(self) -> Mapping[str, str]:
        """By slug, the webhook routes that broken job files seem to ask for."""
        return self._seen.said_routes

    async def expect(self, known: Collection[Path]) -> tuple[Problem, ...]:
        """Let files stand whose folder is away, since somebody knew them before; once, at first.

        Args:
            known: relative to the workspace.

        Returns:
            What is wrong with the folders that are away.
        """
        lost = await self._threads.run(lost_folders, self._path, known)
        files = dict(self._seen.files)
        for path in known:
            if path.parent.name in lost and path.stem not in self._seen.slugs:
                problem = attrs.evolve(lost[path.parent.name], path=path)
                files[path] = _File(problems=(problem,), cut_off=True)
        if lost:
            self._seen = _seen(self._path, files)
        return tuple(lost.values())

    async def reload(self, *, removing: bool = True) -> WorkspaceChange:
        """Look at the folder again, in a thread; concurrent calls wait for each other.

        Args:
            removing: whether this look counts as one of the two in a row without a file that it
                takes for the file to be removed. Looks that come by chance, one just after the
                other, must not.

        Returns:
            The change since the last reload. What of the workspace cannot be read is its `error`.
        """
        async with self._lock:
            before = self._seen

            def look() -> tuple[_Seen, WorkspaceChange]:
                files, faults = _scan(self._path, before.files, self._systems, removing=removing)
                after = _seen(self._path, files)
                wrong = WorkspaceError(faults) if faults else None
                return after, _change(before, after, wrong)

            try:
                self._seen, change = await self._threads.run(look)
            except WorkspaceError as error:
                return WorkspaceChange(workspace=before.workspace, error=error, blind=True)
            return change

    async def read(self, slug: str) -> Automation:
        """Read the file of `slug` from the disk as it is at this moment, in a thread.

        Raises:
            AutomationError: the file is broken, or clashes with another, or its folder cannot be
                read.
            NotFound: there is no such file at this moment; one that is being replaced may be back
                a moment later.
        """
        return await self._threads.run(_read, self._path, slug, self._seen.files, self._systems)

    async def file_state(self, automation: Automation) -> FileState:
        """How the file of one of its automations lies on the disk at this moment.

        One that is unchanged since the last reloads costs one stat. One that cannot be looked at
        counts as it was known. Runs in a thread.
        """
        path = Path(str(automation.path))
        return await self._threads.run(
            _file_state, self._path, path, self._seen.files.get(path), self._systems
        )


# ---- one file


@attrs.frozen(kw_only=True)
class _File:
    """What is known of a file; `missing` since the last reload, `good` the last that loaded.

    One is `cut_off` when a reload found that its folder has vanished. One with problems may have an
    `automation` all the same: it keeps the contract, and is not run.
    """

    automation: Automation | None = None
    problems: tuple[Problem, ...] = ()
    good: Automation | None = None
    said_route: str = ""
    last: LastRead = attrs.field(factory=LastRead)
    missing: bool = False
    cut_off: bool = False


@attrs.frozen(kw_only=True)
class _Seen:
    """What a look at the files found, and what is asked of it for each event and each turn."""

    workspace: Workspace
    files: Mapping[Path, _File] = attrs.field(factory=dict)
    slugs: frozenset[str] = frozenset()
    paths: Mapping[str, str] = attrs.field(factory=dict)
    last_good: Mapping[str, Automation] = attrs.field(factory=dict)
    said_routes: Mapping[str, str] = attrs.field(factory=dict)


def _look(
    root: Path,
    path: Path,
    entry: os.DirEntry[str],
    systems: Collection[str] | None,
    known: _File | None = None,
) -> _File | None:
    """Read a file unless it is known to be unchanged; None when it went away meanwhile."""
    good = None if known is None else known.good
    last = LastRead() if known is None else known.last
    misplaced = _misplaced(path, entry)
    if misplaced is not None:
        return _File(problems=(misplaced,), good=good)
    try:
        stamp = _stamp(entry.stat(follow_symlinks=False))
        if known is not None and last.holds(stamp):
            return attrs.evolve(known, missing=False, cut_off=False)
        data = read_inside(root, path)
    except FileNotFoundError:
        return None
    except FileFault as fault:
        if fault.kind == "missing" and not entry.is_symlink():
            return None
        return _File(problems=(_unreadable(path, fault),), good=good)
    except OSError as error:
        refused = FileFault("unreadable", f"{path} cannot be read: {error.strerror}")
        return _File(problems=(_unreadable(path, refused),), good=good)
    if known is not None and last.says(data):
        return attrs.evolve(known, last=last.then(stamp, data), missing=False, cut_off=False)
    automation, problems = judged(data, path, systems)
    is_job = path.parent.name == "jobs"
    return _File(
        automation=automation,
        problems=problems,
        good=good if problems else automation,
        said_route=said_route(data) if problems and is_job else "",
        last=last.then(stamp, data),
    )


def _stamp(info: os.stat_result) -> Stamp | None:
    if stat.S_ISLNK(info.st_mode):
        return None  # what it points to can change without a trace here
    return stamp_of(info)


def judged(
    data: bytes, path: Path, systems: Collection[str] | None
) -> tuple[Automation | None, tuple[Problem, ...]]:
    """Judge the text of a file as a workspace does, by where it lies.

    Args:
        data: what stands in the file.
        path: relative to the workspace.
        systems: the mail systems the host has.

    Returns:
        What it says, and what keeps it from being run.
    """
    try:
        if path.parent.name != "jobs":
            return validate_automation_content(data, path=path), ()
        return validate_job_content(data, path=path, systems=systems), ()
    except AutomationError as error:
        return None, error.problems


def _misplaced(path: Path, entry: os.DirEntry[str]) -> Problem | None:
    """Say what keeps a file from being looked at, or None when nothing does."""
    if path.suffix != ".md":
        return Problem(
            code="file-suffix",
            message=f"it ends in {path.suffix!r} and is not read",
            remedy=f"rename it to {path.stem}.md",
            path=path,
        )
    return slug_problem(path.stem, path) if path.name != entry.name else None


def _unreadable(path: Path, fault: FileFault) -> Problem:
    other = "move it elsewhere, or rename it so that it begins with _"
    return file_problem(fault, path, not_a_file=other)


# ---- the folder


def _scan(
    root: Path, known: Mapping[Path, _File], systems: Collection[str] | None, *, removing: bool
) -> tuple[dict[Path, _File], tuple[Problem, ...]]:
    """Look at every file; keep what is missing for the first time, drop what is missing again.

    Without `removing` everything that is missing is kept as it was known, and so is in any case
    what lies in a folder that cannot be read or has vanished.

    Returns:
        The files, and what is wrong with the folders.
    """
    listing = listed(root, known)
    files: dict[Path, _File] = {}
    for path, entry in sorted(listing.entries.items()):
        file = _look(root, path, entry, systems, known.get(path))
        if file is not None:
            files[path] = file
    present = {path.stem.casefold() for path in files}
    for path, file in known.items():
        moved = path.stem.casefold() in present
        if path in files or moved:
            continue
        if not removing:
            files[path] = file
        elif path.parent.name in listing.faults:
            cut_off = path.parent.name in listing.vanished
            # The looks without the folder are none at which the file could have been seen.
            files[path] = attrs.evolve(file, missing=False, cut_off=cut_off)
        elif not file.missing:
            files[path] = attrs.evolve(file, missing=True, cut_off=False)
    return files, tuple(listing.faults.values())


def _seen(root: Path, files: Mapping[Path, _File]) -> _Seen:
    workspace = _workspace(root, files)
    return _Seen(
        files=files,
        workspace=workspace,
        slugs=frozenset(standing_slugs(workspace)),
        paths={path.stem: str(path) for path in files},
        last_good={file.good.slug: file.good for file in files.values() if file.good is not None},
        said_routes={path.stem: file.said_route for path, file in files.items() if file.said_route},
    )


def _workspace(root: Path, files: Mapping[Path, _File]) -> Workspace:
    present = [path for path, file in files.items() if path.suffix == ".md" and not file.missing]
    clashes = _clashes(present, [files[path].automation for path in present])
    automations: list[Automation] = []
    problems: dict[Path, tuple[Problem, ...]] = {}
    for path, file in sorted(files.items()):
        found = (*file.problems, *clashes.get(path, ()))
        if found:
            problems[path] = found
        elif file.automation is not None:
            automations.append(file.automation)
    automations.sort(key=lambda automation: automation.slug)
    return Workspace(path=root, automations=tuple(automations), problems=problems, packs=())


def _clashes(
    paths: Collection[Path], read: Collection[Automation | None]
) -> dict[Path, list[Problem]]:
    """What stands between files: one slug or one route that two of them have, by path."""
    found: dict[Path, list[Problem]] = {}
    routed = route_clashes(automation for automation in read if automation is not None)
    for problem in (*slug_clashes(paths), *routed):
        assert problem.path is not None  # each is located at its file
        found.setdefault(Path(problem.path), []).append(problem)
    return found


def _change(before: _Seen, after: _Seen, error: WorkspaceError | None) -> WorkspaceChange:
    return WorkspaceChange(
        workspace=after.workspace,
        removed=tuple(sorted(before.slugs - after.slugs)),
        broken=tuple(
            path
            for path, problems in after.workspace.problems.items()
            if before.workspace.problems.get(path) != problems
        ),
        error=error,
    )


def _read(
    root: Path, slug: str, known: Mapping[Path, _File], systems: Collection[str] | None
) -> Automation:
    try:
        found = listed(root, known)
    except WorkspaceError as error:
        raise AutomationError(error.problems) from error
    listing = found.entries
    same = [
        path for path in listing if path.suffix == ".md" and path.stem.casefold() == slug.casefold()
    ]
    exact = [path for path in same if path.stem == slug]
    file = _look(root, exact[0], listing[exact[0]], systems) if exact else None
    if file is None:
        # A folder that has just vanished may be back a moment later, as a file may.
        lies = {
            path.parent.name
            for path, each in known.items()
            if path.stem == slug
            and path.parent.name in found.faults
            and (each.cut_off or path.parent.name not in found.vanished)
        }
        if lies:
            raise AutomationError([found.faults[folder] for folder in lies])
        raise NotFound(
            Problem(
                code="automation-not-found",
                message=f"there is no file {slug}.md in automations/ or jobs/",
                remedy="check the name: it is the file name without .md, as it stands",
            )
        )
    # Who shares its route need not be read for it: the last look at the folder found that.
    others = [
        other.automation
        for path, other in known.items()
        if path != exact[0] and other.automation is not None and not other.missing
    ]
    own = () if file.automation is None else (file.automation,)
    clashes = [
        problem
        for problem in (*slug_clashes(same), *route_clashes((*own, *others)))
        if problem.path == exact[0]
    ]
    if file.automation is None or file.problems or clashes:
        raise AutomationError((*file.problems, *clashes))
    return file.automation


def _file_state(
    root: Path, path: Path, known: _File | None, systems: Collection[str] | None
) -> FileState:
    try:
        if known is not None and known.last.holds(_stamp((root / path).lstat())):
            return "broken" if known.problems else "there"
        data = read_inside(root, path)
    except FileFault as fault:
        return "missing" if fault.kind == "missing" else "broken"
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "there"  # it cannot be looked at, so what is known of it stands
    if known is not None and known.last.says(data):
        return "broken" if known.problems else "there"
    return "broken" if judged(data, path, systems)[1] else "there"


def _findings(workspace: Workspace) -> list[Finding]:
    findings: list[Finding] = []
    for automation in workspace.automations:
        for name in dict.fromkeys(automation.requires):
            try:
                empty = not read_inside(workspace.path, PurePath(name)).strip()
            except FileFault:
                continue  # a tool, or a file whose lack aborts the run and says so
            if empty:
                findings.append(
                    Finding(
                        code="required-file-empty",
                        message=f"the required file {name} is empty",
                        remedy="write what the steps need into it, or take it out of `requires`",
                        path=automation.path,
                    )
                )
    return findings
