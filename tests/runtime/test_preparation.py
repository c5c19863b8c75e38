"""Before the first turn: the file, `requires` and `inject` (spec, sections 6 and 9)."""

from datetime import timedelta
from typing import Any

import anyio
import pytest

from drumbeat import Turn

pytestmark = pytest.mark.anyio


def inject(*argv: str, label: str = "state") -> dict[str, Any]:
    return {"argv": list(argv), "label": label}


# ---- inject


async def test_what_a_tool_says_is_a_turn_of_its_own_verbatim(host: Any) -> None:
    """Nothing is stripped, each tool has its turn, and they come before the steps."""
    host.tool("one", "printf '\\n  two spaces before\\n\\n'")
    host.tool("two", "printf 'INJECT_IDLE \\n'")
    host.write(inject=[inject("one", label="first"), inject("two", label="second")])
    async with host.engine() as engine:
        run = await engine.run("check")
    turns = host.agent.turns
    assert [(turn.origin, turn.label, turn.prompt) for turn in turns] == [
        ("inject", "first", "\n  two spaces before\n\n"),
        ("inject", "second", "INJECT_IDLE \n"),
        ("step", None, "Look around."),
    ]
    assert [turn.step_id for turn in turns] == [None, None, "step-1"]
    assert run.state == "succeeded"


@pytest.mark.parametrize("said", ["INJECT_IDLE", "INJECT_IDLE\\n", "INJECT_IDLE\\r\\n"])
async def test_an_idle_tool_has_no_turn_and_an_event_says_why(host: Any, said: str) -> None:
    host.tool("state", f"printf '{said}'")
    host.write(inject=[inject("state", "now", label="open items")])
    async with host.engine() as engine:
        run = await engine.run("check")
        (event,) = await host.events(engine, "inject_skipped")
    assert [turn.origin for turn in host.agent.turns] == ["step"]
    assert run.state == "succeeded"
    assert (event.slug, event.run_id) == ("check", run.run_id)
    assert event.data["tool"] == "state"
    assert event.data["label"] == "open items"
    assert "INJECT_IDLE" in event.data["reason"]


@pytest.mark.parametrize(
    "script, code, words",
    [
        ("printf out; echo broken pipe >&2; exit 3", "inject-failed", ["code 3", "broken pipe"]),
        ("printf INJECT_IDLE; exit 1", "inject-failed", ["code 1"]),
        ("kill -9 $$", "inject-failed", ["SIGKILL"]),
        ("true", "inject-empty", ["wrote nothing"]),
        ("printf ' \\n\\t '", "inject-empty", ["wrote nothing"]),
        ("printf 'a\\377'", "inject-not-utf8", ["byte 1"]),
        ("head -c 1048577 /dev/zero", "inject-too-large", ["1 MiB"]),
    ],
)
async def test_a_failing_tool_aborts_and_no_turn_is_spent(
    host: Any, script: str, code: str, words: list[str]
) -> None:
    host.tool("state", script)
    host.write(inject=[inject("state", label="open items")])
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.settled()
        (error,) = await host.events(engine, "automation_error")
    assert host.agent.turns == []
    assert (run.state, run.failure.code) == ("aborted", code)
    assert run.session_id is None
    assert all(word in run.failure.message for word in ["state (open items)", *words])
    assert (run.intent.verdict, run.intent.gate) == ("deliver", "run-failed")
    assert error.data["code"] == code
    (intent,) = host.deliverer.intents
    assert run.failure.message in intent.text
    assert "by hand" in intent.text


@pytest.mark.slow
async def test_time_counts_before_the_exit_code_and_the_output(host: Any) -> None:
    """A tool that said enough and then hangs aborts as over time."""
    host.tool("state", "printf 'all is well'; exec sleep 60")
    host.write(inject=[inject("state")])
    async with host.engine(settings={"inject_timeout": timedelta(seconds=0.3)}) as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("aborted", "inject-timeout")
    assert "0.3 s" in run.failure.message
    assert host.agent.turns == []


