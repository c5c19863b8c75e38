"""What others implement: the agent, the way out, the mailbox, the store, the pins, the clock."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from drumbeat.core.model import (
    Backlog,
    Claim,
    DeliveryIntent,
    Event,
    Fire,
    MailBatch,
    Mark,
    Pin,
    Purged,
    Receipt,
    Reply,
    Rotation,
    RunRecord,
    Sent,
    Turn,
)

__all__ = ["Agent", "Clock", "Deliverer", "FollowUps", "MailSource", "Pins", "Store"]


class Agent(Protocol):
    """The model, as the host brings it.

    The engine calls an agent concurrently for different conversations, and never twice at once for
    one `session_id`.
    """

    async def take_turn(self, turn: Turn, /) -> Reply:
        """Answer one prompt inside the conversation `turn.session_id`.

        Cancellation must end the call; one that ignores it keeps its automation busy and is
        reported as stuck.

        Raises:
            AgentUnavailable: nothing happened, the same turn may be tried again.
            ContextCeiling: the conversation is too long for the model.
            ConversationNotFound: the conversation is not known (any more).
            AgentError: the turn failed; `code` says what counts as the same cause.
            Exception: anything else fails the run under the code `agent-raised`.
        """
        ...


class Deliverer(Protocol):
    """The way out to people, as the host brings it."""

    async def deliver(self, intent: DeliveryIntent, /) -> Receipt | None:
        """Hand one intent to people; returning means delivered.

        Called at least once for each intent with the verdict `deliver`, with the same `intent.id`
        each time and a rising `intent.attempt`, in order per automation.

        Raises:
            DeliveryRefused: it can never be delivered; it is abandoned at once.
            Exception: anything else is tried again later.
        """
        ...


class MailSource(Protocol):
    """A mailbox of one mail system."""

    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        """Return what came after the mark `after`, oldest first and bounded.

        Reading changes nothing in the mailbox: from one mark the same messages come again.

        Args:
            address: the one that messages have to be sent to. The source's own settings say in
                which mailbox they arrive.
            after: a mark that an earlier poll of this address returned, also of another instance;
                None returns no messages, only the present mark.

        Returns:
            The messages and the mark that covers just these. A batch without messages may have a
            later mark: what lay before it is for nobody. When the mailbox has been numbered
            anew since (UIDVALIDITY), `restarted` is True for as long as messages that an earlier
            mark covered may be among them.

        Raises:
            Exception: the mailbox could not be read, for whatever reason. The poll counts as not
                made, and the same mark is asked for again.
        """
        ...


class FollowUps(Protocol):
    """How a run asks for a later run of its own automation."""

    async def schedule(self, prompt: str, *, after: timedelta) -> Fire:
        """Commit a follow-up; it becomes eligible once this run has settled.

        Args:
            prompt: the whole prompt of the later run.
            after: how long from now, 0 s to 30 days.

        Raises:
            FollowUpRefused: it is over a limit; the message says which.
            TypeError: `after` is no timedelta.
            StoreError: it could not be committed.
        """
        ...


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, from an arbitrary start."""
        ...

    async def sleep(self, delay: timedelta, /) -> None:
        """Return after `delay`; a delay of zero or less is a checkpoint."""
        ...


class Pins(Protocol):
    """Which conversation each automation resumes.

    Each call is durable when it returns. Pins that cannot be understood are refused and never taken
    for none: every conversation would begin afresh, and nobody would be told.
    """

    async def get(self, slug: str, /) -> Pin | None:
        """The pin of `slug`, or None.

        Raises:
            StoreError: the pins are damaged, of a newer version, or cannot be read.
        """
        ...

    async def set(self, slug: str, pin: Pin, /) -> None:
        """Pin `slug` to a conversation, in place of the one that was pinned.

        Raises:
            StoreError: the pins are damaged, of a newer version, or cannot be read or written.
            ValueError: `pin.at` is naive.
        """
        ...

    async def rotate(
        self,
        slug: str,
        /,
        *,
        reason: Rotation,
        note: str = "",
        now: datetime | None = None,
        id: str | None = None,
    ) -> Pin | None:
        """Clear the pin of `slug`, leave a line in the rotation log, return what was pinned.

        Idempotent by `id`: the second call with one id changes nothing and returns None, as long as
        there was no other rotation of `slug` since.

        Args:
            slug: the automation, whether or not it has a pin or still exists.
            reason: for the log.
            note: for the log; required for the reason `operator`.
            now: the aware instant for the log; None reads the clock.
            id: names this rotation over restarts; None for one that is not repeated.

        Raises:
            DrumbeatError: the reason is `operator` and the note is blank.
            StoreError: the pins are damaged, of a newer version, or cannot be read or written. The
                pin may be cleared already; a repeat with the same id completes what is missing.
            ValueError: `now` is naive.
        """
        ...

    async def all(self) -> dict[str, Pin]:
        """Every pin by slug.

        Raises:
            StoreError: the pins are damaged, of a newer version, or cannot be read.
        """
        ...


