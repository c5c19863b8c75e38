"""Takes up the requests that stand in the store, for the engine that holds the data folder."""

import attrs

from drumbeat.core.model import Mark
from drumbeat.errors import ClaimLost, StoreError
from drumbeat.runtime.conclusion import Ending
from drumbeat.runtime.contained import contained
from drumbeat.runtime.dispatcher import Dispatcher
from drumbeat.runtime.log import log
from drumbeat.runtime.requests import CANCEL, ROTATE, cancelled, open_requests
from drumbeat.runtime.rotations import rotate_if_asked
from drumbeat.runtime.services import Services


@attrs.define(kw_only=True)
class Desk:
    """The desk of one engine: what `requests.py` describes, carried out.

    It looks each `Settings.request_poll`, and at once when `Services.requests_changed` is notified.
    While the store is in trouble it does not.
    """

    services: Services
    dispatcher: Dispatcher
    _looked: int = -1
    _told: set[str] = attrs.field(factory=set)

    @property
    def idle(self) -> bool:
        """Whether it has seen to all that was asked in this process, as far as it can be by now."""
        services = self.services
        return self._looked == services.requests_changed.count or "store" in services.faults

    async def run(self) -> None:
        """Take requests up until cancelled."""
        services = self.services
        while True:
            seen = services.requests_changed.count
            if "store" not in services.faults:
                await contained(services, "requests", self._look)
            self._looked = seen
            services.state_changed.notify()
            await services.requests_changed.wait(
                seen, clock=services.clock, glance=services.settings.request_poll
            )

    async def _look(self) -> None:
        try:
            marks = await open_requests(self.services.store)
        except StoreError as error:
            self.services.trouble(error)
            return
        mistake: Exception | None = None
        for mark in marks:
            try:
                await self._take_up(mark)
                self._told.discard(mark.key)
            except StoreError as error:
                if not error.problem.code.startswith("pins-"):
                    self.services.trouble(error)
                    return
                # The database is well, and one request that cannot be met keeps no other waiting.
                if mark.key not in self._told:
                    self._told.add(mark.key)
                    problem = error.problem
                    log.error(
                        "request_failed", key=mark.key, code=problem.code, message=problem.message
                    )
            except Exception as error:  # noqa: BLE001  raised when all others were seen to
                mistake = error
        if mistake is not None:
            raise mistake

    async def _take_up(self, mark: Mark) -> None:
        if mark.key.startswith(CANCEL):
            await self._cancel(mark)
        elif mark.key.startswith(ROTATE):
            slug = mark.key.removeprefix(ROTATE)
            # A run that is going would pin again what it talks in; see `Conversation.open`.
            if not self.dispatcher.busy(slug):
                await rotate_if_asked(self.services, slug, beside_runs=True)
        else:
            # Of a later release, whose engine will know it.
            log.warning("request_unknown", key=mark.key)

    async def _cancel(self, mark: Mark) -> None:
        services, run_id = self.services, mark.key.removeprefix(CANCEL)
        run = self.dispatcher.going.get(run_id)
        if run is not None:
            if run.stopping is None or run.stopping.state != "cancelled":
                log.info("run_cancelled", slug=run.claim.slug, run_id=run_id)
                run.stop(Ending(state="cancelled", problem=cancelled(mark.value)))
            return
        records = await services.store.runs(target=run_id, limit=1, payloads=False)
        if records and records[0].state == "running":
            return  # it is being settled, and ends as cancelled
        try:
            await services.store.record(marks=(attrs.evolve(mark, value=None),))
        except ClaimLost:
            return  # answered by somebody else
