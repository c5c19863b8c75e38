"""Commands that bring an agent to a person: a question, and help with writing a job."""

from typing import Any

import anyio
import click

from drumbeat import Agent, Draft
from drumbeat.cli.group import FAILED, InWorkspace, data_dir_option, log_to_stderr, workspace_option
from drumbeat.cli.loading import load_agent
from drumbeat.cli.output import Output
from drumbeat.cli.running import (
    agent_option,
    engine_for,
    log_level_option,
    mail_option,
    timezone_option,
)

__all__ = ["ask", "create_job"]


def _filled(_: click.Context, __: click.Parameter, text: str) -> str:
    if not text.strip():
        msg = "it is blank"
        raise click.BadParameter(msg)
    return text


@click.command(cls=InWorkspace)
@click.argument("question", callback=_filled)
@agent_option()
@click.option(
    "--profile",
    metavar="NAME",
    help="One of `profiles:` in agent-config.yaml, over the workspace's configuration.",
)
@mail_option
@workspace_option
@data_dir_option
@timezone_option
@log_level_option("warning")
@click.pass_obj
def ask(output: Output, /, question: str, profile: str | None, **options: Any) -> None:
    """Put QUESTION to the agent, beside all automations, and print the answer.

    Nothing of it is recorded. Exits with 1 when the agent does not answer.
    """
    agent = load_agent(options["agent"])
    log_to_stderr(options["log_level"])
    anyio.run(_ask, output, question, profile, agent, options)


async def _ask(
    output: Output, question: str, profile: str | None, agent: Agent, options: dict[str, Any]
) -> None:
    async with engine_for(agent, None, options) as engine:
        reply = await engine.ask(question, profile)
        output.lines(reply.text)
        await engine.settled()


@click.command("create-job", cls=InWorkspace)
@click.argument("description", callback=_filled)
@agent_option()
@click.option("--dry-run", is_flag=True, help="Print the file, and write nothing.")
@mail_option
@workspace_option
@data_dir_option
@timezone_option
@log_level_option("warning")
@click.pass_obj
def create_job(output: Output, /, description: str, dry_run: bool, **options: Any) -> None:
    """Let the agent write the file of a job that does what DESCRIPTION says.

    The file is checked and put into jobs/, never over another one. Exits with 1 when the agent gets
    none right.
    """
    agent = load_agent(options["agent"])
    log_to_stderr(options["log_level"])
    draft = anyio.run(_draft, output, description, dry_run, agent, options)
    if draft.path is None:
        raise SystemExit(FAILED)


async def _draft(
    output: Output, description: str, dry_run: bool, agent: Agent, options: dict[str, Any]
) -> Draft:
    async with engine_for(agent, None, options) as engine:
        draft = await engine.draft_job(description, dry_run=dry_run)
        _print_draft(output, draft, dry_run=dry_run)
        await engine.settled()
    return draft


def _print_draft(output: Output, draft: Draft, *, dry_run: bool) -> None:
    output.lines(draft.text.rstrip("\n"))
    output.line()
    for problem in draft.problems:
        output.problem(problem)
    if draft.path is None:
        output.error("nothing was written: the agent's last answer has these problems")
    else:
        output.line(f"{'would be' if dry_run else 'wrote'} {draft.path}")
