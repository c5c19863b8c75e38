"""Skills in three layers, and what is laid into a job's folder (spec, sections 6 and 13.5)."""

import os
from pathlib import Path
from typing import Any

import pytest

from drumbeat import AgentError, DrumbeatError, WorkspaceError
from drumbeat.runtime import skills
from drumbeat.runtime.skills import Layers, lay_skills

pytestmark = pytest.mark.anyio


def skill(folder: Path, name: str, text: str = "Do it.\n") -> Path:
    made = folder / name
    made.mkdir(parents=True)
    (made / "SKILL.md").write_text(text)
    return made


def job(host: Any, slug: str = "stock") -> None:
    host.file(f"jobs/{slug}.md", "---\n---\nCount.\n")


async def laid(source: Path, folder: Path) -> Path:
    """Lay one skill, and return where it is then."""
    folder.mkdir(exist_ok=True)
    (path,) = (await lay_skills({source.name: source}, folder)).paths
    return path


# ---- layers


async def test_the_workspace_goes_before_the_engine_and_an_earlier_folder_before_a_later(
    host: Any, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, names in ((one, "ab"), (two, "abc"), (host.workspace / "skills", "a")):
        for name in names:
            skill(folder, name)
    host.write()
    async with host.engine(skills=[one, str(two)]) as engine:
        await engine.run("check")
    (turn,) = host.agent.turns
    assert turn.skills == (host.workspace / "skills" / "a", one / "b", two / "c")
    assert turn.cwd == host.workspace


async def test_without_any_there_are_none(host: Any) -> None:
    host.write()
    job(host)
    async with host.engine() as engine:
        await engine.run("check")
        await engine.run("stock")
    assert [turn.skills for turn in host.agent.turns] == [(), ()]
    assert not (host.agent.turns[1].cwd / "skills").exists()


async def test_what_begins_with_a_dot_or_underscore_and_files_are_no_skills(host: Any) -> None:
    for name in (".git", "_draft"):
        (host.workspace / "skills" / name).mkdir(parents=True)
    host.file("skills/README.md", "Ours.\n")
    assert await Layers(workspace=host.workspace).skills() == {}


async def test_a_folder_that_the_host_names_wrongly_is_refused_at_the_start(
    host: Any, tmp_path: Path
) -> None:
    """All that is wrong is said at once."""
    (tmp_path / "empty" / "nothing").mkdir(parents=True)
    one = skill(tmp_path, "one")
    with pytest.raises(WorkspaceError) as caught:
        async with host.engine(skills=[tmp_path / "gone", tmp_path / "empty", one]):
            pass
    assert [problem.code for problem in caught.value.problems] == ["skill-broken"] * 3
    assert [problem.path for problem in caught.value.problems] == [
        tmp_path / "gone",
        tmp_path / "empty" / "nothing",
        one,
    ]


def test_one_folder_is_no_sequence_of_them(host: Any, tmp_path: Path) -> None:
    for given in ("skills", tmp_path):
        with pytest.raises(TypeError, match="sequence of folders"):
            host.engine(skills=given)


async def test_a_damaged_skill_of_the_workspace_aborts_runs_and_no_start(host: Any) -> None:
    """It is read at each run: an agent without it would do other work than was meant."""
    host.write()
    job(host)
    broken = host.file("skills/mail/Skill.md", "Misspelt.\n")
    host.file("skills/report/SKILL.md", " \n")
    async with host.engine() as engine:
        runs = [await engine.run("check"), await engine.run("stock")]
        broken.rename(broken.with_name("SKILL.md"))
        host.file("skills/report/SKILL.md", "Report.\n")
        runs.append(await engine.run("stock"))
    assert [run.state for run in runs] == ["aborted", "aborted", "succeeded"]
    failure = runs[0].failure
    assert failure.code == "skill-broken"
    assert "skills/mail" in failure.message
    assert "skills/report" in failure.message
    assert "begin with _" in failure.remedy
    assert len(host.agent.turns) == 1


def _outside(folder: Path) -> None:
    skill(folder.parent.parent / "elsewhere", "mail")
    (folder / "mail").symlink_to(folder.parent.parent / "elsewhere" / "mail")


def _large(folder: Path) -> None:
    skill(folder, "mail", "x" * (1024 * 1024 + 1))


def _unnamed(folder: Path) -> None:
    skill(folder, "mäil")


def _nowhere(folder: Path) -> None:
    (folder / "mail").symlink_to("nowhere")


def _a_skill_itself(folder: Path) -> None:
    (folder / "SKILL.md").write_text("One.\n")


def _no_folder(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("a file")


def _dangling(folder: Path) -> None:
    folder.rmdir()
    folder.symlink_to("nowhere")


@pytest.mark.parametrize(
    "make, words",
    [
        (_outside, "out of the folder"),
        (_large, "1 MiB"),
        (_unnamed, "no name of a skill"),
        (_nowhere, "no file"),
        (_a_skill_itself, "folder of skills"),
        (_no_folder, "cannot be read"),
        (_dangling, "no such folder"),
    ],
)
async def test_what_is_no_skill_is_said(tmp_path: Path, make: Any, words: str) -> None:
    folder = tmp_path / "workspace" / "skills"
    folder.mkdir(parents=True)
    make(folder)
    with pytest.raises(DrumbeatError) as caught:
        await Layers(workspace=folder.parent).skills()
    assert caught.value.problem.code == "skill-broken"
    assert words in caught.value.problem.message


async def test_answers_and_questions_have_skills_and_do_without_no_damaged_one(host: Any) -> None:
    made = skill(host.workspace / "skills", "mail")
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
        await engine.reply(run.run_id, "And?")
        await engine.ask("What is it?")
        (made / "SKILL.md").unlink()
        with pytest.raises(AgentError) as reply:
            await engine.reply(run.run_id, "And?")
        with pytest.raises(AgentError) as ask:
            await engine.ask("What is it?")
    assert [turn.skills for turn in host.agent.turns] == [(made,)] * 3
    assert (reply.value.code, ask.value.code) == ("skill-broken", "skill-broken")


# ---- laid into a job's folder


async def test_a_job_finds_copies_in_its_own_folder(host: Any) -> None:
    """What the agent does to them reaches neither the workspace nor the next run."""
    source = host.workspace / "skills" / "mail"
    skill(source.parent, "mail", "Write.\n")
    job(host)
    async with host.engine() as engine:
        run = await engine.run("stock")
        (copy,) = host.agent.turns[0].skills
        (copy / "SKILL.md").write_text("Changed.\n")
        await engine.reply(run.run_id, "And?")
        await engine.run("stock")
    _, reply, again = host.agent.turns
    assert copy == host.folder(run) / "work" / "skills" / "mail"
    assert reply.skills == (copy,)
    assert (source / "SKILL.md").read_text() == "Write.\n"
    assert (again.skills[0] / "SKILL.md").read_text() == "Write.\n"


async def test_a_copy_has_everything_and_the_bits_that_let_it_run(tmp_path: Path) -> None:
    source = skill(tmp_path, "mail")
    (source / "bin").mkdir()
    tool = source / "bin" / "send"
    tool.write_bytes(b"\x00\xff")
    tool.chmod(0o4755)
    (source / "same").symlink_to("bin/send")
    (source / ".git").mkdir()
    (source / ".git" / "HEAD").write_text("x")
    copy = await laid(source, tmp_path / "work")
    assert {path.relative_to(copy).as_posix() for path in copy.rglob("*")} == {
        "SKILL.md",
        "bin",
        "bin/send",
        "same",
    }
    assert (copy / "same").read_bytes() == b"\x00\xff"
    assert not (copy / "same").is_symlink()
    assert (copy / "bin" / "send").stat().st_mode & 0o7777 == 0o700
    assert (copy / "SKILL.md").stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in (copy, copy / "bin")} == {0o700}


def _link_out(folder: Path) -> None:
    (folder / "extra").symlink_to("/etc/hostname")


def _link_to_nothing(folder: Path) -> None:
    (folder / "extra").symlink_to("nowhere")


def _link_to_folder(folder: Path) -> None:
    (folder / "extra").symlink_to(".")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "extra")


