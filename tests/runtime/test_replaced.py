"""Files of the workspace that become something else: nobody waits for them, nothing leaks in."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from drumbeat import Turn
from drumbeat.testing import ScriptedAgent

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

OUTSIDE = "provider: {config: {default_model: outside-4711}}  # from outside-4711\n"
FILES = {
    "automations/check.md": "automation-broken",
    "guidance/rules.md": "requirement-unmet",
    "prompts/judgment.md": "judgment-failed",
    "agent-config.yaml": "",
    "drumpacks.txt": "",
    "packs/mail/drumpack.md": "",
    "packs/mail/bin/send": "",
    "SYSTEM.md": "system-prompt-unreadable",
    "skills/look/SKILL.md": "skill-broken",
    "bin/tell": "inject-not-startable",
}
"""What runs need, and what one says that cannot have it; "" where the last version holds."""


def to_outside(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def to_device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def to_itself(path: Path, outside: Path) -> None:
    path.symlink_to(path.name)


def pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, outside: Path) -> None:
    path.mkdir()


def write(host: Any) -> None:
    host.write(
        requires=["guidance/rules.md"], notify="auto", inject=[{"argv": ["tell"], "label": "told"}]
    )
    host.file("jobs/work.md", "---\n---\nWork.\n")
    host.file("guidance/rules.md", "Rules.\n")
    host.file("prompts/judgment.md", "NOTHING_TO_REPORT or what to say.\n")
    host.file("agent-config.yaml", "default: {provider: {config: {a: 1}}}\n")
    host.file("drumpacks.txt", "packs/mail\n")
    card = "---\npack_format: 1\nname: mail\ndescription: Mail.\ntools: [send]\n---\nIt sends.\n"
    host.file("packs/mail/drumpack.md", card)
    host.file("packs/mail/bin/send", "#!/bin/sh\n").chmod(0o755)
    host.file("SYSTEM.md", "Be brief.\n")
    host.file("skills/look/SKILL.md", "Look.\n")
    host.tool("tell", "echo told")


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # what it waits for are disks
@pytest.mark.parametrize("become", [to_outside, to_device, to_itself, pipe, folder])
async def test_what_a_file_becomes_holds_up_nobody_and_brings_nothing_in(
    host: Any, tmp_path: Path, become: Callable[[Path, Path], None]
) -> None:
    """Each file that a run reads, one after the other, with looks of the engine in between.

    A run that cannot have what it needs says so, and when the file is back all is as it was.
    """
    outside = tmp_path / "outside"
    outside.write_text(OUTSIDE)
    outside.chmod(0o755)
    write(host)
    turns: list[Turn] = []

    def take(turn: Turn) -> str:
        turns.append(turn)
        return "Done."

    agent = ScriptedAgent(default=take)
    async with host.engine(agent=agent) as engine:

        async def run(slug: str) -> Any:
            with anyio.fail_after(20):
                return await engine.run(slug)

        for name, code in FILES.items():
            path = host.workspace / name
            kept = tmp_path / "kept"
            path.rename(kept)
            become(path, outside)
            for _ in range(2):
                with anyio.fail_after(20):
                    await engine.reload()
            runs = [await run("check"), await run("work")]
            said = {each.failure.code for each in runs if each.failure is not None}
            said |= {each.intent.gate for each in runs} & {"judgment-failed"}
            assert said == ({code} if code else set()), name
            (path.rmdir if become is folder else path.unlink)()
            kept.rename(path)
            with anyio.fail_after(20):
                await engine.reload()
        assert [(await run(slug)).state for slug in ("check", "work")] == ["succeeded"] * 2
        assert (await engine.status()).faults == ()
        left = [await engine.runs(), [event async for event in engine.events(follow=False)]]
    assert "outside-4711" not in str(left)
    assert "outside-4711" not in str(turns)
