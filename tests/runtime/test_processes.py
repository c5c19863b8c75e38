import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from drumbeat.runtime.processes import MIB, Ended, run_process

MINUTE = timedelta(minutes=1)
ENV = {"PATH": os.defpath}


def adopt_orphans(yes: bool) -> None:
    """Be, or cease to be, who orphans become children of, as the first process of a container."""
    assert ctypes.CDLL(None).prctl(36, int(yes), 0, 0, 0) == 0


@pytest.fixture(autouse=True)
def adopts_orphans() -> Iterator[None]:
    adopt_orphans(True)
    yield
    adopt_orphans(False)


async def run(
    *argv: str,
    cwd: Path = Path("/"),
    timeout: timedelta = MINUTE,
    stdin: bytes | None = None,
    limit: int = MIB,
    grace: timedelta = timedelta(seconds=5),
    linger: timedelta = MINUTE,
    env: dict[str, str] = ENV,
) -> Ended:
    return await run_process(
        argv,
        cwd=cwd,
        env=env,
        timeout=timeout,
        stdin=stdin,
        stdout_limit=limit,
        grace=grace,
        linger=linger,
    )


async def python(code: str, *argv: str, **options: object) -> Ended:
    return await run(sys.executable, "-c", code, *argv, **options)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    """Whether a process runs; an orphan that nobody has reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(30):
        while not await condition():
            await anyio.sleep(0.01)


async def pid_in(path: anyio.Path) -> int:
    """Wait until a process has left its number there."""

    async def is_written() -> bool:
        return await path.exists() and (await path.read_text()).endswith("\n")

    await until(is_written)
    return int(await path.read_text())


@pytest.mark.anyio
async def test_output_exit_code_and_errors_come_back() -> None:
    ended = await run("sh", "-c", "printf out; printf err >&2; exit 3")
    assert ended == Ended(how="exited", exit_code=3, stdout=b"out", stderr="err")
    assert ended.exit == "exited with code 3"


@pytest.mark.anyio
async def test_a_signal_is_named() -> None:
    ended = await run("sh", "-c", "kill -9 $$")
    assert (ended.how, ended.exit_code) == ("exited", -signal.SIGKILL)
    assert ended.exit == "was ended by SIGKILL"


def test_a_signal_without_a_name_has_its_number() -> None:
    assert Ended(how="exited", exit_code=-200).exit == "was ended by signal 200"
    assert Ended(how="not-startable").exit == "was not started"


@pytest.mark.anyio
async def test_input_and_output_larger_than_any_pipe_do_not_block_each_other() -> None:
    data = bytes(range(256)) * 4096
    ended = await run("cat", stdin=data)
    assert ended.stdout == data


@pytest.mark.anyio
async def test_a_child_need_not_read_its_input() -> None:
    ended = await run("true", stdin=b"x" * MIB)
    assert (ended.how, ended.exit_code) == ("exited", 0)


@pytest.mark.anyio
@pytest.mark.parametrize("stdin", [None, b""])
async def test_without_data_the_input_is_empty(stdin: bytes | None) -> None:
    assert (await run("cat", stdin=stdin)).stdout == b""


@pytest.mark.anyio
async def test_the_environment_and_the_working_folder_are_as_given(tmp_path: Path) -> None:
    env = {"PATH": os.defpath, "ONLY": "this"}
    ended = await run("sh", "-c", "env; pwd -P", cwd=tmp_path, env=env)
    of_the_shell = ("_=", "OLDPWD=", "PWD=", "SHLVL=")
    lines = {
        line
        for line in ended.stdout.decode().splitlines()
        if not line.startswith((*of_the_shell, "DRUMBEAT_GUARD="))
    }
    assert lines == {f"PATH={os.defpath}", "ONLY=this", str(tmp_path.resolve())}


@pytest.mark.anyio
async def test_programs_are_looked_up_on_the_given_path_only(tmp_path: Path) -> None:
    ended = await run("sh", "-c", "true", env={"PATH": str(tmp_path)})
    assert ended.how == "not-startable"
    assert ended.detail == "no executable 'sh' was found on its PATH"
    ended = await run("sh", "-c", "true", env={})
    assert "an empty PATH" in ended.detail


@pytest.mark.anyio
async def test_nothing_open_is_inherited() -> None:
    """Not even a descriptor that was made inheritable, such as a lock's."""
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        ended = await python(
            "import os, sys\ntry: os.fstat(int(sys.argv[1]))\nexcept OSError: print('closed')",
            str(write_end),
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    assert ended.stdout == b"closed\n"


def open_here() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.anyio
async def test_nothing_stays_open_here() -> None:
    await run("true")
    before = open_here()
    await run("cat", stdin=b"x")
    await run("no-such-program")
    assert open_here() == before


@pytest.mark.anyio
@pytest.mark.parametrize(
    "argv, said",
    [
        ((), "argv is empty"),
        (("no-such-tool",), "no executable 'no-such-tool' was found"),
        (("./no-such-tool",), "was found in /"),
        (("plain",), "no executable 'plain' was found on its PATH"),
        (("./plain",), "only a file that may not be executed, was found in /"),
        (("./broken",), "Exec format error"),
        (("./dangling",), "dangling"),
        (("sh", "a\0b"), "null byte"),
        (("sh", "x" * 10_000_000), "too long"),
    ],
)
async def test_what_cannot_be_started_is_a_value(
    argv: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "broken").write_bytes(b"\x7fELF")
    (tmp_path / "dangling").write_text("#!/no/such/interpreter\n")
    for name in ("broken", "dangling"):
        (tmp_path / name).chmod(0o755)
    ended = await run(*argv, cwd=tmp_path)
    assert ended.how == "not-startable"
    assert said in ended.detail


@pytest.mark.anyio
async def test_a_missing_working_folder_is_a_value(tmp_path: Path) -> None:
    ended = await run("true", cwd=tmp_path / "gone")
    assert ended.how == "not-startable"
    assert "gone" in ended.detail


@pytest.mark.anyio
async def test_no_free_descriptor_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pipe", full)
    ended = await run("true")
    assert ended.how == "not-startable"


@pytest.mark.anyio
async def test_a_limit_that_is_reached_exactly_is_kept() -> None:
    ended = await run("printf", "12345", limit=5)
    assert (ended.how, ended.stdout) == ("exited", b"12345")


@pytest.mark.anyio
async def test_too_much_output_ends_the_child() -> None:
    ended = await run("yes", limit=100_000)
    assert (ended.how, len(ended.stdout)) == ("too-large", 100_000)


@pytest.mark.anyio
async def test_too_much_output_just_before_the_exit_counts() -> None:
    ended = await run("printf", "123456", limit=5)
    assert (ended.how, ended.stdout) == ("too-large", b"12345")


@pytest.mark.slow
@pytest.mark.anyio
async def test_only_the_end_of_standard_error_is_kept() -> None:
    ended = await python(
        "import sys; sys.stderr.buffer.write('ä'.encode() * 100_000 + b'\\xffend')"
    )
    assert ended.stderr == "…" + "ä" * 1_995 + "\ufffdend"


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_whole_group_is_ended_on_timeout(tmp_path: Path) -> None:
    ended = await run(
        "sh", "-c", "sleep 600 & echo $! >pid; wait", cwd=tmp_path, timeout=timedelta(seconds=0.3)
    )
    assert (ended.how, ended.exit_code) == ("timed-out", -signal.SIGTERM)
    assert not is_alive(await pid_in(anyio.Path(tmp_path, "pid")))


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_group_that_ignores_term_is_killed(tmp_path: Path) -> None:
    ended = await run(
        "sh",
        "-c",
        "trap '' TERM; echo began; while :; do sleep 600; done",
        timeout=timedelta(seconds=0.3),
        grace=timedelta(seconds=0.2),
    )
    assert (ended.how, ended.exit_code) == ("timed-out", -signal.SIGKILL)
    assert ended.stdout == b"began\n"


@pytest.mark.slow
@pytest.mark.anyio
async def test_what_a_child_writes_on_its_way_out_is_kept() -> None:
    ended = await run(
        "sh",
        "-c",
        "trap 'echo saved; exit 0' TERM; echo began; sleep 600 & wait",
        timeout=timedelta(seconds=0.3),
    )
    assert (ended.how, ended.exit_code, ended.stdout) == ("timed-out", 0, b"began\nsaved\n")


@pytest.mark.slow
@pytest.mark.anyio
async def test_cancellation_ends_the_whole_group_before_it_goes_on(tmp_path: Path) -> None:
    pid_file = anyio.Path(tmp_path, "pid")
    script = "trap '' TERM; sleep 600 & echo $! >pid; while :; do sleep 600; done"
    async with anyio.create_task_group() as group:

        async def child() -> None:
            await run("sh", "-c", script, cwd=tmp_path, grace=timedelta(seconds=0.1))

        group.start_soon(child)
        pid = await pid_in(pid_file)
        assert is_alive(pid)
        group.cancel_scope.cancel()
    assert not is_alive(pid)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_second_cancellation_of_the_task_itself_kills_at_once(tmp_path: Path) -> None:
    """A host may cancel an asyncio task outright, which no shield holds off."""
    import asyncio

    adopt_orphans(False)  # nobody is left to reap them here
    script = "trap 'echo >termed' TERM; echo $$ >pid; while :; do sleep 600 & wait; done"
    task = asyncio.create_task(run("sh", "-c", script, cwd=tmp_path))
    pid = await pid_in(anyio.Path(tmp_path, "pid"))
    task.cancel()
    await until(anyio.Path(tmp_path, "termed").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


@pytest.mark.slow
@pytest.mark.anyio
async def test_what_a_tool_leaves_in_its_group_is_ended(tmp_path: Path) -> None:
    ended = await run(
        "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $! >pid; echo done", cwd=tmp_path
    )
    assert (ended.how, ended.exit_code, ended.stdout) == ("exited", 0, b"done\n")
    assert not is_alive(await pid_in(anyio.Path(tmp_path, "pid")))


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_leftover_that_holds_the_output_open_does_not_hang(tmp_path: Path) -> None:
    ended = await run(
        "sh",
        "-c",
        "sleep 600 & echo $! >pid; echo done",
        cwd=tmp_path,
        linger=timedelta(seconds=0.1),
    )
    assert (ended.how, ended.stdout) == ("exited", b"done\n")
    assert not is_alive(await pid_in(anyio.Path(tmp_path, "pid")))


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_leftover_may_finish_its_output() -> None:
    """As in a shell's process substitution, whose end the shell does not await."""
    ended = await run("sh", "-c", "(sleep 0.2; echo late) & echo early")
    assert ended.stdout == b"early\nlate\n"


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_leftover_in_a_session_of_its_own_does_not_hang(tmp_path: Path) -> None:
    ended = await python(
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "open('pid', 'w').write(f'{child.pid}\\n')\n"
        "print('done')\n"
        "child.returncode = 0\n",
        cwd=tmp_path,
        linger=timedelta(seconds=0.1),
    )
    assert (ended.how, ended.stdout) == ("exited", b"done\n")
    assert not is_alive(await pid_in(anyio.Path(tmp_path, "pid")))


MOVED = """
setsid sh -c '{trap}echo $$ >pid; while :; do sleep 600; done' >/dev/null 2>&1 &
until [ -s pid ]; do sleep 0.01; done
"""
"""Starts what moves to a session of its own, and goes on when it has."""


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(
    "how, rest, options",
    [
        ("exited", "echo done", {}),
        ("timed-out", "sleep 600", {"timeout": timedelta(seconds=0.5)}),
        ("too-large", "yes", {"limit": 100}),
    ],
)
async def test_what_moved_to_a_session_of_its_own_is_over_with_the_child(
    how: str, rest: str, options: dict[str, object], tmp_path: Path
) -> None:
    """However that ends; where its orphans fall to this process, none is left as a zombie."""
    script = MOVED.format(trap="") + rest
    ended = await run("sh", "-c", script, cwd=tmp_path, **options)  # type: ignore[arg-type]
    assert ended.how == how
    assert not is_alive(await pid_in(anyio.Path(tmp_path, "pid")))
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.slow
@pytest.mark.anyio
async def test_what_moved_to_a_session_of_its_own_and_ignores_term_is_killed(
    tmp_path: Path,
) -> None:
    """A cancellation waits for its end."""
    script = MOVED.format(trap='trap "" TERM; ') + "wait"
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: run("sh", "-c", script, cwd=tmp_path))
        pid = await pid_in(anyio.Path(tmp_path, "pid"))
        group.cancel_scope.cancel()
    assert not is_alive(pid)


@pytest.mark.slow
@pytest.mark.anyio
async def test_what_another_child_started_is_spared(tmp_path: Path) -> None:
    """One that ends takes nothing along that is not its own, nor of the same user."""
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: run("sh", "-c", MOVED.format(trap="") + "wait", cwd=tmp_path))
        pid = await pid_in(anyio.Path(tmp_path, "pid"))
        await run("true")
        assert is_alive(pid)
        group.cancel_scope.cancel()
    assert not is_alive(pid)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelling_the_task_itself_during_the_last_search_goes_on_with_it(
    tmp_path: Path,
) -> None:
    import asyncio

    adopt_orphans(False)
    script = MOVED.format(trap='trap "echo >termed" TERM; ') + "echo done"
    task = asyncio.create_task(run("sh", "-c", script, cwd=tmp_path))
    pid = await pid_in(anyio.Path(tmp_path, "pid"))
    await until(anyio.Path(tmp_path, "termed").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: _is_over(pid))


async def _is_over(pid: int) -> bool:
    return not is_alive(pid)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_group_of_another_user_counts_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be ended, so its end is awaited."""

    def refuse(group: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    ended = await run("sleep", "0.3", timeout=timedelta(seconds=0.1), grace=timedelta(seconds=0.05))
    assert (ended.how, ended.exit_code) == ("timed-out", 0)


@pytest.mark.slow
@pytest.mark.anyio
async def test_orphans_that_are_somebody_else_s_to_reap_are_not_waited_for_long() -> None:
    adopt_orphans(False)
    ended = await run("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo done", grace=timedelta())
    assert (ended.how, ended.stdout) == ("exited", b"done\n")


@pytest.mark.anyio
async def test_no_child_is_left_as_a_zombie() -> None:
    """Orphans included, where they fall to this process."""
    await run("true")
    await run("sh", "-c", "sleep 600 >/dev/null 2>&1 & sleep 600 >/dev/null 2>&1 & true")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.anyio
async def test_many_at_once_keep_apart() -> None:
    found: dict[int, bytes] = {}

    async def one(number: int) -> None:
        found[number] = (await run("cat", stdin=b"%d" % number)).stdout

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(one, number)
    assert found == {number: b"%d" % number for number in range(20)}
