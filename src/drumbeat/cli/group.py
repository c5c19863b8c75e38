"""What all commands share: the group they belong to, how errors end it, options, the log."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import click
import structlog

from drumbeat import AgentError, DrumbeatError, NotFound
from drumbeat.cli.output import Output, visible
from drumbeat.runtime.listing import FOLDERS

__all__ = [
    "FAILED",
    "FOLDER",
    "Commands",
    "InWorkspace",
    "OnRecords",
    "check_data_dir",
    "data_dir_option",
    "log_to_stderr",
    "workspace_option",
]

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What puts an option onto a command."""
FAILED = 1
"""The exit code for a file with problems, a run that did not succeed, a refusal of the library."""
MISUSED = 2
"""The exit code for wrong usage, as click has it."""
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
"""The type of an argument that names a folder which is there."""


class _Failure(click.ClickException):
    """An error of the library, said as it says it and without a traceback."""

    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        """Print the message to standard error."""
        Output().error(self.message, lines=True)


class _Misuse(_Failure):
    """The same, for something that was named wrongly."""

    exit_code = MISUSED


class Commands(click.Group):
    """The group: its commands may raise what the library raises."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the words before the name of a command."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.exceptions.NoArgsIsHelpError:
            raise  # it shows the help as click lays it out
        except click.UsageError as error:
            raise _readable(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what the library refuses becomes a message and an exit code."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _readable(error) from error
        except DrumbeatError as error:
            raise _failure(error) from error
        except ExceptionGroup as group:
            ours, rest = group.split(DrumbeatError)
            if ours is None or rest is not None:
                raise
            raise _failure(*_leaves(ours)) from group
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise _Failure(visible(f"{where}{error.strerror or error}")) from error


def _readable(error: click.UsageError) -> click.UsageError:
    """The same, with escapes shown: a word that it quotes may be a file's name, as `*` gives it."""
    return click.UsageError(visible(error.format_message(), lines=True), error.ctx)


def _failure(*errors: DrumbeatError) -> _Failure:
    kind = _Misuse if all(isinstance(error, NotFound) for error in errors) else _Failure
    # That of an agent's failure is its message alone, which no code stands beside here.
    said = (error.problem if isinstance(error, AgentError) else error for error in errors)
    return kind("\n".join(visible(each, lines=True) for each in said))


def _leaves(group: ExceptionGroup[Any]) -> list[DrumbeatError]:
    leaves: list[DrumbeatError] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, ExceptionGroup) else [error]
    return leaves


class InWorkspace(click.Command):
    """A command for a workspace; a folder that cannot be the one that is meant is wrong usage."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, unless there is neither a workspace nor the state of one."""
        workspace, data_dir = ctx.params["workspace"], ctx.params["data_dir"]
        state = data_dir or workspace / ".drumbeat"
        if not (state.exists() or any((workspace / name).exists() for name in FOLDERS)):
            msg = f"{visible(workspace.absolute())} is no workspace: it has no folder automations/"
            raise click.BadParameter(msg, ctx, param_hint="--workspace")
        return super().invoke(ctx)


class OnRecords(InWorkspace):
    """A command that goes by what engines left: a data folder that is named has to be there."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, unless a data folder is named that does not exist."""
        check_data_dir(ctx.params["data_dir"])
        return super().invoke(ctx)


def check_data_dir(data_dir: Path | None) -> None:
    """Refuse a data folder that was named and is not there: nothing would be found in it.

    Raises:
        click.BadParameter: there is no such folder.
    """
    if data_dir is not None and not data_dir.exists():
        msg = f"there is no folder {visible(data_dir)}"
        raise click.BadParameter(msg, param_hint="--data-dir")


workspace_option: Decorator = click.option(
    "--workspace",
    type=FOLDER,
    default=Path(),
    help="The folder that holds automations/.",
    show_default="the current folder",
)
data_dir_option: Decorator = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the engine keeps its state.",
    show_default="WORKSPACE/.drumbeat",
)


def log_to_stderr(level: str) -> None:
    """Log as `key='value'` lines: Python's quoting leaves no escape sequence alive."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
