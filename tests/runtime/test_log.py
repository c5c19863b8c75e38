"""The log: where its lines go is the host's, and what becomes of them stops nothing."""

import io
import os
from pathlib import Path
from typing import Any, TextIO

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from drumbeat import AgentError, RunRecord, Turn
from drumbeat.core.redaction import Redactor
from drumbeat.runtime.log import log, traced
from drumbeat.testing import ScriptedAgent


class Switched:
    """A stream of the host that goes bad while it is in use."""

    def __init__(self) -> None:
        self.target: TextIO = io.StringIO()

    def write(self, text: str) -> int:
        return self.target.write(text)

    def flush(self) -> None:
        self.target.flush()


@pytest.fixture
def stream() -> Switched:
    """The stream that structlog prints to."""
    switched = Switched()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(switched))  # type: ignore[arg-type]
    return switched


def full() -> TextIO:
    return Path("/dev/full").open("w", buffering=1, encoding="utf-8")


def unread() -> TextIO:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w", buffering=1, encoding="utf-8")


def closed() -> TextIO:
    target = io.StringIO()
    target.close()
    return target


def ascii_only() -> TextIO:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii")


def test_the_log_is_captured_with_its_level() -> None:
    with capture_logs() as lines:
        log.info("first", slug="check")
        log.warning("second")
        log.error("third", event_count=3)
    assert lines == [
        {"event": "first", "slug": "check", "log_level": "info"},
        {"event": "second", "log_level": "warning"},
        {"event": "third", "event_count": 3, "log_level": "error"},
    ]


@pytest.mark.parametrize("line", ["a line", "l" * 5000], ids=["short", "long"])
def test_a_traceback_is_cut_however_many_lines_a_note_has(line: str) -> None:
    """Each line of a note is cut for itself, and a secret of several lines is never cut in two."""
    secret = "-----BEGIN KEY-----\ncorrect-horse\n-----END KEY-----"
    redactor = Redactor({"KEY": secret})
    error = ValueError("no such model")
    error.add_note(f"{line}\n" * (600_000 // len(line)))
    whole = traced(error, redactor)
    assert whole.startswith("ValueError: no such model\n")
    assert 256 * 1024 <= len(whole) < 257 * 1024
    first = ValueError("no such model")
    room = 256 * 1024 - len(traced(first, redactor))
    first.add_note("ab\n" * (room // 3 - 5) + secret)
    first.add_note(f"{line}\n" * 10_000)
    cut = traced(first, redactor)
    assert cut.startswith("ValueError: no such model\n")
    assert 256 * 1024 <= len(cut) < 257 * 1024
    assert not any(word in cut for word in ("BEGIN", "correct", "END"))


def test_a_long_line_of_a_note_is_cut_in_no_secret_that_goes_on_behind_it() -> None:
    redactor = Redactor({"KEY": "correct-horse\nbattery\nstaple"})
    error = ValueError("no such model")
    error.add_note("y" * 4090 + "correct-horse\nbattery\nstaple and more")
    said = traced(error, redactor)
    assert "[redacted KEY] and more" in said
    assert not any(word in said for word in ("correct", "battery", "staple"))


@pytest.mark.anyio
@pytest.mark.parametrize("broken", [full, unread, closed, ascii_only])
async def test_a_log_that_takes_nothing_stops_neither_engine_nor_host(
    host: Any, stream: Switched, broken: Any
) -> None:
    """A full disk, a reader that is gone, a closed stream, a name that it cannot encode."""
    host.write(name="Café")
    lived_on = False

    def raises(turn: Turn) -> str:
        msg = "café"
        raise AgentError(msg)

    target = broken()
    async with host.engine(agent=ScriptedAgent(default=raises)) as engine:
        stream.target = target
        run: RunRecord = await host.fire(engine)
        status = await engine.status()
        await anyio.lowlevel.checkpoint()
        lived_on = True
    stream.target = io.StringIO()
    with pytest.raises((OSError, ValueError)):  # it did take nothing
        _fill(target)
    _shut(target)
    assert lived_on
    assert (run.state, status.state, status.faults) == ("failed", "running", ())


def _shut(target: TextIO) -> None:
    try:
        target.close()
    except OSError:
        target.close()


def _fill(target: TextIO) -> None:
    target.write("café\n" * 10_000)
    target.flush()
