"""Running an inject tool, and saying what its end means for the run."""

import os
from datetime import timedelta
from os import PathLike
from pathlib import Path

from drumbeat.core.asked import check_span
from drumbeat.core.model import Env, InjectOutcome, InjectSpec
from drumbeat.runtime.processes import MIB, Ended, run_process
from drumbeat.runtime.search_path import child_env, path_entries

MAX_OUTPUT = MIB
"""Bytes of standard output that a tool may inject (spec, section 9)."""

_IDLE = frozenset({b"INJECT_IDLE", b"INJECT_IDLE\n", b"INJECT_IDLE\r\n"})


async def run_inject(
    spec: InjectSpec,
    *,
    cwd: str | PathLike[str],
    env: Env | None = None,
    timeout: timedelta = timedelta(seconds=60),
) -> InjectOutcome:
    """Run a tool and classify how it ended: timeout, then exit code, then standard output.

    Whatever the tool does is in the value returned; nothing of it is raised. Its process group is
    ended on timeout, on cancellation and once it has exited. It has no standard input. Output is
    taken verbatim, never stripped.

    Args:
        spec: the tool.
        cwd: its working folder; `argv[0]` with a `/` is relative to it.
        env: its complete environment, whose PATH is where `argv[0]` is looked up; None for this
            process's own without the doors' secrets.
        timeout: how long it may take, in real time.

    Returns:
        `inject` with the code `inject-output` and the text; `idle` with the code `inject-idle`
        when the output is `INJECT_IDLE` and at most one line ending; else `abort` with one of
        `inject-not-startable`, `inject-timeout`, `inject-failed`, `inject-too-large`,
        `inject-empty` (nothing but white space) and `inject-not-utf8`, and a `reason` that ends
        with what the tool wrote last to standard error, 2,000 characters at most, the first being
        `…` when it wrote more.

    Raises:
        TypeError: `timeout` is no timedelta.

    Example:
        >>> from functools import partial
        >>> import anyio
        >>> from drumbeat import InjectSpec, run_inject
        >>> spec = InjectSpec(argv=("printf", "three open items"), label="open items")
        >>> anyio.run(partial(run_inject, spec, cwd="/")).text
        'three open items'
    """
    check_span("timeout", timeout)
    if env is None:
        host = os.environ
        env = child_env(host, path=path_entries(host.get("PATH", "")), extra={}, withheld=())
    ended = await run_process(
        spec.argv, cwd=_absolute(cwd), env=env, timeout=timeout, stdout_limit=MAX_OUTPUT
    )
    if ended.how == "not-startable":
        return _abort(ended, "inject-not-startable", f"could not be started: {ended.detail}")
    if ended.how == "timed-out":
        seconds = f"{timeout.total_seconds():g}"
        return _abort(ended, "inject-timeout", f"took longer than {seconds} s and was ended")
    if ended.how == "too-large":
        return _abort(ended, "inject-too-large", "wrote more than 1 MiB to standard output")
    if ended.exit_code != 0:
        return _abort(ended, "inject-failed", ended.exit)
    if ended.stdout in _IDLE:
        return InjectOutcome(
            kind="idle",
            code="inject-idle",
            reason="wrote INJECT_IDLE: there is nothing to inject",
            text="",
            exit_code=0,
            stderr=ended.stderr,
        )
    try:
        text = ended.stdout.decode("utf-8")
    except UnicodeDecodeError as error:
        return _abort(
            ended, "inject-not-utf8", f"wrote output that is not UTF-8 (byte {error.start})"
        )
    if not text.strip():
        return _abort(
            ended, "inject-empty", "exited with code 0 but wrote nothing, not even INJECT_IDLE"
        )
    return InjectOutcome(
        kind="inject",
        code="inject-output",
        reason=f"wrote {len(ended.stdout)} bytes",
        text=text,
        exit_code=0,
        stderr=ended.stderr,
    )


def _absolute(folder: str | PathLike[str]) -> Path:
    return Path(folder).absolute()


def _abort(ended: Ended, code: str, what: str) -> InjectOutcome:
    said = ended.stderr.strip()
    return InjectOutcome(
        kind="abort",
        code=code,
        reason=f"{what}; standard error ended with: {said}" if said else what,
        text="",
        exit_code=ended.exit_code,
        stderr=ended.stderr,
    )
