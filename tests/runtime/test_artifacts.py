"""The folder of a run, and what may never stand in it (spec, sections 6 and 12)."""

import json
import os
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat import AgentError, DeliveryIntent, Receipt, Reply, Turn
from drumbeat.core.redaction import Redactor
from drumbeat.runtime.artifacts import Artifacts
from drumbeat.runtime.threads import Threads
from drumbeat.testing import ManualClock, RecordingDeliverer, ScriptedAgent

pytestmark = pytest.mark.anyio

TOKEN = "token-value-1"


async def test_each_turn_is_a_page_with_its_prompt_and_its_reply(host: Any) -> None:
    host.tool("state", "printf 'the state'")
    host.write(
        steps=["One.", "Two."], notify="auto", inject=[{"argv": ["state"], "label": "state"}]
    )
    host.agent = ScriptedAgent({"step-1": "first", "judgment": "NOTHING_TO_REPORT"}, default="ok")
    async with host.engine() as engine:
        run = await engine.run("check")
    folder = host.folder(run)
    assert sorted(path.name for path in (folder / "turns").iterdir()) == [
        "01-inject.md",
        "02-step.md",
        "03-step.md",
        "04-judgment.md",
    ]
    page = (folder / "turns" / "02-step.md").read_text()
    assert page == "# Turn 2: step `step-1`\n\n## Prompt\n\nOne.\n\n## Reply\n\nfirst\n"
    assert host.agent.turns[0].context in (folder / "turns" / "01-inject.md").read_text()
    assert (folder / "work").is_dir()


async def test_a_page_is_written_as_it_happens(host: Any) -> None:
    """The prompt stands there while the agent thinks, a failure in the place of a reply."""
    pages: list[str] = []
    host.write()

    def say(turn: Turn) -> Exception:
        pages.append(
            (host.data / "runs" / "check" / turn.run_id / "turns" / "01-step.md").read_text()
        )
        return AgentError("no quota", code="quota-used-up")

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await engine.run("check")
    assert pages[0].endswith("Look around.\n")
    page = (host.folder(run) / "turns" / "01-step.md").read_text()
    assert page.endswith("## Reply\n\n(no reply: no quota [quota-used-up])\n")


async def test_a_turn_that_is_cut_short_is_told_from_an_empty_reply(host: Any) -> None:
    host.write()

    async def slow(turn: Turn) -> str:
        await host.clock.sleep(timedelta(days=1))
        return "never"

    host.agent = ScriptedAgent(default=slow)
    async with host.engine() as engine:
        run = await host.fire(engine)
    assert run.failure.code == "run-timeout"
    page = (host.folder(run) / "turns" / "01-step.md").read_text()
    assert page.endswith("## Reply\n\n(no reply: the turn was cut short)\n")


async def test_the_result_is_the_record(host: Any) -> None:
    host.write(steps=["One."], agent_config={"provider": {"module": "openai"}})
    host.agent = ScriptedAgent(default=Reply(text="done ✓", model="gpt"))
    async with host.engine() as engine:
        await engine.fire("check", payload=b"\x00 not text")
        await engine.settled()
        (run,) = await engine.runs()
    result = json.loads((host.folder(run) / "result.json").read_text(encoding="utf-8"))
    assert result["record_version"] == 1
    assert (result["run_id"], result["slug"], result["state"]) == (run.run_id, "check", "succeeded")
    assert (result["fire"]["id"], result["fire"]["payload"]) == (run.fire.id, None)
    assert result["intent"]["fire"]["payload"] is None
    assert (result["intent"]["id"], result["intent"]["gate"]) == (run.intent.id, "policy-always")
    assert (result["session_id"], result["config_hash"]) == (run.session_id, run.config_hash)
    (turn,) = result["turns"]
    assert (turn["step_id"], turn["reply"]["text"], turn["reply"]["model"]) == (
        "step-1",
        "done ✓",
        "gpt",
    )
    assert "done ✓" in (host.folder(run) / "result.json").read_text(encoding="utf-8")


async def test_the_folder_is_for_its_owner_alone(host: Any) -> None:
    """Every folder 0700 and every file 0600, whatever the umask."""
    host.write()
    before = os.umask(0)
    try:
        async with host.engine() as engine:
            await engine.fire("check", payload=b"{}")
            await engine.settled()
    finally:
        os.umask(before)
    runs = host.data / "runs"
    found = [runs, *runs.rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in found if path.is_dir()} == {0o700}
    files = [path for path in found if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.name for path in files} == {"01-step.md", "result.json", "WEBHOOK_PAYLOAD.json"}


