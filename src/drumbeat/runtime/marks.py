"""One mark of the store, by its key; what it says belongs to the room that keeps it."""

from drumbeat.core.model import Mark
from drumbeat.protocols import Store

__all__ = ["mark_of"]


async def mark_of(store: Store, key: str) -> Mark:
    """The mark of exactly `key`; one without a value that was never written, if there is none.

    Raises:
        StoreError: the store could not be read.
    """
    # The store answers by prefix.
    found = (mark for mark in await store.marks(key) if mark.key == key)
    return next(found, Mark(key=key, value=None))
