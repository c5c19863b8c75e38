"""Hands committed intents to the host's deliverer until they are delivered or given up.

Theory of operation. An attempt is counted and leased in the store before the deliverer is called,
and settled after it returned. A crash in between leaves a lease, so the intent is handed over again
under its id with a higher attempt: at least once, never silently not at all. The store gives out
one intent per automation at a time, so order holds per automation and one that cannot be delivered
holds up nobody else's. A call that ignores its cancellation is reported, gives its seat to another
and stays the one call for its intent: when its lease lapses, the claim is only renewed, and counts
for none.

When the time of a drain is over the pump is closed: a call that began then would be cut off at once
and might arrive all the same. What is claimed by then is let go again, and the next engine delivers
it. A call that the engine's end does cut off is settled as a failed attempt that may have arrived.
"""

from datetime import datetime, timedelta

import anyio
import anyio.abc
import attrs

from drumbeat.core.backoff import delivery_pause
from drumbeat.core.messages import exactly
from drumbeat.core.model import DeliveryIntent, Receipt, Sent
from drumbeat.errors import DeliveryRefused, NotFound, StoreError
from drumbeat.protocols import Deliverer
from drumbeat.runtime.answers import Raised, answered, said
from drumbeat.runtime.log import log
from drumbeat.runtime.receipts import kept_receipt
from drumbeat.runtime.services import Services

_AT_ONCE = 8
_PAGE = 1000
_LOOK_AGAIN = timedelta(seconds=60)
_REASON_LIMIT = 2000


@attrs.define(kw_only=True)
class _Call:
    """The one call of the deliverer that goes on for an intent."""

    slug: str
    attempt: int
    """Of the latest claim of its intent."""
    stuck: bool = False
    """Whether it goes on after its time was up."""


