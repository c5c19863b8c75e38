"""What hosts write against the public names; only type-checked, never run.

`assert_type` says what a caller gets, so that a signature cannot widen or narrow unseen.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, assert_type
from zoneinfo import ZoneInfo

from drumbeat import (
    Agent,
    AgentError,
    AgentUnavailable,
    Automation,
    AutomationError,
    Client,
    Clock,
    ContextCeiling,
    ConversationNotFound,
    Cron,
    DailyAt,
    Decision,
    Deliverer,
    DeliveryIntent,
    DeliveryRefused,
    Draft,
    DrumbeatError,
    Due,
    Engine,
    Event,
    Finding,
    Fire,
    InjectOutcome,
    InjectSpec,
    Interval,
    MailBatch,
    MailMessage,
    MailSource,
    NotRun,
    Pin,
    Pins,
    Problem,
    Receipt,
    Reply,
    RunRecord,
    Scheduler,
    SessionBusy,
    SessionPins,
    Settings,
    Status,
    Store,
    SystemClock,
    Turn,
    Usage,
    Workspace,
    evaluate_notify,
    format_schedule,
    is_context_ceiling,
    lint_automation,
    load_workspace,
    next_fire,
    parse_schedule,
    run_inject,
    validate_automation_content,
)
from drumbeat.testing import (
    ManualClock,
    RecordingDeliverer,
    ScriptedAgent,
    check_agent,
    check_deliverer,
    check_mail_source,
    check_store,
    drive,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


# ---- what a host brings, by shape and by subclass


class ShapedAgent:
    async def take_turn(self, turn: Turn, /) -> Reply:
        if turn.is_new and not turn.handle:
            raise AgentUnavailable("later", retry_after=HOUR)
        if is_context_ceiling(turn.text):
            raise ContextCeiling("too long", usage=Usage(input_tokens=1))
        if turn.session_id not in turn.env:
            raise ConversationNotFound("unknown")
        await turn.follow_ups.schedule("look again", after=HOUR)
        return Reply(text=turn.prompt, usage=Usage(cost_usd=Decimal("0.01")), handle="h")


class ChildAgent(Agent):
    async def take_turn(self, turn: Turn, /) -> Reply:
        raise AgentError(turn.context, code="my-code")


class ShapedDeliverer:
    async def deliver(self, intent: DeliveryIntent, /) -> Receipt:
        if intent.attempt > 1:
            raise DeliveryRefused("twice")
        return Receipt(id=intent.id)


class SilentDeliverer(Deliverer):
    async def deliver(self, intent: DeliveryIntent, /) -> None:
        return None


class Mailbox:
    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        message = MailMessage(id="1", headers=(("From", address),))
        return MailBatch(messages=(message,) if after else (), mark="1")


class FrozenClock:
    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, delay: timedelta, /) -> None:
        return None


agents: Sequence[Agent] = (ShapedAgent(), ChildAgent(), ScriptedAgent())
deliverers: Sequence[Deliverer] = (ShapedDeliverer(), SilentDeliverer(), RecordingDeliverer())
source: MailSource = Mailbox()
clocks: Sequence[Clock] = (FrozenClock(), SystemClock(), ManualClock(NOON))
pins: Pins = SessionPins("state")


# ---- primitives


def primitives(text: str | bytes) -> None:
    path = PurePath("automations/a.md")
    assert_type(validate_automation_content(text, path=path), Automation)
    findings = lint_automation(text, path=path, zone=ZoneInfo("UTC"), now=NOON)
    assert_type(findings, list[Finding])
    assert_type(parse_schedule("every hour"), Interval | DailyAt | Cron)
    assert_type(format_schedule(Interval(every=HOUR)), str)
    assert_type(next_fire(Cron(expression="0 7 * * *"), after=NOON, zone=UTC), datetime)
    assert_type(evaluate_notify("auto", "text", judgment=None), Decision)
    try:
        validate_automation_content(text)
    except AutomationError as error:
        assert_type(error.problems, tuple[Problem, ...])
        assert_type(error.problem.path, PurePath | None)


async def inject(folder: Path) -> None:
    spec = InjectSpec(argv=("state",), label="state")
    assert_type(await run_inject(spec, cwd=folder, env={}, timeout=HOUR), InjectOutcome)
    assert_type(await load_workspace(folder), Workspace)


async def ticking() -> None:
    async with Scheduler(zone=UTC, clock=SystemClock(), catch_up=HOUR) as scheduler:
        scheduler.set("a", Interval(every=HOUR), first_seen=NOON)
        scheduler.finished("a", NOON)
        async for due in scheduler:
            assert_type(due, Due)
            scheduler.remove(due.slug)


async def pinned() -> None:
    assert_type(await pins.get("a"), Pin | None)
    assert_type(await pins.all(), dict[str, Pin])
    await pins.rotate("a", reason="operator", note="a person asked", id="1")


# ---- engines and clients


def engines(store: Store) -> Engine:
    return Engine(
        Path("workspace"),
        agent=ShapedAgent(),
        deliverer=ShapedDeliverer(),
        data_dir="state",
        timezone="Europe/Berlin",
        settings=Settings(max_concurrent_runs=1, turn_timeout=None),
        secrets={"AGENT_API_SECRET": "x"},
        env={"PATH": "/usr/bin"},
        skills=[Path("skills"), "more"],
        clock=FrozenClock(),
        store=store,
        pins=pins,
    )


async def life(engine: Engine) -> None:
    async with engine as entered:
        assert_type(entered, Engine)
        assert_type(await engine.run("a"), RunRecord)
        assert_type(await engine.reply("message-1", "Go on."), Reply)
        assert_type(await engine.reply("message-1", "Go on.", "deep", wait=HOUR), Reply)
        assert_type(await engine.ask("What ran?", "deep"), Reply)
        assert_type(await engine.draft_job("look on Mondays", dry_run=True), Draft)
        assert_type(await engine.follow_up("token", "again", after=HOUR, slug="a"), Fire)
        assert_type(await engine.reload(), Workspace)
        assert_type(await engine.status(), Status)
        await engine.settled()
        await engine.drain("done")
        await engine.wait()


async def beside(client: Client) -> None:
    async with client as entered:
        assert_type(entered, Client)
        assert_type(await client.fire("a", after=HOUR, slot="s", payload=b"{}"), Fire)
        assert_type(await client.runs("a", limit=5), list[RunRecord])
        assert_type(await client.find_run("target"), RunRecord)
        assert_type(await client.fires(), list[Fire])
        assert_type(await client.intents("pending"), list[DeliveryIntent])
        await client.acknowledge("id", Receipt(id="x"))
        await client.pause("slug", "holiday")
        await client.resume("slug")
        await client.cancel("run", "wrong branch")
        await client.rotate("slug", "stale")
        assert_type((await client.status()).paused, Mapping[str, str])
        assert_type(await client.upcoming(until=NOON), list[Due])
        assert_type(await client.sessions(), dict[str, Pin])
        assert_type(await client.why("a", at=NOON), str)
        assert_type(await client.sweep(), list[str])
        assert_type(client.events(after=1, follow=False), AsyncIterator[Event])


async def caught(engine: Engine) -> None:
    try:
        await engine.run("a")
    except NotRun as error:
        assert_type(error.fire, Fire)
    try:
        await engine.reply("message-1", "Go on.")
    except SessionBusy as error:
        assert_type(error.problem, Problem)
    except (LookupError, DrumbeatError):
        raise


def seen(run: RunRecord) -> str:
    assert_type(run.handle, str | None)
    if run.intent is None:
        return run.state
    assert_type(run.usage, Usage)
    assert_type(run.failure, Problem | None)
    return f"{run.intent.verdict} {run.intent.gate}: {run.intent.reason}"


# ---- the kit


async def kit(engine: Engine, store: Callable[[], Store]) -> None:
    async def think(turn: Turn) -> str:
        return turn.slug

    thinking: Callable[[Turn], Awaitable[str]] = think
    script: Mapping[str, Any] = {"judgment": ["a", AgentError("b")], "a/look": thinking}
    agent = ScriptedAgent(script, default=lambda turn: Reply(text=turn.prompt))
    assert_type(agent.turns, list[Turn])
    assert_type(RecordingDeliverer().intents, list[DeliveryIntent])
    await ManualClock(NOON).advance(HOUR)
    assert_type(await drive(engine, until=NOON), list[RunRecord])
    await check_agent(ShapedAgent)
    await check_deliverer(ShapedDeliverer)
    await check_mail_source(Mailbox)
    await check_store(store)
