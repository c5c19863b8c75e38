"""Which turns the code that asks an engine for something is part of."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import attrs

from drumbeat.runtime.services import Services


@attrs.define(eq=False)
class _Going:
    services: Services
    slug: str
    over: bool = False


_going: ContextVar[tuple[_Going, ...]] = ContextVar("drumbeat turns", default=())


@contextmanager
def turn_of(services: Services, slug: str) -> Iterator[None]:
    """Say that what runs in the block, and the tasks that it starts, is a turn of `slug`."""
    going = _Going(services, slug)
    before = _going.set((*_going.get(), going))
    try:
        yield
    finally:
        # A task that outlives the turn has its context all the same.
        going.over = True
        _going.reset(before)


def is_within(services: Services, slug: str) -> bool:
    """Whether the caller is part of a turn of `slug` that is going in this engine."""
    return any(
        going.services is services and going.slug == slug and not going.over
        for going in _going.get()
    )


def turn_around(services: Services) -> str | None:
    """The slug of a turn, going in this engine, that the caller is part of; None outside of any."""
    for going in _going.get():
        if going.services is services and not going.over:
            return going.slug
    return None
