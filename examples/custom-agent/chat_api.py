"""A chat service as a provider's client library would show it, kept in memory: no network, no key.

It has what makes such services hard to drive unattended: threads with ids of their own, a limit on
how much a thread holds, busy moments, and answers that must not be paid for twice.
"""

from collections.abc import Iterable

import anyio.lowlevel
import attrs


class ApiError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


@attrs.frozen
class Completion:
    """One answer of the model."""

    text: str
    tokens_in: int
    tokens_out: int


class ChatApi:
    """The service. `outages` are raised, one for each call, before anything else works."""

    def __init__(self, *, outages: Iterable[ApiError] = (), limit: int = 4_000) -> None:
        self.threads: dict[str, list[str]] = {}
        self._answers: dict[str, Completion] = {}
        self._outages = list(outages)
        self._limit = limit

    async def create_thread(self, *, system: str | None) -> str:
        """Begin a conversation and return the service's own id for it."""
        await self._arrive()
        thread = f"thread_{len(self.threads) + 1}"
        self.threads[thread] = [] if system is None else [system]
        return thread

    async def send(self, thread: str, text: str, *, model: str, idempotency_key: str) -> Completion:
        """Say something in a thread; a key that was answered before gets the same answer."""
        await self._arrive()
        if idempotency_key in self._answers:
            return self._answers[idempotency_key]
        if thread not in self.threads:
            raise ApiError(404, f"No thread found with id '{thread}'.")
        said = self.threads[thread]
        if sum(map(len, said)) + len(text) > self._limit:
            raise ApiError(400, f"This model's maximum context length is {self._limit} characters.")
        said.append(text)
        answer = Completion(f"{model}: that was message {len(said)} here.", len(text) // 4, 9)
        self._answers[idempotency_key] = answer
        return answer

    async def _arrive(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self._outages:
            raise self._outages.pop(0)
