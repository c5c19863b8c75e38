import os
import shutil
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import anyio
import pytest

import drumbeat.runtime.workspace as module
from drumbeat.core.automation_file import validate_automation_content
from drumbeat.core.model import Workspace
from drumbeat.errors import AutomationError, NotFound, WorkspaceError
from drumbeat.runtime.files import read_inside
from drumbeat.runtime.workspace import (
    WorkspaceCache,
    WorkspaceChange,
    load_workspace,
    workspace_findings,
)

pytestmark = pytest.mark.anyio

TEXT = """\
---
automation:
  name: {name}
  trigger:
    type: manual
  requires: {requires}
  steps:
    - id: look
      prompt: Look.
---
"""


def text(name: str = "A", requires: str = "[]") -> str:
    return TEXT.format(name=name, requires=requires)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "automations").mkdir(parents=True)
    return folder


def put(root: Path, name: str, content: str | bytes | None = None) -> Path:
    path = root / "automations" / name
    path.write_bytes(content if isinstance(content, bytes) else (content or text()).encode())
    return path


def codes(workspace: Workspace) -> dict[str, list[str]]:
    return {
        str(path): [problem.code for problem in problems]
        for path, problems in workspace.problems.items()
    }


def slugs(workspace: Workspace) -> list[str]:
    return [automation.slug for automation in workspace.automations]


Seen: TypeAlias = tuple[dict[str, str], tuple[str, ...], tuple[Path, ...]]


def seen(change: WorkspaceChange) -> Seen:
    """What loads, by slug and name, and what is listed as removed and as broken."""
    assert change.error is None
    loads = {automation.slug: automation.name for automation in change.workspace.automations}
    return loads, change.removed, change.broken


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[PurePath]:
    """The files that were parsed, in order."""
    seen: list[PurePath] = []

    def watch(data: bytes, *, path: PurePath) -> object:
        seen.append(path)
        return validate_automation_content(data, path=path)

    monkeypatch.setattr(module, "validate_automation_content", watch)
    return seen


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[PurePath]:
    """The files that were opened, in order."""
    seen: list[PurePath] = []

    def watch(folder: Path, name: PurePath) -> bytes:
        seen.append(name)
        return read_inside(folder, name)

    monkeypatch.setattr(module, "read_inside", watch)
    return seen


# ---- reading a workspace once


async def test_files_load_by_slug_and_broken_ones_stop_no_other(root: Path) -> None:
    put(root, "b.md", text("B"))
    put(root, "a.md", text("A"))
    put(root, "broken.md", "---\nautomation:\n  nmae: X\n---\n")
    put(root, "latin.md", b"---\n\xff\n---\n")
    workspace = await load_workspace(root)
    assert slugs(workspace) == ["a", "b"]
    assert workspace.path == root
    assert workspace.packs == ()
    found = workspace.find("b")
    assert found is not None
    assert (found.name, found.path) == ("B", Path("automations/b.md"))
    assert set(workspace.problems) == {Path("automations/broken.md"), Path("automations/latin.md")}
    for path, problems in workspace.problems.items():
        assert {problem.path for problem in problems} == {path}
    assert len(workspace.problems[Path("automations/broken.md")]) > 1


async def test_what_is_no_automation_is_skipped(root: Path) -> None:
    for name in ("README.md", "ReadMe.md", ".hidden.md", "_draft.md", "notes.txt", "a.md~"):
        put(root, name)
    (root / "automations" / "below").mkdir()
    (root / "automations" / "below" / "a.md").write_text(text())
    workspace = await load_workspace(root)
    assert (workspace.automations, workspace.problems) == ((), {})


async def test_a_name_that_is_no_slug_is_a_problem(root: Path) -> None:
    put(root, "two words.md")
    put(root, os.fsdecode(b"caf\xe9.md"))
    put(root, "LOUD.MD")
    workspace = await load_workspace(root)
    assert workspace.automations == ()
    assert codes(workspace) == {
        "automations/LOUD.MD": ["file-suffix"],
        "automations/caf\\xe9.md": ["slug-invalid"],
        "automations/two words.md": ["slug-invalid"],
    }


