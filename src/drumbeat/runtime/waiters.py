"""Who waits for the end of which fire."""

import anyio
import attrs

from drumbeat.core.model import Fire, RunRecord


@attrs.define
class Waiter:
    """Somebody who waits for the end of one fire: its run, or the fire itself when it was skipped.

    Neither is set when nobody can tell any more how it ended.
    """

    over: anyio.Event = attrs.field(factory=anyio.Event)
    run: RunRecord | None = None
    fire: Fire | None = None


@attrs.define
class Waiters:
    """The waiters of one engine, by fire."""

    _waiting: dict[str, list[Waiter]] = attrs.field(factory=dict)

    def add(self, fire_id: str) -> Waiter:
        """Register somebody who waits for a fire; before the fire is put in."""
        waiter = Waiter()
        self._waiting.setdefault(fire_id, []).append(waiter)
        return waiter

    def remove(self, fire_id: str, waiter: Waiter) -> None:
        """Forget a waiter; one that was told is forgotten already."""
        waiting = self._waiting.get(fire_id, [])
        if waiter in waiting:
            waiting.remove(waiter)
        if not waiting:
            self._waiting.pop(fire_id, None)

    def tell(self, fire_id: str, *, run: RunRecord | None = None, fire: Fire | None = None) -> None:
        """Wake those who wait for a fire, and tell them how it ended."""
        for waiter in self._waiting.pop(fire_id, ()):
            waiter.run, waiter.fire = run, fire
            waiter.over.set()

    def abandon(self) -> None:
        """Wake everybody: nothing ends any more."""
        for fire_id in list(self._waiting):
            self.tell(fire_id)
