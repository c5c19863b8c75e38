"""A disk that is full, and a process without descriptors: it says so, waits, and loses nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

HOST = Path(__file__).with_name("full_disk.py")
MOUNT = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'


def in_small_disk(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command that alone sees a file system of 2 MiB at `folder`."""
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", MOUNT, str(folder), *command],
        env={**os.environ, "SQLITE_TMPDIR": str(folder)},  # SQLite reads it as it is loaded
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What came of a host to which this was done, on asyncio alone: the disk knows no backend."""
    folder, elsewhere = tmp_path_factory.mktemp("disk"), tmp_path_factory.mktemp("elsewhere")
    try:
        allowed = in_small_disk(folder, "true").returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip(
            "this system lets nobody mount a small disk; test_store_trouble.py and "
            "test_pins_trouble.py raise the same errors without one"
        )
    done = in_small_disk(folder, sys.executable, str(HOST), str(folder), str(elsewhere))
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_full_disk_where_an_engine_is_to_begin_is_named_and_leaves_nothing_by_half(
    seen: dict[str, Any],
) -> None:
    """Where the folder is made, where it is locked, and where the store is made."""
    codes = {code for code, *_ in seen["entered"]}
    assert codes == {"data-dir-unwritable", "store-full"}
    for _, remedy, path, well, ignored in seen["entered"]:
        assert "free space" in remedy
        assert ".drumbeat" in path
        assert well
        assert ignored == "*\n"


def test_a_disk_that_is_mounted_read_only_is_named_and_left_and_serves_when_it_is_not(
    seen: dict[str, Any],
) -> None:
    """Where there is no data folder, and where there is one with a run in it."""
    refused = [(code, left, states) for code, _, left, states in seen["read-only"]]
    assert refused == [
        ("data-dir-unwritable", True, ["succeeded"]),
        ("data-dir-unwritable", True, ["succeeded"] * 2),
    ]
    assert all("mount that file system for writing" in each[1] for each in seen["read-only"])


def test_a_full_folder_for_temporary_files_keeps_no_store_from_forgetting(
    seen: dict[str, Any],
) -> None:
    """And nobody is sent to the disk of the store, which has room."""
    assert seen["forgotten"] == 1000


@pytest.mark.parametrize("what", ["made", "upgraded"])
def test_a_store_for_which_there_is_too_little_room_is_made_later(
    seen: dict[str, Any], what: str
) -> None:
    """However little is missing: also where there is room for its log and none for the file."""
    told = seen[what]
    assert set(told["codes"]) == {"store-full"}
    assert told["enough"] > 40
    assert told["left"] == []
    assert told["changed"] == []


@pytest.mark.parametrize("at", ["turn One.", "turn Two.", "deliver"])
def test_a_disk_that_is_full_for_a_while_loses_nothing(
    seen: dict[str, dict[str, Any]], at: str
) -> None:
    """In the middle of a run and of a delivery: no turn twice, no text lost, no restart."""
    told = seen[f"disk at {at}"]
    assert told["health"]["ok"] is False
    assert "store-full" in told["health"]["faults"]
    assert told["did"][-1] == at, "nothing is begun while nothing can be written"
    is_whole(told)


@pytest.mark.parametrize("limit", ["Descriptors", "Sizes"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_process_at_its_limits_goes_on_when_it_has_others(
    seen: dict[str, dict[str, Any]], limit: str, backend: str
) -> None:
    """Of open files, and of the size of each."""
    told = seen[f"{limit} on {backend}"]
    assert told["health"]["faults"] != []
    assert told["did"] == ["turn One."]
    is_whole(told)


def is_whole(told: dict[str, Any]) -> None:
    assert set(told["accepted"]) <= set(told["after"])
    assert told["turns taken"] == 2 * len(told["after"])
    assert set(told["turns"]) == {2}
    assert told["states"] == ["succeeded"]
    assert told["deliveries"] == ["delivered"]
    assert told["texts"] == [True]
    assert told["invalid"] == []
    assert told["pinned"] == ["check"]
    assert told["rubbish"] == []
