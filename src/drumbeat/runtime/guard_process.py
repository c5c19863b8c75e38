"""What a guard runs: once the child or the host is over, it ends what is left of the child.

It is started as a program of its own, without site packages, so it uses the standard library alone
and nothing of drumbeat. Its standard input is a pipe whose other end the host holds: the system
closes that when the host dies, however it dies. Over it the host says which process leads the
session that is guarded, as decimal digits and a line end, and that the child is over, as `over`.

In that case the leader has been reaped, and its number may belong to somebody else: the mark alone
counts. What was ended is written to standard output, a line of process id and start for each, and
`over` as the last.
"""

import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep  # noqa: TID251  no engine is there whose clock it could take
from typing import NamedTuple

MARK = "DRUMBEAT_GUARD"
"""The variable that marks what one guard has to end."""
OVER = b"over\n"
"""What the host says when the child is over, and the guard when nothing of it is left."""
LOOK = 2.0
"""Seconds between two looks at who the parent is: a fork of the host may hold the pipe."""
GRACE = 2.0
"""Seconds between TERM and KILL."""
PATIENCE = 30.0
"""Seconds after which it gives up on what does not end."""

_PROC = Path("/proc")
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.2
"""Seconds between two looks at what gets TERM."""


class Seen(NamedTuple):
    """A process that runs; the moment of its start tells it from a later one of the same id."""

    process: int
    session: int
    started: int
    """In ticks since the machine started."""
    environ: bytes


def _unreported(process: int, started: int) -> None:
    """Nobody asks what was ended."""


def wait_for_end(source: int, host: int, look: float = LOOK) -> bytes:
    """Return once the host is gone or says that the child is over, with all that it said.

    Args:
        source: the descriptor of the pipe.
        host: the process id of the host.
        look: seconds between two looks at who the parent is.
    """
    said = b""
    while not said.endswith(OVER):
        orphaned = os.getppid() != host
        # What it said before its end is in the pipe, whether or not a fork of it holds that open.
        if select.select([source], [], [], 0 if orphaned else look)[0]:
            chunk = os.read(source, 4096)
            said += chunk
            if not chunk:
                return said
        elif orphaned:
            return said
    return said


def marked(mark: bytes, sessions: dict[int, int], *, since: int = 0) -> list[Seen]:
    """The processes that bear the mark or belong to one of the sessions.

    Args:
        mark: `NAME=value`, as it stands in the environment of what is guarded.
        sessions: those of what is guarded, as far as they are known, with the start of their
            leader, 0 where it is not known. Those whose leader bears the mark are added: nobody may
            have said which one it is, as a host that is killed in the instant in which its child
            begins does not come to that. One whose number leads another session goes.
        since: what started earlier is none of it, in ticks.
    """
    entries = (entry for entry in _PROC.iterdir() if entry.name.isdigit())
    seen = [found for entry in entries if (found := _seen(entry, since))]
    bearing = {each.process for each in seen if mark in each.environ.split(b"\0")}
    for each in seen:
        if each.process != each.session:
            continue  # a session with another leader may be that of whoever started the host
        if each.process in bearing:
            sessions[each.session] = each.started
        elif sessions.get(each.session, 0) not in (0, each.started):
            del sessions[each.session]
    return [each for each in seen if each.process in bearing or each.session in sessions]


def start_of(process: int) -> int:
    """When a process started, in ticks; 0 when it is gone."""
    stat = _stat(_PROC / str(process))
    return 0 if stat is None else int(stat[_STARTED])


def is_unreaped(process: int, started: int) -> bool:
    """Whether that very process has ended and nobody has taken note of it."""
    stat = _stat(_PROC / str(process))
    return stat is not None and stat[_STATE] == b"Z" and int(stat[_STARTED]) == started


_STATE, _SESSION, _STARTED = 0, 3, 19
"""Where they stand behind the name; proc(5) counts from 1 and has two fields before."""


def _stat(entry: Path) -> list[bytes] | None:
    try:
        # The name in brackets may hold anything, brackets and spaces too.
        return (entry / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None  # it is gone


def _seen(entry: Path, since: int) -> Seen | None:
    stat = _stat(entry)
    if stat is None or stat[_STATE] in (b"Z", b"X") or int(stat[_STARTED]) < since:
        return None
    try:
        environ = (entry / "environ").read_bytes()
    except OSError:
        environ = b""  # it is gone, or somebody else's
    return Seen(int(entry.name), int(stat[_SESSION]), int(stat[_STARTED]), environ)


def send(process: int, started: int, number: int) -> None:
    """Signal that very process, and none that has its id by now."""
    try:
        handle = os.pidfd_open(process)
    except (AttributeError, OSError):
        handle = None  # it is gone, or the system is too old to have these
    try:
        if start_of(process) != started:
            return
        if handle is None:
            os.kill(process, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it is gone, or runs as another user
    finally:
        if handle is not None:
            os.close(handle)


def end(
    mark: bytes,
    session: int | None,
    *,
    since: int = 0,
    grace: float = GRACE,
    patience: float = PATIENCE,
    report: Callable[[int, int], None] = _unreported,
) -> bool:
    """End what bears the mark or shares a session with it: TERM, after `grace` KILL.

    Args:
        mark: `NAME=value`, as it stands in the environment of what is guarded.
        session: the session of what is guarded, if that is known.
        since: what started earlier is none of it, in ticks.
        grace: seconds between TERM and KILL.
        patience: seconds after which it gives up.
        report: called with each process that is signalled and its start, once.

    Returns:
        Whether nothing of it is left; False after `patience` seconds.
    """
    begun = monotonic()
    sessions = {} if session is None else {session: 0}
    reported = set[tuple[int, int]]()
    pause = _FIRST_PAUSE
    clean = 0
    while clean < 2:  # what forks while it is looked for is found by the second look
        kill = monotonic() - begun >= grace
        found = marked(mark, sessions, since=since)
        for process, _, started, _ in found:
            if (process, started) not in reported:
                reported.add((process, started))
                report(process, started)
            send(process, started, signal.SIGKILL if kill else signal.SIGTERM)
        clean = 0 if found else clean + 1
        if monotonic() - begun > patience:
            return False
        if found:
            sleep(0.05 if kill else pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    return True


def _say(words: bytes) -> None:
    try:
        os.write(1, words)
    except OSError:
        pass  # the host is gone by now


def main() -> None:
    """Guard until the child or the host ends; `argv`: the host's process id, the mark's value."""
    # A service manager's TERM goes to the host as well, and its end is what counts here.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    host, value = int(sys.argv[1]), sys.argv[2]
    mark, since = f"{MARK}={value}".encode(), start_of(os.getpid())
    said = wait_for_end(0, host)
    if said.endswith(OVER):
        end(mark, None, since=since, report=lambda pid, start: _say(b"%d %d\n" % (pid, start)))
        _say(OVER)
    else:
        end(mark, int(said) if said.endswith(b"\n") else None, since=since)


if __name__ == "__main__":
    main()
