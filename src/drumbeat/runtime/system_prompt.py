"""The workspace's rules for jobs, and what keeps them from being read."""

from pathlib import Path, PurePath

from drumbeat.errors import Problem, WorkspaceError
from drumbeat.runtime.files import MAX_FILE, FileFault, read_inside
from drumbeat.runtime.threads import Threads

__all__ = ["SYSTEM_PROMPT", "look_at_system_prompt", "read_system_prompt"]

SYSTEM_PROMPT = PurePath("SYSTEM.md")
"""Where they stand."""


def read_system_prompt(workspace: Path) -> str | None:
    """The workspace's `SYSTEM.md` as it stands, or None where there is none; blocks on the disk.

    Args:
        workspace: an absolute folder.

    Raises:
        WorkspaceError: it is there and cannot be read, or is blank (`system-prompt-unreadable`).
    """
    path = workspace / SYSTEM_PROMPT
    try:
        data = read_inside(workspace, SYSTEM_PROMPT)
    except FileFault as fault:
        if fault.kind == "missing" and not path.is_symlink():
            return None
        raise _unruled(str(fault)) from None
    if len(data) > MAX_FILE:
        raise _unruled(f"{path} is larger than 1 MiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unruled(f"{path} is not UTF-8 (byte {error.start})") from None
    if not text.strip():
        raise _unruled(f"{path} is blank")
    return text


async def look_at_system_prompt(
    workspace: Path, *, threads: Threads | None = None
) -> tuple[Problem, ...]:
    """What keeps the jobs of a workspace from having its rules; nothing where it has none.

    Args:
        workspace: the folder.
        threads: where it is read; None for some of its own.
    """

    def look() -> tuple[Problem, ...]:
        try:
            read_system_prompt(workspace.absolute())
        except WorkspaceError as error:
            return error.problems
        return ()

    return await (threads or Threads()).run(look)


def _unruled(why: str) -> WorkspaceError:
    return WorkspaceError(
        [
            Problem(
                code="system-prompt-unreadable",
                message=why,
                remedy=f"mend {SYSTEM_PROMPT} or take it away: no job runs without its rules",
                path=SYSTEM_PROMPT,
            )
        ]
    )
