"""A clock that is set, by seconds or by years, costs no fire, no retry and no delivery.

What schedules do is in `test_scheduler.py`, `test_agenda.py` and `tests/core/test_planner.py`.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from drumbeat import AgentError, AgentUnavailable, DeliveryIntent, MailBatch, MailMessage, Turn
from drumbeat.testing import ManualClock, ScriptedAgent, drive

# What is decided by a clock knows nothing of the backend.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
YEAR = 365 * DAY


def every(expression: str) -> dict[str, str]:
    return {"type": "schedule", "expression": expression}


@pytest.mark.parametrize("restart", [False, True])
async def test_what_was_put_off_by_a_clock_that_was_ahead_waits_as_long_as_was_meant(
    host: Any, restart: bool
) -> None:
    """Fires by hand and follow-ups; what the right clock put off is left as it is."""
    host.write()

    async def turn(turn: Turn) -> str:
        if turn.origin == "step":
            await turn.follow_ups.schedule("Look again.", after=3 * HOUR)
        return "done"

    agent = ScriptedAgent(default=turn)
    async with host.engine(agent=agent) as engine:
        await engine.fire("check", slot="meant", after=400 * DAY)
        host.clock.jump(YEAR)
        await engine.run("check")
        await engine.fire("check", slot="misled", after=2 * HOUR)
        host.clock.jump(-YEAR)
        if not restart:
            await host.clock.advance(MINUTE)
    async with host.engine(agent=agent) as engine:
        await host.clock.advance(2 * HOUR - 2 * MINUTE)
        assert len(await engine.runs()) == 1
        await host.clock.advance(2 * HOUR)
        found = {fire.slot: fire.verdict for fire in await engine.fires()}
        assert found["misled"] == "ran"
        assert found["meant"] is None
        assert [fire.verdict for fire in await engine.fires() if fire.cause == "follow-up"][
            -1
        ] == "ran"
        (meant,) = [fire for fire in await engine.fires() if fire.slot == "meant"]
        assert meant.due - meant.created_at == 400 * DAY


@pytest.mark.parametrize("jump", [-HOUR, -YEAR])
async def test_no_interval_waits_for_the_clock_to_come_back(host: Any, jump: timedelta) -> None:
    """Set back between two runs, it goes on within its length; a clock of the wall after a day."""
    host.write("steady", trigger=every("every 30 minutes"))
    host.write("wall", trigger=every("*/30 * * * *"))
    async with host.engine() as engine:
        await host.clock.advance(40 * MINUTE)
        host.clock.jump(jump)
        # Nobody looks at the clock for longer than a minute.
        await host.clock.advance(MINUTE)
        await host.clock.advance(30 * MINUTE)
        slugs = [run.slug for run in await engine.runs()]
    assert slugs.count("steady") == 2
    assert slugs.count("wall") == (2 if jump < -DAY else 1)


class Mailbox:
    """One message, after the first poll."""

    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        message = MailMessage(
            id="m", headers=(("From", "ada@example.com"), ("To", address), ("Subject", "s"))
        )
        return MailBatch(messages=() if after != "0" else (message,), mark="1" if after else "0")


async def test_mail_that_is_to_be_tried_again_does_not_wait_for_the_year_to_come_back(
    host: Any,
) -> None:
    """Also when the clock was ahead only as the pause began."""
    host.file(
        "jobs/mail.md", "---\ninbox: box:a@example.com\nallowFrom: ada@example.com\n---\nRead.\n"
    )
    calls = 0

    async def turn(_: Turn) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            host.clock.jump(YEAR)
            raise AgentError("confused")
        return "done"

    async with host.engine(agent=ScriptedAgent(default=turn), mail={"box": Mailbox()}) as engine:
        await host.clock.advance(6 * MINUTE)
        assert calls == 1
        host.clock.jump(-YEAR)
        await host.clock.advance(2 * MINUTE)
        assert [run.state for run in await engine.runs()] == ["succeeded", "failed"]


@pytest.mark.parametrize("jump", [-YEAR, YEAR])
async def test_an_inbox_is_asked_on_whatever_the_clock_does(host: Any, jump: timedelta) -> None:
    """Set in a run over mail that takes longer than the interval: it is asked as that ends."""
    host.file(
        "jobs/mail.md", "---\ninbox: box:a@example.com\nallowFrom: ada@example.com\n---\nRead.\n"
    )
    asked: list[float] = []

    class Asked(Mailbox):
        async def poll(self, address: str, after: str | None, /) -> MailBatch:
            asked.append(host.clock.monotonic())
            return await super().poll(address, after)

    async def turn(_: Turn) -> str:
        await host.clock.sleep(150 * SECOND)
        host.clock.jump(jump)
        return "done"

    agent, settings = ScriptedAgent(default=turn), {"inbox_poll": MINUTE}
    async with host.engine(agent=agent, mail={"box": Asked()}, settings=settings) as engine:
        await host.clock.advance(6 * MINUTE)
        assert [run.state for run in await engine.runs()] == ["succeeded"]
    assert [round(later - before) for before, later in pairwise(asked)][:4] == [60, 150, 60, 60]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("jump", [-YEAR, -12 * HOUR, YEAR])
async def test_a_delivery_is_tried_again_within_its_pauses_whatever_the_clock_does(
    host: Any, jump: timedelta, restart: bool
) -> None:
    host.write()
    attempts: list[int] = []

    class Door:
        async def deliver(self, intent: DeliveryIntent, /) -> None:
            attempts.append(intent.attempt)
            if len(attempts) < 4:
                raise OSError("no line")

    async with host.engine(deliverer=Door()) as engine:
        await engine.fire("check")
        await host.clock.advance(10 * MINUTE)
        assert attempts == [1, 2, 3]
        host.clock.jump(jump)
        if not restart:
            await host.clock.advance(13 * HOUR)
    if restart:
        async with host.engine(deliverer=Door()):
            await host.clock.advance(13 * HOUR)
    assert attempts == [1, 2, 3, 4]


@pytest.mark.parametrize("jump", [-YEAR, -HOUR, HOUR, YEAR])
async def test_a_run_in_which_the_clock_is_set_keeps_its_limits_and_its_claims(
    host: Any, jump: timedelta
) -> None:
    """Limits, pauses and leases are measured; only slots are told by the wall."""
    host.write("steady", trigger=every("every 30 minutes"), steps=["One.", "Two."])
    host.write("wall", trigger=every("*/30 * * * *"))
    calls: list[float] = []

    async def turn(turn: Turn) -> str:
        if turn.slug == "steady":
            calls.append(host.clock.monotonic())
            if len(calls) == 1:
                await host.clock.sleep(MINUTE)
                host.clock.jump(jump)
                raise AgentUnavailable("later", retry_after=20 * SECOND)
        await host.clock.sleep(4 * MINUTE)
        return "done"

    async with host.engine(agent=ScriptedAgent(default=turn)) as engine:
        await drive(engine, until=host.clock.now() + 31 * MINUTE)
        await host.clock.advance(3 * HOUR)
        runs = [run for run in await engine.runs(limit=100) if run.slug == "steady"]
        assert {run.state for run in runs} <= {"succeeded", "running"}
        assert calls[1] - calls[0] == pytest.approx(80)
        # Thirty minutes after each end, and two turns of four minutes.
        assert [round(b - a) for a, b in zip(calls[3::2], calls[5::2], strict=False)] == [
            38 * 60
        ] * len(calls[5::2])
        fires = await engine.fires(limit=100)
        assert len({(fire.slug, fire.slot) for fire in fires}) == len(fires)
        settled = [fire.verdict for fire in fires if fire.verdict]
        assert set(settled) == {"ran"}
        assert len([fire for fire in fires if fire.slug == "wall"]) <= 8
        assert len(await host.events(engine, "clock_jumped")) == 1


async def test_a_machine_that_boots_in_1970_makes_up_once_when_it_hears_the_time(
    host: Any,
) -> None:
    """What it saw first then counts for one run each, and its records stand in order."""
    host.clock = ManualClock(datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC))
    host.write("steady", trigger=every("every 30 minutes"))
    host.write("wall", trigger=every("* * * * *"))
    host.write("brief", trigger=every("daily at 07:00"))
    async with host.engine() as engine:
        await host.clock.advance(90 * SECOND)
        before = [run.run_id for run in await engine.runs()]
        host.clock.jump(datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC) - host.clock.now())
        await host.clock.advance(25 * SECOND)
        after = await engine.runs()
        assert sorted(run.slug for run in after[: -len(before)]) == ["brief", "wall"]
        began = [run.run_id.partition("-")[0] for run in after]
        assert began == sorted(began, reverse=True)
        events = [event async for event in engine.events(follow=False)]
        assert [event.at for event in events] == sorted(event.at for event in events)
        missed = [fire.slug for fire in await engine.fires() if fire.verdict != "ran"]
        assert missed == ["steady"], "an interval that was let go counts from then"
    async with host.engine() as engine:
        # Nothing that was written in 1970 makes anything due again.
        await host.clock.advance(SECOND)
        assert len(await engine.runs()) == len(after)
        await host.clock.advance(30 * MINUTE)
        assert "steady" in {run.slug for run in await engine.runs()}
