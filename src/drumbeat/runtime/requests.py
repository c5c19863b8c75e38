"""What people ask of whoever holds the data folder: rows that outlive the one who asked.

Theory of operation. A request is a mark, so that any process can leave one and a crash loses none.
Its key says what it is about, so that asking twice is asking once:

- `paused:<slug>` is a state, not a task: while its value stands, the dispatcher skips what would
  start by itself. It is read when a fire is claimed, so it needs nobody to take it up.
- `request:cancel:<run_id>` stands until that run has ended, however it ended. Who settles a run
  that a crash interrupted finds it there too, and lets the run end as cancelled.
- `request:rotate:<slug>` is carried out when no run of the slug is going: by the holder, or by the
  next run as it looks for its conversation, whichever is first. The mark is answered in the
  transaction that journals the rotation (`rotations.py`), so it is carried out once.

An answered request has the value None, and the store forgets it in time.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from drumbeat.core.model import Event, Mark, RunRecord, Workspace
from drumbeat.errors import ClaimLost, DrumbeatError, NotFound, Problem
from drumbeat.protocols import Clock, Store
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.workspace import standing_slugs

__all__ = [
    "CANCEL",
    "ROTATE",
    "ask",
    "cancelled",
    "check_reason",
    "ended_already",
    "open_requests",
    "paused",
    "request_of",
    "set_paused",
    "unknown_run",
    "unknown_slug",
]

_REQUEST = "request:"
CANCEL = "request:cancel:"
"""Followed by a run id."""
ROTATE = "request:rotate:"
"""Followed by a slug."""
_PAUSED = "paused:"


def check_reason(reason: str) -> str:
    """The reason, without white space around it.

    Raises:
        DrumbeatError: it is blank.
    """
    if not reason.strip():
        raise DrumbeatError(
            Problem(
                code="reason-missing",
                message="a reason is needed, and this one is blank",
                remedy="say in a few words why: it is kept in the records",
            )
        )
    return " ".join(reason.split())


# ---- paused


async def paused(store: Store) -> dict[str, str]:
    """Which automations are paused, and why.

    Raises:
        StoreError: the store could not be read.
    """
    return {
        mark.key.removeprefix(_PAUSED): str(mark.value["reason"])
        for mark in await store.marks(_PAUSED)
        if mark.value is not None
    }


async def set_paused(store: Store, slug: str, reason: str | None, *, clock: Clock) -> None:
    """Pause an automation for a reason, or with None let it go on; again, it changes nothing.

    Raises:
        StoreError: it could not be committed.
    """
    while True:
        mark = await mark_of(store, _PAUSED + slug)
        before = None if mark.value is None else mark.value["reason"]
        if before == reason:
            return
        now = clock.now()
        value = None if reason is None else {"reason": reason, "at": now.isoformat()}
        event = Event(
            id=0,
            at=now,
            kind="automation_resumed" if reason is None else "automation_paused",
            slug=slug,
            run_id=None,
            data={"reason": before if reason is None else reason},
        )
        try:
            await store.record(marks=(attrs.evolve(mark, value=value),), events=(event,))
        except ClaimLost:
            continue  # somebody else paused or resumed it at the same instant
        return


# ---- tasks


async def ask(store: Store, key: str, reason: str, *, clock: Clock) -> None:
    """Leave a request; one that stands already stays as it is.

    Args:
        store: where.
        key: `CANCEL` and a run id, or `ROTATE` and a slug.
        reason: why, not blank, with secrets taken out.
        clock: for the instant of it.

    Raises:
        StoreError: it could not be committed.
    """
    while True:
        mark = await mark_of(store, key)
        if mark.value is not None:
            return
        value = {"reason": reason, "at": clock.now().isoformat()}
        try:
            await store.record(marks=(attrs.evolve(mark, value=value),))
        except ClaimLost:
            continue  # somebody else asked for it, or it was answered, at the same instant
        return


async def open_requests(store: Store) -> list[Mark]:
    """The requests that are not answered, by key.

    Raises:
        StoreError: the store could not be read.
    """
    return [mark for mark in await store.marks(_REQUEST) if mark.value is not None]


async def request_of(store: Store, key: str) -> Mark | None:
    """The request of that key, if it stands.

    Raises:
        StoreError: the store could not be read.
    """
    mark = await mark_of(store, key)
    return None if mark.value is None else mark


def cancelled(value: Mapping[str, Any]) -> Problem:
    """What a run that a request cancels fails with, from the request's value."""
    return Problem(
        code="cancelled",
        message=str(value["reason"]),
        remedy="start it by hand when it is wanted after all",
    )


def unknown_slug(workspace: Workspace, slug: str) -> NotFound:
    """The error for a slug that no automation has."""
    known = ", ".join(sorted(standing_slugs(workspace)))
    return NotFound(
        Problem(
            code="slug-unknown",
            message=f"no automation {slug!r} in {workspace.path}",
            remedy=f"the workspace has: {known or 'none'}",
        )
    )


def unknown_run(target: str) -> NotFound:
    """The error for an id that names no run."""
    return NotFound(
        Problem(
            code="run-unknown",
            message=f"no run, session or receipt {target!r}",
            remedy="take the id from runs() (drumbeat runs), sessions() or a receipt; runs that "
            "are older than `keep_runs` are forgotten",
        )
    )


def ended_already(run: RunRecord) -> NotFound:
    """The error for a run that can no longer be cancelled."""
    return NotFound(
        Problem(
            code="run-ended",
            message=f"the run {run.run_id} of {run.slug} is not going: it {run.state} already",
            remedy="take the id of a run that is going from status(), or drumbeat status",
        )
    )
