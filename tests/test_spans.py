"""A number says nothing of its unit: it is no duration and no instant, wherever one is passed."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from drumbeat import (
    AgentUnavailable,
    Client,
    Engine,
    InjectSpec,
    Interval,
    Scheduler,
    SessionPins,
    SystemClock,
    WebhookTrigger,
    check_webhook,
    lint_automation,
    next_fire,
    parse_schedule,
    run_inject,
)
from drumbeat.agents import CommandAgent
from drumbeat.imap import ImapSource, gmail
from drumbeat.testing import ManualClock, ScriptedAgent, check_agent, drive
from drumbeat.web import routes

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
NUMBER: Any = 60
"""What no type checker would let pass."""
TEXT = """---
automation:
  name: Pushes
  trigger: {type: manual}
  notify: always
  steps:
    - id: look
      prompt: Look.
---
"""
EVERY = parse_schedule("every 5 minutes")
DAILY = parse_schedule("daily at 07:00")


def scheduler(**given: Any) -> Scheduler:
    return Scheduler(zone=UTC, **given)


def webhook() -> object:
    return check_webhook(
        WebhookTrigger(route="pushes"),
        method="POST",
        headers={"Authorization": "Bearer correct-horse"},
        body=b"{}",
        secrets={"WEBHOOK_BEARER_TOKEN": "correct-horse"},
        now=NUMBER,
    )


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "unavailable": (
        partial(AgentUnavailable, "busy", retry_after=NUMBER),
        "retry_after must be a timedelta or None",
    ),
    "next-after": (
        partial(next_fire, EVERY, after=NUMBER, zone=UTC),
        "after must be an aware datetime",
    ),
    "next-finish": (
        partial(next_fire, EVERY, after=START, zone=UTC, last_finish=NUMBER),
        "last_finish must be an aware datetime",
    ),
    "next-every": (
        partial(next_fire, Interval(every=NUMBER), after=START, zone=UTC),
        "Interval.every must be a timedelta",
    ),
    "lint": (partial(lint_automation, TEXT, now=NUMBER), "now must be an aware datetime"),
    "webhook": (webhook, "now must be an aware datetime"),
    "catch-up": (partial(scheduler, catch_up=NUMBER), "catch_up must be a timedelta"),
    "max-sleep": (partial(scheduler, max_sleep=NUMBER), "max_sleep must be a timedelta"),
    "first-seen": (
        lambda: scheduler().set("a", DAILY, first_seen=NUMBER),
        "what a schedule counts from must be an aware datetime",
    ),
    "clock-start": (partial(ManualClock, NUMBER), "start must be an aware datetime"),
    "patience": (partial(ManualClock, START, patience=NUMBER), "patience must be a timedelta"),
    "jump": (lambda: ManualClock(START).jump(NUMBER), "by must be a timedelta"),
    "imap": (
        partial(ImapSource, "localhost", user="me", timeout=NUMBER),
        "timeout must be a timedelta",
    ),
    "gmail": (partial(gmail, "me", timeout=NUMBER), "timeout must be a timedelta"),
    "routes": (
        partial(routes, Client("."), body_timeout=NUMBER),
        "body_timeout must be a timedelta",
    ),
}


@pytest.mark.parametrize(("call", "said"), REFUSED.values(), ids=REFUSED)
def test_a_number_is_refused_where_it_is_given(call: Callable[[], object], said: str) -> None:
    with pytest.raises(TypeError, match=f"^{said}, not int$"):
        call()


def test_a_command_takes_no_number_either() -> None:
    with pytest.raises(ValueError, match="timeout must be a timedelta"):
        CommandAgent(["true"], timeout=NUMBER)


@pytest.mark.anyio
async def test_a_number_is_refused_by_what_is_awaited(tmp_path: Path) -> None:
    """And the text of it is what people read of a run whose agent passes one."""
    (tmp_path / "automations").mkdir()
    (tmp_path / "automations" / "pushes.md").write_text(TEXT)
    clock = ManualClock(START)

    async def ask(turn: Any) -> str:
        await turn.follow_ups.schedule("Look again.", after=NUMBER)
        return "done"

    agent = ScriptedAgent(default=ask)
    async with Engine(tmp_path, agent=agent, clock=clock, env={}, timezone="UTC") as engine:
        calls: dict[str, Callable[[], Any]] = {
            "after must be a timedelta": partial(engine.fire, "pushes", after=NUMBER),
            "wait must be a timedelta": partial(engine.reply, "a-run", "yes", wait=NUMBER),
            "until must be an aware datetime": partial(engine.upcoming, until=NUMBER),
            "at must be an aware datetime": partial(engine.why, "pushes", at=NUMBER),
            "by must be a timedelta": partial(clock.advance, NUMBER),
            "delay must be a timedelta": partial(clock.sleep, NUMBER),
            "now must be an aware datetime": partial(
                SessionPins(tmp_path / "pins").rotate, "pushes", reason="fresh", now=NUMBER
            ),
            "timeout must be a timedelta": partial(
                run_inject, InjectSpec(argv=("true",), label="x"), cwd=tmp_path, timeout=NUMBER
            ),
        }
        for said, call in calls.items():
            with pytest.raises(TypeError, match=f"^{said}, not int$"):
                await call()
        with pytest.raises(TypeError, match="until must be an aware datetime, not int"):
            await drive(engine, until=NUMBER)
        with pytest.raises(TypeError, match="delay must be a timedelta, not int"):
            await SystemClock().sleep(NUMBER)
        run = await engine.run("pushes")
    assert run.failure is not None
    assert (run.state, run.failure.code) == ("failed", "agent-raised")
    assert "TypeError: after must be a timedelta, not int" in run.failure.message
    assert run.intent is not None
    assert "after must be a timedelta, not int" in run.intent.text


def test_the_check_of_an_agent_finds_a_number_that_it_passes() -> None:
    async def ask(turn: Any) -> str:
        await turn.follow_ups.schedule("Look again.", after=NUMBER)
        return "done"

    with pytest.raises(BaseException, match="after must be a timedelta, not int"):
        anyio.run(check_agent, lambda: ScriptedAgent(default=ask))


def test_a_wait_that_a_provider_named_is_kept() -> None:
    wait = timedelta(seconds=12)
    assert AgentUnavailable("busy", retry_after=wait).retry_after == wait
    assert AgentUnavailable("busy").retry_after is None
