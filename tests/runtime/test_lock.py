"""One engine holds a data folder; who comes second hears who it is."""

import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from drumbeat import EngineBusy, StoreError
from drumbeat.runtime.lock import EngineLock

pytestmark = pytest.mark.anyio


async def test_the_second_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    first, second = EngineLock(tmp_path), EngineLock(tmp_path)
    holder = await first.acquire(since="noon")
    assert f"process {os.getpid()} on " in holder
    assert holder.endswith(" since noon")
    with pytest.raises(EngineBusy) as caught:
        await second.acquire(since="one")
    assert caught.value.problem.code == "engine-busy"
    assert holder in caught.value.problem.message
    # First what several workers on one workspace need; a folder of their own runs all twice.
    assert caught.value.problem.remedy.startswith("let this one stand by (`standby=True`")
    assert "serve --standby" in caught.value.problem.remedy
    await first.release()
    await second.acquire(since="one")
    await second.release()


async def test_the_holder_can_be_asked_for_and_nothing_is_written(tmp_path: Path) -> None:
    lock, other = EngineLock(tmp_path), EngineLock(tmp_path)
    assert await other.holder() is None
    assert list(tmp_path.iterdir()) == []
    holder = await lock.acquire(since="noon")
    assert await other.holder() == holder
    await lock.release()
    assert await other.holder() is None
    await lock.acquire(since="later")
    await lock.release()


async def test_whoever_looks_is_taken_for_no_engine_and_keeps_none_out(tmp_path: Path) -> None:
    lock = EngineLock(tmp_path)
    holder = await lock.acquire(since="noon")
    with (tmp_path / "engine.lock").open("rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        await lock.release()
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert await EngineLock(tmp_path).holder() is None
    assert await lock.acquire(since="noon") == holder
    for _ in range(3):
        assert await EngineLock(tmp_path).holder() == holder
    await lock.release()
    await lock.acquire(since="one", patience=0)
    await lock.release()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": 1}'])
async def test_a_holder_without_a_name_is_said_to_have_none_yet(tmp_path: Path, text: str) -> None:
    lock = EngineLock(tmp_path)
    await lock.acquire(since="noon")
    (tmp_path / "engine.lock").write_text(text, encoding="utf-8")
    with pytest.raises(EngineBusy, match="not written its name yet"):
        await EngineLock(tmp_path).acquire(since="one")
    await lock.release()


async def test_releasing_twice_or_without_a_lock_does_nothing(tmp_path: Path) -> None:
    lock = EngineLock(tmp_path)
    await lock.release()
    await lock.acquire(since="noon")
    await lock.release()
    await lock.release()
    assert json.loads((tmp_path / "engine.lock").read_text(encoding="utf-8"))["holder"]


async def test_a_folder_that_cannot_be_locked_is_trouble_with_the_store(tmp_path: Path) -> None:
    (tmp_path / "engine.lock").mkdir()
    with pytest.raises(StoreError) as caught:
        await EngineLock(tmp_path).acquire(since="noon")
    assert caught.value.problem.code == "data-dir-unwritable"
    assert await EngineLock(tmp_path).holder() is None


async def test_a_child_process_does_not_inherit_it(tmp_path: Path) -> None:
    """Not even one that was forked and outlives the engine."""
    lock = EngineLock(tmp_path)
    await lock.acquire(since="noon")
    ours, theirs = multiprocessing.Pipe()
    pid = os.fork()
    if pid == 0:
        theirs.send_bytes(b"here")
        theirs.recv_bytes()
        os._exit(0)
    try:
        ours.recv_bytes()
        await lock.release()
        other = EngineLock(tmp_path)
        await other.acquire(since="one")
        await other.release()
    finally:
        ours.send_bytes(b"go")
        os.waitpid(pid, 0)


HOLDER = """
import os, subprocess, sys
from pathlib import Path
import anyio
from drumbeat.runtime.inject import run_inject
from drumbeat.core.model import InjectSpec
from drumbeat.runtime.lock import EngineLock

async def main(folder, how):
    lock = EngineLock(folder)
    await lock.acquire(since="noon")
    if how == "forked":
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            sys.stdin.read()
            os._exit(0)
    elif how == "spawned":
        print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
    else:
        spec = InjectSpec(argv=("sh", "-c", "echo $$ > pid; exec sleep 60"), label="x")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: run_inject(spec, cwd=folder, env={"PATH": os.environ["PATH"]}))
            while not ((folder / "pid").exists() and (folder / "pid").read_text()):
                await anyio.sleep(0.01)
            print((folder / "pid").read_text().strip(), flush=True)
    while True:
        await anyio.sleep(1)

anyio.run(main, Path(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["forked", "spawned", "injected"])
async def test_a_child_that_outlives_a_killed_engine_does_not_keep_it(
    tmp_path: Path, how: str
) -> None:
    """However the child was made."""
    holder = subprocess.Popen(  # noqa: ASYNC220  the loop of a test has nobody else to serve
        [sys.executable, "-c", HOLDER, str(tmp_path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        assert await EngineLock(tmp_path).holder() is not None
        holder.kill()
        holder.wait()
        if how != "injected":  # which a guard ends with its host
            os.kill(child, 0)
        assert await EngineLock(tmp_path).holder() is None
    finally:
        holder.kill()
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        holder.communicate()


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.write_text("{}", encoding="utf-8")


@pytest.mark.parametrize("spoil", [remove, replace])
async def test_an_engine_whose_lock_is_taken_away_stops_and_says_why(
    host: Any, spoil: Callable[[Path], None]
) -> None:
    """A second one can enter from then on, and two must not run one automation."""
    host.write()
    async with host.engine() as first:
        await host.clock.advance(timedelta(minutes=1))
        assert (await first.status()).state == "running"
        spoil(host.data / "engine.lock")
        await host.clock.advance(timedelta(minutes=1))
        with anyio.fail_after(20), pytest.raises(EngineBusy) as caught:
            await first.wait()
        assert caught.value.problem.code == "engine-lock-lost"
        status = await first.status()
        assert (status.state, [fault.code for fault in status.faults]) == (
            "stopped",
            ["engine-failed"],
        )
        async with host.engine() as second:
            assert (await second.run("check")).state == "succeeded"


async def test_leaving_takes_no_lock_away_from_who_has_it_by_then(tmp_path: Path) -> None:
    first, second, third = (EngineLock(tmp_path) for _ in range(3))
    await first.acquire(since="noon")
    (tmp_path / "engine.lock").unlink()
    await second.acquire(since="one")
    await first.release()
    with pytest.raises(EngineBusy):
        await third.acquire(since="two")
    await second.release()
