"""What is entered once, and what holds before, inside and after."""

from collections.abc import Callable
from datetime import timedelta
from os import PathLike
from pathlib import Path
from threading import get_ident
from typing import Literal

from drumbeat.core.model import Env
from drumbeat.errors import DrumbeatError, Problem
from drumbeat.protocols import Clock, Pins, Store
from drumbeat.runtime.clock import SystemClock
from drumbeat.runtime.state import State
from drumbeat.runtime.threads import Threads

Folder = str | PathLike[str]


class Entered:
    """A workspace and its state, from the constructor to the end of its `async with`.

    `Client` says what it takes.
    """

    def __init__(
        self,
        workspace: Folder,
        *,
        data_dir: Folder | None = None,
        secrets: Env | None = None,
        store: Store | None = None,
    ) -> None:
        # Made absolute on entering: a constructor does no I/O, and the working folder is disk.
        self._given_workspace = Path(workspace)
        self._given_data_dir = None if data_dir is None else Path(data_dir)
        self._secrets = secrets
        self._store = store
        self._clock: Clock = SystemClock()
        self._threads = Threads()
        self._pins: Pins | None = None
        self._opening: State | None = None
        self._phase: Literal["new", "inside", "left"] = "new"
        self._thread = 0

    @property
    def clock(self) -> Clock:
        """Where this client's time comes from."""
        return self._clock

    @property
    def workspace_dir(self) -> Path:
        """The workspace folder; absolute once entered."""
        return self._given_workspace

    @property
    def data_dir(self) -> Path:
        """The data folder; absolute once entered."""
        return self._given_data_dir or self._given_workspace / ".drumbeat"

    async def _begin(self, *, lease: timedelta, redact: Callable[[str], str]) -> State:
        if self._phase != "new":
            raise DrumbeatError(
                Problem(
                    code="entered-twice",
                    message=f"this {type(self).__name__} was entered before",
                    remedy="make another one: each is entered once",
                )
            )
        self._phase = "inside"
        self._thread = get_ident()

        def resolve() -> None:
            self._given_workspace = self._given_workspace.absolute()
            if self._given_data_dir is not None:
                self._given_data_dir = self._given_data_dir.absolute()

        await self._threads.run(resolve)
        self._opening = State(
            self.data_dir,
            store=self._store,
            clock=self._clock,
            lease=lease,
            redact=redact,
            threads=self._threads,
        )
        return self._opening

    @property
    def _state(self) -> State:
        self._check_entered()
        if self._opening is None:
            msg = "entering made no state"
            raise RuntimeError(msg)
        return self._opening

    def _check_entered(self) -> None:
        if self._phase == "new":
            raise DrumbeatError(
                Problem(
                    code="not-entered",
                    message=f"this {type(self).__name__} has not been entered",
                    remedy="use it inside `async with`",
                )
            )
        if get_ident() != self._thread:
            # What wakes those who wait here wakes nobody in another loop: they would wait for ever.
            raise DrumbeatError(
                Problem(
                    code="other-thread",
                    message=f"this {type(self).__name__} was entered in another thread",
                    remedy="call it in the event loop in which it was entered; a worker thread of "
                    "that loop does so with `anyio.from_thread.run`",
                )
            )

    def _check_inside(self) -> None:
        self._check_entered()
        if self._phase == "left":
            raise DrumbeatError(
                Problem(
                    code="left",
                    message=f"this {type(self).__name__} was left",
                    remedy="use it inside its `async with`, or make another one",
                )
            )

    async def _readable(self) -> Store | None:
        self._check_inside()
        return await self._state.readable()

    async def _writable(self) -> Store:
        self._check_inside()
        return await self._state.writable()