@attrs.define(kw_only=True)
class Deliveries:
    """The delivery pump of one engine."""

    services: Services
    deliverer: Deliverer
    _calls: dict[str, _Call] = attrs.field(factory=dict)
    """By intent that is being delivered."""
    _renewed: dict[str, int] = attrs.field(factory=dict)
    """By intent, how many of its claims were for a call that was going on."""
    _retries: dict[str, datetime] = attrs.field(factory=dict)
    """By slug, when its oldest intent is tried again; unknown after a restart."""
    _closed: bool = False
    _claiming: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    """Around the claim that is being made."""
    _order: anyio.Lock = attrs.field(factory=anyio.Lock)
    """Held while a claim or an answer is written, until what it means is kept here as well."""
    _looked: int = -1
    _next: datetime | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is being delivered, and nothing can be at this instant.

        While the store is in trouble nothing can be.
        """
        services = self.services
        if self._calls:
            return False
        if "store" in services.faults:
            return True
        due = self._next is not None and self._next <= services.clock.now()
        return self._looked == services.intents_changed.count and not due

    async def run(self) -> None:
        """Pump until cancelled; store trouble pauses the pump."""
        services = self.services
        async with anyio.create_task_group() as group:
            while True:
                seen = services.intents_changed.count
                try:
                    await self._hand_out(group)
                    pause = await self._pause()
                except StoreError as error:
                    services.trouble(error)
                    self._settle_for(seen)
                    # Whatever calls meanwhile: the store is left in peace for that long.
                    await services.clock.sleep(services.settings.store_probe)
                    continue
                self._settle_for(seen)
                await services.intents_changed.wait(
                    seen, clock=services.clock, limit=pause, glance=_LOOK_AGAIN
                )

    def _settle_for(self, seen: int) -> None:
        self._looked = seen
        self.services.state_changed.notify()

    async def _hand_out(self, group: anyio.abc.TaskGroup) -> None:
        services = self.services
        while not self._closed and sum(not call.stuck for call in self._calls.values()) < _AT_ONCE:
            intent: DeliveryIntent | None = None
            # A claim that is cancelled on its way counts for no attempt.
            with anyio.CancelScope() as self._claiming:
                async with self._order:
                    intent = await services.store.claim_intent(now=services.clock.now())
            # Nothing is awaited between the end of the claim and what it means for its call.
            if intent is None:
                return
            if call := self._calls.get(intent.id):
                # Its lease ran out while its call goes on, or its answer waits for the store.
                call.attempt = intent.attempt
                self._renewed[intent.id] = self._renewed.get(intent.id, 0) + 1
            elif self._claiming.cancel_called:
                reason = "the engine stopped before it was handed over"
                await self._settle(intent, "pending", "delivery_failed", reason=reason)
            else:
                intent = attrs.evolve(intent, fire=services.shown(intent.fire))
                self._calls[intent.id] = _Call(slug=intent.slug, attempt=intent.attempt)
                made = intent.attempt - self._renewed.get(intent.id, 0)
                group.start_soon(self._deliver, intent, made)

    async def _pause(self) -> timedelta | None:
        """How long nothing can be due: None while nothing is pending."""
        self._next = None
        pending = await self.services.store.runs(sent="pending", limit=_PAGE, payloads=False)
        slugs = {run.slug for run in pending}
        self._retries = {slug: at for slug, at in self._retries.items() if slug in slugs}
        now = self.services.clock.now()
        self._next = min((at for at in self._retries.values() if at > now), default=None)
        pauses = [] if self._next is None else [self._next - now]
        known = {slug for slug, at in self._retries.items() if at > now}
        going = {call.slug for call in self._calls.values()}
        if slugs - known - going or len(pending) == _PAGE:
            pauses.append(_LOOK_AGAIN)
        return min(pauses, default=None)

    def close(self) -> None:
        """Begin no further attempt; what is being delivered goes on."""
        self._closed = True
        self._claiming.cancel()

    async def drain(self, limit: timedelta) -> None:
        """Return when nothing is left that can be delivered at this instant, or after `limit`."""
        services = self.services

        async def expire() -> None:
            await services.hurried.wait(0, clock=services.clock, limit=limit)
            self.close()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(expire)
            while True:
                seen = services.state_changed.count
                if self.idle:
                    break
                await services.state_changed.wait(seen)
            group.cancel_scope.cancel()

    # ---- one intent

    async def _deliver(self, intent: DeliveryIntent, made: int) -> None:
        try:
            await self._attempt(intent, made)
        except anyio.get_cancelled_exc_class():
            await self._cut_off(intent)
            raise
        finally:
            if self._calls.pop(intent.id).stuck:
                self.services.stuck.discard(intent.id)
            self.services.intents_changed.notify()
            self.services.state_changed.notify()

    async def _attempt(self, intent: DeliveryIntent, made: int) -> None:
        services = self.services

        async def call() -> object:
            # A copy, since what a host does to it must not decide which call is over.
            return await self.deliverer.deliver(attrs.evolve(intent))

        async def report() -> None:
            await self._report_stuck(intent)

        answer = await answered(
            services.clock,
            services.settings.deliver_timeout,
            call,
            what=f"delivery of {intent.id}",
            stuck_after=services.settings.stuck_after,
            stuck=report,
        )
        if isinstance(answer, Raised):
            await self._came_to_nothing(intent, made, answer)
            return
        receipt = kept_receipt(answer, self.services.redactor)
        if answer is not None and receipt is None:
            log.warning("receipt_ignored", intent=intent.id, type=type(answer).__name__)
        self._renewed.pop(intent.id, None)
        if await self._settle(intent, "delivered", "delivered", receipt=receipt):
            log.info("delivered", slug=intent.slug, intent=intent.id, attempt=intent.attempt)

    async def _came_to_nothing(self, intent: DeliveryIntent, made: int, raised: Raised) -> None:
        if raised.how == "over-time":
            limit = exactly(self.services.settings.deliver_timeout)
            await self._failed(intent, made, f"no answer within {limit}; it may have arrived")
        elif raised.how == "self-cancelled":
            await self._failed(intent, made, "the deliverer cancelled itself; it may have arrived")
        elif isinstance(raised.error, DeliveryRefused):
            await self._abandon(intent, _refusal(raised.error))
        else:
            await self._failed(intent, made, said(raised.error))

    async def _cut_off(self, intent: DeliveryIntent) -> None:
        """The engine ends while the call goes on: the next one tries again, without a pause."""
        reason = "cut off as the engine stopped; it may have arrived"
        self._log_failed(intent, reason)
        await self._settle(intent, "pending", "delivery_failed", reason=reason)

    async def _report_stuck(self, intent: DeliveryIntent) -> None:
        services = self.services
        self._calls[intent.id].stuck = True
        services.stuck.add(intent.id)
        # There is a seat for another.
        services.intents_changed.notify()
        log.error("delivery_stuck", slug=intent.slug, intent=intent.id, attempt=intent.attempt)
        event = services.event(
            "delivery_stuck",
            services.clock.now(),
            intent.slug,
            intent.run_id,
            intent=intent.id,
            attempt=intent.attempt,
        )
        try:
            await services.store.record(events=(event,))
        except StoreError as error:
            services.trouble(error)

    async def _failed(self, intent: DeliveryIntent, made: int, reason: str) -> None:
        """Try again later, unless `made` calls of the deliverer are all that there are to be."""
        services = self.services
        if made >= services.settings.deliver_attempts:
            await self._abandon(intent, f"given up after attempt {made}: {reason}")
            return
        at = services.clock.now() + delivery_pause(made)
        reason = self._shown(reason)
        self._log_failed(intent, reason)
        if await self._settle(intent, "pending", "delivery_failed", retry_at=at, reason=reason):
            self._retries[intent.slug] = at

    def _log_failed(self, intent: DeliveryIntent, reason: str) -> None:
        log.warning(
            "delivery_failed",
            slug=intent.slug,
            intent=intent.id,
            attempt=intent.attempt,
            reason=reason,
        )

    async def _abandon(self, intent: DeliveryIntent, reason: str) -> None:
        reason = self._shown(reason)
        self._renewed.pop(intent.id, None)
        log.error("delivery_abandoned", slug=intent.slug, intent=intent.id, reason=reason)
        await self._settle(intent, "abandoned", "delivery_abandoned", reason=reason)

    def _shown(self, reason: str) -> str:
        return self.services.redactor.head(reason, _REASON_LIMIT)

    async def _settle(
        self,
        intent: DeliveryIntent,
        sent: Sent,
        kind: str,
        *,
        receipt: Receipt | None = None,
        retry_at: datetime | None = None,
        reason: str = "",
    ) -> bool:
        """Write down how an attempt ended; say whether that was possible."""
        services = self.services
        event = services.event(
            kind,
            services.clock.now(),
            intent.slug,
            intent.run_id,
            intent=intent.id,
            attempt=intent.attempt,
            **({"reason": reason} if reason else {}),
        )

        async def write() -> None:
            # Never beside a claim: that might take what is settled here for a message to be sent.
            async with self._order:
                # Under the latest claim: a failure of an earlier one would count as overtaken.
                call = self._calls.get(intent.id)
                held = attrs.evolve(intent, attempt=call.attempt) if call else intent
                await services.store.settle_intent(
                    held, sent, receipt=receipt, retry_at=retry_at, events=(event,)
                )

        # A lease that is not settled would hold up this automation until it lapses, so once the
        # deliverer has answered, the answer is written whatever happens to this task.
        settled = False
        with anyio.CancelScope(shield=True):
            try:
                settled = await services.insist(write)
            except NotFound:
                log.error("intent_gone", slug=intent.slug, intent=intent.id)
        return settled


def _refusal(error: DeliveryRefused) -> str:
    try:
        return str(error.problem.message)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  the message may be anything that a host put there
        return "refused, and the reason cannot be read"
