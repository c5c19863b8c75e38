"""One turn after another in one conversation: what the agent is given, retries, what is kept.

Theory of operation. `turn_id` names the turn and stays over retries, so that an agent can tell a
repeat. A conversation exists at the agent only after its first turn succeeded; so the first turn of
a conversation that is tried again gets a fresh session id.
"""

from collections.abc import Mapping
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import anyio
import attrs

from drumbeat.core.backoff import turn_pause
from drumbeat.core.identity import turn_id
from drumbeat.core.messages import exactly
from drumbeat.core.model import (
    Automation,
    Json,
    Origin,
    Reply,
    Requirement,
    Turn,
    TurnRecord,
    Usage,
)
from drumbeat.errors import (
    AgentError,
    AgentUnavailable,
)
from drumbeat.protocols import FollowUps
from drumbeat.runtime.answers import Raised, answered, failure_of, plain_reply
from drumbeat.runtime.journal import Journal
from drumbeat.runtime.log import log
from drumbeat.runtime.services import Services
from drumbeat.runtime.within import turn_of

_REASON_LIMIT = 2000
_TRACE_LIMIT = 20_000
"""Characters of a traceback, the last ones: where it was raised stands at the end."""


@attrs.frozen(kw_only=True)
class Ask:
    """One prompt to put to the agent, and where it comes from."""

    origin: Origin
    prompt: str
    step_id: str | None = None
    label: str | None = None


@attrs.frozen(kw_only=True)
class Frame:
    """What all turns of a run, or of a reply, have in common."""

    slug: str
    automation: Automation | None
    run_id: str
    context: str
    requirements: tuple[Requirement, ...]
    config: Json
    env: Mapping[str, str]
    cwd: Path
    skills: tuple[Path, ...]
    system_prompt: str | None
    memory_dir: Path
    follow_ups: FollowUps
    deadline: float
    """When the time is up, on the clock's `monotonic`."""
    recorded: bool = True
    """Whether there is a run of that id; else the id only tells turns apart."""


