"""Takes one webhook request: what core decided about it is committed before the sender is told.

Theory of operation. An event becomes a fire whose slot is the delivery's id, so the store's rule
that (slug, cause, slot) stands once is what makes a repeated delivery the same fire: over restarts,
over processes, and when two come at once. An answer of 202 is given after that transaction only. A
sender that is not answered, because the process died in between, sends again and is told 200.

A delivery whose fire ended as removed, since its file was away, starts a run when it comes again:
in the slot that the id of that fire names, so that this too happens once.

What somebody chose not to run (the file is disabled, the automation is paused) is put in settled,
as the dispatcher would settle it, so that it is on record and known again.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from uuid import uuid4

import attrs

from drumbeat.core import webhook_answers
from drumbeat.core.explain import REMOVED, paused_reason
from drumbeat.core.model import (
    Accepted,
    Answer,
    Automation,
    Env,
    Fire,
    Ignored,
    Refused,
    WebhookTrigger,
)
from drumbeat.core.routes import BrokenRoute, Route
from drumbeat.core.webhooks import check_head, check_webhook
from drumbeat.errors import DrumbeatError, Problem
from drumbeat.protocols import Clock
from drumbeat.runtime.clock import holding
from drumbeat.runtime.log import log
from drumbeat.runtime.refusals import Refusals
from drumbeat.runtime.threads import Threads
from drumbeat.runtime.workspace import FileState

__all__ = ["Body", "WebhookDoor"]

Body = Callable[[], Awaitable[bytes | None]]
"""Reads the raw body when it is wanted: None when it is too long, TimeoutError when too slow."""

_QUICK = 65_536
"""Bytes: a longer body is checked in a thread, so that nobody else waits for it."""


@attrs.frozen(kw_only=True)
class WebhookDoor:
    """The door of one client or engine."""

    clock: Clock
    refusals: Refusals
    threads: Threads
    secrets: Callable[[], Env]
    find: Callable[[str], Awaitable[Route | BrokenRoute | None]]
    """Finds a route; raises `DrumbeatError` when nobody can tell."""
    file_state: Callable[[Automation], Awaitable[FileState]]
    """How the file of a route lies there at this moment, whatever it was when it was found."""
    obstacle: Callable[[], Problem | None]
    """What keeps fires from being put in at present."""
    paused: Callable[[], Awaitable[Mapping[str, str]]]
    put: Callable[[Fire], Awaitable[Fire]]
    failed: Callable[[DrumbeatError], None]
    """Told why a fire could not be put in."""

    async def take(
        self, name: str, *, method: str, headers: Mapping[str, str], body: bytes | Body | None
    ) -> Answer:
        """As `Client.webhook`."""
        try:
            found = await self.find(name)
        except DrumbeatError as error:
            return webhook_answers.refused(_unavailable(error.problem.code))
        if not isinstance(found, Route):
            return self._turn_away(name, found)
        trigger, automation = found.trigger, found.automation
        decision = await self._decided(trigger, method, headers, body)
        if isinstance(decision, Refused):
            self.refusals.note(
                "webhook_refused", automation.slug, route=trigger.route, code=decision.code
            )
            return webhook_answers.refused(decision, trigger)
        if isinstance(decision, Ignored):
            if decision.filtered:
                self.refusals.note(
                    "webhook_filtered", automation.slug, route=trigger.route, filter=trigger.filter
                )
            return webhook_answers.ignored(decision)
        obstacle = self.obstacle()
        if obstacle is not None:
            return webhook_answers.refused(_unavailable(obstacle.code))
        # The event would be used up by a slip of the pen, or by a file that is away for a while.
        with holding(self.clock, "a webhook's file"):
            state = await self.file_state(automation)
        if state != "there":
            known = BrokenRoute(slug=automation.slug, route=trigger.route)
            return self._turn_away(name, known, missing=state == "missing")
        try:
            return await self._commit(found, decision)
        except DrumbeatError as error:
            self.failed(error)
            return webhook_answers.refused(_unavailable(error.problem.code))

    async def _decided(
        self,
        trigger: WebhookTrigger,
        method: str,
        headers: Mapping[str, str],
        body: bytes | Body | None,
    ) -> Accepted | Ignored | Refused:
        secrets = self.secrets()
        refused = check_head(
            trigger, method=method, headers=headers, secrets=secrets, now=self.clock.now()
        )
        if refused is not None:
            return refused
        if callable(body):
            try:
                body = await body()
            except TimeoutError:
                return Refused(
                    code="webhook-too-slow", reason="the body did not come in time", status=408
                )
        if body is None:
            return Refused(
                code="webhook-too-large", reason="the body is too long for this door", status=413
            )
        check = partial(
            check_webhook,
            trigger,
            method=method,
            headers=headers,
            body=body,
            secrets=secrets,
            now=self.clock.now(),
        )
        if len(body) <= _QUICK:
            return check()
        with holding(self.clock, "webhook check"):
            return await self.threads.run(check)

    def _turn_away(self, name: str, found: BrokenRoute | None, *, missing: bool = False) -> Answer:
        if found is None:
            refusal = Refused(
                code="webhook-route-unknown", reason="there is no such route", status=404
            )
            self.refusals.note("webhook_refused", None, route=name, code=refusal.code)
        else:
            how, code = "cannot be read", "webhook-route-broken"
            if missing:
                how, code = "is not there", "webhook-file-missing"
            refusal = Refused(
                code=code,
                reason=f"the file of this route {how} at present; send it again later",
                status=503,
            )
            self.refusals.note("webhook_refused", found.slug, route=found.route, code=refusal.code)
        return webhook_answers.refused(refusal)

    async def _commit(self, found: Route, accepted: Accepted) -> Answer:
        automation, now = found.automation, self.clock.now()
        fire_id = f"webhook-{uuid4()}"
        fire = Fire(
            id=fire_id,
            slug=automation.slug,
            cause="webhook",
            slot=accepted.slot or fire_id,
            due=now,
            created_at=now,
            payload=accepted.payload,
        )
        why, told = "", ""
        reasons = await self.paused()
        if not automation.enabled:
            why = told = "disabled"
        elif automation.slug in reasons:
            # Why it is paused is nobody else's affair.
            why, told = paused_reason(reasons[automation.slug]), "paused"
        if why:
            fire = attrs.evolve(fire, verdict="skipped", reason=why)
        stored = await self.put(fire)
        while stored.id != fire_id and _lapsed(stored) and stored.payload == fire.payload:
            # Its slot is taken for good, so this one has the place behind it.
            fire = attrs.evolve(fire, slot=stored.id)
            stored = await self.put(fire)
        if stored.id != fire_id:
            return self._known_before(found, accepted, stored)
        if why:
            log.info("fire_skipped", slug=fire.slug, fire=fire_id, reason=why)
            return webhook_answers.settled(stored, told)
        log.info("webhook_accepted", slug=fire.slug, fire=fire_id, route=found.trigger.route)
        return webhook_answers.accepted(stored)

    def _known_before(self, found: Route, accepted: Accepted, stored: Fire) -> Answer:
        """Count a delivery that came before; another body under its id is no repetition."""
        slug, route = found.automation.slug, found.trigger.route
        same = stored.payload == accepted.payload
        if same:
            self.refusals.note("webhook_repeated", slug, route=route)
        else:
            self.refusals.note("webhook_conflicting", slug, route=route)
        return webhook_answers.known_before(stored, same=same)


def _lapsed(fire: Fire) -> bool:
    """Whether an event came to nothing because its file was away, which was nobody's choice."""
    return fire.verdict == "skipped" and fire.reason == REMOVED


def _unavailable(code: str) -> Refused:
    return Refused(
        code=code, reason="nothing can be taken at present; send it again later", status=503
    )
