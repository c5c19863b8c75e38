"""The rooms of one engine, put together, and how they live and end together."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Self

import anyio
import attrs

from drumbeat.errors import StoreError
from drumbeat.protocols import Deliverer
from drumbeat.runtime import rotations
from drumbeat.runtime.agenda import Agenda
from drumbeat.runtime.awaited import AwaitedTurns
from drumbeat.runtime.contained import contained
from drumbeat.runtime.deliveries import Deliveries
from drumbeat.runtime.desk import Desk
from drumbeat.runtime.dispatcher import Dispatcher
from drumbeat.runtime.inbox import Inboxes
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.presence import Presence
from drumbeat.runtime.replies import Replies
from drumbeat.runtime.retention import Retention
from drumbeat.runtime.rules import Rules
from drumbeat.runtime.scheduler import Scheduler
from drumbeat.runtime.services import Services
from drumbeat.runtime.settlement import Settlement
from drumbeat.runtime.upkeep import Upkeep


@attrs.define(kw_only=True)
class Life:
    """What exists from entering an engine on."""

    services: Services
    agenda: Agenda
    dispatcher: Dispatcher
    replies: Replies
    awaited: AwaitedTurns
    upkeep: Upkeep
    desk: Desk
    inboxes: Inboxes
    retention: Retention
    presence: Presence
    deliveries: Deliveries | None
    lock: EngineLock
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    """Ends the loops."""

    @classmethod
    def of(cls, services: Services, deliverer: Deliverer | None, lock: EngineLock) -> Self:
        """Put the rooms together; nothing goes on yet."""
        settings = services.settings
        scheduler = Scheduler(
            zone=services.zone("automation"),
            clock=services.clock,
            catch_up=settings.catch_up,
            max_sleep=settings.max_sleep,
        )

        def is_going(slug: str) -> bool:
            return dispatcher.busy(slug)

        agenda = Agenda(services=services, scheduler=scheduler, is_going=is_going)
        dispatcher = Dispatcher(
            services=services,
            settlement=Settlement(services=services),
            finished=scheduler.finished,
            pass_over=agenda.pass_over,
        )
        awaited = AwaitedTurns(services)
        replies = Replies(services=services, awaited=awaited)
        inboxes = Inboxes(services=services)
        presence = Presence(services=services)
        rules = Rules(
            zones=services.zones,
            catch_up=settings.catch_up,
            systems=tuple(sorted(services.mail)),
            workspace=services.workspace_dir,
        )
        return cls(
            services=services,
            agenda=agenda,
            dispatcher=dispatcher,
            replies=replies,
            awaited=awaited,
            upkeep=Upkeep(
                services=services,
                agenda=agenda,
                dispatcher=dispatcher,
                replies=replies,
                inboxes=inboxes,
                rules=rules,
                presence=presence,
            ),
            presence=presence,
            inboxes=inboxes,
            desk=Desk(services=services, dispatcher=dispatcher),
            retention=Retention(services=services, is_answering=lambda: bool(replies.going)),
            deliveries=(
                None if deliverer is None else Deliveries(services=services, deliverer=deliverer)
            ),
            lock=lock,
        )

    @property
    def rules(self) -> Rules:
        """What clients have to know to foresee what comes."""
        return self.upkeep.rules

    @property
    def quiet(self) -> bool:
        """Whether nothing is due, running or deliverable at this instant."""
        idle = self.agenda.idle(self.services.clock.now()) and self.dispatcher.idle
        idle = idle and self.desk.idle and self.inboxes.idle
        return idle and (self.deliveries is None or self.deliveries.idle)

    async def make_ready(self, holder: str) -> None:
        """Complete what an earlier process left; what the store does not take waits for the loops.

        Args:
            holder: the name of this engine.

        Raises:
            StoreError: a rotation could not be completed, or what is known could not be read.
        """
        services = self.services
        self.presence.holder = holder
        await rotations.complete(services)
        await self.agenda.load()
        await self.upkeep.recall()
        await self.retention.recall()
        try:
            await self.presence.begin()
            await self.dispatcher.settlement.carry_on(self.dispatcher.ended)
            await self.upkeep.publish()
            await self.upkeep.begin()
            await self.agenda.sync(services.workspace.workspace)
            await self.inboxes.sync(services.workspace.workspace)
        except StoreError as error:
            services.trouble(error)
        services.patient = True

    async def go_on(self) -> None:
        """Run the loops until `scope` is cancelled.

        Raises:
            ExceptionGroup: one of them failed, which ended the others.
        """

        async def loop(run: Callable[[], Awaitable[None]]) -> None:
            try:
                await run()
            except Exception:
                # The runs are cancelled by this and write their ends, for which none may wait.
                self.services.begin_draining()
                raise

        loops = [
            self.agenda.run,
            self.agenda.report_jumps,
            self.dispatcher.run,
            self.replies.pay_debts,
            self.upkeep.keep_reloading,
            self.upkeep.keep_renewing,
            self.desk.run,
            self.inboxes.run,
            self.retention.run,
            self._keep_lock,
        ]
        if self.deliveries is not None:
            loops.append(self.deliveries.run)
        with self.scope:
            async with self.agenda.scheduler, anyio.create_task_group() as group:
                for run in loops:
                    group.start_soon(loop, run)

    async def _keep_lock(self) -> None:
        services = self.services
        await self.lock.keep(clock=services.clock, interval=services.settings.request_poll)

    async def drain(self, limit: timedelta, *, last_word: bool = False) -> None:
        """Start nothing more; give what runs, and then what is being delivered, `limit` in all.

        Turns whose callers wait have it beside the runs. Once it is over no delivery begins either:
        those of the runs that are interrupted then are the next engine's.

        Args:
            limit: on the clock.
            last_word: whether who calls gives what is to be delivered a time of its own after this.
        """
        clock = self.services.clock
        self.services.begin_draining()
        end = clock.monotonic() + limit.total_seconds()

        def time_up() -> None:
            if self.deliveries is not None and not last_word:
                self.deliveries.close()

        async with anyio.create_task_group() as group:
            group.start_soon(partial(self.dispatcher.drain, limit, time_up=time_up))
            group.start_soon(self.awaited.drain, limit)
            if limit > timedelta(0):
                # Whoever looks from another process sees it at once.
                group.start_soon(contained, self.services, "sign of life", self.presence.beat)
        left = timedelta(seconds=end - clock.monotonic())
        if self.deliveries is not None and left > timedelta(0):
            await self.deliveries.drain(left)
        time_up()
