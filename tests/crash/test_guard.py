"""What a killed host had started is gone within seconds, what a child left is gone with that."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.runtime import guard as guard_module
from drumbeat.runtime import guard_process
from drumbeat.runtime.guard import guard
from drumbeat.runtime.guard_process import (
    MARK,
    OVER,
    end,
    is_unreaped,
    marked,
    send,
    start_of,
    wait_for_end,
)
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
    workspace: Path, write: Callable[..., None], backend: str, spared: list[int]
) -> None:
    """What an inject tool started, and what a command that is the agent did.

    Only what moves to a session of its own and wipes its environment too is out of reach.
    """
    (workspace / "tool.sh").write_text(TOOL, encoding="utf-8")
    write("check")
    listed = [workspace / "pids-inject", workspace / "pids-agent"]
    host = subprocess.Popen([sys.executable, "-c", HOST, str(workspace), backend])
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


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_guard_that_others_stopped_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing any more, and nobody waits for it for ever."""
    monkeypatch.setattr(guard_module, "_HANG", 0.1)
    async with guard() as watched:
        value = watched.env[MARK].encode()
        assert wait_until(lambda: len(bearing(value)) == 1)
        (found,) = bearing(value)
        os.kill(found, signal.SIGSTOP)
    assert not alive(found)


@pytest.mark.parametrize("behind", [OVER, b"", b"123", b"123 4"])
def test_what_a_guard_ended_is_reaped_where_it_fell_to_this_process(behind: bytes) -> None:
    """Also when the report was cut off, in the middle of a line or at the end of one."""
    orphan = subprocess.Popen(["true"])
    started = start_of(orphan.pid)
    assert wait_until(lambda: is_unreaped(orphan.pid, started))
    guard_module._end(subprocess.Popen(["true"]), b"%d %d\n" % (orphan.pid, started) + behind)
    assert start_of(orphan.pid) == 0
    assert orphan.wait(PATIENCE) == 0  # which is all that is known of what somebody else reaped


def test_what_fell_to_another_process_is_that_one_s_to_reap(spared: list[int]) -> None:
    """It has ended, and its parent has not taken note of it."""
    code = "import os, signal\nif child := os.fork(): print(child, flush=True); signal.pause()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    spared.append(parent.pid)
    assert parent.stdout is not None
    orphan = int(parent.stdout.readline())
    assert wait_until(lambda: is_unreaped(orphan, start_of(orphan)))
    guard_module._end(subprocess.Popen(["true"]), b"%d %d\n" % (orphan, start_of(orphan)) + OVER)
    assert is_unreaped(orphan, start_of(orphan))
    parent.kill()
    parent.wait()
    parent.stdout.close()


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
            powerless.setattr(guard_process, "send", lambda process, started, number: None)
            assert not end(mark, None, grace=0.1, patience=0.3)
        assert [each.process for each in marked(mark, {})] == [child.pid]
        assert marked(mark, {}, since=start_of(child.pid) + 1) == []
    finally:
        child.kill()
        child.wait()
    assert marked(mark, {}) == []


def test_a_session_whose_number_leads_another_one_is_left_alone(spared: list[int]) -> None:
    """Its leader started at another moment than the one that bore the mark."""
    child = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
    spared.append(child.pid)
    started = start_of(child.pid)
    sessions = {child.pid: started}
    assert [each.process for each in marked(b"no=mark", sessions)] == [child.pid]
    sessions = {child.pid: started - 1}
    assert marked(b"no=mark", sessions) == []
    assert sessions == {}
    child.kill()
    child.wait()


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_signal_reaches_that_very_process_alone(
    monkeypatch: pytest.MonkeyPatch, spared: list[int], pidfd: bool
) -> None:
    """And none that has its id by now, also where the system is too old for a sure handle."""
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    child = subprocess.Popen(["sleep", "600"])
    spared.append(child.pid)
    started = start_of(child.pid)
    send(child.pid, started - 1, signal.SIGKILL)
    assert not is_unreaped(child.pid, started)
    send(child.pid, started, signal.SIGTERM)
    assert wait_until(lambda: is_unreaped(child.pid, started))
    assert not is_unreaped(child.pid, started - 1)
    assert child.wait(PATIENCE) == -signal.SIGTERM
    assert start_of(child.pid) == 0
    send(child.pid, started, signal.SIGTERM)


def test_it_waits_no_longer_once_the_child_is_over() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"12\n" + OVER)
    assert wait_for_end(read_end, os.getppid()) == b"12\n" + OVER
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("over, session", [(b"", 7), (OVER, None)])
def test_the_program_takes_its_host_from_its_arguments(
    monkeypatch: pytest.MonkeyPatch, over: bytes, session: int | None
) -> None:
    """TERM, which a service manager sends to everything it started, is left to the host.

    The leader of a child that is over is reaped, and its number may be somebody else's.
    """
    asked: list[tuple[bytes, int | None, int]] = []
    said: list[tuple[int, bytes]] = []

    def ended(
        mark: bytes,
        session: int | None,
        *,
        since: int,
        report: Callable[[int, int], None] | None = None,
    ) -> None:
        asked.append((mark, session, since))
        if report is not None:
            report(8, 9)

    monkeypatch.setattr(sys, "argv", ["guard", "7", "value"])
    monkeypatch.setattr(
        guard_process, "wait_for_end", lambda source, host: b"%d\n" % (host + source) + over
    )
    monkeypatch.setattr(guard_process, "end", ended)
    monkeypatch.setattr(os, "write", lambda to, words: said.append((to, words)))
    before = signal.getsignal(signal.SIGTERM)
    try:
        guard_process.main()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == [(f"{MARK}=value".encode(), session, start_of(os.getpid()))]
    assert said == ([(1, b"8 9\n"), (1, OVER)] if over else [])


def test_a_host_that_is_killed_while_it_waits_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is left of its child is ended all the same."""
    child = subprocess.Popen(["sleep", "600"], env={"PATH": os.defpath, MARK: "of-its-child"})
    read_end, write_end = os.pipe()
    kept = os.dup(1)
    os.close(read_end)
    monkeypatch.setattr(sys, "argv", ["guard", "7", "of-its-child"])
    monkeypatch.setattr(guard_process, "wait_for_end", lambda source, host: OVER)
    before = signal.getsignal(signal.SIGTERM)
    try:
        os.dup2(write_end, 1)
        guard_process.main()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(write_end)
        signal.signal(signal.SIGTERM, before)
    assert child.wait(PATIENCE) == -signal.SIGTERM
