"""One mark by its key."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from drumbeat.core.model import Mark
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.store import SqliteStore

pytestmark = pytest.mark.anyio


async def test_a_mark_is_found_by_its_whole_key_and_can_be_moved(host: Any) -> None:
    """The store answers by prefix, and one slug may begin with another."""
    host.data.mkdir()
    store = SqliteStore(host.data / "drumbeat.db", clock=host.clock)
    await store.open(holder="test", lease=timedelta(hours=1))
    await store.record(marks=(Mark(key="a:check-2", value=2),))
    none = await mark_of(store, "a:check")
    assert (none.value, none.version) == (None, 0)
    await store.record(marks=(attrs.evolve(none, value=1),))
    found = await mark_of(store, "a:check")
    await store.record(marks=(attrs.evolve(found, value=3),))
    assert (await mark_of(store, "a:check")).value == 3
    assert (await mark_of(store, "a:check-2")).value == 2
    await store.close()
