import os
from collections.abc import Callable
from pathlib import Path, PurePath

import anyio
import pytest

import drumbeat.runtime.config_files as module
from drumbeat.core.config_layers import ConfigLayers, WorkspaceConfig, read_workspace_config
from drumbeat.errors import Problem, WorkspaceError
from drumbeat.runtime.config_files import ConfigFiles, load_config_layers
from drumbeat.runtime.files import read_inside

pytestmark = pytest.mark.anyio

SHOWN = PurePath("agent-config.yaml")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def operator(tmp_path: Path) -> Path:
    file = tmp_path / "operator.yaml"
    file.write_text("debug: operator\nmcp: [o]\n")
    return file


def put(workspace: Path, text: str = "default: {debug: workspace}\n") -> Path:
    """Put the workspace's file in place of what is there, as editors do."""
    beside = workspace / "agent-config.yaml.tmp"
    beside.write_text(text)
    return beside.replace(workspace / "agent-config.yaml")


def env(operator: Path | str) -> dict[str, str]:
    return {"AMPLIFIER_AGENT_CONFIG": str(operator)}


async def problems_of(workspace: Path, environment: dict[str, str]) -> tuple[Problem, ...]:
    with pytest.raises(WorkspaceError) as caught:
        await load_config_layers(workspace, environment)
    assert all(problem.remedy for problem in caught.value.problems)
    return caught.value.problems


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The contents of the workspace's file that were parsed, in order."""
    seen: list[bytes] = []

    def watch(data: bytes, *, path: PurePath) -> WorkspaceConfig:
        seen.append(data)
        return read_workspace_config(data, path=path)

    monkeypatch.setattr(module, "read_workspace_config", watch)
    return seen


# ---- reading once


async def test_without_files_the_layers_are_empty(workspace: Path) -> None:
    for environment in ({}, env(""), env(" ")):
        assert await load_config_layers(workspace, environment) == ConfigLayers()


async def test_both_files_make_the_layers(workspace: Path, operator: Path) -> None:
    put(workspace, "default: {debug: workspace}\nprofiles: {quick: {skills: []}}\n")
    layers = await load_config_layers(workspace, env(operator))
    assert layers == ConfigLayers(
        operator={"debug": "operator", "mcp": ["o"]},
        default={"debug": "workspace"},
        profiles={"quick": {"skills": []}},
    )
    assert layers.resolve(None, "quick") == {"debug": "workspace", "mcp": ["o"], "skills": []}


async def test_the_operator_s_file_may_lie_behind_links(
    workspace: Path, operator: Path, tmp_path: Path
) -> None:
    """As where a volume is swapped by turning one link."""
    (tmp_path / "one").mkdir()
    operator.rename(tmp_path / "one" / "config")
    (tmp_path / "data").symlink_to("one")
    (tmp_path / "config").symlink_to("data/config")
    layers = await load_config_layers(workspace, env(tmp_path / "config"))
    assert layers.operator["debug"] == "operator"


