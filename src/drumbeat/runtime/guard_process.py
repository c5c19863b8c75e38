"""What a guard runs: it waits for the end of the host, and then ends what the host had started.

It is started as a program of its own, without site packages, so it uses the standard library alone
and nothing of drumbeat. Its standard input is a pipe whose other end the host holds: the system
closes that when the host dies, however it dies. Over it the host says which process leads the
session that is guarded, as decimal digits and a line end.
"""

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep  # noqa: TID251  no engine is there whose clock it could take

MARK = "DRUMBEAT_GUARD"
"""The variable that marks what one guard has to end."""
LOOK = 2.0
"""Seconds between two looks at who the parent is: a fork of the host may hold the pipe."""
GRACE = 2.0
"""Seconds between TERM and KILL."""
PATIENCE = 30.0
"""Seconds after which it gives up on what does not end."""

_PROC = Path("/proc")


def wait_for_end(source: int, host: int, look: float = LOOK) -> bytes:
    """Return once the host is gone, with what it had said.

    Args:
        source: the descriptor of the pipe.
        host: the process id of the host.
        look: seconds between two looks at who the parent is.
    """
    said = b""
    while True:
        orphaned = os.getppid() != host
        # What it said before its end is in the pipe, whether or not a fork of it holds that open.
        if select.select([source], [], [], 0 if orphaned else look)[0]:
            chunk = os.read(source, 4096)
            said += chunk
            if not chunk:
                return said
        elif orphaned:
            return said


def marked(mark: bytes, session: int | None) -> Iterator[int]:
    """Yield each process that bears the mark or belongs to the session.

    Args:
        mark: `NAME=value`, as it stands in the environment of what is guarded.
        session: the id of the guarded session; None if it is not known.
    """
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and _belongs(entry, mark, session):
            yield int(entry.name)


def _belongs(entry: Path, mark: bytes, session: int | None) -> bool:
    try:
        # The name in brackets may hold anything, brackets and spaces too.
        state, _parent, _group, sid = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:4]
        if state in (b"Z", b"X"):
            return False
        if session is not None and int(sid) == session:
            return True
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it is gone, or somebody else's


def end(
    mark: bytes, session: int | None, *, grace: float = GRACE, patience: float = PATIENCE
) -> bool:
    """End what bears the mark or belongs to the session: TERM, after `grace` KILL.

    Returns:
        Whether nothing of it is left; False after `patience` seconds.
    """
    begun = monotonic()
    clean = 0
    while clean < 2:  # what forks while it is looked for is found by the second look
        kill = monotonic() - begun >= grace
        found = False
        for process in marked(mark, session):
            found = True
            try:
                os.kill(process, signal.SIGKILL if kill else signal.SIGTERM)
            except OSError:
                pass  # it is gone, or runs as another user
        clean = 0 if found else clean + 1
        if monotonic() - begun > patience:
            return False
        if found:
            sleep(0.05 if kill else 0.2)
    return True


def main() -> None:
    """Guard until the host ends; `argv` has the host's process id and the value of the mark."""
    # A service manager's TERM goes to the host as well, and its end is what counts here.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    host, value = int(sys.argv[1]), sys.argv[2]
    said = wait_for_end(0, host)
    end(f"{MARK}={value}".encode(), int(said) if said.endswith(b"\n") else None)


if __name__ == "__main__":
    main()
