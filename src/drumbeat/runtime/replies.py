"""A person's answer to a run: one more turn in the conversation that the run was held in.

Theory of operation. A reply is asked for by a caller who waits, so it lives in that caller's task
and ends with it. It takes the conversation as a run does, under an id of its own, and so excludes
every run and every other reply that wants to talk in it, and nobody else.

Before anything is sent, the turn stands in the run's record as one without an answer; that numbers
it for good, and is what a crash leaves of it. When it is over, the record gets what came of it, and
the event `reply_completed` is appended as the conversation is freed. What the store does not take
then is owed: the caller has the answer, and `pay_debts` writes it down when the store takes it.

A reply decides nothing about the automation: it makes no intent and sets or clears no pin. The one
thing that it changes in a pin is the handle, if the conversation is still the pinned one: an agent
that names each turn anew would else go on, in the next run, from before the answer.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Literal
from uuid import uuid4

import anyio
import attrs

from drumbeat.core.model import Claim, Reply, RunRecord
from drumbeat.errors import (
    AgentError,
    ClaimLost,
    NotFound,
    Problem,
    SessionBusy,
    StoreError,
)
from drumbeat.protocols import Store
from drumbeat.runtime.awaited import Awaited, AwaitedTurns
from drumbeat.runtime.contained import contained
from drumbeat.runtime.reply_turn import ReplyTurn, current_layers
from drumbeat.runtime.requests import unknown_run
from drumbeat.runtime.services import Services
from drumbeat.runtime.signals import Signal

_MOMENT = timedelta(seconds=10)
"""So long an answer waits in any case for a conversation that the engine itself has borrowed."""


@attrs.define(kw_only=True, eq=False)
class Answering(Awaited):
    """A reply that is going, from the look for its run to the end of its turn."""

    id: str = attrs.field(factory=lambda: f"reply-{uuid4()}")
    claim: Claim | None = None
    """On the conversation, while it is held."""

    @property
    def waits(self) -> bool:
        """Whether it has no conversation yet."""
        return self.claim is None


@attrs.define(kw_only=True)
class Replies:
    """The replies of one engine."""

    services: Services
    awaited: AwaitedTurns
    going: dict[str, Answering] = attrs.field(factory=dict)
    """By the ids under which they hold conversations."""
    _debts: list[Callable[[], Awaitable[None]]] = attrs.field(factory=list)
    _owing: Signal = attrs.field(factory=Signal)

    # ---- asking

    async def reply(self, target: str, text: str, profile: str | None, *, wait: timedelta) -> Reply:
        """As `Engine.reply`, whose docstring says what is raised."""
        answering = Answering()
        self.going[answering.id] = answering
        try:
            return await self.awaited.attend(
                answering, lambda: self._reply(answering, target, text, profile, wait)
            )
        finally:
            del self.going[answering.id]

    async def _reply(
        self, answering: Answering, target: str, text: str, profile: str | None, wait: timedelta
    ) -> Reply:
        (await current_layers(self.services)).resolve(None, profile)
        run, claim = await self._taken(answering, target, wait)
        return await self._answer(answering, run, claim, text, profile)

    def holding(self) -> list[tuple[Answering, Claim]]:
        """The replies that hold a conversation, and their claims."""
        return [(each, each.claim) for each in self.going.values() if each.claim is not None]

    async def _taken(
        self, answering: Answering, target: str, wait: timedelta
    ) -> tuple[RunRecord, Claim]:
        """Find the run that `target` names, and take its conversation."""
        services = self.services
        began = services.clock.monotonic()
        while True:
            seen = services.conversations_freed.count
            run = await find_answered(services.store, target)
            limit = wait
            # Which conversation a run that is going talks in may still change.
            if run.state != "running":
                session_id = _session_of(run)
                claim = await services.store.hold(session_id, run_id=answering.id)
                if claim is not None:
                    answering.claim = claim
                    return run, claim
                freed = services.conversations_freed.count != seen
                # Nobody talks in what the engine holds for an instant; it may be free again by now.
                if freed or session_id in services.borrowing:
                    limit = max(wait, _MOMENT)
            left = limit - timedelta(seconds=services.clock.monotonic() - began)
            if left <= timedelta(0):
                raise SessionBusy(
                    Problem(
                        code="session-busy",
                        message=f"somebody else talks in the conversation of {run.slug} that "
                        f"{target!r} names; the text was not sent",
                        remedy="ask again later, or let the call wait with `wait`",
                    )
                )
            await services.conversations_freed.wait(seen, clock=services.clock, limit=left)

    async def _answer(
        self, answering: Answering, run: RunRecord, claim: Claim, text: str, profile: str | None
    ) -> Reply:
        turn: ReplyTurn | None = None
        state: Literal["succeeded", "failed", "cancelled"] = "cancelled"
        problem: Problem | None = None
        try:
            turn = await self._made(run, claim, text, profile)
            await turn.begin()
            reply = await turn.take()
            state = "succeeded"
            return reply
        except AgentError as error:
            state, problem = "failed", error.problem
            raise
        finally:
            if state == "cancelled" and answering.stopping is not None:
                state, problem = "failed", answering.stopping.problem
            answering.claim = None
            self.services.stuck.discard(claim.run_id)
            with anyio.CancelScope(shield=True):
                await self._end(turn, run.slug, claim, state, problem)

    async def _made(
        self, run: RunRecord, claim: Claim, text: str, profile: str | None
    ) -> ReplyTurn:
        # Another reply may have been written into it before the conversation was taken.
        run = await find_answered(self.services.store, run.run_id)
        return ReplyTurn(
            services=self.services,
            claim=claim,
            run=run,
            session_id=claim.slug,
            text=text,
            profile=profile,
        )

    # ---- the end of one

    async def _end(
        self,
        turn: ReplyTurn | None,
        slug: str,
        claim: Claim,
        state: Literal["succeeded", "failed", "cancelled"],
        problem: Problem | None,
    ) -> None:
        """Write it down and free the conversation, at once or when the store takes it."""
        services = self.services
        if turn is not None and not turn.begun:
            turn = None

        async def write() -> None:
            try:
                if turn is None:
                    await services.store.finish(claim, None)
                else:
                    await turn.finish(state, problem)
            except ClaimLost as error:
                services.claim_lost(slug, claim.run_id, error)

        if turn is not None and state == "succeeded":
            await turn.keep_handle()
        try:
            await write()
        except StoreError as error:
            services.trouble(error)
            self._debts.append(write)
            self._owing.notify()
        services.conversations_freed.notify()
        if turn is not None:
            await turn.write_result()

    async def pay_debts(self) -> None:
        """Write down what the store did not take when replies ended, until cancelled."""
        while True:
            seen = self._owing.count
            while self._debts:
                debt = self._debts.pop(0)
                if not await contained(self.services, "answers", partial(self._pay, debt)):
                    self._debts.append(debt)
                    await self.services.clock.sleep(self.services.settings.store_probe)
            await self._owing.wait(seen)

    async def _pay(self, debt: Callable[[], Awaitable[None]]) -> None:
        if await self.services.insist(debt):  # else it drains, and the next start frees it
            self.services.conversations_freed.notify()


async def find_answered(store: Store, target: str) -> RunRecord:
    """The run that an answer to `target`, a run, session or receipt id, is meant for.

    For a session it is the latest run in it.

    Raises:
        NotFound: there is no such run, or there are several in different conversations.
        StoreError: the store could not be read.
    """
    found = await store.runs(target=target, limit=1, payloads=False)
    if found and target not in (found[0].run_id, found[0].session_id):
        # A channel may give one receipt to many messages: any choice would be a guess.
        found = await store.runs(target=target, limit=None, payloads=False)
        if len({(run.slug, run.session_id) for run in found}) > 1:
            raise NotFound(
                Problem(
                    code="reply-ambiguous",
                    message=f"{target!r} is the receipt of messages from {len(found)} runs in "
                    "different conversations",
                    remedy="let the deliverer return an id of its own for each message, or answer "
                    "a run id",
                )
            )
    if not found:
        raise unknown_run(target)
    return found[0]


def _session_of(run: RunRecord) -> str:
    if run.session_id is None:
        raise NotFound(
            Problem(
                code="run-without-conversation",
                message=f"the run {run.run_id} of {run.slug} ended before a turn was answered, so "
                "there is no conversation to answer in",
                remedy="run the automation again, or answer another run of it",
            )
        )
    return run.session_id
