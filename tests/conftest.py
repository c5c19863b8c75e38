"""What every test shares: the two backends, and an end to waiting."""

import inspect
import signal
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import anyio
import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As when a shell put the tests into the background: every host they start would ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_PATIENCE = 280
"""Seconds that a test may take. What hangs fails, with the place where it does."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each async test on both backends."""
    return str(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no async test wait for ever for an event that does not come."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _ended(item.obj)


def _ended(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def limited(*args: Any, **given: Any) -> None:
        with anyio.fail_after(_PATIENCE):
            await test(*args, **given)

    return limited