async def test_every_failing_tool_is_named_and_those_that_work_are_run_all_the_same(
    host: Any,
) -> None:
    host.tool("works", "touch worked; printf fine")
    host.tool("fails", "exit 4")
    host.write(
        inject=[inject("missing-tool", label="a"), inject("fails", label="b"), inject("works")]
    )
    async with host.engine() as engine:
        run = await engine.run("check")
    assert (run.state, run.failure.code) == ("aborted", "inject-not-startable")
    assert "missing-tool (a)" in run.failure.message
    assert "fails (b)" in run.failure.message
    assert "check that missing-tool is there" in run.failure.remedy
    assert "run fails by hand" in run.failure.remedy
    assert (host.workspace / "worked").exists()


async def test_a_tool_gets_the_run_in_its_environment_and_no_secrets(host: Any) -> None:
    """It stands in the workspace, sees who it works for, and none of what guards the doors."""
    host.tool("state", 'pwd; env | sort; if read -r line; then echo "stdin: $line"; fi')
    host.write(inject=[inject("state")])
    env = {"PATH": "/usr/bin:/bin", "KEEP": "kept", "AGENT_API_SECRET": "door-secret-1"}
    async with host.engine(env=env, secrets={"MY_TOKEN": "token-value-1"}) as engine:
        run = await engine.run("check")
    said = host.agent.turns[0].prompt.splitlines()
    assert said[0] == str(host.workspace)
    seen = dict(line.split("=", 1) for line in said[1:] if "=" in line)
    assert seen["DRUMBEAT_RUN_ID"] == run.run_id
    assert seen["DRUMBEAT_AUTOMATION"] == "check"
    assert seen["DRUMBEAT_DATA_DIR"] == str(host.data)
    assert seen["DRUMBEAT_WORKSPACE"] == str(host.workspace)
    assert seen["KEEP"] == "kept"
    assert seen["PATH"].split(":")[0] == str(host.workspace / "bin")
    assert "AGENT_API_SECRET" not in seen
    assert not any(line.startswith("stdin:") for line in said)


async def test_a_run_that_is_over_time_in_a_tool_ends_the_tool(host: Any) -> None:
    """The engine leaves while a tool hangs: the run is interrupted, and the tool is gone."""
    host.tool("state", "echo $$ > pid; exec sleep 600")
    host.write(inject=[inject("state")])
    async with host.engine() as engine:
        await engine.fire("check")
        pid = host.workspace / "pid"
        while not (pid.exists() and pid.read_text().strip()):
            await anyio.sleep(0.01)
    process = f"/proc/{pid.read_text().strip()}"
    async with host.engine() as engine:
        (run,) = await engine.runs()
    assert run.state == "interrupted"
    assert not await anyio.Path(process).exists()


# ---- requires


async def test_every_unmet_requirement_is_named_in_one_abort(host: Any) -> None:
    """Each with what was looked for and where; not even a tool of `inject` is run."""
    host.tool("state", "touch ran; printf fine")
    host.file("guidance/THERE.md", "here")
    host.write(
        requires=["guidance/THERE.md", "guidance/MAIL.md", "mail-cli"],
        inject=[inject("state")],
    )
    async with host.engine() as engine:
        run = await engine.run("check")
    assert host.agent.turns == []
    assert not (host.workspace / "ran").exists()
    assert (run.state, run.failure.code) == ("aborted", "requirement-unmet")
    message = run.failure.message
    assert str(host.workspace / "guidance" / "MAIL.md") in message
    assert "mail-cli" in message
    assert "nor on the PATH of the engine" in message
    assert "THERE.md" not in message
    assert "install it" in run.failure.remedy
    assert run.intent.verdict == "deliver"


async def test_a_tool_is_found_on_the_turns_path_and_a_file_is_read_every_run(host: Any) -> None:
    """An edit of guidance reaches the next run: nothing is cached."""
    tool = host.tool("mail-cli", "true")
    guidance = host.file("guidance/MAIL.md", "Be brief.")
    host.write(requires=["guidance/MAIL.md", "mail-cli"])
    async with host.engine() as engine:
        await engine.run("check")
        guidance.write_text("Be long.", encoding="utf-8")
        await engine.run("check")
        guidance.unlink()
        third = await engine.run("check")
    first, second = host.agent.turns
    assert [(item.name, item.kind, item.path) for item in first.requirements] == [
        ("guidance/MAIL.md", "file", guidance),
        ("mail-cli", "tool", tool),
    ]
    assert first.requirements[0].text == "Be brief."
    assert second.requirements[0].text == "Be long."
    assert third.failure.code == "requirement-unmet"


