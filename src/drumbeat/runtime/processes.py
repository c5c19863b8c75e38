"""One child process from its start to its end, within bounds, with nothing of it left behind.

Theory of operation. The child leads a session, and so a process group, of its own: whatever it
starts and does not move away on purpose can be ended with it. Its standard streams are pipes that
are made, read and closed here, because what the event loops offer either waits for the end of the
pipes before it reports the end of the process, or may not be closed at a moment of one's own
choosing; a grandchild that holds a pipe open would hang both. So the order is:

1. the leader exits, or its time is up, or it writes too much, or the caller is cancelled;
2. a leader that exited by itself leaves its output `linger` to reach its end;
3. whatever is left of the group gets TERM, `grace` later KILL (the caller's cancellation waits);
4. output that still has no end (a grandchild in a session of its own holds it) is left `linger`
   once more, then the pipes are closed;
5. what moved away and bears the mark of the guard is ended by that (`guard.py`), which is waited
   for.

A leader that not even KILL ends (it waits for a dead disk, or runs as another user) is waited for:
its automation stays busy, which is reported, and it never overlaps its successor.

When this process is killed there is nobody to do any of this but the guard, which is started
before the child and outlives it.
"""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Literal

import anyio
import anyio.abc
import attrs

from drumbeat.core.model import Env
from drumbeat.core.redaction import CUT
from drumbeat.runtime.guard import guard
from drumbeat.runtime.search_path import find_executable, not_found, path_entries
from drumbeat.runtime.threads import Threads

MIB = 1024 * 1024
STDERR_CHARACTERS = 2_000
"""How much of the end of standard error is kept (spec, section 9)."""
GRACE = timedelta(seconds=2)
"""What a process group gets between TERM and KILL."""
LINGER = timedelta(seconds=1)
"""How long output may stay open once its process has exited."""

_CHUNK = 65_536
_UTF8_WIDEST = 4


@attrs.frozen(kw_only=True)
class Ended:
    """How a child process ended, and what it wrote.

    `exit_code` is negative for a signal and None when nothing was started. `stderr` is its last
    2,000 characters, undecodable bytes replaced, the first being `…` when there were more. `detail`
    says why nothing was started, else "".
    """

    how: Literal["exited", "timed-out", "too-large", "not-startable"]
    exit_code: int | None = None
    stdout: bytes = b""
    stderr: str = ""
    detail: str = ""

    @property
    def exit(self) -> str:
        """The exit code in words: `exited with code 3`, `was ended by SIGKILL`."""
        if self.exit_code is None:
            return "was not started"
        if self.exit_code >= 0:
            return f"exited with code {self.exit_code}"
        number = -self.exit_code
        known = {member.value: member.name for member in signal.Signals}
        return f"was ended by {known.get(number, f'signal {number}')}"


async def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Env,
    timeout: timedelta,
    stdout_limit: int,
    stdin: bytes | None = None,
    grace: timedelta = GRACE,
    linger: timedelta = LINGER,
    threads: Threads | None = None,
) -> Ended:
    """Run a child process and everything it starts to the end.

    The program is looked up on the PATH of `env`, never on the host's. Nothing is inherited but
    what is given, and the mark of the guard. All limits are in real time. Whatever the child does
    is in the value returned.

    Args:
        argv: the program and its arguments; no shell is involved.
        cwd: the working folder, absolute.
        env: the complete environment; `DRUMBEAT_GUARD` is added.
        timeout: after it the whole process group is ended.
        stdout_limit: bytes; a child that writes more is ended with its group.
        stdin: what it may read; None gives it an empty standard input.
        grace: what the group gets between TERM and KILL.
        linger: how long output may stay open once the process has exited.
        threads: the engine's; None for its own.
    """
    threads = threads or Threads()
    async with AsyncExitStack() as ours:
        try:
            program = await _program(argv, env=env, cwd=cwd, threads=threads)
            watched = await ours.enter_async_context(guard(threads))
            with ExitStack() as theirs:
                given, stdin_end = _stdin(stdin, ours=ours, theirs=theirs)
                stdout_end, stdout_source = _output(ours=ours, theirs=theirs)
                stderr_end, stderr_source = _output(ours=ours, theirs=theirs)
                # Cancelled halfway, the start would end the leader alone and not its group.
                with anyio.CancelScope(shield=True):
                    process = await anyio.open_process(
                        [str(program), *argv[1:]],
                        stdin=stdin_end,
                        stdout=stdout_end,
                        stderr=stderr_end,
                        cwd=cwd,
                        env={**env, **watched.env},
                        start_new_session=True,
                    )
                watched.watch(process.pid)
        except (OSError, ValueError) as error:
            return Ended(how="not-startable", detail=str(error))

        how: Literal["exited", "timed-out", "too-large"] = "exited"
        overflow = anyio.CancelScope()
        stdout = _Head(limit=stdout_limit, overflowed=overflow.cancel)
        stderr = _Tail(limit=STDERR_CHARACTERS * _UTF8_WIDEST)
        ends = (anyio.Event(), anyio.Event())
        async with anyio.create_task_group() as pumps:
            if given is not None:
                pumps.start_soon(_feed, given, stdin or b"")
            pumps.start_soon(_drain, stdout_source, stdout.add, ends[0])
            pumps.start_soon(_drain, stderr_source, stderr.add, ends[1])
            try:
                with anyio.move_on_after(timeout.total_seconds()) as deadline, overflow:
                    await process.wait()
                    await _all_within(ends, linger)
                if deadline.cancelled_caught and process.returncode is None:
                    how = "timed-out"
            finally:
                with anyio.CancelScope(shield=True):
                    await _end_group(process, grace)
            await _all_within(ends, linger)
            pumps.cancel_scope.cancel()
        return Ended(
            how="too-large" if stdout.is_over and how == "exited" else how,
            exit_code=process.returncode,
            stdout=bytes(stdout.kept),
            stderr=stderr.text(STDERR_CHARACTERS),
        )


