"""One run: a claimed fire from the first look at its file to its one intent.

Theory of operation. A run is claimed before anything else happens, and everything it does until the
last transaction can be lost: a crash leaves the claim, and the next start settles it as
interrupted (`settlement.py`). The last transaction writes the finished record, the intent, the
fire's verdict and the automation's health together, so there is no instant at which one of them
exists without the others. Whatever goes wrong before it (a broken file, an unmet requirement, an
agent that raises, a time limit, a cancellation, a mistake in the engine itself) is an `Ending`, so
one automation cannot stop the others.
"""

from datetime import timedelta
from pathlib import PurePath
from typing import Literal

import anyio
import attrs

from drumbeat.core.attempts import is_owed
from drumbeat.core.config_layers import config_hash
from drumbeat.core.messages import exactly
from drumbeat.core.model import Automation, Claim, Fire, RunRecord
from drumbeat.core.notify import judgment_prompt, needs_judgment
from drumbeat.errors import (
    AgentError,
    AgentUnavailable,
    ClaimLost,
    ContextCeiling,
    ConversationNotFound,
    DrumbeatError,
    NotFound,
    Problem,
    StoreError,
)
from drumbeat.runtime.answers import said
from drumbeat.runtime.clock import OverTime, SelfCancelled, attended, bounded, holding
from drumbeat.runtime.conclusion import Ending, conclude, unfinished
from drumbeat.runtime.conversations import Conversation
from drumbeat.runtime.files import MAX_FILE, FileFault, read_inside
from drumbeat.runtime.follow_ups import RunFollowUps
from drumbeat.runtime.journal import Journal
from drumbeat.runtime.log import log
from drumbeat.runtime.preparation import Preparation, Unready, Unseen, read_automation
from drumbeat.runtime.services import Services
from drumbeat.runtime.turns import Ask

_JUDGMENT_FILE = PurePath("prompts", "judgment.md")


class NotBegun(Exception):  # noqa: N818  a signal to the dispatcher
    """The run shall not be: nothing was recorded, and the claim is still held."""


class Vanished(NotBegun):
    """The file is not there; the workspace decides whether it is gone for good."""


class Unrecorded(NotBegun):
    """The engine drains while the store takes nothing: no turn is taken that nobody knows of."""


class Disabled(NotBegun):
    """The file says so, or did when it last loaded, and it was not started by hand."""


