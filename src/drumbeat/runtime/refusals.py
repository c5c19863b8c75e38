"""Counts the webhook requests that are refused, and leaves one event a minute for each kind.

Theory of operation. Anybody may send anything to a door, so a request must not cost a row. What is
counted is written a minute after the first of it, by the engine's loop, or by a client with the
request that comes next; and as the engine drains and its host leaves. What cannot be written is
counted on. A process that is killed loses the counts of its last minute and nothing else.

Names that no file has come from outside and may be without end: so many are told apart in a minute,
and the others are counted together.
"""

import re
from datetime import datetime, timedelta

import attrs

from drumbeat.core.model import Event
from drumbeat.core.redaction import Redactor
from drumbeat.errors import StoreError
from drumbeat.protocols import Clock, Store
from drumbeat.runtime.clock import nap
from drumbeat.runtime.log import log
from drumbeat.runtime.signals import Signal

__all__ = ["Refusals"]

_WINDOW = timedelta(minutes=1)
_STRANGERS = 20
"""So many unknown names are told apart in a minute."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@attrs.frozen(kw_only=True)
class _Kind:
    route: str | None
    slug: str | None
    code: str


@attrs.define(kw_only=True)
class _Count:
    since: datetime
    count: int = 0


@attrs.define(kw_only=True)
class Refusals:
    """The refused requests of one client or engine that are in no event yet."""

    clock: Clock
    _counts: dict[_Kind, _Count] = attrs.field(factory=dict)
    _begun: float | None = None
    _added: Signal = attrs.field(factory=Signal)

    @property
    def any(self) -> bool:
        """Whether there is one that is in no event."""
        return bool(self._counts)

    @property
    def due(self) -> bool:
        """Whether a minute has passed since the first that is in no event."""
        begun = self._begun
        return begun is not None and self.clock.monotonic() - begun >= _WINDOW.total_seconds()

    def add(self, *, route: str, slug: str | None, code: str) -> None:
        """Count one.

        Args:
            route: as the file writes it, or as the sender did when no file has it.
            slug: whose route it is; None when no file has it.
            code: why it was refused.
        """
        kind = _Kind(route=route, slug=slug, code=code)
        if slug is None and kind not in self._counts:
            strangers = sum(each.slug is None for each in self._counts)
            if strangers >= _STRANGERS or not _NAME.fullmatch(route):
                kind = attrs.evolve(kind, route=None)
        if self._begun is None:
            self._begun = self.clock.monotonic()
        self._counts.setdefault(kind, _Count(since=self.clock.now())).count += 1
        self._added.notify()

    async def write(self, store: Store, redactor: Redactor) -> None:
        """Write what was counted; what the store does not take is counted on."""
        counts, self._counts, self._begun = self._counts, {}, None
        if not counts:
            return
        now = self.clock.now()
        events = [
            Event(
                id=0,
                at=now,
                kind="webhook_refused",
                slug=kind.slug,
                run_id=None,
                data=redactor.json(
                    {
                        "route": kind.route,
                        "code": kind.code,
                        "count": found.count,
                        "since": found.since.isoformat(),
                    }
                ),
            )
            for kind, found in counts.items()
        ]
        try:
            await store.record(events=events)
        except BaseException as error:
            self._take_back(counts)
            if not isinstance(error, StoreError):
                raise
            log.warning("refusals_not_kept", code=error.problem.code)
            return
        for event in events:
            log.warning("webhook_refused", slug=event.slug, **event.data)

    def _take_back(self, counts: dict[_Kind, _Count]) -> None:
        self._begun = self.clock.monotonic()
        for kind, found in counts.items():
            present = self._counts.setdefault(kind, found)
            if present is not found:
                present.since = min(present.since, found.since)
                present.count += found.count

    async def pause(self) -> None:
        """Return a minute after the first that is in no event."""
        while self._begun is None:
            await self._added.wait(self._added.count)
        await nap(self.clock, _WINDOW)