async def test_slugs_that_differ_only_in_case_are_refused_naming_both(root: Path) -> None:
    put(root, "Mail.md")
    put(root, "mail.md")
    put(root, "mail.MD")
    put(root, "other.md")
    workspace = await load_workspace(root)
    assert slugs(workspace) == ["other"]
    for name in ("Mail.md", "mail.md"):
        (problem,) = workspace.problems[Path("automations", name)]
        assert problem.code == "slug-clash"
        assert "Mail.md" in problem.message
        assert "mail.md" in problem.message


# ---- job files


def put_job(root: Path, name: str, front_matter: str = "", prompt: str = "Sum up.\n") -> Path:
    """Write a job file; `front_matter` is its lines without the marks."""
    path = root / "jobs" / name
    path.parent.mkdir(exist_ok=True)
    lines = f"{front_matter}\n" if front_matter else ""
    path.write_text(f"---\n{lines}---\n{prompt}")
    return path


async def test_a_job_file_is_read_by_its_own_contract(root: Path) -> None:
    put(root, "sorting.md")
    put_job(root, "digest.md", "cron: '0 7 * * *'")
    put_job(root, "by-hand.md", "disabled: true")
    put_job(root, "README.md")
    put_job(root, "misspelt.md", "cronn: '0 7 * * *'")
    workspace = await load_workspace(root)
    assert slugs(workspace) == ["by-hand", "digest", "sorting"]
    assert codes(workspace) == {"jobs/misspelt.md": ["unknown-key"]}
    digest = workspace.find("digest")
    assert digest is not None
    assert (digest.kind, digest.conversation, digest.notify) == ("job", "fresh", "always")
    assert digest.path == Path("jobs/digest.md")
    assert [step.prompt for step in digest.steps] == ["Sum up.\n"]


async def test_a_job_that_begins_to_be_wrong_keeps_its_last_good_version(root: Path) -> None:
    cache = WorkspaceCache(root)
    put_job(root, "digest.md", "cron: '0 7 * * *'")
    await cache.reload()
    put_job(root, "digest.md", "cron: '0 7 * * *'\nrepo: nowhere")
    change = await cache.reload()
    assert change.broken == (Path("jobs/digest.md"),)
    assert len(cache.last_good["digest"].triggers) == 1


async def test_two_files_with_one_slug_clash_across_both_folders(root: Path) -> None:
    put(root, "digest.md")
    put_job(root, "Digest.md", "cron: '0 7 * * *'")
    put_job(root, "other.md")
    cache = WorkspaceCache(root)
    workspace = (await cache.reload()).workspace
    assert slugs(workspace) == ["other"]
    for path in (Path("automations/digest.md"), Path("jobs/Digest.md")):
        (problem,) = workspace.problems[path]
        assert problem.code == "slug-clash"
        assert "automations/digest.md" in problem.message
        assert "jobs/Digest.md" in problem.message
        with pytest.raises(AutomationError):
            await cache.read(path.stem)


async def test_two_jobs_with_one_route_are_both_told(root: Path) -> None:
    put_job(root, "a.md", "webhook: Door")
    put_job(root, "b.md", "webhook: door")
    put_job(root, "c.md", "webhook: window")
    workspace = await load_workspace(root)
    assert codes(workspace) == {
        "jobs/a.md": ["route-clash"],
        "jobs/b.md": ["route-clash"],
    }


async def test_who_shares_a_route_is_not_read_for_a_run_either(root: Path) -> None:
    """As the last look at the folder found it, and until the other file is another or gone."""
    put_job(root, "a.md", "webhook: door")
    put_job(root, "b.md", "webhook: Door")
    cache = WorkspaceCache(root)
    await cache.reload()
    for slug in ("a", "b"):
        with pytest.raises(AutomationError) as caught:
            await cache.read(slug)
        assert [problem.code for problem in caught.value.problems] == ["route-clash"]
    (root / "jobs" / "b.md").unlink()
    await cache.reload()
    assert (await cache.read("a")).slug == "a"


