"""The worker threads of one engine or client, which it shares with nobody.

A host that serves people from a pool of threads may fill all that anyio gives it with calls that
wait for an engine. If the engine needed one of these to go on, both would wait for ever.
"""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread

__all__ = ["THREADS", "Threads"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

THREADS = 8
"""So many calls of one engine or client are in threads at once, those of the store aside."""


class Threads:
    """Calls that would block the loop, `THREADS` at once; what is used alone makes its own."""

    def __init__(self) -> None:
        self._limiter: CapacityLimiter | None = None

    async def run(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Await `call(*args)` in a thread; once begun it ends before a cancellation is raised.

        Raises:
            Exception: what the call raises.
        """
        if self._limiter is None:  # one that is made outside a loop would be of no loop
            self._limiter = CapacityLimiter(THREADS)
        return await to_thread.run_sync(call, *args, limiter=self._limiter)
