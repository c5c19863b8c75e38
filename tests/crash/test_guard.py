"""What a killed host had started is gone within seconds: children, and what those started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.runtime import guard_process
from drumbeat.runtime.guard import guard
from drumbeat.runtime.guard_process import MARK, end, marked, wait_for_end
from drumbeat.runtime.processes import run_process

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="a guard looks into /proc"
)

HOST = """
import os, sys
from functools import partial
from pathlib import Path
import anyio
from drumbeat import Engine, InjectSpec, run_inject
from drumbeat.agents import CommandAgent

folder = Path(sys.argv[1])
tool = ("sh", str(folder / "tool.sh"), str(folder))

async def main():
    async with anyio.create_task_group() as group:
        spec = InjectSpec(argv=(*tool, "inject"), label="tool")
        group.start_soon(partial(run_inject, spec, cwd=folder))
        async with Engine(folder, agent=CommandAgent((*tool, "agent")), timezone="UTC") as engine:
            await engine.run("check")

anyio.run(main, backend=sys.argv[2])
"""
CHECK = """---
automation:
  name: Check
  trigger: {type: manual}
  notify: always
  steps:
    - id: look
      prompt: Look around.
---
"""
TOOL = """
cd "$1"
trap '' TERM
exec >> "pids-$2"
echo leader $$
sleep 600 & echo child $!
setsid sleep 600 & echo moved $!
env -i sleep 600 & echo wiped $!
setsid env -i sleep 600 & echo escaped $!
(sleep 600 & echo orphan $!)
echo ready
exec env -i sleep 600
"""
PATIENCE = 30


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def cmdline(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def has_wiped(pid: int) -> bool:
    """Whether it has wiped its environment by now, which it does at some time after its start."""
    try:
        return MARK.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def is_ready(path: Path) -> bool:
    return path.exists() and "ready" in path.read_text()


def bearing(value: bytes) -> list[int]:
    """The processes that have it among their arguments."""
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = [int(entry.name) for entry in entries if value in cmdline(entry)]
    return [pid for pid in found if alive(pid)]


def wait_until(true: Callable[[], bool]) -> bool:
    """Wait for what other processes do."""
    end = time.monotonic() + PATIENCE  # noqa: TID251  it is they who take their time
    while not true():
        if time.monotonic() > end:  # noqa: TID251
            return False
        time.sleep(0.02)  # noqa: TID251
    return True


@pytest.fixture
def spared() -> Iterator[list[int]]:
    """Processes that are to be ended with the test."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_a_killed_host_had_started_is_gone(
    tmp_path: Path, backend: str, spared: list[int]
) -> None:
    """What an inject tool started, and what a command that is the agent did.

    Only what moves to a session of its own and wipes its environment too is out of reach.
    """
    (tmp_path / "tool.sh").write_text(TOOL, encoding="utf-8")
    (tmp_path / "automations").mkdir()
    (tmp_path / "automations" / "check.md").write_text(CHECK, encoding="utf-8")
    listed = [tmp_path / "pids-inject", tmp_path / "pids-agent"]
    host = subprocess.Popen([sys.executable, "-c", HOST, str(tmp_path), backend])
    try:
        assert wait_until(lambda: all(is_ready(path) for path in listed))
        pids = [
            dict(line.split() for line in path.read_text().splitlines() if " " in line)
            for path in listed
        ]
        spared += [int(pid) for each in pids for pid in each.values()]
        leaders = [int(each["leader"]) for each in pids]
        escaped = [int(each.pop("escaped")) for each in pids]
        assert wait_until(lambda: all(map(has_wiped, leaders + escaped)))
    finally:
        host.kill()
        host.wait()
    assert [each.keys() for each in pids] == [{"leader", "child", "moved", "wiped", "orphan"}] * 2
    assert wait_until(lambda: not any(alive(int(pid)) for each in pids for pid in each.values()))
    assert all(map(alive, escaped))


