"""A deliverer that keeps what it is given."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import anyio.lowlevel

from drumbeat.core.model import DeliveryIntent, Receipt
from drumbeat.protocols import Deliverer

__all__ = ["RecordingDeliverer"]

_Fail: TypeAlias = Sequence[Exception | None] | Callable[[DeliveryIntent], Exception | None]


class RecordingDeliverer(Deliverer):
    """A deliverer for tests: it keeps what was delivered, and fails when told to.

        >>> deliverer = RecordingDeliverer()
        >>> anyio.run(deliverer.deliver, example_intent(id="7", text="disk full")).id
        'message-7'
        >>> [intent.text for intent in deliverer.intents]
        ['disk full']

    With `fail=[ConnectionError("no route")] * 3` it fails three times and then works.

    The receipt of an intent has the id `message-` and the intent's id, so a test can answer it with
    `engine.reply(receipt.id, …)`.

    Args:
        fail: what to raise. A sequence gives one exception to each of the first attempts, whatever
            intent they are for; None in it lets that attempt pass, and so does its end. A function
            is asked at every attempt.
    """

    intents: list[DeliveryIntent]
    """What was delivered, in order; one that was delivered twice stands here twice."""

    attempts: list[DeliveryIntent]
    """What it was called with, in order, the attempts that failed included."""

    def __init__(self, fail: _Fail = ()) -> None:
        self.intents = []
        self.attempts = []
        self._fail = fail if callable(fail) else tuple(fail)

    async def deliver(self, intent: DeliveryIntent, /) -> Receipt:
        """Keep the intent.

        Raises:
            Exception: what `fail` says for this attempt.
        """
        number = len(self.attempts)
        self.attempts.append(intent)
        await anyio.lowlevel.checkpoint()
        error: Exception | None = None
        if callable(self._fail):
            error = self._fail(intent)
        elif number < len(self._fail):
            error = self._fail[number]
        if error is not None:
            raise error.with_traceback(None)
        self.intents.append(intent)
        return Receipt(id=f"message-{intent.id}")
