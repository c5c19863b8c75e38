"""What the doors of a client stand on: routes, secrets, and the count of whom they turn away."""

import os
from functools import cached_property

from drumbeat.core.git_access import known_secrets
from drumbeat.core.model import Automation, Env, Fire
from drumbeat.core.redaction import Redactor
from drumbeat.core.routes import BrokenRoute, Route
from drumbeat.errors import DrumbeatError, Problem, StoreError
from drumbeat.runtime import requests
from drumbeat.runtime.entered import Entered
from drumbeat.runtime.known_files import lost
from drumbeat.runtime.log import log, traced
from drumbeat.runtime.refusals import Refusals
from drumbeat.runtime.route_book import RouteBook
from drumbeat.runtime.search_path import door_secrets
from drumbeat.runtime.webhook_door import WebhookDoor
from drumbeat.runtime.workspace import FileState

__all__ = ["Doorstep"]


class Doorstep(Entered):
    """What a client lets events and callers in by; an engine looks where it knows better.

    `Client` says what it takes.
    """

    # ---- secrets

    def _door_secrets(self) -> Env:
        return door_secrets(self._environment()) if self._secrets is None else self._secrets

    def _environment(self) -> Env:
        return os.environ

    def _redact(self, text: str) -> str:
        return self._redactor().text(text)

    def _redactor(self) -> Redactor:
        return Redactor(known_secrets(self._environment(), self._door_secrets()))

    # ---- what comes in

    @cached_property
    def _book(self) -> RouteBook:
        return RouteBook(
            self.workspace_dir, clock=self._clock, threads=self._threads, lost=self._lost
        )

    @cached_property
    def _door(self) -> WebhookDoor:
        return WebhookDoor(
            clock=self._clock,
            refusals=self._refusals,
            threads=self._threads,
            secrets=self._door_secrets,
            find=self._find_route,
            file_state=self._file_state,
            obstacle=self._obstacle,
            paused=self._paused,
            put=self._put,
            failed=self._put_failed,
        )

    async def _lost(self) -> tuple[Problem, ...]:
        """The folders that are away with files which an engine knew."""
        try:
            store = await self._readable()
            return await lost(store, self.workspace_dir, threads=self._threads)
        except StoreError:
            return ()  # nobody can tell, and whoever puts an event in is told of the trouble

    async def _find_route(self, name: str) -> Route | BrokenRoute | None:
        return await self._book.find(name)

    async def _file_state(self, automation: Automation) -> FileState:
        return await self._book.file_state(automation)

    def _obstacle(self) -> Problem | None:
        """What keeps fires from being put in, as far as it is known without trying."""
        return None

    def _put_failed(self, error: DrumbeatError) -> None:
        log.warning("webhook_not_kept", code=error.problem.code, message=error.problem.message)

    async def _put(self, fire: Fire) -> Fire:
        (stored,) = await (await self._writable()).add_fires((fire,))
        return stored

    async def _paused(self) -> dict[str, str]:
        store = await self._readable()
        return {} if store is None else await requests.paused(store)

    # ---- what is turned away

    @cached_property
    def _refusals(self) -> Refusals:
        return Refusals(clock=self._clock)

    async def _write_due(self) -> None:
        """Write what was counted a minute ago; an engine does so by itself."""
        if self._refusals.due:
            await self._write_refusals()

    async def _write_refusals(self) -> None:
        """Write what was turned away; a mistake over it costs no request."""
        try:
            await self._commit_refusals()
        except Exception as error:  # noqa: BLE001  said, and tried again with a later request
            trace = traced(error, self._redactor())
            log.error("part_failed", part="counts of the doors", slug=None, trace=trace)

    async def _commit_refusals(self) -> None:
        try:
            store = await self._state.writable()
        except StoreError as error:
            log.warning("refusals_not_kept", code=error.problem.code)
            return
        await self._refusals.write(store, self._redactor())
