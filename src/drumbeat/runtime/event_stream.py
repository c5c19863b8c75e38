"""The durable events as they are read one after the other."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

from drumbeat.core.model import Event
from drumbeat.errors import EventsExpired, StoreError
from drumbeat.protocols import Clock, Store

_PAGE = 500
_WAIT = timedelta(seconds=30)
_LOOK_FOR_STORE = timedelta(seconds=1)


class EventStream(AsyncIterator[Event]):
    """An iterator over events, which may be left off and gone on with at any time.

    It holds nothing open, so it need not be closed.

    Args:
        readable: gives the store, or None while there is none.
        is_over: whether the client was left.
        clock: what is waited on while there is no store.
        after: the id of the last event that was seen; 0 begins with the first that is kept.
        follow: go on with further events as they come.
    """

    def __init__(
        self,
        *,
        readable: Callable[[], Awaitable[Store | None]],
        is_over: Callable[[], bool],
        clock: Clock,
        after: int,
        follow: bool,
    ) -> None:
        self._readable = readable
        self._is_over = is_over
        self._clock = clock
        self._after = after
        self._follow = follow
        self._page: deque[Event] = deque()

    async def __anext__(self) -> Event:
        """Return the next event, waiting for it when the events are followed.

        Raises:
            EventsExpired: events behind the last one that was seen were purged, or there is no
                such event any more.
            StoreError: the store could not be read.
            StopAsyncIteration: there is no further event, or the client was left.
        """
        while not self._page and not self._is_over():
            try:
                store = await self._readable()
                if store is not None:
                    wait = _WAIT if self._follow else timedelta(0)
                    found = await store.events(after=self._after, limit=_PAGE, wait=wait)
                    self._page.extend(found)
            except EventsExpired as expired:
                if self._after:
                    raise
                # Who has seen none misses none: what is kept begins later.
                self._after = expired.after
                continue
            except StoreError:
                if self._is_over():
                    break
                raise
            if not self._page and not self._follow:
                break
            if store is None:
                await self._clock.sleep(_LOOK_FOR_STORE)
        if not self._page:
            raise StopAsyncIteration
        event = self._page.popleft()
        self._after = event.id
        return event
