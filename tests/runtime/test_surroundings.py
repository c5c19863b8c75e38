"""Packs and configuration around the automation files, as runs meet them."""

import json
from typing import Any

import pytest

from drumbeat import WorkspaceError
from drumbeat.testing import ScriptedAgent, drive

pytestmark = pytest.mark.anyio

CARD = "Use `items list` to see what is open.\r\nNever close one yourself.\n"


def pack(host: Any, folder: str = "drumpacks/items", tools: str = "[items]") -> None:
    """Write a pack with one tool, and list it."""
    card = host.file(f"{folder}/drumpack.md", "")
    head = f"---\npack_format: 1\nname: items\ndescription: Items\ntools: {tools}\n---\n"
    card.write_bytes((head + CARD).encode())
    tool = host.file(f"{folder}/bin/items", "#!/bin/sh\necho from the pack\n")
    tool.chmod(0o755)
    host.file("drumpacks.txt", f"# what the steps use\n{folder}\n")


async def test_a_packs_tool_runs_and_its_card_is_in_the_context(host: Any) -> None:
    """The card stands verbatim, and the pack's `bin/` comes before the workspace's."""
    pack(host)
    host.tool("items", "echo from the workspace")
    host.write(requires=["items"], inject=[{"argv": ["items"], "label": "items"}])
    async with host.engine() as engine:
        run = await host.fire(engine)
        status = await engine.status()
    first, *_ = host.agent.turns
    assert run.state == "succeeded"
    assert first.prompt == "from the pack\n"
    assert CARD in first.context
    (requirement,) = first.requirements
    assert (requirement.kind, requirement.text) == ("tool", CARD)
    assert [known.name for known in status.workspace.packs] == ["items"]
    assert status.path[:2] == (
        host.workspace / "drumpacks" / "items" / "bin",
        host.workspace / "bin",
    )


async def test_an_edited_card_counts_from_the_next_run_on(host: Any) -> None:
    """After a reload, as an edited file does."""
    pack(host)
    host.write(requires=["items"])
    async with host.engine() as engine:
        card = host.workspace / "drumpacks" / "items" / "drumpack.md"
        card.write_text(card.read_text("utf-8") + "One more rule.\n", "utf-8")
        await engine.reload()
        await host.fire(engine)
    assert "One more rule.\n" in host.agent.turns[0].context


async def test_wrong_packs_and_configuration_are_refused_at_the_start_all_at_once(
    host: Any,
) -> None:
    """Each problem names what to mend, and nothing was written."""
    pack(host, tools="[items, missing]")
    host.file("agent-config.yaml", "default:\n  providr: {module: openai}\n")
    host.write()
    with pytest.raises(WorkspaceError) as refused:
        async with host.engine():
            pass
    codes = [problem.code for problem in refused.value.problems]
    assert codes == ["pack-tool-missing", "agent-config-unknown-key"]
    assert not host.data.exists()


async def test_what_goes_wrong_later_is_an_event_and_leaves_what_was_known(host: Any) -> None:
    """One event per change; the runs go on with the last configuration that could be read."""
    host.file("agent-config.yaml", "default:\n  provider: {module: openai}\n")
    host.write()
    async with host.engine() as engine:
        host.file("agent-config.yaml", "default:\n  provider: {module: null}\n")
        await engine.reload()
        await engine.reload()
        run = await host.fire(engine)
        (event,) = await host.events(engine, "workspace_error")
        faults = (await engine.status()).faults
        host.file("agent-config.yaml", "default:\n  provider: {module: other}\n")
        await engine.reload()
        assert (await engine.status()).faults == ()
        after = await host.fire(engine)
    assert [fault.code for fault in faults] == ["agent-config-null"]
    assert event.data["code"] == "agent-config-null"
    assert host.agent.turns[0].config == {"provider": {"module": "openai"}}
    assert host.agent.turns[-1].config == {"provider": {"module": "other"}}
    assert run.config_hash != after.config_hash


async def test_layers_are_merged_and_another_provider_rotates(host: Any) -> None:
    """Operator, then workspace, then the file; another model alone keeps the conversation."""
    operator = host.file("operator.yaml", "provider: {config: {default_model: a, region: eu}}\n")
    host.file("agent-config.yaml", "default:\n  provider: {module: one}\n")
    env = {"PATH": "/usr/bin:/bin", "AMPLIFIER_AGENT_CONFIG": str(operator)}
    host.agent = ScriptedAgent(default="done")
    host.write(agent_config={"provider": {"config": {"default_model": "b"}}})
    async with host.engine(env=env) as engine:
        first = await host.fire(engine)
        assert host.agent.turns[-1].config == {
            "provider": {"module": "one", "config": {"default_model": "b", "region": "eu"}}
        }
        host.write(agent_config={"provider": {"config": {"default_model": "c"}}})
        second = await host.fire(engine)
        host.file("agent-config.yaml", "default:\n  provider: {module: two}\n")
        third = await host.fire(engine)
    assert (second.session_id, second.rotation) == (first.session_id, None)
    assert third.rotation == "provider-changed"
    assert third.session_id != first.session_id


async def test_profiles_are_not_for_scheduled_runs(host: Any) -> None:
    """The scheduled path reads `default:` only."""
    text = json.dumps({"default": {"debug": {"a": 1}}, "profiles": {"fast": {"debug": {"a": 2}}}})
    host.file("agent-config.yaml", text)
    host.write(trigger={"type": "schedule", "expression": "every hour"})
    async with host.engine() as engine:
        await drive(engine, until=host.clock.now().replace(hour=14))
    assert [turn.config for turn in host.agent.turns] == [{"debug": {"a": 1}}] * 2