@pytest.mark.parametrize("notify", ["always", "auto"])
async def test_artifacts_that_cannot_be_written_are_events_and_change_nothing(
    host: Any, notify: str
) -> None:
    host.write(notify=notify)
    async with host.engine() as engine:
        (host.data / "runs").write_text("in the way")
        run = await engine.run("check")
        events = await host.events(engine, "artifact_failed")
    assert run.state == "succeeded"
    assert run.intent.verdict == "deliver"
    pages = ["turns/01-step.md"] * 2 + (["turns/02-judgment.md"] * 2 if notify == "auto" else [])
    assert [event.data["name"] for event in events] == ["work/", *pages, "result.json"]
    assert all(event.run_id == run.run_id and event.data["reason"] for event in events)


async def test_a_file_that_cannot_be_replaced_leaves_nothing_half_written(host: Any) -> None:
    host.write()

    def say(turn: Turn) -> str:
        folder = host.data / "runs" / "check" / turn.run_id
        (folder / "result.json" / "in the way").mkdir(parents=True)
        return "done"

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await engine.run("check")
        (event,) = await host.events(engine, "artifact_failed")
    assert run.state == "succeeded"
    assert event.data["name"] == "result.json"
    assert not [path for path in host.folder(run).iterdir() if path.name.startswith(".")]


async def test_a_text_that_is_no_unicode_is_kept_with_escapes(host: Any) -> None:
    host.write()
    host.agent = ScriptedAgent(default="half \ud83d")
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.settled()
    assert run.state == "succeeded"
    assert "half \\ud83d" in (host.folder(run) / "turns" / "01-step.md").read_text()


async def test_a_long_text_that_cannot_be_kept_whole_says_so(host: Any) -> None:
    host.write()

    def say(turn: Turn) -> str:
        (host.data / "runs" / "check" / turn.run_id / "intent.md").mkdir()
        return "x" * 70_000

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await engine.run("check")
        (event,) = await host.events(engine, "artifact_failed")
    assert len(run.intent.text.encode()) <= 64 * 1024
    assert "could not be kept" in run.intent.text
    assert event.data["name"] == "intent.md"


# ---- secrets


