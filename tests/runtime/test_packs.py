import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Literal

import pytest

from drumbeat.core.context import render_context
from drumbeat.core.model import Automation, Pack, Step, Workspace
from drumbeat.errors import Problem
from drumbeat.runtime import packs as module
from drumbeat.runtime.pack_cache import PackCache
from drumbeat.runtime.packs import load_packs, pack_findings
from drumbeat.runtime.requirements import check_requirements
from drumbeat.runtime.search_path import search_path

pytestmark = pytest.mark.anyio

CARD = "\nCall `{0}`.\r\n"
LIST = PurePath("drumpacks.txt")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def card(name: str, *tools: str, text: str | None = None, extra: str = "") -> bytes:
    listed = ", ".join(tools)
    front = f"pack_format: 1\nname: {name}\ndescription: d\ntools: [{listed}]\n{extra}"
    body = CARD.format(tools[0]) if text is None else text
    return f"---\n{front}---\n{body}".encode()


def pack(folder: Path, *tools: str, name: str | None = None) -> Path:
    """A pack that nothing is wrong with."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "drumpack.md").write_bytes(card(name or folder.name, *tools))
    for tool in tools:
        program(folder / "bin" / tool)
    return folder


def write_list(workspace: Path, *lines: str | Path) -> None:
    (workspace / "drumpacks.txt").write_text("".join(f"{line}\n" for line in lines))


def listed(workspace: Path, *tools: str) -> Path:
    """The one pack of a workspace."""
    write_list(workspace, "drumpacks/mail")
    return pack(workspace / "drumpacks" / "mail", *tools)


async def only_problem(workspace: Path) -> Problem:
    packs, (problem,) = await load_packs(workspace)
    assert packs == ()
    assert problem.remedy
    return problem


def place(problem: Problem) -> tuple[str, str, int | None, int | None]:
    return problem.code, str(problem.path), problem.line, problem.column


IN_CARD = "drumpacks/mail/drumpack.md"


# ---- the list


async def test_without_a_list_there_are_no_packs(workspace: Path) -> None:
    pack(workspace / "drumpacks" / "mail", "mailbox")
    assert await load_packs(workspace) == ((), ())


async def test_packs_come_in_the_order_of_the_list_from_anywhere(
    workspace: Path, tmp_path: Path
) -> None:
    elsewhere = pack(tmp_path / "shared" / "notes", "note", "jot")
    mail = pack(workspace / "drumpacks" / "mail", "mailbox")
    above = pack(tmp_path / "above", "up")
    write_list(workspace, elsewhere, "drumpacks/mail", "../above")
    packs, problems = await load_packs(workspace)
    assert problems == ()
    assert packs[0] == Pack(
        name="notes",
        description="d",
        folder=elsewhere,
        tools=("note", "jot"),
        activity={},
        card="\nCall `note`.\r\n",
    )
    assert [each.folder for each in packs] == [elsewhere, mail, above]


async def test_comments_blank_lines_spaces_crlf_and_a_byte_order_mark_do_not_count(
    workspace: Path,
) -> None:
    for name in ("mail", "a b", "c#d"):
        pack(workspace / "drumpacks" / name, f"tool-{name[0]}", name=name[0])
    (workspace / "drumpacks.txt").write_bytes(
        b"\xef\xbb\xbf# packs\r\n\r\n  drumpacks/mail/ # mail\r\n\t\r\n  # x\r\n"
        b"drumpacks/a b\t#y\r\ndrumpacks/c#d"
    )
    packs, problems = await load_packs(workspace)
    assert problems == ()
    assert [each.folder.name for each in packs] == ["mail", "a b", "c#d"]


async def test_a_link_to_a_folder_is_followed_so_that_the_pack_stays_the_one_that_was_read(
    workspace: Path, tmp_path: Path
) -> None:
    target = pack(tmp_path / "v1", "mailbox")
    (workspace / "current").symlink_to(target)
    write_list(workspace, "current")
    (read,), problems = await load_packs(workspace)
    assert problems == ()
    assert read.folder == target


@pytest.mark.parametrize(
    "line, remedy",
    [
        ("drumpacks/gone", "create the folder"),
        ("drumpacks/mail/drumpack.md/x", "create the folder"),
        ("~/mail", "variables stand for themselves"),
        ("$HOME/mail", "variables stand for themselves"),
        ('"drumpacks/mail"', "variables stand for themselves"),
        ("drumpacks/mail\x0bx", "one folder a line"),
    ],
)
async def test_a_folder_that_is_not_there_is_refused_at_its_line(
    workspace: Path, line: str, remedy: str
) -> None:
    pack(workspace / "drumpacks" / "mail", "mailbox")
    write_list(workspace, "# packs", f"  {line}")
    problem = await only_problem(workspace)
    assert place(problem) == ("pack-missing", "drumpacks.txt", 2, 3)
    assert str(workspace)[:20] in problem.message
    assert "\x0b" not in problem.message
    assert remedy in problem.remedy


async def test_all_lines_are_judged_and_the_good_packs_come_back(workspace: Path) -> None:
    pack(workspace / "drumpacks" / "mail", "mailbox")
    write_list(workspace, "gone", "drumpacks/mail", "gone/too")
    packs, problems = await load_packs(workspace)
    assert [each.name for each in packs] == ["mail"]
    assert [(each.code, each.line) for each in problems] == [
        ("pack-missing", 1),
        ("pack-missing", 3),
    ]


async def test_a_list_of_more_folders_than_anybody_has_is_refused_unseen(workspace: Path) -> None:
    """Each would be looked for on the disk, at every start."""
    listed(workspace, "mailbox")
    write_list(workspace, "drumpacks/mail", *(f"a{number}" for number in range(199)))
    packs, problems = await load_packs(workspace)
    assert (len(packs), len(problems)) == (1, 199)
    write_list(workspace, "drumpacks/mail", "# a comment", *(f"a{number}" for number in range(200)))
    problem = await only_problem(workspace)
    assert place(problem) == ("packs-too-many", "drumpacks.txt", 202, 1)


async def test_a_folder_with_an_endless_name_is_shown_in_part(workspace: Path) -> None:
    write_list(workspace, "long/" * 2000)
    problem = await only_problem(workspace)
    assert len(str(problem)) < 600
    assert "…" in problem.message


async def test_a_folder_that_stands_twice_is_refused_however_it_is_written(workspace: Path) -> None:
    mail = pack(workspace / "drumpacks" / "mail", "mailbox")
    (workspace / "link").symlink_to(mail)
    write_list(workspace, "drumpacks/mail", "./drumpacks/../drumpacks/mail/", mail, "link")
    packs, problems = await load_packs(workspace)
    assert len(packs) == 1
    assert [place(each) for each in problems] == [
        ("pack-listed-twice", "drumpacks.txt", line, 1) for line in (2, 3, 4)
    ]
    assert all("line 1" in each.message for each in problems)


async def test_a_file_is_no_folder(workspace: Path) -> None:
    listed(workspace, "mailbox")
    write_list(workspace, IN_CARD)
    problem = await only_problem(workspace)
    assert place(problem) == ("pack-not-a-folder", "drumpacks.txt", 1, 1)
    assert problem.remedy == "name the folder that drumpack.md lies in"


async def test_a_folder_that_cannot_stand_on_a_path_is_refused(workspace: Path) -> None:
    pack(workspace / "a:b", "mailbox", name="mail")
    write_list(workspace, "a:b")
    problem = await only_problem(workspace)
    assert place(problem) == ("pack-folder-unusable", "drumpacks.txt", 1, 1)


async def test_links_that_lead_in_a_circle_are_refused(workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    write_list(workspace, "a")
    problem = await only_problem(workspace)
    assert place(problem) == ("file-unreadable", "drumpacks.txt", 1, 1)
    write_list(workspace, "x" * 5000)
    assert (await only_problem(workspace)).code == "file-unreadable"


async def test_a_list_that_is_no_text_is_refused(workspace: Path) -> None:
    file = workspace / "drumpacks.txt"
    file.write_bytes(b"ok\ncaf\xe9\n")
    assert place(await only_problem(workspace)) == ("not-utf8", "drumpacks.txt", 2, 4)
    file.write_bytes(b"a\0b")
    assert place(await only_problem(workspace)) == ("nul-byte", "drumpacks.txt", 1, 2)


async def test_a_list_that_cannot_be_read_is_not_taken_for_none(
    workspace: Path, tmp_path: Path
) -> None:
    file = workspace / "drumpacks.txt"
    file.mkdir()
    assert (await only_problem(workspace)).code == "file-not-a-file"
    file.rmdir()
    file.symlink_to("gone")
    assert (await only_problem(workspace)).code == "file-missing"
    file.unlink()
    (tmp_path / "list").touch()
    file.symlink_to(tmp_path / "list")
    problem = await only_problem(workspace)
    assert (problem.code, problem.path) == ("file-outside", LIST)


# ---- the card


async def test_a_folder_without_a_card_is_refused(workspace: Path) -> None:
    listed(workspace, "mailbox").joinpath("drumpack.md").rename(workspace / "x")
    problem = await only_problem(workspace)
    assert place(problem) == ("pack-card-missing", "drumpacks.txt", 1, 1)
    assert "write a drumpack.md there" in problem.remedy


async def test_a_card_of_another_name_and_a_folder_of_packs_are_recognised(workspace: Path) -> None:
    mail = listed(workspace, "mailbox")
    write_list(workspace, "drumpacks")
    problem = await only_problem(workspace)
    assert problem.code == "pack-card-missing"
    assert problem.remedy == "name the folder that holds it, such as drumpacks/mail"
    write_list(workspace, "drumpacks/mail")
    (mail / "drumpack.md").rename(mail / "Drumpack.md")
    assert "did you mean 'Drumpack.md'?" in (await only_problem(workspace)).message


async def test_a_card_that_is_a_link_stays_inside_the_pack(workspace: Path, tmp_path: Path) -> None:
    mail = listed(workspace, "mailbox")
    file = (mail / "drumpack.md").rename(mail / "card.md")
    (mail / "drumpack.md").symlink_to("card.md")
    assert (await load_packs(workspace))[1] == ()
    file.rename(tmp_path / "card.md")
    assert place(await only_problem(workspace)) == ("file-missing", IN_CARD, None, None)
    (mail / "drumpack.md").unlink()
    (mail / "drumpack.md").symlink_to(tmp_path / "card.md")
    assert place(await only_problem(workspace)) == ("file-outside", IN_CARD, None, None)


@pytest.mark.parametrize(
    "content, expected",
    [
        (card("mail", "mailbox", text=" \n"), ("pack-card-empty", 7, 1)),
        (b"---\npack_format: 3\n---\n", ("pack-format-unknown", 2, 14)),
        (card("mail", "mailbox", extra="toolz: x\n"), ("unknown-key", 6, 1)),
        (b"x", ("front-matter-missing", 1, 1)),
        (card("mail", "mailbox", text="x" * 1024 * 1024), ("file-too-large", 1, 1)),
        (card("mail", "mailbox") + b"\xff", ("not-utf8", 9, 1)),
    ],
)
async def test_a_broken_card_is_refused_at_its_place(
    workspace: Path, content: bytes, expected: tuple[object, ...]
) -> None:
    (listed(workspace, "mailbox") / "drumpack.md").write_bytes(content)
    code, path, line, column = place(await only_problem(workspace))
    assert ((code, line, column), path) == (expected, IN_CARD)


async def test_a_card_outside_the_workspace_is_named_as_the_list_names_it(
    workspace: Path, tmp_path: Path
) -> None:
    folder = pack(tmp_path / "mail", "mailbox")
    (folder / "drumpack.md").write_bytes(b"x")
    write_list(workspace, "../mail")
    assert (await only_problem(workspace)).path == PurePath("../mail/drumpack.md")
    write_list(workspace, folder)
    assert (await only_problem(workspace)).path == folder / "drumpack.md"


# ---- tools and bin/


async def test_a_tool_that_is_not_there_is_refused_at_its_place_in_the_card(
    workspace: Path,
) -> None:
    mail = listed(workspace, "mailbox", "sender")
    (mail / "bin" / "sender").rename(mail / "bin" / "sendr")
    (mail / "bin" / "sendr").chmod(0o644)
    problem = await only_problem(workspace)
    assert place(problem) == ("pack-tool-missing", IN_CARD, 5, 18)
    assert "did you mean 'sendr'?" in problem.message


async def test_an_executable_that_is_not_listed_is_refused(workspace: Path) -> None:
    mail = listed(workspace, "mailbox")
    program(mail / "bin" / "extra")
    program(mail / "bin" / ".hidden")
    _, problems = await load_packs(workspace)
    assert [place(each) for each in problems] == [("pack-tool-undeclared", IN_CARD, 5, 9)] * 2
    assert str(mail / "bin" / ".hidden") in problems[0].message
    assert "add 'extra' to `tools`" in problems[1].remedy


async def test_what_cannot_be_run_is_no_tool(workspace: Path) -> None:
    mail = listed(workspace, "mailbox")
    program(mail / "bin" / "README.md", mode=0o644)
    (mail / "bin" / "lib").mkdir()
    (mail / "bin" / "nowhere").symlink_to("gone")
    assert (await load_packs(workspace))[1] == ()


async def test_a_tool_that_is_not_executable_is_refused_with_the_command_to_run(
    workspace: Path,
) -> None:
    mail = listed(workspace, "mailbox")
    (mail / "bin" / "mailbox").chmod(0o644)
    problem = await only_problem(workspace)
    assert place(problem) == ("pack-tool-not-executable", IN_CARD, 5, 9)
    assert problem.remedy == f"run: chmod +x {mail / 'bin' / 'mailbox'}"


async def test_a_tool_is_a_file_of_the_pack_itself(workspace: Path, tmp_path: Path) -> None:
    mail = listed(workspace, "a", "b", "c", "d", "e", "f")
    for tool in "abcde":
        (mail / "bin" / tool).unlink()
    (mail / "bin" / "a").symlink_to(program(tmp_path / "outside"))
    (mail / "bin" / "b").symlink_to("gone")
    (mail / "bin" / "c").mkdir()
    (mail / "bin" / "d").symlink_to(program(mail / "lib" / "d.py"))
    (mail / "bin" / "e").symlink_to("e")
    _, problems = await load_packs(workspace)
    assert [(each.code, each.column) for each in problems] == [
        ("pack-tool-outside", 9),
        ("pack-tool-missing", 12),
        ("pack-tool-missing", 15),
        ("file-unreadable", 21),
    ]
    assert str(tmp_path / "outside") in problems[0].message


async def test_a_pack_without_bin_is_refused_once(workspace: Path, tmp_path: Path) -> None:
    mail = listed(workspace, "a", "b")
    (mail / "bin").rename(tmp_path / "bin")
    assert place(await only_problem(workspace)) == ("pack-tool-missing", IN_CARD, 5, 9)
    (mail / "bin").touch()
    assert place(await only_problem(workspace)) == ("pack-tool-missing", IN_CARD, 5, 9)
    (mail / "bin").unlink()
    (mail / "bin").symlink_to(tmp_path / "bin")
    assert place(await only_problem(workspace)) == ("pack-tool-outside", IN_CARD, 5, 9)
    (mail / "bin").unlink()
    (mail / "bin").symlink_to("bin")
    assert (await only_problem(workspace)).code == "file-unreadable"


async def test_names_that_are_no_text_are_shown_all_the_same(workspace: Path) -> None:
    mail = listed(workspace, "mailbox")
    program(Path(os.fsdecode(os.fsencode(mail / "bin") + b"/caf\xe9")))
    problem = await only_problem(workspace)
    assert problem.code == "pack-tool-undeclared"
    assert str(problem).encode()


# ---- between packs


async def test_two_packs_with_one_tool_are_refused(workspace: Path) -> None:
    pack(workspace / "one", "a", "shared")
    pack(workspace / "two", "shared", "b")
    write_list(workspace, "one", "two")
    packs, (problem,) = await load_packs(workspace)
    assert [each.name for each in packs] == ["one"]
    assert place(problem) == ("pack-tool-duplicate", "two/drumpack.md", 5, 9)
    assert "the pack 'one' has a tool 'shared', too" in problem.message


async def test_two_packs_of_one_name_are_refused_case_aside(workspace: Path) -> None:
    pack(workspace / "one", "a", name="mail")
    pack(workspace / "two", "b", name="Mail")
    write_list(workspace, "one", "two")
    _, (problem,) = await load_packs(workspace)
    assert place(problem) == ("pack-name-duplicate", "two/drumpack.md", 3, 7)
    assert str(workspace / "one") in problem.message


async def test_a_pack_counts_for_the_later_ones_even_when_something_is_wrong_with_it(
    workspace: Path,
) -> None:
    one = pack(workspace / "one", "a")
    (one / "bin" / "a").chmod(0o644)
    pack(workspace / "two", "a", name="ONE")
    write_list(workspace, "one", "two")
    packs, problems = await load_packs(workspace)
    assert packs == ()
    assert [each.code for each in problems] == [
        "pack-tool-not-executable",
        "pack-name-duplicate",
        "pack-tool-duplicate",
    ]


async def test_a_tool_of_the_workspace_that_a_pack_hides_is_found(workspace: Path) -> None:
    listed(workspace, "mailbox", "sender", "folder")
    own = program(workspace / "bin" / "mailbox")
    program(workspace / "bin" / "sender", mode=0o644)
    (workspace / "bin" / "folder").mkdir()
    packs, problems = await load_packs(workspace)
    assert problems == ()
    (finding,) = await pack_findings(
        Workspace(path=workspace, automations=(), problems={}, packs=packs)
    )
    assert (finding.code, finding.path) == ("pack-tool-shadows", PurePath("bin/mailbox"))
    assert finding.severity == "warning"
    assert str(own) in finding.message


async def test_a_workspace_that_is_a_pack_itself_hides_nothing(workspace: Path) -> None:
    pack(workspace, "mailbox", name="mail")
    write_list(workspace, ".")
    packs, problems = await load_packs(workspace)
    assert problems == ()
    known = Workspace(path=workspace, automations=(), problems={}, packs=packs)
    assert await pack_findings(known) == []


# ---- while an engine runs


async def test_an_edited_card_is_read_again(workspace: Path) -> None:
    mail = listed(workspace, "mailbox")
    before, _ = await load_packs(workspace)
    cache = PackCache(workspace)
    assert (await cache.reload(before)).packs == before
    (mail / "drumpack.md").write_bytes(card("mail", "mailbox", text="Another card."))
    again = await cache.reload(before)
    assert again.problems == ()
    assert [each.card for each in again.packs] == ["Another card."]


async def test_a_pack_that_broke_leaves_all_as_they_were(workspace: Path) -> None:
    mail = listed(workspace, "mailbox")
    before, _ = await load_packs(workspace)
    cache = PackCache(workspace)
    (mail / "bin" / "mailbox").chmod(0o644)
    again = await cache.reload(before)
    assert again.packs == before
    assert [each.code for each in again.problems] == ["pack-tool-not-executable"]


async def test_other_folders_wait_for_a_restart(workspace: Path) -> None:
    listed(workspace, "mailbox")
    before, _ = await load_packs(workspace)
    cache = PackCache(workspace)
    pack(workspace / "notes", "note")
    for lines in (["drumpacks/mail", "notes"], ["notes"], []):
        write_list(workspace, *lines)
        again = await cache.reload(before)
        assert again.packs == before
        (problem,) = again.problems
        assert (problem.code, problem.path) == ("packs-changed", LIST)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[PurePath]:
    """The files that were read, in order."""
    seen: list[PurePath] = []
    real = module.read_inside

    def counted(folder: Path, name: PurePath) -> bytes:
        seen.append(name)
        return real(folder, name)

    monkeypatch.setattr(module, "read_inside", counted)
    return seen


async def test_packs_that_are_unchanged_are_not_read_again(
    workspace: Path, read: list[PurePath]
) -> None:
    """From the second look on: an edit within one tick of the clock leaves no trace at first."""
    mail = listed(workspace, "mailbox")
    before, _ = await load_packs(workspace)
    cache = PackCache(workspace)
    for _ in range(2):
        read.clear()
        assert (await cache.reload(before)).packs == before
        assert LIST in read
        assert PurePath("drumpack.md") in read
    read.clear()
    for _ in range(3):
        assert (await cache.reload(before)).packs == before
    assert read == []
    (mail / "drumpack.md").write_bytes(card("mail", "mailbox", text="Another card."))
    assert [each.card for each in (await cache.reload(before)).packs] == ["Another card."]


async def test_a_workspace_without_packs_costs_one_look(
    workspace: Path, read: list[PurePath]
) -> None:
    cache = PackCache(workspace)
    for _ in range(2):
        assert (await cache.reload(())).problems == ()
    read.clear()
    assert (await cache.reload(())).problems == ()
    assert read == []
    listed(workspace, "mailbox")
    (problem,) = (await cache.reload(())).problems
    assert problem.code == "packs-changed"


def _undeclared(mail: Path) -> None:
    program(mail / "bin" / "other")


def _takes_the_right(mail: Path) -> None:
    (mail / "bin" / "mailbox").chmod(0o644)


def _takes_the_tool(mail: Path) -> None:
    (mail / "bin" / "mailbox").unlink()


def _takes_the_card(mail: Path) -> None:
    (mail / "drumpack.md").unlink()


def _takes_the_folder(mail: Path) -> None:
    mail.rename(mail.with_name("elsewhere"))


@pytest.mark.parametrize(
    "change, code",
    [
        (_undeclared, "pack-tool-undeclared"),
        (_takes_the_right, "pack-tool-not-executable"),
        (_takes_the_tool, "pack-tool-missing"),
        (_takes_the_card, "pack-card-missing"),
        (_takes_the_folder, "pack-missing"),
    ],
)
async def test_whatever_changes_of_a_pack_is_seen(
    workspace: Path, change: Callable[[Path], None], code: str
) -> None:
    mail = listed(workspace, "mailbox")
    before, _ = await load_packs(workspace)
    cache = PackCache(workspace)
    for _ in range(3):
        assert (await cache.reload(before)).problems == ()
    change(mail)
    for _ in range(3):
        again = await cache.reload(before)
        assert (again.packs, [each.code for each in again.problems]) == (before, [code])


# ---- what a run makes of them


async def test_a_required_tool_is_found_in_its_pack_and_its_card_reaches_the_agent_verbatim(
    workspace: Path, tmp_path: Path
) -> None:
    """The whole way: list, card, search path, requirement, context."""
    text = "\n# Mail\r\n\n  `mailbox list`\n---\n</tool>\n\n"
    target = pack(tmp_path / "v1", "mailbox", name="mail")
    (target / "drumpack.md").write_bytes(card("mail", "mailbox", text=text))
    (workspace / "current").symlink_to(target)
    program(workspace / "bin" / "mailbox")
    write_list(workspace, "current")
    packs, problems = await load_packs(workspace)
    assert problems == ()
    path = search_path(workspace=workspace, packs=packs, base="/usr/bin")
    assert path == (target / "bin", workspace / "bin", Path("/usr/bin"))
    automation = Automation(
        slug="a",
        name="A",
        kind="automation",
        steps=(Step(id="s", prompt="p"),),
        requires=("mailbox",),
    )
    (met,), unmet = await check_requirements(
        automation, workspace=workspace, packs=packs, search_path=path
    )
    assert unmet == ()
    assert (met.kind, met.path, met.text) == ("tool", target / "bin" / "mailbox", text)
    deliveries: tuple[Literal["reference", "inline"], ...] = ("reference", "inline")
    for delivery in deliveries:
        context = render_context(
            local=datetime(2026, 3, 2, tzinfo=UTC),
            zone="UTC",
            cause="manual",
            workspace=workspace,
            data_dir=workspace,
            run_folder=workspace,
            memory_dir=workspace,
            requirements=(met,),
            guidance_delivery=delivery,
        )
        assert text in context
