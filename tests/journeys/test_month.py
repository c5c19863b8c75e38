"""A month of schedules on a driven clock: every slot, verdict and intent, exactly once."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from drumbeat import Engine, Fire, Reply, RunRecord, Turn
from drumbeat.testing import ManualClock, RecordingDeliverer, ScriptedAgent, drive

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# A month is thousands of transactions on either backend: each of the two long journeys takes one.
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
on_trio = pytest.mark.parametrize("anyio_backend", ["trio"])

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 3, 1, tzinfo=UTC)
CHANGE = datetime(2026, 3, 29, 1, tzinfo=UTC)
MONTH = timedelta(days=30)

POLL = """
name: Poll
trigger: {type: schedule, expression: every 45 minutes}
conversation: daily
notify: auto
steps:
  - id: look
    label: Look
    prompt: Look at the inbox.
"""
BRIEF = """
name: Brief
trigger: {type: schedule, expression: daily at 07:00}
conversation: fresh
notify: always
steps:
  - id: write
    prompt: Write the brief.
"""


class Worker:
    """An agent whose turns take 1 to 13 minutes, by how many the automation has had."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.turns: Counter[str] = Counter()

    async def take_turn(self, turn: Turn, /) -> Reply:
        self.turns[turn.slug] += 1
        await self.clock.sleep(timedelta(minutes=1 + self.turns[turn.slug] * 7 % 13))
        return Reply(text="NOTHING_TO_REPORT" if turn.origin == "judgment" else "done")


class Host:
    """A host that can be stopped and started on one data folder."""

    def __init__(self, workspace: Path, start: datetime = START) -> None:
        self.workspace = workspace
        self.clock = ManualClock(start)
        self.agent = Worker(self.clock)
        self.deliverer = RecordingDeliverer()

    def engine(self) -> Engine:
        return Engine(
            self.workspace,
            agent=self.agent,
            deliverer=self.deliverer,
            timezone="Europe/Berlin",
            clock=self.clock,
            env={},
        )


def local_day(instant: datetime) -> date:
    return instant.astimezone(BERLIN).date()


def check_everything_is_settled(fires: list[Fire], runs: list[RunRecord]) -> None:
    """Every fire has one verdict and every run one intent, and the two name each other."""
    assert all(fire.verdict for fire in fires)
    assert all(run.intent is not None and run.intent.reason for run in runs)
    assert max(Counter((fire.slug, fire.cause, fire.slot) for fire in fires).values()) == 1
    assert max(Counter(run.intent.id for run in runs if run.intent).values()) == 1
    ran = {fire.id for fire in fires if fire.verdict == "ran"}
    assert ran == {run.fire.id for run in runs}


async def month(
    host: Host, *, length: timedelta = MONTH, stops: tuple[timedelta, ...] = ()
) -> tuple[list[Fire], list[RunRecord]]:
    """Drive a month, leaving and entering the engine at each of `stops`."""
    for until in (*stops, length):
        async with host.engine() as engine:
            await drive(engine, until=START + until)
            fires = await engine.fires(limit=10_000)
            runs = await engine.runs(limit=10_000)
            assert await engine.sweep() == []
    return fires[::-1], runs[::-1]


