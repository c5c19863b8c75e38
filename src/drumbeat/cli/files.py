"""Commands about files: write a workspace, check what stands in one."""

import json
import os
from datetime import tzinfo
from functools import partial
from pathlib import Path

import anyio
import click

from drumbeat import DrumbeatError, Finding, SystemClock
from drumbeat.cli.checking import Checked, Zones, check_paths, check_workspace
from drumbeat.cli.group import FAILED, FOLDER
from drumbeat.cli.output import Output, visible
from drumbeat.cli.scaffold import scaffold
from drumbeat.core.model import Kind
from drumbeat.core.vocabulary import json_schema
from drumbeat.runtime.zones import resolve_zone, zones_for

__all__ = ["init", "schema", "validate"]


def _zone(name: str) -> tzinfo:
    try:
        return resolve_zone(name)
    except DrumbeatError as error:
        problem = error.problem
        raise click.BadParameter(visible(f"{problem.message}; {problem.remedy}")) from error


@click.command
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.pass_obj
def init(output: Output, folder: Path) -> None:
    """Write a small workspace into FOLDER (the current one by default).

    A file that is there already stays as it is.
    """
    for entry in scaffold(folder):
        why = "" if entry.outcome == "wrote" else " (it was there already)"
        output.line(f"{entry.outcome} {entry.path}{why}")
    output.line(f"The example is disabled. Check it with: drumbeat validate --workspace {folder}")


@click.command
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--workspace", type=FOLDER, help="Check a whole workspace.")
@click.option(
    "--zone",
    type=_zone,
    metavar="ZONE",
    help="The IANA zone for findings about schedules.",
    show_default="the one that rules each kind of file",
)
@click.pass_obj
def validate(
    output: Output, paths: tuple[Path, ...], workspace: Path | None, zone: tzinfo | None
) -> None:
    """Print every problem and finding of the files at PATHS, or of a whole workspace.

    Without PATHS the workspace is the current folder. A folder among PATHS is checked as a
    workspace if it is one, and stands for the *.md files in it if not. A file in a folder jobs/ is
    judged as a job, all else as an automation file. Exits with 1 on any problem and on findings of
    the severity error.
    """
    if paths and workspace is not None:
        msg = "give PATHS or --workspace, not both"
        raise click.UsageError(msg)
    now = SystemClock().now()
    ruling = zones_for(None, os.environ)
    zones: Zones = {kind: zone or found.tzinfo for kind, found in ruling.items()}
    if paths:
        checked = anyio.run(partial(check_paths, paths, zones=zones, now=now))
        if not checked:
            msg = f"there is no automation file in {', '.join(map(visible, paths))}"
            raise click.UsageError(msg)
    else:
        folder = workspace or Path()
        checked = anyio.run(partial(check_workspace, folder, zones=zones, now=now))
    for problem in (problem for entry in checked for problem in entry.problems):
        output.problem(problem)
    output.line(_summary(checked))
    if any(entry.failed for entry in checked):
        raise SystemExit(FAILED)


@click.command
@click.option(
    "--kind",
    type=click.Choice(("automation", "job")),
    default="automation",
    show_default=True,
    help="Which of the two kinds of file.",
)
def schema(kind: Kind) -> None:
    """Print the JSON schema of a file's front matter, for editors."""
    click.echo(json.dumps(json_schema(kind), indent=2))


def _summary(checked: list[Checked]) -> str:
    problems = [problem for entry in checked for problem in entry.problems]
    findings = [problem for problem in problems if isinstance(problem, Finding)]
    errors = sum(finding.severity == "error" for finding in findings)
    counts = (
        (len(problems) - len(findings), "problem"),
        (errors, "error"),
        (len(findings) - errors, "warning"),
    )
    found = ", ".join(_counted(number, noun) for number, noun in counts)
    files = sum(entry.policy for entry in checked)
    return f"{_counted(files, 'file')} checked: {found}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
