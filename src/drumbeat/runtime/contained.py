"""What keeps a mistake over one thing from ending the work on all the others.

Theory of operation. A round of a loop, and what is done in it for one item, ends nothing but itself
when it meets what nobody foresaw: that stands in `status().faults` until a later round goes well,
and is said once per change, in the log with its traceback and as an event. Trouble with the store
is not of that kind and passes, and so does cancellation.

Not contained is what the engine cannot go on without: its lock, the planner of moments, taking and
settling fires, and handing out intents. A mistake there leaves a claim of which nobody knows how
far it came, and the next start settles that.
"""

from collections.abc import Awaitable, Callable

from drumbeat.errors import Problem, StoreError
from drumbeat.runtime.answers import only, said
from drumbeat.runtime.log import log
from drumbeat.runtime.services import Services


async def contained(
    services: Services,
    part: str,
    call: Callable[[], Awaitable[object]],
    *,
    slug: str | None = None,
) -> bool:
    """Await `call()` and say whether it went well; whoever calls does it again later.

    Args:
        services: the engine's parts.
        part: what the call does, in a word or two, for the log and the fault.
        call: one round, or the work on one item in it.
        slug: the automation that the item belongs to.

    Raises:
        StoreError: the store is in trouble.
    """
    try:
        await call()
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001  voiced, and tried again
        await _voice(services, part, slug, error)
        return False
    forgotten(services, part, slug=slug)
    return True


def forgotten(services: Services, part: str, *, slug: str | None = None) -> None:
    """Take the fault back: it went well since, or there is nothing left that could go wrong."""
    key = _key(part, slug)
    services.failing.pop(key, None)
    if services.faults.pop(key, None) is not None:
        log.info("part_recovered", part=part, slug=slug)


def fault_of(services: Services, part: str, *, slug: str | None = None) -> Problem | None:
    """The fault that stands since it last went wrong; None when it went well."""
    return services.faults.get(_key(part, slug))


async def _voice(services: Services, part: str, slug: str | None, error: Exception) -> None:
    key = _key(part, slug)
    reason = services.redactor.text(said(only(error)))
    of = "" if slug is None else f" of {slug}"
    services.faults[key] = Problem(
        code="part-failed",
        message=f"the engine made a mistake in its {part}{of}: {reason}",
        remedy="it is tried again, and all else goes on; look into the log for `part_failed` and "
        "report it with what stands there",
    )
    if services.failing.get(key) == reason:
        return
    log.error("part_failed", part=part, slug=slug, trace=services.trace(error))
    event = services.event("part_failed", services.clock.now(), slug, part=part, message=reason)
    try:
        await services.store.record(events=(event,))
    except StoreError as trouble:
        services.trouble(trouble)
    except Exception as trouble:  # noqa: BLE001  the fault stands, and the event comes later
        log.error("part_failed", part="events", slug=None, trace=services.trace(trouble))
    else:
        services.failing[key] = reason


def _key(part: str, slug: str | None) -> str:
    return f"part:{part}" if slug is None else f"part:{part}:{slug}"
