"""Files in, everything that is wrong with them out: what `drumbeat validate` prints."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TypeAlias

import attrs
from anyio import to_thread

from drumbeat import (
    Automation,
    AutomationError,
    Finding,
    Problem,
    Workspace,
    WorkspaceError,
    lint_automation,
    validate_automation_content,
    validate_job_content,
)
from drumbeat.core.file_text import decode
from drumbeat.core.findings import secret_findings
from drumbeat.core.model import Kind
from drumbeat.runtime.config_files import load_config_layers
from drumbeat.runtime.listing import FOLDERS, buried
from drumbeat.runtime.packs import misnamed_list, pack_findings
from drumbeat.runtime.requirements import check_requirements
from drumbeat.runtime.search_path import find_executable, not_found, search_path
from drumbeat.runtime.system_prompt import look_at_system_prompt
from drumbeat.runtime.workspace import Survey, survey, workspace_findings
from drumbeat.runtime.written_secrets import written_secrets

_TOOLS = frozenset({"requirement-tool-missing", "inject-tool-missing"})

Zones: TypeAlias = Mapping[Kind, tzinfo]
"""The zones that rule the two kinds of file."""


@attrs.frozen(kw_only=True)
class Checked:
    """One file, or the workspace around the files, and what was found in it.

    `policy` says that it is a file that is there to be run.
    """

    path: Path
    problems: tuple[Problem, ...]
    policy: bool = True

    @property
    def failed(self) -> bool:
        """Whether something stands against it: a refusal or a finding of the severity `error`."""
        return any(
            not isinstance(problem, Finding) or problem.severity == "error"
            for problem in self.problems
        )


async def check_paths(paths: Sequence[Path], *, zones: Zones, now: datetime) -> list[Checked]:
    """Check files each by itself, workspaces whole, and the `*.md` files of other folders.

    As in a workspace, README.md, dotfiles and names that begin with `_` are left out of a folder.
    """
    checked: list[Checked] = []
    for path in paths:
        if any((path / name).is_dir() for name in FOLDERS):
            checked += await check_workspace(path, zones=zones, now=now)
        else:
            files = _files(path) if path.is_dir() else [path]
            checked += [_check_file(file, zones=zones, now=now) for file in files]
    return checked


async def check_workspace(
    folder: Path,
    *,
    zones: Zones,
    now: datetime,
    configuration: bool = True,
    seen: Survey | None = None,
) -> list[Checked]:
    """Check a workspace: what is wrong around its files, between them and in each.

    An engine that starts on it here and now refuses what is a problem of the folder, of a pack or
    of the agent's configuration, and aborts the runs whose requirements are not met or that lack
    the rules of `SYSTEM.md`.

    Args:
        folder: the workspace.
        zones: by kind of file.
        now: the present instant.
        configuration: whether that of the agent is checked, too.
        seen: what stands there, if that was read already.
    """
    around: list[Problem] = [*await misnamed_list(folder), *await look_at_system_prompt(folder)]
    if configuration:
        try:
            await load_config_layers(folder, os.environ)
        except WorkspaceError as error:
            around += error.problems
    seen = seen or await survey(folder)
    workspace, around = seen.workspace, [*seen.problems, *around]
    policy = {*workspace.problems, *(Path(str(each.path)) for each in workspace.automations)}
    found = {path: list(problems) for path, problems in workspace.problems.items()}
    for automation in workspace.automations:
        assert automation.path is not None  # it was read from a file
        path = Path(automation.path)
        checked = _check_file(folder / path, zones=zones, now=now)
        found.setdefault(path, []).extend(checked.problems)
        unmet = await _unmet(automation, workspace)
        # What is not found may stand in a pack that is broken.
        found[path] += [each for each in unmet if not (seen.pack_problems and each.code in _TOOLS)]
    for finding in (
        *await workspace_findings(workspace),
        *await pack_findings(workspace),
        *await written_secrets(workspace),
        *await to_thread.run_sync(_buried, folder),
    ):
        assert finding.path is not None  # it is about a file
        found.setdefault(Path(finding.path), []).append(finding)
    return _around(folder, around) + [
        Checked(
            path=folder / path,
            problems=tuple(_at(folder / path, problem) for problem in some),
            policy=path in policy,
        )
        for path, some in sorted(found.items())
    ]


def _buried(folder: Path) -> list[Finding]:
    return [
        Finding(
            code="file-in-subfolder",
            message=f"it is not read: only files that stand in {path.parts[0]}/ itself are",
            remedy=f"move it up into {path.parts[0]}/, or let its folder's name begin with _",
            path=path,
        )
        for path in buried(folder)
    ]


def _around(folder: Path, problems: Sequence[Problem]) -> list[Checked]:
    """What is wrong around the files, each with its place: one entry, and none without problems."""
    placed = tuple(
        problem if problem.path is None else _at(folder / problem.path, problem)
        for problem in problems
    )
    return [Checked(path=folder, problems=placed, policy=False)] if placed else []


async def _unmet(automation: Automation, workspace: Workspace) -> list[Finding]:
    """What a run of it would lack here: files are part of the workspace, tools of the machine."""
    path = search_path(
        workspace=workspace.path, packs=workspace.packs, base=os.environ.get("PATH", os.defpath)
    )
    _, unmet = await check_requirements(
        automation, workspace=workspace.path, packs=workspace.packs, search_path=path
    )
    findings = [
        Finding(
            **attrs.asdict(problem, recurse=False),
            severity="warning" if problem.code == "requirement-tool-missing" else "error",
        )
        for problem in unmet
    ]
    for tool in dict.fromkeys(spec.argv[0] for spec in automation.inject):
        if said := await to_thread.run_sync(_not_found, tool, path, workspace.path):
            where = "the workspace" if "/" in tool else "bin/ of it or of packs, nor on PATH"
            findings.append(
                Finding(
                    code="inject-tool-missing",
                    message=f"{said} in {where}, so a run would abort",
                    remedy="create or install it, make it executable, or correct `argv`; nothing "
                    "is wrong if it is there where the engine runs",
                    path=automation.path,
                )
            )
    return findings


def _not_found(tool: str, path: Sequence[Path], workspace: Path) -> str:
    if find_executable(tool, path=path, cwd=workspace) is not None:
        return ""
    return not_found(tool, path=path, cwd=workspace)


def _at(path: Path, problem: Problem) -> Problem:
    """A problem whose place can be opened from the current folder."""
    return attrs.evolve(problem, path=path)


def _secrets(data: bytes, path: Path) -> list[Finding]:
    """What looks like a secret in a file that does not load."""
    try:
        text = decode(data)
    except AutomationError:
        return []
    return [attrs.evolve(finding, path=path) for finding in secret_findings(text)]


def _files(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.glob("*.md"))
        if path.name.lower() != "readme.md" and not path.name.startswith((".", "_"))
    ]


def _check_file(path: Path, *, zones: Zones, now: datetime) -> Checked:
    try:
        text = path.read_bytes()
    except OSError as error:
        problem = Problem(
            code="file-unreadable",
            message=f"the file cannot be read: {error.strerror}",
            remedy="check that it is there, that it is a file, and that you may read it",
            path=path,
        )
        return Checked(path=path, problems=(problem,))
    # Where it stands decides, from whichever folder it is named.
    kind: Kind = "job" if path.absolute().parent.name == "jobs" else "automation"
    validate = validate_job_content if kind == "job" else validate_automation_content
    try:
        validate(text, path=path)
    except AutomationError as error:
        return Checked(path=path, problems=(*error.problems, *_secrets(text, path)))
    findings = lint_automation(text, path=path, zone=zones[kind], now=now, kind=kind)
    return Checked(path=path, problems=tuple(findings))
