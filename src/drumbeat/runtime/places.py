"""How many runs go at once, and how one that waits for somebody else gives its place up."""

import anyio


class Places:
    """The places of one engine's runs, by their run ids.

    Those who come back have theirs before any run that is to begin, in the order in which they
    asked.
    """

    def __init__(self, count: int) -> None:
        self._limiter = anyio.CapacityLimiter(count)
        self._taken: set[str] = set()

    def take(self, run_id: str) -> bool:
        """Take a place if there is one, and say so."""
        try:
            self._limiter.acquire_on_behalf_of_nowait(run_id)
        except anyio.WouldBlock:
            return False
        self._taken.add(run_id)
        return True

    async def come_back(self, run_id: str) -> None:
        """Wait for a place and take it."""
        await self._limiter.acquire_on_behalf_of(run_id)
        self._taken.add(run_id)

    def leave(self, run_id: str) -> bool:
        """Give the place up, and say whether there was one to give up."""
        if run_id not in self._taken:
            return False
        self._taken.remove(run_id)
        self._limiter.release_on_behalf_of(run_id)
        return True
