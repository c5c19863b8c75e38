"""A guard beside a child process: it ends what is left of that when it or this process is over.

Theory of operation. Nothing that runs in a process can be relied on once the process gets KILL, so
a second one has to be there before: a small program (`guard_process.py`) that waits on a pipe for
the end of this one. It is started before what it guards, so there is no instant at which a child
has none. What it has to end it knows by a variable in the environment, which children inherit, even
those that move to a session of their own, and by the session that the child leads, even if that
wipes its environment. Out of its reach is what does both, or runs as another user.

When the child is over, whichever way, its process group has been ended by whoever ran it. The guard
is told, ends what bears the mark all the same, says so and goes; that is waited for, so that no
successor meets what its predecessor left. The search goes through all of `/proc`, which is why it
is the guard's and takes neither the loop nor the interpreter of this process. What it ended may
have become a child of this process, where that is the first of a container, and is reaped here.

Linux only: elsewhere there is no `/proc` to look in, and a host that is not run by a Python of its
own (a frozen program) has nothing to start the guard with. Children are ended there as long as the
host lives, by their process group, and not after.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from secrets import token_hex

import anyio
import attrs

from drumbeat.runtime.guard_process import MARK, OVER, PATIENCE, is_unreaped
from drumbeat.runtime.threads import Threads

_PROGRAM = Path(__file__).with_name("guard_process.py")
_HANG = PATIENCE + 5
"""Real seconds after which a guard that does not go is ended: somebody stopped it."""


@attrs.frozen(kw_only=True)
class Guard:
    """What marks a child, and who is told which one it is."""

    env: dict[str, str]
    """To be set in the environment of the child."""
    line: FileIO | None

    def watch(self, leader: int) -> None:
        """Say which process leads the session that is guarded."""
        self._say(b"%d\n" % leader)

    def over(self) -> None:
        """Say that the child is over, the group that it led as well."""
        self._say(OVER)

    def _say(self, words: bytes) -> None:
        if self.line is None:
            return
        try:
            self.line.write(words)
        except BrokenPipeError:
            pass  # somebody ended the guard; the child is no worse off than without one


@asynccontextmanager
async def guard(threads: Threads | None = None) -> AsyncIterator[Guard]:
    """Have a guard while the child runs; what bears its mark has ended when this is left.

    What does not end within `PATIENCE` seconds is given up.

    Raises:
        OSError: it could not be started.
    """
    threads = threads or Threads()
    value = token_hex(8)
    argv = _argv(value)
    if argv is None:
        yield Guard(env={}, line=None)
        return
    with ExitStack() as ours:
        with ExitStack() as theirs, anyio.CancelScope(shield=True):
            source, line = _pipe(theirs, ours)
            report, sink = _pipe(ours, theirs)
            process = await threads.run(partial(_start, argv, source, sink))
        watched = Guard(env={MARK: value}, line=line)
        try:
            yield watched
        finally:
            watched.over()
            ended = bytearray()
            try:
                with anyio.CancelScope(shield=True), anyio.move_on_after(_HANG):
                    await _hear(report, ended)
            finally:
                with anyio.CancelScope(shield=True):
                    await threads.run(_end, process, bytes(ended))


def _pipe(readers: ExitStack, writers: ExitStack) -> tuple[FileIO, FileIO]:
    read_end, write_end = os.pipe()
    return readers.enter_context(FileIO(read_end, "r")), writers.enter_context(
        FileIO(write_end, "w")
    )


async def _hear(report: FileIO, said: bytearray) -> None:
    """Wait for the guard's last word, or its end; it takes no thread, which others may need."""
    os.set_blocking(report.fileno(), False)
    # Not for the end of the pipe alone: a fork of this process may hold that open.
    while not said.endswith(OVER):
        await anyio.wait_readable(report)
        chunk = report.read(4096)
        if chunk == b"":
            return
        said += chunk or b""


def _argv(value: str) -> list[str] | None:
    python = sys.executable or ""
    if (
        not sys.platform.startswith("linux")
        or getattr(sys, "frozen", False)
        or not Path(python).name.startswith(("python", "pypy"))
        or not _PROGRAM.is_file()
    ):
        return None
    return [python, "-I", "-S", str(_PROGRAM), str(os.getpid()), value]


def _start(argv: list[str], source: FileIO, sink: FileIO) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv,
        stdin=source,
        stdout=sink,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]", ended: bytes) -> None:
    try:
        process.wait(_HANG)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # Whole lines: a cancellation of the task itself may have come between two parts of one.
    for line in ended.removesuffix(OVER).rpartition(b"\n")[0].splitlines():
        orphan, started = map(int, line.split())
        if is_unreaped(orphan, started):
            _reap(orphan)


def _reap(orphan: int) -> None:
    try:
        os.waitpid(orphan, os.WNOHANG)
    except ChildProcessError:
        pass  # orphans are somebody else's to reap
