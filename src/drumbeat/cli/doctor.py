"""The command that looks for whatever keeps a workspace from running well."""

import os
from functools import partial
from pathlib import Path

import anyio
import click

from drumbeat import SystemClock
from drumbeat.cli.examination import examine
from drumbeat.cli.examined import Examined
from drumbeat.cli.group import FAILED, data_dir_option, log_to_stderr, workspace_option
from drumbeat.cli.output import Output, visible

__all__ = ["doctor"]


@click.command
@workspace_option
@data_dir_option
@click.pass_obj
def doctor(output: Output, workspace: Path, data_dir: Path | None) -> None:
    """Check files, packs, configuration, zones, data folder, deliveries and the clock.

    Works beside an engine. Exits with 1 on any problem and on findings of the severity error.
    """
    log_to_stderr("error")  # what is wrong is said once, in its area
    now = SystemClock().now()
    examined = anyio.run(
        partial(examine, workspace, data_dir=data_dir, env=dict(os.environ), now=now)
    )
    for area in examined:
        _print(output, area)
    if any(area.failed for area in examined):
        raise SystemExit(FAILED)


def _print(output: Output, area: Examined) -> None:
    mark = "FAIL" if area.failed else "warn" if area.problems else "ok"
    output.line(f"{mark:<5}{area.name}: {visible(area.found)}")
    for problem in area.problems:
        output.problem(problem)
