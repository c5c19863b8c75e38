"""What the rooms of one engine share: the parts it was given, and what it knows about itself."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import anyio
import attrs

from drumbeat.core.identity import run_id
from drumbeat.core.model import Automation, Env, Event, Fire, Json, Kind, Pack, Workspace
from drumbeat.core.redaction import Redactor
from drumbeat.core.routes import BrokenRoute, Route, find_route
from drumbeat.core.settings import Settings
from drumbeat.errors import ClaimLost, Problem, StoreError
from drumbeat.protocols import Agent, Clock, MailSource, Pins, Store
from drumbeat.runtime.artifacts import Artifacts
from drumbeat.runtime.config_files import ConfigFiles
from drumbeat.runtime.log import log, traced
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.places import Places
from drumbeat.runtime.refusals import Refusals
from drumbeat.runtime.run_tokens import RunTokens
from drumbeat.runtime.signals import Signal
from drumbeat.runtime.skills import Layers
from drumbeat.runtime.threads import Threads
from drumbeat.runtime.workspace import WorkspaceCache

T = TypeVar("T")

_PROBE = "probe:store"
_LASTING = frozenset({"pins-damaged", "pins-newer"})
"""What people have to mend: the run fails, and says so."""


@attrs.define(kw_only=True)
class Services:
    """One engine's parts. Nothing here is shared between engines."""

    clock: Clock
    store: Store
    settings: Settings
    agent: Agent
    pins: Pins
    workspace: WorkspaceCache
    artifacts: Artifacts
    redactor: Redactor
    workspace_dir: Path
    data_dir: Path
    memory_dir: Path
    base_env: Env
    withheld: Collection[str]
    git_token: str | None = attrs.field(repr=False)
    """What git may show to the hosts of `Settings.git_hosts`."""
    search_path: tuple[Path, ...]
    packs: tuple[Pack, ...]
    skills: Layers
    config: ConfigFiles
    zones: Mapping[Kind, tuple[tzinfo, str, str]]
    mail: Mapping[str, MailSource] = attrs.field(factory=dict[str, MailSource])
    """The mail systems, by the name that inboxes give them."""
    on_end: set[Callable[[str], None]] = attrs.field(factory=set[Callable[[str], None]])
    """Called with the id of each run that has ended and is recorded."""
    state_changed: Signal = attrs.field(factory=Signal)
    """Something ended or began: whoever waits for the engine to settle looks again."""
    fires_changed: Signal = attrs.field(factory=Signal)
    """There may be a fire to take, or room to take one."""
    intents_changed: Signal = attrs.field(factory=Signal)
    """There may be an intent to deliver."""
    requests_changed: Signal = attrs.field(factory=Signal)
    """Somebody in this process asked for something (`requests.py`)."""
    conversations_freed: Signal = attrs.field(factory=Signal)
    """A conversation was given back."""
    borrowing: list[str] = attrs.field(factory=list)
    """The conversations that the engine itself holds, or is about to, for a moment."""
    mail_settled: Signal = attrs.field(factory=Signal)
    """A fire ended, which may have been out for mail."""
    pinning: anyio.Lock = attrs.field(factory=anyio.Lock)
    """Taken by whoever clears, sets or changes a pin, from his look at it to the end."""
    follow_ups_url: str | None = None
    """Where what runs in a turn asks for follow-ups over HTTP, if the host serves that."""
    threads: Threads = attrs.field(factory=Threads)
    """Where what would block the loop is done."""
    tokens: RunTokens = attrs.field(factory=RunTokens)
    """Of the runs and replies that are going."""
    refusals: Refusals = attrs.field(
        default=attrs.Factory(lambda self: Refusals(clock=self.clock), takes_self=True)
    )
    """What is counted before there is an event of it."""
    counting: anyio.Lock = attrs.field(factory=anyio.Lock)
    """Taken to count the follow-ups that are pending and to add one."""
    places: Places = attrs.field(init=False)
    """Where runs go at once."""
    drain_begun: Signal = attrs.field(factory=Signal)
    """Whoever waits for the store gives up."""
    hurried: Signal = attrs.field(factory=Signal)
    """Whoever drains waits no longer: what goes on is cancelled at once."""
    draining: bool = False
    patient: bool = True
    """Whether `insist` waits for the store; not while the engine is being entered."""
    faults: dict[str, Problem] = attrs.field(factory=dict)
    failing: dict[str, str] = attrs.field(factory=dict)
    """By fault of a part that failed (`contained.py`), the reason for which there is an event."""
    stuck: set[str] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.places = Places(self.settings.max_concurrent_runs)

    def zone(self, kind: Kind) -> tzinfo:
        """The zone that rules files of `kind`."""
        return self.zones[kind][0]

    @property
    def known_workspace(self) -> Workspace:
        """The workspace as it was last seen, packs included."""
        return attrs.evolve(self.workspace.workspace, packs=self.packs)

    def find(self, slug: str) -> Automation | None:
        """The automation of that slug as it loads, or as it last did when its file is broken."""
        return self.workspace.workspace.find(slug) or self.workspace.last_good.get(slug)

    def find_route(self, name: str) -> Route | BrokenRoute | None:
        """The webhook route of that name, as the workspace was last seen."""
        known = self.workspace
        return find_route(
            name, workspace=known.workspace, last_good=known.last_good, said=known.said_routes
        )

    def stands(self, slug: str) -> bool:
        """Whether there is a file for `slug`, broken or not."""
        return slug in self.workspace.slugs

    def new_run_id(self, now: datetime) -> str:
        """A run id for a run that begins at `now`."""
        return run_id(now.astimezone(UTC), token_hex(4))

    def event(
        self, kind: str, now: datetime, slug: str | None = None, run: str | None = None, **data: Any
    ) -> Event:
        """An event to append, its texts redacted. The store gives it its id."""
        cleaned: Json = self.redactor.json(data)
        return Event(id=0, at=now, kind=kind, slug=slug, run_id=run, data=cleaned)

    def shown(self, fire: Fire) -> Fire:
        """The fire as an intent may show it, redacted."""
        return self.redactor.fire(fire)

    def trace(self, error: BaseException) -> str:
        """Where an exception came from, for the log, redacted."""
        return traced(error, self.redactor)

    def claim_lost(self, slug: str, run_id: str, error: ClaimLost) -> None:
        """Say that somebody else has taken over what `run_id` held of `slug`."""
        log.error("claim_lost", slug=slug, run_id=run_id, message=error.problem.message)

    def begin_draining(self) -> None:
        """Say that nothing more is to begin, and that nobody is to wait for the store any more."""
        self.draining = True
        self.drain_begun.notify()

    def trouble(self, error: StoreError) -> None:
        """Remember, and say once, that the store is in trouble."""
        first = "store" not in self.faults
        self.faults["store"] = error.problem
        if first:
            log.error("store_trouble", code=error.problem.code, message=error.problem.message)
            # The dispatcher is the one that probes, and it may be asleep for want of fires.
            self.fires_changed.notify()
        self.state_changed.notify()

    def healthy(self) -> None:
        """Forget the store's trouble, and let everybody look again."""
        if self.faults.pop("store", None) is not None:
            log.info("store_recovered")
            self.fires_changed.notify()
            self.intents_changed.notify()
            self.requests_changed.notify()
            self.state_changed.notify()

    async def probe(self) -> None:
        """While the store is in trouble, try a write; do nothing otherwise.

        Raises:
            StoreError: it is still in trouble.
        """
        if "store" not in self.faults:
            return
        mark = await mark_of(self.store, _PROBE)
        await self.store.record(marks=(attrs.evolve(mark, value=self.clock.now().isoformat()),))
        self.healthy()

    async def endure(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await `call()` until the store and the pins let it end, and return what it returns.

        For what a run does before and between its turns: trouble that passes costs it time and not
        its fire. When the engine drains meanwhile, the drain ends the run as interrupted.

        Args:
            call: awaited again each `Settings.store_probe`; it has to bear that.

        Raises:
            StoreError: no waiting mends it: the pins are damaged or of a newer release.
            Exception: whatever else `call` raises.
        """
        while True:
            seen = self.drain_begun.count
            try:
                result = await call()
            except StoreError as error:
                if error.problem.code in _LASTING:
                    raise
                if error.problem.code.startswith("pins-"):
                    self._pins_trouble(error)
                else:
                    self.trouble(error)
                if self.draining:
                    await anyio.sleep_forever()
                await self.drain_begun.wait(seen, clock=self.clock, limit=self.settings.store_probe)
            else:
                if self.faults.pop("pins", None) is not None:
                    log.info("pins_recovered")
                return result

    def _pins_trouble(self, error: StoreError) -> None:
        if "pins" not in self.faults:
            log.error("pins_trouble", code=error.problem.code, message=error.problem.message)
        self.faults["pins"] = error.problem

    async def insist(self, write: Callable[[], Awaitable[None]]) -> bool:
        """Await `write()` until the store takes it, and return True.

        A finished result is held this way while the disk is full, and committed when there is room.
        Only when the engine drains does it give up, after one more try, and return False.

        Args:
            write: one transaction; awaited again each `Settings.store_probe`.

        Raises:
            StoreError: the store does not take it while the engine is being entered.
            Exception: whatever else `write` raises.
        """
        while True:
            seen = self.drain_begun.count
            try:
                await write()
            except StoreError as error:
                self.trouble(error)
                if not self.patient:
                    raise
                if self.draining:
                    return False
                await self.drain_begun.wait(seen, clock=self.clock, limit=self.settings.store_probe)
            else:
                self.healthy()
                return True
