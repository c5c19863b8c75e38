"""One turn after another in one conversation: what the agent is given, retries, what is kept.

Theory of operation. `turn_id` names the turn and stays over retries, so that an agent can tell a
repeat. A conversation exists at the agent only after its first turn succeeded; so the first turn of
a conversation that is tried again gets a fresh session id, and the pin is set only afterwards.
"""

from collections.abc import Mapping
from copy import deepcopy
from datetime import date, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import anyio
import attrs

from drumbeat.core.backoff import turn_pause
from drumbeat.core.config_layers import provider_of
from drumbeat.core.identity import turn_id
from drumbeat.core.model import (
    Automation,
    Json,
    Origin,
    Pin,
    Reply,
    Requirement,
    Rotation,
    Turn,
    TurnRecord,
    Usage,
)
from drumbeat.core.rotation import decide_rotation
from drumbeat.errors import (
    AgentError,
    AgentUnavailable,
    ContextCeiling,
    ConversationNotFound,
)
from drumbeat.protocols import FollowUps
from drumbeat.runtime.answers import described, failure_of, is_reply, is_usage
from drumbeat.runtime.clock import OverTime, bounded, holding, is_interrupt
from drumbeat.runtime.journal import Journal
from drumbeat.runtime.log import log
from drumbeat.runtime.rotations import complete_one, rotate
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
    """What all turns of a run have in common."""

    automation: Automation
    run_id: str
    context: str
    requirements: tuple[Requirement, ...]
    config: Json
    env: Mapping[str, str]
    cwd: Path
    system_prompt: str | None
    memory_dir: Path
    follow_ups: FollowUps
    deadline: float
    """When the run's time is up, on the clock's `monotonic`."""


