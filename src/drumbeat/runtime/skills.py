"""Skills: folders with a `SKILL.md`, found in three layers and laid where an agent works.

Theory of operation. A skill is known by the name of its folder. What the working folder has wins,
then comes the workspace, then the engine's own folders in their order. Ours are copied, never
linked: the agent may write where it works, and must not write into the workspace that way. One
that is damaged is an error and not none: an agent without it would do other work than was meant.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import IO

import attrs

from drumbeat.core.slug import SLUG, SLUG_RULE
from drumbeat.errors import DrumbeatError, Problem
from drumbeat.runtime.files import MAX_FILE, FileFault, open_regular, read_inside, remedy_for
from drumbeat.runtime.threads import Threads

SKILLS = "skills"
"""The folder of skills in a workspace and in a working folder."""

_NAME = re.compile(SLUG)
_CARD = PurePath("SKILL.md")
_FILES = 1_000
_BYTES = 16 * MAX_FILE
_CHUNK = 65_536
_LINK_REMEDY = "put the file itself there: a copy of the skill is laid where the agent works"


@attrs.frozen(kw_only=True)
class Layers:
    """Where an engine's own skills lie: in the workspace, then in folders that the host gave."""

    workspace: Path
    folders: tuple[Path, ...] = ()
    threads: Threads = attrs.field(factory=Threads, eq=False, repr=False)

    async def check(self) -> tuple[Problem, ...]:
        """What is wrong with the folders that the host gave."""
        return await self.threads.run(self._check)

    def _check(self) -> tuple[Problem, ...]:
        found: list[Problem] = []
        for folder in self.folders:
            _layer(folder, found)
        return tuple(found)

    async def skills(self) -> dict[str, Path]:
        """The folder of each skill, by name, in order of names.

        Raises:
            DrumbeatError: a skill or a folder of them is damaged; the problem names all that are.
        """
        return await self.threads.run(self._skills)

    def _skills(self) -> dict[str, Path]:
        problems: list[Problem] = []
        found: dict[str, Path] = {}
        # The first of a name counts.
        for folder in reversed(self.folders):
            found |= _layer(folder, problems)
        found |= _layer(self.workspace / SKILLS, problems, within=self.workspace)
        if problems:
            raise DrumbeatError(_joined(problems))
        return dict(sorted(found.items()))


@attrs.frozen(kw_only=True)
class Laid:
    """The skills of a working folder: the paths of all, and the names that were laid."""

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    """Relative to the working folder, with `/` between their parts."""


async def lay_skills(
    ours: Mapping[str, Path], folder: Path, *, threads: Threads | None = None
) -> Laid:
    """Copy skills into `skills/` of a working folder, but for those that it has.

    Args:
        ours: the folder of each skill, by name.
        folder: the working folder, absolute; what stands in it may have been written by anybody.
        threads: the engine's; None for some of its own.

    Raises:
        DrumbeatError: a skill is damaged (`skill-broken`), or there is something in its place that
            is no skill (`skill-blocked`), or the folder cannot be written
            (`work-folder-unwritable`).
    """
    return await (threads or Threads()).run(_lay, ours, folder)


async def skills_at_hand(
    ours: Mapping[str, Path], folder: Path, *, threads: Threads | None = None
) -> tuple[Path, ...]:
    """The skills of a working folder as it stands, and of `ours` those that are not in it."""
    return await (threads or Threads()).run(_at_hand, ours, folder)


def _at_hand(ours: Mapping[str, Path], folder: Path) -> tuple[Path, ...]:
    theirs = _theirs(folder, folder / SKILLS)
    return tuple(path for _, path in sorted({**ours, **theirs}.items()))


# ---- layers


