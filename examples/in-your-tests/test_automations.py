"""What a team tests of its own automations: the files, and a week of their schedule."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from drumbeat import Engine, Turn, lint_automation, validate_automation_content
from drumbeat.testing import ManualClock, RecordingDeliverer, ScriptedAgent, drive

WORKSPACE = Path(__file__).parent / "workspace"
FILES = sorted((WORKSPACE / "automations").glob("*.md"))
ZONE = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2026, 3, 23, tzinfo=UTC)  # the week in which Europe's clocks go forward


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio."""
    return "asyncio"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_keeps_the_contract(path: Path) -> None:
    """A file that does not load shows all of its problems."""
    assert validate_automation_content(path.read_bytes(), path=path).slug == path.stem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_has_no_findings(path: Path) -> None:
    """What lint would tell the author has been heeded."""
    assert lint_automation(path.read_bytes(), path=path, zone=ZONE, now=MONDAY) == []


@pytest.mark.anyio
async def test_a_week_of_schedule(tmp_path: Path) -> None:
    """In a week everything runs when it should, and people hear of it only when they need to."""
    clock = ManualClock(MONDAY)

    def judge(turn: Turn) -> str:
        # In this week the queue needs somebody on Wednesday only.
        return "Ticket 7 waits." if clock.now().weekday() == 2 else "NOTHING_TO_REPORT"

    agent = ScriptedAgent(
        {"standup-digest/digest": "Five lines.", "queue-watch/look": "Seen.", "judgment": judge},
        default="The report.",
    )
    deliverer = RecordingDeliverer()
    engine = Engine(
        WORKSPACE,
        agent=agent,
        deliverer=deliverer,
        data_dir=tmp_path,
        timezone=ZONE,
        clock=clock,
    )
    async with engine:
        records = await drive(engine, until=MONDAY + timedelta(days=7))
        assert await engine.sweep() == []  # no run without an intent

    assert {record.state for record in records} == {"succeeded"}
    assert Counter(record.slug for record in records) == {
        "standup-digest": 5,
        "queue-watch": 7,
        "weekly-report": 1,
    }
    assert Counter(intent.slug for intent in deliverer.intents) == {
        "standup-digest": 5,
        "queue-watch": 1,
        "weekly-report": 1,
    }
    sunday = max(record.fire.due for record in records if record.slug == "queue-watch")
    assert sunday == datetime(2026, 3, 29, 4, 30, tzinfo=UTC)  # 06:30, two hours ahead by then
