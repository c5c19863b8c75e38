"""Mistakes that nobody foresaw: they are voiced, tried again, and end nothing else."""

from datetime import timedelta
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from drumbeat import Engine, Problem, StoreError
from drumbeat.runtime.agenda import Agenda
from drumbeat.runtime.contained import contained
from drumbeat.runtime.presence import Presence
from drumbeat.runtime.schedule_marks import Standing
from drumbeat.runtime.settlement import Settlement
from drumbeat.runtime.store import SqliteStore

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def hourly() -> dict[str, str]:
    return {"type": "schedule", "expression": "every hour"}


async def faults(engine: Engine) -> list[str]:
    return [fault.message.split(":")[0] for fault in (await engine.status()).faults]


class Mistakes:
    """Lets a method of a class or an object raise, always or for one slug."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, slug: str = ""):
        self.going = True
        real = getattr(target, name)

        async def method(*given: Any, **named: Any) -> Any:
            slugs = {getattr(item, "slug", "") for item in given}
            if self.going and (not slug or slug in slugs):
                raise RuntimeError("a mistake, correct-horse")
            return await real(*given, **named)

        monkeypatch.setattr(target, name, method)


async def test_an_event_is_redacted_as_it_is_made(host: Any) -> None:
    """Whoever makes one need not think of it."""
    async with host.engine(secrets={"KEY": "correct-horse"}) as engine:
        services = engine._life.services
        event = services.event("odd", host.clock.now(), said=["a correct-horse", {"b": 1}])
    assert event.data == {"said": ["a [redacted KEY]", {"b": 1}]}


async def test_a_mistake_over_one_schedule_keeps_no_other(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from the start on nor later; it is planned as soon as that goes well."""
    host.write("good", trigger=hourly())
    host.write("odd", trigger=hourly())
    first_mark = Standing.first_mark

    def mistake(self: Standing, now: Any) -> Any:
        if self.slug == "odd":
            raise RuntimeError("a mistake, correct-horse")
        return first_mark(self, now)

    monkeypatch.setattr(Standing, "first_mark", mistake)
    with capture_logs() as logs:
        async with host.engine(secrets={"KEY": "correct-horse"}) as engine:
            await host.clock.advance(HOUR + MINUTE)
            assert [fire.slug for fire in await engine.fires()] == ["good"]
            assert await faults(engine) == ["the engine made a mistake in its schedule of odd"]
            assert "correct-horse" not in str(await engine.status())
            (event,) = await host.events(engine, "part_failed")
            assert (event.slug, event.data["part"]) == ("odd", "schedule")
            monkeypatch.setattr(Standing, "first_mark", first_mark)
            await host.look(2)
            assert await faults(engine) == []
            await host.clock.advance(HOUR + MINUTE)
            assert {fire.slug for fire in await engine.fires()} == {"good", "odd"}
    said = [line for line in logs if line["event"] in ("part_failed", "part_recovered")]
    assert [line["event"] for line in said] == ["part_failed", "part_recovered"]
    assert "RuntimeError" in said[0]["trace"]
    assert "correct-horse" not in str(logs)


async def test_a_fault_goes_with_the_file_that_it_was_about(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write("odd", trigger=hourly())

    def mistake(self: Standing, now: Any) -> Any:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Standing, "first_mark", mistake)
    async with host.engine() as engine:
        assert len(await faults(engine)) == 1
        (host.workspace / "automations/odd.md").unlink()
        await host.look(3)
        assert await faults(engine) == []


