"""Waiting for a data folder that another engine holds, and for what its holder runs meanwhile."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from drumbeat.core.model import Fire, RunRecord
from drumbeat.errors import DrumbeatError, EngineBusy
from drumbeat.protocols import Clock, Store
from drumbeat.runtime.clock import holding, nap
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.log import log

__all__ = ["outcome", "stand_by"]

T = TypeVar("T")


async def stand_by(
    lock: EngineLock,
    take_over: Callable[[str], Awaitable[T]],
    *,
    clock: Clock,
    poll: timedelta,
    failed: Callable[[DrumbeatError | None], None],
) -> T:
    """Try for the lock until it is held, then return what `take_over` does with the holder's name.

    When it cannot be taken over (the workspace is not there, the disk is full) the lock is given
    back, so that another standby may try, and it goes on trying.

    Args:
        lock: of the data folder.
        take_over: begins the work of an engine.
        clock: what is waited on.
        poll: how often it is tried.
        failed: told why taking over failed, and with None that it no longer does.
    """
    said = ""
    while True:
        await nap(clock, poll)
        with holding(clock, "standby"):
            try:
                since = clock.now().isoformat(timespec="seconds")
                holder = await lock.acquire(since=since, patience=0)
                begun = await take_over(holder)
            except EngineBusy:
                continue
            except DrumbeatError as error:
                failed(error)
                if str(error) != said:
                    said = str(error)
                    log.error("takeover_failed", code=error.problem.code, message=said)
                await lock.release()
            else:
                failed(None)
                return begun


async def outcome(
    fire: Fire, *, store: Store, clock: Clock, poll: timedelta
) -> tuple[Fire, RunRecord | None]:
    """Wait for the end of a fire that another process runs.

    Returns:
        The settled fire, and its last run when it ran and that is still kept.

    Raises:
        StoreError: the store could not be read, or was closed.
    """
    while True:
        for found in await store.fires(id=fire.id, payloads=False):
            if found.verdict is not None:
                run_id = found.run_id if found.verdict == "ran" else None
                runs = [] if run_id is None else await store.runs(target=run_id, limit=1)
                return found, next(iter(runs), None)
        await nap(clock, poll)
