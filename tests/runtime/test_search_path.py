import os
from pathlib import Path

from drumbeat.core.model import Pack
from drumbeat.core.signatures import DOOR_SECRETS
from drumbeat.runtime.search_path import (
    child_env,
    find_executable,
    path_entries,
    search_path,
)


def pack(folder: Path) -> Pack:
    return Pack(name="p", description="d", folder=folder, tools=(), activity={}, card="card")


def tool(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_entries_are_absolute_and_stand_once() -> None:
    """Empty and relative entries would mean another folder in each working folder."""
    assert path_entries("/a::bin:/b:.:/a") == (Path("/a"), Path("/b"))
    assert path_entries("") == ()


def test_packs_come_first_in_order_then_the_workspace_then_the_base() -> None:
    packs = [pack(Path("/p/two")), pack(Path("/p/one"))]
    found = search_path(workspace=Path("/w"), packs=packs, base="/usr/bin:/w/bin:/bin")
    expected = ["/p/two/bin", "/p/one/bin", "/w/bin", "/usr/bin", "/bin"]
    assert found == tuple(map(Path, expected))


def test_the_environment_is_what_is_inherited_set_and_nothing_withheld() -> None:
    base = {"HOME": "/h", "PATH": "/host", "TOKEN": "t", "SLACK_SIGNING_SECRET": "s"}
    env = child_env(
        base,
        path=[Path("/a"), Path("/b")],
        extra={"DRUMBEAT_RUN_ID": "r1", "HOME": "/other"},
        withheld={"TOKEN"},
    )
    assert env == {"HOME": "/other", "PATH": f"/a{os.pathsep}/b", "DRUMBEAT_RUN_ID": "r1"}


def test_no_secret_of_a_door_is_inherited() -> None:
    base = dict.fromkeys(DOOR_SECRETS, "secret")
    assert child_env(base, path=[], extra={}, withheld=()) == {"PATH": ""}


def test_what_is_set_on_purpose_wins_over_withholding() -> None:
    """A token that is meant for this run reaches it, though it is one of the secrets."""
    env = child_env({"T": "old"}, path=[], extra={"T": "given"}, withheld={"T"})
    assert env["T"] == "given"


def test_what_belongs_to_another_run_is_not_inherited() -> None:
    """An engine that is started inside a run passes none of that run's identity on."""
    env = child_env({"DRUMBEAT_RUN_TOKEN": "outer"}, path=[], extra={}, withheld=())
    assert "DRUMBEAT_RUN_TOKEN" not in env


def test_a_name_is_looked_up_on_the_path_in_order(tmp_path: Path) -> None:
    tool(tmp_path / "a" / "t", mode=0o644)
    second = tool(tmp_path / "b" / "t")
    tool(tmp_path / "c" / "t")
    path = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    assert find_executable("t", path=path, cwd=tmp_path / "c") == second


def test_a_name_is_never_looked_up_on_the_host_path(tmp_path: Path) -> None:
    assert find_executable("sh", path=[], cwd=tmp_path) is None
    assert find_executable("sh", path=[tmp_path], cwd=Path("/bin")) is None


def test_a_path_is_relative_to_the_working_folder(tmp_path: Path) -> None:
    script = tool(tmp_path / "bin" / "t")
    assert find_executable("bin/t", path=[], cwd=tmp_path) == script
    assert find_executable(str(script), path=[], cwd=Path("/")) == script
    assert find_executable("bin/other", path=[], cwd=tmp_path) is None
