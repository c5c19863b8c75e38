"""What a rule made due while no engine ran, when the file says something else by now."""

from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from drumbeat.core.identity import slot_of
from drumbeat.core.model import Due, Fire, FireVerdict, Interval, Mark
from drumbeat.core.schedule import format_schedule
from drumbeat.protocols import Clock, Store
from drumbeat.runtime.clock import holding
from drumbeat.runtime.log import log
from drumbeat.runtime.schedule_marks import (
    PREFIX,
    Standing,
    Zones,
    kept_rule,
    owed,
    read_finishes,
)
from drumbeat.runtime.threads import Threads

__all__ = ["fire_of", "superseded"]


def fire_of(due: Due, now: datetime, *, verdict: FireVerdict | None = None, why: str = "") -> Fire:
    """The fire of a due moment, with its verdict where it has one at once, and why."""
    slot = slot_of(due.slot)
    return Fire(
        id=f"schedule-{due.slug}-{slot}",
        slug=due.slug,
        cause="schedule",
        slot=slot,
        due=due.slot,
        created_at=now,
        folded_slots=due.folded,
        verdict=verdict,
        reason=why,
    )


async def superseded(
    mark: Mark,
    by: Standing | Literal["disabled", "unscheduled"],
    *,
    store: Store,
    zones: Zones,
    catch_up: timedelta,
    now: datetime,
    clock: Clock,
    threads: Threads,
) -> Fire | None:
    """The verdict on the moments of a rule that no engine saw to before it was replaced.

    They are one fire, as they would have been one run: `skipped` where the file is disabled, and
    `missed` else. The one moment of an interval is moved and not passed over by another interval.

    Args:
        mark: what is kept of the rule.
        by: what the file declares by now.
        store: where the runs and fires are.
        zones: by kind of file.
        catch_up: how late a moment may be and still be run.
        now: the present instant.
        clock: stands still meanwhile, if it is driven.
        threads: where the moments are computed; of a year of downtime there may be many.

    Returns:
        The fire, settled, to be put in as the mark moves; None when nothing was due.

    Raises:
        StoreError: the store could not be read.
    """
    slug = mark.key.removeprefix(PREFIX)
    with holding(clock, "schedules"):
        rule = await threads.run(kept_rule, mark, zones)
    if rule is not None and isinstance(rule[0], Interval):
        if isinstance(by, Standing) and isinstance(by.schedule, Interval):
            return None
        backlog = await store.backlog(slug=slug, now=now)
        if any(waiting.due <= now for waiting in backlog):
            return None
    finish = (await read_finishes(store, slug)).get(slug)
    compute = partial(owed, mark, zones=zones, last_finish=finish, catch_up=catch_up, now=now)
    with holding(clock, "schedules"):
        due = await threads.run(compute)
    if due is None:
        return None
    verdict: FireVerdict = "skipped" if by == "disabled" else "missed"
    why = "disabled" if by == "disabled" else f"nobody saw to it in time, and {_by_now(mark, by)}"
    log.warning(
        "slots_superseded",
        slug=slug,
        slot=slot_of(due.slot),
        folded=due.folded,
        verdict=verdict,
        reason=why,
    )
    return fire_of(due, now, verdict=verdict, why=why)


def _by_now(mark: Mark, by: Standing | str) -> str:
    if not isinstance(by, Standing):
        return "its file has no schedule by now"
    before = _shown(mark.value["rule"], mark.value["zone"])
    return f"by now its schedule is {_shown(format_schedule(by.schedule), by.ruling)}, not {before}"


def _shown(rule: str, zone: str) -> str:
    return f"`{rule}` in {zone}" if zone else f"`{rule}`"
