"""How a run asks for a later run of its own automation (spec, section 13.3)."""

from datetime import timedelta
from uuid import uuid4

import anyio
import attrs

from drumbeat.core.model import Fire
from drumbeat.errors import FollowUpRefused, Problem
from drumbeat.protocols import FollowUps
from drumbeat.runtime.services import Services


@attrs.define(kw_only=True)
class RunFollowUps(FollowUps):
    """The follow-ups of one run: worthless for any other automation, and after the run's end."""

    services: Services
    fire: Fire
    """What the run is an attempt at."""
    run_id: str
    open: bool = True
    """Whether the run is still going."""
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def schedule(self, prompt: str, *, after: timedelta) -> Fire:
        """Commit a follow-up, or say which limit it is over. See `drumbeat.protocols.FollowUps`."""
        services, slug = self.services, self.fire.slug
        # Counted and committed by one caller at a time, or the limit would hold for none of them.
        async with self._turn:
            refusal = await self._refusal(prompt, after)
            now = services.clock.now()
            if refusal is not None:
                event = services.event(
                    "follow_up_refused", now, slug, self.run_id, reason=refusal.message
                )
                await services.store.record(events=(event,))
                raise FollowUpRefused(refusal)
            name = f"follow-up-{uuid4()}"
            fire = Fire(
                id=name,
                slug=slug,
                cause="follow-up",
                slot=name,
                due=now + after,
                created_at=now,
                prompt=prompt,
                parent_run=self.run_id,
                depth=self.fire.depth + 1,
            )
            event = services.event(
                "follow_up_scheduled", now, slug, self.run_id, fire=name, due=fire.due.isoformat()
            )
            (stored,) = await services.store.add_fires((fire,), events=(event,))
        services.fires_changed.notify()
        return stored

    async def _refusal(self, prompt: str, after: timedelta) -> Problem | None:
        settings = self.services.settings
        if not self.open:
            return _problem("the run that asked has ended", "ask from a run that is going")
        if not prompt.strip():
            return _problem("the prompt is blank", "write what the later run is to do")
        if not timedelta(0) <= after <= settings.follow_up_delay:
            return _problem(
                f"a delay of {after} is outside 0 s to {settings.follow_up_delay}",
                "ask for a delay within these bounds",
            )
        if self.fire.depth + 1 > settings.follow_up_depth:
            return _problem(
                f"the chain is {self.fire.depth} follow-ups long, and "
                f"{settings.follow_up_depth} is the limit",
                "finish the work in this run, or say what is left in the reply",
            )
        backlog = await self.services.store.backlog(
            slug=self.fire.slug, now=self.services.clock.now()
        )
        pending = sum(waiting.follow_ups for waiting in backlog)
        if pending >= settings.follow_ups_pending:
            return _problem(
                f"{pending} follow-ups are pending, and {settings.follow_ups_pending} is the limit",
                "wait until one of them has run",
            )
        return None


def _problem(message: str, remedy: str) -> Problem:
    return Problem(code="follow-up-refused", message=f"no follow-up: {message}", remedy=remedy)
