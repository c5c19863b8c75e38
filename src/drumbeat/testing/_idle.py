"""Waiting until every other task of the running loop is blocked, on either backend.

Theory of operation. On trio the scheduler says so itself. On asyncio an empty ready queue says it,
once the loop has also looked for I/O in between. Two things keep that queue from ever being empty:
a loop of another make, which shows no queue, and a callback that schedules itself again at each
turn of the loop, as anyio's does while a cancelled task refuses to end. Then the tasks themselves
are looked at: one that waits for a future which is not done is blocked. A task may for a moment
look blocked while a chain of callbacks is under way to it, so that look has to come out the same
several times in a row.
"""

import asyncio
import sys
from collections.abc import Collection

import anyio.lowlevel

_EMPTY_ROUNDS = 2
_BLOCKED_ROUNDS = 8


async def all_others_blocked() -> None:
    """Return when no other task of this loop can run; a task in a thread or socket call cannot."""
    if _on_trio():
        # trio is no requirement: it is there because the host runs on it
        from trio.testing import wait_all_tasks_blocked  # noqa: PLC0415

        await wait_all_tasks_blocked()
        return
    ready = _ready_queue()
    empty = blocked = 0
    while empty < _EMPTY_ROUNDS and blocked < _BLOCKED_ROUNDS:
        await asyncio.sleep(0)
        if ready is not None and not ready:
            empty += 1
            continue
        empty = 0
        blocked = 0 if any(map(_can_run, _others())) else blocked + 1


async def busy_tasks() -> list[str]:
    """The names of the other tasks that go on running, in order, for a message to people."""
    names: set[str] = set()
    if _on_trio():
        import trio  # noqa: PLC0415  as above

        here = trio.lowlevel.current_task()

        class Watch(trio.abc.Instrument):
            def before_task_step(self, task: trio.lowlevel.Task) -> None:
                if task is not here:
                    names.add(task.name)

        watch = Watch()
        trio.lowlevel.add_instrument(watch)
        try:
            for _ in range(_BLOCKED_ROUNDS):
                await anyio.lowlevel.checkpoint()
        finally:
            trio.lowlevel.remove_instrument(watch)
    else:
        for _ in range(_BLOCKED_ROUNDS):
            names.update(task.get_name() for task in _others() if _can_run(task))
            await anyio.lowlevel.checkpoint()
    return sorted(names)


def _on_trio() -> bool:
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())


def _ready_queue() -> "Collection[object] | None":
    queue: Collection[object] | None = getattr(asyncio.get_running_loop(), "_ready", None)
    return queue


def _others() -> "Collection[asyncio.Task[object]]":
    here = asyncio.current_task()
    return [task for task in asyncio.all_tasks() if task is not here]


def _can_run(task: "asyncio.Task[object]") -> bool:
    try:
        waiter: asyncio.Future[object] | None = task._fut_waiter  # type: ignore[attr-defined]  # noqa: SLF001
    except AttributeError:
        # a task of another make tells nothing: it counts as blocked, or time would never move
        return False
    return waiter is None or waiter.done()
