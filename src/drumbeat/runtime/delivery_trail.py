"""What the durable events remember of a delivery that did not succeed."""

from datetime import datetime, timedelta

from drumbeat.core.model import Event, RunRecord
from drumbeat.errors import EventsExpired
from drumbeat.protocols import Store

_PAGE = 1000
_AT_ONCE = timedelta(0)
_TOLD = ("delivery_failed", "delivery_abandoned")


async def last_failure(store: Store, run: RunRecord) -> str:
    """Why the last attempt to deliver the run's message failed; "" when that is not kept.

    Finds the events of that time by their ids, which grow with it, so that months of other events
    are not read.

    Raises:
        StoreError: the store could not be read.
    """
    reason = ""
    after = await _before(store, run.started_at)
    while True:
        try:
            page = await store.events(after=after, limit=_PAGE, wait=_AT_ONCE)
        except EventsExpired:
            return reason
        for event in page:
            if event.run_id == run.run_id and event.kind in _TOLD:
                reason = str(event.data.get("reason", ""))
                if event.kind == "delivery_abandoned":
                    return reason
        if len(page) < _PAGE:
            return reason
        after = page[-1].id


async def _before(store: Store, moment: datetime) -> int:
    """An id behind which the events of `moment` and later stand, as near to them as may be."""

    async def lies_before(number: int) -> bool:
        """Whether the first event behind that id is older than the moment, or purged."""
        try:
            found: list[Event] = await store.events(after=number, limit=1, wait=_AT_ONCE)
        except EventsExpired as expired:
            return expired.problem.code != "events-ahead"
        return bool(found) and found[0].at < moment

    low, high = 0, 1
    while await lies_before(high):
        low, high = high, 2 * high
    if low == 0 and not await lies_before(0):
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        if await lies_before(middle):
            low = middle
        else:
            high = middle
    return high
