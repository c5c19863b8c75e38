"""A fresh clone of a repository as a folder to work in, and what is laid into it unseen by git.

Theory of operation. What stands in the clone was written by others, links included. So nothing is
written where the repository has anything, nor through a link of it; and what is laid is listed in
`.git/info/exclude`. A `.gitignore` of the repository weighs more than that list, so git is asked
what it would still pick up.
"""

import os
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path, PurePosixPath

import attrs

from drumbeat.core.git_access import clone_argv, clone_env, clone_problem
from drumbeat.core.messages import exactly
from drumbeat.core.model import Env
from drumbeat.errors import DrumbeatError, Problem
from drumbeat.runtime.processes import MIB, Ended, run_process
from drumbeat.runtime.threads import Threads

_ASKING = timedelta(minutes=1)
"""How long git may take to say something about a clone; in real time."""


@attrs.frozen(kw_only=True)
class Clone:
    """A clone that was made; `env` is that of whoever works in it."""

    folder: Path
    env: Env
    threads: Threads = attrs.field(factory=Threads, eq=False, repr=False)

    async def exclude(self, names: Collection[str]) -> None:
        """List files and folders in the clone's own exclude file.

        Args:
            names: relative to the clone, with `/` between their parts.

        Raises:
            OSError: it cannot be written.
        """
        if names:
            await self.threads.run(_exclude, self.folder, sorted(names))

    async def picked_up(self, names: Sequence[str]) -> frozenset[str]:
        """Which files below `names` `git add -A` would pick up; asks git.

        Raises:
            DrumbeatError: git does not say; `clone-failed`.
        """
        if not names:
            return frozenset()
        ended = await self._git(
            *("-c", "core.fsmonitor=false", "--literal-pathspecs"),
            *("ls-files", "--others", "--exclude-standard", "-z", "--", *names),
        )
        if ended.how != "exited" or ended.exit_code != 0:
            raise DrumbeatError(_not_asked(ended))
        return frozenset(os.fsdecode(name) for name in ended.stdout.split(b"\0") if name)

    async def commit(self) -> str | None:
        """The commit that is checked out; None in an empty repository.

        Raises:
            DrumbeatError: nothing is checked out although there are branches; `repo-headless`.
        """
        head = await self._git("rev-parse", "--quiet", "--verify", "HEAD")
        if head.exit_code == 0:
            return head.stdout.decode("ascii", "replace").strip()
        branches = await self._git("for-each-ref", "--count=1", "refs/remotes")
        if branches.exit_code == 0 and not branches.stdout:
            return None
        raise DrumbeatError(
            Problem(
                code="repo-headless",
                message="the repository was cloned and nothing of it checked out: its HEAD names "
                "no branch that it has",
                remedy="set the default branch of the repository to one that exists",
            )
        )

    async def _git(self, *args: str) -> Ended:
        return await run_process(
            ["git", *args],
            cwd=self.folder,
            env=clone_env(self.env, address=""),
            timeout=_ASKING,
            stdout_limit=MIB,
            threads=self.threads,
        )


async def clone_repository(
    address: str, folder: Path, *, env: Env, timeout: timedelta, threads: Threads | None = None
) -> Clone:
    """Clone a repository into `folder`, which is empty; the whole history, blobs on demand.

    Cancelled, it leaves no process behind and maybe a part of the clone.

    Args:
        address: one that `repo_problem` has nothing against.
        folder: absolute, and there.
        env: what `git_env` made for the address.
        timeout: after it git and all it started is ended; in real time.
        threads: where it is worked that would block.

    Raises:
        DrumbeatError: it could not be cloned; `git-missing`, `repo-timeout` or a code of
            `clone_problem`.
    """
    ended = await run_process(
        clone_argv(address, str(folder)),
        cwd=folder,
        env=clone_env(env, address=address),
        timeout=timeout,
        stdout_limit=MIB,
        threads=threads,
    )
    if ended.how == "not-startable":
        raise DrumbeatError(no_git(ended.detail))
    if ended.how == "timed-out":
        raise DrumbeatError(
            Problem(
                code="repo-timeout",
                message=f"{address} could not be cloned within {exactly(timeout)}",
                remedy="see whether the host answers and how large the history is; "
                "Settings.clone_timeout and the run's own limit bound it",
            )
        )
    if ended.exit_code != 0:
        raise DrumbeatError(clone_problem(address, ended.stderr, ended=ended.exit))
    return Clone(folder=folder, env=env, threads=threads or Threads())


def no_git(why: str = "it is not on the PATH") -> Problem:
    """The problem of a machine without git."""
    return Problem(
        code="git-missing",
        message=f"there is no git to clone with: {why}",
        remedy="install git 2.31 or later, on the PATH of the engine",
    )


def _not_asked(ended: Ended) -> Problem:
    return Problem(
        code="clone-failed",
        message=f"git did not say what it would add in the clone: it {ended.how} ({ended.exit})",
        remedy="run `git status` in a clone of that repository by hand, as the engine's user",
    )


def _exclude(folder: Path, names: Sequence[str]) -> None:
    info = folder / ".git" / "info"
    info.mkdir(exist_ok=True)
    handle = os.open(
        info / "exclude", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
    )
    with os.fdopen(handle, "wb") as file:
        file.writelines(b"/" + os.fsencode(_pattern(name)) + b"\n" for name in names)


def _pattern(name: str) -> str:
    r"""A name as a pattern of gitignore that matches nothing else.

    >>> _pattern("a*b/c ")
    'a\\*b/c\\ '
    """
    return "".join(f"\\{char}" if char in "\\*?[ " else char for char in str(PurePosixPath(name)))
