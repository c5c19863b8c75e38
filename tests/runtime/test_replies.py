"""Answers of people: where they go, who waits for whom, and what is left of them (spec, 7)."""

import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from drumbeat import (
    AgentError,
    AgentUnavailable,
    ClaimLost,
    ContextCeiling,
    ConversationNotFound,
    EngineBusy,
    FollowUpRefused,
    NotFound,
    Problem,
    Receipt,
    Reply,
    RunRecord,
    SessionBusy,
    SessionPins,
    StoreError,
    Turn,
    Usage,
)
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
FULL = StoreError(Problem(code="store-full", message="full", remedy="make room"))


class Caller:
    """Somebody who asks for a reply in a task of its own, and what came of it."""

    def __init__(self, ask: Callable[[], Awaitable[Reply]]) -> None:
        self.ask = ask
        self.scope = anyio.CancelScope()
        self.reply: Reply | None = None
        self.error: Exception | None = None
        self.over = anyio.Event()

    async def run(self) -> None:
        try:
            with self.scope:
                self.reply = await self.ask()
        except Exception as error:  # noqa: BLE001  the test looks at it
            self.error = error
        finally:
            self.over.set()


def slow(
    host: Any, *, reply: timedelta = 40 * MINUTE, other: timedelta = timedelta(0)
) -> ScriptedAgent:
    """An agent whose replies take 40 minutes, and whose other turns take `other`."""

    async def say(turn: Turn) -> str:
        await host.clock.sleep(reply if turn.origin == "reply" else other)
        return f"{turn.origin} said"

    return ScriptedAgent(default=say)


async def completed(host: Any, engine: Any) -> list[dict[str, Any]]:
    """The data of the events of replies."""
    return [event.data for event in await host.events(engine, "reply_completed")]


def replies(agent: ScriptedAgent) -> list[Turn]:
    return [turn for turn in agent.turns if turn.origin == "reply"]


# ---- where it goes


async def test_an_answer_is_one_more_turn_in_the_conversation(host: Any) -> None:
    """By run, session and receipt id; the agent gets the text and nothing else."""
    host.file("guidance/HOW.md", "Look twice.\n")
    host.file("agent-config.yaml", "profiles:\n  deep:\n    debug:\n      level: high\n")
    host.write(requires=["guidance/HOW.md"], agent_config={"provider": {"module": "openai"}})
    host.agent = ScriptedAgent({"reply": Reply(text="Gladly.", usage=Usage(output_tokens=5))})
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.settled()
        receipt = (await engine.find_run(run.run_id)).receipt
        for target in (run.run_id, run.session_id, receipt.id):
            reply = await engine.reply(target, " Do *that* again?\n", "deep")
            assert reply == Reply(text="Gladly.", usage=Usage(output_tokens=5))
        after = await engine.find_run(run.run_id)
        events = await completed(host, engine)
        kinds = [event.kind async for event in engine.events(follow=False)]
    step, *turns = host.agent.turns
    for number, turn in enumerate(turns, start=2):
        assert (turn.origin, turn.prompt, turn.context) == ("reply", " Do *that* again?\n", "")
        assert (turn.session_id, turn.is_new, turn.attempt) == (run.session_id, False, 1)
        assert turn.turn_id == f"{run.run_id}-{number:02d}"
        assert (turn.slug, turn.run_id, turn.step_id, turn.label) == (
            "check",
            run.run_id,
            None,
            None,
        )
        assert (turn.cwd, turn.memory_dir) == (step.cwd, step.memory_dir)
        own = {"DRUMBEAT_RUN_TOKEN": turn.env["DRUMBEAT_RUN_TOKEN"]}
        assert turn.env == {**step.env, **own}
        assert turn.requirements == step.requirements
        assert turn.automation == step.automation
        assert turn.config == {**step.config, "debug": {"level": "high"}}
        assert turn.timeout == HOUR
    assert len(turns) == 3
    assert [turn.origin for turn in after.turns] == ["step", "reply", "reply", "reply"]
    assert after.usage == run.usage + Usage(output_tokens=15)
    assert (after.intent.id, after.intent.text) == (run.intent.id, run.intent.text)
    assert after.finished_at == run.finished_at
    assert [event["state"] for event in events] == ["succeeded"] * 3
    assert events[0]["turn_id"] == turns[0].turn_id
    assert kinds.count("delivery_intent") == kinds.count("turn_completed") == 1


@pytest.mark.parametrize("conversation", ["fresh", "daily", "continuous"])
async def test_an_answer_finds_its_conversation_after_it_was_given_up(
    host: Any, conversation: str
) -> None:
    """And leaves the one that is pinned alone."""
    host.write(conversation=conversation)
    async with host.engine() as engine:
        first = await engine.run("check")
        if conversation == "continuous":
            host.write(steps=["Look elsewhere."])
        await host.clock.advance(timedelta(days=1))
        second = await engine.run("check")
        pins = await engine.sessions()
        await engine.reply(first.run_id, "What did you mean?")
        await engine.reply(second.run_id, "And here?")
        assert await engine.sessions() == pins
    async with host.engine() as engine:
        await engine.reply(first.run_id, "And now, after a restart?")
        assert await engine.sessions() == pins
        third = await engine.run("check")
    asked = [(turn.session_id, turn.prompt) for turn in replies(host.agent)]
    assert first.session_id != second.session_id == pins["check"].session_id
    assert asked == [
        (first.session_id, "What did you mean?"),
        (second.session_id, "And here?"),
        (first.session_id, "And now, after a restart?"),
    ]
    assert (third.session_id == second.session_id) == (conversation != "fresh")