@attrs.define(kw_only=True)
class Run:
    """One attempt at one fire."""

    services: Services
    claim: Claim
    fire: Fire
    known: Automation
    """The automation as last loaded: its name and policy serve when the file is broken."""
    automation: Automation = attrs.field(init=False)
    journal: Journal = attrs.field(init=False)
    follow_ups: RunFollowUps = attrs.field(init=False)
    record: RunRecord = attrs.field(init=False)
    conversation: Conversation | None = None
    steps_done: int = 0
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    stopping: Ending | None = None
    """Why the run is being cancelled, when somebody cancels it."""
    _over_at: float | None = None
    """When its time is up, on the monotonic clock."""
    _limit: timedelta = timedelta(0)

    def __attrs_post_init__(self) -> None:
        services, claim = self.services, self.claim
        self.automation = self.known
        self.journal = Journal(services=services, slug=claim.slug, run_id=claim.run_id)
        self.follow_ups = RunFollowUps(services=services, fire=self.fire, run_id=claim.run_id)
        self.record = unfinished(claim, self.fire, at=services.clock.now())

    @property
    def claims(self) -> list[Claim]:
        """What the run holds: its slug, and the conversations that it has taken."""
        held = () if self.conversation is None else self.conversation.held.values()
        return [self.claim, *held]

    def stop(self, ending: Ending) -> None:
        """Cancel the run and let it end as `ending`, unless it succeeds all the same.

        Of several endings the first counts, but one that people asked for counts before any other.
        A run whose time is up has failed by that, however long its agent goes on.
        """
        over_time = self._over_at is not None and self.services.clock.monotonic() >= self._over_at
        if ending.state == "interrupted" and over_time:
            ending = self._over_time()
        if self.stopping is None or ending.state == "cancelled":
            self.stopping = ending
        self.scope.cancel()

    async def go(self) -> RunRecord | None:
        """Carry the run to its end, and return its record; None when the claim was lost.

        Raises:
            NotBegun: it shall not be.
        """
        ending = Ending(state="interrupted")
        finished: RunRecord | None = None
        try:
            with self.scope:
                ending = await attended(
                    self.services.clock,
                    self.services.settings.stuck_after,
                    self._carried_out,
                    self._report_stuck,
                )
            with anyio.CancelScope(shield=True):
                finished = await self._finish(ending)
        except ClaimLost as error:
            self.services.claim_lost(self.record.slug, self.record.run_id, error)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._finish(ending)
            raise
        finally:
            self.follow_ups.close()
            self.services.stuck.discard(self.claim.run_id)
        return finished

    async def _report_stuck(self) -> None:
        run_id = self.claim.run_id
        if run_id in self.services.stuck:
            return
        self.services.stuck.add(run_id)
        log.error("run_stuck", slug=self.claim.slug, run_id=run_id)
        await self.journal.note("run_stuck", self.services.clock.now())

    async def _carried_out(self) -> Ending:
        services = self.services
        try:
            self.automation = await self._read()
        except Unready as unready:
            if self._is_disabled(self.known):
                raise Disabled from unready
            await self._begin()
            return Ending(state="aborted", problem=unready.problem)
        await self._begin()
        self._limit = limit = self.automation.timeout or services.settings.run_timeout
        self._over_at = deadline = services.clock.monotonic() + limit.total_seconds()
        try:
            return await bounded(
                services.clock,
                limit,
                lambda: self._work(deadline),
                stuck_after=services.settings.stuck_after,
                stuck=self._report_stuck,
            )
        except Exception as error:  # noqa: BLE001  it becomes the run's failure, which is voiced
            if isinstance(error, OverTime) or services.clock.monotonic() >= deadline:
                # What an agent makes of its cancellation says nothing about why the run failed.
                return self._over_time()
            return self._ending(error)

    def _over_time(self) -> Ending:
        problem = Problem(
            code="run-timeout",
            message=f"the run took longer than {exactly(self._limit)}",
            remedy="give the run more time, or its steps less to do",
        )
        return Ending(state="failed", problem=problem)

    def _ending(self, error: Exception) -> Ending:
        if isinstance(error, Unready):
            return Ending(state="aborted", problem=error.problem)
        begun = self.conversation is not None and self.conversation.replies > 0
        if isinstance(error, AgentError):
            unreachable = isinstance(error, AgentUnavailable) and not begun
            return Ending(state="aborted" if unreachable else "failed", problem=error.problem)
        if isinstance(error, DrumbeatError):
            return Ending(state="failed" if begun else "aborted", problem=error.problem)
        if isinstance(error, SelfCancelled):
            problem = Problem(
                code="run-cancelled-itself",
                message="something in the run cancelled it without being asked",
                remedy="look for code in the agent that cancels tasks which are not its own",
            )
            return Ending(state="failed", problem=problem)
        return self._fault(error, said(error))

    def _fault(self, error: Exception, message: str) -> Ending:
        services, claim = self.services, self.claim
        log.error("run_fault", slug=claim.slug, run_id=claim.run_id, trace=services.trace(error))
        problem = Problem(
            code="run-fault",
            message=f"the engine made a mistake: {message}",
            remedy="look into the log for `run_fault` and report it with what stands there",
        )
        begun = self.conversation is not None and self.conversation.replies > 0
        return Ending(state="failed" if begun else "aborted", problem=problem)

    async def _read(self) -> Automation:
        try:
            automation = await read_automation(self.services, self.claim.slug)
        except NotFound:
            raise Vanished from None
        except Unseen:
            if is_owed(self.fire):
                raise Vanished from None
            raise
        if self._is_disabled(automation):
            raise Disabled
        self.record = attrs.evolve(self.record, kind=automation.kind, repo=automation.repo)
        return automation

    def _is_disabled(self, automation: Automation) -> bool:
        return not automation.enabled and self.fire.cause != "manual"

    async def _begin(self) -> None:
        services, record = self.services, self.record
        event = services.event(
            "run_started",
            record.started_at,
            record.slug,
            record.run_id,
            cause=self.fire.cause,
            fire=self.fire.id,
            attempt=self.fire.attempt,
        )

        async def write() -> None:
            await services.store.record(claim=self.claim, run=record, events=(event,))

        if not await services.insist(write):
            raise Unrecorded
        log.info("run_started", slug=record.slug, run_id=record.run_id)
        await self.journal.make(services.artifacts.work(record.slug, record.run_id), "work/")

    async def _work(self, deadline: float) -> Ending:
        frame, injected = await Preparation(
            services=self.services,
            journal=self.journal,
            automation=self.automation,
            record=self.record,
            follow_ups=self.follow_ups,
            deadline=deadline,
        ).frame()
        conversation = Conversation(
            services=self.services,
            journal=self.journal,
            frame=frame,
            automation=self.automation,
            claim=self.claim,
            standing=lambda: self.standing,
        )
        self.conversation = conversation
        await conversation.open()
        try:
            last = await self._turns(conversation, injected)
        except (ContextCeiling, ConversationNotFound) as error:
            await conversation.give_up(error)
            if self.steps_done:
                raise
            await conversation.start_over()
            last = await self._turns_again(conversation, injected)
        policy = self.automation.notify
        if needs_judgment(policy):
            return await self._judge(conversation, last, policy)
        return Ending(state="succeeded", final=last)

    async def _turns_again(self, conversation: Conversation, injected: list[Ask]) -> str:
        try:
            return await self._turns(conversation, injected)
        except (ContextCeiling, ConversationNotFound) as error:
            await conversation.give_up(error)
            raise

    async def _turns(self, conversation: Conversation, injected: list[Ask]) -> str:
        for ask in injected:
            await conversation.take(ask)
        if self.fire.prompt is not None:
            asks = [Ask(origin="follow-up", prompt=self.fire.prompt)]
        else:
            asks = [
                Ask(origin="step", prompt=step.prompt, step_id=step.id, label=step.label)
                for step in self.automation.steps
            ]
        last = ""
        for ask in asks:
            last = (await conversation.take(ask)).text
            self.steps_done += 1
        return last

    async def _judge(
        self, conversation: Conversation, last: str, policy: Literal["auto", "urgent-only"]
    ) -> Ending:
        try:
            prompt = await self._judgment_prompt(policy)
            reply = await conversation.take(Ask(origin="judgment", prompt=prompt))
        except AgentError as error:
            if isinstance(error, (ContextCeiling, ConversationNotFound)):
                await conversation.give_up(error)
            return Ending(state="succeeded", final=last, judgment_failure=str(error))
        return Ending(state="succeeded", final=last, judgment=reply.text)

    async def _judgment_prompt(self, policy: Literal["auto", "urgent-only"]) -> str:
        folder = self.services.workspace_dir
        try:
            with holding(self.services.clock, "judgment prompt"):
                found = await self.services.threads.run(read_inside, folder, _JUDGMENT_FILE)
            own = found.decode("utf-8")
        except FileFault as fault:
            if fault.kind == "missing":
                return judgment_prompt(policy)
            msg = f"{_JUDGMENT_FILE} cannot be read: {fault}"
            raise AgentError(msg, code="judgment-prompt-unreadable") from fault
        except UnicodeDecodeError as error:
            msg = f"{_JUDGMENT_FILE} cannot be read: {error}"
            raise AgentError(msg, code="judgment-prompt-unreadable") from error
        if len(found) > MAX_FILE:
            msg = f"{_JUDGMENT_FILE} is larger than 1 MiB"
            raise AgentError(msg, code="judgment-prompt-unreadable")
        if not own.strip():
            msg = f"{_JUDGMENT_FILE} is blank"
            raise AgentError(msg, code="judgment-prompt-unreadable")
        return own

    @property
    def standing(self) -> RunRecord:
        """The record as it stands at this moment."""
        conversation = self.conversation
        if conversation is None:
            return self.record
        handle = conversation.handle
        return attrs.evolve(
            self.record,
            config_hash=config_hash(conversation.frame.config),
            session_id=conversation.session_id if conversation.exists else None,
            rotation=conversation.rotation,
            turns=tuple(conversation.records),
            usage=conversation.usage,
            handle=None if handle is None else self.services.redactor.text(handle),
        )

    async def _finish(self, ending: Ending) -> RunRecord | None:
        self.follow_ups.close()
        if self.stopping is not None and ending.state != "succeeded":
            # An agent may make anything of its cancellation; why it was cancelled is known.
            ending = self.stopping
        try:
            return await self._conclude(self.standing, ending)
        except (StoreError, ClaimLost):
            raise
        except Exception as error:  # noqa: BLE001  the run ends all the same, and no other with it
            # Nothing of what may be at fault goes with it a second time: no turn, no text.
            return await self._conclude(self.record, self._fault(error, type(error).__name__))

    async def _conclude(self, record: RunRecord, ending: Ending) -> RunRecord | None:
        return await conclude(
            self.services, self.journal, self.claim, self.automation, record, ending
        )
