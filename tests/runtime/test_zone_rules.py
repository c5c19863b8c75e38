"""Zone data that changes between two starts: no time of day is met twice, and none is left out."""

import os
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from drumbeat import DrumbeatError
from drumbeat.runtime.rules import read_rules
from drumbeat.runtime.threads import Threads
from drumbeat.testing import ManualClock

# What is decided by a clock knows nothing of the backend.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

HOUR = timedelta(hours=1)
DAY = datetime(2026, 3, 2, tzinfo=UTC)
"""The day on which the clock begins, at noon."""
PLACE = "Test/Capital"
Rules = Callable[[str], None]


@pytest.fixture
def rules(tmp_path: Path) -> Iterator[Rules]:
    """Lets the capital keep the time of another place from the next start on, or be unknown."""
    file = tmp_path / "zones" / PLACE
    file.parent.mkdir(parents=True)
    before = zoneinfo.TZPATH

    def follow(place: str) -> None:
        file.unlink(missing_ok=True)
        if place:
            folder, _, name = place.partition("/")
            data = resources.files("tzdata.zoneinfo").joinpath(folder, name)
            file.write_bytes(data.read_bytes())
        zoneinfo.ZoneInfo.clear_cache()

    zoneinfo.reset_tzpath([str(tmp_path / "zones"), *before])
    yield follow
    zoneinfo.reset_tzpath(before)
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.parametrize("expression", ["daily at 07:00", "0 7 * * *"])
@pytest.mark.parametrize(
    "places, wanted",
    [
        # 07:00 had been an hour earlier in UTC, and comes once more on the day of the change.
        (("Europe/Berlin", "Europe/London"), [6, 24 + 7]),
        (("Europe/London", "Europe/Berlin"), [7, 24 + 6]),
        (("Europe/London", "Europe/London"), [7, 24 + 7]),
    ],
)
async def test_a_time_of_day_has_one_moment_a_day_whatever_the_rules_become(
    host: Any, rules: Rules, expression: str, places: tuple[str, str], wanted: list[int]
) -> None:
    day = datetime(2026, 1, 12, tzinfo=UTC)
    host.clock = ManualClock(day)
    host.write(trigger={"type": "schedule", "expression": expression})
    rules(places[0])
    async with host.engine(timezone=PLACE) as engine:
        await host.clock.advance(wanted[0] * HOUR + HOUR / 2)
    rules(places[1])
    async with host.engine(timezone=PLACE) as engine:
        foreseen = await engine.upcoming(until=day + 34 * HOUR)
        await host.clock.advance(day + 34 * HOUR - host.clock.now())
        slots = sorted(fire.due for fire in await engine.fires())
    assert [(slot - day) / HOUR for slot in slots] == wanted
    assert [(due.slot - day) / HOUR for due in foreseen] == wanted[1:]


async def test_elapsed_time_goes_on_under_other_rules(host: Any, rules: Rules) -> None:
    day = datetime(2026, 1, 12, tzinfo=UTC)
    host.clock = ManualClock(day)
    host.write(trigger={"type": "schedule", "expression": "*/30 * * * *"})
    for place in ("Europe/Berlin", "Europe/London"):
        rules(place)
        async with host.engine(timezone=PLACE) as engine:
            await host.clock.advance(2 * HOUR)
            slots = sorted(fire.due for fire in await engine.fires())
    assert [(slot - day) / HOUR for slot in slots] == [n / 2 for n in range(1, 9)]


async def test_a_zone_that_is_gone_is_refused_by_name(host: Any, rules: Rules) -> None:
    """Nothing runs by another clock, and what is recorded stays for when it is back."""
    rules("Europe/Berlin")
    host.write(trigger={"type": "schedule", "expression": "daily at 14:00"})
    async with host.engine(timezone=PLACE):
        await host.clock.advance(2 * HOUR)
    rules("")
    with pytest.raises(DrumbeatError) as caught:
        async with host.engine(timezone=PLACE):
            pass
    assert caught.value.problem.code == "zone-unknown"
    assert PLACE in caught.value.problem.message
    rules("Europe/Berlin")
    async with host.engine(timezone=PLACE) as engine:
        assert [fire.verdict for fire in await engine.fires()] == ["ran"]


