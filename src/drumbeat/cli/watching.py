"""Commands that show what goes on: the state of things, conversations, events."""

import json
import os
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import anyio
import click
from anyio import to_thread

from drumbeat import Client, Event, Fire, InboxState, Status, WebhookState
from drumbeat.cli.group import OnRecords, data_dir_option, workspace_option
from drumbeat.cli.listed import is_never_due, slugs_seen
from drumbeat.cli.output import Output, local, visible
from drumbeat.cli.wall_clocks import Zones, kind_of, zones_of
from drumbeat.core.left_out import told_left_out
from drumbeat.core.redaction import Redactor
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.search_path import door_secrets
from drumbeat.runtime.sign_of_life import SignOfLife, read_sign

__all__ = ["events", "sessions", "status"]

_MESSAGES = 20
"""So many messages are named, the oldest ones; how many there are is said above them."""
_LONGEST = 80
"""Characters that are shown of a prompt."""


@click.command(cls=OnRecords)
@workspace_option
@data_dir_option
@click.pass_obj
def status(output: Output, workspace: Path, data_dir: Path | None) -> None:
    """Print whether an engine holds the data folder, what runs, what waits and what is paused."""
    anyio.run(_status, output, workspace, data_dir)


async def _status(output: Output, workspace: Path, data_dir: Path | None) -> None:
    async with Client(workspace, data_dir=data_dir) as client:
        now, found = client.clock.now(), await client.status()
        pending = await client.intents("pending", payloads=False)
        holder = await EngineLock(client.data_dir).holder()
        sign = await to_thread.run_sync(read_sign, client.data_dir)
    zones = zones_of(found)
    never = [
        automation.slug
        for automation in found.workspace.automations
        if automation.enabled and is_never_due(automation, zones[automation.kind].tzinfo, now)
    ]
    output.facts(
        [
            ("engine", _engine(found, holder, sign, zones)),
            ("workspace", str(found.workspace.path)),
            ("automations", _counts(found, never)),
            *((f"{kind} zone", f"{name} ({why})") for kind, (name, why) in found.zones.items()),
            ("to deliver", str(len(pending))),
            ("follow-ups", str(sum(fire.cause == "follow-up" for fire in found.waiting))),
        ]
    )
    for problem in found.faults:
        output.problem(problem)
    rows = [
        *(
            (run.slug, _going(found), _local(run.started_at, found, run.slug), run.run_id)
            for run in found.running
        ),
        *(
            (
                fire.slug,
                "due" if fire.due <= now else "later",
                _local(fire.due, found, fire.slug),
                _wanted(fire),
            )
            for fire in found.waiting
        ),
        *(
            (path.stem, "broken", "", f"{path}: {problems[0].message} [{problems[0].code}]")
            for path, problems in sorted(found.workspace.problems.items())
        ),
        *(
            (slug, "never due", "", "its schedule cannot be read, or has no moment")
            for slug in never
        ),
        *(
            (
                intent.slug,
                "to deliver",
                _local(intent.created_at, found, intent.slug),
                f"{intent.id}, attempts: {intent.attempt}",
            )
            for intent in pending[:_MESSAGES]
        ),
        *((slug, "paused", "", reason) for slug, reason in sorted(found.paused.items())),
        *((inbox.slug, "inbox", "", _inbox(inbox)) for inbox in found.inboxes),
        *(
            (state.slug, "webhook", "", _webhook(state, zones["job"].tzinfo))
            for state in found.webhooks
        ),
    ]
    if rows:
        output.line()
        output.table(("automation", "", "since or due", "what"), rows)


def _engine(found: Status, holder: str | None, sign: SignOfLife | None, zones: Zones) -> str:
    if holder is not None:
        return f"{found.state}: {holder}"
    if sign is None:
        return found.state
    return f"{found.state}; last sign of life at {local(sign.at, zones['automation'].tzinfo)}"


def _local(instant: datetime, found: Status, slug: str) -> str:
    """An instant as `upcoming` and `runs` show those of that automation."""
    return local(instant, zones_of(found)[kind_of(found.workspace, slug)].tzinfo)


def _going(found: Status) -> str:
    """How a run without an end stands, in the words of `drumbeat runs`."""
    return "cut off" if found.state == "stopped" else "running"


