"""The command `drumbeat` as a whole."""

import click

from drumbeat import __version__
from drumbeat.cli.asking import ask, create_job
from drumbeat.cli.doctor import doctor
from drumbeat.cli.files import init, schema, validate
from drumbeat.cli.group import Commands, log_to_stderr
from drumbeat.cli.output import Output
from drumbeat.cli.records import runs, upcoming, why
from drumbeat.cli.running import run, serve
from drumbeat.cli.steering import cancel, pause, resume, rotate
from drumbeat.cli.watching import events, sessions, status

__all__ = ["drumbeat"]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.pass_context
def drumbeat(ctx: click.Context) -> None:
    """Agent work that runs unattended.

    The exit code is 0 when all is well, 1 when a file has problems or a run failed, and 2 when the
    command was used wrongly.
    """
    log_to_stderr("warning")
    ctx.obj = Output()


for _command in (
    init,
    validate,
    upcoming,
    run,
    serve,
    ask,
    create_job,
    status,
    runs,
    why,
    events,
    sessions,
    pause,
    resume,
    cancel,
    rotate,
    doctor,
    schema,
):
    drumbeat.add_command(_command)
