"""Commands that read: what comes, what went, and why."""

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import click

from drumbeat import (
    Client,
    Due,
    RunRecord,
    ScheduleTrigger,
    SystemClock,
    Workspace,
    load_workspace,
)
from drumbeat.cli.group import data_dir_option, workspace_option
from drumbeat.cli.output import Output, local, visible
from drumbeat.runtime.zones import Zone, zones_for

__all__ = ["runs", "upcoming", "why"]


@click.command
@click.option("--days", type=click.IntRange(1, 366), default=7, show_default=True)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="The most moments to print.",
)
@workspace_option
@data_dir_option
@click.pass_obj
def upcoming(output: Output, days: int, limit: int, workspace: Path, data_dir: Path | None) -> None:
    """Print what the schedules of a workspace bring, and in which zone. Writes nothing."""
    anyio.run(_upcoming, output, days, limit, workspace, data_dir)


async def _upcoming(
    output: Output, days: int, limit: int, workspace: Path, data_dir: Path | None
) -> None:
    now = SystemClock().now()
    async with Client(workspace, data_dir=data_dir) as client:
        due = await client.upcoming(until=now + timedelta(days=days))
        paused = (await client.status()).paused
    zone = _system_zone(output)
    for line in _never_due(await load_workspace(workspace)):
        output.error(line)
    if not due:
        output.line(f"Nothing comes within {days} days.")
        return
    output.table(
        ("when", "automation", ""),
        (
            (
                local(moment.slot, zone.tzinfo),
                moment.slug,
                _remark(moment, paused=moment.slug in paused),
            )
            for moment in due[:limit]
        ),
    )
    if len(due) > limit:
        output.line(f"… and {len(due) - limit} more; see --limit.")


def _remark(due: Due, *, paused: bool) -> str:
    if paused:
        return "paused"
    return "missed" if due.missed else f"+{due.folded} folded" if due.folded else ""


def _never_due(workspace: Workspace) -> Iterator[str]:
    """What somebody may look for in vain: files that do not load, expressions nobody can read."""
    for path in sorted(workspace.problems):
        yield f"{visible(path)} does not load, so nothing of it comes; see drumbeat validate"
    for automation in workspace.automations:
        for trigger in automation.triggers:
            unreadable = isinstance(trigger, ScheduleTrigger) and trigger.schedule is None
            if unreadable and automation.enabled:
                yield (
                    f"{visible(automation.slug)} is never due: its schedule cannot be read; "
                    "see drumbeat validate"
                )


@click.command
@click.argument("slug", required=False)
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="The most runs to print."
)
@workspace_option
@data_dir_option
@click.pass_obj
def runs(
    output: Output, slug: str | None, limit: int, workspace: Path, data_dir: Path | None
) -> None:
    """Print the latest runs, the last one first, of SLUG or of all automations."""
    anyio.run(_runs, output, slug, limit, workspace, data_dir)


async def _runs(
    output: Output, slug: str | None, limit: int, workspace: Path, data_dir: Path | None
) -> None:
    async with Client(workspace, data_dir=data_dir) as client:
        records = await client.runs(slug, limit=limit)
    zone = _system_zone(output)
    if not records:
        output.line("No run is on record.")
        return
    output.table(
        ("started", "automation", "state", "verdict", "gate", "delivery", "run"),
        (_run_row(record, zone) for record in records),
    )


def _run_row(record: RunRecord, zone: Zone) -> tuple[str, ...]:
    intent = record.intent
    decision = (intent.verdict, intent.gate) if intent else ("", "")
    return (
        local(record.started_at, zone.tzinfo),
        record.slug,
        record.state,
        *decision,
        record.delivery or "",
        record.run_id,
    )


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        msg = f"{visible(text)!r} is no instant such as 2026-03-02T07:00+01:00"
        raise click.BadParameter(msg) from error


@click.command
@click.argument("slug")
@click.option(
    "--at",
    type=_instant,
    metavar="INSTANT",
    help="The moment, in ISO 8601; without an offset, on the wall clock of the system's zone.",
    show_default="the present one",
)
@workspace_option
@data_dir_option
@click.pass_obj
def why(
    output: Output, slug: str, at: datetime | None, workspace: Path, data_dir: Path | None
) -> None:
    """Say in one sentence what became of the automation SLUG at a moment."""
    if at is None:
        at = SystemClock().now()
    elif at.tzinfo is None:
        at = at.replace(tzinfo=zones_for(None, os.environ)["automation"].tzinfo)
    output.line(visible(anyio.run(_why, slug, at, workspace, data_dir)))


async def _why(slug: str, at: datetime, workspace: Path, data_dir: Path | None) -> str:
    async with Client(workspace, data_dir=data_dir) as client:
        return await client.why(slug, at=at)


def _system_zone(output: Output) -> Zone:
    """The zone that rules automation files unless a host names another; printed first."""
    zone = zones_for(None, os.environ)["automation"]
    output.line(f"Times are those of {visible(zone.name)} ({visible(zone.source)}).")
    return zone