async def test_a_relative_path_counts_from_where_the_process_was(
    workspace: Path, operator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(operator.parent)
    files = ConfigFiles("workspace", env=env(operator.name))
    monkeypatch.chdir("/")
    put(workspace)
    layers = (await files.reload()).layers
    assert (layers.operator["debug"], layers.default["debug"]) == ("operator", "workspace")


async def test_all_problems_of_both_files_are_reported_at_their_places(
    workspace: Path, operator: Path
) -> None:
    operator.write_text("debug: x\nmodel: y\nprovider: {api_key: hunter2}\n")
    put(workspace, "default:\n  mcp: ~\nprofiles:\n  a: {x: 1, token: hunter2}\n")
    problems = await problems_of(workspace, env(operator))
    assert [(each.path, each.line, each.column, each.code) for each in problems] == [
        (operator, 2, 1, "agent-config-unknown-key"),
        (operator, 3, 12, "agent-config-credential"),
        (SHOWN, 2, 8, "agent-config-null"),
        (SHOWN, 4, 7, "agent-config-unknown-key"),
        (SHOWN, 4, 13, "agent-config-credential"),
    ]
    assert "hunter2" not in str(WorkspaceError(problems))


async def test_an_operator_s_file_that_is_not_there_is_a_problem(
    workspace: Path, operator: Path
) -> None:
    for path in (operator.with_name("gone"), operator / "below"):
        (problem,) = await problems_of(workspace, env(path))
        assert (problem.code, problem.path) == ("agent-config-missing", path)
        assert "$AMPLIFIER_AGENT_CONFIG names it" in problem.message
        assert "unset the variable" in problem.remedy


async def test_an_operator_s_file_that_cannot_be_read_is_a_problem(
    workspace: Path, operator: Path
) -> None:
    circle = operator.with_name("circle")
    circle.symlink_to("circle")
    for path, code in (
        (operator.parent, "file-not-a-file"),
        (Path("/"), "file-not-a-file"),
        (Path("/dev/null"), "file-not-a-file"),
        (circle, "file-unreadable"),
        ("a\0b", "file-unreadable"),
    ):
        (problem,) = await problems_of(workspace, env(path))
        assert problem.code == code


async def test_an_operator_s_file_that_goes_away_between_two_looks_is_a_problem(
    workspace: Path, operator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _between(monkeypatch, operator.unlink)
    (problem,) = await problems_of(workspace, env(operator))
    assert problem.code == "agent-config-missing"


def _between(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen after a file was looked at and before it is read."""

    def read(folder: Path, name: PurePath) -> bytes:
        happens()
        return read_inside(folder, name)

    monkeypatch.setattr(module, "read_inside", read)


async def test_a_workspace_s_file_that_goes_away_between_two_looks_is_not_there(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _between(monkeypatch, put(workspace).unlink)
    assert await load_config_layers(workspace, {}) == ConfigLayers()


async def test_the_workspace_s_file_stays_in_the_workspace(workspace: Path, operator: Path) -> None:
    file = workspace / "agent-config.yaml"
    for target, code in (
        (operator, "file-outside"),
        (Path("gone"), "file-missing"),
        (Path("agent-config.yaml"), "file-unreadable"),
        (Path(), "file-not-a-file"),
    ):
        file.symlink_to(target)
        (problem,) = await problems_of(workspace, {})
        assert (problem.code, problem.path) == (code, SHOWN)
        file.unlink()
    (workspace / "config").mkdir()
    put(workspace).rename(workspace / "config" / "agent.yaml")
    file.symlink_to("config/agent.yaml")
    assert (await load_config_layers(workspace, {})).default == {"debug": "workspace"}


@pytest.mark.parametrize("name", ["agent-config.yml", "agent_config.yaml", "agent_config.yml"])
async def test_a_file_of_a_name_like_it_is_a_problem_and_not_silently_left_out(
    workspace: Path, name: str
) -> None:
    put(workspace)
    (workspace / name).write_text("default: {}")
    (problem,) = await problems_of(workspace, {})
    assert (problem.code, problem.path) == ("agent-config-misnamed", PurePath(name))
    assert problem.remedy == "rename it to agent-config.yaml, or take it away"


# ---- reading again


async def test_the_first_reload_reports_what_there_is(workspace: Path) -> None:
    files = ConfigFiles(workspace, env={})
    put(workspace)
    change = await files.reload()
    assert change.error is None
    assert change.layers.default == {"debug": "workspace"}


async def test_an_edit_of_either_file_is_taken(workspace: Path, operator: Path) -> None:
    put(workspace)
    files = ConfigFiles(workspace, env=env(operator))
    before = await files.reload()
    assert await files.reload() == before
    put(workspace, "default: {debug: 2}")
    operator.write_text("debug: 3\nskills: x\n")
    change = await files.reload()
    assert (change.layers.default, change.layers.operator["debug"]) == ({"debug": 2}, 3)
    assert await files.reload() == change


async def test_a_file_that_is_written_anew_with_the_same_words_is_no_change(
    workspace: Path, parsed: list[bytes]
) -> None:
    put(workspace)
    files = ConfigFiles(workspace, env={})
    before = await files.reload()
    put(workspace)
    assert await files.reload() == before
    assert len(parsed) == 1


async def test_a_second_edit_that_leaves_no_trace_in_the_stamp_is_seen(workspace: Path) -> None:
    """Edits within one tick of the file system's clock, to the same length and inode."""
    file = put(workspace, "default: {debug: 1}")
    files = ConfigFiles(workspace, env={})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "stamp_of", lambda info: (1, 1, 1, 1, 1, 1))
        await files.reload()
        for debug in (2, 3):
            file.write_text(f"default: {{debug: {debug}}}")
            assert (await files.reload()).layers.default == {"debug": debug}
        await files.reload()
        file.write_text("default: {debug: 4}")
        assert (await files.reload()).layers.default == {"debug": 3}


async def test_a_file_that_has_not_changed_is_not_read(
    workspace: Path, operator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(workspace)
    files = ConfigFiles(workspace, env=env(operator))
    await files.reload()
    await files.reload()
    reads: list[object] = []
    _between(monkeypatch, lambda: reads.append(1))
    for _ in range(3):
        await files.reload()
        await files.current()
    assert reads == []
    os.utime(operator, ns=(5, 5))
    await files.current()
    assert len(reads) == 1


async def test_a_swapped_volume_is_seen(workspace: Path, operator: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config").write_text(f"debug: {name}\n")
    (tmp_path / "data").symlink_to("one")
    files = ConfigFiles(workspace, env=env(tmp_path / "data" / "config"))
    for _ in range(3):
        assert (await files.reload()).layers.operator == {"debug": "one"}
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "data")
    assert (await files.reload()).layers.operator == {"debug": "two"}


async def test_a_file_that_broke_leaves_both_layers_as_they_were(
    workspace: Path, operator: Path
) -> None:
    put(workspace)
    files = ConfigFiles(workspace, env=env(operator))
    good = (await files.reload()).layers
    put(workspace, "default: {debug: ")
    operator.write_text("debug: newer\n")
    for _ in range(2):
        change = await files.reload()
        assert change.layers == good
        assert change.error is not None
        assert [each.path for each in change.error.problems] == [SHOWN]
    put(workspace)
    mended = await files.reload()
    assert mended.error is None
    assert mended.layers.operator == {"debug": "newer"}


async def test_an_operator_s_file_that_vanished_leaves_all_as_it_was(
    workspace: Path, operator: Path
) -> None:
    files = ConfigFiles(workspace, env=env(operator))
    good = (await files.reload()).layers
    operator.unlink()
    for _ in range(3):
        change = await files.reload()
        assert change.layers == good
        assert change.error is not None
        assert change.error.problem.code == "agent-config-missing"


async def test_a_missing_workspace_file_counts_as_removed_at_the_second_reload_in_a_row(
    workspace: Path,
) -> None:
    put(workspace)
    files = ConfigFiles(workspace, env={})
    await files.reload()
    (workspace / "agent-config.yaml").unlink()
    assert (await files.reload()).layers.default == {"debug": "workspace"}
    put(workspace)
    await files.reload()
    (workspace / "agent-config.yaml").unlink()
    once, twice, thrice = [await files.reload() for _ in range(3)]
    assert once.layers.default == {"debug": "workspace"}
    assert twice.layers == thrice.layers == ConfigLayers()


async def test_a_missing_workspace_takes_nothing_away(workspace: Path, tmp_path: Path) -> None:
    put(workspace)
    files = ConfigFiles(workspace, env={})
    await files.reload()
    workspace.rename(tmp_path / "away")
    for _ in range(3):
        assert (await files.reload()).layers.default == {"debug": "workspace"}


async def test_a_run_sees_an_edit_at_once_and_so_does_the_next_reload(workspace: Path) -> None:
    put(workspace)
    files = ConfigFiles(workspace, env={})
    await files.reload()
    put(workspace, "default: {debug: 2}")
    assert (await files.current()).default == {"debug": 2}
    assert (await files.reload()).layers.default == {"debug": 2}


async def test_a_run_goes_by_the_last_good_layers_and_takes_no_missing_file_for_a_removed_one(
    workspace: Path,
) -> None:
    put(workspace)
    files = ConfigFiles(workspace, env={})
    good = (await files.reload()).layers
    put(workspace, "default: ~")
    assert await files.current() == good
    (workspace / "agent-config.yaml").unlink()
    for _ in range(3):
        assert await files.current() == good
    assert (await files.reload()).layers == good


async def test_concurrent_calls_wait_for_each_other(workspace: Path, parsed: list[bytes]) -> None:
    put(workspace)
    files = ConfigFiles(workspace, env={})
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(files.reload)
            group.start_soon(files.current)
    assert len(parsed) == 1
