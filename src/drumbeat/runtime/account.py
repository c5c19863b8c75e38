"""What became of an automation at an instant, gathered from the records and told in a sentence."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import attrs

from drumbeat.core.explain import NEAR, Around, Known, explain, removed_note, subject_of
from drumbeat.core.left_out import told_left_out
from drumbeat.core.model import (
    Fire,
    InboxTrigger,
    Interval,
    RunRecord,
    ScheduleTrigger,
    WebhookTrigger,
)
from drumbeat.protocols import Clock, Store
from drumbeat.runtime import requests
from drumbeat.runtime.delivery_trail import last_failure
from drumbeat.runtime.known_files import Removal
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.presence import absence
from drumbeat.runtime.preview import next_moment, unseen_moment
from drumbeat.runtime.retention import forgotten_before
from drumbeat.runtime.rules import Rules
from drumbeat.runtime.threads import Threads
from drumbeat.runtime.webhook_states import webhook_states
from drumbeat.runtime.workspace import Survey, kind_of

__all__ = ["Account"]


@attrs.frozen(kw_only=True)
class Account:
    """What is asked, and where it is looked for."""

    slug: str
    at: datetime
    store: Store | None
    seen: Survey
    rules: Rules
    removal: Removal | None
    """Since when its file counts as removed."""
    data_dir: Path
    clock: Clock
    threads: Threads

    async def told(self, fires: Sequence[Fire]) -> str:
        """As `Client.why`.

        Args:
            fires: those of the automation around the instant.

        Raises:
            StoreError: the store could not be read.
        """
        slug, at, store = self.slug, self.at, self.store
        seen, rules = self.seen, self.rules
        subject = subject_of(at, fires)
        run_id = None if subject.fire is None else subject.fire.run_id
        runs: list[RunRecord] = []
        if store is not None and run_id is not None:
            runs = await store.runs(target=run_id, limit=1, payloads=False)
        run = next(iter(runs), None)
        known = Known() if store is None or run is None else await self._known(store, run)
        now = self.clock.now()
        paused = {} if store is None else await requests.paused(store)
        upcoming = await next_moment(
            seen.workspace,
            store=store,
            zones=rules.zones,
            catch_up=rules.catch_up,
            last_good=seen.last_good,
            now=now,
            since=max(now, at - NEAR + timedelta(microseconds=1)),
            slug=slug,
            clock=self.clock,
            threads=self.threads,
        )
        kind = kind_of(seen.workspace, slug)
        if self.removal is not None and self.removal.path.startswith("jobs/"):
            kind = "job"
        zone = rules.zones[kind][0]
        note = _note(seen, slug, paused.get(slug), comes=upcoming is not None)
        if self._removed is not None:
            note = removed_note(self._removed.path, self._removed.at, zone)
        return explain(
            slug,
            at,
            subject=subject,
            run=run,
            now=now,
            upcoming=upcoming,
            note=note,
            known=known,
            around=Around() if store is None else await self._around(store, now),
            zone=zone,
            left_out=[
                said
                for state in await webhook_states(store, seen.workspace)
                if state.slug == slug
                for said in told_left_out(state, zone)
            ],
        )

    @property
    def _removed(self) -> Removal | None:
        """Since when its file counts as removed, unless it stands."""
        return None if self.seen.stands(self.slug) else self.removal

    async def _around(self, store: Store, now: datetime) -> Around:
        """What is known of the time around `at`."""
        at = self.at
        held = await self._held()
        owed = await unseen_moment(
            store,
            self.slug,
            at,
            zones=self.rules.zones,
            within=NEAR,
            now=now,
            clock=self.clock,
            threads=self.threads,
        )
        if owed is not None and self._removed is not None and owed >= self._removed.at:
            owed = None  # the schedule went with its file
        return Around(
            owed=owed,
            removed=self._removed is not None,
            absent=await absence(
                store, self.data_dir, at, held=held, now=now, threads=self.threads
            ),
            forgotten=await forgotten_before(store),
        )

    async def _known(self, store: Store, run: RunRecord) -> Known:
        """What is known of a run beside its record, looked for where it says something."""
        if run.state == "running":
            return Known(engine=await self._held())
        if run.delivery not in ("pending", "abandoned"):
            return Known()
        behind = False
        if run.delivery == "pending":
            # The store has each claimed in the order in which the runs ended.
            pending = await store.runs(slug=run.slug, sent="pending", limit=None, payloads=False)
            ended = [_ended(each) for each in pending]
            behind = bool(ended) and _ended(run) > min(ended)
        failure = await last_failure(store, run) if run.intent and run.intent.attempt else ""
        return Known(behind=behind, failure=failure)

    async def _held(self) -> bool:
        """Whether an engine has the data folder at this moment."""
        return await EngineLock(self.data_dir, threads=self.threads).holder() is not None


def _ended(run: RunRecord) -> datetime:
    return run.started_at if run.intent is None else run.intent.created_at


def _note(seen: Survey, slug: str, paused: str | None, *, comes: bool) -> str:
    """What keeps `slug` from being due at present; `comes` when a moment of it is foreseen."""
    automation = seen.workspace.find(slug)
    if automation is None and seen.stands(slug):
        return "its file is broken"
    if automation is None:
        return "its file cannot be seen" if seen.unseen else "there is no file of it"
    if not automation.enabled:
        return "its file says that it is disabled"
    if paused is not None:
        return f"it is paused ({paused})"
    if automation.schedule is None:
        unread = any(isinstance(trigger, ScheduleTrigger) for trigger in automation.triggers)
        mail = [each for each in automation.triggers if isinstance(each, InboxTrigger)]
        doors = [each for each in automation.triggers if isinstance(each, WebhookTrigger)]
        if not unread and doors:
            return f"events at its webhook {doors[0].route} make it run"
        if not unread and mail:
            return f"mail to {mail[0].system}:{mail[0].address} makes it run"
        return "its schedule cannot be read" if unread else "no schedule makes it due"
    if not comes and not isinstance(automation.schedule, Interval):
        return "its schedule has no moment in its zone"
    return ""
