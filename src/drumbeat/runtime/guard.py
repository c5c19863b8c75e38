"""A guard beside a child process: it ends that and what it started when this process is killed.

Theory of operation. Nothing that runs in a process can be relied on once the process gets KILL, so
a second one has to be there before: a small program (`guard_process.py`) that waits on a pipe for
the end of this one. It is started before what it guards, so there is no instant at which a child
has none. What it has to end it knows by a variable in the environment, which children inherit, even
those that move to a session of their own, and by the session that the child leads, even if that
wipes its environment. Out of its reach is what does both, or runs as another user.

Linux only: elsewhere there is no `/proc` to look in, and a host that is not run by a Python of its
own (a frozen program) has nothing to start the guard with. Children are ended there as long as the
host lives, and not after.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from secrets import token_hex

import anyio
import attrs

from drumbeat.runtime.guard_process import MARK
from drumbeat.runtime.threads import Threads

_PROGRAM = Path(__file__).with_name("guard_process.py")


@attrs.frozen(kw_only=True)
class Guard:
    """What marks a child, and who is told which one it is."""

    env: dict[str, str]
    """To be set in the environment of the child."""
    line: FileIO | None

    def watch(self, leader: int) -> None:
        """Say which process leads the session that is guarded."""
        if self.line is None:
            return
        try:
            self.line.write(b"%d\n" % leader)
        except BrokenPipeError:
            pass  # somebody ended the guard; the child is no worse off than without one


@asynccontextmanager
async def guard(threads: Threads | None = None) -> AsyncIterator[Guard]:
    """Have a guard while the child runs.

    Raises:
        OSError: it could not be started.
    """
    threads = threads or Threads()
    value = token_hex(8)
    argv = _argv(value)
    if argv is None:
        yield Guard(env={}, line=None)
        return
    read_end, write_end = os.pipe()
    with FileIO(write_end, "w") as line:
        with FileIO(read_end, "r") as source, anyio.CancelScope(shield=True):
            process = await threads.run(partial(_start, argv, source))
        try:
            yield Guard(env={MARK: value}, line=line)
        finally:
            with anyio.CancelScope(shield=True):
                await threads.run(_end, process)


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


def _start(argv: list[str], source: FileIO) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv,
        stdin=source,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
