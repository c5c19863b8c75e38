"""Giving up a conversation so that a crash between the two files cannot leave half of it.

Theory of operation. The pin lies in a file, the event in the database. An intended rotation is
first journaled as a mark (`rotation:<slug>`) in the database; then the pin is cleared under the
rotation's id, which the rotation log remembers; then the event is written and the mark cleared in
one transaction. Whoever finds a mark carries it out before anything else is done with that pin:
start-up, the next run and the next rotation of the slug. `rotate` of the pins with a known id does
nothing, so it does not matter how far the one before had come, nor whether two processes carry it
out at once: the mark moves once, and with it the one event.

Within a process all of it happens under `Services.pinning`, and so does whatever sets a pin: a
rotation clears what was pinned as it was planned, and nothing that a run pinned since.
"""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from uuid import uuid4

import attrs

from drumbeat.core.model import Mark, Rotation
from drumbeat.errors import ClaimLost
from drumbeat.runtime.borrowed import borrowed
from drumbeat.runtime.clock import holding
from drumbeat.runtime.log import log
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.requests import ROTATE, request_of
from drumbeat.runtime.services import Services

_PREFIX = "rotation:"


async def rotate(
    services: Services,
    slug: str,
    *,
    reason: Rotation,
    note: str,
    now: datetime,
    run_id: str | None,
    session_id: str | None = None,
    answering: Mark | None = None,
    begun: Callable[[], None] | None = None,
) -> None:
    """Clear the pin of `slug`, leaving the three marks of a rotation (spec, section 7).

    Args:
        services: the engine's parts.
        slug: whose conversation is given up.
        reason: why.
        note: what was said about it; kept with secrets taken out.
        now: the instant of it, aware.
        run_id: the run that does it, if one does.
        session_id: the conversation that is given up, where nothing is pinned.
        answering: the request that asks for it; when somebody else answers it first, nothing is
            done.
        begun: told once it is journaled: from then on it is completed, and never done anew.

    Raises:
        StoreError: the database or the pins could not be written; whoever looks next completes it.
    """
    async with services.pinning:
        await _rotate(
            services,
            slug,
            reason=reason,
            note=note,
            now=now,
            run_id=run_id,
            session_id=session_id,
            answering=answering,
            begun=begun,
        )


async def _rotate(
    services: Services,
    slug: str,
    *,
    reason: Rotation,
    note: str,
    now: datetime,
    run_id: str | None,
    session_id: str | None = None,
    answering: Mark | None = None,
    begun: Callable[[], None] | None = None,
) -> None:
    note = services.redactor.text(note)
    while True:
        mark = await _complete_one(services, slug)
        plan = {
            "id": str(uuid4()),
            "session_id": await _pinned(services, slug) or session_id,
            "reason": reason,
            "note": note,
            "at": now.isoformat(),
            "run_id": run_id,
        }
        intended = attrs.evolve(mark, value=plan)
        answered = () if answering is None else (attrs.evolve(answering, value=None),)
        try:
            await services.store.record(marks=(intended, *answered))
        except ClaimLost:
            if answering is not None and not await _stands(services, answering):
                return
            continue  # somebody else's rotation came first: carry that out, then do this one
        if begun is not None:
            begun()
        await _complete_one(services, slug)
        return


async def rotate_if_asked(services: Services, slug: str, *, beside_runs: bool = False) -> None:
    """Carry out the rotation of `slug` that an operator asked for, if there is one.

    Args:
        services: the engine's parts.
        slug: whose conversation is given up.
        beside_runs: a run of `slug` may begin meanwhile: take the conversation first, so that it
            looks at the pin again, and leave the request when somebody talks in it, or another one
            is pinned by then.

    Raises:
        StoreError: the database or the pins could not be read or written.
    """
    mark = await request_of(services.store, ROTATE + slug)
    if mark is None:
        return

    async def give_up() -> None:
        await _rotate(
            services,
            slug,
            reason="operator",
            note=mark.value["reason"],
            now=services.clock.now(),
            run_id=None,
            answering=mark,
        )

    if not beside_runs:
        async with services.pinning:
            await give_up()
        return
    found = await _pinned(services, slug)
    free = nullcontext(True) if found is None else borrowed(services, found, "rotate", slug=slug)
    async with free as taken, services.pinning:
        # Where nothing was pinned nothing could be taken, and a run may have begun to talk.
        if taken and await _pinned(services, slug) == found:
            await give_up()


async def _pinned(services: Services, slug: str) -> str | None:
    """The conversation that is pinned."""
    with holding(services.clock, "pins"):
        pin = await services.pins.get(slug)
    return None if pin is None else pin.session_id


async def _stands(services: Services, request: Mark) -> bool:
    """Whether it is not answered yet; one that was left after it has another version."""
    found = await request_of(services.store, request.key)
    return found is not None and found.version == request.version


async def complete(services: Services) -> None:
    """Finish every rotation that was begun and not ended.

    Raises:
        StoreError: the database or the pins could not be read or written.
    """
    async with services.pinning:
        for mark in await services.store.marks(_PREFIX):
            if mark.value is not None:
                await _carry_out(services, mark)


async def complete_one(services: Services, slug: str) -> None:
    """Finish the rotation of `slug`, if one was begun.

    Raises:
        StoreError: the database or the pins could not be read or written.
    """
    async with services.pinning:
        await _complete_one(services, slug)


async def _complete_one(services: Services, slug: str) -> Mark:
    """The same, and return its mark as it stands then."""
    key = _PREFIX + slug
    while True:
        mark = await mark_of(services.store, key)
        if mark.value is None:
            return mark
        await _carry_out(services, mark)


async def _carry_out(services: Services, mark: Mark) -> None:
    slug = mark.key.removeprefix(_PREFIX)
    plan = mark.value
    at = datetime.fromisoformat(plan["at"])
    with holding(services.clock, "pins"):
        await services.pins.rotate(
            slug, reason=plan["reason"], note=plan["note"], now=at, id=plan["id"]
        )
    event = services.event(
        "session_rotated",
        at,
        slug,
        plan["run_id"],
        reason=plan["reason"],
        note=plan["note"],
        session_id=plan["session_id"],
    )
    try:
        await services.store.record(marks=(attrs.evolve(mark, value=None),), events=(event,))
    except ClaimLost:
        return  # somebody else carried it out meanwhile, its event included
    log.info("session_rotated", slug=slug, reason=plan["reason"])
