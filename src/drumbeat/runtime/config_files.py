"""The only reader of agent configuration outside automation files, and when it is read again.

Theory of operation. Two files are watched, the operator's and the workspace's `agent-config.yaml`.
Each, or what a link in its place points to, costs one stat while its stamp is believed
(`stamps.py`).

A file that cannot be used leaves both layers as they were last good, so that a run never sees half
of an edit or a default that nobody chose. A workspace file that is missing counts as removed at the
second reload in a row, since editors and version control replace files by taking them away first;
and not while the workspace itself is missing, since disks get unmounted.
"""

import os
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, Generic, TypeVar

import anyio
import attrs

from drumbeat.core.config_layers import (
    ConfigLayers,
    WorkspaceConfig,
    read_operator_config,
    read_workspace_config,
)
from drumbeat.core.model import Env
from drumbeat.errors import Problem, WorkspaceError
from drumbeat.runtime.file_problems import file_problem
from drumbeat.runtime.files import FileFault, read_inside
from drumbeat.runtime.stamps import LastRead, stamp_of
from drumbeat.runtime.threads import Threads

__all__ = ["OPERATOR_VARIABLE", "ConfigChange", "ConfigFiles", "load_config_layers"]

OPERATOR_VARIABLE = "AMPLIFIER_AGENT_CONFIG"
"""The environment variable that names the operator's file."""
WORKSPACE_FILE = "agent-config.yaml"
"""The workspace's file."""

_MISNAMED = ("agent-config.yml", "agent_config.yaml", "agent_config.yml")
T = TypeVar("T")


async def load_config_layers(workspace: Path, env: Env) -> ConfigLayers:
    """Read the layers of agent configuration once.

    Args:
        workspace: the workspace folder.
        env: the engine's environment, for `$AMPLIFIER_AGENT_CONFIG`.

    Raises:
        WorkspaceError: all problems of both files. A missing `agent-config.yaml` is none, and
            neither is a variable that is not set or blank.
    """
    change = await ConfigFiles(workspace, env=env).reload()
    if change.error is not None:
        raise change.error
    return change.layers


@attrs.frozen(kw_only=True)
class ConfigChange:
    """What a reload found: the layers to go on with, and what is wrong with the files.

    With an `error` the layers are the last good ones.
    """

    layers: ConfigLayers
    error: WorkspaceError | None = None


class ConfigFiles:
    """The files, read again and again; nothing is read before the first `reload`.

    Args:
        workspace: the workspace folder.
        env: the engine's environment, for `$AMPLIFIER_AGENT_CONFIG`. A relative path in it is
            taken from the folder that the process works in at this moment.
    """

    def __init__(
        self, workspace: str | PathLike[str], *, env: Env, threads: Threads | None = None
    ) -> None:
        self._root = Path(workspace).absolute()
        named = env.get(OPERATOR_VARIABLE, "")
        self._operator = _Operator(Path(named).absolute()) if named.strip() else None
        self._workspace = _Workspace(self._root)
        self._missed = False
        self._layers = ConfigLayers()
        self._lock = anyio.Lock()
        self._threads = threads or Threads()

    async def reload(self) -> ConfigChange:
        """Look at the files again, in a thread; concurrent calls wait for each other."""
        async with self._lock:
            problems = await self._threads.run(self._look, True)
            error = WorkspaceError(problems) if problems else None
            return ConfigChange(layers=self._layers, error=error)

    async def current(self) -> ConfigLayers:
        """The layers for a run that begins at this moment; looks at the files, in a thread.

        Where a file is missing or cannot be used these are the last good ones. What is found is
        left for the next `reload` to report.
        """
        async with self._lock:
            await self._threads.run(self._look, False)
            return self._layers

    def _look(self, counts: bool) -> tuple[Problem, ...]:
        """Take the files as they are, unless something is wrong, which is returned.

        Args:
            counts: whether a missing file comes nearer to being a removed one.
        """
        problems: list[Problem] = []
        operator: Mapping[str, Any] = {}
        around = WorkspaceConfig(default=self._layers.default, profiles=self._layers.profiles)
        if self._operator is not None:
            try:
                operator = self._operator.look()
            except WorkspaceError as error:
                problems += error.problems
        try:
            around = self._found(self._workspace.look(), around, counts=counts)
        except WorkspaceError as error:
            problems += error.problems
        if not problems:
            self._layers = ConfigLayers(
                operator=operator, default=around.default, profiles=around.profiles
            )
        return tuple(problems)

    def _found(
        self, found: WorkspaceConfig | None, known: WorkspaceConfig, *, counts: bool
    ) -> WorkspaceConfig:
        if found is not None:
            self._missed = False
            return found
        if not counts or not self._root.is_dir():
            return known
        missed, self._missed = self._missed, True
        return WorkspaceConfig() if missed else known