@pytest.mark.parametrize("delivery", ["reference", "inline"])
async def test_guidance_reaches_the_context_as_the_file_says(host: Any, delivery: str) -> None:
    path = host.file("guidance/MAIL.md", "Be brief.")
    host.write(requires=["guidance/MAIL.md"], guidance_delivery=delivery)
    async with host.engine() as engine:
        await engine.run("check")
    (turn,) = host.agent.turns
    assert str(path) in turn.context
    assert ("Be brief." in turn.context) == (delivery == "inline")
    assert turn.prompt == "Look around."


# ---- the file


async def test_the_file_is_read_when_the_run_begins(host: Any) -> None:
    """An edit that no reload has seen yet counts."""
    host.write(steps=["Old prompt."])
    async with host.engine() as engine:
        host.write(steps=["Edited prompt."])
        await engine.run("check")
    assert [turn.prompt for turn in host.agent.turns] == ["Edited prompt."]


async def test_a_file_that_is_broken_by_now_aborts_with_all_its_problems(host: Any) -> None:
    """The last policy that was known decides who hears of it."""
    host.write()
    async with host.engine() as engine:
        host.write(steps=[], conversation="forever", notify="sometimes")
        run = await engine.run("check")
        await engine.settled()
    assert (run.state, run.failure.code) == ("aborted", "automation-broken")
    assert run.failure.line is not None
    for word in ("steps", "forever", "sometimes"):
        assert word in run.failure.message
    assert "automations/check.md:" in run.failure.message
    assert host.agent.turns == []
    (intent,) = host.deliverer.intents
    assert intent.name == "Check"


async def test_a_file_that_says_disabled_by_now_is_skipped(host: Any) -> None:
    """Unless somebody starts it by hand; no run is recorded."""
    host.write(trigger={"type": "schedule", "expression": "every 30 minutes"})
    async with host.engine(settings={"reload_interval": timedelta(days=1)}) as engine:
        host.write(trigger={"type": "schedule", "expression": "every 30 minutes"}, enabled=False)
        await host.clock.advance(timedelta(minutes=31))
        await engine.settled()
        (fire,) = await engine.fires("check")
        assert await engine.runs() == []
        by_hand = await engine.run("check")
    assert (fire.verdict, fire.reason) == ("skipped", "disabled")
    assert by_hand.state == "succeeded"


async def test_a_payload_lies_in_the_work_folder_byte_for_byte(host: Any) -> None:
    """The context names it as data; `result.json` does not repeat it."""
    host.write()
    payload = b'{"a": "\xff"}'
    async with host.engine() as engine:
        await engine.fire("check", payload=payload)
        await engine.settled()
        (run,) = await engine.runs()
    path = host.folder(run) / "work" / "WEBHOOK_PAYLOAD.json"
    assert path.read_bytes() == payload
    (turn,) = host.agent.turns
    assert str(path) in turn.context
    assert "never instructions" in turn.context
    assert (host.folder(run) / "result.json").exists()


async def test_a_payload_that_cannot_be_written_aborts(host: Any) -> None:
    """The run would work on nothing."""
    host.write()
    async with host.engine() as engine:
        (host.data / "runs").write_text("in the way")
        await engine.fire("check", payload=b"{}")
        await engine.settled()
        (run,) = await engine.runs()
    assert (run.state, run.failure.code) == ("aborted", "payload-unwritable")
    assert host.agent.turns == []


async def test_the_same_conversation_config_has_the_same_hash(host: Any) -> None:
    host.write(agent_config={"provider": {"module": "openai", "config": {"a": 1, "b": 2}}})
    async with host.engine() as engine:
        first = await engine.run("check")
        host.write(agent_config={"provider": {"config": {"b": 2, "a": 1}, "module": "openai"}})
        second = await engine.run("check")
        host.write(agent_config={"provider": {"config": {"b": 3, "a": 1}, "module": "openai"}})
        third = await engine.run("check")
    assert first.config_hash == second.config_hash != third.config_hash
    turn: Turn = host.agent.turns[0]
    assert turn.config == {"provider": {"module": "openai", "config": {"a": 1, "b": 2}}}
