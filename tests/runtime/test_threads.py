"""The threads of an engine and of a client, which are their own."""

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Barrier
from types import FrameType
from typing import Any

import anyio
import pytest
from anyio import from_thread, to_thread

import drumbeat
from drumbeat import Client, load_workspace
from drumbeat.runtime.threads import THREADS, Threads
from drumbeat.testing import ManualClock

pytestmark = pytest.mark.anyio


@contextmanager
def none_left() -> Iterator[None]:
    """A host that uses all the threads that anyio has by itself."""
    limiter = to_thread.current_default_thread_limiter()
    users = [object() for _ in range(int(limiter.total_tokens))]
    for user in users:
        limiter.acquire_on_behalf_of_nowait(user)
    try:
        yield
    finally:
        for user in users:
            limiter.release_on_behalf_of(user)


async def test_an_engine_needs_no_thread_of_its_host(host: Any, anyio_backend_name: str) -> None:
    """From entering it to leaving it; but trio starts every process in one of its own."""
    host.file("data.md", "Something.")
    host.file("SYSTEM.md", "Be brief.")
    host.file("skills/mail/SKILL.md", "---\nname: mail\ndescription: Mail.\n---\nRead.\n")
    host.tool("look", "echo three")
    inject = [] if anyio_backend_name == "trio" else [{"argv": ["look"], "label": "look"}]
    host.write(requires=["data.md"], inject=inject, notify="auto")
    host.file("jobs/job.md", "---\ncron: 0 7 * * *\n---\nLook.\n")
    with none_left(), anyio.fail_after(20):
        async with host.engine() as engine:
            await engine.reload()
            for slug in ("check", "job"):
                run = await engine.run(slug)
                assert run.state == "succeeded", run.failure
            await engine.reply(run.run_id, "And?")
            await engine.ask("What is there?")
            assert await engine.upcoming(until=host.clock.now() + timedelta(days=2))
            await engine.rotate("check", "a test")
            await host.clock.advance(timedelta(days=2))
            assert (await engine.status()).faults == ()
        async with Client(host.workspace) as client:
            await client.status()
            await client.upcoming(until=host.clock.now() + timedelta(days=2))
            await client.fire("check")
            assert set(await client.sessions()) == {"job"}
        await load_workspace(host.workspace)


async def test_endpoints_in_all_threads_of_a_host_may_wait_for_runs(host: Any) -> None:
    host.write()
    limiter = to_thread.current_default_thread_limiter()
    before, limiter.total_tokens = limiter.total_tokens, 2
    try:
        async with host.engine() as engine:
            with anyio.fail_after(20):
                async with anyio.create_task_group() as group:
                    call = partial(from_thread.run, engine.run, "check")
                    for _ in range(4):
                        group.start_soon(to_thread.run_sync, call)
            assert [run.state for run in await engine.runs()] == ["succeeded"] * 4
    finally:
        limiter.total_tokens = before


def test_no_room_takes_a_thread_of_its_host() -> None:
    """Each call into a thread names whose; only a program of drumbeat's own has no other host."""
    package = Path(drumbeat.__file__).parent
    calls = [
        (path.relative_to(package).as_posix(), node)
        for path in package.rglob("*.py")
        if path.parent.name != "cli"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("to_thread.run_sync")
    ]
    assert "runtime/threads.py" in [name for name, _ in calls]
    bare = [
        f"{name}:{call.lineno}"
        for name, call in calls
        if "limiter" not in [given.arg for given in call.keywords]
    ]
    assert bare == [], "take Threads, or a limiter of its own"


@contextmanager
def called_on_the_loop() -> Iterator[set[str]]:
    """The functions of drumbeat that are called in this thread, as `file.py:name`."""
    package, found = str(Path(drumbeat.__file__).parent), set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and str(path).startswith(package):
            found.add(f"{path.name}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def test_what_grows_with_the_schedules_of_a_workspace_is_worked_out_in_threads(
    host: Any,
) -> None:
    """To foresee them, to say why, and to look at files of which none has changed."""
    daily = {"type": "schedule", "expression": "daily at 13:00"}
    host.write("check", trigger=daily)
    host.write("poll", trigger={"type": "schedule", "expression": "every 45 minutes"})
    async with host.engine() as engine:
        at = host.clock.now() + timedelta(days=1)
        async with Client(host.workspace) as client:
            with called_on_the_loop() as called:
                for reader in (engine, client):
                    await reader.upcoming(until=at)
                    await reader.why("check", at=at)
                    await reader.why("check", at=host.clock.now())
                    await reader.status()
                await engine.reload()
    assert "client.py:upcoming" in called
    of_all = {
        *("preview.py:_planned", "schedule_marks.py:standing", "schedule_marks.py:kept_rule"),
        *("workspace.py:_seen", "workspace.py:_change", "agenda.py:_follow"),
    }
    assert called & of_all == set()
    files = ("planner.py:set", "planner.py:upcoming", "schedule.py:", "slots.py:", "cron.py:")
    assert [name for name in called if name.startswith(files)] == []


async def test_what_a_replaced_rule_made_due_is_worked_out_in_a_thread(host: Any) -> None:
    host.write("check", trigger={"type": "schedule", "expression": "daily at 13:00"})
    async with host.engine():
        pass
    host.clock = ManualClock(host.clock.now() + timedelta(days=300))
    host.write("check", trigger={"type": "schedule", "expression": "daily at 14:00"})
    engine = host.engine()
    with called_on_the_loop() as called:
        async with engine:
            pass
    assert "superseded.py:superseded" in called
    assert called & {"schedule_marks.py:owed", "schedule_marks.py:kept_rule"} == set()


async def test_so_many_are_in_threads_at_once() -> None:
    """All of them, and one more waits."""
    threads = Threads()
    full = Barrier(THREADS)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for _ in range(2 * THREADS):
                group.start_soon(threads.run, full.wait)
    assert threads._limiter is not None
    assert threads._limiter.total_tokens == THREADS