async def test_a_moment_that_could_not_be_put_in_is_put_in_later(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write("good", trigger={"type": "schedule", "expression": "0 * * * *"})
    host.write("odd", trigger={"type": "schedule", "expression": "0 * * * *"})
    async with host.engine() as engine:
        mistakes = Mistakes(monkeypatch, Agenda, "_put", "odd")
        await host.clock.advance(HOUR + MINUTE)
        assert [fire.slug for fire in await engine.fires()] == ["good"]
        assert await faults(engine) == ["the engine made a mistake in its moment of odd"]
        mistakes.going = False
        await host.look(2)
        odd, good = await engine.fires()
        assert (odd.slug, odd.due, odd.verdict) == ("odd", good.due, "ran")
        assert await faults(engine) == []


@pytest.mark.parametrize(
    ("part", "room", "method"),
    [
        ("reload", "upkeep", "reload"),
        ("requests", "desk", "_look"),
        ("retention", "retention", "tidy"),
    ],
)
async def test_a_round_that_fails_is_done_again(
    host: Any, monkeypatch: pytest.MonkeyPatch, part: str, room: str, method: str
) -> None:
    """The engine goes on meanwhile."""
    host.write()
    async with host.engine() as engine:
        mistakes = Mistakes(monkeypatch, type(getattr(engine._life, room)), method)
        await host.clock.advance(25 * HOUR)
        assert await faults(engine) == [f"the engine made a mistake in its {part}"]
        assert (await engine.run("check")).state == "succeeded"
        assert (await engine.health()).faults == ("part-failed",)
        mistakes.going = False
        await host.clock.advance(HOUR + MINUTE)
        assert await faults(engine) == []
        assert len(await host.events(engine, "part_failed")) == 1


async def test_leases_that_could_not_be_renewed_are_renewed_the_next_time(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write()

    host.agent = host.sleeper(HOUR / 2)
    async with host.engine() as engine, anyio.create_task_group() as group:
        mistakes = Mistakes(monkeypatch, engine._life.services.store, "renew")
        group.start_soon(engine.run, "check")
        lease = engine._life.services.settings.lease
        await host.clock.advance(lease / 2)
        assert await faults(engine) == ["the engine made a mistake in its renewal"]
        mistakes.going = False
        await host.clock.advance(2 * HOUR)
        assert await faults(engine) == []
        assert [run.state for run in await engine.runs()] == ["succeeded"]


async def test_a_run_that_cannot_be_settled_holds_up_no_other(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a crash left is settled at the start, and later where that failed."""
    host.write("good")
    host.write("odd")
    async with host.engine() as engine:
        for slug in ("odd", "good"):
            await engine.fire(slug, after=HOUR)
    store = SqliteStore(host.data / "drumbeat.db", clock=host.clock)
    await store.open(holder="killed", lease=HOUR)
    for run_id in ("20260302T120000000000Z-00000001", "20260302T120000000000Z-00000002"):
        claim = await store.claim_fire(now=host.clock.now() + 2 * HOUR, run_id=run_id, skip=())
        assert claim is not None
    await store.close()
    mistakes = Mistakes(monkeypatch, Settlement, "_settle", "odd")
    async with host.engine() as engine:
        assert [run.slug for run in await engine.runs()] == ["good"]
        assert await faults(engine) == ["the engine made a mistake in its settlement of odd"]
        mistakes.going = False
        await host.clock.advance(MINUTE)
        assert {run.slug: run.state for run in await engine.runs()} == {
            "good": "interrupted",
            "odd": "interrupted",
        }
        assert await faults(engine) == []


async def test_a_mistake_over_the_sign_of_life_stops_nothing(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write("good", trigger=hourly())
    mistakes = Mistakes(monkeypatch, Presence, "beat")
    async with host.engine() as engine:
        await host.clock.advance(HOUR + MINUTE)
        assert [run.state for run in await engine.runs()] == ["succeeded"]
        assert await faults(engine) == ["the engine made a mistake in its sign of life"]
        mistakes.going = False
        await host.look()
        assert await faults(engine) == []
        assert (await engine.health()).state == "running"


async def test_trouble_with_the_store_is_not_contained_and_costs_no_event(host: Any) -> None:
    """The event of a mistake that could not be written is written the next time."""
    full = StoreError(Problem(code="store-full", message="full", remedy="make room"))
    store = host.faulty()
    async with host.engine(store=store) as engine:
        services = engine._life.services

        async def trouble() -> None:
            raise full

        async def mistake() -> None:
            raise RuntimeError("a mistake")

        with pytest.raises(StoreError):
            await contained(services, "test", trouble)
        store.faults["record"] = [full]
        assert not await contained(services, "test", mistake)
        assert services.faults["store"] == full.problem
        for _ in range(2):
            assert not await contained(services, "test", mistake)
        assert len(await host.events(engine, "part_failed")) == 1
