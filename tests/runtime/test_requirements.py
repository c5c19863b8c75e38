from pathlib import Path

import pytest

from drumbeat.core.model import Automation, Pack, Requirement, Step
from drumbeat.errors import Problem
from drumbeat.runtime.files import MAX_FILE
from drumbeat.runtime.requirements import check_requirements

pytestmark = pytest.mark.anyio


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "guidance").mkdir(parents=True)
    return folder


def tool(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


async def check(
    workspace: Path, *requires: str, packs: tuple[Pack, ...] = (), path: tuple[Path, ...] = ()
) -> tuple[tuple[Requirement, ...], tuple[Problem, ...]]:
    automation = Automation(
        slug="a",
        name="A",
        kind="automation",
        steps=(Step(id="s", prompt="p"),),
        requires=requires,
        path=Path("automations/a.md"),
    )
    return await check_requirements(automation, workspace=workspace, packs=packs, search_path=path)


async def test_a_file_is_read_verbatim_and_afresh(workspace: Path) -> None:
    file = workspace / "guidance" / "EMAIL.md"
    for text in ("\ufeff one\r\n", "two"):
        file.write_bytes(text.encode())
        met, unmet = await check(workspace, "guidance/EMAIL.md")
        assert unmet == ()
        expected = Requirement(name="guidance/EMAIL.md", kind="file", path=file, text=text)
        assert met == (expected,)


async def test_an_empty_file_is_there(workspace: Path) -> None:
    (workspace / "guidance" / "EMAIL.md").touch()
    met, _ = await check(workspace, "guidance/EMAIL.md")
    assert met[0].text == ""


async def test_a_name_without_a_slash_is_a_file_first(workspace: Path, tmp_path: Path) -> None:
    (workspace / "notes").write_text("mine")
    tool(tmp_path / "bin" / "notes")
    met, _ = await check(workspace, "notes", path=(tmp_path / "bin",))
    assert (met[0].kind, met[0].text) == ("file", "mine")


async def test_a_folder_does_not_hide_a_tool(workspace: Path, tmp_path: Path) -> None:
    found = tool(tmp_path / "bin" / "guidance")
    met, unmet = await check(workspace, "guidance", path=(tmp_path / "bin",))
    assert met == (Requirement(name="guidance", kind="tool", path=found, text=""),)
    assert unmet == ()


async def test_the_text_of_a_tool_is_its_own_pack_s_card(workspace: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    packs = tuple(
        Pack(
            name=f.name, description="d", folder=f, tools=("t",), activity={}, card=f"card {f.name}"
        )
        for f in folders
    )
    tool(folders[1] / "bin" / "t")
    plain = tool(tmp_path / "base" / "u")
    path = (*(folder / "bin" for folder in folders), plain.parent)
    met, unmet = await check(workspace, "t", "u", packs=packs, path=path)
    assert [(one.name, one.text) for one in met] == [("t", "card two"), ("u", "")]
    assert unmet == ()


async def test_all_entries_are_checked_and_each_says_what_was_looked_for_and_where(
    workspace: Path, tmp_path: Path
) -> None:
    (workspace / "good").write_text("x")
    (workspace / "guidance" / "latin").write_bytes(b"caf\xe9")
    (workspace / "guidance" / "huge").write_bytes(b"x" * (MAX_FILE + 1))
    (workspace / "guidance" / "out").symlink_to(tmp_path)
    (tmp_path / "secret").write_text("x")
    (workspace / "escape").symlink_to(tmp_path / "secret")
    bin_folder = tool(tmp_path / "bin" / "plain", mode=0o644).parent
    wanted = {
        "guidance/GONE.md": ("requirement-missing", str(workspace / "guidance" / "GONE.md")),
        "guidance/": ("requirement-not-a-file", "guidance"),
        "guidance/latin": ("requirement-not-utf8", "byte 3"),
        "guidance/huge": ("requirement-too-large", "1 MiB"),
        "guidance/out/secret": ("requirement-outside", str(tmp_path / "secret")),
        "../secret": ("requirement-outside", "not a path inside"),
        "/etc/hostname": ("requirement-outside", "not a path inside"),
        "..": ("requirement-outside", "not a path inside"),
        "escape": ("requirement-outside", str(tmp_path / "secret")),
        "guidance/a\0b": ("requirement-unreadable", "null byte"),
        "mail-cli": ("requirement-tool-missing", "nor on the PATH of the engine"),
        "guidance": ("requirement-tool-missing", "is no regular file, and no such tool"),
        "plain": ("requirement-tool-missing", f"{bin_folder / 'plain'} is not executable"),
    }
    met, unmet = await check(workspace, *wanted, "good", path=(bin_folder,))
    assert [one.name for one in met] == ["good"]
    for problem, (name, (code, said)) in zip(unmet, wanted.items(), strict=True):
        assert problem.code == code
        assert repr(name) in problem.message
        assert said in problem.message
        assert problem.remedy
        assert problem.path == Path("automations/a.md")
    assert str(bin_folder) not in next(p.message for p in unmet if "'mail-cli'" in p.message)


async def test_without_a_search_path_the_problem_says_so(workspace: Path) -> None:
    _, unmet = await check(workspace, "mail-cli")
    assert "an empty search path" in unmet[0].message


async def test_an_entry_that_stands_twice_is_met_once(workspace: Path) -> None:
    (workspace / "good").write_text("x")
    met, unmet = await check(workspace, "good", "good", "gone", "gone")
    assert (len(met), len(unmet)) == (1, 1)


async def test_nothing_required_is_met(workspace: Path) -> None:
    assert await check(workspace) == ((), ())
