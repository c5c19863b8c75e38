"""Intents that a host pulls: many of them hold up nobody else."""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from drumbeat.core.redaction import Redactor
from drumbeat.runtime.pulled import pull
from drumbeat.runtime.store import SqliteStore

pytestmark = pytest.mark.anyio

MANY = 1000


class Read(SqliteStore):
    """A store whose one run counts as many, which it has read."""

    found: Any = ()

    async def runs(self, **given: Any) -> Any:
        return self.found


async def test_others_go_on_while_thousands_are_pulled(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        run = await engine.run("check")
    store = Read(host.data / "drumbeat.db")
    store.found = [run] * MANY
    turns = 0

    async def go_on() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with anyio.create_task_group() as group:
        group.start_soon(go_on)
        await checkpoint()
        before = turns
        found = await pull(store, None, limit=None, payloads=False, redactor=Redactor({}))
        after = turns
        group.cancel_scope.cancel()
    assert len(found) == MANY
    assert after - before >= MANY // 64 - 1
