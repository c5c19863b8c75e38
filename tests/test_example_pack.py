"""The pack that people copy keeps the contract, and its tool does what its card says."""

import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path, PurePath
from textwrap import dedent

import pytest

from drumbeat import lint_automation, run_inject, validate_automation_content
from drumbeat.core.model import InjectOutcome, InjectSpec, Pack
from drumbeat.runtime.packs import load_packs
from drumbeat.runtime.requirements import check_requirements
from drumbeat.runtime.search_path import search_path

EXAMPLE = Path(__file__).parent.parent / "examples" / "pack-to-copy"
README = (EXAMPLE / "README.md").read_text("utf-8")

pytestmark = pytest.mark.anyio


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace into which the pack was copied as its page says."""
    shutil.copytree(EXAMPLE, tmp_path / "drumpacks" / "items")
    (line,) = re.findall(r"^   (drumpacks/.*)$", README, re.MULTILINE)
    (tmp_path / "drumpacks.txt").write_text(f"{line}\n")
    return tmp_path


async def the_pack(workspace: Path) -> Pack:
    (pack,), problems = await load_packs(workspace)
    assert problems == ()
    return pack


async def call(workspace: Path, *argv: str) -> InjectOutcome:
    pack = await the_pack(workspace)
    path = search_path(workspace=workspace, packs=(pack,), base=os.environ["PATH"])
    env = {"PATH": os.pathsep.join(map(str, path)), "DRUMBEAT_WORKSPACE": str(workspace)}
    return await run_inject(InjectSpec(argv=("items", *argv), label="x"), cwd="/", env=env)


async def test_the_pack_loads_and_its_automation_is_given_the_card(workspace: Path) -> None:
    """The automation of the page has no findings, and its requirement is met by the pack."""
    pack = await the_pack(workspace)
    assert (pack.name, pack.tools) == ("items", ("items",))
    assert pack.activity == {"items": "Looking at the open items"}
    (written,) = re.findall(r"```markdown\n(.*?)```", README, re.DOTALL)
    path = PurePath("automations/open-items.md")
    automation = validate_automation_content(dedent(written), path=path)
    now = datetime(2026, 3, 2, tzinfo=UTC)
    assert lint_automation(dedent(written), path=path, zone=UTC, now=now) == []
    (met,), unmet = await check_requirements(
        automation,
        workspace=workspace,
        packs=(pack,),
        search_path=search_path(workspace=workspace, packs=(pack,), base="/usr/bin"),
    )
    assert unmet == ()
    assert met.text == pack.card
    assert automation.inject[0].argv[0] == pack.tools[0]


async def test_the_tool_keeps_a_list(workspace: Path) -> None:
    """What is added is listed, and what is done is gone."""
    assert (await call(workspace, "state")).kind == "idle"
    assert (await call(workspace, "list")).text == "complete: yes\n"
    for item in ("call Ana", "pay\nthe  invoice", "50% * 'x'"):
        assert (await call(workspace, "add", item)).code == "inject-empty"  # it prints nothing
    listing = "1  call Ana\n2  pay the  invoice\n3  50% * 'x'\n"
    assert (await call(workspace, "state")).text == listing
    assert (await call(workspace, "list")).text == f"{listing}complete: yes\n"
    await call(workspace, "done", "2")
    assert (await call(workspace, "state")).text == "1  call Ana\n2  50% * 'x'\n"
    assert sorted(path.name for path in workspace.iterdir()) == [
        "drumpacks",
        "drumpacks.txt",
        "items.txt",
    ]


@pytest.mark.parametrize(
    "argv", [(), ("lst",), ("add",), ("add", " \n"), ("done",), ("done", "2"), ("done", ".")]
)
async def test_the_tool_refuses_what_it_does_not_understand(
    workspace: Path, argv: tuple[str, ...]
) -> None:
    """A wrong call changes nothing, and says why."""
    await call(workspace, "add", "call Ana")
    refused = await call(workspace, *argv)
    assert (refused.kind, refused.exit_code) == ("abort", 2)
    assert refused.stderr.startswith("items: ")
    assert (workspace / "items.txt").read_text() == "call Ana\n"
