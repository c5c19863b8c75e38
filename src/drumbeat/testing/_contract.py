"""How a conformance check calls the part it is about, and words what it finds."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from inspect import isawaitable
from typing import NoReturn, TypeVar

import anyio
import attrs

T = TypeVar("T")

_PROMPTLY = 5.0
_ROUNDS_TO_END = 100


@attrs.frozen
class Contract:
    """What the check called `name` counts on; methods raise `AssertionError` when it is broken.

    `what` always says what was being done, in the words of the message.
    """

    name: str

    def fail(self, what: str, found: str, rule: str) -> NoReturn:
        """Say what was found, and the rule that it breaks."""
        msg = f"{self.name}, {what}: {found}; the contract: {rule}"
        raise AssertionError(msg)

    async def call(
        self, part: Callable[[T], object], value: T, limit: timedelta, what: str
    ) -> object:
        """Await `part(value)`; anything it raises breaks the contract."""
        called: object = None
        result: object = None
        with anyio.move_on_after(limit.total_seconds()) as scope:
            try:
                called = part(value)
                result = await called if isawaitable(called) else None
            except Exception as error:
                msg = f"{self.name}, {what}: it raised {type(error).__name__}: {error}"
                raise AssertionError(msg) from error
        if scope.cancelled_caught:
            self.fail(what, f"it took longer than {limit}", "it keeps the time it is given")
        if not isawaitable(called):
            self.fail(what, f"{called!r} was returned at once", "it is an async function")
        return result

    async def cancelled(
        self, part: Callable[[T], Awaitable[object]], value: T, after: float, what: str
    ) -> None:
        """Cancel `part(value)` after `after` seconds, or at once; see that it ends."""
        ended = anyio.Event()
        scope = anyio.CancelScope()
        raised: list[Exception] = []

        async def work() -> None:
            try:
                with scope:
                    await part(value)
            except Exception as error:  # noqa: BLE001  judged below
                raised.append(error)
            finally:
                ended.set()

        promptly = False
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            with anyio.move_on_after(after):
                await ended.wait()
            scope.cancel()
            with anyio.move_on_after(_PROMPTLY):
                await ended.wait()
            promptly = ended.is_set()
        if not promptly:
            self.fail(
                what,
                f"it went on for more than {_PROMPTLY:g} s",
                "cancellation ends the call; one that ignores it keeps its automation busy",
            )
        if raised:
            msg = (
                f"{self.name}, {what}: it raised {type(raised[0]).__name__}: {raised[0]}; "
                "the contract: cancellation passes through"
            )
            raise AssertionError(msg) from raised[0]

    @asynccontextmanager
    async def together(self) -> AsyncIterator[Callable[..., None]]:
        """Give what starts calls side by side; raise the first failure alone, not in a group."""
        failures: list[AssertionError] = []

        async def work(call: Callable[..., Awaitable[object]], *args: object) -> None:
            try:
                await call(*args)
            except AssertionError as error:
                failures.append(error)

        async with anyio.create_task_group() as group:

            def start(call: Callable[..., Awaitable[object]], *args: object) -> None:
                group.start_soon(work, call, *args)

            yield start
        if failures:
            raise failures[0]

    @asynccontextmanager
    async def no_task_left(self) -> AsyncIterator[None]:
        """See that the tasks at the end are those of the beginning, give or take a second."""
        before = {task.id for task in anyio.get_running_tasks()}
        yield
        left: list[str] = []
        for _ in range(_ROUNDS_TO_END):
            left = [str(task.name) for task in anyio.get_running_tasks() if task.id not in before]
            if not left:
                return
            await anyio.sleep(0.01)
        names = ", ".join(sorted(left))
        self.fail("at the end", f"tasks were left behind: {names}", "a call ends its tasks")
