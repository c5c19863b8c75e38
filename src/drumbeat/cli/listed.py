"""What a workspace is seen to have, for commands that miss something in it."""

from datetime import datetime, tzinfo

from drumbeat import Automation, ScheduleError, ScheduleTrigger, Status, next_fire
from drumbeat.runtime.listing import FOLDER_CODES

__all__ = ["is_never_due", "never_comes", "slugs_seen"]


def slugs_seen(status: Status) -> set[str] | None:
    """The slugs of all files, broken or not; None when there may be files that cannot be seen."""
    if any(problem.code in FOLDER_CODES for problem in status.faults):
        return None
    broken = {path.stem for path in status.workspace.problems}
    return broken | {automation.slug for automation in status.workspace.automations}


def is_never_due(automation: Automation, zone: tzinfo, now: datetime) -> bool:
    """Whether it declares a schedule that cannot be read, or that has no moment in its zone."""
    unread = any(
        isinstance(trigger, ScheduleTrigger) and trigger.schedule is None
        for trigger in automation.triggers
    )
    return unread or never_comes(automation, zone, now)


def never_comes(automation: Automation, zone: tzinfo, now: datetime) -> bool:
    """Whether its schedule is in order, and has no moment in its zone."""
    if automation.schedule is None:
        return False
    try:
        next_fire(automation.schedule, after=now, zone=zone)
    except ScheduleError:
        return True
    return False