@pytest.mark.anyio
async def test_a_guard_ends_with_what_it_guards(tmp_path: Path) -> None:
    """The child bears its mark, and once it has ended there is no guard either."""
    ended = await run_process(
        ["sh", "-c", f"echo ${MARK}"],
        cwd=tmp_path,
        env={"PATH": os.defpath},
        timeout=timedelta(seconds=PATIENCE),
        stdout_limit=1000,
    )
    value = ended.stdout.strip()
    assert value
    assert bearing(value) == []


@pytest.mark.anyio
async def test_a_host_that_is_no_python_of_its_own_starts_no_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What stands in for an interpreter may be the host itself, which must not be started twice."""
    monkeypatch.setattr(sys, "executable", "/opt/desktop-app/app")
    async with guard() as watched:
        assert watched.env == {}
        watched.watch(os.getpid())


@pytest.mark.anyio
async def test_a_guard_that_was_ended_by_others_stops_nobody() -> None:
    async with guard() as watched:
        value = watched.env[MARK].encode()
        # Its arguments cannot be read in the very instant in which it begins.
        assert wait_until(lambda: len(bearing(value)) == 1)
        (found,) = bearing(value)
        os.kill(found, signal.SIGKILL)
        assert wait_until(lambda: not alive(found))
        watched.watch(os.getpid())


# ---- the program itself


def test_it_waits_for_the_end_of_the_pipe_and_keeps_what_was_said() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"12\n")
    os.close(write_end)
    assert wait_for_end(read_end, os.getppid()) == b"12\n"
    os.close(read_end)


def test_it_waits_no_longer_for_a_pipe_that_a_fork_of_the_host_holds() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"12\n")
    assert wait_for_end(read_end, os.getppid() + 1) == b"12\n"
    os.close(read_end)
    os.close(write_end)


def test_what_ignores_term_is_killed(spared: list[int]) -> None:
    """By the mark alone, in a session that is not known."""
    child = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; sleep 600"],
        env={"PATH": os.defpath, MARK: "of-this-test"},
        stdout=subprocess.PIPE,
    )
    spared.append(child.pid)
    assert child.stdout is not None
    child.stdout.readline()
    assert end(f"{MARK}=of-this-test".encode(), None, grace=0.1)
    assert child.wait(PATIENCE) == -signal.SIGKILL
    child.stdout.close()


def test_a_session_that_nobody_named_is_that_of_what_bears_the_mark(spared: list[int]) -> None:
    """As after a kill between the start of a child and the word of which one it is."""
    child = subprocess.Popen(
        ["sh", "-c", "env -i sleep 600 & echo $!; wait"],
        env={"PATH": os.defpath, MARK: "of-this-session"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    spared.append(child.pid)
    assert child.stdout is not None
    wiped = int(child.stdout.readline())
    spared.append(wiped)
    assert wait_until(lambda: has_wiped(wiped))
    assert end(f"{MARK}=of-this-session".encode(), None, grace=0.1)
    child.wait(PATIENCE)
    child.stdout.close()
    assert not alive(wiped)


def test_what_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "600"], env={"PATH": os.defpath, MARK: "of-this-one"})
    mark = f"{MARK}=of-this-one".encode()
    try:
        with monkeypatch.context() as powerless:
            powerless.setattr(os, "kill", lambda process, number: None)
            assert not end(mark, None, grace=0.1, patience=0.3)
        assert marked(mark, set()) == [child.pid]
    finally:
        child.kill()
        child.wait()
    assert marked(mark, set()) == []


def test_the_program_takes_its_host_from_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """TERM, which a service manager sends to everything it started, is left to the host."""
    asked: list[tuple[bytes, int | None]] = []
    monkeypatch.setattr(sys, "argv", ["guard", "7", "value"])
    monkeypatch.setattr(
        guard_process, "wait_for_end", lambda source, host: b"%d\n" % (host + source)
    )
    monkeypatch.setattr(guard_process, "end", lambda mark, session: asked.append((mark, session)))
    before = signal.getsignal(signal.SIGTERM)
    try:
        guard_process.main()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == [(f"{MARK}=value".encode(), 7)]