async def test_each_engine_looks_at_the_variable_that_names_the_zone(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the second one of a process."""
    host.write()
    for name in ("Europe/Berlin", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", name)
        async with host.engine(timezone=None) as engine:
            assert (await engine.status()).zones["automation"][0] == name


async def test_another_place_in_the_variable_counts_from_the_next_start(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No moment that has run comes again, none that passed there is made up; a slip is UTC."""
    host.write(trigger={"type": "schedule", "expression": "daily at 14:00"})
    hours = []
    for name, hour in (
        ("Europe/Berlin", 13),
        ("Asia/Tokyo", 24 + 5),
        ("Europe/Berln", 24 + 14),
        ("Europe/Berlin", 48 + 13),
    ):
        monkeypatch.setenv("TZ", name)
        hours.append(hour)
        async with host.engine(timezone=None) as engine:
            await host.clock.advance(DAY + (hour + 0.5) * HOUR - host.clock.now())
            slots = sorted(fire.due for fire in await engine.fires())
            assert [(slot - DAY) / HOUR for slot in slots] == hours


async def changes(engine: Any) -> list[tuple[str, str, str]]:
    return [
        (event.data["files"], event.data["before"], event.data["zone"])
        async for event in engine.events(follow=False)
        if event.kind == "zone_changed"
    ]


async def test_an_engine_of_another_zone_than_the_one_before_says_so(host: Any) -> None:
    """Else every time of day would be another one, and nothing would look wrong."""
    host.write(trigger={"type": "schedule", "expression": "daily at 14:00"})
    berlin = "Europe/Berlin"
    with capture_logs() as logs:
        for zone in (berlin, berlin, "Asia/Tokyo"):
            async with host.engine(timezone=zone) as engine:
                found = await changes(engine)
    assert found == [("automations", berlin, "Asia/Tokyo"), ("jobs", berlin, "Asia/Tokyo")]
    told = [line for line in logs if line["event"] == "zone_changed"]
    assert [(line["log_level"], line["files"], line["source"]) for line in told] == [
        ("warning", "automations", "timezone"),
        ("warning", "jobs", "timezone"),
    ]
    async with host.engine(timezone=berlin) as engine:
        assert (await changes(engine))[2:] == [
            ("automations", "Asia/Tokyo", berlin),
            ("jobs", "Asia/Tokyo", berlin),
        ]


async def test_names_of_one_zone_are_no_change(host: Any) -> None:
    host.write()
    for zone in ("UTC", "Etc/UTC", "UTC"):
        async with host.engine(timezone=zone) as engine:
            assert await changes(engine) == []


async def test_a_zone_that_is_back_under_another_of_its_names_has_not_moved(host: Any) -> None:
    host.write()
    for zone, moved in (("UTC", set()), ("Asia/Tokyo", {"automation", "job"}), ("Etc/UTC", set())):
        store = host.faulty()
        async with host.engine(timezone=zone, store=store):
            assert set((await read_rules(store, threads=Threads())).moved) == moved


async def test_the_variable_that_names_the_zone_moves_nothing_while_an_engine_runs(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an engine has told people about times it keeps to, whatever becomes of `TZ`."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    host.write(trigger={"type": "schedule", "expression": "daily at 14:00"})
    async with host.engine(timezone=None) as engine:
        os.environ["TZ"] = "Asia/Tokyo"
        # Neither what stands nor what is written from then on.
        host.write("more", trigger={"type": "schedule", "expression": "daily at 15:00"})
        await engine.reload()
        due = await engine.upcoming(until=host.clock.now() + 12 * HOUR)
        assert [(each.slug, each.slot.hour) for each in due] == [("check", 13), ("more", 14)]
        await host.clock.advance(3 * HOUR)
        slots = {(fire.slug, fire.due.hour) for fire in await engine.fires()}
        assert slots == {("check", 13), ("more", 14)}
        assert (await engine.status()).zones["automation"][0] == "Europe/Berlin"