def _layer(folder: Path, problems: list[Problem], *, within: Path | None = None) -> dict[str, Path]:
    """The skills of one layer; what is wrong with it goes to `problems`.

    Args:
        folder: where it lies.
        problems: added to.
        within: the folder that no link of the layer may leave, and without which it is empty; None
            for a folder that the host gave, which has to be there.
    """
    try:
        names = sorted(_candidates(folder))
    except FileNotFoundError:
        if within is None or folder.is_symlink():
            problems.append(_broken(folder, "there is no such folder", "make it"))
        return {}
    except OSError as error:
        why = f"it cannot be read: {error.strerror or error}"
        problems.append(_broken(folder, why, "let it be a folder that the engine's user may read"))
        return {}
    if (folder / _CARD).exists():
        why = "it is a skill, and stands where a folder of skills belongs"
        problems.append(_broken(folder, why, "move it into a folder below"))
        return {}
    found: dict[str, Path] = {}
    for name in names:
        problem = _skill_problem(folder / name, within)
        if problem is None:
            found[name] = folder / name
        else:
            problems.append(problem)
    return found


def _candidates(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith((".", "_")) and (entry.is_symlink() or entry.is_dir()):
                yield entry.name


def _skill_problem(skill: Path, within: Path | None) -> Problem | None:
    """What keeps a folder of ours from being a skill."""
    if not _NAME.fullmatch(skill.name):
        return _broken(skill, "that is no name of a skill", f"rename it: {SLUG_RULE}")
    try:
        text = read_inside(skill, _CARD)
        if within is not None:
            read_inside(within, PurePath(SKILLS, skill.name, _CARD))
    except FileFault as fault:
        remedy = "write a SKILL.md into it, or let its name begin with _"
        # The message names the folder as it is.
        return _broken(skill, str(fault).replace(str(skill / _CARD), str(_CARD)), remedy)
    if len(text) > MAX_FILE:
        return _broken(skill, f"{_CARD} is larger than 1 MiB", "prune it")
    if not text.strip():
        return _broken(skill, f"{_CARD} is blank", "write into it what the agent is to know")
    return None


def _broken(path: Path, why: str, remedy: str) -> Problem:
    return Problem(code="skill-broken", message=f"skill {path}: {why}", remedy=remedy, path=path)


def _joined(problems: Sequence[Problem]) -> Problem:
    first, *_ = problems
    return attrs.evolve(
        first,
        message="\n".join(problem.message for problem in problems),
        path=None,  # each line names its own
        remedy="\n".join(dict.fromkeys(problem.remedy for problem in problems)),
    )


# ---- laying them


def _lay(ours: Mapping[str, Path], folder: Path) -> Laid:
    place = folder / SKILLS
    theirs = _theirs(folder, place)
    laid: list[str] = []
    made: list[Path] = []
    if ours.keys() - theirs.keys():
        try:
            place = _place(folder, place)
            for name, source in ours.items():
                if name not in theirs:
                    made.append(_free(place / name))
                    _copy(source, made[-1])
                    laid.append(name)
        except (OSError, DrumbeatError) as error:
            # Half of them are of no use, and may be what fills the disk.
            for target in made:
                shutil.rmtree(target, ignore_errors=True)
            if isinstance(error, DrumbeatError):
                raise
            raise DrumbeatError(
                Problem(
                    code="work-folder-unwritable",
                    message=f"skills could not be laid into {folder}: {error.strerror or error}",
                    remedy=remedy_for(error, "let the engine write into the data folder"),
                )
            ) from error
    paths = {**theirs, **{name: place / name for name in laid}}
    inside = place.relative_to(folder).as_posix()
    return Laid(
        paths=tuple(path for _, path in sorted(paths.items())),
        names=tuple(f"{inside}/{name}" for name in laid),
    )


def _theirs(folder: Path, place: Path) -> dict[str, Path]:
    """What of a working folder is a skill: nothing that a link leads out of it."""
    try:
        names = list(_candidates(place))
    except OSError:
        return {}
    found = {}
    for name in names:
        try:
            read_inside(folder, PurePath(SKILLS, name, _CARD))
        except FileFault:
            continue
        found[name] = place / name
    return found


def _place(folder: Path, place: Path) -> Path:
    """Where ours are laid: `skills/`, or the folder of the clone that a link of this name means."""
    if not os.path.lexists(place):
        place.mkdir()
        return place
    try:
        real = place.resolve(strict=True)
        inside = real.relative_to(folder.resolve(strict=True))
    except (OSError, RuntimeError, ValueError):
        raise _blocked(place, "it leads out of the repository, or nowhere") from None
    if inside.parts[:1] == (".git",) or not inside.parts:
        raise _blocked(place, "it leads to where no skills belong")
    if not real.is_dir():
        raise _blocked(place, "it is no folder")
    return folder / inside


def _free(target: Path) -> Path:
    if os.path.lexists(target):
        raise _blocked(target, "it stands where ours of that name is laid, and is no skill")
    return target


def _blocked(path: Path, why: str) -> DrumbeatError:
    return DrumbeatError(
        Problem(
            code="skill-blocked",
            message=f"the repository has {path.name} in the way of skills: {why}",
            remedy="rename it in the repository, or the skill; a SKILL.md makes it a skill of the "
            "repository's own",
        )
    )


@attrs.define
class _Budget:
    """What may still be copied of a skill, counted as it is read: a file may grow meanwhile."""

    skill: Path
    files: int = 0
    bytes: int = 0

    def take(self, *, files: int = 0, bytes: int = 0) -> None:
        self.files += files
        self.bytes += bytes
        if self.files > _FILES or self.bytes > _BYTES:
            why = f"it has more than {_FILES} files or 16 MiB"
            raise DrumbeatError(_broken(self.skill, why, "keep there what the skill needs alone"))


def _copy(source: Path, target: Path) -> None:
    try:
        root = source.resolve(strict=True)
    except OSError as error:
        raise _unreadable(source, source, error) from error
    _copy_folder(root, target, root, _Budget(source))


def _copy_folder(source: Path, target: Path, root: Path, budget: _Budget) -> None:
    target.mkdir(mode=0o700)
    try:
        with os.scandir(source) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(budget.skill, source, error) from error
    for entry in entries:
        if entry.name == ".git":
            continue  # within a clone it would be another repository
        path = Path(entry)
        linked = entry.is_symlink()
        if linked:
            path = _inside(path, root, budget.skill)
        try:
            info = path.stat()
        except OSError as error:
            raise _unreadable(budget.skill, path, error) from error
        budget.take(files=1)
        if stat.S_ISDIR(info.st_mode) and not linked:
            _copy_folder(path, target / entry.name, root, budget)
            continue
        try:
            original = open_regular(path)
        except OSError as error:
            raise _unreadable(budget.skill, path, error) from error
        if original is None:
            why = f"{entry.name} is neither a file nor a folder of it"
            raise DrumbeatError(_broken(budget.skill, why, _LINK_REMEDY))
        with original:
            read = _chunks(original, path, budget)
            _copy_file(read, target / entry.name, stat.S_IMODE(info.st_mode))


def _unreadable(skill: Path, path: Path, error: OSError) -> DrumbeatError:
    why = f"{path.name} cannot be read: {error.strerror or error}"
    remedy = "let the engine's user read all of it"
    if isinstance(error, FileNotFoundError):
        remedy = "leave its files in their places while a run begins; the next run reads it anew"
    return DrumbeatError(_broken(skill, why, remedy))


def _chunks(original: IO[bytes], path: Path, budget: _Budget) -> Iterator[bytes]:
    """What stands in a file; that it cannot be read is no trouble of the folder it goes to."""
    while True:
        try:
            chunk = original.read(_CHUNK)
        except OSError as error:
            raise _unreadable(budget.skill, path, error) from error
        if not chunk:
            return
        budget.take(bytes=len(chunk))
        yield chunk


def _inside(link: Path, root: Path, skill: Path) -> Path:
    try:
        real = link.resolve(strict=True)
    except (OSError, RuntimeError):
        raise DrumbeatError(_broken(skill, f"{link.name} leads nowhere", _LINK_REMEDY)) from None
    if not real.is_relative_to(root):
        raise DrumbeatError(_broken(skill, f"{link.name} leads out of it", _LINK_REMEDY))
    return real


def _copy_file(chunks: Iterator[bytes], target: Path, mode: int) -> None:
    # What runs there runs here; the rest of the bits is of whoever wrote the skill.
    handle = os.open(
        target,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW,
        0o700 if mode & 0o100 else 0o600,
    )
    with os.fdopen(handle, "wb") as file:
        file.writelines(chunks)
