"""Commands that bring an agent: one run, or an engine until it is told to stop."""

import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.abc
import click

from drumbeat import Agent, Client, Deliverer, Engine, RunRecord, SystemClock, WebhookTrigger
from drumbeat.cli.group import (
    FAILED,
    InWorkspace,
    check_data_dir,
    data_dir_option,
    log_to_stderr,
    workspace_option,
)
from drumbeat.cli.loading import load_agent, load_deliverer, load_mail
from drumbeat.cli.output import Output, local
from drumbeat.cli.wall_clocks import kind_of, zones_of
from drumbeat.deliverers import StreamDeliverer
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.requests import unknown_slug
from drumbeat.runtime.workspace import survey
from drumbeat.runtime.zones import resolve_zone

__all__ = [
    "agent_option",
    "engine_for",
    "log_level_option",
    "mail_option",
    "run",
    "serve",
    "timezone_option",
]


_GLANCE = 0.5
"""Real seconds from one look at a standby to the next."""
_NEXT = "the next engine that has a deliverer, as serve has"


def agent_option(*, required: bool = True) -> Callable[[Any], Any]:
    """The option that names the agent."""
    return click.option(
        "--agent",
        required=required,
        metavar="MODULE:ATTRIBUTE",
        help="The agent: an instance, a class, or a function without arguments that returns one.",
    )


mail_option: Callable[[Any], Any] = click.option(
    "--mail",
    metavar="MODULE:ATTRIBUTE",
    help="The mail systems: a mapping of names to sources, or a function that returns one.",
)
timezone_option: Callable[[Any], Any] = click.option(
    "--timezone",
    metavar="ZONE",
    help="An IANA zone that rules every schedule, in place of the system's and of $TIMEZONE.",
)


def log_level_option(default: str) -> Callable[[Any], Any]:
    """The option that says what is logged."""
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help="What is logged to standard error.",
    )


@click.command(cls=InWorkspace)
@click.argument("slug")
@agent_option(required=False)
@click.option(
    "--in",
    "after",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Not now, but in so many seconds, by whatever engine is there then; needs no agent.",
)
@click.option(
    "--deliverer",
    metavar="MODULE:ATTRIBUTE",
    help="Where the message goes; without one it is printed and stays pending.",
)
@click.option(
    "--try",
    "trial",
    is_flag=True,
    help="Keep nothing and send nothing: a data folder that is thrown away, for a first look.",
)
@mail_option
@workspace_option
@data_dir_option
@timezone_option
@log_level_option("warning")
@click.pass_obj
def run(output: Output, /, slug: str, **options: Any) -> None:
    """Run the automation SLUG once, in this process, and print how it went.

    Works for a disabled automation too. Exits with 1 unless the run succeeded. With --in it is put
    in to be run later by the engine that holds the data folder.
    """
    if options["trial"] and (options["after"] is not None or options["deliverer"]):
        msg = "--try keeps nothing and sends nothing, so neither --in nor --deliverer goes with it"
        raise click.UsageError(msg)
    if options["trial"] and options["data_dir"] is not None:
        msg = "--try has a data folder of its own, so --data-dir does not go with it"
        raise click.UsageError(msg)
    if options["after"] is not None:
        given = [f"--{name}" for name in ("agent", "deliverer", "mail") if options[name]]
        if given:
            msg = f"leave out {' and '.join(given)}: --in leaves the run to an engine, which has "
            msg += "parts of its own"
            raise click.UsageError(msg)
        check_data_dir(options["data_dir"])
        anyio.run(_fire, output, slug, options)
        return
    if not options["agent"]:
        msg = "Missing option '--agent', or '--in' for a run by an engine that is there then."
        raise click.UsageError(msg)
    deliverer = load_deliverer(given) if (given := options["deliverer"]) else None
    agent = load_agent(options["agent"])
    log_to_stderr(options["log_level"])
    if options["trial"]:
        with TemporaryDirectory(prefix="drumbeat-try-") as folder:
            tried = options | {"data_dir": Path(folder)}
            raise SystemExit(_carried_out(output, slug, agent, deliverer, tried))
    raise SystemExit(_carried_out(output, slug, agent, deliverer, options))


