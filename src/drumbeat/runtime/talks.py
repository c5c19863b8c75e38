"""A conversation that belongs to no run: a person asks, waits for the answers, and nobody notes it.

Nothing of it is kept: no run, fire, intent, pin or event, and no page of what was said. Each has a
session id of its own, so any number of them go at once, beside the runs and not counted among them.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import attrs

from drumbeat.core.messages import exactly
from drumbeat.core.model import Reply
from drumbeat.errors import AgentError
from drumbeat.runtime.awaited import take_within
from drumbeat.runtime.follow_ups import NoFollowUps
from drumbeat.runtime.journal import Journal
from drumbeat.runtime.log import log
from drumbeat.runtime.preparation import Unready, system_prompt
from drumbeat.runtime.reply_turn import current_layers
from drumbeat.runtime.search_path import child_env
from drumbeat.runtime.services import Services
from drumbeat.runtime.turns import Ask, Exchange, Frame
from drumbeat.runtime.working_folder import skills_for_turn


class _Unwritten(Journal):
    """A journal in which nothing is written down."""

    async def note(self, *_: Any, **__: Any) -> None:
        """Forget it."""

    async def artifact(self, name: str, text: str) -> bool:
        """Forget it."""
        return False


@attrs.define(kw_only=True)
class Talk(Exchange):
    """One such conversation, from its first turn to its last, within the time that a run has."""

    origin: Literal["ask", "draft"]
    limit: timedelta
    session_id: str = attrs.field(factory=lambda: str(uuid4()))
    exists: bool = False

    async def another(self) -> None:
        """Go on under a fresh session id, because nothing came of the first turn."""
        self.session_id = str(uuid4())

    async def say(self, prompt: str) -> Reply:
        """Put one prompt to the agent and return its reply.

        Raises:
            AgentError: the turn failed, or the time was up.
        """
        left = timedelta(seconds=self.frame.deadline - self.services.clock.monotonic())
        name = self.frame.run_id
        try:
            return await take_within(
                self,
                Ask(origin=self.origin, prompt=prompt),
                limit=max(timedelta(0), left),
                over_time=self._over_time,
                stuck=self._report_stuck,
            )
        finally:
            self.services.stuck.discard(name)

    def _over_time(self) -> AgentError:
        if self.origin == "draft":
            return AgentError(
                f"the draft took longer than {exactly(self.limit)}", code="draft-timeout"
            )
        return AgentError(f"the answer took longer than {exactly(self.limit)}", code="ask-timeout")

    async def _report_stuck(self) -> None:
        name = self.frame.run_id
        if name not in self.services.stuck:
            self.services.stuck.add(name)
            log.error("talk_stuck", slug=self.frame.slug, talk=name)


async def begin_talk(
    services: Services, origin: Literal["ask", "draft"], *, context: str, profile: str | None
) -> Talk:
    """Prepare one; the agent hears of it with the first `say`.

    Args:
        services: of the engine.
        origin: what its turns are.
        context: the engine's own text, for the first turn.
        profile: one of `profiles:` in `agent-config.yaml`, over the workspace's configuration.

    Raises:
        NotFound: there is no such profile.
        AgentError: the workspace's `SYSTEM.md` or a skill cannot be read.
    """
    slug = f"_{origin}"
    name = f"{origin}-{uuid4()}"
    memory_dir = talk_memory(services, origin)
    config = (await current_layers(services)).resolve(None, profile)
    try:
        # As for a job: whoever talks with the agent talks with one that knows the house's rules.
        rules = await system_prompt(services, "job")
    except Unready as unready:
        raise unready.as_failure() from unready
    skills = await skills_for_turn(services, "automation", services.workspace_dir)
    journal = _Unwritten(services=services, slug=slug, run_id=name)
    await journal.make(memory_dir)
    limit = services.settings.run_timeout
    frame = Frame(
        slug=slug,
        automation=None,
        run_id=name,
        context=services.redactor.text(context),
        requirements=(),
        config=config,
        env=child_env(
            services.base_env,
            path=services.search_path,
            extra={
                "DRUMBEAT_DATA_DIR": str(services.data_dir),
                "DRUMBEAT_WORKSPACE": str(services.workspace_dir),
                "MEMORY_DIR": str(memory_dir),
            },
            withheld=services.withheld,
        ),
        cwd=services.workspace_dir,
        skills=skills,
        system_prompt=rules,
        memory_dir=memory_dir,
        follow_ups=NoFollowUps(slug=slug),
        deadline=services.clock.monotonic() + limit.total_seconds(),
        recorded=False,
    )
    return Talk(
        services=services,
        journal=journal,
        frame=frame,
        origin=origin,
        limit=limit,
    )


def talk_memory(services: Services, origin: Literal["ask", "draft"]) -> Path:
    """Where the agent keeps what it learned in such talks; no slug begins with an underscore."""
    return services.memory_dir / f"_{origin}"