async def test_a_broken_job_says_its_route_all_the_same(root: Path) -> None:
    """So that nobody who sends to it is told that there is none."""
    put_job(root, "half.md", "webhook: 'Door'\nfilter: 'a==1")
    put_job(root, "well.md", "webhook: window")
    cache = WorkspaceCache(root)
    await cache.reload()
    assert cache.said_routes == {"half": "Door"}
    put_job(root, "half.md", "webhook: door")
    await cache.reload()
    assert cache.said_routes == {}


async def test_an_inbox_is_checked_against_the_systems_of_the_host(root: Path) -> None:
    put_job(root, "desk.md", "inbox: imapp:desk@example.org\nallowFrom: '@example.org'")
    path = "jobs/desk.md"
    assert codes(await load_workspace(root)) == {}
    checked = await load_workspace(root, systems={"imap"})
    assert codes(checked) == {path: ["inbox-system-unknown"]}
    with pytest.raises(AutomationError) as caught:
        await WorkspaceCache(root, systems={"imap"}).read("desk")
    assert caught.value.problem.code == "inbox-system-unknown"


# ---- what is no file to read


async def test_only_regular_files_inside_the_workspace_are_read(root: Path, tmp_path: Path) -> None:
    folder = root / "automations"
    (tmp_path / "outside.md").write_text(text())
    (root / "shared.md").write_text(text("shared"))
    (folder / "escape.md").symlink_to(tmp_path / "outside.md")
    (folder / "inside.md").symlink_to("../shared.md")
    (folder / "dangling.md").symlink_to("nowhere.md")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    workspace = await load_workspace(root)
    assert slugs(workspace) == ["inside"]
    assert codes(workspace) == {
        "automations/dangling.md": ["file-missing"],
        "automations/escape.md": ["file-outside"],
        "automations/folder.md": ["file-not-a-file"],
        "automations/pipe.md": ["file-not-a-file"],
    }


async def test_a_huge_file_is_refused_without_being_read_whole(root: Path) -> None:
    with put(root, "huge.md").open("r+b") as file:
        file.truncate(10**12)
    workspace = await load_workspace(root)
    assert list(codes(workspace)) == ["automations/huge.md"]


def no_folder(root: Path) -> Path:
    return root / "nowhere"


def a_file(root: Path) -> Path:
    (root / "file").touch()
    return root / "file"


def an_empty_folder(root: Path) -> Path:
    (root / "empty").mkdir()
    return root / "empty"


def a_file_for_a_folder(root: Path) -> Path:
    (root / "automations").rmdir()
    (root / "automations").touch()
    return root


@pytest.mark.parametrize(
    "make, code",
    [
        (no_folder, "workspace-missing"),
        (a_file, "workspace-not-a-folder"),
        (an_empty_folder, "automations-folder-missing"),
        (a_file_for_a_folder, "workspace-unreadable"),
    ],
)
async def test_a_workspace_that_is_none_is_an_error(
    root: Path, make: Callable[[Path], Path], code: str
) -> None:
    path = make(root)
    with pytest.raises(WorkspaceError) as caught:
        await load_workspace(path)
    (problem,) = caught.value.problems
    assert problem.code == code
    assert str(path) in problem.message
    assert problem.remedy


async def test_a_workspace_of_jobs_alone_is_one(root: Path) -> None:
    (root / "automations").rmdir()
    put_job(root, "digest.md", "cron: '0 7 * * *'")
    assert slugs(await load_workspace(root)) == ["digest"]


# ---- reading it again


async def test_a_cache_reads_nothing_before_the_first_reload(tmp_path: Path) -> None:
    cache = WorkspaceCache(tmp_path / "nowhere")
    assert cache.workspace.automations == ()
    assert cache.last_good == {}


async def test_a_reload_lists_what_is_different(root: Path) -> None:
    cache = WorkspaceCache(root)
    put(root, "a.md", text("A"))
    put(root, "bad.md", "no front matter")
    assert seen(await cache.reload()) == ({"a": "A"}, (), (Path("automations/bad.md"),))
    assert seen(await cache.reload()) == ({"a": "A"}, (), ())
    put(root, "a.md", text("Other"))
    put(root, "b.md", text("B"))
    assert seen(await cache.reload()) == ({"a": "Other", "b": "B"}, (), ())
    assert slugs(cache.workspace) == ["a", "b"]