@click.command(cls=InWorkspace)
@agent_option()
@click.option(
    "--deliverer",
    metavar="MODULE:ATTRIBUTE",
    help="Where messages go; by default one line each to standard output.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="When another engine holds the data folder, wait for it to go and take over.",
)
@mail_option
@workspace_option
@data_dir_option
@timezone_option
@log_level_option("info")
@click.pass_obj
def serve(output: Output, /, **options: Any) -> None:
    """Run an engine until SIGINT or SIGTERM, then drain it.

    Running turns get time to end; a second signal ends the process at once.
    """
    if options["deliverer"]:
        deliverer = load_deliverer(options["deliverer"])
    else:
        people = sys.stdout.isatty()
        deliverer = StreamDeliverer(sys.stdout, format="text" if people else "json")
    agent = load_agent(options["agent"])
    log_to_stderr(options["log_level"])
    anyio.run(_serve, output, agent, deliverer, options)


def engine_for(agent: Agent, deliverer: Deliverer | None, options: dict[str, Any]) -> Engine:
    """An engine as the options of a command say."""
    return Engine(
        options["workspace"],
        agent=agent,
        deliverer=deliverer,
        data_dir=options["data_dir"],
        mail=load_mail(given) if (given := options["mail"]) else None,
        # What an automation has written for itself is no trial's to change.
        env={**os.environ, "MEMORY_DIR": ""} if options.get("trial") else None,
        timezone=options["timezone"],
        standby=options.get("standby", False),
    )


async def _fire(output: Output, slug: str, options: dict[str, Any]) -> None:
    given = None if options["timezone"] is None else resolve_zone(options["timezone"])
    async with Client(options["workspace"], data_dir=options["data_dir"]) as client:
        try:
            fire = await client.fire(slug, after=timedelta(seconds=options["after"]))
        except (OverflowError, ValueError) as error:
            raise click.BadParameter(str(error), param_hint="--in") from error
        status = await client.status()
    zone = given or zones_of(status)[kind_of(status.workspace, slug)].tzinfo
    output.line(f"{slug} is due {local(fire.due, zone)}")
    output.facts([("fire", fire.id)])
    if status.state == "draining":
        output.error("the engine drains and begins nothing more: it runs after the next start")
    elif status.state != "running":
        output.error("no engine holds the data folder: it runs once one does")


def _carried_out(
    output: Output, slug: str, agent: Agent, deliverer: Deliverer | None, options: dict[str, Any]
) -> int:
    """Run it; whoever ends that by Ctrl-C is told what is left of the run."""
    began = SystemClock().now()
    try:
        return anyio.run(_run, output, slug, agent, deliverer, options)
    except KeyboardInterrupt:
        if options["trial"]:
            output.error("stopped; nothing of the run is kept")
        else:
            anyio.run(_tell_stopped, output, slug, began, options)
        raise


async def _tell_stopped(
    output: Output, slug: str, began: datetime, options: dict[str, Any]
) -> None:
    async with Client(options["workspace"], data_dir=options["data_dir"]) as client:
        runs = [run for run in await client.runs(slug, limit=1) if run.started_at >= began]
    for run in runs:
        if run.intent is None:
            output.error(f"{run.run_id} of {slug} was cut off; the next engine records its end")
            continue
        output.error(f"{run.run_id} of {slug} is recorded as {run.state}")
        if run.delivery == "pending":
            output.error(f"its message waits for {_NEXT}")
        elif run.intent.verdict != "deliver":
            output.error(f"its message is kept on record and not sent: {run.intent.reason}")


