"""What a run writes down as it goes: events and artifacts, which never change its verdict."""

from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import attrs

from drumbeat.core.model import Claim, Event, RunRecord
from drumbeat.errors import StoreError
from drumbeat.runtime.log import log
from drumbeat.runtime.services import Services


@attrs.define(kw_only=True)
class Journal:
    """The journal of one run.

    An event that the store cannot take is kept and goes with the next one, the last chance being
    the transaction that finishes the run. An artifact that cannot be written is an event.
    """

    services: Services
    slug: str
    run_id: str
    kept: list[Event] = attrs.field(factory=list)
    """What the store has not taken yet, in order."""
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def note(
        self,
        kind: str,
        now: datetime,
        *,
        claim: Claim | None = None,
        record: RunRecord | None = None,
        **data: Any,
    ) -> None:
        """Append one event, and with it the run as it stands, where that is given.

        Raises:
            ClaimLost: somebody else has taken `claim` over; nothing was written.
        """
        self.kept.append(self.services.event(kind, now, self.slug, self.run_id, **data))
        # One at a time: what two callers hand over together would be written twice.
        async with self._turn:
            waiting = tuple(self.kept)
            if not waiting:
                return
            try:
                await self.services.store.record(claim=claim, run=record, events=waiting)
            except StoreError as error:
                self.services.trouble(error)
            else:
                self.taken(waiting)

    def taken(self, events: tuple[Event, ...]) -> None:
        """Forget the first events of `kept`, which the store has."""
        del self.kept[: len(events)]

    async def artifact(self, name: str, text: str) -> bool:
        """Write one text file of the run's folder, and say whether it stands there."""
        try:
            await self.services.artifacts.text(self.slug, self.run_id, name, text)
        except OSError as error:
            await self.artifact_failed(name, error)
            return False
        return True

    async def make(self, folder: Path, name: str | None = None) -> None:
        """Make a folder of the run, which `name` names to people, or one for it."""
        try:
            await self.services.artifacts.prepare(folder)
        except OSError as error:
            await self.artifact_failed(name or str(folder), error)

    async def artifact_failed(self, name: str, error: OSError) -> None:
        """Record that an artifact could not be written."""
        reason = error.strerror or str(error)
        log.warning("artifact_failed", slug=self.slug, run_id=self.run_id, name=name, reason=reason)
        await self.note("artifact_failed", self.services.clock.now(), name=name, reason=reason)
