"""How many runs go at once, and how one that waits for somebody else gives its place up."""

from collections import deque

import anyio
from anyio.lowlevel import checkpoint

__all__ = ["Places"]


class Places:
    """The places of one engine's runs, by their run ids.

    Those who come back have theirs before any run that is to begin, in the order in which they
    asked.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._taken: set[str] = set()
        self._returning: deque[tuple[str, anyio.Event]] = deque()

    def take(self, run_id: str) -> bool:
        """Take a place if there is one, and say so."""
        if not self._free:
            return False
        self._free -= 1
        self._taken.add(run_id)
        return True

    async def come_back(self, run_id: str) -> None:
        """Wait for a place and take it."""
        await checkpoint()
        if self.take(run_id):
            return
        waiting = (run_id, anyio.Event())
        self._returning.append(waiting)
        try:
            await waiting[1].wait()
        except BaseException:
            if waiting in self._returning:
                self._returning.remove(waiting)
            else:
                self.leave(run_id)  # given just as the wait was cancelled
            raise

    def leave(self, run_id: str) -> bool:
        """Give the place up, and say whether there was one to give up."""
        if run_id not in self._taken:
            return False
        self._taken.remove(run_id)
        if self._returning:
            # Handed over and never free in between, so that no beginner gets it.
            returning, given = self._returning.popleft()
            self._taken.add(returning)
            given.set()
        else:
            self._free += 1
        return True
