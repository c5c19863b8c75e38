"""What keeps inboxes from being polled: said at each poll, with an event per change."""

from typing import Any

import attrs

from drumbeat.core.model import Mark
from drumbeat.errors import Problem
from drumbeat.protocols import Store
from drumbeat.runtime.log import log
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.services import Services

_PREFIX = "inbox-fault:"
_REASON_LIMIT = 500
LOOK = "look at the mailbox and at how the host reaches it; it is polled on, and no mail is lost"
"""How a failure is mended of which no more is known."""


async def kept_faults(store: Store) -> dict[str, dict[str, str]]:
    """By slug, why its inbox could not be polled when that was last tried: `code` and `reason`.

    Raises:
        StoreError: the store could not be read.
    """
    return {
        mark.key.removeprefix(_PREFIX): {each: str(mark.value[each]) for each in ("code", "reason")}
        for mark in await store.marks(_PREFIX)
        if mark.value is not None
    }


@attrs.define(kw_only=True)
class InboxFaults:
    """The faults of one engine's inboxes, one for each slug at most.

    What they are about is a mark, so that a restart repeats no event, and a client can tell.
    """

    services: Services
    _marks: dict[str, Mark] = attrs.field(factory=dict)

    async def failed(
        self,
        slug: str,
        inbox: str,
        *,
        code: str,
        reason: str,
        remedy: str,
        kind: str,
        facts: dict[str, str],
    ) -> None:
        """Say that a poll failed.

        Args:
            slug: whose inbox it is.
            inbox: its system and address.
            code: what went wrong, in a word.
            reason: and in more of them.
            remedy: how it is mended.
            kind: failures that differ in their reason alone are of one kind, and make one event.
            facts: what the event says of the inbox.

        Raises:
            StoreError: the event could not be written; the next failure tries again.
        """
        services, now = self.services, self.services.clock.now()
        shown = services.redactor.head
        # Again once its lines are one: a secret may have been broken over them.
        reason = shown(" ".join(shown(reason, _REASON_LIMIT).split()), _REASON_LIMIT)
        log.warning("mail_poll_failed", slug=slug, **facts, code=code, reason=reason)
        services.faults[_PREFIX + slug] = Problem(
            code=code,
            message=f"the inbox {inbox} of {slug} could not be polled: {reason}",
            remedy=shown(remedy, _REASON_LIMIT),
        )
        value = {"inbox": inbox, "code": code, "kind": shown(kind, _REASON_LIMIT)}
        mark = await self._mark(slug)
        if mark.value is not None and value.items() <= mark.value.items():
            return
        event = services.event("mail_poll_failed", now, slug, **facts, code=code, reason=reason)
        await self._move(mark, {**value, "reason": reason}, event)

    async def over(self, slug: str, facts: dict[str, str]) -> None:
        """Say that a poll succeeded, if the one before did not.

        Raises:
            StoreError: the event could not be written; the next success tries again.
        """
        services, now = self.services, self.services.clock.now()
        mark = await self._mark(slug)
        if mark.value is not None:
            log.info("mail_poll_recovered", slug=slug, **facts)
            event = services.event("mail_poll_recovered", now, slug, **facts)
            await self._move(mark, None, event)
        self.forget(slug)

    def forget(self, slug: str) -> None:
        """Show no fault of an inbox that is polled no more."""
        self.services.faults.pop(_PREFIX + slug, None)

    async def _mark(self, slug: str) -> Mark:
        if slug not in self._marks:
            key = _PREFIX + slug
            self._marks[slug] = await mark_of(self.services.store, key)
        return self._marks[slug]

    async def _move(self, mark: Mark, value: Any, *events: Any) -> None:
        slug = mark.key.removeprefix(_PREFIX)
        # Read again unless it was written: a call that was cancelled may have moved it.
        del self._marks[slug]
        moved = attrs.evolve(mark, value=value)
        await self.services.store.record(marks=(moved,), events=events)
        self._marks[slug] = attrs.evolve(moved, version=mark.version + 1)