async def test_a_session_names_the_latest_run_in_it(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        first = await engine.run("check")
        second = await engine.run("check")
        await engine.reply(first.session_id, "Go on.")
        assert len((await engine.find_run(second.run_id)).turns) == 2
        assert len((await engine.find_run(first.run_id)).turns) == 1
        await engine.reply(first.run_id, "Go on.")
        assert len((await engine.find_run(first.run_id)).turns) == 2


async def test_what_no_run_has_is_not_found(host: Any) -> None:
    host.write()
    host.write("broken")
    host.agent = ScriptedAgent({"broken/step-1": AgentError("no")})
    async with host.engine() as engine:
        failed = await engine.run("broken")
        for target, code in (
            ("message-17", "run-unknown"),
            (failed.run_id, "run-without-conversation"),
        ):
            with pytest.raises(NotFound) as caught:
                await engine.reply(target, "Hello?")
            assert caught.value.problem.code == code
        assert replies(host.agent) == []
        assert await completed(host, engine) == []


async def test_a_receipt_of_several_conversations_is_no_answer_to_any(host: Any) -> None:
    """One of a single conversation is, however many messages have it."""
    host.write("one")
    host.write("two")

    class Thread:
        async def deliver(self, intent: Any, /) -> Receipt:
            return Receipt(id="thread-1")

    async with host.engine(deliverer=Thread()) as engine:
        await engine.run("one")
        await engine.run("one")
        await engine.settled()
        await engine.reply("thread-1", "All of it?")
        await engine.run("two")
        await engine.settled()
        with pytest.raises(NotFound) as caught:
            await engine.reply("thread-1", "Which?")
    assert caught.value.problem.code == "reply-ambiguous"
    assert "3 runs" in caught.value.problem.message
    assert [turn.slug for turn in replies(host.agent)] == ["one"]


@pytest.mark.parametrize("text", ["", " \n"])
async def test_a_blank_answer_and_a_negative_wait_are_refused(host: Any, text: str) -> None:
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        with pytest.raises(ValueError, match="blank"):
            await engine.reply(run.run_id, text)
        with pytest.raises(ValueError, match="negative"):
            await engine.reply(run.run_id, "Hello", wait=-MINUTE)
    assert replies(host.agent) == []


async def test_an_unknown_profile_is_refused_before_anything_is_sent(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        with pytest.raises(NotFound) as caught:
            await engine.reply(run.run_id, "Hello", "deep")
        await engine.reply(run.run_id, "Hello")
        assert len((await engine.find_run(run.run_id)).turns) == 2
    assert caught.value.problem.code == "profile-unknown"


async def test_a_profile_that_goes_while_waiting_sends_nothing(host: Any) -> None:
    """The conversation is free again."""
    config = host.file("agent-config.yaml", "profiles:\n  deep:\n    debug:\n      level: high\n")
    host.write()
    host.agent = slow(host)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await host.fire(engine)
        first = Caller(lambda: engine.reply(run.run_id, "One"))
        group.start_soon(first.run)
        await host.clock.advance(MINUTE)
        second = Caller(lambda: engine.reply(run.run_id, "Two", "deep", wait=2 * HOUR))
        group.start_soon(second.run)
        await host.clock.advance(MINUTE)
        config.write_text("profiles:\n  other:\n    debug:\n      level: high\n")
        await host.clock.advance(HOUR)
        assert isinstance(second.error, NotFound)
        third = Caller(lambda: engine.reply(run.run_id, "Three"))
        group.start_soon(third.run)
        await host.clock.advance(2 * HOUR)
        assert third.reply is not None
    assert [turn.prompt for turn in replies(host.agent)] == ["One", "Three"]


@pytest.mark.parametrize("what", ["gone", "broken", "disabled"])
async def test_an_answer_needs_no_file_that_loads(host: Any, what: str) -> None:
    """A person asks about what was; whether it runs again is another matter."""
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        path = host.workspace / "automations" / "check.md"
        if what == "gone":
            path.unlink()
            await host.look(2)
        elif what == "broken":
            path.write_text("no front matter")
            await engine.reload()
        else:
            host.write(enabled=False)
        await engine.reply(run.run_id, "What was that?")
    (turn,) = replies(host.agent)
    assert (turn.slug, turn.session_id) == ("check", run.session_id)
    assert (turn.automation is None) == (what == "gone")


async def test_a_requirement_that_is_gone_is_left_out(host: Any) -> None:
    guide = host.file("guidance/HOW.md", "Look twice.\n")
    host.write(requires=["guidance/HOW.md"])
    async with host.engine() as engine:
        run = await engine.run("check")
        guide.unlink()
        await engine.reply(run.run_id, "What was that?")
    assert [len(turn.requirements) for turn in host.agent.turns] == [1, 0]


async def test_a_job_is_answered_in_its_own_folder_within_its_own_time(host: Any) -> None:
    """The folder is there again if it was cleared."""
    host.file("jobs/check.md", "---\ntimeoutSeconds: 90\n---\nLook around.\n")
    async with host.engine() as engine:
        run = await engine.run("check")
        work = host.folder(run) / "work"
        work.rmdir()

        def look(turn: Turn) -> str:
            assert turn.cwd.is_dir()
            return "yes"

        host.agent = engine._life.services.agent = ScriptedAgent(default=look)
        await engine.reply(run.run_id, "Where are you?")
    (turn,) = host.agent.turns
    assert (turn.cwd, turn.timeout) == (work, timedelta(seconds=90))
    assert turn.memory_dir == host.data / "memory" / "jobs" / "check"


async def test_an_answer_to_a_job_whose_file_is_gone_stands_under_its_rules(host: Any) -> None:
    """Who may write to a mailbox is bound by them; that the file was removed frees nobody."""
    host.file("SYSTEM.md", "Show nobody a password.\n")
    host.file("skills/dig/SKILL.md", "---\nname: dig\ndescription: Dig.\n---\nDig.\n")
    path = host.file("jobs/check.md", "---\n---\nLook around.\n")
    host.file("jobs/other.md", "---\n---\nLook around.\n")
    async with host.engine() as engine:
        run = await engine.run("check")
        path.unlink()
        await host.look(2)
        await engine.reply(run.run_id, "What was that?")
    async with host.engine() as engine:
        await engine.reply(run.run_id, "And after a restart?")
    job, *turns = host.agent.turns
    assert job.system_prompt == "Show nobody a password.\n"
    for turn in turns:
        assert turn.automation is None
        assert (turn.system_prompt, turn.cwd) == (job.system_prompt, job.cwd)
        assert (turn.memory_dir, turn.skills) == (job.memory_dir, job.skills)
        assert turn.skills[0].is_relative_to(job.cwd)


async def test_a_run_says_of_which_kind_of_file_it_was(host: Any) -> None:
    """Unless there was none that loaded, and so nothing that could be answered."""
    host.write()
    host.file("jobs/work.md", "---\n---\nLook around.\n")
    host.file("jobs/broken.md", "---\nno: key\n---\nLook around.\n")
    async with host.engine() as engine:
        kinds = [(await engine.run(slug)).kind for slug in ("check", "work", "broken")]
    assert kinds == ["automation", "job", None]


async def test_a_run_of_which_no_kind_is_on_record_is_answered_by_its_file(host: Any) -> None:
    path = host.file("jobs/check.md", "---\n---\nLook around.\n")
    host.file("jobs/other.md", "---\n---\nLook around.\n")
    async with host.engine() as engine:
        run = await engine.run("check")
        claim = await engine._life.services.store.hold(run.session_id, run_id="a-test")
        await engine._life.services.store.record(claim=claim, run=attrs.evolve(run, kind=None))
        await engine._life.services.store.finish(claim, None)
        await engine.reply(run.run_id, "Where are you?")
        path.unlink()
        await host.look(2)
        await engine.reply(run.run_id, "And now?")
    job, *turns = host.agent.turns
    assert [turn.cwd for turn in turns] == [job.cwd, host.workspace]


@pytest.mark.parametrize("where", ["behind the record", "in its transaction"])
async def test_an_answer_that_is_cancelled_as_it_begins_is_on_record_with_its_end(
    host: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write()
    reached = anyio.Event()

    async def wait() -> None:
        if not reached.is_set():
            reached.set()
            await anyio.sleep_forever()

    async with host.engine() as engine:
        run = await engine.run("check")
        services = engine._life.services
        name = "prepare" if where == "behind the record" else "record"
        part = services.artifacts if name == "prepare" else services.store
        real = getattr(part, name)

        async def slow(*given: Any, **named: Any) -> None:
            await real(*given, **named)
            await wait()

        monkeypatch.setattr(part, name, slow, raising=False)
        async with anyio.create_task_group() as group:
            group.start_soon(engine.reply, run.run_id, "And?")
            await reached.wait()
            group.cancel_scope.cancel()
        record = await engine.find_run(run.run_id)
        (event,) = await completed(host, engine)
        assert (event["state"], event["attempts"]) == ("cancelled", 0)
        assert [(turn.origin, turn.reply is None) for turn in record.turns] == [
            ("step", False),
            ("reply", True),
        ]
        assert (await engine.reply(run.run_id, "Once more?")).text == "done"
    result = json.loads((host.folder(run) / "result.json").read_text())
    assert [turn["origin"] for turn in result["turns"]] == ["step", "reply", "reply"]


async def test_the_folder_of_the_run_tells_of_the_answer(host: Any) -> None:
    """Recreated if it was cleared; without secrets."""
    import shutil

    host.write()
    host.agent = ScriptedAgent({"reply": ["the key is token-value-1", AgentError("no token")]})
    async with host.engine(secrets={"MY_TOKEN": "token-value-1"}) as engine:
        run = await engine.run("check")
        shutil.rmtree(host.folder(run))
        reply = await engine.reply(run.run_id, "Is it token-value-1?")
        with pytest.raises(AgentError):
            await engine.reply(run.run_id, "And?")
        record = await engine.find_run(run.run_id)
    page = (host.folder(run) / "turns" / "02-reply.md").read_text()
    assert "Is it [redacted MY_TOKEN]?" in page
    assert "the key is [redacted MY_TOKEN]" in page
    assert "no token" in (host.folder(run) / "turns" / "03-reply.md").read_text()
    assert (host.folder(run) / "work").is_dir()
    result = json.loads((host.folder(run) / "result.json").read_text())
    assert [turn["origin"] for turn in result["turns"]] == ["step", "reply", "reply"]
    assert reply.text == "the key is token-value-1"
    assert record.turns[1].reply.text == "the key is [redacted MY_TOKEN]"
    assert record.turns[2].reply is None


async def test_the_folder_of_an_old_run_stays_for_its_answers(host: Any) -> None:
    """As long after the last of them as after a run."""
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.settled()
        await host.clock.advance(timedelta(days=35))
        assert not host.folder(run).exists()
        await engine.reply(run.run_id, "Hello")
        await host.clock.advance(timedelta(days=20))
        assert (host.folder(run) / "turns" / "02-reply.md").exists()
        await host.clock.advance(timedelta(days=20))
        assert not host.folder(run).exists()


async def test_artifacts_that_cannot_be_written_do_not_cost_the_answer(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        folder = host.folder(run)
        folder.rename(folder.with_name("elsewhere"))
        folder.write_text("in the way")
        reply = await engine.reply(run.run_id, "Hello")
        failed = await host.events(engine, "artifact_failed")
        assert (await completed(host, engine))[0]["state"] == "succeeded"
    assert reply.text == "done"
    assert [event.data["name"] for event in failed] == [
        "work/",
        "turns/02-reply.md",
        "turns/02-reply.md",
        "result.json",
    ]


# ---- the agent's own ids


async def test_the_last_handle_of_a_conversation_is_given_back(host: Any) -> None:
    """Pinned or not, from runs and from replies, after a restart too."""
    number = 0

    def say(turn: Turn) -> Reply:
        nonlocal number
        number += 1
        return Reply(text="done", handle=f"h{number}")

    host.write(conversation="daily")
    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        first = await engine.run("check")  # h1
        again = await engine.run("check")  # h2
        await engine.reply(first.run_id, "Pinned.")  # h3, to an earlier run of it
        pin = (await engine.sessions())["check"]
        assert (pin.handle, pin.session_id) == ("h3", first.session_id)
        await engine.run("check")  # h4
        await host.clock.advance(timedelta(days=1))
        second = await engine.run("check")  # h5
        await engine.reply(first.run_id, "Not pinned.")  # h6, and the latest run there is another
        assert (await engine.sessions())["check"].handle == "h5"
    async with host.engine() as engine:
        await engine.reply(again.run_id, "Not pinned, once more.")  # h7
        await engine.reply(first.session_id, "And again.")  # h8
        await engine.reply(second.run_id, "Pinned.")  # h9
        assert (await engine.sessions())["check"].handle == "h9"
    assert [turn.handle for turn in host.agent.turns] == [
        None,
        "h1",
        "h2",
        "h3",
        None,
        "h4",
        "h6",
        "h7",
        "h5",
    ]


async def test_an_answer_during_which_the_automation_rotates_pins_nothing(host: Any) -> None:
    host.write(conversation="fresh")

    async def say(turn: Turn) -> Reply:
        if turn.origin == "reply":
            await host.clock.sleep(40 * MINUTE)
        return Reply(text="done", handle=turn.turn_id)

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine, anyio.create_task_group() as group:
        first = await engine.run("check")
        caller = Caller(lambda: engine.reply(first.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        second = await host.fire(engine)
        assert caller.reply is not None
        pin = (await engine.sessions())["check"]
    assert pin.session_id == second.session_id != first.session_id
    assert pin.handle == second.turns[0].turn_id


async def test_pins_in_trouble_after_the_turn_do_not_cost_the_answer(host: Any) -> None:
    """Before it, nothing is sent."""
    host.write()

    def say(turn: Turn) -> Reply:
        if turn.origin == "reply":
            (host.data / "session_pins.json").write_text("{")
        return Reply(text="done", handle=turn.turn_id)

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await engine.run("check")
        assert (await engine.reply(run.run_id, "One")).text == "done"
        with pytest.raises(StoreError) as caught:
            await engine.reply(run.run_id, "Two")
        assert (await engine.find_run(run.run_id)).handle == f"{run.run_id}-02"
    assert caught.value.problem.code == "pins-damaged"
    assert len(replies(host.agent)) == 1


# ---- who waits for whom


async def test_an_answer_to_a_busy_conversation_is_refused_and_leaves_nothing(host: Any) -> None:
    """While its run is going, and while another reply is."""
    host.write()
    host.agent = slow(host, other=50 * MINUTE)
    async with host.engine() as engine, anyio.create_task_group() as group:
        first = await host.fire(engine)
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        (going,) = (await engine.status()).running
        for target in (first.session_id, first.run_id, going.run_id):
            with pytest.raises(SessionBusy) as caught:
                await engine.reply(target, "Hello")
            assert caught.value.problem.code == "session-busy"
        await host.clock.advance(HOUR)
        caller = Caller(lambda: engine.reply(going.run_id, "Are you there?"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        with pytest.raises(SessionBusy):
            await engine.reply(first.run_id, "Hello")
        assert await completed(host, engine) == []
        await host.clock.advance(HOUR)
        assert caller.reply == Reply(text="reply said")
        assert [event["state"] for event in await completed(host, engine)] == ["succeeded"]
    assert [turn.prompt for turn in replies(host.agent)] == ["Are you there?"]


async def test_an_answer_bears_that_the_engine_holds_its_conversation_for_an_instant(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a rotation does, in which nobody talks."""
    host.write()
    begun, go_on = anyio.Event(), anyio.Event()
    rotate = SessionPins.rotate

    async def slowly(self: SessionPins, *given: Any, **named: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await rotate(self, *given, **named)

    monkeypatch.setattr(SessionPins, "rotate", slowly)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        await engine.rotate("check", "a change of subject")
        await begun.wait()
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        await anyio.wait_all_tasks_blocked()
        assert not caller.over.is_set()
        go_on.set()
        with anyio.fail_after(20):
            await caller.over.wait()
        assert caller.error is None
        assert caller.reply == Reply(text="done")


async def test_an_answer_can_wait_for_its_conversation(host: Any) -> None:
    """Up to the time that it is given, for the first run in it too."""
    host.write()
    host.agent = slow(host, reply=MINUTE, other=50 * MINUTE)
    async with host.engine() as engine, anyio.create_task_group() as group:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        (run,) = (await engine.status()).running
        short = Caller(lambda: engine.reply(run.run_id, "Short", wait=30 * MINUTE))
        long = Caller(lambda: engine.reply(run.run_id, "Long", wait=2 * HOUR))
        longer = Caller(lambda: engine.reply(run.run_id, "Longer", wait=2 * HOUR))
        for caller in (short, long, longer):
            group.start_soon(caller.run)
        await host.clock.advance(2 * HOUR)
        assert isinstance(short.error, SessionBusy)
        assert (long.reply, longer.reply) == (Reply(text="reply said"),) * 2
    assert sorted(turn.prompt for turn in replies(host.agent)) == ["Long", "Longer"]


async def test_a_run_that_waits_for_a_reply_leaves_its_place_to_others(host: Any) -> None:
    host.write()
    host.write("other")
    host.agent = slow(host)
    async with (
        host.engine(settings={"max_concurrent_runs": 1}) as engine,
        anyio.create_task_group() as group,
    ):
        first = await host.fire(engine)
        caller = Caller(lambda: engine.reply(first.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        others = [await engine.run("other") for _ in range(2)]
        (waiting,) = (await engine.status()).running
        assert waiting.slug == "check"
        await host.clock.advance(HOUR)
        await engine.settled()
        after = await engine.find_run(waiting.run_id)
    assert [run.state for run in others] == ["succeeded"] * 2
    assert (after.state, after.session_id) == ("succeeded", first.session_id)
    assert [turn.origin for turn in host.agent.turns if turn.slug == "check"] == [
        "step",
        "reply",
        "step",
    ]


async def test_a_run_comes_back_only_where_there_is_a_place(host: Any) -> None:
    """Never more at once than may be; and before those that have not begun."""
    host.write()
    host.write("other")

    async def take(turn: Turn) -> str:
        await host.clock.sleep({"reply": 40 * MINUTE, "step": 3 * HOUR}[turn.origin])
        return "said"

    host.agent = ScriptedAgent({"reply": take, "other/step-1": take})
    settings = {"max_concurrent_runs": 1, "run_timeout": 12 * HOUR}
    async with host.engine(settings=settings) as engine, anyio.create_task_group() as group:
        first = await host.fire(engine)
        caller = Caller(lambda: engine.reply(first.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        fire = await engine.fire("check")
        await host.clock.advance(MINUTE)
        await engine.fire("other")
        await engine.fire("other")
        await host.clock.advance(2 * HOUR)
        assert caller.reply is not None
        going = {run.slug: run.run_id for run in (await engine.status()).running}
        assert going.keys() == {"check", "other"}
        # It does not keep anybody out of a conversation that it does not use.
        talk = Caller(lambda: engine.reply(first.run_id, "Hello again"))
        group.start_soon(talk.run)
        await host.clock.advance(50 * MINUTE)
        assert talk.reply is not None
        await host.clock.advance(20 * MINUTE)
        (run,) = [run for run in await engine.runs("check") if run.fire.id == fire.id]
        assert run.state == "succeeded"
        assert (await engine.status()).running[0].slug == "other"
        await host.clock.advance(4 * HOUR)


async def test_a_draining_engine_does_not_wait_for_a_run_that_waits(host: Any) -> None:
    host.write()
    host.agent = slow(host, other=10 * MINUTE)
    async with host.engine() as engine, anyio.create_task_group() as group:
        first = await host.fire(engine)
        caller = Caller(lambda: engine.reply(first.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        await engine.fire("check", slot="kept")
        await host.clock.advance(MINUTE)
        group.start_soon(engine.drain, "a test")
        await host.clock.advance(MINUTE)
        (run,) = [run for run in await engine.runs() if run.fire.slot == "kept"]
        assert run.state == "interrupted"
        assert isinstance(caller.error, EngineBusy)


async def test_crossed_answers_and_runs_never_talk_at_once(host: Any) -> None:
    """The scripted agent fails every turn that comes during another of its conversation."""
    slugs = {"one": "continuous", "two": "fresh", "three": "daily"}
    for slug, conversation in slugs.items():
        host.write(slug, conversation=conversation)
    number = 0

    async def say(turn: Turn) -> Reply:
        nonlocal number
        number += 1
        await host.clock.sleep(timedelta(seconds=7 + 13 * (number % 9)))
        return Reply(text=f"to {turn.prompt}", handle=f"{turn.session_id}/{number}")

    host.agent = ScriptedAgent(default=say)
    expected: dict[str, str] = {}
    async with host.engine(settings={"max_concurrent_runs": 2}) as engine:
        for day in range(3):
            async with anyio.create_task_group() as group:
                callers: list[Caller] = []
                for turn in range(6):
                    for slug in slugs:
                        await engine.fire(slug)
                    await host.clock.advance(timedelta(seconds=40))
                    for run in await engine.runs(limit=4):
                        if run.state != "succeeded" or run.session_id is None:
                            continue
                        text = f"{day} {turn} {run.run_id}"
                        expected[text] = run.session_id

                        def ask(text: str = text, target: str = run.run_id) -> Awaitable[Reply]:
                            return engine.reply(target, text, wait=12 * HOUR)

                        callers.append(Caller(ask))
                        group.start_soon(callers[-1].run)
                await host.clock.advance(6 * HOUR)
                assert [caller.error for caller in callers] == [None] * len(callers)
            await host.clock.advance(timedelta(days=1) - 6 * HOUR)
        await engine.settled()
        runs = await engine.runs()
        pins = await engine.sessions()
        assert await engine.sweep() == []
    heard = {turn.prompt: turn.session_id for turn in replies(host.agent)}
    assert heard == expected
    assert len(heard) > 20
    assert {run.state for run in runs} == {"succeeded"}
    # Each turn was given the handle that the one before it in its conversation left.
    last: dict[str, str | None] = {}
    for turn in host.agent.turns:
        handle = turn.handle
        assert (handle is None) == turn.is_new
        if handle is not None:
            assert handle.startswith(turn.session_id)
        last[turn.session_id] = handle
    assert {pin.session_id for pin in pins.values()} <= set(last)


# ---- how it ends


@pytest.mark.parametrize(
    "error, code",
    [
        (AgentError("no", code="no-luck"), "no-luck"),
        (ContextCeiling("too long"), "context-ceiling"),
        (ConversationNotFound("lost"), "conversation-missing"),
        (RuntimeError("oh"), "agent-raised"),
    ],
)
async def test_what_the_agent_raises_comes_to_the_caller(
    host: Any, error: Exception, code: str
) -> None:
    """Nothing is rotated, nobody else hears of it, and the conversation is free."""
    host.write()
    host.agent = ScriptedAgent({"reply": [error, "better"]})
    async with host.engine() as engine:
        run = await engine.run("check")
        pins = await engine.sessions()
        with pytest.raises(AgentError) as caught:
            await engine.reply(run.run_id, "Hello")
        assert (await engine.reply(run.run_id, "Hello")).text == "better"
        assert await engine.sessions() == pins
        assert await host.events(engine, "session_rotated", "automation_error") == []
        failed, succeeded = await completed(host, engine)
        assert (await engine.find_run(run.run_id)).state == "succeeded"
    assert caught.value.code == code
    assert isinstance(error, RuntimeError) or type(caught.value) is type(error)
    assert (failed["state"], failed["code"], failed["attempts"]) == ("failed", code, 1)
    assert failed["message"]
    assert (succeeded["state"], succeeded["code"]) == ("succeeded", None)
    assert [turn.turn_id[-2:] for turn in replies(host.agent)] == ["02", "03"]


async def test_an_agent_that_is_away_is_tried_again(host: Any) -> None:
    """Under one turn id and in one conversation."""
    host.write()
    away = AgentUnavailable("busy", usage=Usage(input_tokens=1))
    host.agent = ScriptedAgent({"reply": [away, away, "here", away, away, away]})
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        callers = [Caller(lambda: engine.reply(run.run_id, "Hello")) for _ in range(2)]
        for caller in callers:
            group.start_soon(caller.run)
            await host.clock.advance(HOUR)
        record = await engine.find_run(run.run_id)
    assert callers[0].reply == Reply(text="here")
    assert isinstance(callers[1].error, AgentUnavailable)
    turns = replies(host.agent)
    assert [turn.attempt for turn in turns] == [1, 2, 3, 1, 2, 3]
    assert len({turn.session_id for turn in turns}) == 1
    assert len({turn.turn_id for turn in turns}) == 2
    assert [turn.attempts for turn in record.turns[1:]] == [3, 3]
    assert record.usage == Usage(input_tokens=5)


@pytest.mark.parametrize(
    "settings, code, limit",
    [
        ({"turn_timeout": MINUTE}, "turn-timeout", MINUTE),
        ({"run_timeout": 2 * MINUTE}, "reply-timeout", 2 * MINUTE),
    ],
)
@pytest.mark.parametrize("excuse", [False, True])
async def test_a_turn_that_takes_too_long_is_ended(
    host: Any, settings: dict[str, Any], code: str, limit: timedelta, excuse: bool
) -> None:
    """Whatever an agent makes of its cancellation."""
    host.write()

    async def say(turn: Turn) -> str:
        if turn.origin != "reply":
            return "done"
        try:
            await host.clock.sleep(HOUR)
        except anyio.get_cancelled_exc_class():
            if excuse:
                raise AgentError("I was cancelled", code="excuse") from None
            raise
        return "late"

    host.agent = ScriptedAgent(default=say)
    async with host.engine(settings=settings) as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(10 * MINUTE)
        assert isinstance(caller.error, AgentError)
        assert caller.error.code == code
        assert [event["code"] for event in await completed(host, engine)] == [code]
    assert replies(host.agent)[0].timeout == limit


async def test_cancelling_the_caller_ends_the_turn_and_frees_the_conversation(host: Any) -> None:
    host.write()
    host.agent = slow(host)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await host.fire(engine)
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        caller.scope.cancel()
        await caller.over.wait()
        again = Caller(lambda: engine.reply(run.run_id, "Hello again"))
        group.start_soon(again.run)
        await host.clock.advance(HOUR)
        assert again.reply is not None
        states = [event["state"] for event in await completed(host, engine)]
        record = await engine.find_run(run.run_id)
    assert states == ["cancelled", "succeeded"]
    assert [turn.reply is None for turn in record.turns] == [False, True, False]
    page = (host.folder(run) / "turns" / "02-reply.md").read_text()
    assert "cut short" in page


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_caller_may_be_cancelled_as_asyncio_does_it(host: Any) -> None:
    """`Task.cancel` knows no scopes, and a web framework uses it when its client hangs up."""
    import asyncio

    host.write()
    host.agent = slow(host)
    async with host.engine() as engine:
        run = await host.fire(engine)
        task = asyncio.create_task(engine.reply(run.run_id, "Hello"))
        await host.clock.advance(MINUTE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [event["state"] for event in await completed(host, engine)] == ["cancelled"]
        again = asyncio.create_task(engine.reply(run.run_id, "Hello again"))
        await host.clock.advance(HOUR)
        assert (await again).text == "reply said"


async def test_an_agent_that_ignores_its_cancellation_is_reported(host: Any) -> None:
    """The conversation stays taken until it really ends."""
    host.write()

    async def say(turn: Turn) -> str:
        if turn.origin == "reply":
            with anyio.CancelScope(shield=True):
                await host.clock.sleep(HOUR)
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        caller.scope.cancel()
        await host.clock.advance(10 * MINUTE)
        stuck = await host.events(engine, "run_stuck")
        assert [(event.run_id, event.data["turn_id"]) for event in stuck] == [
            (run.run_id, f"{run.run_id}-02")
        ]
        assert (await engine.status()).stuck != ()
        with pytest.raises(SessionBusy):
            await engine.reply(run.run_id, "Hello?")
        await host.clock.advance(HOUR)
        await caller.over.wait()
        assert (await engine.status()).stuck == ()
        assert len(await host.events(engine, "run_stuck")) == 1


async def test_an_agent_that_ignores_a_time_limit_is_reported(host: Any) -> None:
    host.write()

    async def say(turn: Turn) -> str:
        if turn.origin == "reply":
            with anyio.CancelScope(shield=True):
                await host.clock.sleep(HOUR)
        return "done"

    host.agent = ScriptedAgent(default=say)
    settings = {"run_timeout": MINUTE}
    async with host.engine(settings=settings) as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(10 * MINUTE)
        assert len(await host.events(engine, "run_stuck")) == 1
        caller.scope.cancel()
        await host.clock.advance(10 * MINUTE)
        assert len(await host.events(engine, "run_stuck")) == 1
        await host.clock.advance(HOUR)
        assert caller.over.is_set()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_agent_that_cancels_itself_fails_the_turn(host: Any) -> None:
    """Trio's cancellation cannot be raised by hand."""
    host.write()

    async def say(turn: Turn) -> str:
        if turn.origin == "reply":
            raise anyio.get_cancelled_exc_class()
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await engine.run("check")
        with pytest.raises(AgentError) as caught:
            await engine.reply(run.run_id, "Hello")
    assert caught.value.code == "agent-cancelled-itself"


# ---- follow-ups


async def test_an_answer_can_ask_for_a_later_run(host: Any) -> None:
    """It counts as asked for by the run that is answered, and only while the turn goes on."""
    host.write()
    kept: list[Turn] = []

    async def say(turn: Turn) -> str:
        if turn.origin == "reply":
            kept.append(turn)
            await turn.follow_ups.schedule("Look at it again.", after=timedelta(0))
            await host.clock.sleep(MINUTE)
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        caller = Caller(lambda: engine.reply(run.run_id, "Look later"))
        group.start_soon(caller.run)
        await host.clock.advance(HOUR)
        await engine.settled()
        (later, _) = await engine.runs()
        with pytest.raises(FollowUpRefused):
            await kept[0].follow_ups.schedule("Once more.", after=timedelta(0))
    assert (later.fire.cause, later.fire.parent_run, later.fire.depth) == (
        "follow-up",
        run.run_id,
        1,
    )
    assert later.session_id == run.session_id
    assert [turn.origin for turn in host.agent.turns] == ["step", "reply", "follow-up"]


# ---- the engine's end


async def test_draining_gives_replies_time_and_refuses_further_ones(host: Any) -> None:
    host.write()
    host.write("other")
    host.agent = slow(host)
    async with (
        host.engine(settings={"drain_timeout": 2 * HOUR}) as engine,
        anyio.create_task_group() as group,
    ):
        run = await engine.run("check")
        other = await engine.run("other")
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        waiting = Caller(lambda: engine.reply(run.run_id, "Hello", wait=3 * HOUR))
        for each in (caller, waiting):
            group.start_soon(each.run)
            await host.clock.advance(MINUTE)
        group.start_soon(engine.drain, "a test")
        await host.clock.advance(MINUTE)
        assert isinstance(waiting.error, EngineBusy)
        with pytest.raises(EngineBusy) as caught:
            await engine.reply(other.run_id, "Hello")
        assert caught.value.problem.code == "engine-draining"
        await host.clock.advance(HOUR)
        assert caller.reply == Reply(text="reply said")
        await engine.wait()
        with pytest.raises(EngineBusy) as caught:
            await engine.reply(other.run_id, "Hello")
        assert caught.value.problem.code == "engine-stopped"
        assert caught.value.problem.remedy == "enter another engine"
        assert [event["state"] for event in await completed(host, engine)] == ["succeeded"]


@pytest.mark.parametrize("excuse", [False, True])
async def test_a_reply_that_outlasts_the_draining_is_ended(host: Any, excuse: bool) -> None:
    host.write()

    async def say(turn: Turn) -> str:
        try:
            await host.clock.sleep((40 if turn.origin == "reply" else 0) * MINUTE)
        except anyio.get_cancelled_exc_class():
            if excuse:
                raise AgentError("I was cancelled") from None
            raise
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        group.start_soon(engine.drain, "a test")
        await host.clock.advance(10 * MINUTE)
        assert isinstance(caller.error, EngineBusy)
        assert caller.error.problem.code == "engine-draining"
        (event,) = await completed(host, engine)
        assert (event["state"], event["code"]) == ("failed", "engine-draining")
    async with host.engine() as engine, anyio.create_task_group() as group:
        caller = Caller(lambda: engine.reply(run.run_id, "Once more"))
        group.start_soon(caller.run)
        await host.clock.advance(2 * HOUR)
        assert caller.reply == Reply(text="done")


async def test_leaving_the_engine_ends_a_reply_of_another_task(host: Any) -> None:
    """On a driven clock there is no time for it."""
    host.write()
    host.agent = slow(host)
    async with anyio.create_task_group() as group:
        async with host.engine() as engine:
            run = await engine.run("check")
            caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
            group.start_soon(caller.run)
            await host.clock.advance(MINUTE)
        assert isinstance(caller.error, EngineBusy)


async def test_a_fault_of_the_engine_ends_replies(host: Any, monkeypatch: Any) -> None:
    host.write()
    host.agent = slow(host)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)

        async def fail(**_: object) -> None:
            msg = "a mistake"
            raise RuntimeError(msg)

        monkeypatch.setattr(engine._life.services.store, "claim_fire", fail)
        await host.clock.advance(MINUTE)
        with pytest.raises(RuntimeError, match="a mistake"):
            await engine.wait()
        await caller.over.wait()
        assert isinstance(caller.error, EngineBusy)
        assert caller.error.problem.code == "engine-stopped"
        assert "look at what wait() raises" in caller.error.problem.remedy


# ---- trouble, crashes, leases


async def test_nothing_is_sent_that_cannot_be_written_down(host: Any) -> None:
    """The conversation is free all the same."""
    host.write()
    store = host.faulty()
    async with host.engine(store=store) as engine:
        run = await engine.run("check")
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        store.faults["record"] = [FULL]
        with pytest.raises(StoreError):
            await engine.reply(run.run_id, "Hello")
        assert replies(host.agent) == []
        store.faults["hold"] = [FULL]
        with pytest.raises(StoreError):
            await engine.reply(run.run_id, "Hello")
        await engine.reply(run.run_id, "Hello")


async def test_an_answer_that_cannot_be_written_down_reaches_the_person_first(host: Any) -> None:
    """It is written down when the store recovers; until then the conversation is taken."""
    host.write()
    store = host.faulty()

    def say(turn: Turn) -> str:
        if turn.origin == "reply":
            store.faults["finish"] = [FULL] * 3
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine(store=store) as engine:
        run = await engine.run("check")
        assert (await engine.reply(run.run_id, "Hello")).text == "done"
        with pytest.raises(SessionBusy):
            await engine.reply(run.run_id, "Hello?")
        await host.clock.advance(HOUR)
        assert [event["state"] for event in await completed(host, engine)] == ["succeeded"]
        record = await engine.find_run(run.run_id)
        assert [turn.reply.text for turn in record.turns] == ["done", "done"]
        host.agent._default = "done"
        await engine.reply(run.run_id, "Hello?")
        assert len((await engine.find_run(run.run_id)).turns) == 3


@pytest.mark.parametrize("going", [False, True])
async def test_what_is_owed_does_not_keep_the_engine_from_ending(host: Any, going: bool) -> None:
    """The next start frees the conversation, and knows of the turn."""
    host.write()
    host.write("other")
    store = host.faulty()

    async def say(turn: Turn) -> str:
        if turn.origin == "reply":
            store.faults["finish"] = [FULL] * 1000
        if turn.slug == "other":
            await host.clock.sleep(HOUR)
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine(store=store) as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        assert (await engine.reply(run.run_id, "Hello")).text == "done"
        if going:
            store.faults["record"] = []
            await engine.fire("other")
            await host.clock.advance(MINUTE)
            group.start_soon(engine.drain, "a test")
            await host.clock.advance(HOUR)
    host.agent = ScriptedAgent()
    async with host.engine() as engine:
        await engine.reply(run.run_id, "Hello?")
        assert len((await engine.find_run(run.run_id)).turns) == 3


def crash(host: Any, change: Callable[[sqlite3.Connection], object], tmp: Path) -> Path:
    """A copy of the workspace as a crash would leave it at this instant, changed."""
    import shutil

    copy = tmp / "after-the-crash"
    shutil.copytree(host.workspace, copy)
    with closing(sqlite3.connect(copy / ".drumbeat" / "drumbeat.db")) as db, db:
        change(db)
    db.close()
    return copy


async def test_a_crash_in_the_middle_leaves_a_turn_without_an_answer(
    host: Any, tmp_path: Path
) -> None:
    """And frees the conversation; the turn of the next reply is another one."""
    host.write()
    host.agent = slow(host)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        copy = crash(host, lambda db: None, tmp_path)
        caller.scope.cancel()
    host.agent = ScriptedAgent(default="back")
    host.workspace, host.data = copy, copy / ".drumbeat"
    async with host.engine() as engine:
        left = await engine.find_run(run.run_id)
        assert [(turn.origin, turn.attempts) for turn in left.turns] == [("step", 1), ("reply", 0)]
        assert left.turns[1].reply is None
        assert (await engine.reply(run.run_id, "Hello again")).text == "back"
    (turn,) = host.agent.turns
    assert (turn.turn_id, turn.session_id) == (f"{run.run_id}-03", run.session_id)


async def test_a_run_that_a_crash_interrupted_can_be_answered(host: Any, tmp_path: Path) -> None:
    """In the conversation that its first turn began."""
    host.write(steps=["One.", "Two."])

    async def say(turn: Turn) -> Reply:
        if turn.step_id == "step-2":
            await host.clock.sleep(HOUR)
        return Reply(text="done", handle="the agent's own")

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        await engine.fire("check")
        await host.clock.advance(MINUTE)
        copy = crash(host, lambda db: None, tmp_path)
        await host.clock.advance(2 * HOUR)
    session = host.agent.turns[0].session_id
    host.agent = ScriptedAgent(default="back")
    host.workspace, host.data = copy, copy / ".drumbeat"
    async with host.engine() as engine:
        await engine.settled()
        (run,) = await engine.runs()
        assert (run.state, run.session_id, len(run.turns)) == ("interrupted", session, 1)
        (intent,) = host.deliverer.intents[-1:]
        await engine.reply(f"message-{intent.id}", "What happened?")
    (turn,) = host.agent.turns
    assert (turn.session_id, turn.handle) == (session, "the agent's own")


async def test_a_run_that_is_purged_during_an_answer_does_not_cost_it(host: Any) -> None:
    host.write()

    def say(turn: Turn) -> str:
        if turn.origin == "reply":
            with closing(sqlite3.connect(host.data / "drumbeat.db")) as db, db:
                for table in ("intents", "runs", "fires"):
                    db.execute(f"DELETE FROM {table}")
            db.close()
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine(deliverer=None) as engine:
        run = await engine.run("check")
        assert (await engine.reply(run.run_id, "Hello")).text == "done"
        assert [event["state"] for event in await completed(host, engine)] == ["succeeded"]
        with pytest.raises(NotFound) as caught:
            await engine.reply(run.run_id, "Hello?")
    assert caught.value.problem.code == "run-unknown"


async def test_what_replies_and_runs_hold_is_renewed(host: Any) -> None:
    """Conversations as well as slugs."""
    host.write()
    host.write("other")
    host.agent = slow(host, reply=5 * HOUR, other=5 * HOUR)
    seen: list[set[str]] = []
    store = host.faulty()
    renew = store.renew

    async def watched(claims: Any) -> set[str]:
        seen.append({claim.slug for claim in claims})
        held: set[str] = await renew(claims)
        return held

    store.renew = watched
    settings = {"run_timeout": 12 * HOUR}
    async with host.engine(store=store, settings=settings) as engine:
        first = await host.fire(engine, within=6 * HOUR)
        async with anyio.create_task_group() as group:
            caller = Caller(lambda: engine.reply(first.run_id, "Hello"))
            group.start_soon(caller.run)
            await engine.fire("other")
            await host.clock.advance(HOUR)
            held = seen[-1]
            await host.clock.advance(5 * HOUR)
            assert caller.reply is not None
        await engine.settled()
        other = next(run for run in await engine.runs("other"))
        assert other.state == "succeeded"
    assert held == {first.session_id, "other", other.session_id}


async def test_a_reply_that_is_taken_over_ends(host: Any) -> None:
    host.write()
    host.agent = slow(host)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run = await engine.run("check")
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        await host.clock.advance(MINUTE)
        with closing(sqlite3.connect(host.data / "drumbeat.db")) as db, db:
            db.execute("UPDATE leases SET token = token + 1000")
        db.close()
        await host.clock.advance(10 * MINUTE)
        assert isinstance(caller.error, ClaimLost)
        assert await completed(host, engine) == []


async def test_a_claim_that_is_lost_is_not_owed_for_ever(host: Any) -> None:
    """What the store did not take is dropped when somebody else has the conversation."""
    host.write()
    store = host.faulty()

    def say(turn: Turn) -> str:
        if turn.origin == "reply":
            store.faults["finish"] = [FULL, FULL]  # the second when it is tried again at once
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine(store=store) as engine:
        run = await engine.run("check")
        await engine.reply(run.run_id, "Hello")
        with closing(sqlite3.connect(host.data / "drumbeat.db")) as db, db:
            db.execute("UPDATE leases SET token = token + 1000")
        db.close()
        with capture_logs() as logs:
            await host.clock.advance(MINUTE)
        assert engine._life.replies._debts == []
        (line,) = [line for line in logs if line["event"] == "claim_lost"]
        assert line["slug"] == "check"
        assert line["run_id"].startswith("reply-")
        assert line["message"]
        assert (await engine.status()).faults == ()


async def test_drive_goes_past_a_reply_that_sleeps(host: Any) -> None:
    """A reply belongs to its caller: the engine is settled without it."""
    host.write()
    host.agent = slow(host)
    async with host.engine() as engine, anyio.create_task_group() as group:
        run: RunRecord = await engine.run("check")
        caller = Caller(lambda: engine.reply(run.run_id, "Hello"))
        group.start_soon(caller.run)
        assert await drive(engine, until=host.clock.now() + MINUTE) == []
        await engine.settled()
        caller.scope.cancel()
