"""What is remembered of each inbox, as marks in the store, and how the end of a fire moves them."""

from collections.abc import Sequence

import attrs

from drumbeat.core.inbox import Standing, Unreadable, inbox_prefix, message_lines
from drumbeat.core.model import Fire, Mark, RunState
from drumbeat.protocols import Store
from drumbeat.runtime.marks import mark_of


async def read_standing(store: Store, key: str) -> tuple[Mark, Standing | Unreadable | None]:
    """The mark of `key`, and what it says; None when there is none.

    Raises:
        StoreError: the store could not be read.
    """
    mark = await mark_of(store, key)
    return mark, None if mark.value is None else Standing.from_json(mark.value)


def moved(mark: Mark, standing: Standing) -> Mark:
    """The mark as it is to stand, for the store to move."""
    return attrs.evolve(mark, value=standing.to_json())


async def after_run(
    store: Store, fire: Fire, state: RunState, *, again: bool, lines: Sequence[str] = ()
) -> tuple[Mark, ...]:
    """The marks to move with the end of a run of `fire`.

    Args:
        store: where they stand.
        fire: of whatever cause.
        state: how the run ended.
        again: whether the fire gets another run.
        lines: what to list of the messages if they are parked by this.

    Raises:
        StoreError: the store could not be read.
    """
    return tuple(
        moved(mark, standing.after_run(state, again=again, lines=lines))
        for mark, standing in await _of(store, fire)
    )


async def after_skip(store: Store, fire: Fire, *, removed: bool) -> tuple[Mark, ...]:
    """The marks to move when `fire` is skipped.

    Mail that a disabled or paused automation was not to see is done with; that of a file that is
    gone is still to come, should the file come back.

    Raises:
        StoreError: the store could not be read.
    """
    return tuple(
        moved(mark, standing.put_back() if removed else standing.past_batch())
        for mark, standing in await _of(store, fire)
    )


async def last_state(store: Store, fire: Fire) -> str:
    """How the run before this one over the same batch of mail ended; "" for other fires.

    Raises:
        StoreError: the store could not be read.
    """
    for _, standing in await _of(store, fire):
        if standing.batch is not None:
            return standing.batch.last
    return ""


def lines_of(fire: Fire) -> list[str]:
    """A line for each message that `fire` is about; none for other fires."""
    return message_lines(fire.payload) if fire.cause == "inbox" else []


async def _of(store: Store, fire: Fire) -> list[tuple[Mark, Standing]]:
    """The inbox whose batch `fire` is out for, if there is one.

    What cannot be understood stays as it is; whoever can read it finds that its fire is done with.
    """
    if fire.cause != "inbox":
        return []
    read = [
        (mark, Standing.from_json(mark.value))
        for mark in await store.marks(inbox_prefix(fire.slug))
    ]
    return [
        (mark, standing)
        for mark, standing in read
        if isinstance(standing, Standing)
        and standing.batch is not None
        and standing.batch.fire == fire.id
    ]
