"""What every test shares: the two backends, an end to waiting, an unconfigured log, a workspace."""

import inspect
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog

from drumbeat.runtime.workspace import WorkspaceCache, WorkspaceChange

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As when a shell put the tests into the background: every host they start would ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

CHECK = """
name: Check
trigger: {type: manual}
notify: always
steps:
  - id: look
    prompt: Look around.
"""
_PATIENCE = 280
"""Seconds that a test may take. What hangs fails, with the place where it does."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each async test on both backends."""
    return str(request.param)


@pytest.fixture(autouse=True)
def unconfigured_log() -> Iterator[None]:
    """What a command or a host does to the log, for the whole process, ends with its test."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[WorkspaceCache]:
    """Grows with each look at the files of a workspace."""
    seen: list[WorkspaceCache] = []
    reload = WorkspaceCache.reload

    async def counted(cache: WorkspaceCache, **given: Any) -> WorkspaceChange:
        seen.append(cache)
        return await reload(cache, **given)

    monkeypatch.setattr(WorkspaceCache, "reload", counted)
    return seen


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no async test wait for ever for an event that does not come, and mark those on trio."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _ended(item.obj)
            given = item.callspec.params if hasattr(item, "callspec") else {}
            if given.get("anyio_backend") == "trio":
                item.add_marker("trio")


def _ended(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def limited(*args: Any, **given: Any) -> None:
        with anyio.fail_after(_PATIENCE):
            await test(*args, **given)

    return limited


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace."""
    folder = tmp_path / "workspace"
    (folder / "automations").mkdir(parents=True)
    return folder


@pytest.fixture
def write(workspace: Path) -> Callable[..., None]:
    """Write an automation file from its lines below `automation:`, or from those of `CHECK`."""

    def write(slug: str, text: str = CHECK) -> None:
        lines = "\n".join(f"  {line}" if line else "" for line in text.strip().splitlines())
        content = f"---\nautomation:\n{lines}\n---\nWhat it is for.\n"
        (workspace / "automations" / f"{slug}.md").write_text(content, encoding="utf-8")

    return write
