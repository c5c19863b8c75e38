"""Which automations a workspace is seen to have, for commands that miss one."""

from drumbeat import Status
from drumbeat.runtime.listing import FOLDER_CODES

__all__ = ["slugs_seen"]


def slugs_seen(status: Status) -> set[str] | None:
    """The slugs of all files, broken or not; None when there may be files that cannot be seen."""
    if any(problem.code in FOLDER_CODES for problem in status.faults):
        return None
    broken = {path.stem for path in status.workspace.problems}
    return broken | {automation.slug for automation in status.workspace.automations}
