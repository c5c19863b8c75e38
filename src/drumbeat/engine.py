"""The engine: wires the rooms together and lives as long as its host lets it.

How it takes its data folder, keeps it and gives it back is the matter of `runtime/tenure.py`. Here
stands what a host asks of it: work, steering and reading, as a client would and better where the
engine knows more.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta, tzinfo
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import anyio
import attrs
from anyio.lowlevel import checkpoint_if_cancelled

from drumbeat.client import Client
from drumbeat.core.asked import check_span
from drumbeat.core.model import (
    Automation,
    Draft,
    Env,
    Fire,
    Health,
    Receipt,
    Reply,
    RunRecord,
    Status,
    Workspace,
)
from drumbeat.core.routes import BrokenRoute, Route
from drumbeat.core.settings import Settings
from drumbeat.errors import (
    ClaimLost,
    DrumbeatError,
    EngineBusy,
    NotRun,
    Problem,
    StoreError,
)
from drumbeat.protocols import Agent, Clock, Deliverer, MailSource, Pins, Store
from drumbeat.runtime.asking import answer_question
from drumbeat.runtime.awaited import Awaited, draining
from drumbeat.runtime.brought import check_brought, follow_ups_url
from drumbeat.runtime.clock import SystemClock
from drumbeat.runtime.contained import contained, fault_of
from drumbeat.runtime.drafting import Drafting
from drumbeat.runtime.entered import Folder
from drumbeat.runtime.follow_ups import ask_with_token, bearer_of
from drumbeat.runtime.insider import status_of
from drumbeat.runtime.life import Life
from drumbeat.runtime.rules import Rules
from drumbeat.runtime.standby import outcome
from drumbeat.runtime.tenure import Tenure
from drumbeat.runtime.within import is_within, turn_around
from drumbeat.runtime.workspace import FileState, Survey
from drumbeat.runtime.zones import check_zone

_RELOADED = 1.0
"""Seconds between two looks at the files for routes that are not known."""


class Engine(Client):
    """Runs the automations of a workspace inside the host's process.

    An async context manager, entered once; leaving it drains. A fault of the engine never cancels
    the host's body: `wait()` raises it, and so does leaving when nobody waited. What asks for work
    raises `EngineBusy` once the engine has stopped; what reads goes on until it is left.

    Args:
        workspace: the folder with `automations/`.
        agent: the model.
        deliverer: the way out to people; None leaves intents pending for `intents()`.
        data_dir: where the state lies; `<workspace>/.drumbeat` by default.
        timezone: an IANA name or `ZoneInfo` that rules every schedule; None as spec, section 4.
        settings: limits and durations; None reads `Settings.from_env(os.environ)` on entering.
        secrets: values that are redacted from what the engine writes, by variable name, and are not
            passed on to tools and agents; None takes the doors' variables of the environment. A
            `GITHUB_TOKEN` is redacted wherever it comes from, and reaches git all the same.
        mail: the mail systems that an `inbox` may name, each with its source.
        env: what tools and agents inherit; None captures `os.environ` on entering.
        base_url: where `drumbeat.web.routes(engine)` is reached by what runs in a turn, such as
            `http://127.0.0.1:8000`; turns are told of `/followups` below it. None when it is not
            served.
        skills: folders of skills (`<name>/SKILL.md` in each) that the host brings. A skill of the
            workspace goes before one of the same name, and an earlier folder before a later one.
        standby: when another engine holds the data folder, wait as a client for it to go, and take
            over then: see `drumbeat.Status.state`.
        clock: where time comes from; `drumbeat.testing.ManualClock` in tests.
        store: in place of the SQLite file of the data folder.
        pins: in place of `session_pins.json`.

    Raises:
        TypeError: the agent, the deliverer or a mail source is a class, or lacks its async method;
            `skills` is one folder and no sequence of them; `timezone` is neither text nor a zone.
        DrumbeatError: `timezone` is blank (`zone-unknown`) or an offset (`zone-fixed-offset`).
            Whether there is a zone of that name is looked up on entering.
        ValueError: `base_url` is no http or https address, or has a query or a password in it.
    """

    def __init__(
        self,
        workspace: Folder,
        *,
        agent: Agent,
        deliverer: Deliverer | None = None,
        data_dir: Folder | None = None,
        timezone: str | tzinfo | None = None,
        settings: Settings | None = None,
        secrets: Env | None = None,
        mail: Mapping[str, MailSource] | None = None,
        env: Env | None = None,
        base_url: str | None = None,
        skills: Sequence[Folder] = (),
        standby: bool = False,
        clock: Clock | None = None,
        store: Store | None = None,
        pins: Pins | None = None,
    ) -> None:
        super().__init__(workspace, data_dir=data_dir, secrets=secrets, store=store)
        check_brought("agent", agent, "take_turn")
        if deliverer is not None:
            check_brought("deliverer", deliverer, "deliver")
        for system, source in (mail or {}).items():
            check_brought(f"mail[{system!r}]", source, "poll")
        if timezone is not None:
            check_zone(timezone)
        if isinstance(skills, str | os.PathLike):
            msg = f"skills must be a sequence of folders: give skills=[{skills!r}]"
            raise TypeError(msg)
        self._skills = tuple(map(Path, skills))
        self._agent = agent
        self._deliverer = deliverer
        self._mail = dict(mail or {})
        self._timezone = timezone
        self._given_settings = settings
        self._env = env
        self._follow_ups_url = None if base_url is None else follow_ups_url(base_url)
        self._clock = clock or SystemClock()
        self._pins = pins
        self._standby = standby
        self._on_end: set[Callable[[str], None]] = set()
        self._tenure: Tenure | None = None
        self._reloaded = -math.inf
        self._ready = False

    # ---- life

    async def __aenter__(self) -> Self:
        """Take the data folder, settle what a crash left, and start.

        With `standby`, a folder that is held is waited for; that begins when this returns.

        Raises:
            EngineBusy: another engine holds the data folder.
            WorkspaceError: the workspace cannot be read, or a pack or the configuration is wrong.
            StoreError: the database or the pins cannot be opened or read.
            DrumbeatError: a setting or the zone is wrong, or it was entered before.
        """
        self._settings = settings = self._given_settings or Settings.from_env(os.environ)
        # An intent must not be leased again while its delivery may still be going.
        lease = max(settings.lease, settings.deliver_timeout + timedelta(minutes=1))
        state = await self._begin(lease=lease, redact=self._redact)
        self._tenure = tenure = Tenure(
            workspace_dir=self.workspace_dir,
            data_dir=self.data_dir,
            state=state,
            clock=self._clock,
            threads=self._threads,
            settings=settings,
            agent=self._agent,
            deliverer=self._deliverer,
            mail=self._mail,
            timezone=self._timezone,
            env=self._environment(),
            skills=self._skills,
            follow_ups_url=self._follow_ups_url,
            pins=await self._session_pins(),
            standby=self._standby,
            secrets=self._door_secrets,
            redactor=self._redactor,
            refusals=self._refusals,
            write_refusals=self._write_refusals,
            on_end=self._on_end,
        )
        try:
            await tenure.enter()
        except BaseException:
            self._phase = "left"
            await tenure.give_up()
            raise
        self._ready = True
        return self

    def _environment(self) -> Env:
        return os.environ if self._env is None else self._env

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Drain and close.

        Running turns get `Settings.drain_timeout`, then they are cancelled and settled as
        interrupted; deliveries get what is left of it, none begins once it is over, and what was
        not delivered is delivered after the next start. When the body is being cancelled there is
        no such time, and on a clock that is driven, which nobody moves any more, there is none for
        turns.

        A cancellation that comes while this goes on, Ctrl-C and `asyncio.Task.cancel` included,
        ends the time that turns and deliveries have; the folder is given up when nothing runs in it
        any more, and only then it is raised.

        Raises:
            DrumbeatError: `turn-waits-for-itself`, a turn leaves, which would be waited for; the
                engine goes on.
            Exception: the fault that stopped the engine, when the body ended well and nobody had it
                from `wait()`.
        """
        self._check_inside()
        self._check_outside_turns("been left")
        cancelled = (
            isinstance(error, anyio.get_cancelled_exc_class())
            or anyio.current_effective_deadline() == -math.inf
        )
        tenure = self._held
        try:
            await tenure.leave(at_once=cancelled)
        finally:
            self._phase = "left"
            await tenure.give_up()
        if error is None and tenure.fault is not None and not tenure.fault_told:
            tenure.fault_told = True
            raise tenure.fault
        return None

    async def drain(self, reason: str) -> None:
        """Start nothing more, let what runs end, then stop; returns when drained.

        By then the data folder is given back, so that another engine may hold it. Running turns get
        `Settings.drain_timeout` on the engine's clock, then they are cancelled and settled as
        interrupted, and deliveries get what is left of it: none begins once it is over, and one
        that is cut off then is a failed attempt. Cancelling the caller leaves the draining alone; a
        second call waits for the first.

        Args:
            reason: for the log.

        Raises:
            DrumbeatError: `turn-waits-for-itself`, a turn asks, which would be waited for.
            Exception: what stopped the engine, as `wait()` raises it.
        """
        self._check_inside()
        self._check_outside_turns("drained")
        self._held.drain(reason)
        await self.wait()

    async def wait(self) -> None:
        """Return when the engine has drained and given the data folder back.

        Raises:
            DrumbeatError: `turn-waits-for-itself`, a turn asks, which would be waited for.
            Exception: what stopped the engine, as it was raised.
        """
        self._check_entered()
        self._check_outside_turns("drained")
        await self._held.wait()

    def _check_outside_turns(self, state: str) -> None:
        slug = None if self._life is None else turn_around(self._life.services)
        if slug is not None:
            raise DrumbeatError(
                Problem(
                    code="turn-waits-for-itself",
                    message=f"a turn of {slug} waits until the engine has {state}, which waits for "
                    "that turn to end",
                    remedy="leave it to the host, in a task that no turn started",
                )
            )

    def _check_inside(self) -> None:
        super()._check_inside()
        if not self._ready:
            raise DrumbeatError(
                Problem(
                    code="not-entered",
                    message="this Engine is still being entered",
                    remedy="ask once its `async with` has begun",
                )
            )

    def _inside(self) -> Life:
        """What this engine is made of, when it holds the data folder.

        Raises:
            EngineBusy: it stands by.
        """
        self._check_inside()
        if self._life is None and self._running == "stopped":
            raise self._held.stopped("the engine has stopped") from self._fault
        if self._life is None:
            raise EngineBusy(
                Problem(
                    code="engine-standby",
                    message="this engine stands by, and another one holds the data folder",
                    remedy="ask that one, or wait until this one has taken over: see status()",
                )
            )
        return self._life

    @property
    def _held(self) -> Tenure:
        """What this engine has of its folder, once it is entered."""
        if self._tenure is None:
            msg = "entering took nothing"
            raise RuntimeError(msg)
        return self._tenure

    @property
    def _life(self) -> Life | None:
        return None if self._tenure is None else self._tenure.life

    @property
    def _running(self) -> Literal["standby", "running", "draining", "stopped"]:
        return "stopped" if self._tenure is None else self._tenure.running

    @property
    def _fault(self) -> BaseException | None:
        return None if self._tenure is None else self._tenure.fault

    @property
    def _standing_by(self) -> bool:
        return self._life is None and self._running == "standby"

    async def _working(self) -> Life:
        # What cancels the engine may cancel its callers too, who shall hear of just that.
        await checkpoint_if_cancelled()
        life = self._inside()
        if self._running == "stopped":
            raise self._held.stopped("the engine has stopped") from self._fault
        return life

    # ---- asking for things

    async def _put(self, fire: Fire) -> Fire:
        if self._standing_by:
            return await super()._put(fire)
        life = await self._working()
        stored = await super()._put(fire)
        life.services.fires_changed.notify()
        return stored

    async def _find_route(self, name: str) -> Route | BrokenRoute | None:
        life = self._life
        if life is None:
            return await super()._find_route(name)
        found = life.services.find_route(name)
        now = self._clock.monotonic()
        if found is None and self._running == "running" and now - self._reloaded >= _RELOADED:
            # Its file may have been written a moment ago; senders decide how often this is asked.
            self._reloaded = now
            try:
                await contained(life.services, "reload", life.upkeep.reload)
            except StoreError as error:
                life.services.trouble(error)
            found = life.services.find_route(name)
        if found is None:
            unseen = life.services.faults.get("workspace") or fault_of(life.services, "reload")
            if unseen is not None:
                raise DrumbeatError(unseen)
        return found

    async def _file_state(self, automation: Automation) -> FileState:
        if self._life is None:
            return await super()._file_state(automation)
        return await self._life.services.workspace.file_state(automation)

    def _obstacle(self) -> Problem | None:
        if self._standing_by:
            return None
        if self._life is None or self._running == "stopped":
            return self._held.stopped("the engine has stopped").problem
        services = self._life.services
        return draining("takes no event") if services.draining else services.faults.get("store")

    def _put_failed(self, error: DrumbeatError) -> None:
        super()._put_failed(error)
        if self._life is not None and isinstance(error, StoreError):
            self._life.services.trouble(error)

    async def _write_refusals(self) -> None:
        if self._life is None:
            await super()._write_refusals()
        else:
            await contained(self._life.services, "counts of the doors", self._commit_refusals)

    async def _require(self, slug: str) -> None:
        if self._standing_by:
            return await super()._require(slug)
        life = await self._working()
        if not life.services.stands(slug):
            # Its file may have been written a moment ago.
            error = await life.upkeep.reload()
            if error is not None and not life.services.stands(slug):
                raise error
        return await super()._require(slug)

    async def cancel(self, run_id: str, reason: str) -> None:
        """As `Client.cancel`; taken up at once."""
        await super().cancel(run_id, reason)
        self._look_at_requests()

    async def rotate(self, slug: str, reason: str) -> None:
        """As `Client.rotate`; taken up at once."""
        await super().rotate(slug, reason)
        self._look_at_requests()

    def _look_at_requests(self) -> None:
        if self._life is not None:
            self._life.services.requests_changed.notify()

    async def acknowledge(self, intent_id: str, receipt: Receipt | None = None) -> None:
        """As `Client.acknowledge`; a later intent of that automation can go out then."""
        await super().acknowledge(intent_id, receipt)
        if self._life is not None:
            self._life.services.intents_changed.notify()

    async def run(self, slug: str) -> RunRecord:
        """Run one automation by hand and return the record of the run; disabled ones run too.

        Cancelling the caller leaves the run alone. A turn may ask for the run of another
        automation, as long as `Settings.max_concurrent_runs` leaves room and that one does not wait
        for it. A standby puts the fire in, and waits for the record that the holder of the data
        folder makes of it.

        Raises:
            DrumbeatError: `run-within-itself`, a turn of `slug` asks: the run would wait for it.
            NotFound: no automation has that slug.
            WorkspaceError: none is known by that slug, and the folder cannot be read.
            NotRun: the fire was skipped, because the file vanished.
            EngineBusy: the engine drains, or stopped before the run was over; a fire that was put
                in stays in the store and runs after the next start.
            ClaimLost: somebody else took the run over; its record is theirs to write.
            StoreError: the fire, or what changed in the workspace, could not be committed.
        """
        if self._standing_by:
            return await self._run_elsewhere(slug)
        life = await self._working()
        if is_within(life.services, slug):
            raise DrumbeatError(
                Problem(
                    code="run-within-itself",
                    message=f"a turn of {slug} asks for a run of {slug}, which would wait for that "
                    "turn to end",
                    remedy="use fire(), which does not wait, or turn.follow_ups.schedule()",
                )
            )
        if life.services.draining:
            remedy = "ask again after the next start, or use fire(), which keeps"
            raise EngineBusy(draining(f"does not start {slug}", remedy=remedy))
        await self._require(slug)
        fire = self._manual(slug, after=timedelta(0), slot=None, payload=None)
        waiter = life.dispatcher.waiters.add(fire.id)
        try:
            await self._put(fire)
            await waiter.over.wait()
        finally:
            life.dispatcher.waiters.remove(fire.id, waiter)
        if waiter.run is not None:
            return waiter.run
        if waiter.fire is not None:
            raise _not_run(waiter.fire)
        await checkpoint_if_cancelled()
        if self._running == "running":
            raise ClaimLost(
                Problem(
                    code="claim-lost",
                    message=f"the run of {slug} was taken over by somebody else",
                    remedy="look at runs() for how it ended",
                )
            )
        raise self._held.stopped(f"the engine stopped before {slug} had run") from self._fault

    async def _run_elsewhere(self, slug: str) -> RunRecord:
        await self._require(slug)
        fire = await self._put(self._manual(slug, after=timedelta(0), slot=None, payload=None))
        store, poll = await self._writable(), self._settings.request_poll
        try:
            fire, run = await outcome(fire, store=store, clock=self._clock, poll=poll)
        except StoreError as error:
            if self._phase == "left":
                raise self._held.stopped(f"this standby was left before {slug} had run") from error
            raise
        if run is None:
            raise _not_run(fire)
        return run

    async def check_run_token(self, token: str) -> None:
        """As `Client.check_run_token`; this is who knows them, once it holds the data folder."""
        if self._standing_by:
            return await super().check_run_token(token)
        bearer_of((await self._working()).services, token)
        return None

    async def follow_up(
        self, token: str, prompt: str, *, after: timedelta, slug: str | None = None
    ) -> Fire:
        """As `Client.follow_up`; this is who knows the tokens, once it holds the data folder."""
        if self._standing_by:
            return await super().follow_up(token, prompt, after=after, slug=slug)
        services = (await self._working()).services
        return await ask_with_token(services, token, prompt, after=after, slug=slug)

    async def reply(
        self,
        target: str,
        text: str,
        profile: str | None = None,
        *,
        wait: timedelta = timedelta(0),
    ) -> Reply:
        """Put a person's answer into the conversation that it answers, and return what is said.

        That is the conversation of the run which `target` names, also when the automation has begun
        another one since. The reply is a turn of origin `reply` in that run's record, folder and
        working folder; it makes the event `reply_completed`, no intent, and leaves the pin alone.
        Runs and replies take turns in a conversation. Cancelling the caller ends the turn.

        Args:
            target: a session, run or receipt id (the id that a deliverer gave in its `Receipt`).
            text: what the person said; it reaches the agent verbatim.
            profile: one of `profiles:` in `agent-config.yaml`, over the automation's configuration.
            wait: how long to wait, on the engine's clock, while somebody else talks in the
                conversation.

        Raises:
            NotFound: nothing has that id any more (`run-unknown`), its run ended before it had a
                conversation (`run-without-conversation`), it is the receipt of messages in several
                conversations (`reply-ambiguous`), or there is no such profile (`profile-unknown`).
            SessionBusy: somebody else talks in the conversation; the text was not sent.
            AgentError: the turn failed, as the agent said, `AgentUnavailable` after the usual
                retries; `turn-timeout` and `reply-timeout` after `Settings.turn_timeout` and the
                time that a run may take.
            ContextCeiling: the conversation is too long; nothing is rotated for it.
            ConversationNotFound: the agent does not know the conversation any more; the same.
            ClaimLost: somebody else took the conversation over in the middle of the turn.
            EngineBusy: the engine stands by, drains or has stopped; a turn that was going was
                cancelled.
            StoreError: the store or the pins are in trouble; the text was not sent.
            TypeError: `wait` is no timedelta.
            ValueError: `text` is blank, or `wait` is negative.
        """
        if not text.strip():
            msg = "text must not be blank"
            raise ValueError(msg)
        if check_span("wait", wait) < timedelta(0):
            msg = f"wait must not be negative, not {wait}"
            raise ValueError(msg)
        life = await self._talking("no reply")
        return await life.replies.reply(target, text, profile, wait=wait)

    async def ask(self, question: str, profile: str | None = None) -> Reply:
        """Put a person's question to the agent, beside all automations, and return the answer.

        One turn of origin `ask` and slug `_ask`, in a conversation of its own and in the workspace
        folder, with the workspace's `SYSTEM.md` and a memory folder that all questions share. Its
        context lists the automations and the latest runs. Nothing of it is recorded. It waits for
        nobody and does not count among `Settings.max_concurrent_runs`; cancelling the caller ends
        the turn.

        Args:
            question: what the person asks; it reaches the agent verbatim.
            profile: one of `profiles:` in `agent-config.yaml`, over the workspace's configuration.

        Raises:
            NotFound: there is no such profile (`profile-unknown`).
            AgentError: the turn failed, as the agent said, `AgentUnavailable` after the usual
                retries; `turn-timeout` and `ask-timeout` after `Settings.turn_timeout` and
                `Settings.run_timeout`; `system-prompt-unreadable`.
            EngineBusy: the engine stands by, drains or has stopped; a turn that was going was
                cancelled.
            ValueError: `question` is blank.
        """
        if not question.strip():
            msg = "question must not be blank"
            raise ValueError(msg)
        life = await self._talking("no question")
        return await life.awaited.attend(
            Awaited(), lambda: answer_question(life.services, question, profile)
        )

    async def draft_job(self, description: str, *, dry_run: bool = False) -> Draft:
        """Let the agent write the file of a job that does what a person describes.

        The agent is told the contract of job files, the automations that there are and the mail
        systems. What it answers is judged as the workspace would judge the file, errors of the
        linter included; it is shown what is wrong and asked again, twice. A file that is in order
        is created as `jobs/<slug>.md`, at once and wholly, never over another one; it runs from the
        next reload on. Nothing else is recorded. Its turns are of origin `draft` and slug
        `_draft`, and are taken as those of `ask` are.

        Args:
            description: what the job is to do and when, in the person's words.
            dry_run: write nothing.

        Returns:
            The file, or the last answer with what is wrong with it.

        Raises:
            AgentError: a turn failed, as the agent said; `turn-timeout`; `draft-timeout` after
                `Settings.run_timeout`; `system-prompt-unreadable`.
            WorkspaceError: `jobs/` is a link out of the workspace, or no folder.
            EngineBusy: the engine stands by, drains or has stopped; a turn that was going was
                cancelled.
            ValueError: `description` is blank.
        """
        if not description.strip():
            msg = "description must not be blank"
            raise ValueError(msg)
        life = await self._talking("no description of a job")
        drafting = Drafting(services=life.services)
        return await life.awaited.attend(
            Awaited(), lambda: drafting.draft(description, dry_run=dry_run)
        )

    async def _talking(self, what: str) -> Life:
        """What takes a turn whose caller waits; `what` is not taken while it drains.

        Raises:
            EngineBusy: the engine stands by, drains or has stopped.
        """
        life = await self._working()
        if life.services.draining:
            raise EngineBusy(draining(f"takes {what}"))
        return life

    async def reload(self) -> Workspace:
        """Look at the workspace at once, and return what stands there.

        What is not there at this moment is kept: only the looks that come by themselves, each
        `Settings.reload_interval`, take a file for removed, after two in a row without it.

        Raises:
            WorkspaceError: the folder, or one of the two in it, cannot be read; what was known of
                it stays.
            StoreError: what changed could not be written; the next look tries again.
        """
        life = await self._working()
        error = await life.upkeep.reload()
        if error is not None:
            raise error
        return life.services.known_workspace

    async def settled(self) -> None:
        """Return once nothing is due, running or deliverable at this instant.

        Not from inside a delivery, which it would wait for until its time is up.

        Raises:
            DrumbeatError: `turn-waits-for-itself`, a turn asks, which would be waited for.
            StoreError: the store is in trouble, so that nothing can be settled.
            Exception: what stopped the engine.
        """
        life = self._inside()
        self._check_outside_turns("settled")
        while True:
            seen = life.services.state_changed.count
            if self._running == "stopped":
                return await self.wait()
            if life.quiet:
                trouble = life.services.faults.get("store")
                if trouble is not None:
                    raise StoreError(trouble)
                return None
            await life.services.state_changed.wait(seen)

    # ---- reading

    async def _survey(self) -> Survey:
        if self._life is None:
            return await super()._survey()
        services = self._life.services
        return Survey(workspace=services.known_workspace, last_good=services.workspace.last_good)

    async def _rules(self, store: Store | None) -> Rules:
        return await super()._rules(store) if self._life is None else self._life.rules

    async def health(self) -> Health:
        """As `Client.health`, with what this engine knows of itself; `ok` when it stands by too."""
        self._check_inside()
        life = self._life
        if life is None:
            fault = self._held.standby_fault
            faults: tuple[str, ...] = () if fault is None else (fault.code,)
        else:
            faults = tuple(problem.code for problem in life.services.faults.values())
        if life is None or "store" not in life.services.faults:
            store_faults = await self._store_faults()
        else:
            store_faults = (life.services.faults["store"].code,)
        if self._fault is not None:
            faults = (*faults, "engine-failed")
        return Health(
            ok=self._running in ("running", "standby") and not store_faults,
            state=self._running,
            faults=tuple(dict.fromkeys((*store_faults, *faults))),
        )

    async def status(self) -> Status:
        """What the engine is doing at this instant; also when it has stopped or its store fails.

        While the store cannot be read, `waiting` is empty and `faults` says why. A standby says
        what a client does, and in `faults` why it could not take over.
        """
        self._check_inside()
        life = self._life
        if life is None:
            told = [] if self._held.standby_fault is None else [self._held.standby_fault]
            try:
                known = await super().status()
            except StoreError as error:
                known = await self._status(None)
                told.append(error.problem)
            return attrs.evolve(known, state=self._running, faults=(*told, *known.faults))
        return await status_of(life, state=self._running, fault=self._fault)


def _not_run(fire: Fire) -> NotRun:
    return NotRun(
        Problem(
            code="not-run",
            message=f"{fire.slug} did not run: {fire.reason}",
            remedy="look at the file and at fires()",
        ),
        fire,
    )


__all__ = ["Engine"]