def _many(folder: Path) -> None:
    for number in range(1_000):
        (folder / str(number)).touch()


def _heavy(folder: Path) -> None:
    with (folder / "extra").open("wb") as file:
        file.truncate(17 * 1024 * 1024)


@pytest.mark.parametrize(
    "make, words",
    [
        (_link_out, "extra leads out of it"),
        (_link_to_nothing, "extra leads nowhere"),
        (_link_to_folder, "extra is neither"),
        (_pipe, "extra is neither"),
        (_many, "16 MiB"),
        (_heavy, "16 MiB"),
    ],
)
async def test_what_cannot_be_copied_is_said(tmp_path: Path, make: Any, words: str) -> None:
    source = skill(tmp_path, "mail")
    make(source)
    with pytest.raises(DrumbeatError) as caught:
        await laid(source, tmp_path / "work")
    assert caught.value.problem.code == "skill-broken"
    assert words in caught.value.problem.message


async def test_what_the_folder_has_stays_and_what_is_in_the_way_is_said(tmp_path: Path) -> None:
    source, work = skill(tmp_path, "mail"), tmp_path / "work"
    theirs = skill(work / "skills", "mail", "Theirs.\n")
    assert await laid(source, work) == theirs
    assert (theirs / "SKILL.md").read_text() == "Theirs.\n"
    (theirs / "SKILL.md").unlink()
    with pytest.raises(DrumbeatError) as caught:
        await laid(source, work)
    assert caught.value.problem.code == "skill-blocked"


