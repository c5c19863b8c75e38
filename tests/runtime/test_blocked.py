"""A host that blocks its loop: nothing is taken from what goes on, and nothing is given up."""

import time
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest

from drumbeat import DeliveryIntent, Engine, Settings, SystemClock, Turn
from drumbeat.testing import ScriptedAgent

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Stalled(SystemClock):
    """A real clock, on which a stall of the loop takes as long as it is said to."""

    def __init__(self) -> None:
        self.lost = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.lost

    def monotonic(self) -> float:
        return super().monotonic() + self.lost.total_seconds()

    def stall(self, told: timedelta) -> None:
        """Block the loop for a moment, which counts for `told`."""
        time.sleep(0.2)  # noqa: TID251  to block the loop is what is tested
        self.lost += told


async def test_a_host_that_blocks_its_loop_loses_no_run_and_no_delivery(host: Any) -> None:
    """For far longer than a lease lasts, again and again, while turns and deliveries are going.

    Each turn is taken once, each message handed over once, and nobody hears of an interruption.
    """
    slugs = ["one", "two", "three"]
    for slug in slugs:
        host.write(slug)
    clock = Stalled()
    turns: list[str] = []
    delivered: list[tuple[str, int]] = []
    talking, stalled = anyio.Event(), anyio.Event()

    async def talk(turn: Turn) -> str:
        turns.append(turn.slug)
        if len(turns) == len(slugs):
            talking.set()
        await stalled.wait()
        return "Done."

    class Slow:
        async def deliver(self, intent: DeliveryIntent) -> None:
            delivered.append((intent.slug, intent.attempt))
            clock.stall(timedelta(minutes=10))
            await anyio.sleep(0.05)

    settings = Settings(
        lease=timedelta(seconds=1), request_poll=timedelta(seconds=0.05), max_concurrent_runs=3
    )
    engine = Engine(
        host.workspace,
        agent=ScriptedAgent(default=talk),
        deliverer=Slow(),
        clock=clock,
        settings=settings,
        env={"PATH": "/usr/bin:/bin"},
        timezone="UTC",
    )
    async with engine:
        fires = [await engine.fire(slug) for slug in slugs]
        with anyio.fail_after(30):
            await talking.wait()
            for _ in range(3):
                clock.stall(timedelta(minutes=10))
                await anyio.sleep(0.1)
            stalled.set()
            await engine.settled()
        runs = await engine.runs()
        assert {(run.fire.id, run.state, run.delivery) for run in runs} == {
            (fire.id, "succeeded", "delivered") for fire in fires
        }
        assert sorted(turns) == sorted(slugs)
        assert sorted(delivered) == sorted((slug, 1) for slug in slugs)
        assert await host.events(engine, "delivery_failed", "run_stuck") == []
        assert (await engine.status()).faults == ()
