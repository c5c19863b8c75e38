"""Which conversation a run talks in: the one that is pinned, or one that it begins and pins.

Theory of operation. A pin is read, and rotated if it has to be, before the conversation is taken;
whoever had it may have changed the pin meanwhile, so it is looked at again afterwards. The pin of a
conversation is set only after its first turn succeeded, since the agent knows none before.
"""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Final
from uuid import uuid4

import anyio
import attrs

from drumbeat.core.config_layers import provider_of
from drumbeat.core.model import Automation, Claim, Pin, Reply, Rotation, RunRecord
from drumbeat.core.rotation import decide_rotation
from drumbeat.errors import ContextCeiling, ConversationNotFound
from drumbeat.runtime.clock import holding
from drumbeat.runtime.log import log
from drumbeat.runtime.rotations import complete_one, rotate, rotate_if_asked
from drumbeat.runtime.turns import Ask, Exchange

_LOOK_AGAIN: Final = timedelta(seconds=5)


@attrs.define(kw_only=True)
class Conversation(Exchange):
    """The conversation of one run."""

    automation: Automation
    claim: Claim
    """Of the run."""
    standing: Callable[[], RunRecord]
    """The run as it stands."""
    session_id: str = attrs.field(factory=lambda: str(uuid4()))
    exists: bool = False
    held: dict[str, Claim] = attrs.field(factory=dict)
    """The conversations that the run has taken, by session id."""
    pin: Pin | None = None
    """What is pinned."""
    rotation: Rotation | None = None
    """Why the run gave up a conversation, the last time that it did."""
    day: date = date.min
    """The local day on which it was decided; a turn may end on the next."""

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
        services, automation = self.services, self.automation
        while True:
            self.day = services.clock.now().astimezone(services.zone(automation.kind)).date()
            await services.endure(self._carry_out_what_was_asked)
            self.pin = await services.endure(self._pinned)
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
            self.handle = None if self.pin is None else self.pin.handle
            await self.hold()
            # Whoever talked in it until a moment ago may have left another handle.
            if self.pin == await services.endure(self._pinned):
                return

    async def _carry_out_what_was_asked(self) -> None:
        # In this order also when it is done again: what was begun answers the request.
        await complete_one(self.services, self.automation.slug)
        await rotate_if_asked(self.services, self.automation.slug)

    async def hold(self) -> None:
        """Take the conversation; while somebody else has it, wait without a place among the runs.

        The place is there again before the conversation is asked for, so that nobody is kept out of
        a conversation by a run that cannot go on.
        """
        services, run_id = self.services, self.frame.run_id
        claim: Claim | None = None

        async def ask_for_it() -> None:
            nonlocal claim
            claim = await services.store.hold(self.session_id, run_id=run_id)

        while True:
            seen = services.conversations_freed.count
            if not await services.insist(ask_for_it):
                # Draining with a store in trouble: the drain ends this run as interrupted.
                await anyio.sleep_forever()
            if claim is not None:
                self.held[self.session_id] = claim
                return
            log.info("run_waits", slug=self.frame.slug, run_id=run_id, session_id=self.session_id)
            services.places.leave(run_id)
            services.fires_changed.notify()
            await services.conversations_freed.wait(seen, clock=services.clock, limit=_LOOK_AGAIN)
            await services.places.come_back(run_id)

    async def give_up(self, error: ContextCeiling | ConversationNotFound) -> None:
        """Rotate because of what the agent said of the conversation.

        Raises:
            StoreError: the pins or the store could not be written.
        """
        ceiling = isinstance(error, ContextCeiling)
        await self._rotate("context-ceiling" if ceiling else "conversation-missing", str(error))

    async def start_over(self) -> None:
        """Go on in another conversation, which is told the context again."""
        self.exists = self.context_sent = False
        self.handle = None
        await self.another()

    async def another(self) -> None:
        """Go on under another session id."""
        self.session_id = str(uuid4())
        await self.hold()

    async def _rotate(self, reason: Rotation, note: str = "") -> None:
        self.rotation = reason
        now, begun = self.services.clock.now(), False

        def begin() -> None:
            nonlocal begun
            begun = True

        async def leave() -> None:
            if begun:
                await complete_one(self.services, self.frame.slug)
                return
            await rotate(
                self.services,
                self.frame.slug,
                reason=reason,
                note=note,
                now=now,
                run_id=self.frame.run_id,
                session_id=self.session_id,
                begun=begin,
            )

        await self.services.endure(leave)
        self.pin = None

    async def _pinned(self) -> Pin | None:
        with holding(self.services.clock, "pins"):
            return await self.services.pins.get(self.frame.slug)

    # ---- turns

    async def take(self, ask: Ask) -> Reply:
        """Put one prompt to the agent and return its reply.

        Raises:
            AgentError: the turn failed; its `code` says why.
            StoreError: the pins could not be written.
            ClaimLost: somebody else has taken the run over.
        """
        reply = await super().take(ask)
        turn = self.records[-1]
        # The run goes with it, so that what a crash leaves can be answered in its conversation.
        await self.journal.note(
            "turn_completed",
            turn.finished_at,
            claim=self.claim,
            record=self.standing(),
            turn_id=turn.turn_id,
            origin=ask.origin,
            step_id=ask.step_id,
            label=ask.label,
            attempts=turn.attempts,
            retried=list(self.retried),
            session_id=self.session_id,
        )
        # Behind that: the answer stands, whatever becomes of the pin.
        await self._keep_pin(reply, turn.started_at)
        return reply

    async def _keep_pin(self, reply: Reply, at: datetime) -> None:
        """Pin the conversation once its first turn succeeded, and whenever its handle changes."""
        if self.pin is not None and reply.handle in (None, self.pin.handle):
            return
        pin = self.pin or Pin(
            session_id=self.session_id,
            fingerprint=self.automation.fingerprint,
            provider=provider_of(self.frame.config),
            day=self.day,
            at=at,
        )
        kept = attrs.evolve(pin, handle=reply.handle)

        async def keep() -> None:
            async with self.services.pinning:
                with holding(self.services.clock, "pins"):
                    await self.services.pins.set(self.frame.slug, kept)

        await self.services.endure(keep)
        self.pin = kept
