"""When an engine was there: events as it starts and stops, and the times without one.

Theory of operation. A mark says when an engine was seen last and which times there were before
without one. It moves as an engine starts and stops. One that was killed moves nothing; how long it
lived says the file of its signs of life, to the minute. A clock that stands before the last time
an engine was seen was set while none was there to notice, which the next one says as it starts.
"""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from drumbeat.errors import ClaimLost, Problem, StoreError
from drumbeat.protocols import Store
from drumbeat.runtime.clock import holding
from drumbeat.runtime.log import log
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.schedule_marks import instant
from drumbeat.runtime.services import Services
from drumbeat.runtime.sign_of_life import SignOfLife, read_sign, write_sign
from drumbeat.runtime.threads import Threads

__all__ = ["Presence", "absence"]

_KEY: Final = "engine:presence"
_MOST: Final = 200
"""So many times without an engine are remembered."""
_SKEW: Final = timedelta(minutes=5)
"""Further behind than this, the clock is said to have been set."""
_BEAT: Final = timedelta(minutes=1)


@attrs.define(kw_only=True)
class Presence:
    """What the holder of a data folder leaves of its being there."""

    services: Services
    holder: str = ""
    _began: bool = False
    _before: SignOfLife | None = None
    _started: datetime | None = None
    _told: tuple[bool, tuple[Problem, ...]] | None = None
    _beat_at: float = 0.0
    _mute: bool = False
    _beating: anyio.Lock = attrs.field(factory=anyio.Lock)
    """Of two signs that are written at once, the older one could be what stays."""

    async def begin(self) -> None:
        """Say that an engine is there; to be called again until the store has taken it.

        Raises:
            StoreError: the store does not take it.
        """
        services = self.services
        if self._began:
            return
        if self._started is None:
            self._started = services.clock.now()
            self._before = await services.threads.run(read_sign, services.data_dir)
        now, mark = self._started, await mark_of(services.store, _KEY)
        value = mark.value or {"seen": None, "stopped": True, "gaps": []}
        seen, stopped = _seen(value, self._before), value["stopped"]
        gaps = [*value["gaps"]]
        if seen is not None:
            stopped = stopped and seen == instant(value["seen"])
            if seen < now:
                gaps.append([seen.isoformat(), now.isoformat()])
        event = services.event(
            "engine_started",
            now,
            holder=self.holder,
            seen=None if seen is None else seen.isoformat(),
            stopped=stopped,
        )
        value = {"seen": now.isoformat(), "stopped": False, "gaps": gaps[-_MOST:]}
        events = [event]
        if seen is not None and seen - now > _SKEW:
            seconds = (now - seen).total_seconds()
            log.warning("clock_jumped", seconds=seconds, now=now.isoformat())
            events.append(services.event("clock_jumped", now, seconds=seconds))
        await services.store.record(marks=(attrs.evolve(mark, value=value),), events=events)
        self._began = True

    async def beat(self) -> None:
        """Write the file, if a minute has passed, it drains by now, or the faults are others."""
        async with self._beating:
            await self._beat()

    async def _beat(self) -> None:
        services = self.services
        shown = services.redactor.text
        faults = tuple(
            attrs.evolve(fault, message=shown(fault.message), path=None)
            for fault in services.faults.values()
        )
        steady = services.clock.monotonic()
        tells = services.draining, faults
        if tells == self._told and steady - self._beat_at < _BEAT.total_seconds():
            return
        sign = SignOfLife(
            holder=self.holder,
            at=services.clock.now(),
            faults=faults,
            draining=services.draining,
        )
        try:
            with holding(services.clock, "sign of life"):
                await services.threads.run(write_sign, services.data_dir, sign)
        except OSError as error:
            if not self._mute:
                log.warning("sign_of_life_failed", reason=error.strerror or str(error))
            self._told, self._mute = None, True
        else:
            self._told, self._beat_at, self._mute = tells, steady, False

    async def end(self, fault: BaseException | None) -> None:
        """Say that the engine stops, by itself or for `fault`, as far as the store takes it."""
        services = self.services
        now = services.clock.now()
        event = services.event(
            "engine_stopped",
            now,
            holder=self.holder,
            fault=None if fault is None else type(fault).__name__,
        )
        try:
            await self.begin()
            mark = await mark_of(services.store, _KEY)
            value = {**mark.value, "seen": now.isoformat(), "stopped": True}
            await services.store.record(marks=(attrs.evolve(mark, value=value),), events=(event,))
        except (StoreError, ClaimLost) as error:  # another engine may have the folder by now
            log.warning("stop_not_kept", code=error.problem.code)
        except Exception as error:  # noqa: BLE001  what has ended is not kept from ending by it
            log.error("part_failed", part="stop", slug=None, trace=services.trace(error))


async def absence(
    store: Store | None,
    data_dir: Path,
    at: datetime,
    *,
    held: bool,
    now: datetime,
    threads: Threads,
) -> tuple[datetime, datetime | None] | None:
    """From when until when no engine was there, as far as `at` lies in such a time.

    Args:
        store: the state; None for none.
        data_dir: where the signs of life are.
        at: the instant.
        held: whether an engine is there at present.
        now: the present instant.
        threads: where the signs of life are read.

    Returns:
        The time, without an end when it lasts; None when there was an engine or that is not known.

    Raises:
        StoreError: the store could not be read.
    """
    value = None if store is None else (await mark_of(store, _KEY)).value
    if value is None:
        return None
    seen = _seen(value, await threads.run(read_sign, data_dir))
    if not held and seen is not None and seen < at <= now:
        return seen, None
    for since, until in reversed(value["gaps"]):
        gap = datetime.fromisoformat(since), datetime.fromisoformat(until)
        if gap[0] < at < gap[1]:
            return gap
    return None


def _seen(value: Any, sign: SignOfLife | None) -> datetime | None:
    """When the last engine was seen last."""
    seen = instant(value["seen"])
    if seen is None or sign is None:
        return seen
    return max(seen, sign.at)