async def _run(
    output: Output, slug: str, agent: Agent, deliverer: Deliverer | None, options: dict[str, Any]
) -> int:
    seen = await survey(options["workspace"])
    if not seen.stands(slug) and not seen.unseen:
        # An engine would make a data folder, and run what is due, before it refused the slug.
        raise unknown_slug(seen.workspace, slug)
    async with engine_for(agent, deliverer, options) as engine:
        record = await engine.run(slug)
        await engine.settled()
        record = await engine.find_run(record.run_id)
        pending = len(await engine.intents("pending", payloads=False))
        unsent = deliverer is not None and record.delivery in ("pending", "abandoned")
        told = await engine.why(slug, at=record.fire.due) if unsent else ""
    trial = options["trial"]
    _print_run(output, record, None if trial else engine.data_dir)
    if pending and deliverer is None and not trial:
        said = "1 message waits" if pending == 1 else f"{pending} messages wait"
        output.error(f"{said} to be sent by {_NEXT}")
        output.error("for a run that sends nothing and leaves nothing behind there is --try")
    if unsent:
        output.error(told)
    if unsent and record.delivery == "pending":
        output.error(f"it is tried again by {_NEXT}")
    return 0 if record.state == "succeeded" else FAILED


def _print_run(output: Output, record: RunRecord, data_dir: Path | None) -> None:
    """Print how a run went; `data_dir` is None when nothing of it is kept."""
    intent = record.intent
    assert intent is not None  # the run has ended
    facts = [
        ("run", record.run_id),
        ("verdict", intent.verdict),
        ("gate", intent.gate),
        ("reason", intent.reason),
        ("delivery", "none" if data_dir is None else record.delivery or "none"),
        (
            "artifacts",
            "none are kept"
            if data_dir is None
            else str(data_dir / "runs" / record.slug / record.run_id),
        ),
    ]
    output.line(f"{record.slug} {record.state}")
    output.facts(facts)
    if record.failure is not None:
        output.problem(record.failure)
    if intent.text and record.delivery != "delivered":
        output.line()
        output.lines(intent.text)


async def _serve(
    output: Output, agent: Agent, deliverer: Deliverer, options: dict[str, Any]
) -> None:
    engine = engine_for(agent, deliverer, options)
    entered = anyio.Event()
    async with anyio.create_task_group() as group:
        await group.start(_drain_on_signal, output, engine, entered)
        async with engine, anyio.create_task_group() as telling:
            entered.set()
            if await _stands_by(engine):
                holder = await EngineLock(engine.data_dir).holder()
                output.error(f"standing by behind {holder or 'another engine'}; Ctrl-C ends")
            telling.start_soon(_tell_serving, output, engine)
            await engine.wait()
            telling.cancel_scope.cancel()
        group.cancel_scope.cancel()


async def _stands_by(engine: Engine) -> bool:
    return (await engine.health()).state == "standby"


async def _tell_serving(output: Output, engine: Engine) -> None:
    """Say what is served, by a standby once it has taken over."""
    while await _stands_by(engine):  # noqa: ASYNC110  no event is set as it takes over
        await anyio.sleep(_GLANCE)
    if (await engine.health()).state != "running":
        return
    output.error("serving; Ctrl-C or SIGTERM drains")
    for slug in await _unheard(engine):
        output.error(f"{slug}: its webhook is not served here; a host with routes has to")


async def _unheard(engine: Engine) -> list[str]:
    """The automations that wait for events which no door of this process lets in."""
    return [
        automation.slug
        for automation in (await engine.status()).workspace.automations
        if any(isinstance(trigger, WebhookTrigger) for trigger in automation.triggers)
    ]


async def _drain_on_signal(
    output: Output,
    engine: Engine,
    entered: anyio.Event,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            name = signal.Signals(number).name
            break
    # The receiver is closed, so a second signal has its usual effect.
    output.error(f"{name}: draining; once more to stop at once")
    await entered.wait()
    await engine.drain(f"{name} received")
