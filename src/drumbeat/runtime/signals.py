"""How one part of an engine wakes another without losing a call that came too early."""

from datetime import timedelta

import anyio

from drumbeat.protocols import Clock
from drumbeat.runtime.clock import nap


class Signal:
    """A counter that can be waited for.

    Read `count`, look at the state of things, then wait with what was read: a `notify` in between
    is seen. Any number of tasks may wait.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self._event = anyio.Event()

    def notify(self) -> None:
        """Wake every waiter."""
        self.count += 1
        self._event.set()
        self._event = anyio.Event()

    async def wait(
        self,
        seen: int,
        *,
        clock: Clock | None = None,
        limit: timedelta | None = None,
        glance: timedelta | None = None,
    ) -> None:
        """Return once `count` differs from `seen`, or when a time on `clock` is up.

        Args:
            seen: what `count` was when the state of things was looked at.
            clock: what the times are measured on; without one there are none.
            limit: the longest wait, to the point.
            glance: the longest wait for a look around that nobody waits for: a driven clock makes
                no stop for it.
        """
        if clock is None or (limit is None and glance is None):
            while self.count == seen:
                await self._event.wait()
            return
        if self.count != seen:
            return

        async def expire(delay: timedelta) -> None:
            await clock.sleep(delay)
            group.cancel_scope.cancel()

        async def look_around(delay: timedelta) -> None:
            await nap(clock, delay)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            if limit is not None:
                group.start_soon(expire, limit)
            if glance is not None:
                group.start_soon(look_around, glance)
            while self.count == seen:
                await self._event.wait()
            group.cancel_scope.cancel()
