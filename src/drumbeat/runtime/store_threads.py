"""Blocking calls in worker threads that are never left behind."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

import anyio
import anyio.to_thread
import attrs

__all__ = ["run_through"]

T = TypeVar("T")

_LOOK: float = 0.001
"""Seconds between looks at a thread whose end can no longer be awaited; see `run_through`."""


@attrs.define
class _Call(Generic[T]):
    work: Callable[[], T]
    begun: bool = False
    ended: bool = False
    value: T | None = None
    error: BaseException | None = None
    lock: Lock = attrs.field(factory=Lock)

    def __call__(self) -> None:
        with self.lock:
            if self.begun:
                return
            self.begun = True
        try:
            self.value = self.work()
        except BaseException as error:  # noqa: BLE001  handed to the caller, nothing is lost
            self.error = error
        finally:
            self.ended = True


async def run_through(work: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
    """Run `work` in a worker thread to its end, whatever happens meanwhile.

    Cancel scopes do not reach it. `asyncio.Task.cancel` does, as it knows no shield; the call then
    still waits for the thread before it lets that cancellation pass, so that two threads never use
    one connection.

    Raises:
        BaseException: what `work` raised, or the cancellation.
    """
    call = _Call(work)
    cancelled: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not call.ended:
            try:
                if call.begun:
                    await anyio.sleep(_LOOK)
                else:
                    await anyio.to_thread.run_sync(call, limiter=limiter)
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
    if call.error is not None:
        raise call.error
    return call.value  # type: ignore[return-value]  # set, as nothing was raised
