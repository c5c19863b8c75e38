"""Turns whose caller waits for the answer: what ends them from elsewhere, and with the engine.

Such a turn lives in its caller's task and ends with it. Nothing of it is resumed later, since
nobody would wait for the answer any more.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import anyio
import attrs

from drumbeat.core.model import Reply
from drumbeat.errors import AgentError, DrumbeatError, EngineBusy, Problem
from drumbeat.runtime.answers import failure_of
from drumbeat.runtime.clock import OverTime, SelfCancelled, attended, bounded
from drumbeat.runtime.services import Services
from drumbeat.runtime.signals import Signal
from drumbeat.runtime.turns import Ask, Exchange

T = TypeVar("T")


def draining(what: str, *, remedy: str = "ask again after the next start") -> Problem:
    """Why a caller gets nothing from an engine that drains; `what` says what it does or did."""
    return Problem(
        code="engine-draining", message=f"the engine is draining and {what}", remedy=remedy
    )


@attrs.define(kw_only=True, eq=False)
class Awaited:
    """What one caller waits for, from the call to its end."""

    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    stopping: DrumbeatError | None = None
    """Why it is being cancelled, when the engine cancels it."""

    @property
    def waits(self) -> bool:
        """Whether it waits for somebody else, and the agent knows nothing of it yet."""
        return False

    def stop(self, error: DrumbeatError) -> None:
        """Cancel it; its caller gets `error`, unless the agent answers all the same."""
        self.stopping = self.stopping or error
        self.scope.cancel()


@attrs.define
class AwaitedTurns:
    """All of one engine."""

    services: Services
    _going: list[Awaited] = attrs.field(factory=list)
    _ended: Signal = attrs.field(factory=Signal)

    async def attend(self, awaited: Awaited, call: Callable[[], Awaitable[T]]) -> T:
        """Await `call()` and return what it returns, until somebody stops it.

        Raises:
            DrumbeatError: what it was stopped with.
            Exception: what the call raised.
        """
        self._going.append(awaited)
        try:
            with awaited.scope:
                return await call()
        finally:
            self._going.remove(awaited)
            self._ended.notify()
        assert awaited.stopping is not None, "only `stop` cancels the scope"
        raise awaited.stopping

    async def drain(self, limit: timedelta) -> None:
        """Let what is going end within `limit` on the clock, then cancel it.

        What waits for somebody else is cancelled at once. Returns when nothing is going; an agent
        that ignores its cancellation is waited for.
        """
        remedy = "ask again after the next start; the agent may have seen the text already"
        error = EngineBusy(draining("has ended the turn", remedy=remedy))
        for awaited in list(self._going):
            if awaited.waits:
                awaited.stop(error)

        async def cancel_later() -> None:
            if limit > timedelta(0):
                await self.services.hurried.wait(0, clock=self.services.clock, limit=limit)
            self.stop(error)

        async with anyio.create_task_group() as group:
            group.start_soon(cancel_later)
            await self.over()
            group.cancel_scope.cancel()

    def stop(self, error: DrumbeatError) -> None:
        """Cancel everything; the callers get `error`."""
        for awaited in list(self._going):
            awaited.stop(error)

    async def over(self) -> None:
        """Return when nothing is going."""
        while self._going:
            await self._ended.wait(self._ended.count)


async def take_within(
    exchange: Exchange,
    ask: Ask,
    *,
    limit: timedelta,
    over_time: Callable[[], AgentError],
    stuck: Callable[[], Awaitable[None]],
) -> Reply:
    """Take one turn whose caller waits, and return its reply.

    Args:
        exchange: the conversation; its frame says when the time is up.
        ask: what to put to the agent.
        limit: cancel the turn after this long.
        over_time: what to raise then.
        stuck: told when the agent ignores that it was cancelled.

    Raises:
        AgentError: the turn failed, or took longer than it may.
    """
    clock = exchange.services.clock
    patience = exchange.services.settings.stuck_after

    async def turn() -> Reply:
        return await bounded(
            clock, limit, lambda: exchange.take(ask), stuck_after=patience, stuck=stuck
        )

    try:
        return await attended(clock, patience, turn, stuck)
    except OverTime:
        raise over_time() from None
    except SelfCancelled as error:
        raise failure_of(error, exchange.services.redactor) from error
    except AgentError as error:
        if clock.monotonic() >= exchange.frame.deadline:
            # What an agent makes of its cancellation says nothing about why it failed.
            raise over_time() from error
        raise