@on_asyncio
@pytest.mark.long
async def test_a_month_is_complete(workspace: Path, write: Callable[..., None]) -> None:
    """Thirty days with a change of the clocks: no slot is lost, doubled or moved."""
    write("poll", POLL)
    write("brief", BRIEF)
    host = Host(workspace)
    fires, runs = await month(host)
    check_everything_is_settled(fires, runs)

    briefs = [fire for fire in fires if fire.slug == "brief"]
    expected = [
        datetime(2026, 3, day, 5 if day >= CHANGE.day else 6, tzinfo=UTC) for day in range(1, 31)
    ]
    assert [fire.due for fire in briefs] == expected
    assert {fire.due.astimezone(BERLIN).hour for fire in briefs} == {7}

    polls = [run for run in runs if run.slug == "poll"]
    assert polls[0].fire.due == START + timedelta(minutes=45)
    for before, after in pairwise(polls):
        assert before.finished_at is not None
        assert after.fire.due == before.finished_at + timedelta(minutes=45)
    assert len({run.finished_at - run.started_at for run in polls if run.finished_at}) > 5
    assert START + MONTH - polls[-1].fire.due < timedelta(minutes=45 + 13)
    assert [run.fire.id for run in polls] == [fire.id for fire in fires if fire.slug == "poll"]
    assert {fire.verdict for fire in fires} == {"ran"}

    days: dict[str, set[date]] = {}
    for run in polls:
        assert run.session_id is not None
        days.setdefault(run.session_id, set()).add(local_day(run.started_at))
    assert all(len(seen) == 1 for seen in days.values())
    assert len(days) == len({local_day(run.started_at) for run in polls})
    assert Counter(run.rotation for run in polls)["daily-boundary"] == len(days) - 1
    assert len({run.session_id for run in runs if run.slug == "brief"}) == len(briefs)

    assert {run.intent.gate for run in polls if run.intent} == {"nothing-to-report"}
    assert [intent.slug for intent in host.deliverer.intents] == ["brief"] * len(briefs)
    assert [intent.attempt for intent in host.deliverer.intents] == [1] * len(briefs)
    assert [intent.id for intent in host.deliverer.intents] == [
        run.intent.id for run in runs if run.slug == "brief" and run.intent
    ]


@on_trio
@pytest.mark.long
async def test_a_restart_changes_nothing(
    tmp_path: Path, write: Callable[..., None], workspace: Path
) -> None:
    """With the engine left and entered between runs, the days are the same days."""
    write("poll", POLL)
    write("brief", BRIEF)
    length = timedelta(days=8)
    whole, parts = Host(workspace), Host(workspace)
    fires, runs = await month(whole, length=length)
    (workspace / ".drumbeat").rename(tmp_path / "first")
    quiet = [
        run.finished_at - START + timedelta(minutes=20)
        for run in runs
        if run.slug == "poll" and run.finished_at
    ]
    stops = tuple(quiet[number] for number in (3, 50, 51, 130))
    again_fires, again_runs = await month(parts, length=length, stops=stops)
    assert sorted((fire.slug, fire.slot, fire.verdict) for fire in again_fires) == sorted(
        (fire.slug, fire.slot, fire.verdict) for fire in fires
    )

    def facts(records: list[RunRecord]) -> list[tuple[object, ...]]:
        return sorted(
            (run.started_at, run.slug, run.finished_at, str(run.rotation), len(run.turns))
            for run in records
        )

    assert facts(again_runs) == facts(runs)


@pytest.mark.long
async def test_a_restart_in_the_night_of_the_change_changes_nothing(
    workspace: Path, write: Callable[..., None]
) -> None:
    """Left before the gap and entered behind it, the engine goes on as if it had stayed."""
    write("poll", POLL)
    write("brief", BRIEF)

    async def nights(host: Host, *stops: datetime) -> list[tuple[object, ...]]:
        for until in (*stops, CHANGE + timedelta(days=2)):
            async with host.engine() as engine:
                await drive(engine, until=until)
                fires = await engine.fires(limit=10_000)
                runs = await engine.runs(limit=10_000)
                assert await engine.sweep() == []
        check_everything_is_settled(fires, runs)
        return sorted(
            (run.slug, run.fire.slot, run.started_at, run.finished_at, str(run.rotation))
            for run in runs
        )

    start = CHANGE - timedelta(days=2)
    whole = Host(workspace, start)
    expected = await nights(whole)
    (workspace / ".drumbeat").rename(workspace.parent / "first")
    ends = [end for slug, _, _, end, _ in expected if slug == "poll" and isinstance(end, datetime)]
    quiet = [
        max(end for end in ends if end <= CHANGE) + timedelta(minutes=5),
        min(end for end in ends if end >= CHANGE) + timedelta(minutes=5),
    ]
    assert await nights(Host(workspace, start), *quiet) == expected


