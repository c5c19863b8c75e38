"""Commands that ask something of the engine that holds the data folder."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import click

from drumbeat import Client
from drumbeat.cli.group import OnRecords, data_dir_option, workspace_option
from drumbeat.cli.output import Output, visible

__all__ = ["cancel", "pause", "resume", "rotate"]

T = TypeVar("T")

_reason = click.option(
    "--reason", required=True, help="Why, in a few words: it is kept in the records."
)


@click.command(cls=OnRecords)
@click.argument("slug")
@_reason
@workspace_option
@data_dir_option
@click.pass_obj
def pause(output: Output, slug: str, reason: str, workspace: Path, data_dir: Path | None) -> None:
    """Let the automation SLUG start no more by itself, until it is resumed.

    What falls due meanwhile is recorded as skipped. Running it by hand still works.
    """
    _ask(workspace, data_dir, lambda client: client.pause(slug, reason))
    output.line(f"{visible(slug)} is paused")


@click.command(cls=OnRecords)
@click.argument("slug")
@workspace_option
@data_dir_option
@click.pass_obj
def resume(output: Output, slug: str, workspace: Path, data_dir: Path | None) -> None:
    """Let the paused automation SLUG go on. What was skipped is not made up for."""

    async def ask(client: Client) -> bool:
        paused = slug in (await client.status()).paused
        await client.resume(slug)
        return paused

    went_on = _ask(workspace, data_dir, ask)
    output.line(f"{visible(slug)} {'goes on' if went_on else 'was not paused'}")


@click.command(cls=OnRecords)
@click.argument("run_id", metavar="RUN")
@_reason
@workspace_option
@data_dir_option
@click.pass_obj
def cancel(
    output: Output, run_id: str, reason: str, workspace: Path, data_dir: Path | None
) -> None:
    """Ask for the end of RUN, which is going; see `drumbeat status`."""

    async def ask(client: Client) -> bool:
        await client.cancel(run_id, reason)
        return (await client.find_run(run_id)).state == "cancelled"

    over = _ask(workspace, data_dir, ask)
    run = visible(run_id)
    output.line(f"{run} is over: it was cancelled" if over else f"asked to cancel {run}")


@click.command(cls=OnRecords)
@click.argument("slug")
@_reason
@workspace_option
@data_dir_option
@click.pass_obj
def rotate(output: Output, slug: str, reason: str, workspace: Path, data_dir: Path | None) -> None:
    """Ask that the next run of SLUG begins another conversation.

    It takes effect when no run of SLUG is going. Works for an orphan of `drumbeat sessions` too.
    """

    async def ask(client: Client) -> bool:
        pinned = slug in await client.sessions()
        await client.rotate(slug, reason)
        return pinned

    pinned = _ask(workspace, data_dir, ask)
    output.line(f"asked to rotate {visible(slug)}")
    if not pinned:
        output.line("no conversation is pinned for it, so its next run begins one in any case")


def _ask(workspace: Path, data_dir: Path | None, request: Callable[[Client], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with Client(workspace, data_dir=data_dir) as client:
            return await request(client)

    return anyio.run(ask)