async def test_a_file_that_breaks_is_listed_once_and_its_last_good_version_kept(
    root: Path,
) -> None:
    cache = WorkspaceCache(root)
    put(root, "a.md", text("Good"))
    await cache.reload()
    put(root, "a.md", "no front matter")
    path = Path("automations/a.md")
    assert seen(await cache.reload()) == ({}, (), (path,))
    assert seen(await cache.reload()) == ({}, (), ())
    assert slugs(cache.workspace) == []
    assert cache.last_good["a"].name == "Good"
    put(root, "a.md", b"\xff")
    assert seen(await cache.reload()) == ({}, (), (path,))
    put(root, "a.md", text("Good"))
    assert seen(await cache.reload()) == ({"a": "Good"}, (), ())


async def test_a_file_is_removed_after_two_reloads_without_it(root: Path) -> None:
    cache = WorkspaceCache(root)
    put(root, "keep.md")
    put(root, "bad.md", "no front matter")
    path = put(root, "a.md")
    await cache.reload()
    path.unlink()
    (root / "automations" / "bad.md").unlink()
    assert seen(await cache.reload()) == ({"a": "A", "keep": "A"}, (), ())
    assert seen(await cache.reload()) == ({"keep": "A"}, ("a", "bad"), ())
    assert cache.workspace.problems == {}
    assert "a" not in cache.last_good
    put(root, "a.md")
    assert seen(await cache.reload()) == ({"a": "A", "keep": "A"}, (), ())


async def test_a_file_that_is_away_for_one_reload_was_never_removed(root: Path) -> None:
    cache = WorkspaceCache(root)
    path = put(root, "a.md")
    for _ in range(3):
        await cache.reload()
        path.rename(root / "away")
        assert seen(await cache.reload()) == ({"a": "A"}, (), ())
        (root / "away").rename(path)
        assert seen(await cache.reload()) == ({"a": "A"}, (), ())
    assert slugs(cache.workspace) == ["a"]


async def test_a_file_renamed_only_in_case_clashes_with_nothing(root: Path) -> None:
    cache = WorkspaceCache(root)
    path = put(root, "Mail.md")
    await cache.reload()
    path.rename(path.with_name("mail.md"))
    assert seen(await cache.reload()) == ({"mail": "A"}, ("Mail",), ())


async def test_an_unchanged_file_is_not_even_opened(
    root: Path, opened: list[PurePath], parsed: list[PurePath]
) -> None:
    """One further look makes sure of a file that was just written; then its stamp is enough."""
    cache = WorkspaceCache(root)
    path = Path("automations/a.md")
    put(root, "a.md")
    for _ in range(4):
        await cache.reload()
    assert opened == [path, path]
    os.utime(root / path, ns=(5, 5))
    for _ in range(4):
        await cache.reload()
    assert opened == [path] * 4
    assert parsed == [path]