async def _program(argv: Sequence[str], *, env: Env, cwd: Path, threads: Threads) -> Path:
    if not argv:
        msg = "there is no program to start: argv is empty"
        raise ValueError(msg)
    path = path_entries(env.get("PATH", ""))
    found = await threads.run(partial(find_executable, argv[0], path=path, cwd=cwd))
    if found is None:
        # Not the folders: what a PATH holds is of no use to the people who are told of a run.
        where = f"in {cwd}" if "/" in argv[0] else "on its PATH" if path else "on an empty PATH"
        said = await threads.run(partial(not_found, argv[0], path=path, cwd=cwd))
        msg = f"{said} {where}"
        raise FileNotFoundError(msg)
    return found


def _stdin(
    data: bytes | None, *, ours: AsyncExitStack, theirs: ExitStack
) -> tuple[FileIO | None, FileIO]:
    if data is None:
        return None, theirs.enter_context(FileIO(os.devnull, "r"))
    read_end, write_end = os.pipe()
    child_end = theirs.enter_context(FileIO(read_end, "r"))
    return _nonblocking(ours.enter_context(FileIO(write_end, "w"))), child_end


def _output(*, ours: AsyncExitStack, theirs: ExitStack) -> tuple[FileIO, FileIO]:
    read_end, write_end = os.pipe()
    child_end = theirs.enter_context(FileIO(write_end, "w"))
    return child_end, _nonblocking(ours.enter_context(FileIO(read_end, "r")))


def _nonblocking(end: FileIO) -> FileIO:
    os.set_blocking(end.fileno(), False)
    return end


async def _feed(sink: FileIO, data: bytes) -> None:
    left = memoryview(data)
    try:
        while left:
            await anyio.wait_writable(sink)
            left = left[sink.write(left[:_CHUNK]) or 0 :]
    except BrokenPipeError:
        pass  # a child need not read what it is given
    sink.close()


async def _drain(source: FileIO, add: Callable[[bytes], None], end: anyio.Event) -> None:
    chunk: bytes | None = None
    while chunk != b"":
        await anyio.wait_readable(source)
        chunk = source.read(_CHUNK)
        add(chunk or b"")
    end.set()


async def _all_within(ends: Sequence[anyio.Event], limit: timedelta) -> None:
    with anyio.move_on_after(limit.total_seconds()):
        for end in ends:
            await end.wait()


async def _end_group(process: anyio.abc.Process, grace: timedelta) -> None:
    """End what is left of the group that `process` leads, and wait for the leader.

    What was started in the group is waited for as well, but no longer than `grace` after KILL:
    where nobody reaps orphans, they stay in the group for ever.
    """
    group = process.pid
    try:
        if _signal_group(group, signal.SIGTERM) and not await _is_gone(process, grace):
            _signal_group(group, signal.SIGKILL)
            await process.wait()
            await _is_gone(process, grace)
    except BaseException:
        # A shield holds off the scopes around it, not a cancellation aimed at the task itself.
        _signal_group(group, signal.SIGKILL)
        await process.wait()
        raise
    await process.wait()


async def _is_gone(process: anyio.abc.Process, within: timedelta) -> bool:
    pause = 0.005
    with anyio.move_on_after(within.total_seconds()):
        await process.wait()
        while _signal_group(process.pid, 0):
            _reap_orphans(process.pid)
            pause = min(2 * pause, 0.1)
            await anyio.sleep(pause)
        return True
    return False


def _reap_orphans(group: int) -> None:
    """Reap what became a child of this process because its own parent is gone.

    So it is where this process is the first of a container. The leader must be reaped already.
    """
    try:
        while os.waitpid(-group, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass  # orphans are somebody else's to reap


def _signal_group(group: int, number: int) -> bool:
    """Signal a process group; say whether there was anything in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # what runs as another user is there all the same
    return True


@attrs.define(kw_only=True)
class _Head:
    limit: int
    overflowed: Callable[[], None]
    kept: bytearray = attrs.field(factory=bytearray)
    is_over: bool = False

    def add(self, chunk: bytes) -> None:
        if self.is_over:
            return  # read on, so that the child can reach its end
        self.kept += chunk
        if len(self.kept) > self.limit:
            del self.kept[self.limit :]
            self.is_over = True
            self.overflowed()


@attrs.define(kw_only=True)
class _Tail:
    limit: int
    kept: bytearray = attrs.field(factory=bytearray)

    def add(self, chunk: bytes) -> None:
        self.kept += chunk
        del self.kept[: -self.limit]

    def text(self, characters: int) -> str:
        """The last characters, at most so many; `limit` holds them whole in any case.

        One of them is the mark of a cut, by which the redactor knows the rest of a secret.
        """
        text = self.kept.decode("utf-8", "replace")
        if len(text) <= characters and len(self.kept) < self.limit:
            return text
        # The first character may be half of one.
        return CUT + text[1 - characters :].lstrip("\ufffd")