# ---- one file


class _Watched(Generic[T]):
    """A file that is read when its stamp is not known, and parsed when its bytes are others."""

    def __init__(self, read: Callable[[], bytes], parse: Callable[[bytes], T]) -> None:
        self._read = read
        self._parse = parse
        self._last = LastRead()
        self._outcome: T | WorkspaceError | None = None

    def look(self, path: Path) -> T:
        """What the file at `path` says.

        Raises:
            FileFault: it cannot be read.
            OSError: it cannot even be looked at.
            ValueError: no file can have such a path.
            WorkspaceError: its problems.
        """
        stamp = stamp_of(path.stat())
        if not self._last.holds(stamp):
            data = self._read()
            if not self._last.says(data):
                try:
                    self._outcome = self._parse(data)
                except WorkspaceError as error:
                    self._outcome = error
            self._last = self._last.then(stamp, data)
        outcome = self._outcome
        if isinstance(outcome, WorkspaceError):
            raise WorkspaceError(outcome.problems)
        assert outcome is not None  # the digest of nothing read is no digest
        return outcome


class _Operator:
    """The file that the environment names: anywhere, and through any links."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _Watched(self._read, lambda data: read_operator_config(data, path=path))

    def look(self) -> Mapping[str, Any]:
        """What it says.

        Raises:
            WorkspaceError: its problems; that it is not there is one.
        """
        try:
            return self._file.look(self._path)
        except FileFault as fault:
            refused = fault
        except (FileNotFoundError, NotADirectoryError):
            refused = FileFault("missing", f"there is no file {self._path}")
        except (OSError, RuntimeError, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error)
            refused = FileFault("unreadable", f"{self._path} cannot be read: {said}")
        problem = file_problem(refused, self._path)
        if refused.kind == "missing":
            problem = Problem(
                code="agent-config-missing",
                message=f"{problem.message}, and ${OPERATOR_VARIABLE} names it",
                remedy="create the file, or correct or unset the variable",
                path=self._path,
            )
        raise WorkspaceError([problem])

    def _read(self) -> bytes:
        target = self._path.resolve()
        return read_inside(target.parent, PurePath(target.name))


class _Workspace:
    """The workspace's own file, which may be missing and must not be elsewhere."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = _Watched(
            lambda: read_inside(root, PurePath(WORKSPACE_FILE)),
            lambda data: read_workspace_config(data, path=PurePath(WORKSPACE_FILE)),
        )

    def look(self) -> WorkspaceConfig | None:
        """What it says, or None when it is not there.

        Raises:
            WorkspaceError: its problems; one of a name like it is one.
        """
        for name in _MISNAMED:
            if os.path.lexists(self._root / name):
                raise WorkspaceError(
                    [
                        Problem(
                            code="agent-config-misnamed",
                            message="a file of this name is never read",
                            remedy=f"rename it to {WORKSPACE_FILE}, or take it away",
                            path=PurePath(name),
                        )
                    ]
                )
        path = self._root / WORKSPACE_FILE
        try:
            return self._file.look(path)
        except FileFault as fault:
            refused = fault
        except (FileNotFoundError, NotADirectoryError):
            refused = FileFault("missing", f"{path} is a link to nothing")
        except OSError as error:
            refused = FileFault("unreadable", f"{path} cannot be read: {error.strerror}")
        if refused.kind == "missing" and not path.is_symlink():
            return None
        raise WorkspaceError([file_problem(refused, PurePath(WORKSPACE_FILE))])
