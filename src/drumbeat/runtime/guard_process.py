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


def marked(mark: bytes, sessions: set[int]) -> list[int]:
    """The processes that bear the mark or belong to one of the sessions.

    Args:
        mark: `NAME=value`, as it stands in the environment of what is guarded.
        sessions: those of what is guarded, as far as they are known. Those whose leader bears the
            mark are added: nobody may have said which one it is, as a host that is killed in the
            instant in which its child begins does not come to that.
    """
    seen = [found for entry in _PROC.iterdir() if entry.name.isdigit() if (found := _seen(entry))]
    bearing = {process for process, _, environ in seen if mark in environ.split(b"\0")}
    # A session with another leader may be that of whoever started the host.
    sessions |= {session for process, session, _ in seen if process == session in bearing}
    return [process for process, session, _ in seen if process in bearing or session in sessions]


def _seen(entry: Path) -> tuple[int, int, bytes] | None:
    """The id, the session and the environment of a process that runs."""
    try:
        # The name in brackets may hold anything, brackets and spaces too.
        state, _parent, _group, sid = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:4]
    except OSError:
        return None  # it is gone
    if state in (b"Z", b"X"):
        return None
    try:
        environ = (entry / "environ").read_bytes()
    except OSError:
        environ = b""  # it is gone, or somebody else's
    return int(entry.name), int(sid), environ


def end(
    mark: bytes, session: int | None, *, grace: float = GRACE, patience: float = PATIENCE
) -> bool:
    """End what bears the mark or shares a session with it: TERM, after `grace` KILL.

    Args:
        mark: `NAME=value`, as it stands in the environment of what is guarded.
        session: the session of what is guarded, if that is known.
        grace: seconds between TERM and KILL.
        patience: seconds after which it gives up.

    Returns:
        Whether nothing of it is left; False after `patience` seconds.
    """
    begun = monotonic()
    sessions = set() if session is None else {session}
    clean = 0
    while clean < 2:  # what forks while it is looked for is found by the second look
        kill = monotonic() - begun >= grace
        found = False
        for process in marked(mark, sessions):
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
