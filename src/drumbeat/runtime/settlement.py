"""What an earlier process left behind: runs that were going are settled as interrupted.

Theory of operation. Whoever opens the store as its holder lapses every older claim. Each lapsed
claim on a fire is taken over under a new token and then brought to its end, one after the other:

- its fire has a verdict: the claim is only freed;
- its run is finished: the fire gets the verdict that goes with it, as the transaction that finished
  the run should have written;
- its run was going, or had not even been recorded: it is concluded as `interrupted`, its intent
  included, and its fire is made due again where the contract gives it another attempt. If somebody
  had asked to cancel it, it is concluded as `cancelled`, and there is no other attempt.

What was taken over and is not settled yet is remembered here, so trouble with the store in the
middle loses none of them. A crash in the middle leaves claims, as the first one did.
"""

from collections.abc import Callable

import attrs

from drumbeat.core.attempts import next_attempt
from drumbeat.core.model import Automation, Claim, Fire, RunRecord
from drumbeat.runtime.conclusion import Ending, conclude, unfinished
from drumbeat.runtime.contained import contained
from drumbeat.runtime.inbox_marks import after_run
from drumbeat.runtime.journal import Journal
from drumbeat.runtime.log import log
from drumbeat.runtime.services import Services


@attrs.define(kw_only=True)
class Settlement:
    """The settlement of one engine's start."""

    services: Services
    _left: list[Claim] | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to settle."""
        return self._left == []

    async def carry_on(self, ended: Callable[[RunRecord], None]) -> None:
        """Settle what is left.

        Args:
            ended: told of each run that was interrupted, as soon as that is committed.

        What a mistake keeps from being settled is left, and holds up no other.

        Raises:
            StoreError: the store is in trouble; a further call goes on where this one stopped.
        """
        if self._left is None:
            self._left = await self.services.store.take_over()
        for claim in list(self._left):

            async def settle(claim: Claim = claim) -> None:
                record = await self._settle(claim)
                self._left = [each for each in self._left or () if each is not claim]
                if record is not None:
                    ended(record)

            await contained(self.services, "settlement", settle, slug=claim.slug)

    async def _settle(self, claim: Claim) -> RunRecord | None:
        services, fire = self.services, claim.fire
        if fire is None or fire.verdict is not None:
            await services.store.finish(claim, None)
            return None
        runs = await services.store.runs(target=claim.run_id, limit=1, payloads=False)
        if runs and runs[0].state != "running":
            await self._close(claim, fire, runs[0])
            return None
        # Without a record it was killed just after the claim: it is an attempt all the same, or a
        # fire that kills the process at once would do so for ever.
        if runs:
            record = attrs.evolve(runs[0], fire=fire)
        else:
            record = unfinished(claim, fire, at=services.clock.now())
        automation = services.find(claim.slug) or unknown(claim.slug)
        journal = Journal(services=services, slug=claim.slug, run_id=claim.run_id)
        log.warning("run_interrupted", slug=claim.slug, run_id=claim.run_id)
        return await conclude(
            services, journal, claim, automation, record, Ending(state="interrupted")
        )

    async def _close(self, claim: Claim, fire: Fire, run: RunRecord) -> None:
        """Let the fire of a run that is finished end as it has to."""
        services, now = self.services, self.services.clock.now()
        again_at = next_attempt(
            fire, run.state, now=now, inbox_attempts=services.settings.inbox_attempts
        )
        mail = await after_run(services.store, fire, run.state, again=again_at is not None)
        if again_at is not None:
            await services.store.finish(claim, run, again_at=again_at, marks=mail)
            return
        event = services.event(
            "fire_settled", now, claim.slug, claim.run_id, fire=fire.id, verdict="ran"
        )
        await services.store.finish(claim, run, marks=mail, events=(event,))


def unknown(slug: str) -> Automation:
    """Stands for an automation whose file is gone or broken, so that its runs are still voiced."""
    return Automation(slug=slug, name=slug, kind="automation", steps=())