async def test_an_edit_that_leaves_no_trace_in_the_stamp_is_seen(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writes of one length within a tick of the file system's clock look alike."""
    monkeypatch.setattr(module, "_stamp", lambda info: (1, 1, info.st_size, 1, 1, 1))
    cache = WorkspaceCache(root)
    put(root, "a.md", text("A"))
    await cache.reload()
    put(root, "a.md", text("B"))
    assert seen(await cache.reload()) == ({"a": "B"}, (), ())


async def test_what_a_link_points_to_is_followed_every_time(root: Path) -> None:
    cache = WorkspaceCache(root)
    (root / "shared.md").write_text(text("A"))
    (root / "automations" / "a.md").symlink_to("../shared.md")
    await cache.reload()
    await cache.reload()
    (root / "shared.md").write_text(text("B"))
    assert seen(await cache.reload()) == ({"a": "B"}, (), ())


async def test_a_folder_that_vanishes_leaves_everything_as_it_was(root: Path) -> None:
    """An unmounted disk is not the wish to have no automations."""
    cache = WorkspaceCache(root)
    (root / "jobs").mkdir()
    put(root, "a.md")
    await cache.reload()
    (root / "automations").rename(root / "away")
    for _ in range(3):
        change = await cache.reload()
        assert change.error is not None
        assert change.error.problem.code == "automations-folder-missing"
        assert slugs(change.workspace) == ["a"]
        with pytest.raises(AutomationError) as caught:
            await cache.read("a")
        assert caught.value.problem.code == "automations-folder-missing"
    (root / "away").rename(root / "automations")
    assert seen(await cache.reload()) == ({"a": "A"}, (), ())


async def test_a_folder_that_vanishes_keeps_its_files_and_lets_the_other_go_on(root: Path) -> None:
    """Until it is back: what is missing from it then is removed after two looks, as any file is."""
    cache = WorkspaceCache(root)
    put(root, "a.md")
    put_job(root, "b.md")
    await cache.reload()
    shutil.rmtree(root / "jobs")
    put(root, "c.md")
    for _ in range(2):
        change = await cache.reload(removing=False)
        assert change.error is not None
        assert change.error.problem.message == f"there is no folder {root / 'jobs'}"
        assert not change.blind
    with pytest.raises(NotFound):
        await cache.read("b")  # it may be back a moment later
    for _ in range(3):
        change = await cache.reload()
        assert (slugs(change.workspace), change.removed) == (["a", "b", "c"], ())
        assert change.error is not None
        assert (await cache.read("c")).slug == "c"
        with pytest.raises(AutomationError) as caught:
            await cache.read("b")
        assert caught.value.problem.code == "automations-folder-missing"
    (root / "jobs").mkdir()
    change = await cache.reload()
    assert (slugs(change.workspace), change.error) == (["a", "b", "c"], None)
    with pytest.raises(NotFound):
        await cache.read("b")
    change = await cache.reload()
    assert (slugs(change.workspace), change.removed) == (["a", "c"], ("b",))


async def test_a_folder_that_comes_back_brings_its_files(root: Path) -> None:
    """However long it was away, and whatever changed in them meanwhile."""
    cache = WorkspaceCache(root)
    put(root, "a.md")
    put_job(root, "b.md")
    put_job(root, "c.md")
    await cache.reload()
    (root / "jobs").rename(root / "away")
    for _ in range(3):
        await cache.reload()
    put(root, "a.md", text(name="B"))
    (root / "away").rename(root / "jobs")
    (root / "jobs" / "c.md").write_text("broken")
    change = await cache.reload()
    assert (slugs(change.workspace), change.removed, change.error) == (["a", "b"], (), None)
    assert set(change.workspace.problems) == {Path("jobs/c.md")}
    assert (await cache.read("b")).slug == "b"


async def test_what_each_event_asks_for_is_worked_out_once_for_each_look(root: Path) -> None:
    """It goes through all files, and senders decide how many events come."""
    cache = WorkspaceCache(root)
    put(root, "a.md")
    put(root, "b.md", "broken")
    await cache.reload()
    assert (cache.slugs, set(cache.last_good)) == ({"a", "b"}, {"a"})
    for name in ("slugs", "last_good", "said_routes", "workspace"):
        assert getattr(cache, name) is getattr(cache, name)


async def test_a_folder_that_cannot_be_read_keeps_its_files_and_no_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = WorkspaceCache(root)
    put(root, "a.md")
    put_job(root, "b.md")
    await cache.reload()
    scan = os.scandir

    def refused(path: Any) -> Any:
        if Path(path).name == "jobs":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr("drumbeat.runtime.listing.os.scandir", refused)
    (root / "automations" / "a.md").unlink()
    put(root, "c.md")
    for _ in range(3):
        change = await cache.reload()
        assert change.error is not None
        assert change.error.problem.code == "workspace-unreadable"
    assert slugs(change.workspace) == ["b", "c"]
    assert (await cache.read("c")).slug == "c"
    with pytest.raises(AutomationError) as caught:
        await cache.read("b")
    assert caught.value.problem.code == "workspace-unreadable"


async def test_a_file_that_cannot_be_examined_is_a_problem_of_its_own(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(info: object) -> None:
        raise PermissionError(13, "Permission denied")

    put(root, "a.md")
    monkeypatch.setattr(module, "_stamp", refuse)
    assert codes(await load_workspace(root)) == {"automations/a.md": ["file-unreadable"]}


async def test_a_file_that_goes_away_while_it_is_read_is_not_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(root, "a.md")

    def remove_first(folder: Path, name: PurePath) -> bytes:
        path.unlink()
        return read_inside(folder, name)

    monkeypatch.setattr(module, "read_inside", remove_first)
    workspace = await load_workspace(root)
    assert (workspace.automations, workspace.problems) == ((), {})

    def gone(info: object) -> None:
        raise FileNotFoundError

    put(root, "a.md")
    monkeypatch.setattr(module, "_stamp", gone)
    workspace = await load_workspace(root)
    assert (workspace.automations, workspace.problems) == ((), {})


async def test_concurrent_reloads_report_each_change_once(root: Path) -> None:
    cache = WorkspaceCache(root)
    put(root, "a.md", "no front matter")
    found: list[tuple[Path, ...]] = []

    async def reload() -> None:
        found.append((await cache.reload()).broken)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(reload)
    assert sorted(found) == [(), (), (), (), (Path("automations/a.md"),)]


# ---- reading one file for a run


async def test_a_run_reads_the_file_as_it_is_at_that_moment(root: Path) -> None:
    cache = WorkspaceCache(root)
    put(root, "a.md", text("A"))
    await cache.reload()
    put(root, "a.md", text("B"))
    assert (await cache.read("a")).name == "B"
    put(root, "a.md", "no front matter")
    with pytest.raises(AutomationError) as caught:
        await cache.read("a")
    assert caught.value.problem.path == Path("automations/a.md")


@pytest.mark.parametrize(
    "slug", ["gone", "", "..", "../automations/a", "A", "a.md", "README", "a\0"]
)
async def test_a_slug_without_a_file_is_not_found(root: Path, slug: str) -> None:
    put(root, "a.md")
    put(root, "README.md")
    with pytest.raises(NotFound):
        await WorkspaceCache(root).read(slug)


async def test_a_file_that_clashes_is_not_run(root: Path) -> None:
    put(root, "a.md")
    put(root, "A.md")
    with pytest.raises(AutomationError) as caught:
        await WorkspaceCache(root).read("a")
    assert [problem.code for problem in caught.value.problems] == ["slug-clash"]


# ---- findings


async def test_an_empty_required_file_is_found(root: Path) -> None:
    (root / "guidance").mkdir()
    (root / "guidance" / "EMPTY.md").write_text(" \n")
    (root / "guidance" / "FULL.md").write_text("x")
    put(root, "a.md", text(requires="[guidance/EMPTY.md, guidance/FULL.md, guidance/NO.md, tool]"))
    (finding,) = await workspace_findings(await load_workspace(root))
    assert (finding.code, finding.severity) == ("required-file-empty", "warning")
    assert "guidance/EMPTY.md" in finding.message
    assert finding.path == Path("automations/a.md")


async def test_a_file_is_looked_at_afresh_at_the_price_of_a_stat(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken is what cannot be run as it lies there; what is away at this moment is missing."""
    path = put(root, "a.md")
    cache = WorkspaceCache(root)
    await cache.reload()
    (known,) = cache.workspace.automations
    assert await cache.file_state(known) == "there"  # read once more: its stamp is not believed yet
    await cache.reload()
    with monkeypatch.context() as patched:
        patched.setattr(module, "read_inside", None)
        assert await cache.file_state(known) == "there"
    put(root, "a.md", "x")
    assert await cache.file_state(known) == "broken"
    path.unlink()
    assert await cache.file_state(known) == "missing"
    path.symlink_to("nowhere.md")
    assert await cache.file_state(known) == "missing"
    path.unlink()
    os.mkfifo(path)
    assert await cache.file_state(known) == "broken"
    path.unlink()
    put(root, "a.md", text(name="B"))
    assert await cache.file_state(known) == "there"
    root.rename(root.with_name("away"))
    assert await cache.file_state(known) == "missing"
    root.write_text("")
    assert await cache.file_state(known) == "there"
