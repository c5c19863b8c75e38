"""Counts what is turned away or left out, and leaves one event a minute for each kind.

Theory of operation. Anybody may send anything to a door, so a request must not cost a row. What is
counted is written a minute after the first of it, by the engine's loop, or by a client with the
request that comes next; and as the engine drains and its host leaves. What cannot be written is
counted on. A process that is killed loses the counts of its last minute and nothing else.

Names that no file has come from outside and may be without end: so many are told apart in a minute,
and the others are counted together. All other facts of a kind have to come from a file or from
this code, so that there is an end to them.

What a route leaves out is summed up in a mark beside its events, for those who ask how it stands.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

import attrs

from drumbeat.core.left_out import LEFT_OUT, left_out_key, with_left_out
from drumbeat.core.model import Event, LeftOut, Mark
from drumbeat.core.redaction import Redactor
from drumbeat.errors import ClaimLost, StoreError
from drumbeat.protocols import Clock, Store
from drumbeat.runtime.clock import nap
from drumbeat.runtime.log import log
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.signals import Signal

__all__ = ["Refusals"]

_WINDOW = timedelta(minutes=1)
_STRANGERS = 20
"""So many unknown names are told apart in a minute."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@attrs.frozen(kw_only=True)
class _Kind:
    event: str
    slug: str | None
    run_id: str | None
    facts: tuple[tuple[str, str | None], ...]


@attrs.define(kw_only=True)
class _Count:
    since: datetime
    last: datetime
    count: int = 0


@attrs.define(kw_only=True)
class Refusals:
    """What one client or engine turned away or left out that is in no event yet."""

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

    def note(
        self, event: str, slug: str | None, run_id: str | None = None, /, **facts: str | None
    ) -> None:
        """Count one.

        Args:
            event: the kind of the event that it will be part of.
            slug: whose it is; None when no file has it.
            run_id: of the run that it belongs to.
            facts: what is told apart beside these. A `route` that no file has may be any text.
        """
        kind = _Kind(event=event, slug=slug, run_id=run_id, facts=tuple(facts.items()))
        route = facts.get("route")
        if slug is None and route is not None and kind not in self._counts:
            strangers = sum(each.slug is None for each in self._counts)
            if strangers >= _STRANGERS or not _NAME.fullmatch(route):
                kind = attrs.evolve(kind, facts=tuple({**facts, "route": None}.items()))
        if self._begun is None:
            self._begun = self.clock.monotonic()
        now = self.clock.now()
        found = self._counts.setdefault(kind, _Count(since=now, last=now))
        found.count += 1
        found.last = now
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
                kind=kind.event,
                slug=kind.slug,
                run_id=kind.run_id,
                data=redactor.json(
                    {**dict(kind.facts), "count": found.count, "since": found.since.isoformat()}
                ),
            )
            for kind, found in counts.items()
        ]
        try:
            await _commit(store, events, counts)
        except BaseException as error:
            self._take_back(counts)
            if not isinstance(error, StoreError):
                raise
            log.warning("refusals_not_kept", code=error.problem.code)
            return
        for event in events:
            _say(event)

    def _take_back(self, counts: dict[_Kind, _Count]) -> None:
        self._begun = self.clock.monotonic()
        for kind, found in counts.items():
            present = self._counts.setdefault(kind, found)
            if present is not found:
                present.since = min(present.since, found.since)
                present.last = max(present.last, found.last)
                present.count += found.count

    async def pause(self) -> None:
        """Return a minute after the first that is in no event."""
        while self._begun is None:
            await self._added.wait(self._added.count)
        await nap(self.clock, _WINDOW)


async def _commit(store: Store, events: list[Event], counts: Mapping[_Kind, _Count]) -> None:
    while True:
        marks = await _sums(store, counts)
        try:
            await store.record(events=events, marks=marks)
        except ClaimLost:
            continue  # somebody else added to a sum at the same instant
        return


async def _sums(store: Store, counts: Mapping[_Kind, _Count]) -> list[Mark]:
    """What routes leave out, with these added to it."""
    marks: dict[str, Mark] = {}
    for kind, found in counts.items():
        if kind.event not in LEFT_OUT or kind.slug is None:
            continue
        key = left_out_key(kind.slug)
        mark = marks.get(key) or await mark_of(store, key)
        added = LeftOut(count=found.count, since=found.since, last=found.last)
        value = with_left_out(
            mark.value, kind.event, added, expression=dict(kind.facts).get("filter")
        )
        marks[key] = attrs.evolve(mark, value=value)
    return list(marks.values())


def _say(event: Event) -> None:
    slug, facts = event.slug, event.data
    match event.kind:
        case "webhook_filtered":
            log.info("webhook_filtered", slug=slug, **facts)
        case "webhook_repeated":
            log.info("webhook_repeated", slug=slug, **facts)
        case "webhook_conflicting":
            log.warning("webhook_conflicting", slug=slug, **facts)
        case "caller_refused":
            log.warning("caller_refused", **facts)
        case "follow_up_refused":
            log.warning("follow_up_refused", slug=slug, **facts)
        case _:
            log.warning("webhook_refused", slug=slug, **facts)
