"""Commands that read: what comes, what went, and why."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import anyio
import click

from drumbeat import (
    Client,
    Due,
    NotFound,
    Problem,
    RunRecord,
    ScheduleTrigger,
    Status,
    SystemClock,
    Workspace,
)
from drumbeat.cli.group import OnRecords, data_dir_option, workspace_option
from drumbeat.cli.listed import never_comes, slugs_seen
from drumbeat.cli.output import Output, local, read_instant, visible
from drumbeat.cli.wall_clocks import Zones, kind_of, zones_of
from drumbeat.core.model import Kind
from drumbeat.runtime.zones import Zone

__all__ = ["runs", "upcoming", "why"]

_CUT_OFF = "cut off"
_KINDS: tuple[Kind, Kind] = ("automation", "job")


@click.command(cls=OnRecords)
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
        status = await client.status()
    output.aside(status.faults)
    paused = status.paused
    zones = zones_of(status)
    _print_zones(output, zones, status.workspace)
    for line in _never_due(status.workspace, {moment.slug for moment in due}, zones, now):
        output.error(line)
    if not due:
        output.line(f"Nothing comes within {days} days.")
        return
    output.table(
        ("when", "automation", ""),
        (
            (
                local(moment.slot, zones[kind_of(status.workspace, moment.slug)].tzinfo),
                moment.slug,
                _remark(moment, paused=moment.slug in paused, now=now),
            )
            for moment in due[:limit]
        ),
    )
    if len(due) > limit:
        output.line(f"… and {len(due) - limit} more; see --limit.")


def _remark(due: Due, *, paused: bool, now: datetime) -> str:
    if paused:
        return "paused"
    if due.missed:
        return "missed"
    said = ["overdue"] if due.slot < now else []
    return ", ".join([*said, f"+{due.folded} folded"] if due.folded else said)


def _never_due(
    workspace: Workspace, due: Collection[str], zones: Zones, now: datetime
) -> Iterator[str]:
    """What somebody may look for in vain: what does not load, is disabled or unschedulable.

    Args:
        workspace: as it stands.
        due: what is due all the same: a file that broke keeps the schedule it had, so that
            somebody hears of it.
        zones: by kind of file.
        now: the present instant.
    """
    for path in sorted(workspace.problems):
        if workspace.find(path.stem) is not None:
            yield f"{path} is not read; see drumbeat validate"
        elif path.stem in due:
            yield (
                f"{path} does not load; it keeps the schedule it had, and its runs abort until it "
                "is mended; see drumbeat validate"
            )
        else:
            yield f"{path} does not load, so nothing of it comes; see drumbeat validate"
    for automation in workspace.automations:
        scheduled = any(isinstance(each, ScheduleTrigger) for each in automation.triggers)
        if scheduled and not automation.enabled:
            yield f"{automation.slug} is disabled, so its schedule brings nothing"
        for trigger in automation.triggers:
            unreadable = isinstance(trigger, ScheduleTrigger) and trigger.schedule is None
            if unreadable and automation.enabled:
                yield (
                    f"{automation.slug} is never due: its schedule cannot be read; "
                    "see drumbeat validate"
                )
        zone = zones[automation.kind]
        if automation.enabled and never_comes(automation, zone.tzinfo, now):
            yield (
                f"{automation.slug} is never due: its schedule has no moment in {zone.name}; "
                "see drumbeat validate"
            )


@click.command(cls=OnRecords)
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
    """Print the latest runs, the last one first, of SLUG or of all automations.

    The moment at which a run was due is one that why takes with --at.
    """
    anyio.run(_runs, output, slug, limit, workspace, data_dir)


async def _runs(
    output: Output, slug: str | None, limit: int, workspace: Path, data_dir: Path | None
) -> None:
    async with Client(workspace, data_dir=data_dir) as client:
        status = await client.status()
        records = await client.runs(slug, limit=limit)
    output.aside(status.faults)
    if slug is not None and not records:
        _check_stands(status, slug)
    zones = zones_of(status)
    _print_zones(output, zones, status.workspace)
    if not records:
        output.line("No run is on record.")
        return
    output.table(
        ("due", "started", "automation", "state", "verdict", "gate", "delivery", "run"),
        (
            _run_row(record, zones[kind_of(status.workspace, record.slug)], _state(record, status))
            for record in records
        ),
    )
    if any(_state(record, status) == _CUT_OFF for record in records):
        output.line(
            f"{_CUT_OFF}: it was going when its engine ended; the next start of one settles it."
        )


def _check_stands(status: Status, slug: str) -> None:
    """Refuse a slug that no file has.

    Raises:
        NotFound: there is none, broken or not.
    """
    known = slugs_seen(status)
    if known is not None and slug not in known:
        raise NotFound(
            Problem(
                code="slug-unknown",
                message=f"no automation {slug!r} in {status.workspace.path}, and no run of one",
                remedy=f"the workspace has: {', '.join(sorted(known)) or 'none'}",
            )
        )


def _state(record: RunRecord, status: Status) -> str:
    """How a run stands; one that goes on in no engine is not running."""
    gone = record.state == "running" and status.state == "stopped"
    return _CUT_OFF if gone else record.state


def _run_row(record: RunRecord, zone: Zone, state: str) -> tuple[str, ...]:
    intent = record.intent
    decision = (intent.verdict, intent.gate) if intent else ("", "")
    return (
        local(record.fire.due, zone.tzinfo),
        _clock(record.started_at, zone.tzinfo),
        record.slug,
        state,
        *decision,
        record.delivery or "",
        record.run_id,
    )


def _clock(instant: datetime, zone: tzinfo) -> str:
    return instant.astimezone(zone).strftime("%H:%M:%S")


def _instant(text: str) -> datetime:
    try:
        return read_instant(text)
    except ValueError as error:
        msg = f"{visible(text)!r} is no instant such as 2026-03-02T07:00 or 2026-03-02T07:00+01:00"
        raise click.BadParameter(msg) from error


@click.command(cls=OnRecords)
@click.argument("slug")
@click.option(
    "--at",
    type=_instant,
    metavar="INSTANT",
    help="The moment, in ISO 8601 or as runs prints it; without an offset, on the wall clock that "
    "rules the automation.",
    show_default="the present one",
)
@workspace_option
@data_dir_option
@click.pass_obj
def why(
    output: Output, slug: str, at: datetime | None, workspace: Path, data_dir: Path | None
) -> None:
    """Say in one sentence what became of the automation SLUG at a moment."""
    output.line(anyio.run(_why, slug, at or SystemClock().now(), workspace, data_dir))


async def _why(slug: str, at: datetime, workspace: Path, data_dir: Path | None) -> str:
    async with Client(workspace, data_dir=data_dir) as client:
        if at.tzinfo is None:
            status = await client.status()
            at = at.replace(tzinfo=zones_of(status)[kind_of(status.workspace, slug)].tzinfo)
        return await client.why(slug, at=at)


def _print_zones(output: Output, zones: Zones, workspace: Workspace) -> None:
    """Say whose wall clock the times are read off; jobs are named where there are any."""
    automations, jobs = (f"{zones[kind].name} ({zones[kind].source})" for kind in _KINDS)
    files = (*(each.path for each in workspace.automations), *workspace.problems)
    has_jobs = any(path is not None and path.parent.name == "jobs" for path in files)
    others = f"; of jobs, those of {jobs}" if has_jobs and jobs != automations else ""
    output.line(f"Times are those of {automations}{others}.")
