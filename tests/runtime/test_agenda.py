"""Schedules as they meet files that change, clocks that jump and runs that take their time."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from drumbeat import Client, Due, Engine, Fire, Problem, StoreError, Turn, WorkspaceError
from drumbeat.testing import ManualClock, ScriptedAgent, drive

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


GAP = "*/10 2 * 3 L0"
"""Of elapsed time, and on a day on which the clocks in Berlin skip that hour in every year."""


def at(expression: str) -> dict[str, str]:
    return {"type": "schedule", "expression": expression}


def dues(fires: list[Fire]) -> list[timedelta]:
    return sorted(fire.due - START for fire in fires)


async def verdicts(engine: Engine, slug: str = "check") -> list[tuple[timedelta, str | None, int]]:
    """When each fire was due, how it ended and what it stands for besides, oldest first."""
    fires = await engine.fires(slug, limit=1000)
    return sorted((fire.due - START, fire.verdict, fire.folded_slots) for fire in fires)


def restarted(host: Any, *, after: timedelta) -> None:
    """As if the machine had been off for a while."""
    host.clock = ManualClock(host.clock.now() + after)


# ---- foresight


async def test_what_is_foretold_is_what_happens(host: Any) -> None:
    host.write("poll", trigger=at("every 45 minutes"))
    host.write("brief", trigger=at("daily at 13:30"))
    host.write("often", trigger=at("*/20 13-14 * * *"))
    host.write("never", trigger=at("every 5 minutes"), enabled=False)
    until = START + 3 * HOUR
    async with host.engine() as engine:
        foretold = await engine.upcoming(until=until)
        happened: list[Due] = []
        before = set()
        for fire in await engine.fires():
            before.add(fire.id)
        await drive(engine, until=until)
        fires = sorted(await engine.fires(), key=lambda fire: (fire.due, fire.slug))
        happened = [
            Due(slug=fire.slug, slot=fire.due, folded=fire.folded_slots, missed=False)
            for fire in fires
            if fire.slug != "poll" or fire.due == START + 45 * MINUTE
        ]
    assert foretold == happened
    assert len(foretold) == 1 + 1 + 6


async def test_an_interval_is_foretold_when_it_is_certain_only(host: Any) -> None:
    """While its run is going, its end decides when the next is due."""
    host.write(trigger=at("every 45 minutes"))
    host.agent = host.sleeper(20 * MINUTE)
    async with host.engine() as engine:
        (due,) = await engine.upcoming(until=START + DAY)
        assert due.slot - START == 45 * MINUTE
        await host.clock.advance(50 * MINUTE)
        assert await engine.upcoming(until=START + DAY) == []
        await host.clock.advance(20 * MINUTE)
        (due,) = await engine.upcoming(until=START + DAY)
        assert due.slot - START == (45 + 20 + 45) * MINUTE


async def test_foretelling_writes_nothing(host: Any) -> None:
    host.write(trigger=at("every 45 minutes"))
    async with host.engine() as engine:
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        host.write("added", trigger=at("daily at 13:00"))
        before = (host.data / "drumbeat.db-wal").read_bytes()
        await engine.upcoming(until=START + DAY)
        await engine.status()
        assert (host.data / "drumbeat.db-wal").read_bytes() == before


# ---- intervals


async def test_an_interval_counts_from_the_last_finish_whatever_caused_the_run(host: Any) -> None:
    host.write(trigger=at("every 45 minutes"))
    async with host.engine() as engine:
        await drive(engine, until=START + 40 * MINUTE)
        await engine.run("check")
        await drive(engine, until=START + 84 * MINUTE)
        assert [fire.cause for fire in await engine.fires()] == ["manual"]
        await drive(engine, until=START + 85 * MINUTE)
        assert [fire.cause for fire in await engine.fires()] == ["schedule", "manual"]


async def test_an_interval_that_falls_due_during_another_run_waits_for_its_whole_length(
    host: Any,
) -> None:
    """Never is one run sooner than the interval after the last finish."""
    host.write(trigger=at("every 45 minutes"))
    host.agent = host.sleeper(30 * MINUTE)
    async with host.engine() as engine:
        await drive(engine, until=START + 40 * MINUTE)
        await engine.fire("check")
        await host.clock.advance(6 * HOUR)
        runs = sorted(await engine.runs(), key=lambda run: run.started_at)
    assert [run.fire.cause for run in runs[:2]] == ["manual", "schedule"]
    for before, after in pairwise(runs):
        assert before.finished_at is not None
        if after.fire.cause == "schedule":
            assert after.started_at == before.finished_at + 45 * MINUTE


async def test_an_interval_keeps_counting_over_a_restart(host: Any) -> None:
    """`first seen` and the last finish outlive the process."""
    host.write(trigger=at("every 45 minutes"))
    async with host.engine() as engine:
        await drive(engine, until=START + 30 * MINUTE)
    async with host.engine() as engine:
        await drive(engine, until=START + 50 * MINUTE)
        assert dues(await engine.fires()) == [45 * MINUTE]
    async with host.engine() as engine:
        await drive(engine, until=START + 95 * MINUTE)
        assert dues(await engine.fires()) == [45 * MINUTE, 90 * MINUTE]


async def test_an_interval_that_was_missed_counts_from_when_it_was_let_go(host: Any) -> None:
    """Even when the host restarts more often than the interval is long."""
    host.write(trigger=at("every 45 minutes"))
    settings = {"catch_up": HOUR}
    async with host.engine(settings=settings) as engine:
        await drive(engine, until=START + MINUTE)
    restarted(host, after=5 * HOUR)
    async with host.engine(settings=settings) as engine:
        await engine.settled()
        assert await verdicts(engine) == [(45 * MINUTE, "missed", 0)]
        await drive(engine, until=host.clock.now() + 30 * MINUTE)
    async with host.engine(settings=settings) as engine:
        await drive(engine, until=host.clock.now() + 14 * MINUTE)
        assert len(await engine.fires()) == 1
        await drive(engine, until=host.clock.now() + MINUTE)
        assert [fire.verdict for fire in await engine.fires()] == ["ran", "missed"]


async def test_an_interval_whose_slot_was_skipped_counts_from_then_over_a_restart(
    host: Any,
) -> None:
    host.write(trigger=at("every 2 hours"))
    host.write("slow")
    host.agent = host.sleeper(MINUTE, slow=50 * MINUTE)
    settings = {"max_concurrent_runs": 1}
    async with host.engine(settings=settings) as engine:
        await host.clock.advance(HOUR + 50 * MINUTE)
        await engine.fire("slow")
        await host.clock.advance(MINUTE)
        await engine.pause("check", "holiday")
        await host.clock.advance(50 * MINUTE)  # due after 2 h, and its turn comes after 2 h 40 min
        await engine.resume("check")
        assert await verdicts(engine) == [(2 * HOUR, "skipped", 0)]
        foretold = await engine.upcoming(until=START + DAY)
        assert [due.slot - START for due in foretold] == [4 * HOUR + 40 * MINUTE]
    async with host.engine(settings=settings) as engine:
        assert await engine.upcoming(until=START + DAY) == foretold
        await drive(engine, until=START + 5 * HOUR)
        assert (await verdicts(engine))[1:] == [(4 * HOUR + 40 * MINUTE, "ran", 0)]


async def test_a_follow_up_that_is_skipped_moves_no_interval(host: Any) -> None:
    host.write(trigger=at("every 45 minutes"))

    async def ask(turn: Turn) -> str:
        await turn.follow_ups.schedule("Look again.", after=30 * MINUTE)
        return "done"

    host.agent = ScriptedAgent({"check/step-1": [ask, "done"]}, default="done")
    async with host.engine() as engine:
        await engine.run("check")
        await engine.pause("check", "holiday")
        await host.clock.advance(31 * MINUTE)
        await engine.resume("check")
        await host.clock.advance(15 * MINUTE)
        fires = {fire.cause: (fire.due - START, fire.verdict) for fire in await engine.fires()}
        assert fires["follow-up"] == (30 * MINUTE, "skipped")
        assert fires["schedule"] == (45 * MINUTE, "ran")


async def test_an_interval_let_go_for_what_was_then_skipped_counts_from_then(host: Any) -> None:
    """No run ends that could say when it is next."""
    host.write(trigger=at("every 45 minutes"))
    host.write("slow")

    async def ask(turn: Turn) -> str:
        await turn.follow_ups.schedule("Look again.", after=40 * MINUTE)
        return "done"

    script = {"check/step-1": [ask, "done"]}
    host.agent = ScriptedAgent(script, default=host.sleeper(30 * MINUTE)._default)
    async with host.engine(settings={"max_concurrent_runs": 1}) as engine:
        await engine.run("check")
        await host.clock.advance(35 * MINUTE)
        await engine.fire("slow")
        await host.clock.advance(MINUTE)
        await engine.pause("check", "holiday")
        await host.clock.advance(34 * MINUTE)  # the follow-up waits from 40 on, its turn is at 65
        await engine.resume("check")
        fires = {fire.cause: fire.verdict for fire in await engine.fires("check")}
        assert fires == {"manual": "ran", "follow-up": "skipped"}
        foretold = await engine.upcoming(until=START + DAY)
        assert [due.slot - START for due in foretold] == [110 * MINUTE]
    async with host.engine() as engine:
        assert await engine.upcoming(until=START + DAY) == foretold


# ---- slots that meet a run


async def test_one_slot_waits_for_a_run_and_later_ones_fold_into_it(host: Any) -> None:
    host.write(trigger=at("*/10 * * * *"))
    host.agent = host.sleeper(45 * MINUTE)
    async with host.engine() as engine:
        await host.clock.advance(HOUR - MINUTE)
        assert await verdicts(engine) == [
            (10 * MINUTE, "ran", 0),
            (20 * MINUTE, None, 3),
            (30 * MINUTE, "folded", 0),
            (40 * MINUTE, "folded", 0),
            (50 * MINUTE, "folded", 0),
        ]
        settled = await host.events(engine, "fire_settled")
        fires = {fire.id: fire for fire in await engine.fires()}
        folded = [event for event in settled if event.data["verdict"] == "folded"]
        waiting = next(fire for fire in fires.values() if fire.verdict is None)
        assert [event.data["folded_into"] for event in folded] == [waiting.id] * 3
        why = await engine.why("check", at=START + 30 * MINUTE)
        assert why.endswith(f"was folded into the fire {waiting.id}.")


async def test_every_settled_fire_has_one_event_that_says_so(host: Any) -> None:
    host.write(trigger=at("*/10 * * * *"))
    host.write("off", trigger=at("*/30 * * * *"))
    host.agent = host.sleeper(25 * MINUTE)
    async with host.engine() as engine:
        await host.clock.advance(2 * HOUR)
    restarted(host, after=3 * DAY)
    async with host.engine(settings={"catch_up": timedelta(seconds=1)}) as engine:
        await host.clock.advance(MINUTE)
        host.write("off", trigger=at("*/30 * * * *"), enabled=False)
        await host.clock.advance(2 * HOUR)
        fires = await engine.fires(limit=1000)
        settled = await host.events(engine, "fire_settled")
    verdicts = {fire.id: fire.verdict for fire in fires if fire.verdict}
    assert {event.data["fire"]: event.data["verdict"] for event in settled} == verdicts
    assert len(settled) == len(verdicts)
    assert {"ran", "folded"} <= set(verdicts.values())


async def test_a_long_run_delays_no_other_automation(host: Any) -> None:
    host.write("slow", trigger=at("0 13 * * *"))
    host.write("often", trigger=at("*/5 * * * *"))
    host.agent = host.sleeper(timedelta(seconds=10), slow=2 * HOUR)
    async with host.engine(settings={"run_timeout": 3 * HOUR}) as engine:
        await drive(engine, until=START + 3 * HOUR + MINUTE)
        runs = [run for run in await engine.runs(limit=1000) if run.slug == "often"]
        slow = await engine.find_run((await engine.runs("slow"))[0].run_id)
    assert slow.state == "succeeded"
    assert slow.finished_at == START + 3 * HOUR
    assert len(runs) == 36
    assert all(run.started_at == run.fire.due for run in runs)


# ---- files that change


async def test_editing_the_schedule_moves_the_next_slot_and_editing_a_prompt_does_not(
    host: Any,
) -> None:
    host.write(trigger=at("daily at 20:00"))
    host.write("other", trigger=at("every 45 minutes"))
    async with host.engine() as engine:
        await drive(engine, until=START + 30 * MINUTE)
        host.write(trigger=at("daily at 20:00"), steps=["Look elsewhere."])
        host.write("other", trigger=at("every 45 minutes"), steps=["Look elsewhere."])
        await engine.reload()
        foretold = await engine.upcoming(until=START + DAY)
        assert [(due.slug, due.slot - START) for due in foretold] == [
            ("other", 45 * MINUTE),
            ("check", 8 * HOUR),
        ]
        host.write(trigger=at("daily at 12:10"))
        host.write("other", trigger=at("every 10 minutes"))
        await engine.reload()
        # The other one is due at this very instant, so it may have been given out already.
        foretold = [
            due for due in await engine.upcoming(until=START + 2 * DAY) if due.slug == "check"
        ]
        assert [due.slot - START for due in foretold][:1] == [DAY + 10 * MINUTE]
        await drive(engine, until=START + 31 * MINUTE)
        assert dues(await engine.fires()) == [30 * MINUTE]


async def test_a_shorter_interval_after_a_finish_is_due_at_once_and_no_sooner(host: Any) -> None:
    host.write(trigger=at("every 4 hours"))
    async with host.engine() as engine:
        await engine.run("check")
        await drive(engine, until=START + HOUR)
        host.write(trigger=at("every 90 minutes"))
        await engine.reload()
        await drive(engine, until=START + 2 * HOUR)
        assert dues(await engine.fires()) == [timedelta(0), 90 * MINUTE]


async def test_a_schedule_edited_while_nothing_ran_counts_from_the_start(host: Any) -> None:
    """What the old one made due has a verdict all the same: one, as it would have been one run."""
    host.write(trigger=at("daily at 12:30"))
    host.write("other", trigger=at("daily at 12:30"))
    async with host.engine() as engine:
        await drive(engine, until=START + MINUTE)
    restarted(host, after=3 * DAY)
    host.write(trigger=at("daily at 11:30"))
    host.write("other", trigger=at("daily at 12:30"), steps=["Look elsewhere."])
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now() + MINUTE)
        (fire,) = await engine.fires("check")
        assert fire.reason == (
            "nobody saw to it in time, and by now its schedule is `daily at 11:30` in UTC, "
            "not `daily at 12:30` in UTC"
        )
        assert await verdicts(engine) == [(2 * DAY + 30 * MINUTE, "missed", 2)]
        assert await verdicts(engine, "other") == [(2 * DAY + 30 * MINUTE, "ran", 2)]
        for day in range(2):
            said = await engine.why("check", at=START + day * DAY + 30 * MINUTE)
            assert "missed: nobody saw to it in time" in said
            assert "stands for 2 earlier slots" in said
        foretold = await engine.upcoming(until=host.clock.now() + DAY)
        assert [due.slot - START for due in foretold if due.slug == "check"] == [
            4 * DAY - 30 * MINUTE
        ]
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now() + MINUTE)
        assert len(await engine.fires("check")) == 1


@pytest.mark.parametrize(
    ("written", "verdict", "reason"),
    [
        ({"trigger": at("daily at 12:30"), "enabled": False}, "skipped", "disabled"),
        ({"trigger": {"type": "manual"}}, "missed", "its file has no schedule by now"),
        ({"trigger": at("every 72 hours")}, "missed", "`every 72 hours`, not `daily at 12:30`"),
    ],
)
async def test_whatever_a_file_says_by_now_what_it_owed_has_a_verdict(
    host: Any, written: dict[str, Any], verdict: str, reason: str
) -> None:
    host.write(trigger=at("daily at 12:30"))
    async with host.engine() as engine:
        await drive(engine, until=START + HOUR)
    restarted(host, after=2 * DAY)
    host.write(**written)
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now() + MINUTE)
        ran, owed = await verdicts(engine)
        assert ran == (30 * MINUTE, "ran", 0)
        assert owed == (2 * DAY + 30 * MINUTE, verdict, 1)
        assert reason in (await engine.fires())[0].reason
        assert (await engine.runs())[0].started_at == START + 30 * MINUTE


async def test_a_zone_that_changed_while_nothing_ran_leaves_a_verdict(host: Any) -> None:
    """What was due was due by the zone of then, also when no file goes by that any more."""
    host.write(trigger=at("daily at 13:00"))
    async with host.engine(timezone="Europe/Berlin") as engine:
        await drive(engine, until=START + MINUTE)
    restarted(host, after=2 * DAY)
    moment = START + DAY
    async with Client(host.workspace) as asking:
        asking._clock = host.clock
        said = await asking.why("check", at=moment)
        assert "was due at 2026-03-03T13:00:00+01:00, and no engine has taken that up yet" in said
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now() + MINUTE)
        (fire,) = await engine.fires("check")
    assert (fire.due, fire.verdict, fire.folded_slots) == (START + 2 * DAY, "missed", 1)
    assert "`daily at 13:00` in UTC, not `daily at 13:00` in Europe/Berlin" in fire.reason


@pytest.mark.parametrize(
    "kept", [{"zone": "Mars/Olympus"}, {"rule": "at the third dawn"}, {"rule": GAP}]
)
async def test_a_rule_that_nobody_knows_any_more_owes_nothing(
    host: Any, kept: dict[str, str]
) -> None:
    """As after a downgrade, or on a machine without that zone: the file begins anew."""
    host.write(trigger=at("daily at 13:00"))
    store = host.faulty()
    async with host.engine(store=store, timezone="Europe/Berlin") as engine:
        await drive(engine, until=START + MINUTE)
        (mark,) = await store.marks("schedule:check")
        await store.record(marks=[attrs.evolve(mark, value={**mark.value, **kept})])
    restarted(host, after=2 * DAY)
    async with Client(host.workspace) as asking:
        asking._clock = host.clock
        assert "was not due" in await asking.why("check", at=START + DAY)
    async with host.engine(timezone="Europe/Berlin") as engine:
        await drive(engine, until=host.clock.now() + DAY)
        assert [fire.verdict for fire in await engine.fires("check")] == ["ran"]


async def test_an_interval_is_owed_once_and_by_no_other_interval(host: Any) -> None:
    """Its one moment moves with the edit; only where none follows is it passed over."""
    for slug in ("check", "poll", "open"):
        host.write(slug, trigger=at("every 45 minutes"))
    async with host.engine() as engine:
        await drive(engine, until=START + MINUTE)
    restarted(host, after=DAY)
    async with Client(host.workspace) as asking:
        asking._clock = host.clock
        await asking.fire("open")
    host.write("check", trigger=at("every 2 hours"))
    for slug in ("poll", "open"):
        host.write(slug, trigger=at("daily at 20:00"))
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now() + MINUTE)
        assert await verdicts(engine) == [(DAY + MINUTE, "ran", 0)]
        assert await verdicts(engine, "poll") == [(45 * MINUTE, "missed", 0)]
        assert [fire.cause for fire in await engine.fires("open")] == ["manual"]


async def test_an_edit_beside_a_running_engine_leaves_nothing_behind(host: Any) -> None:
    host.write(trigger=at("0 * * * *"))
    async with host.engine() as engine:
        await drive(engine, until=START + 2 * HOUR)
        host.write(trigger=at("30 * * * *"))
        await engine.reload()
        await drive(engine, until=START + 3 * HOUR)
        assert [verdict for _, verdict, _ in await verdicts(engine)] == ["ran"] * 3


async def test_another_zone_counts_as_an_edit_of_the_wall_clock_alone(host: Any) -> None:
    host.write(trigger=at("daily at 13:00"))
    host.write("poll", trigger=at("every 45 minutes"))
    async with host.engine() as engine:
        await drive(engine, until=START + 30 * MINUTE)
    async with host.engine(timezone="America/New_York") as engine:
        foretold = await engine.upcoming(until=START + DAY)
        assert [(due.slug, due.slot - START) for due in foretold] == [
            ("poll", 45 * MINUTE),
            ("check", 6 * HOUR),
        ]
        await drive(engine, until=START + 7 * HOUR)
        assert dues(await engine.fires("check")) == [6 * HOUR]


async def test_what_was_disabled_owes_nothing_when_it_is_enabled_again(host: Any) -> None:
    host.write(trigger=at("0 * * * *"))
    host.write("poll", trigger=at("every 45 minutes"))
    async with host.engine() as engine:
        await drive(engine, until=START + HOUR + MINUTE)
        for slug, expression in (("check", "0 * * * *"), ("poll", "every 45 minutes")):
            host.write(slug, trigger=at(expression), enabled=False)
        await engine.reload()
        await drive(engine, until=START + 4 * HOUR + 30 * MINUTE)
        assert dues(await engine.fires("check")) == [HOUR]
        assert dues(await engine.fires("poll")) == [45 * MINUTE]
        assert await engine.upcoming(until=START + DAY) == []
        for slug, expression in (("check", "0 * * * *"), ("poll", "every 45 minutes")):
            host.write(slug, trigger=at(expression))
        await engine.reload()
        await drive(engine, until=START + 5 * HOUR)
        assert dues(await engine.fires("check")) == [HOUR, 5 * HOUR]
        assert dues(await engine.fires("poll")) == [45 * MINUTE, 4 * HOUR + 30 * MINUTE]


@pytest.mark.parametrize("between", [{"type": "manual"}, at("dayly at 13:00")])
async def test_what_had_no_schedule_for_a_while_owes_nothing_when_it_has_one_again(
    host: Any, between: dict[str, str]
) -> None:
    """Whoever writes the same schedule again has edited it, also over a restart."""
    schedules = {"check": at("daily at 13:00"), "poll": at("every 45 minutes")}
    for slug, trigger in schedules.items():
        host.write(slug, trigger=trigger)
    async with host.engine() as engine:
        await drive(engine, until=START + HOUR)
        for slug in schedules:
            host.write(slug, trigger=between)
        await engine.reload()
        await drive(engine, until=START + 28 * HOUR)
    restarted(host, after=timedelta(0))
    async with host.engine() as engine:
        for slug, trigger in schedules.items():
            host.write(slug, trigger=trigger)
        await engine.reload()
        await drive(engine, until=START + 28 * HOUR + MINUTE)
        assert await verdicts(engine) == [(HOUR, "ran", 0)]
        assert await verdicts(engine, "poll") == [
            (45 * MINUTE, "ran", 0),
            (28 * HOUR, "ran", 0),
        ]
        await drive(engine, until=START + 50 * HOUR)
        assert await verdicts(engine) == [(HOUR, "ran", 0), (49 * HOUR, "ran", 0)]


async def test_a_file_that_comes_back_resumes_where_it_was(host: Any) -> None:
    """Its marks stay, so its last slots are made up for in one run."""
    host.write(trigger=at("0 * * * *"))
    path = host.workspace / "automations" / "check.md"
    text = path.read_text(encoding="utf-8")
    async with host.engine() as engine:
        await drive(engine, until=START + HOUR)
        path.unlink()
        await host.look(2)
        await drive(engine, until=START + 3 * HOUR + MINUTE)
        assert dues(await engine.fires()) == [HOUR]
        path.write_text(text, encoding="utf-8")
        await engine.reload()
        await engine.settled()
        assert await verdicts(engine) == [(HOUR, "ran", 0), (3 * HOUR, "ran", 1)]


async def test_a_broken_file_keeps_its_schedule_so_that_somebody_hears_of_it(host: Any) -> None:
    """Others keep running, and the one that is broken ends as an aborted run with an intent."""
    host.write(trigger=at("0 * * * *"))
    host.write("sound", trigger=at("0 * * * *"))
    async with host.engine() as engine:
        host.file("automations/check.md", "---\nautomation:\n  name: 1\n---\n")
        with capture_logs() as logs:
            await engine.reload()
        assert [line["path"] for line in logs if line["event"] == "automation_broken"] == [
            "automations/check.md"
        ]
        assert [due.slug for due in await engine.upcoming(until=START + HOUR)] == ["check", "sound"]
        runs = await drive(engine, until=START + HOUR)
        assert {run.slug: run.state for run in runs} == {"check": "aborted", "sound": "succeeded"}
        (broken,) = [run for run in runs if run.slug == "check"]
        assert broken.failure is not None
        assert broken.failure.code == "automation-broken"
        assert broken.intent is not None
        assert (broken.intent.verdict, broken.intent.gate) == ("deliver", "run-failed")
        assert "its file is broken" in await engine.why("check", at=START + 30 * MINUTE)
    restarted(host, after=HOUR)
    async with host.engine() as engine:
        await engine.settled()
        runs = [run for run in await engine.runs() if run.started_at == host.clock.now()]
        assert {run.slug: run.state for run in runs} == {"check": "aborted", "sound": "succeeded"}


async def test_a_broken_file_that_was_never_seen_sound_has_no_schedule(host: Any) -> None:
    host.file("automations/check.md", "---\nautomation:\n  name: 1\n---\n")
    host.file("jobs/older.md", "---\ncron: 0 * * * *\nbrnch: main\n---\nLook.\n")
    with capture_logs() as logs:
        async with host.engine() as engine:
            await drive(engine, until=START + DAY)
            assert await engine.fires() == []
    broken = [line["path"] for line in logs if line["event"] == "automation_broken"]
    assert "automations/check.md" in broken


# ---- expressions that nobody can read


async def test_an_expression_outside_the_grammar_is_loud_and_an_event_once_per_change(
    host: Any,
) -> None:
    host.write(trigger=at("every blue moon"))
    with capture_logs() as logs:
        async with host.engine() as engine:
            for _ in range(2):
                await engine.reload()
            assert len(await host.events(engine, "automation_unschedulable")) == 1
            host.write(trigger=at("every green moon"))
            await engine.reload()
            host.write(trigger=at("every green moon"), enabled=False)
            await engine.reload()
            host.write(trigger=at("every green moon"))
            await engine.reload()
            events = await host.events(engine, "automation_unschedulable")
            assert await engine.fires() == []
            why = await engine.why("check", at=START)
    assert [event.data["expression"] for event in events] == [
        "every blue moon",
        "every green moon",
        "every green moon",
    ]
    assert all(event.data["reason"] for event in events)
    loud = [line for line in logs if line["event"] == "automation_unschedulable"]
    assert len(loud) == 5
    assert {line["log_level"] for line in loud} == {"error"}
    assert "its schedule cannot be read" in why


async def test_a_schedule_that_its_zone_never_brings_stops_nothing_and_is_said(host: Any) -> None:
    host.write("brief", trigger=at("daily at 13:30"))
    host.write("gap", trigger=at(GAP))
    with capture_logs() as logs:
        async with host.engine(timezone="Europe/Berlin") as engine:
            assert (await engine.status()).workspace.find("gap") is not None
            coming = await engine.upcoming(until=START + 2 * DAY)
            assert {due.slug for due in coming} == {"brief"}
            await host.look(2)
            (event,) = await host.events(engine, "automation_unschedulable")
            why = await engine.why("gap", at=START)
            host.write("gap", trigger=at(GAP), enabled=False)
            await host.look()
            host.write("gap", trigger=at("daily at 14:00"))
            await host.look()
            await host.clock.advance(DAY)
            assert {fire.slug for fire in await engine.fires()} == {"brief", "gap"}
            host.write("gap", trigger=at(GAP))
            await host.clock.advance(2 * DAY)
            assert len(await engine.fires("gap")) == 1
            assert (await engine.status()).state == "running"
    assert (event.slug, event.data["expression"]) == ("gap", GAP)
    assert "no slot in Europe/Berlin" in event.data["reason"]
    assert "its schedule has no moment in its zone" in why
    loud = [line for line in logs if line["event"] == "automation_unschedulable"]
    assert {line["log_level"] for line in loud} == {"error"}
    assert len(loud) > 2


# ---- the folder


async def test_a_vanished_folder_is_an_event_once_and_what_was_known_stays(host: Any) -> None:
    host.write(trigger=at("0 * * * *"))
    folder = host.workspace / "automations"
    away = host.workspace / "elsewhere"
    async with host.engine() as engine:
        folder.rename(away)
        for _ in range(3):
            with pytest.raises(WorkspaceError, match="automations-folder-missing"):
                await engine.reload()
        status = await engine.status()
        assert [automation.slug for automation in status.workspace.automations] == ["check"]
        assert [fault.code for fault in status.faults] == ["automations-folder-missing"]
        assert len(await host.events(engine, "workspace_error")) == 1
        away.rename(folder)
        await engine.reload()
        assert (await engine.status()).faults == ()
        runs = await drive(engine, until=START + HOUR)
        assert [run.state for run in runs] == ["succeeded"]


async def test_a_folder_that_vanishes_stops_only_what_lay_in_it(host: Any) -> None:
    """It is an event, and a fault for as long as it lasts; the automations run on and are edited.

    An empty folder says that the files are meant to be gone.
    """
    host.write(trigger=at("every 30 minutes"))
    job = host.file("jobs/job.md", "---\ncron: 0 * * * *\n---\nLook.\n")
    async with host.engine() as engine:
        pending = await engine.fire("job", after=DAY)
        job.unlink()
        job.parent.rmdir()
        with pytest.raises(WorkspaceError, match="automations-folder-missing"):
            await engine.reload()
        assert (await engine.status()).workspace.find("job") is not None
        assert [fault.code for fault in (await engine.status()).faults] == [
            "automations-folder-missing"
        ]
        host.write("later", trigger=at("every 30 minutes"))
        await host.clock.advance(HOUR + MINUTE)
        assert len(await host.events(engine, "workspace_error")) == 1
        assert [fault.code for fault in (await engine.status()).faults] == [
            "automations-folder-missing"
        ]
        runs = [(run.slug, run.state) for run in await engine.runs()]
        assert set(runs) == {
            ("check", "succeeded"),
            ("later", "succeeded"),
            ("job", "aborted"),  # never silent
        }
        job.parent.mkdir()
        await host.look(3)
        assert (await engine.status()).faults == ()
        (skipped,) = [fire for fire in await engine.fires() if fire.id == pending.id]
        assert (skipped.verdict, skipped.reason) == ("skipped", "removed")


async def test_the_folder_is_looked_at_by_itself(host: Any) -> None:
    async with host.engine() as engine:
        host.write(trigger=at("every 10 minutes"))
        await drive(engine, until=START + 5 * MINUTE)
        runs = await drive(engine, until=START + 16 * MINUTE)
        (host.workspace / "automations").rename(host.workspace / "elsewhere")
        await drive(engine, until=START + 20 * MINUTE)
        assert len(await host.events(engine, "workspace_error")) == 1
    assert [run.slug for run in runs] == ["check"]


async def test_two_looks_at_once_wait_for_each_other(host: Any) -> None:
    host.write(trigger=at("0 * * * *"))
    async with host.engine() as engine:
        for expression in ("5 * * * *", "10 * * * *"):
            host.write(trigger=at(expression))
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(engine.reload)
        (due,) = await engine.upcoming(until=START + HOUR)
        assert due.slot == START + 10 * MINUTE


async def test_a_look_that_was_cancelled_confuses_nobody(host: Any) -> None:
    """Whatever it had written by then, the next edit and the next slot go on from there."""
    host.write(trigger=at("0 * * * *"))
    async with host.engine() as engine:
        for number in range(1, 21):
            host.write(trigger=at(f"{number} * * * *"))
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def cancel(steps: int = number, scope: anyio.CancelScope = scope) -> None:
                        for _ in range(steps):
                            await anyio.lowlevel.checkpoint()
                        scope.cancel()

                    group.start_soon(cancel)
                    await engine.reload()
        await engine.reload()
        runs = await drive(engine, until=START + HOUR)
        assert [run.fire.due - START for run in runs] == [20 * MINUTE]


async def test_a_mark_that_moved_meanwhile_is_read_again(host: Any) -> None:
    """As after a call that was cancelled just when its transaction was written."""
    host.write(trigger=at("*/10 * * * *"))
    store = host.faulty()
    async with host.engine(store=store) as engine:
        for number in range(2):
            (mark,) = [m for m in await store.marks("schedule:") if m.key == "schedule:check"]
            await store.record(marks=(mark,))
            if number:
                host.write(trigger=at("5 * * * *"))
                await engine.reload()
            await drive(engine, until=host.clock.now() + 11 * MINUTE)
        assert dues(await engine.fires()) == [10 * MINUTE]
        (due,) = await engine.upcoming(until=START + 2 * HOUR - 50 * MINUTE)
        assert due.slot == START + HOUR + 5 * MINUTE


# ---- clocks that jump


@pytest.mark.parametrize("jump", [3 * HOUR, -3 * HOUR], ids=["forward", "back"])
async def test_a_jump_is_an_event_and_makes_no_slot_twice_and_no_burst(
    host: Any, jump: timedelta
) -> None:
    host.write(trigger=at("*/30 * * * *"))
    async with host.engine() as engine:
        await drive(engine, until=START + 4 * HOUR + MINUTE)
        before = await engine.fires(limit=1000)
        host.clock.jump(jump)
        with capture_logs() as logs:
            await host.clock.advance(2 * MINUTE)
        (event,) = await host.events(engine, "clock_jumped")
        assert event.data["seconds"] == jump.total_seconds()
        (line,) = [line for line in logs if line["event"] == "clock_jumped"]
        assert line["seconds"] == jump.total_seconds()
        assert datetime.fromisoformat(line["now"]) <= host.clock.now()
        after = await engine.fires(limit=1000)
        caught_up = len(after) - len(before)
        assert caught_up == (1 if jump > timedelta(0) else 0)
        await drive(engine, until=host.clock.now() + 5 * HOUR)
        fires = await engine.fires(limit=1000)
        assert len({fire.slot for fire in fires}) == len(fires)
        assert {fire.verdict for fire in fires} == {"ran"}


async def test_a_slot_that_met_an_edit_at_that_moment_is_dropped(host: Any) -> None:
    """Its file is gone for good when the store takes writes again: nothing is put in for it."""
    host.write(trigger=at("* * * * *"))
    store = host.faulty()
    full = StoreError(Problem(code="store-full", message="full", remedy="make room"))
    async with host.engine(store=store) as engine:
        store.faults["add_fires"] = [full] * 3
        await host.clock.advance(MINUTE)
        (host.workspace / "automations" / "check.md").unlink()
        await host.look(2)
        await host.clock.advance(10 * MINUTE)
        assert store.faults["add_fires"] != [full] * 3
        assert await engine.fires() == []


async def test_whoever_asks_is_not_kept_waiting_by_a_slot_that_the_store_does_not_take(
    host: Any,
) -> None:
    host.write(trigger=at("* * * * *"))
    store = host.faulty()
    full = StoreError(Problem(code="store-full", message="full", remedy="make room"))
    async with host.engine(store=store) as engine:
        store.faults["add_fires"] = [full] * 1000
        store.faults["record"] = [full] * 1000
        await host.clock.advance(MINUTE)
        with anyio.fail_after(20):
            with pytest.raises(StoreError):
                await engine.settled()
            host.write("edited", trigger=at("0 0 * * *"))
            with pytest.raises(StoreError):
                await engine.reload()
            with pytest.raises(StoreError):
                await engine.run("unknown")
        store.faults.clear()
        await host.clock.advance(2 * MINUTE)
        assert [run.slug for run in await engine.runs()][:1] == ["check"]


async def test_what_was_due_before_the_clock_was_set_back_does_not_wait_for_it(host: Any) -> None:
    host.write("busy")
    host.write()
    host.write("later")

    async def slow(turn: Any) -> str:
        await host.clock.sleep(10 * MINUTE)
        return "done"

    agent = ScriptedAgent({"busy/step-1": slow}, default="done")
    async with host.engine(agent=agent, settings={"max_concurrent_runs": 1}) as engine:
        await engine.fire("busy")
        await host.clock.advance(MINUTE)
        await engine.fire("check")
        await engine.fire("later", after=HOUR)
        await host.clock.advance(MINUTE)
        host.clock.jump(-3 * HOUR)
        await host.clock.advance(30 * MINUTE)
        assert {fire.slug: fire.verdict for fire in await engine.fires()} == {
            "busy": "ran",
            "check": "ran",
            "later": None,
        }


async def test_what_has_never_been_due_waits_although_the_clock_was_set_back(host: Any) -> None:
    """One that had been due goes first, however the two are ordered by the clock."""
    host.write()

    async def slow(turn: Any) -> str:
        await host.clock.sleep(20 * MINUTE)
        return "done"

    async with host.engine(agent=ScriptedAgent({"check/step-1": [slow, "two", "later"]})) as engine:
        first = await engine.fire("check")
        await host.clock.advance(MINUTE)
        second = await engine.fire("check")
        host.clock.jump(-HOUR)
        await host.clock.advance(MINUTE)
        later = await engine.fire("check", after=40 * MINUTE)
        await host.clock.advance(25 * MINUTE)
        assert {run.fire.id for run in await engine.runs()} == {first.id, second.id}
        await host.clock.advance(20 * MINUTE)
        (run,) = [run for run in await engine.runs() if run.fire.id == later.id]
        assert run.started_at >= later.due


async def test_rules_that_the_store_did_not_take_at_the_start_are_left_there_later(
    host: Any,
) -> None:
    host.write()
    store = host.faulty()
    full = StoreError(Problem(code="store-full", message="full", remedy="make room"))
    store.faults["take_over"] = [full]
    async with host.engine(store=store, timezone="Asia/Tokyo") as engine:
        assert await store.marks("engine:rules") == []
        await host.clock.advance(HOUR)
        (mark,) = await store.marks("engine:rules")
        assert mark.value["zones"]["automation"][0] == "Asia/Tokyo"
        async with Client(host.workspace) as client:
            assert (await client.status()).zones == (await engine.status()).zones


def test_marks_are_readable_text() -> None:
    """What a mark keeps is JSON: the store writes it as it is."""
    from zoneinfo import ZoneInfo

    from drumbeat import parse_schedule
    from drumbeat.runtime.schedule_marks import Standing

    declared = Standing(
        slug="check",
        schedule=parse_schedule("daily at 07:00"),
        zone=ZoneInfo("Europe/Berlin"),
        zone_name="Europe/Berlin",
    )
    assert json.loads(json.dumps(declared.first_mark(START))) == declared.first_mark(START)
    assert declared.first_mark(START)["zone"] == "Europe/Berlin"
