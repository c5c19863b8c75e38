"""What an interval counts from, and what moves no slot (spec, section 4)."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat import AgentError, Turn, run_inject
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
EVERY_45 = {"type": "schedule", "expression": "every 45 minutes"}
MISSING = {"requires": ["guidance/NONE.md"]}


@pytest.mark.parametrize(
    ("keys", "said", "state"),
    [
        ({}, "done", "succeeded"),
        ({}, AgentError("no"), "failed"),
        (MISSING, "done", "aborted"),
    ],
)
@pytest.mark.parametrize("by_hand", [True, False])
async def test_an_interval_counts_from_the_finish_of_a_run_that_went_wrong_too(
    host: Any, keys: dict[str, Any], said: Any, state: str, by_hand: bool
) -> None:
    host.write(trigger=EVERY_45, **keys)
    host.agent = ScriptedAgent(default=lambda turn: said)
    start = host.clock.now()
    async with host.engine() as engine:
        if by_hand:
            await drive(engine, until=start + 20 * MINUTE)
            await engine.run("check")
        else:
            await drive(engine, until=start + 45 * MINUTE)
        (first,) = await engine.runs()
        next_one = first.finished_at + 45 * MINUTE
        await drive(engine, until=next_one - timedelta(seconds=1))
        assert len(await engine.runs()) == 1
        await drive(engine, until=next_one)
        second, _ = await engine.runs()
    assert first.state == second.state == state
    assert second.fire.due == next_one


@pytest.mark.parametrize("away", [timedelta(0), 10 * MINUTE])
async def test_an_interval_counts_from_when_an_interrupted_run_was_settled(
    host: Any, away: timedelta
) -> None:
    """It is settled as the engine is left; a restart in between moves nothing."""
    host.write(trigger=EVERY_45)

    async def hang(turn: Turn) -> str:
        await host.clock.sleep(timedelta(hours=9))
        return "never said"

    host.agent = ScriptedAgent(default=hang)
    async with host.engine() as engine:
        await host.clock.advance(50 * MINUTE)
        assert len((await engine.status()).running) == 1
    await host.clock.advance(away)
    host.agent = ScriptedAgent(default="done")
    async with host.engine() as engine:
        (interrupted,) = await engine.runs()
        await drive(engine, until=interrupted.finished_at + 45 * MINUTE)
        after, _ = await engine.runs()
    assert interrupted.state == "interrupted"
    assert after.fire.due == interrupted.finished_at + 45 * MINUTE


async def test_adding_a_file_moves_no_other_slot(host: Any) -> None:
    """Neither of a wall clock nor of an interval, however often files come."""
    host.write("poll", trigger=EVERY_45)
    host.write("brief", trigger={"type": "schedule", "expression": "daily at 13:00"})
    start = host.clock.now()
    async with host.engine() as engine:
        for number in range(4):
            await drive(engine, until=start + (number + 1) * 10 * MINUTE)
            host.write(f"added-{number}", trigger=EVERY_45)
            await engine.reload()
        await drive(engine, until=start + 60 * MINUTE)
        dues = {fire.slug: fire.due - start for fire in await engine.fires()}
    assert dues["poll"] == 45 * MINUTE
    assert dues["brief"] == 60 * MINUTE
    assert dues["added-0"] == 55 * MINUTE


async def test_the_path_is_the_one_of_the_start_on_every_turn(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 9: captured once, shown by `status`, the same for tools and for each turn."""
    host.write(
        steps=[{"id": "one", "prompt": "One."}, {"id": "two", "prompt": "Two."}],
        inject=[{"argv": ["sh", "-c", 'echo "$PATH"'], "label": "path"}],
    )
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    async with host.engine(env=None) as engine:
        monkeypatch.setenv("PATH", "/somewhere/else")
        await engine.run("check")
        path = ":".join(map(str, (await engine.status()).path))
    assert path == f"{host.workspace / 'bin'}:/usr/bin:/bin"
    assert [turn.env["PATH"] for turn in host.agent.turns] == [path] * 3
    assert host.agent.turns[0].prompt == f"{path}\n"


def test_a_tool_alone_has_a_minute_unless_it_is_given_more() -> None:
    defaults = run_inject.__kwdefaults__
    assert defaults["timeout"] == timedelta(seconds=60)
