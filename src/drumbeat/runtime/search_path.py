"""Where tools are looked up, and the whole environment that a tool or an agent is given."""

import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from drumbeat.core.model import Env, Pack
from drumbeat.core.signatures import DOOR_SECRETS

RUN_VARIABLES = frozenset(
    {
        "DRUMBEAT_AUTOMATION",
        "DRUMBEAT_DATA_DIR",
        "DRUMBEAT_FOLLOWUPS_URL",
        "DRUMBEAT_GUARD",
        "DRUMBEAT_RUN_ID",
        "DRUMBEAT_RUN_TOKEN",
        "DRUMBEAT_WORKSPACE",
    }
)
"""What belongs to one run: never inherited, so that an engine inside a run passes none of it on."""


def door_secrets(env: Env) -> dict[str, str]:
    """The doors' secrets that an environment holds, by variable name."""
    return {name: env[name] for name in sorted(DOOR_SECRETS) if env.get(name)}


def path_entries(text: str) -> tuple[Path, ...]:
    """The absolute folders of a PATH text, in order, each once.

    Empty and relative entries are left out: they would mean another folder in each working folder.
    """
    entries = (Path(entry) for entry in text.split(os.pathsep) if entry)
    return tuple(dict.fromkeys(entry for entry in entries if entry.is_absolute()))


def search_path(*, workspace: Path, packs: Sequence[Pack], base: str) -> tuple[Path, ...]:
    """The PATH of tools and of the agent: packs' `bin/` in order, the workspace's, then `base`.

    Args:
        workspace: the workspace folder, absolute.
        packs: in the order in which the workspace lists them.
        base: a PATH text, as captured when the engine started (spec, section 9).
    """
    own = (*(pack.folder / "bin" for pack in packs), workspace / "bin")
    return tuple(dict.fromkeys((*own, *path_entries(base))))


def child_env(
    base: Env, *, path: Sequence[Path], extra: Env, withheld: Collection[str]
) -> dict[str, str]:
    """The complete environment of a child process.

    Args:
        base: what is inherited, less `withheld`, `DOOR_SECRETS`, which no child process ever sees
            (spec, section 12), and `RUN_VARIABLES`.
        path: the folders of its `PATH`, in order.
        extra: what is set on purpose, such as `DRUMBEAT_RUN_ID`; wins over `base`, withheld or not.
        withheld: names that are not inherited: those of the engine's `secrets`.
    """
    left_out = DOOR_SECRETS.union(RUN_VARIABLES, withheld)
    inherited = {name: value for name, value in base.items() if name not in left_out}
    return {**inherited, **extra, "PATH": os.pathsep.join(map(str, path))}


def find_executable(name: str, *, path: Sequence[Path], cwd: Path) -> Path | None:
    """The executable that `name` stands for, or None. Touches the disk.

    Args:
        name: with a `/` a file, relative to `cwd` or absolute; else looked up on `path`.
        path: absolute folders, in order.
        cwd: the working folder of the child process, absolute.
    """
    return _find(name, path=path, cwd=cwd, mode=os.F_OK | os.X_OK)


def not_found(name: str, *, path: Sequence[Path], cwd: Path) -> str:
    """What to say of a name for which `find_executable` has nothing. Touches the disk."""
    if _find(name, path=path, cwd=cwd, mode=os.F_OK) is not None:
        return f"no executable {name!r}, only a file that may not be executed, was found"
    return f"no executable {name!r} was found"


def _find(name: str, *, path: Sequence[Path], cwd: Path, mode: int) -> Path | None:
    if "/" in name:
        found = shutil.which(cwd / name, mode=mode)
    else:
        found = shutil.which(name, mode=mode, path=os.pathsep.join(map(str, path)))
    return None if found is None else Path(found)
