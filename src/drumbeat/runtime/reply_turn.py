"""The one turn of a reply: in the conversation and the folder of the run that it answers."""

from datetime import timedelta
from typing import Literal

import attrs

from drumbeat.core.config_layers import ConfigLayers
from drumbeat.core.identity import turn_id
from drumbeat.core.messages import exactly
from drumbeat.core.model import (
    Automation,
    Claim,
    Kind,
    Reply,
    Requirement,
    RunRecord,
    TurnRecord,
)
from drumbeat.errors import AgentError, NotFound, Problem, StoreError
from drumbeat.runtime.awaited import take_within
from drumbeat.runtime.clock import holding
from drumbeat.runtime.follow_ups import RunFollowUps
from drumbeat.runtime.journal import Journal
from drumbeat.runtime.log import log
from drumbeat.runtime.preparation import (
    Unready,
    memory_folder,
    read_automation,
    system_prompt,
    turn_env,
    working_folder,
)
from drumbeat.runtime.requirements import check_requirements
from drumbeat.runtime.services import Services
from drumbeat.runtime.turns import Ask, Exchange, Frame
from drumbeat.runtime.working_folder import folder_env, skills_for_turn


@attrs.define(kw_only=True)
class ReplyTurn:
    """A turn for the answer `text`, to be taken while `claim` holds the conversation."""

    services: Services
    claim: Claim
    run: RunRecord
    """The run that is answered, as it was before."""
    session_id: str
    text: str
    profile: str | None
    begun: bool = False
    """Whether it stands in the run's record, or may do so: then its end belongs there too."""
    journal: Journal = attrs.field(init=False)
    follow_ups: RunFollowUps = attrs.field(init=False)
    _exchange: Exchange = attrs.field(init=False)
    _limit: timedelta = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        services, run = self.services, self.run
        self.journal = Journal(services=services, slug=run.slug, run_id=run.run_id)
        self.follow_ups = RunFollowUps(services=services, fire=run.fire, run_id=run.run_id)
        self._limit = services.settings.run_timeout

    # ---- before

    async def begin(self) -> None:
        """Prepare the turn, and put it into the run's record without an answer.

        When it raises, `begun` says whether `finish` has to be called.

        Raises:
            NotFound: there is no such profile, or the run was purged.
            StoreError: the record or the pins could not be read, or the record not written.
        """
        try:
            await self._begin()
        except BaseException:
            self.follow_ups.close()
            raise

    async def _begin(self) -> None:
        services = self.services
        automation = await self._automation()
        if automation is not None and automation.timeout is not None:
            self._limit = automation.timeout
        exchange = Exchange(
            services=services,
            journal=self.journal,
            frame=await self._frame(automation),
            session_id=self.session_id,
            exists=True,
            handle=await self._handle(),
            before=len(self.run.turns),
        )
        self._exchange = exchange
        # Beforehand: whoever is cancelled in a transaction does not know what came of it.
        self.begun = True
        try:
            await services.store.record(claim=self.claim, run=self._with(self._unanswered()))
        except Exception:
            self.begun = False
            raise
        # From here on the folder is that of a run in which something happens, and stays.
        await self.journal.make(services.artifacts.work(self.run.slug, self.run.run_id), "work/")
        await self.journal.make(exchange.frame.memory_dir)

    def _with(self, turn: TurnRecord) -> RunRecord:
        return attrs.evolve(self.run, turns=(*self.run.turns, turn))

    def _unanswered(self) -> TurnRecord:
        now = self.services.clock.now()
        return TurnRecord(
            turn_id=turn_id(self.run.run_id, len(self.run.turns) + 1),
            origin="reply",
            step_id=None,
            attempts=0,
            started_at=now,
            finished_at=now,
            reply=None,
        )

    async def _automation(self) -> Automation | None:
        """The automation as its file stands, or as it last loaded, or None when it is gone."""
        try:
            return await read_automation(self.services, self.run.slug)
        except (Unready, NotFound):
            return self.services.find(self.run.slug)

    async def _handle(self) -> str | None:
        with holding(self.services.clock, "pins"):
            pin = await self.services.pins.get(self.run.slug)
        if pin is not None and pin.session_id == self.session_id:
            return pin.handle
        latest = await self._latest()
        return None if latest is None else latest.handle

    async def _latest(self) -> RunRecord | None:
        """The latest run in the conversation."""
        found = await self.services.store.runs(target=self.session_id, limit=1, payloads=False)
        return next(iter(found), None)

    def _origin(self, automation: Automation | None) -> tuple[Kind, str | None]:
        """What the run was of, and what was cloned for it, whatever has become of its file.

        Where it works, and what git may do there, follows from that.
        """
        if self.run.kind is not None:
            return self.run.kind, self.run.repo
        return ("automation", None) if automation is None else (automation.kind, automation.repo)

    async def _frame(self, automation: Automation | None) -> Frame:
        services, run = self.services, self.run
        kind, repo = self._origin(automation)
        memory_dir = memory_folder(services, kind, run.slug)
        layers = await current_layers(services)
        met: tuple[Requirement, ...] = ()
        if automation is not None:
            # What is not met is left out: it gates the automation's own work, not a conversation.
            with holding(services.clock, "requirements"):
                met, _ = await check_requirements(
                    automation,
                    workspace=services.workspace_dir,
                    packs=services.packs,
                    search_path=services.search_path,
                    threads=services.threads,
                )
        try:
            rules = await system_prompt(services, kind)
        except Unready as unready:
            # Without its rules a job's agent must not be spoken to, in a reply as in a run.
            raise unready.as_failure() from unready
        cwd = working_folder(services, kind, run.slug, run.run_id)
        skills = await skills_for_turn(services, kind, cwd)
        env = folder_env(
            services, turn_env(services, run.slug, run.run_id), cwd, kind=kind, repo=repo
        )
        return Frame(
            slug=run.slug,
            automation=automation,
            run_id=run.run_id,
            context="",
            requirements=met,
            config=layers.resolve(automation, self.profile),
            env={**env, **self.follow_ups.env(), "MEMORY_DIR": str(memory_dir)},
            cwd=cwd,
            skills=skills,
            system_prompt=rules,
            memory_dir=memory_dir,
            follow_ups=self.follow_ups,
            deadline=services.clock.monotonic() + self._limit.total_seconds(),
        )

    # ---- the turn

    async def take(self) -> Reply:
        """Put the text to the agent and return its reply.

        Raises:
            AgentError: the turn failed, or took longer than a run may.
        """
        try:
            return await take_within(
                self._exchange,
                Ask(origin="reply", prompt=self.text),
                limit=self._limit,
                over_time=self._over_time,
                stuck=self._report_stuck,
            )
        finally:
            self.follow_ups.close()

    def _over_time(self) -> AgentError:
        return AgentError(
            f"the reply took longer than {exactly(self._limit)}", code="reply-timeout"
        )

    async def _report_stuck(self) -> None:
        if self.claim.run_id in self.services.stuck:
            return
        self.services.stuck.add(self.claim.run_id)
        log.error("reply_stuck", slug=self.run.slug, run_id=self.run.run_id)
        await self.journal.note(
            "run_stuck", self.services.clock.now(), turn_id=self._unanswered().turn_id
        )

    # ---- after

    async def finish(
        self, state: Literal["succeeded", "failed", "cancelled"], problem: Problem | None
    ) -> None:
        """Write what came of the turn into the record, append the event, free the conversation.

        May be called again until it returns.

        Raises:
            StoreError: the store did not take it.
            ClaimLost: somebody else has taken the conversation over.
        """
        services, run = self.services, self.answered
        turn = run.turns[-1]
        event = services.event(
            "reply_completed",
            turn.finished_at,
            run.slug,
            run.run_id,
            turn_id=turn.turn_id,
            session_id=self.session_id,
            state=state,
            attempts=turn.attempts,
            code=None if problem is None else problem.code,
            message=None if problem is None else problem.message,
        )
        waiting = tuple(self.journal.kept)
        events = (*waiting, event)
        latest = await self._latest()
        runs = [run]
        if latest is not None and latest.run_id != run.run_id and latest.handle != run.handle:
            # There it is looked for once the conversation is no longer pinned.
            runs.append(attrs.evolve(latest, handle=run.handle))
        try:
            await services.store.finish(self.claim, None, runs=runs, events=events)
        except NotFound as error:
            log.warning("reply_not_kept", run_id=run.run_id, code=error.problem.code)
            await services.store.finish(self.claim, None, events=events)
        self.journal.taken(waiting)
        log.info("reply_completed", slug=run.slug, run_id=run.run_id, state=state)

    @property
    def answered(self) -> RunRecord:
        """The run with what came of the turn."""
        exchange, handle = self._exchange, self._exchange.handle
        # None when it was cut short before the agent was called.
        turn = next(iter(exchange.records), self._unanswered())
        return attrs.evolve(
            self._with(turn),
            usage=self.run.usage + exchange.usage,
            handle=None if handle is None else self.services.redactor.text(handle),
        )

    async def keep_handle(self) -> None:
        """Let the pin have the handle that the agent gave, if it is still this conversation's."""
        services, slug, exchange = self.services, self.run.slug, self._exchange
        try:
            with holding(services.clock, "pins"):
                async with services.pinning:
                    pin = await services.pins.get(slug)
                    if pin is None or pin.session_id != self.session_id:
                        return
                    if pin.handle != exchange.handle:
                        await services.pins.set(slug, attrs.evolve(pin, handle=exchange.handle))
        except StoreError as error:
            # The person has an answer, and the next run says loudly what is wrong with the pins.
            log.error("handle_not_kept", slug=slug, code=error.problem.code)

    async def write_result(self) -> None:
        """Let `result.json` say what the record says."""
        try:
            await self.services.artifacts.result(self.answered)
        except OSError as error:
            await self.journal.artifact_failed("result.json", error)


async def current_layers(services: Services) -> ConfigLayers:
    """The layers of agent configuration for a turn that begins at this moment."""
    with holding(services.clock, "agent configuration"):
        return await services.config.current()
