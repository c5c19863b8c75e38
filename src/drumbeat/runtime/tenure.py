"""One engine's hold on its data folder: taking it, keeping it, and giving it back.

Theory of operation. Entering takes the folder's lock, opens the store as its holder, completes
what a crash left (a rotation half done, runs that were going), and only then starts the loops: the
workspace is looked at, due moments become fires, due fires become runs, intents go out, leases are
renewed. The loops share nothing but the store and a few signals. One task supervises them: a fault
ends the loops and waits in `wait()`; it never cancels the host's own body, in whose task that one
and two others are begun (`_own`). Once nothing goes on any more, that task gives the lock back: a
host may take its time to leave, and reading needs no lock.

A standby that finds the folder held opens the store as a client does, and the task that supervises
tries for the lock first; once it has it, it begins as if just entered, with the files as they stand
by then.

Trouble with the store is no fault. What entering has to write is tried once; what the store does
not take then is made up for by the dispatcher (the runs that were going) and by the next reload
(the marks of schedules), while `status().faults` says so.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta, tzinfo
from pathlib import Path
from typing import Literal

import anyio
import attrs
from anyio.abc import TaskGroup

from drumbeat.core.git_access import git_token, known_secrets
from drumbeat.core.model import Env, Pack
from drumbeat.core.redaction import Redactor
from drumbeat.core.settings import Settings
from drumbeat.errors import DrumbeatError, EngineBusy, Problem, StoreError, WorkspaceError
from drumbeat.protocols import Agent, Clock, Deliverer, MailSource, Pins, Store
from drumbeat.runtime.artifacts import Artifacts
from drumbeat.runtime.clock import Driven
from drumbeat.runtime.config_files import ConfigFiles
from drumbeat.runtime.life import Life
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.log import log, traced
from drumbeat.runtime.packs import load_packs
from drumbeat.runtime.refusals import Refusals
from drumbeat.runtime.schedule_marks import Zones
from drumbeat.runtime.search_path import search_path
from drumbeat.runtime.services import Services
from drumbeat.runtime.signals import Signal
from drumbeat.runtime.skills import Layers
from drumbeat.runtime.standby import stand_by
from drumbeat.runtime.state import State
from drumbeat.runtime.threads import Threads
from drumbeat.runtime.undisturbed import undisturbed
from drumbeat.runtime.upkeep import log_broken
from drumbeat.runtime.workspace import WorkspaceCache
from drumbeat.runtime.zones import zones_for

__all__ = ["Tenure"]

_LAST_WORD = 1.0
"""Real seconds for what is going when an engine on a driven clock is left: deliveries get so long,
and a run that goes on for longer is reported."""


@attrs.frozen(kw_only=True)
class _Parts:
    """What stands around an engine as it begins."""

    env: dict[str, str]
    zones: Zones
    workspace: WorkspaceCache
    packs: tuple[Pack, ...]
    skills: Layers
    config: ConfigFiles


@attrs.define(kw_only=True)
class Tenure:
    """What an engine has of its folder, from entering to leaving; entered once.

    Attributes:
        running: what it does at this instant.
        life: the rooms at work; None as long as it stands by, or was never entered.
        fault: what stopped it.
        fault_told: whether somebody had the fault raised.
        standby_fault: why it could not take over.
    """

    workspace_dir: Path
    data_dir: Path
    state: State
    clock: Clock
    threads: Threads
    settings: Settings
    agent: Agent
    deliverer: Deliverer | None
    mail: Mapping[str, MailSource]
    timezone: str | tzinfo | None
    env: Env
    skills: Sequence[Path]
    follow_ups_url: str | None
    pins: Pins
    standby: bool
    """Whether to wait for a folder that is held."""
    secrets: Callable[[], Env]
    redactor: Callable[[], Redactor]
    refusals: Refusals
    write_refusals: Callable[[], Awaitable[None]]
    on_end: set[Callable[[str], None]]
    running: Literal["standby", "running", "draining", "stopped"] = "stopped"
    life: Life | None = None
    fault: BaseException | None = None
    fault_told: bool = False
    standby_fault: Problem | None = None
    _end_said: bool = False
    _ended: bool = False
    _over: Signal = attrs.field(factory=Signal)
    _waiting: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    _reporting: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    _group: TaskGroup = attrs.field(factory=anyio.create_task_group)
    _lock: EngineLock = attrs.field(
        default=attrs.Factory(
            lambda self: EngineLock(self.data_dir, threads=self.threads), takes_self=True
        )
    )

    # ---- taking the folder

    async def enter(self) -> None:
        """Take the folder, or stand by; `give_up` is to follow in any case.

        Raises:
            EngineBusy: another engine holds it, and this one is no standby.
            DrumbeatError: what stands around the engine is wrong.
        """
        env = dict(self.env)
        parts = await self._parts(env)
        await self.state.prepare()
        since = self.clock.now().isoformat(timespec="seconds")
        try:
            holder = await self._lock.acquire(since=since)
        except EngineBusy as busy:
            if not self.standby:
                raise
            await self._open_beside()
            log.info("engine_standby", reason=busy.problem.message)
        else:
            self.life = await self._take(parts, holder)
        await self._group.__aenter__()
        self.running = "standby" if self.life is None else "running"
        self._group.start_soon(self._own, lambda: self._supervise(env))
        self._group.start_soon(self._own, self._report_refusals)

    async def _open_beside(self) -> None:
        """Open the store as a client does, unless the holder's release is an earlier one."""
        try:
            await self.state.writable()
        except StoreError as error:
            # As a holder it may bring the store up to date. Until then every look at it says so.
            if error.problem.code != "store-older":
                raise
            log.warning("standby_blind", message=error.problem.message)

    async def _parts(self, env: dict[str, str]) -> _Parts:
        """What stands around the engine, as it is at this instant."""
        zones = await self.threads.run(zones_for, self.timezone, env)
        workspace = WorkspaceCache(self.workspace_dir, threads=self.threads)
        first = await workspace.reload()
        if first.error is not None:
            raise first.error
        folders = await self.threads.run(lambda: tuple(map(Path.absolute, self.skills)))
        skills = Layers(workspace=self.workspace_dir, folders=folders, threads=self.threads)
        packs, config = await self._surroundings(env, skills)
        return _Parts(
            env=env, zones=zones, workspace=workspace, packs=packs, skills=skills, config=config
        )

    async def _surroundings(self, env: Env, skills: Layers) -> tuple[tuple[Pack, ...], ConfigFiles]:
        """The packs and the configuration; what is wrong there or with skills is refused."""
        packs, problems = await load_packs(self.workspace_dir, threads=self.threads)
        config = ConfigFiles(self.workspace_dir, env=env, threads=self.threads)
        change = await config.reload()
        if change.error is not None:
            problems = (*problems, *change.error.problems)
        problems = (*problems, *await skills.check())
        if problems:
            raise WorkspaceError(problems)
        return packs, config

    def _services(self, parts: _Parts, store: Store) -> Services:
        env = parts.env
        secrets = self.secrets()
        redactor = Redactor(known_secrets(env, secrets))
        memory = env.get("MEMORY_DIR")
        return Services(
            clock=self.clock,
            store=store,
            settings=self.settings,
            agent=self.agent,
            pins=self.pins,
            workspace=parts.workspace,
            artifacts=Artifacts(self.data_dir, redactor, self.clock, self.threads),
            redactor=redactor,
            workspace_dir=self.workspace_dir,
            data_dir=self.data_dir,
            memory_dir=Path(memory).absolute() if memory else self.data_dir / "memory",
            base_env=env,
            withheld=frozenset(secrets),
            git_token=git_token(env, secrets),
            search_path=search_path(
                workspace=self.workspace_dir, packs=parts.packs, base=env.get("PATH", os.defpath)
            ),
            packs=parts.packs,
            skills=parts.skills,
            config=parts.config,
            zones=parts.zones,
            follow_ups_url=self.follow_ups_url,
            mail=self.mail,
            threads=self.threads,
            refusals=self.refusals,
            on_end=self.on_end,
            patient=False,
        )

    async def _take(self, parts: _Parts, holder: str) -> Life:
        """Begin the life of the engine that holds the folder, what an earlier one left included."""
        store = await self.state.take_over(holder=holder)
        life = Life.of(self._services(parts, store), self.deliverer, self._lock)
        await life.make_ready(holder)
        log.info("engine_started", workspace=str(self.workspace_dir), holder=holder)
        for path, found in parts.workspace.workspace.problems.items():
            log_broken(path, found, life.services.redactor)
        return life

    async def _take_over(self, env: dict[str, str], holder: str) -> Life:
        """The same for a standby, whose holder has gone."""
        life = await self._take(await self._parts(env), holder)
        log.warning("engine_took_over", holder=holder)
        event = life.services.event("engine_took_over", self.clock.now(), holder=holder)
        try:
            await life.services.store.record(events=(event,))
        except StoreError as error:
            life.services.trouble(error)
        return life

    # ---- keeping it

    async def _own(self, call: Callable[[], Awaitable[None]]) -> None:
        """A task of the engine in the host's: what it raises stops the engine, not the body."""
        try:
            await call()
        except Exception as error:  # noqa: BLE001  kept for wait(), which raises it
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Keep the fault for `wait`, which raises the first; of the others the log alone tells."""
        faults = _leaves(error)
        if self.fault is None:
            self.fault = faults[0]
        shown = self.redactor()
        for fault in faults:
            log.error("engine_failed", error=type(fault).__name__, trace=traced(fault, shown))
        if self.life is None:
            self._waiting.cancel()
        else:
            # The runs are cancelled by this and write their ends, for which none may wait.
            self.life.services.begin_draining()
            self.life.scope.cancel()

    async def _supervise(self, env: dict[str, str]) -> None:
        try:
            if self.life is None:
                with self._waiting:
                    await self._stand_by(env)
            # One that was left while it took over may have taken over all the same.
            if self.life is not None and not self._waiting.cancel_called:
                await self.life.go_on()
        except Exception as error:  # noqa: BLE001  known before whoever waits hears of the end
            self._failed(error)
        finally:
            await undisturbed(self._stop)

    async def _stand_by(self, env: dict[str, str]) -> None:
        def failed(error: DrumbeatError | None) -> None:
            self.standby_fault = None if error is None else error.problem

        async def take_over(holder: str) -> Life:
            return await self._take_over(env, holder)

        life = await stand_by(
            self._lock,
            take_over,
            clock=self.clock,
            poll=self.settings.request_poll,
            failed=failed,
        )
        self.life, self.running = life, "running"

    async def _report_refusals(self) -> None:
        with self._reporting:
            while True:
                await self.refusals.pause()
                await self.write_refusals()

    async def _stop(self) -> None:
        """Let everybody know that it has stopped, and give the folder to whoever waits for it."""
        self.running = "stopped"
        try:
            if self.life is not None:
                self.life.dispatcher.waiters.abandon()
                self.life.services.state_changed.notify()
                self.life.awaited.stop(self.stopped("the engine stopped during the turn"))
                await self.life.awaited.over()
                await self.life.presence.end(self.fault)
        except Exception as error:  # noqa: BLE001  the folder is given back in any case
            self._failed(error)
        finally:
            try:
                await self._lock.release()
            finally:
                self._ended = True
                self._over.notify()

    # ---- giving it back

    async def leave(self, *, at_once: bool) -> None:
        """Drain and end all that goes on; `give_up` is to follow in any case.

        Args:
            at_once: leave no time for what is going.
        """
        try:
            await undisturbed(lambda: self._end(at_once=at_once), disturbed=self._hurry)
        finally:
            # Without the body's exception, which the group would wrap: it goes on as it is.
            await self._group.__aexit__(None, None, None)

    async def give_up(self) -> None:
        """Close the store and release the lock, with the last counts of the doors."""
        self.running = "stopped"

        async def close() -> None:
            try:
                if self.refusals.any:
                    await self.write_refusals()
            finally:
                await give_up()

        async def give_up() -> None:
            try:
                await self.state.close()
            finally:
                await self._lock.release()

        await undisturbed(close)

    def drain(self, reason: str) -> None:
        """Begin to drain, unless that goes on; a standby only stops waiting."""
        life = self.life
        if life is None:
            self._waiting.cancel()
        elif self.running == "running":
            self._say_end(reason)
            self.running = "draining"
            self._group.start_soon(self._own, lambda: self._drain_and_stop(life))

    async def wait(self) -> None:
        """Return when it has stopped and given the folder back.

        Raises:
            Exception: what stopped it, as it was raised.
        """
        while not self._ended:
            await self._over.wait(self._over.count)
        if self.fault is not None:
            self.fault_told = True
            raise self.fault

    def stopped(self, message: str) -> EngineBusy:
        """What is raised for work that comes too late."""
        remedy = "enter another engine"
        if self.fault is not None:
            remedy = f"look at what wait() raises, and {remedy}"
        return EngineBusy(
            Problem(
                code="engine-stopped",
                message=message,
                remedy=remedy,
            )
        )

    def _hurry(self) -> None:
        if self.life is not None:
            self.life.services.hurried.notify()

    async def _end(self, *, at_once: bool) -> None:
        """Drain, end the loops, and return when they have ended; a standby only stops waiting."""
        # Read here and not by who leaves: a standby may have taken over in the meantime.
        life = self.life
        if life is None:
            self._waiting.cancel()
        else:
            self._say_end(f"the engine's block was {'cancelled' if at_once else 'left'}")
            try:
                if at_once:
                    await self._drain(life, timedelta(0))
                elif isinstance(self.clock, Driven):
                    await self._drain_unmoved(life)
                else:
                    await self._drain(life, life.services.settings.drain_timeout)
            except Exception as error:  # noqa: BLE001  raised once the folder is given back
                self._failed(error)
            finally:
                life.scope.cancel()
        while not self._ended:
            await self._over.wait(self._over.count)
        self._reporting.cancel()

    async def _drain_unmoved(self, life: Life) -> None:
        """Drain on a clock that nobody moves: what would be reported in time is at once."""

        async def report() -> None:
            await anyio.sleep(_LAST_WORD)
            for run_id, run in life.dispatcher.going.items():
                log.error("run_stuck", slug=run.claim.slug, run_id=run_id)

        async with anyio.create_task_group() as group:
            group.start_soon(report)
            await self._drain(life, timedelta(0), last_word=True)
            group.cancel_scope.cancel()
        if life.deliveries is not None:
            with anyio.move_on_after(_LAST_WORD):
                await life.deliveries.drain(timedelta.max)

    async def _drain(self, life: Life, limit: timedelta, *, last_word: bool = False) -> None:
        if self.running != "stopped":
            self.running = "draining"
            await life.drain(limit, last_word=last_word)
            if self.refusals.any:
                await self.write_refusals()

    def _say_end(self, reason: str) -> None:
        # Once, whatever comes first; a cancellation may have stopped the loops by then.
        if not self._end_said and self.fault is None:
            self._end_said = True
            log.info("engine_draining", reason=reason)

    async def _drain_and_stop(self, life: Life) -> None:
        await self._drain(life, life.services.settings.drain_timeout)
        life.scope.cancel()


def _leaves(error: BaseException) -> list[BaseException]:
    """The exceptions inside nested groups, in order."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
