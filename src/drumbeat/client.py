"""All that needs no agent: reading what happened, and putting requests in as rows."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import uuid4

import attrs

from drumbeat.core.asked import check_aware, check_due, check_fire
from drumbeat.core.callers import check_caller
from drumbeat.core.model import (
    Answer,
    DeliveryIntent,
    Due,
    Event,
    Fire,
    Health,
    Pin,
    Receipt,
    Refused,
    RunRecord,
    Sent,
    Status,
)
from drumbeat.errors import StoreError, WorkspaceError
from drumbeat.protocols import Pins, Store
from drumbeat.runtime import requests
from drumbeat.runtime.account import Account
from drumbeat.runtime.doorstep import Doorstep
from drumbeat.runtime.event_stream import EventStream
from drumbeat.runtime.follow_ups import token_elsewhere
from drumbeat.runtime.known_files import removal_of
from drumbeat.runtime.listing import check_there
from drumbeat.runtime.onlooker import Onlooker
from drumbeat.runtime.pins import SessionPins
from drumbeat.runtime.preview import preview
from drumbeat.runtime.pulled import acknowledge, pull
from drumbeat.runtime.receipts import kept_receipt
from drumbeat.runtime.rules import Rules, read_rules
from drumbeat.runtime.schedule_marks import PREFIX as SCHEDULE_MARKS
from drumbeat.runtime.undisturbed import undisturbed
from drumbeat.runtime.workspace import Survey, survey

_NEIGHBOURS = 1000
"""So many fires around a moment are looked at to say what became of it."""
_LEASE = timedelta(minutes=5)


class Client(Doorstep):
    """Reads beside an engine, and asks it for things.

    An async context manager, entered once. It needs no agent and holds no lock, so any number of
    clients work beside one engine of another process; what they ask for are rows that the engine
    takes up. Reading writes nothing: without a data folder, everything of a workspace reads as
    empty, until an engine has made one.

    Every method raises `DrumbeatError` outside the `async with` (`not-entered`, `left`), and in
    another thread than the one that entered it (`other-thread`).

    Args:
        workspace: the folder with `automations/`.
        data_dir: where the state lies; `<workspace>/.drumbeat` by default.
        secrets: values that must never be shown; None reads the doors' variables.
        store: in place of the SQLite file of the data folder.
    """

    # ---- its life

    async def __aenter__(self) -> Self:
        """Open what is there.

        Raises:
            StoreError: the database cannot be opened.
            DrumbeatError: it was entered before.
        """
        state = await self._begin(lease=_LEASE, redact=self._redact)
        try:
            await state.readable()
        except BaseException:
            self._phase = "left"
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Close the store; whoever follows the events comes to the end of them."""
        self._phase = "left"

        async def close() -> None:
            try:
                if self._refusals.any:
                    await self._write_refusals()
            finally:
                await self._state.close()

        await undisturbed(close)
        return None

    # ---- what an engine knows better

    async def _survey(self) -> Survey:
        """What stands in the workspace, as far as it can be seen."""
        found = await survey(self.workspace_dir, threads=self._threads)
        if found.unseen:
            return found
        return attrs.evolve(found, unseen=await self._lost())

    async def _rules(self, store: Store | None) -> Rules:
        return await read_rules(store, threads=self._threads)

    async def _session_pins(self) -> Pins:
        if self._pins is None:
            self._pins = SessionPins(self.data_dir, clock=self._clock)
        return self._pins

    # ---- asking for things

    async def fire(
        self,
        slug: str,
        *,
        after: timedelta = timedelta(0),
        slot: str | None = None,
        payload: bytes | None = None,
    ) -> Fire:
        """Put one manual fire in, durably, and return it; disabled automations run too.

        Args:
            slug: the automation.
            after: how long from now it is due.
            slot: makes it idempotent: a second fire with one slot is the first one. As a webhook's,
                it is never folded, and runs once more after a crash.
            payload: bytes that the run finds in `WEBHOOK_PAYLOAD.json` of its working folder.

        Raises:
            NotFound: no automation has that slug.
            TypeError: `after`, `slot` or `payload` is of another type.
            ValueError: `after` is negative or ends beyond the year 9999, or `slot` is blank.
            WorkspaceError: nothing is known by that slug, and not all files can be seen.
            StoreError: it could not be committed.
        """
        check_fire(after, slot, payload)
        self._check_inside()
        check_due(self._clock.now(), after)
        await self._write_due()
        await self._require(slug)
        return await self._put(self._manual(slug, after=after, slot=slot, payload=payload))

    def _manual(
        self, slug: str, *, after: timedelta, slot: str | None, payload: bytes | None
    ) -> Fire:
        now = self._clock.now()
        fire_id = f"manual-{uuid4()}"
        return Fire(
            id=fire_id,
            slug=slug,
            cause="manual",
            slot=slot or fire_id,
            due=now + after,
            created_at=now,
            payload=payload,
        )

    async def _require(self, slug: str) -> None:
        seen = await self._survey()
        if seen.stands(slug):
            return
        if not seen.unseen:
            raise requests.unknown_slug(seen.workspace, slug)
        if not await self._remembers(slug):
            raise WorkspaceError(seen.unseen)

    async def _remembers(self, slug: str) -> bool:
        """Whether the records know of an automation whose file cannot be seen."""
        store = await self._readable()
        if store is None:
            return False
        key = SCHEDULE_MARKS + slug
        scheduled = any(mark.key == key for mark in await store.marks(key))
        return scheduled or bool(await store.fires(slug=slug, limit=1, payloads=False))

    # ---- the doors

    async def webhook(
        self,
        route: str,
        *,
        method: str,
        headers: Mapping[str, str],
        body: bytes | Callable[[], Awaitable[bytes | None]] | None,
    ) -> Answer:
        """Take one webhook request, and say what its sender is to be told (spec, section 13.1).

        For hosts whose routes are their own; `drumbeat.web` has them for ASGI. With status 202 the
        fire is committed: it runs, whatever dies in between. 200 stands for what starts no run: an
        event that is filtered out or greets, one for an automation that is disabled or paused
        (its fire is settled as skipped), and a delivery that came before, also when both come at
        once, for as long as its fire is remembered: 7 days after it settled, at least. 400, 401,
        403 and 405 are as `check_webhook` refuses; 404 is for a route that no file has, 408 and 413
        for a body that is too slow or too long. 503 asks the sender to come again: the secret is
        missing, the file is broken, the store is in trouble, or the engine drains.

        Refused requests are counted, in one event `webhook_refused` a minute for each route and
        code; so are those that a filter leaves out (`webhook_filtered`) and deliveries that came
        before (`webhook_repeated`, or `webhook_conflicting` when the body is another one). A client
        writes them with the request that comes next, and as it is left.

        Args:
            route: the route's name; case does not count.
            method: the request's.
            headers: by name, in any case. A name that comes several times has to come so from
                `items()`, as it does from the mappings of web frameworks.
            body: the raw bytes, before anything decoded them; None for one that the host read no
                further because it was too long. Or, so that nobody's body is waited for who is
                refused anyway, a function that reads it: it is called once at most, after all that
                route, method and headers decide, and raises `TimeoutError` when the body does not
                come in time.

        Raises:
            DrumbeatError: outside the `async with`.
            Exception: what `body` raises, `TimeoutError` aside.
        """
        self._check_inside()
        answer = await self._door.take(route, method=method, headers=headers, body=body)
        await self._write_due()
        return answer

    def admit(
        self, headers: Mapping[str, str], *, method: str | None = None, door: str = ""
    ) -> Refused | None:
        """Check that a request brings `AGENT_API_SECRET`, as bearer or as the password of basic.

        For hosts that open doors of their own to what drumbeat does. Browsers send a password that
        they were once given with whatever another site's page makes them ask for: with `method`, a
        request of such a page is turned away, unless it only reads (GET, HEAD). Who is turned away
        is counted, in one event `caller_refused` a minute for each door and code.

        Args:
            headers: the request's, by name, in any case.
            method: the request's.
            door: what the door is called in that event; a name of the host's own, and no address as
                a caller wrote it, of which there is no end.

        Returns:
            None when it does, else why it is turned away: status 401, 403 for another site's page,
            or 503 when the secret is not set.
        """
        refused = check_caller(
            headers, secrets=self._door_secrets(), now=self._clock.now(), method=method
        )
        if refused is not None:
            self._refusals.note("caller_refused", None, door=door, code=refused.code)
        return refused

    async def check_run_token(self, token: str) -> None:
        """Check that `token` belongs to a run that is going here.

        For doors that look who asks before they read what is asked, and then call `follow_up`.

        Args:
            token: the `DRUMBEAT_RUN_TOKEN` of a turn.

        Raises:
            EngineBusy: no turn is taken here, so nothing is known of the token
                (`run-token-elsewhere`); or the engine has stopped.
            NotFound: it belongs to none (`run-token-unknown`).
        """
        self._check_inside()
        raise token_elsewhere()

    async def follow_up(
        self, token: str, prompt: str, *, after: timedelta, slug: str | None = None
    ) -> Fire:
        """Schedule a follow-up of the run that `token` belongs to; committed when this returns.

        For doors through which what runs in a turn asks, such as the route `/followups`. Only the
        engine that takes the turns knows their tokens: a client raises `EngineBusy`.

        Args:
            token: the `DRUMBEAT_RUN_TOKEN` of a turn.
            prompt: the whole prompt of the later run.
            after: how long from now, 0 s to 30 days.
            slug: the automation that is meant, if the caller says so: another one is refused.

        Raises:
            EngineBusy: no turn is taken here, so nothing is known of the token
                (`run-token-elsewhere`); or the engine has stopped.
            NotFound: the token belongs to no run that is going (`run-token-unknown`).
            FollowUpRefused: it is over a limit, or for another automation; the code says which.
            TypeError: `after` is no timedelta.
            StoreError: it could not be committed.
        """
        self._check_inside()
        raise token_elsewhere()

    # ---- steering

    async def pause(self, slug: str, reason: str) -> None:
        """Let nothing start by itself any more, until `resume`; running it by hand still works.

        Whatever falls due meanwhile is recorded as `skipped: paused (reason)`. A run that is going
        goes on. It stands in the data folder, so a restart changes nothing. Paused again for the
        same reason, nothing changes; for another one, that is the reason from then on.

        Args:
            slug: the automation.
            reason: why, for the records.

        Raises:
            DrumbeatError: the reason is blank (`reason-missing`).
            NotFound: no automation has that slug.
            WorkspaceError: nothing is known by that slug, and not all files can be seen.
            StoreError: it could not be committed.
        """
        reason = await self._asked_for(reason)
        await self._require(slug)
        await requests.set_paused(await self._writable(), slug, reason, clock=self._clock)

    async def resume(self, slug: str) -> None:
        """Let a paused automation go on; one that is not paused is left as it is.

        What was skipped is not made up for.

        Raises:
            NotFound: no automation has that slug, and none of it is paused.
            WorkspaceError: nothing is known by that slug, and not all files can be seen.
            StoreError: it could not be committed.
        """
        self._check_inside()
        if slug not in await self._paused():
            await self._require(slug)
            return
        await requests.set_paused(await self._writable(), slug, None, clock=self._clock)

    async def cancel(self, run_id: str, reason: str) -> None:
        """Ask the engine to end a run that is going; it ends as `cancelled`, its intent demoted.

        Returns once that is committed; the engine takes it up within `Settings.request_poll`. It
        outlives the engine: a run that a crash interrupts first ends as cancelled at the next
        start, and has no other attempt. A run that ends by itself first keeps how it ended. Asked
        again, or for a run that was cancelled, nothing changes.

        Args:
            run_id: of a run that is going.
            reason: why, for the records.

        Raises:
            DrumbeatError: the reason is blank (`reason-missing`).
            NotFound: there is no such run, or it ended otherwise (`run-ended`).
            StoreError: it could not be committed.
        """
        reason = await self._asked_for(reason)
        run = await self.find_run(run_id)
        if run.run_id != run_id:
            raise requests.unknown_run(run_id)
        if run.state == "cancelled":
            return
        if run.state != "running":
            raise requests.ended_already(run)
        key = requests.CANCEL + run_id
        await requests.ask(await self._writable(), key, reason, clock=self._clock)

    async def rotate(self, slug: str, reason: str) -> None:
        """Ask the engine to give up the conversation of `slug`: the next run begins another one.

        Returns once that is committed; the engine carries it out within `Settings.request_poll`,
        or at its next start. While a run of `slug` is going, or somebody talks in the conversation,
        it waits for the end of that. Asked again before it was carried out, nothing changes, and
        the first reason stays.

        Args:
            slug: an automation, or an orphan among `sessions()`.
            reason: why, for the rotation log.

        Raises:
            DrumbeatError: the reason is blank (`reason-missing`).
            NotFound: no automation has that slug, and nothing is pinned for it.
            WorkspaceError: nothing is known by that slug, and not all files can be seen.
            StoreError: it could not be committed, or the pins could not be read.
        """
        reason = await self._asked_for(reason)
        if slug not in await self.sessions():
            await self._require(slug)
        key = requests.ROTATE + slug
        await requests.ask(await self._writable(), key, reason, clock=self._clock)

    async def _asked_for(self, reason: str) -> str:
        """A reason as it may stand in the records."""
        self._check_inside()
        return self._redactor().text(requests.check_reason(reason))

    async def acknowledge(self, intent_id: str, receipt: Receipt | None = None) -> None:
        """Say that a pulled intent was delivered.

        A second time changes nothing, and one that was abandoned stays abandoned.

        Raises:
            NotFound: no such intent, or none that is to be delivered.
            TypeError: `receipt` is no `Receipt` of texts.
            WorkspaceError: there is neither a workspace nor a store (`workspace-missing`).
            StoreError: it could not be committed.
        """
        kept = kept_receipt(receipt, self._redactor())
        if receipt is not None and kept is None:
            msg = "receipt must be a Receipt whose id and url are text or None"
            raise TypeError(msg)
        await acknowledge(await self._records(), intent_id, kept, clock=self._clock)

    # ---- reading

    async def _records(self) -> Store | None:
        """The store, or None where a workspace has none yet."""
        self._check_inside()
        return await self._known()

    async def _known(self) -> Store | None:
        store = await self._state.readable()
        if store is None:  # one that is misspelt would read as one in which nothing has happened
            await self._threads.run(self._check_workspace)
        return store

    def _check_workspace(self) -> None:
        with suppress(OSError):  # what is there and closed to this user may be the one meant
            check_there(self.workspace_dir)

    def _check_folders(self) -> None:
        with suppress(OSError):
            if not self.data_dir.exists():
                check_there(self.workspace_dir)

    async def runs(self, slug: str | None = None, *, limit: int = 100) -> list[RunRecord]:
        """The latest runs, the last one first.

        Raises:
            WorkspaceError: there is neither a workspace nor a store (`workspace-missing`).
            StoreError: the store could not be read.
        """
        store = await self._records()
        return [] if store is None else await store.runs(slug=slug, limit=limit)

    async def find_run(self, target: str) -> RunRecord:
        """The latest run that `target` (a run, session or receipt id) names.

        Raises:
            NotFound: none does.
            WorkspaceError: there is neither a workspace nor a store (`workspace-missing`).
            StoreError: the store could not be read.
        """
        store = await self._records()
        found = [] if store is None else await store.runs(target=target, limit=1)
        if not found:
            raise requests.unknown_run(target)
        return found[0]

    async def fires(self, slug: str | None = None, *, limit: int = 100) -> list[Fire]:
        """The latest fires, the last one first.

        Raises:
            WorkspaceError: there is neither a workspace nor a store (`workspace-missing`).
            StoreError: the store could not be read.
        """
        store = await self._records()
        return [] if store is None else await store.fires(slug=slug, limit=limit)

    async def intents(
        self, sent: Sent | None = None, *, limit: int | None = None, payloads: bool = True
    ) -> list[DeliveryIntent]:
        """Intents, oldest first; with `sent`, those to deliver that stand so.

        They are as a deliverer would get them, with known secrets taken out of their fires too.

        Args:
            sent: how their delivery stands.
            limit: the most that are returned, the oldest of them; None for all.
            payloads: False leaves the `payload` of each fire None, and reads none of them. One may
                have 25 MiB: whoever pulls intents after an outage sets a limit, or asks for none.

        Raises:
            ValueError: `limit` is negative.
            WorkspaceError: there is neither a workspace nor a store (`workspace-missing`).
            StoreError: the store could not be read.
        """
        if limit is not None and limit < 0:
            msg = f"limit must not be negative, not {limit}"
            raise ValueError(msg)
        store = await self._records()
        if store is None:
            return []
        redactor = self._redactor()
        return await pull(store, sent, limit=limit, payloads=payloads, redactor=redactor)

    async def sessions(self) -> dict[str, Pin]:
        """Which conversation each automation resumes.

        Raises:
            WorkspaceError: there is neither a workspace nor a data folder (`workspace-missing`).
            StoreError: the pins could not be read.
        """
        self._check_inside()
        await self._threads.run(self._check_folders)
        return await (await self._session_pins()).all()

    async def upcoming(self, *, until: datetime) -> list[Due]:
        """What is overdue and what comes due up to `until`, by time. Writes nothing.

        An interval shows its next moment only, and none while a fire of it is due or going: the end
        of that run decides it. Beside an engine, its zones and its `catch_up` rule. Ends with the
        10,000th.

        Args:
            until: an aware instant.

        Raises:
            TypeError: `until` is no datetime.
            ValueError: `until` is naive.
            WorkspaceError: the workspace cannot be read.
            StoreError: the store could not be read.
        """
        check_aware("until", until)
        store = await self._readable()
        rules = await self._rules(store)
        seen = await self._survey()
        if seen.unseen:
            raise WorkspaceError(seen.unseen)
        return await preview(
            seen.workspace,
            store=store,
            zones=rules.zones,
            catch_up=rules.catch_up,
            last_good=seen.last_good,
            now=self._clock.now(),
            until=until,
            clock=self._clock,
            threads=self._threads,
        )

    async def status(self) -> Status:
        """What the records and the lock of the data folder say. Writes nothing.

        A client knows of an engine whether there is one, and not what is in its memory: `path` and
        `stuck` are empty. That one drains, it says of itself. Its `faults` are what is wrong
        with the folders of the workspace, whose files are not all seen then, with packs and with
        `SYSTEM.md`, and what the engine said of itself, which it does with its next look at the
        files (`Settings.reload_interval`).

        Raises:
            StoreError: the store could not be read.
        """
        return await self._status(await self._readable())

    async def _status(self, store: Store | None) -> Status:
        rules = await self._rules(store)
        return await self._onlooker.status(store, await self._survey(), rules)

    @property
    def _onlooker(self) -> Onlooker:
        return Onlooker(
            workspace_dir=self.workspace_dir, data_dir=self.data_dir, threads=self._threads
        )

    async def health(self) -> Health:
        """Whether work is done here, cheaply; store trouble is an answer and no exception.

        A client says whether there is an engine, whether the store can be read, and what the engine
        said of itself.

        Raises:
            DrumbeatError: outside the `async with`.
        """
        self._check_inside()
        await self._write_due()
        return await self._onlooker.health(await self._store_faults())

    async def _store_faults(self) -> tuple[str, ...]:
        try:
            await self._paused()
        except StoreError as error:
            return (error.problem.code,)
        return ()

    async def why(self, slug: str, *, at: datetime) -> str:
        """What became of `slug` at the instant `at`, in one sentence, from the records.

        Its times are on the wall clock of the zone that rules `slug`, with their offset.

        Args:
            slug: the automation.
            at: an aware instant; a fire less than a minute away from it is meant.

        Raises:
            TypeError: `at` is no datetime.
            ValueError: `at` is naive.
            NotFound: no automation has that slug, and neither a fire of one nor the removal of its
                file is remembered.
            WorkspaceError: nothing is known by that slug, and not all files can be seen.
            StoreError: the store could not be read.
        """
        check_aware("at", at)
        store = await self._readable()
        seen = await self._survey()
        fires: list[Fire] = []
        if store is not None:
            fires = await store.fires(slug=slug, around=at, limit=_NEIGHBOURS, payloads=False)
        removal = await removal_of(store, slug)
        if not fires and removal is None:
            await self._require(slug)
        account = Account(
            slug=slug,
            at=at,
            store=store,
            seen=seen,
            rules=await self._rules(store),
            removal=removal,
            data_dir=self.data_dir,
            clock=self._clock,
            threads=self._threads,
        )
        return await account.told(fires)

    async def sweep(self) -> list[str]:
        """The ids of finished runs without an intent: there must be none.

        Raises:
            WorkspaceError: there is neither a workspace nor a store (`workspace-missing`).
            StoreError: the store could not be read.
        """
        store = await self._records()
        return [] if store is None else await store.invalid_runs()

    def events(self, after: int = 0, *, follow: bool = True) -> AsyncIterator[Event]:
        """The durable event stream, in order, from the event behind the id `after`.

        The iterator raises `EventsExpired` when events behind `after` were purged, or there never
        was an event of that id (a backup was put back, and ids come a second time),
        `WorkspaceError` when there is neither a workspace nor a store, and `StoreError` when the
        store could not be read; ask it again, or for another one from the last id that was seen.
        It need not be closed.

        Args:
            after: the id of the last event that was seen; 0 begins with the first that is kept.
            follow: go on with further events as they come, until the client is left; False ends
                with the last one there is.
        """
        self._check_inside()
        return EventStream(
            readable=self._known,
            is_over=lambda: self._phase == "left",
            clock=self._clock,
            after=after,
            follow=follow,
        )


__all__ = ["Client"]