@attrs.define(kw_only=True)
class Conversation:
    """The conversation of one run, and the turns taken in it so far."""

    services: Services
    journal: Journal
    frame: Frame
    session_id: str = attrs.field(factory=lambda: str(uuid4()))
    exists: bool = False
    """Whether the agent knows the conversation: a turn in it succeeded, in this run or before."""
    pin: Pin | None = None
    """What is pinned."""
    rotation: Rotation | None = None
    """Why the run gave up a conversation, the last time that it did."""
    day: date = date.min
    """The local day on which it was decided; a turn may end on the next."""
    context_sent: bool = False
    records: list[TurnRecord] = attrs.field(factory=list)
    usage: Usage = attrs.field(factory=Usage)

    @property
    def replies(self) -> int:
        """How many turns were answered."""
        return sum(1 for record in self.records if record.reply is not None)

    # ---- which conversation

    async def open(self) -> None:
        """Decide which conversation it is (spec, section 7), rotating only now, and take it.

        Raises:
            StoreError: the pins or the store could not be read or written.
        """
        services, automation = self.services, self.frame.automation
        while True:
            self.day = services.clock.now().astimezone(services.zone(automation.kind)).date()
            await complete_one(services, automation.slug)
            self.pin = await self._pinned()
            reason = decide_rotation(
                automation.conversation,
                self.pin,
                fingerprint=automation.fingerprint,
                provider=provider_of(self.frame.config),
                today=self.day,
            )
            if reason is not None:
                await self._rotate(reason)
            self.exists = self.pin is not None
            self.session_id = str(uuid4()) if self.pin is None else self.pin.session_id
            if not await self.hold() or self.pin == await self._pinned():
                return

    async def hold(self) -> bool:
        """Take the conversation, and say whether somebody else had it, who was waited for."""
        services = self.services
        taken = waited = False

        async def ask_for_it() -> None:
            nonlocal taken
            taken = await services.store.hold(self.session_id, run_id=self.frame.run_id) is not None

        while True:
            seen = services.conversations_freed.count
            if not await services.insist(ask_for_it):
                # Draining with a store in trouble: the drain ends this run as interrupted.
                await anyio.sleep_forever()
            if taken:
                return waited
            waited = True
            await services.conversations_freed.wait(
                seen, clock=services.clock, limit=timedelta(seconds=5)
            )

    async def give_up(self, error: ContextCeiling | ConversationNotFound) -> None:
        """Rotate because of what the agent said of the conversation.

        Raises:
            StoreError: the pins or the store could not be written.
        """
        ceiling = isinstance(error, ContextCeiling)
        await self._rotate("context-ceiling" if ceiling else "conversation-missing", str(error))

    async def start_over(self) -> None:
        """Go on in another conversation, which is told the context again."""
        self.session_id = str(uuid4())
        self.exists = self.context_sent = False
        await self.hold()

    async def _rotate(self, reason: Rotation, note: str = "") -> None:
        self.rotation = reason
        await rotate(
            self.services,
            self.frame.automation.slug,
            reason=reason,
            note=note,
            now=self.services.clock.now(),
            run_id=self.frame.run_id,
            session_id=self.session_id,
        )
        self.pin = None

    async def _pinned(self) -> Pin | None:
        with holding(self.services.clock, "pins"):
            return await self.services.pins.get(self.frame.automation.slug)

    # ---- turns

    async def take(self, ask: Ask) -> Reply:
        """Put one prompt to the agent and return its reply.

        Raises:
            AgentError: the turn failed; its `code` says why.
            StoreError: the pins could not be written.
        """
        services = self.services
        number = len(self.records) + 1
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
            trace = self._trace(error)
            log.error(
                "turn_failed",
                slug=self.frame.automation.slug,
                run_id=self.frame.run_id,
                turn_id=name,
                attempt=tries.count,
                code=error.code,
                trace=trace,
            )
            answer = f"(no reply: {error} [{error.code}])"
            if error.__cause__ is not None:
                # What was raised on purpose says all of it; the rest is a fault to be found.
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
        self._count(reply.usage)
        await self._keep_pin(reply, started_at)
        await self.journal.note(
            "turn_completed",
            now,
            turn_id=name,
            origin=ask.origin,
            step_id=ask.step_id,
            label=ask.label,
            attempts=tries.count,
            retried=list(tries.reasons),
            session_id=self.session_id,
        )
        return reply

    async def _try(self, ask: Ask, name: str, context: str, tries: "_Tries") -> Reply:
        services = self.services
        while True:
            tries.count += 1
            try:
                return await self._attempt(ask, name, context, tries.count)
            except AgentUnavailable as error:
                reason = services.redactor.text(str(error))[:_REASON_LIMIT]
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
                slug=self.frame.automation.slug,
                run_id=self.frame.run_id,
                attempt=tries.count,
                pause=pause.total_seconds(),
                reason=reason,
            )
            await services.clock.sleep(pause)
            if not self.exists:
                self.session_id = str(uuid4())
                await self.hold()

    async def _attempt(self, ask: Ask, name: str, context: str, attempt: int) -> Reply:
        services, frame = self.services, self.frame
        began = services.clock.monotonic()
        left = timedelta(seconds=max(0.0, frame.deadline - began))
        limit = services.settings.turn_timeout
        turn = Turn(
            turn_id=name,
            attempt=attempt,
            slug=frame.automation.slug,
            session_id=self.session_id,
            is_new=not self.exists,
            handle=None if self.pin is None else self.pin.handle,
            automation=frame.automation,
            run_id=frame.run_id,
            origin=ask.origin,
            step_id=ask.step_id,
            label=ask.label,
            prompt=ask.prompt,
            context=context,
            requirements=frame.requirements,
            system_prompt=frame.system_prompt,
            skills=(),
            # Copies: what an agent does to them must reach neither the next turn nor the record.
            config=deepcopy(frame.config),
            memory_dir=frame.memory_dir,
            follow_ups=frame.follow_ups,
            env=dict(frame.env),
            cwd=frame.cwd,
            timeout=left if limit is None else min(limit, left),
        )

        async def call() -> Reply:
            what = f"turn {name} ({turn.slug}/{ask.origin})"
            with holding(services.clock, what), turn_of(services, turn.slug):
                return await services.agent.take_turn(turn)

        failure: AgentError | None = None
        reply: object = None
        over_time = False
        try:
            reply = await bounded(services.clock, limit, call)
        except anyio.get_cancelled_exc_class():
            raise
        except OverTime:
            over_time = True
        except BaseException as error:  # an agent may raise anything; raised below
            if is_interrupt(error):
                raise
            failure = failure_of(error)
        spent = timedelta(seconds=services.clock.monotonic() - began)
        if over_time or (limit is not None and spent >= limit):
            # Whatever an agent makes of its cancellation, a reply included, it is no answer.
            msg = f"the turn took longer than {limit}"
            usage = None if failure is None else failure.usage
            if is_reply(reply):
                usage = reply.usage
            raise AgentError(msg, code="turn-timeout", usage=usage) from failure
        if failure is not None:
            raise failure
        if not is_reply(reply):
            msg = f"the agent returned {described(reply)}"
            raise AgentError(msg, code="agent-reply-invalid")
        return reply

    def _trace(self, error: AgentError) -> str:
        try:
            return self.services.trace(error)[-_TRACE_LIMIT:]
        except Exception:  # noqa: BLE001  an exception of a host's own may break in any of its parts
            return "the traceback cannot be read"

    def _count(self, usage: Usage | None) -> None:
        if is_usage(usage):
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

    async def _keep_pin(self, reply: Reply, at: datetime) -> None:
        """Pin the conversation once its first turn succeeded, and whenever its handle changes."""
        if self.pin is not None and reply.handle in (None, self.pin.handle):
            return
        pin = self.pin or Pin(
            session_id=self.session_id,
            fingerprint=self.frame.automation.fingerprint,
            provider=provider_of(self.frame.config),
            day=self.day,
            at=at,
        )
        pin = attrs.evolve(pin, handle=reply.handle)
        with holding(self.services.clock, "pins"):
            await self.services.pins.set(self.frame.automation.slug, pin)
        self.pin = pin


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