def _inbox(inbox: InboxState) -> str:
    told = [f"{inbox.system}:{inbox.address}"]
    if not inbox.served:
        told.append("no such mail system")
    elif not inbox.begun:
        told.append("not polled yet")
    if inbox.fault:
        told.append(f"cannot be polled: {inbox.fault}")
    if inbox.parked:
        told.append(f"parked lately: {len(inbox.parked)}")
    return ", ".join(told)


def _webhook(state: WebhookState, zone: tzinfo) -> str:
    return "; ".join([state.route, *told_left_out(state, zone)])


def _wanted(fire: Fire) -> str:
    """What a fire is, and of a follow-up what it was asked for."""
    if fire.prompt is None:
        return f"{fire.cause} {fire.id}"
    prompt = Redactor(door_secrets(os.environ)).text(fire.prompt)
    begins = " ".join(prompt.split())
    shown = begins if len(begins) <= _LONGEST else f"{begins[: _LONGEST - 1]}…"
    return f"{fire.cause} {fire.id}, number {fire.depth} of its chain: {shown}"


def _counts(found: Status, never: Sequence[str]) -> str:
    enabled = sum(automation.enabled for automation in found.workspace.automations)
    disabled = len(found.workspace.automations) - enabled
    broken = len(found.workspace.problems)
    counts = f"{enabled - len(never)} enabled, {disabled} disabled, {broken} broken"
    return f"{counts}, {len(never)} never due" if never else counts


@click.command(cls=OnRecords)
@workspace_option
@data_dir_option
@click.pass_obj
def sessions(output: Output, workspace: Path, data_dir: Path | None) -> None:
    """Print which conversation each automation resumes, orphans marked.

    An orphan is what no automation of the workspace resumes any more.
    """
    anyio.run(_sessions, output, workspace, data_dir)


async def _sessions(output: Output, workspace: Path, data_dir: Path | None) -> None:
    async with Client(workspace, data_dir=data_dir) as client:
        pins = await client.sessions()
        found = await client.status()
    output.aside(found.faults)
    if not pins:
        output.line("No conversation is pinned.")
        return
    known = slugs_seen(found)
    output.table(
        ("automation", "since", "provider", "", "session"),
        (
            (
                slug,
                _local(pin.at, found, slug),
                pin.provider or "",
                "" if known is None or slug in known else "orphan",
                pin.session_id,
            )
            for slug, pin in pins.items()
        ),
    )


@click.command(cls=OnRecords)
@click.option(
    "--after",
    type=click.IntRange(0),
    default=0,
    help="The id of the last event that was seen.",
    show_default="all that are kept",
)
@click.option("--follow", is_flag=True, help="Go on with further events as they come.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each event.")
@workspace_option
@data_dir_option
@click.pass_obj
def events(output: Output, /, **options: Any) -> None:
    """Print the events in the order of their ids.

    Exits with 1 when events behind --after are not kept any more.
    """

    async def show() -> None:
        async with Client(options["workspace"], data_dir=options["data_dir"]) as client:
            as_json, found = options["as_json"], await client.status()
            zones = zones_of(found)
            async for event in client.events(options["after"], follow=options["follow"]):
                output.line(
                    _as_json(event) if as_json else _as_text(event, _zone(event, found, zones))
                )

    try:
        anyio.run(show)
    except KeyboardInterrupt:
        return  # how following ends


def _as_json(event: Event) -> str:
    return json.dumps(
        {
            "id": event.id,
            "at": event.at.isoformat(),
            "kind": event.kind,
            "slug": event.slug,
            "run_id": event.run_id,
            "data": event.data,
        }
    )


def _zone(event: Event, found: Status, zones: Zones) -> tzinfo:
    return zones[kind_of(found.workspace, event.slug or "")].tzinfo


def _as_text(event: Event, zone: tzinfo) -> str:
    return " ".join(visible(word) for word in _words(event, zone))


def _words(event: Event, zone: tzinfo) -> Iterator[str]:
    yield f"{event.id:>6}"
    yield event.at.astimezone(zone).isoformat(timespec="seconds").replace("+00:00", "Z")
    yield event.kind
    if event.slug is not None:
        yield event.slug
    if event.run_id is not None:
        yield event.run_id
    for name, value in event.data.items():
        if value not in (None, ""):
            yield f"{name}={json.dumps(value, ensure_ascii=False)}"
