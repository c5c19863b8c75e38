"""Letting an engine live through a span of time at once."""

from datetime import datetime
from typing import TYPE_CHECKING

from drumbeat.core.asked import check_instant
from drumbeat.core.model import RunRecord
from drumbeat.testing._clock import ManualClock

if TYPE_CHECKING:
    from drumbeat.engine import Engine

__all__ = ["drive"]

_PAGE = 256


async def drive(engine: "Engine", *, until: datetime) -> list[RunRecord]:
    """Move the engine's clock on to `until` and return the runs that finished on the way.

    A month of schedule takes seconds. What is due at `until` itself is done too, so that nothing is
    running when this returns but turns that sleep beyond it.

        async with Engine(folder, agent=agent, clock=clock) as engine:
            runs = await drive(engine, until=datetime(2026, 4, 1, tzinfo=UTC))
            assert all(run.state == "succeeded" for run in runs)

    Args:
        engine: entered, and made with a `ManualClock`. Other engines on the same clock live through
            the same time; their runs are not returned.
        until: where the clock will stand; aware.

    Returns:
        The runs in the order in which they finished, of every state but `running`. What was due
        before the call begins at once, and may have ended before it: such runs, as those that make
        up for a downtime when an engine is entered, stand in `engine.runs()`.

    Raises:
        TypeError: the engine's clock is no `ManualClock`, or `until` no datetime.
        ValueError: `until` is naive, or earlier than the clock.
        RuntimeError: as `ManualClock.advance` raises it.
        Exception: what stopped the engine.
    """
    clock = engine.clock
    if not isinstance(clock, ManualClock):
        msg = (
            f"the engine runs on {type(clock).__name__}, which cannot be driven: "
            "make it with clock=ManualClock(...)"
        )
        raise TypeError(msg)
    if check_instant("until", until).tzinfo is None:
        msg = f"until is {until!r}, which has no zone: give it one, such as tzinfo=UTC"
        raise ValueError(msg)
    start = clock.now()
    if until < start:
        msg = f"until is {until.isoformat()}, and the clock stands at {start.isoformat()} already"
        raise ValueError(msg)
    ended: set[str] = set()

    def hear(run_id: str) -> None:
        ended.add(run_id)

    engine._on_end.add(hear)  # noqa: SLF001  before anything else has a turn
    try:
        await clock.advance(until - start)
        if not (await engine.status()).running:
            await engine.settled()
    finally:
        engine._on_end.discard(hear)  # noqa: SLF001
    runs = await _recorded(engine, ended)
    return sorted(runs, key=lambda run: (run.finished_at or until, run.run_id))


async def _recorded(engine: "Engine", ended: set[str]) -> list[RunRecord]:
    """The records of those runs, as far as they are kept; the latest are read first."""
    limit = _PAGE
    while True:
        runs = await engine.runs(limit=limit)
        found = [run for run in runs if run.run_id in ended]
        if len(found) == len(ended) or len(runs) < limit:
            return found
        limit *= 4