@attrs.define(kw_only=True)
class Exchange:
    """Turns in a conversation that somebody has taken, and what came of them so far."""

    services: Services
    journal: Journal
    frame: Frame
    session_id: str
    exists: bool
    """Whether the agent knows the conversation: a turn in it succeeded, in this run or before."""
    handle: str | None = None
    """The agent's own id for the conversation, as it was last said."""
    before: int = 0
    """How many turns the run's record has from earlier on."""
    context_sent: bool = False
    records: list[TurnRecord] = attrs.field(factory=list)
    retried: list[str] = attrs.field(factory=list)
    """Why the attempts at the last turn were made again."""
    usage: Usage = attrs.field(factory=Usage)

    async def another(self) -> None:
        """Go on in another conversation, because nothing came of the first turn of this one."""
        raise NotImplementedError

    # ---- turns

    async def take(self, ask: Ask) -> Reply:
        """Put one prompt to the agent and return its reply.

        Raises:
            AgentError: the turn failed; its `code` says why.
        """
        services = self.services
        number = self.before + len(self.records) + 1
        name = turn_id(self.frame.run_id, number)
        page = f"turns/{number:02d}-{ask.origin}.md"
        context = "" if self.context_sent else self.frame.context
        asked = _asked(ask, number, context)
        await self.journal.artifact(page, asked)
        started_at = services.clock.now()
        tries = _Tries()
        reply: Reply | None = None
        answer = "(no reply: the turn was cut short)"
        try:
            reply = await self._try(ask, name, context, tries)
            answer = reply.text
        except AgentError as error:
            # What was raised on purpose says all of it; the rest is a fault to be found.
            faulty = error.__cause__ is not None
            trace = self._trace(error) if faulty else ""
            log.error(
                "turn_failed",
                slug=self.frame.slug,
                run_id=self.frame.run_id,
                turn_id=name,
                attempt=tries.count,
                code=error.code,
                message=services.redactor.head(str(error), _REASON_LIMIT),
                **({"trace": trace} if faulty else {}),
            )
            answer = f"(no reply: {error} [{error.code}])"
            if faulty:
                answer += f"\n\n## Traceback\n\n{_indented(trace)}"
            raise
        finally:
            now = services.clock.now()
            self.records.append(
                TurnRecord(
                    turn_id=name,
                    origin=ask.origin,
                    step_id=ask.step_id,
                    attempts=tries.count,
                    started_at=started_at,
                    finished_at=now,
                    reply=None if reply is None else self._keepable(reply),
                )
            )
            with anyio.CancelScope(shield=True):
                tried = "".join(f"\n{reason}\n" for reason in tries.reasons)
                tried = f"\n## Tried again\n{tried}" if tried else ""
                await self.journal.artifact(page, f"{asked}{tried}\n## Reply\n\n{answer}\n")
        self.exists = self.context_sent = True
        if reply.handle is not None:
            self.handle = reply.handle
        self._count(reply.usage)
        self.retried = tries.reasons
        return reply

    async def _try(self, ask: Ask, name: str, context: str, tries: "_Tries") -> Reply:
        services = self.services
        while True:
            tries.count += 1
            try:
                return await self._attempt(ask, name, context, tries.count)
            except AgentUnavailable as error:
                reason = services.redactor.head(str(error), _REASON_LIMIT)
                self._count(error.usage)
                if tries.count >= services.settings.turn_attempts:
                    raise
                pause = turn_pause(tries.count, error.retry_after)
                left = self.frame.deadline - services.clock.monotonic()
                if pause.total_seconds() >= left:
                    raise  # the reason is this, and not that the run took too long waiting
            except AgentError as error:
                self._count(error.usage)
                raise
            tries.reasons.append(f"attempt {tries.count}: {reason}")
            log.warning(
                "turn_retried",
                slug=self.frame.slug,
                run_id=self.frame.run_id,
                attempt=tries.count,
                pause=pause.total_seconds(),
                reason=reason,
            )
            await services.clock.sleep(pause)
            if not self.exists:
                await self.another()

    async def _attempt(self, ask: Ask, name: str, context: str, attempt: int) -> Reply:
        services, frame = self.services, self.frame
        began = services.clock.monotonic()
        left = timedelta(seconds=max(0.0, frame.deadline - began))
        limit = services.settings.turn_timeout
        turn = Turn(
            turn_id=name,
            attempt=attempt,
            slug=frame.slug,
            session_id=self.session_id,
            is_new=not self.exists,
            handle=self.handle,
            automation=frame.automation,
            run_id=frame.run_id if frame.recorded else None,
            origin=ask.origin,
            step_id=ask.step_id,
            label=ask.label,
            prompt=ask.prompt,
            context=context,
            requirements=frame.requirements,
            system_prompt=frame.system_prompt,
            skills=frame.skills,
            # Copies: what an agent does to them must reach neither the next turn nor the record.
            config=deepcopy(frame.config),
            memory_dir=frame.memory_dir,
            follow_ups=frame.follow_ups,
            env=dict(frame.env),
            cwd=frame.cwd,
            timeout=left if limit is None else min(limit, left),
        )

        async def call() -> Reply:
            with turn_of(services, turn.slug):
                return plain_reply(await services.agent.take_turn(turn))

        what = f"turn {name} ({turn.slug}/{ask.origin})"
        answer = await answered(services.clock, limit, call, what=what)
        spent = timedelta(seconds=services.clock.monotonic() - began)
        over_time = isinstance(answer, Raised) and answer.how == "over-time"
        redactor = services.redactor
        result = failure_of(answer.error, redactor) if isinstance(answer, Raised) else answer
        failure = result if isinstance(result, AgentError) and not over_time else None
        if limit is not None and (over_time or spent >= limit):
            # Whatever an agent makes of its cancellation, a reply included, it is no answer.
            msg = f"the turn took longer than {exactly(limit)}"
            raise AgentError(msg, code="turn-timeout", usage=result.usage) from failure
        if isinstance(result, AgentError):
            raise result
        return result

    def _trace(self, error: AgentError) -> str:
        return self.services.trace(error)[-_TRACE_LIMIT:]

    def _count(self, usage: Usage | None) -> None:
        if usage is not None:
            self.usage += usage

    def _keepable(self, reply: Reply) -> Reply:
        """The reply as it may stand in the record."""
        text = self.services.redactor.text
        return attrs.evolve(
            reply,
            text=text(reply.text),
            provider=None if reply.provider is None else text(reply.provider),
            model=None if reply.model is None else text(reply.model),
            handle=None if reply.handle is None else text(reply.handle),
        )


@attrs.define
class _Tries:
    count: int = 0
    reasons: list[str] = attrs.field(factory=list)
    """Why each attempt but the last was made again."""


def _indented(text: str) -> str:
    """A text as a block of code, whatever stands in it."""
    return "".join(f"    {line}\n" for line in text.splitlines()).rstrip()


def _asked(ask: Ask, number: int, context: str) -> str:
    heading = f"# Turn {number}: {ask.origin}" + (f" `{ask.step_id}`" if ask.step_id else "")
    said = f"{context}\n\n{ask.prompt}" if context else ask.prompt
    return f"{heading}\n\n## Prompt\n\n{said}\n"
