"""`drive`: the runs that finish while an engine lives through a span of time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import attrs
import pytest

from drumbeat.core.model import RunRecord, Status, Usage, Workspace
from drumbeat.protocols import Clock
from drumbeat.runtime.clock import SystemClock
from drumbeat.testing import ManualClock, drive, example_intent

START = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Hourly:
    """What `drive` needs of an engine: runs that begin every `every` and take `takes` each."""

    def __init__(self, clock: Clock, *, every: timedelta = HOUR, takes: timedelta) -> None:
        self.clock = clock
        self.every = every
        self.takes = takes
        self.records: dict[str, RunRecord] = {}
        self.limits: list[int] = []
        self.is_settled = False
        self._on_end: set[Callable[[str], None]] = set()
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._group.start_soon(self._work)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)

    async def _work(self) -> None:
        while True:
            await self.clock.sleep(self.every)
            self._group.start_soon(self._run, f"{len(self.records):06}")

    async def _run(self, run_id: str) -> None:
        self.records[run_id] = RunRecord(
            run_id=run_id,
            slug="hourly",
            fire=example_intent().fire,
            state="running",
            started_at=self.clock.now(),
            finished_at=None,
            config_hash="",
            session_id=None,
            rotation=None,
            turns=(),
            usage=Usage(),
            failure=None,
            intent=None,
            delivery=None,
            receipt=None,
        )
        await self.clock.sleep(self.takes)
        self.records[run_id] = attrs.evolve(
            self.records[run_id], state="succeeded", finished_at=self.clock.now()
        )
        for hear in self._on_end:
            hear(run_id)

    async def status(self) -> Status:
        return Status(
            state="running",
            path=(),
            workspace=Workspace(path=Path(), automations=(), problems={}, packs=()),
            paused={},
            running=tuple(run for run in self.records.values() if run.finished_at is None),
            stuck=(),
            waiting=(),
            faults=(),
            zones={},
        )

    async def runs(self, slug: str | None = None, *, limit: int = 100) -> list[RunRecord]:
        self.limits.append(limit)
        return sorted(self.records.values(), key=lambda run: run.run_id, reverse=True)[:limit]

    async def settled(self) -> None:
        self.is_settled = True


@pytest.mark.anyio
async def test_the_runs_that_finished_on_the_way_are_returned_in_order() -> None:
    clock = ManualClock(START)
    async with Hourly(clock, takes=HOUR / 4) as engine:
        runs = await drive(engine, until=START + 3 * HOUR)
        assert [run.finished_at for run in runs] == [START + n * HOUR + HOUR / 4 for n in (1, 2)]
        assert clock.now() == START + 3 * HOUR
        assert not engine.is_settled  # the third is under way, and nobody moves the clock


@pytest.mark.anyio
async def test_with_nothing_under_way_the_engine_has_settled() -> None:
    """What stopped an engine is raised by that, so that no test takes silence for success."""
    clock = ManualClock(START)
    async with Hourly(clock, takes=HOUR / 4) as engine:
        await drive(engine, until=START + 1.5 * HOUR)
        assert engine.is_settled


@pytest.mark.anyio
async def test_two_drives_return_each_run_once_also_one_that_was_under_way() -> None:
    """Runs longer than their interval: some always began before the span."""
    clock = ManualClock(START)
    async with Hourly(clock, takes=2.5 * HOUR) as engine:
        first = await drive(engine, until=START + 5 * HOUR)
        again = await drive(engine, until=START + 5 * HOUR)
        second = await drive(engine, until=START + 9 * HOUR)
    ids = [run.run_id for run in first + again + second]
    assert ids == [f"{number:06}" for number in range(6)]
    assert again == []
    assert len(first) == 2


@pytest.mark.anyio
async def test_a_long_span_returns_every_run_and_a_later_one_reads_few() -> None:
    clock = ManualClock(START)
    async with Hourly(clock, every=HOUR / 12, takes=HOUR / 60) as engine:
        runs = await drive(engine, until=START + 100 * HOUR)
        assert len(runs) == 1199
        engine.limits.clear()
        runs = await drive(engine, until=START + 101 * HOUR)
        assert len(runs) == 12
        assert set(engine.limits) == {256}


@pytest.mark.anyio
async def test_a_clock_that_cannot_be_driven_is_refused() -> None:
    engine = Hourly(SystemClock(), takes=HOUR)
    with pytest.raises(TypeError, match=r"runs on SystemClock, which cannot be driven: make it"):
        await drive(engine, until=START)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "until, complaint",
    [
        (datetime(2026, 4, 1), "has no zone"),  # noqa: DTZ001  that is what is refused
        (START - HOUR, "the clock stands at 2026-03-01T00:00:00.00:00 already"),
    ],
)
async def test_an_end_that_cannot_be_reached_is_refused(until: datetime, complaint: str) -> None:
    async with Hourly(ManualClock(START), takes=HOUR) as engine:
        with pytest.raises(ValueError, match=complaint):
            await drive(engine, until=until)