async def test_editing_a_prompt_rotates_and_a_label_does_not(
    workspace: Path, write: Callable[..., None]
) -> None:
    """The conversation goes on under another label and ends with another prompt."""
    write("poll", POLL.replace("conversation: daily", "conversation: continuous"))
    host = Host(workspace)
    host.agent = ScriptedAgent(default="done")  # type: ignore[assignment]
    async with host.engine() as engine:
        (first, *_) = await drive(engine, until=START + timedelta(minutes=50))
        write(
            "poll",
            POLL.replace("conversation: daily", "conversation: continuous").replace(
                "label: Look", "label: Peek"
            ),
        )
        (second, *_) = await drive(engine, until=START + timedelta(minutes=100))
        write(
            "poll",
            POLL.replace("conversation: daily", "conversation: continuous").replace(
                "the inbox", "the outbox"
            ),
        )
        (third, *_) = await drive(engine, until=START + timedelta(minutes=150))
    assert (second.session_id, second.rotation) == (first.session_id, None)
    assert third.session_id != first.session_id
    assert third.rotation == "steps-changed"


async def test_driving_ends_while_a_turn_sleeps_on(
    workspace: Path, write: Callable[..., None]
) -> None:
    """A run that goes on beyond the span is returned by the drive in which it ends."""
    write("brief", BRIEF)
    host = Host(workspace, START + timedelta(hours=5, minutes=59))
    async with host.engine() as engine:
        assert await drive(engine, until=START + timedelta(hours=6, minutes=1)) == []
        (going,) = (await engine.status()).running
        (done,) = await drive(engine, until=START + timedelta(hours=7))
    assert (going.run_id, done.state) == (done.run_id, "succeeded")


@pytest.mark.parametrize(
    ("away", "verdicts", "folded"),
    [
        (timedelta(days=4, hours=1), ["ran"], 4),
        (timedelta(days=4, hours=30), ["ran"], 5),
    ],
)
async def test_downtime_folds_into_one_catch_up_run(
    workspace: Path, write: Callable[..., None], away: timedelta, verdicts: list[str], folded: int
) -> None:
    """What was missed while nothing ran is one run that says how many slots it stands for."""
    write("brief", BRIEF)
    host = Host(workspace, START + timedelta(hours=5, minutes=30))
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now() + timedelta(hours=1))
    host.clock = ManualClock(host.clock.now() + away)
    host.agent = Worker(host.clock)
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now() + timedelta(minutes=30))
        _, *later = (await engine.fires("brief"))[::-1]
        runs = await engine.runs("brief")
    assert [fire.verdict for fire in later] == verdicts
    assert later[0].folded_slots == folded - 1
    assert len(runs) == 2


async def test_a_moment_missed_too_long_ago_is_a_verdict(
    workspace: Path, write: Callable[..., None]
) -> None:
    """With the newest missed slot older than `catch_up`, nothing runs and the record says so."""
    write(
        "weekly",
        BRIEF.replace("daily at 07:00", '"0 7 * * 1"').replace("Brief", "Weekly"),
    )
    host = Host(workspace)
    async with host.engine() as engine:
        await drive(engine, until=START + timedelta(minutes=1))
    host.clock = ManualClock(START + timedelta(days=12))
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now() + timedelta(minutes=1))
        (fire,) = await engine.fires("weekly")
        assert await engine.runs("weekly") == []
        assert fire.verdict == "missed"
        assert fire.folded_slots == 1
        assert "late" in fire.reason
        why = await engine.why("weekly", at=fire.due)
    assert "was missed" in why
    assert fire.reason in why