class Store(Protocol):
    """State that needs transactions.

    Each method is one transaction, durable when it returns; the events given to it ride along. Any
    method raises `StoreError` when its transaction could not be written: then nothing of it was.
    Instants that are given to it are aware; a naive one is a `ValueError`.

    A claim is a lease: on a slug when it came from `claim_fire`, on a conversation when it came
    from `hold`. `token` fences: a method that is given a claim which has been taken over raises
    `ClaimLost` and writes nothing.
    """

    async def open(self, *, holder: str | None, lease: timedelta) -> None:
        """Open, creating or migrating the schema first.

        On an open store it takes the lease over, and with a `holder` lapses every older claim: so
        a standby becomes the holder without closing what others read through.

        Args:
            holder: the name of the engine that holds the data folder alone, which lapses every
                older claim at once; None for a client.
            lease: how long a claim lives without being renewed.

        Raises:
            StoreError: damaged, locked, or written by a newer schema.
        """
        ...

    async def close(self) -> None:
        """Close; a second call does nothing."""
        ...

    async def add_fires(
        self,
        fires: Sequence[Fire],
        *,
        fold: bool = False,
        marks: Sequence[Mark] = (),
        events: Sequence[Event] = (),
    ) -> list[Fire]:
        """Put fires in, one `fire_added` event each, and return them as they stand in the store.

        A fire whose (slug, cause, slot) is there already is returned as first stored, and adds
        nothing. With `fold`, a fire whose slug has an unclaimed open fire of the cause `schedule`
        is stored settled as `folded` into that one, whose `folded_slots` grows.

        Args:
            fires: in the order in which they are to be looked at; one with a verdict is stored
                settled.
            fold: fold schedule slots together.
            marks: marks to move in the same transaction. Each has the `version` with which it
                stands in the store, 0 for one that does not, and its version grows by 1. One that
                is put in has a version above any that its key had before it was forgotten.
            events: events to append, before those of the fires.

        Raises:
            ClaimLost: a mark stands with another version; nothing was written.
        """
        ...

    async def claim_fire(
        self,
        *,
        now: datetime,
        run_id: str,
        skip: Collection[str] = (),
        fire: str | None = None,
    ) -> Claim | None:
        """Take the oldest due open fire whose slug is free and not in `skip`; count its attempt.

        A follow-up is not due before its parent run has finished. A fire that was put off, and put
        in by a clock that was more than a day ahead of `now`, counts its delay from `now` on; mail
        that is to be tried again more than a day from now is due at once. What is claimed stays
        claimed until `finish`, or until the lease has passed and `take_over` returns it.

        Args:
            now: a fire that is due later is left alone.
            run_id: the run that will be an attempt at it.
            skip: slugs to pass over.
            fire: the id of the one that is meant; others are left alone, also those before it.

        Returns:
            The claim with the fire as it stands in the store by then, or None: nothing can be
            taken.
        """
        ...

    async def hold(self, session_id: str, *, run_id: str) -> Claim | None:
        """Take a conversation, or return None when another run has it.

        A run that holds it already gets its claim again.
        """
        ...

    async def renew(self, claims: Sequence[Claim]) -> set[str]:
        """Extend leases; return the run ids that are still held."""
        ...

    async def take_over(self) -> list[Claim]:
        """Return every lapsed claim on a fire under a new token; free lapsed conversations."""
        ...

    async def record(
        self,
        *,
        claim: Claim | None = None,
        run: RunRecord | None = None,
        settled: Sequence[Fire] = (),
        marks: Sequence[Mark] = (),
        events: Sequence[Event] = (),
    ) -> None:
        """Write a run as it stands, verdicts of fires, marks and events.

        Settling the fire of `claim` frees its slug. A fire that has a verdict keeps it. A finished
        run is written again with the turns that replies add to it, under the claim of a reply on
        its conversation; its intent stays as it is.

        Raises:
            ClaimLost: the claim was taken over, or a mark moved.
            NotFound: the run that a reply adds to was forgotten.
        """
        ...

    async def finish(
        self,
        claim: Claim,
        run: RunRecord | None,
        *,
        again_at: datetime | None = None,
        runs: Sequence[RunRecord] = (),
        fires: Sequence[Fire] = (),
        marks: Sequence[Mark] = (),
        events: Sequence[Event] = (),
    ) -> None:
        """End a claim: run, intent, verdict `ran` (its reason is the run's state), marks; frees it.

        Args:
            claim: of a fire, or of a conversation, which is only freed.
            run: the finished run with its intent; None gives the fire back as if never claimed.
            again_at: the fire stays open and is due then.
            runs: finished runs to write again with what a reply added to them, under its claim on
                the conversation; their intents stay as they are.
            fires: further fires to put in, such as follow-ups.
            marks: marks to move.
            events: events to append.

        Raises:
            ClaimLost: the claim was taken over, or a mark moved.
            NotFound: one of `runs` was forgotten; nothing was written.
        """
        ...

    async def claim_intent(self, *, now: datetime) -> DeliveryIntent | None:
        """Lease the next intent to deliver, its attempt counted.

        Oldest first, and per automation only when no older one is still pending.
        """
        ...

    async def settle_intent(
        self,
        intent: DeliveryIntent,
        sent: Sent,
        *,
        receipt: Receipt | None = None,
        retry_at: datetime | None = None,
        events: Sequence[Event] = (),
    ) -> None:
        """Record how an attempt ended; `pending` with `retry_at` means again, not before then.

        An intent that is delivered or abandoned already stays as it is.

        Raises:
            NotFound: no such intent.
        """
        ...

    async def fires(
        self,
        *,
        slug: str | None = None,
        id: str | None = None,
        open: bool = False,
        around: datetime | None = None,
        limit: int | None = 100,
        payloads: bool = True,
    ) -> list[Fire]:
        """Fires: the open ones by due time, else the latest first.

        With `around`, by due time, those nearest to that instant: the last half of `limit` that
        were due by then, and the first half that are due later.

        Args:
            slug: of one automation alone.
            id: the fire of that id alone.
            open: only those without a verdict.
            around: an aware instant.
            limit: the most that are returned; None for all.
            payloads: False leaves every `payload` None, and reads none of them: one may have 25
                MiB.
        """
        ...

    async def backlog(self, *, now: datetime, slug: str | None = None) -> list[Backlog]:
        """What waits: one value for each slug that has open fires, by slug, claimed ones included.

        Costs no more for the size of payloads, and is not cut off at any number of fires.

        Args:
            now: the instant from which on a fire counts as due later.
            slug: of one automation alone.
        """
        ...

    async def runs(
        self,
        *,
        slug: str | None = None,
        target: str | None = None,
        sent: Sent | None = None,
        limit: int | None = 100,
        payloads: bool = True,
    ) -> list[RunRecord]:
        """Runs, the latest first. `target` is a run, session or receipt id; `limit` None means all.

        With `payloads` False, the `payload` of their fires is None and is not read.
        """
        ...

    async def invalid_runs(self) -> list[str]:
        """The ids of runs that ended without an intent, the oldest first; there must be none."""
        ...

    async def events(self, *, after: int, limit: int, wait: timedelta) -> list[Event]:
        """Events with a greater id, in order; waits up to `wait` for the first.

        Once an id was returned, no lesser one appears.

        Raises:
            EventsExpired: events behind `after` were purged, or `after` is greater than any id that
                was given out.
        """
        ...

    async def marks(self, prefix: str) -> list[Mark]:
        """Marks whose key begins with `prefix`, by key."""
        ...

    async def purge(self, *, now: datetime, keep_events: timedelta, keep_runs: timedelta) -> Purged:
        """Forget what is old, a bounded part of it at a time; what was forgotten is counted.

        Events older than `keep_events` go in the order of their ids. Runs that finished before
        `keep_runs`, their intents and their settled fires go; fires are remembered for 7 days after
        they settled at least. Never a fire that is open, a run that is going or whose intent is
        pending. Marks whose value is None are forgotten: they read like those that never were.

        Returns:
            How much was forgotten; with `complete` False, call again.
        """
        ...