def everything(folder: Path) -> bytes:
    """All that the engine wrote."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_no_secret_stands_in_anything_that_is_written(host: Any) -> None:
    """Replies, judgments, labels, failures and standard error, in files, events and records."""
    host.tool("idle", "printf INJECT_IDLE")
    host.tool("fails", f"echo cannot log in with {TOKEN} >&2; exit 1")
    host.tool("state", f"printf 'state: {TOKEN}'")
    idle = {"argv": ["idle"], "label": f"with {TOKEN}"}
    host.write("replies", name=f"Name {TOKEN}", inject=[idle, {"argv": ["state"], "label": TOKEN}])
    host.write("stderr", inject=[{"argv": ["fails"], "label": f"label {TOKEN}"}])
    host.write("raises", notify="auto")
    host.write("judgment", notify="auto")
    host.agent = ScriptedAgent(
        {
            "replies/step": Reply(text=f"reply {TOKEN}", model=TOKEN, provider=TOKEN, handle=None),
            "raises/step": ValueError(f"raised {TOKEN}"),
            "judgment/judgment": AgentError(f"judged {TOKEN}"),
        },
        default="ok",
    )
    async with host.engine(secrets={"MY_TOKEN": TOKEN}) as engine:
        runs = {
            slug: await engine.run(slug) for slug in ("replies", "stderr", "raises", "judgment")
        }
        await engine.settled()
        events = [event async for event in engine.events(follow=False)]
        stored = await engine.runs()
    shown = "[redacted MY_TOKEN]"
    assert runs["replies"].intent.text == f"reply {shown}"
    assert runs["replies"].intent.name == f"Name {shown}"
    assert f"raised {shown}" in runs["raises"].failure.message
    assert f"cannot log in with {shown}" in runs["stderr"].failure.message
    assert f"label {shown}" in runs["stderr"].failure.message
    assert f"judged {shown}" in runs["judgment"].intent.reason
    assert all(TOKEN not in str(event.data) for event in events)
    assert all(TOKEN not in intent.text + intent.reason for intent in host.deliverer.intents)
    assert all(TOKEN not in repr(run) for run in stored)
    assert TOKEN.encode() not in everything(host.data / "runs")
    assert shown.encode() in everything(host.data / "runs" / "replies")
    db = sqlite3.connect(host.data / "drumbeat.db")
    try:
        assert TOKEN not in "\n".join(db.iterdump())
    finally:
        db.close()


async def test_the_agent_gets_the_prompt_as_it_is(host: Any) -> None:
    """What is redacted is what the engine writes, not what a turn is about."""
    host.tool("state", f"printf 'state: {TOKEN}'")
    host.write(inject=[{"argv": ["state"], "label": "state"}])
    async with host.engine(secrets={"MY_TOKEN": TOKEN}) as engine:
        await engine.run("check")
    assert host.agent.turns[0].prompt == f"state: {TOKEN}"


@pytest.mark.parametrize("lost", [2, 8, len(TOKEN) - 4])
async def test_a_secret_that_a_tools_errors_begin_with_in_the_middle_is_redacted(
    host: Any, lost: int
) -> None:
    """The last 2,000 characters are kept, wherever that cuts."""
    rest = 1999 - (len(TOKEN) - lost)
    host.tool("fails", f"printf '%s%0{rest}d' '{TOKEN}' 0 >&2; exit 3")
    host.write(inject=[{"argv": ["fails"], "label": "state"}])
    async with host.engine(secrets={"MY_TOKEN": TOKEN}) as engine:
        run = await engine.run("check")
    assert run.failure.code == "inject-failed"
    assert run.failure.message.endswith(f"ended with: …[redacted MY_TOKEN]{'0' * rest}")
    for path in host.data.rglob("*"):
        if path.is_file():
            assert TOKEN[lost:].encode() not in path.read_bytes(), path


async def test_no_secret_stands_in_a_code_a_receipt_or_an_intents_fire(host: Any) -> None:
    """A host's channel and its agent may put it anywhere."""

    class Channel(RecordingDeliverer):
        async def deliver(self, intent: DeliveryIntent, /) -> Receipt:
            await super().deliver(intent)
            return Receipt(id=f"id-{TOKEN}", url=f"https://example.org/?key={TOKEN}")

    async def asks(turn: Turn) -> str:
        if turn.origin == "step":
            await turn.follow_ups.schedule(f"look with {TOKEN}", after=timedelta(0))
        return "ok"

    host.write("asks")
    host.write("fails")
    host.deliverer = Channel()
    host.agent = ScriptedAgent({"fails/step": AgentError("no", code=TOKEN)}, default=asks)
    async with host.engine(secrets={"MY_TOKEN": TOKEN}) as engine:
        failed = await engine.run("fails")
        await engine.run("asks")
        await engine.settled()
        runs = await engine.runs("asks")
        pulled = await engine.intents()
        events = [event async for event in engine.events(follow=False)]
    follow_up, first = host.deliverer.intents[-1], runs[-1]
    assert failed.failure.code == "agent-error"
    assert follow_up.fire.prompt == "look with [redacted MY_TOKEN]"
    assert [turn.prompt for turn in host.agent.turns][-1] == f"look with {TOKEN}"
    assert first.receipt == Receipt(
        id="id-[redacted MY_TOKEN]", url="https://example.org/?key=[redacted MY_TOKEN]"
    )
    assert all(TOKEN not in str(event.data) for event in events)
    assert pulled[-1].fire.prompt == follow_up.fire.prompt
    db = sqlite3.connect(host.data / "drumbeat.db")
    try:
        written = [line for line in db.iterdump() if "look with" not in line]
    finally:
        db.close()
    assert TOKEN not in "\n".join(written)


async def test_nothing_is_made_where_the_data_folder_was_moved_away(tmp_path: Path) -> None:
    """What was made in its place would be in the way when it comes back."""
    data = tmp_path / "workspace" / "state"
    made = Artifacts(data, Redactor({}), ManualClock(datetime(2026, 3, 2, tzinfo=UTC)), Threads())
    with pytest.raises(FileNotFoundError):
        await made.text("check", "run-1", "turns/01.md", "text")
    with pytest.raises(FileNotFoundError):
        await made.prepare(made.work("check", "run-1"))
    assert list(tmp_path.iterdir()) == []
    data.mkdir(parents=True)
    assert (await made.text("check", "run-1", "turns/01.md", "text")).read_text() == "text"
    elsewhere = tmp_path / "memory" / "jobs"
    await made.prepare(elsewhere)
    assert elsewhere.is_dir()
