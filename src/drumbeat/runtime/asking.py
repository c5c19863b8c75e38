"""A person's question to the agent, beside all automations (spec, section 13.4)."""

from drumbeat.core.ask_context import render_ask_context
from drumbeat.core.model import Reply
from drumbeat.core.overview import automation_lines, run_lines
from drumbeat.errors import StoreError
from drumbeat.runtime.services import Services
from drumbeat.runtime.talks import begin_talk, talk_memory

_RUNS = 20


async def answer_question(services: Services, question: str, profile: str | None) -> Reply:
    """As `Engine.ask`, whose docstring says what is raised."""
    talk = await begin_talk(services, "ask", context=await _context(services), profile=profile)
    return await talk.say(question)


async def _context(services: Services) -> str:
    zone, name, _ = services.zones["automation"]
    workspace = services.workspace.workspace
    try:
        runs = await services.store.runs(limit=_RUNS, payloads=False)
    except StoreError as error:
        # What is wrong with the store may be what the person asks about.
        services.trouble(error)
        ran = None
    else:
        ran = run_lines(runs, zone)
    return render_ask_context(
        local=services.clock.now().astimezone(zone),
        zone=name,
        workspace=services.workspace_dir,
        data_dir=services.data_dir,
        memory_dir=talk_memory(services, "ask"),
        automations=automation_lines(
            workspace.automations, (str(path) for path in workspace.problems)
        ),
        runs=ran,
    )
