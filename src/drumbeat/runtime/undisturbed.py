"""What has to be brought to its end although the task that waits for it is cancelled.

Theory of operation. A shielded scope keeps out the cancellation of other scopes, and nothing else:
`asyncio.Task.cancel`, `asyncio.timeout` and Ctrl-C are thrown into the task where it stands. So the
work is done by another task, which nobody outside knows, and whatever hits the one that waits is
kept until the work is over.
"""

from collections.abc import Awaitable, Callable

import anyio


async def undisturbed(
    call: Callable[[], Awaitable[None]], *, disturbed: Callable[[], None] | None = None
) -> None:
    """Await `call()` to its end, however often the caller is cancelled meanwhile.

    Args:
        call: what is brought to its end.
        disturbed: told of each cancellation, so that the end can come sooner.

    Raises:
        Exception: what `call` raised, as it is.
        BaseException: the last cancellation or `KeyboardInterrupt` that came meanwhile, otherwise.
    """
    over = anyio.Event()
    failure: BaseException | None = None
    kept: BaseException | None = None

    async def work() -> None:
        nonlocal failure
        try:
            await call()
        except Exception as error:  # noqa: BLE001  raised below, as it is and not in a group
            failure = error
        finally:
            over.set()

    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            while not over.is_set():
                try:
                    await over.wait()
                except (anyio.get_cancelled_exc_class(), KeyboardInterrupt) as error:
                    kept = error
                    if disturbed is not None:
                        disturbed()
    if failure is not None:
        raise failure
    if kept is not None:
        raise kept