@pytest.mark.parametrize("target", ["..", ".", ".git", "nowhere", "/tmp", "a-file", "skills"])
async def test_no_link_leads_skills_out_of_the_folder(tmp_path: Path, target: str) -> None:
    source, work = skill(tmp_path, "mail"), tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / "a-file").touch()
    (work / "skills").symlink_to(target)
    with pytest.raises(DrumbeatError) as caught:
        await laid(source, work)
    assert caught.value.problem.code == "skill-blocked"
    assert not (tmp_path / "mail" / "mail").exists()


async def test_a_folder_that_takes_nothing_is_said(tmp_path: Path) -> None:
    source = skill(tmp_path, "mail")
    with pytest.raises(DrumbeatError) as caught:
        await lay_skills({"mail": source}, tmp_path / "gone")
    assert caught.value.problem.code == "work-folder-unwritable"


async def test_a_skill_that_goes_while_it_is_copied_is_said(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(DrumbeatError) as caught:
        await lay_skills({"mail": tmp_path / "gone"}, tmp_path / "work")
    assert caught.value.problem.code == "skill-broken"


# ---- what goes away while it is laid


async def test_a_file_that_vanishes_while_it_is_laid_is_no_trouble_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever edits the skill is told, and not to make room where the agent works."""
    source = skill(tmp_path / "ours", "stock")
    (source / "late.md").write_text("It goes.\n")
    copy = skills._copy_file

    def and_take_the_next(*given: Any) -> None:
        (source / "late.md").unlink(missing_ok=True)
        copy(*given)

    monkeypatch.setattr(skills, "_copy_file", and_take_the_next)
    with pytest.raises(DrumbeatError, match=r"late\.md cannot be read: No such file") as caught:
        await laid(source, tmp_path / "work")
    assert caught.value.problem.code == "skill-broken"
    assert "leave its files in their places" in caught.value.problem.remedy


async def test_a_file_that_grows_while_it_is_laid_stays_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that somebody writes into without end."""
    source = skill(tmp_path / "ours", "stock")
    copy, sizes = skills._copy_file, list[int]()

    def and_grow(chunks: Any, target: Path, mode: int) -> None:
        os.truncate(source / "SKILL.md", 17 * 1024 * 1024)
        try:
            copy(chunks, target, mode)
        finally:
            sizes.append(target.stat().st_size)

    monkeypatch.setattr(skills, "_copy_file", and_grow)
    with pytest.raises(DrumbeatError, match="16 MiB") as caught:
        await laid(source, tmp_path / "work")
    assert caught.value.problem.code == "skill-broken"
    assert [size <= 16 * 1024 * 1024 for size in sizes] == [True]


async def test_half_of_the_skills_is_not_left_where_there_is_no_room_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was laid may be what fills the disk, on which the failure has to be written."""
    ours = {name: skill(tmp_path / "ours", name) for name in ("mail", "stock")}
    work = tmp_path / "work"
    skill(work / "skills", "theirs")
    copy = skills._copy_file

    def and_fill(chunks: Any, target: Path, mode: int) -> None:
        copy(chunks, target, mode)
        if target.parent.name == "stock":
            raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(skills, "_copy_file", and_fill)
    with pytest.raises(DrumbeatError, match="No space left") as caught:
        await lay_skills(ours, work)
    assert caught.value.problem.code == "work-folder-unwritable"
    assert "free space" in caught.value.problem.remedy
    assert [path.name for path in (work / "skills").iterdir()] == ["theirs"]


async def test_a_file_that_cannot_be_read_to_its_end_is_no_trouble_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network file system that goes away."""
    source = skill(tmp_path / "ours", "stock")

    def unreadable(path: Path) -> Any:
        return os.fdopen(os.open(path, os.O_WRONLY), "rb", buffering=0)

    monkeypatch.setattr(skills, "open_regular", unreadable)
    with pytest.raises(DrumbeatError, match=r"SKILL\.md cannot be read: Bad file") as caught:
        await laid(source, tmp_path / "work")
    assert caught.value.problem.code == "skill-broken"
    assert "let the engine's user read" in caught.value.problem.remedy
