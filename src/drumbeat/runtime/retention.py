"""What goes with time: folders of runs, events, runs, settled fires, answered requests.

Theory of operation. The store knows what became of a run, so a folder goes by what stands there: a
run that is going, whose fire is open or whose intent is pending keeps all of it. A folder that the
store knows nothing of goes by the time in its name. The folders are looked at first, so that a run
is still known when its folder goes. A person may answer an old run, and the answer works in its
folder: so its conversation is taken before anything is removed, and the run looked at once more.
Nothing here can fail a run, and whatever a crash leaves is found the next time: a folder is moved
aside before it is removed, so that nobody meets half of it, and what lies aside goes first.

A disk that is full takes no claim on a conversation, and old folders may be what fills it. Nobody
else can take one then either, so they go without it while nobody answers.

What goes, goes by the wall clock, and does not come back when that was wrong. So a mark keeps up to
when the clock has been believed, and nothing goes while `core/belief.py` doubts it.
"""

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import attrs

from drumbeat.core.belief import CONFIRMED, Belief, believe
from drumbeat.core.identity import run_began
from drumbeat.core.model import RunRecord
from drumbeat.core.slug import SLUG
from drumbeat.errors import StoreError
from drumbeat.protocols import Store
from drumbeat.runtime.borrowed import borrowed
from drumbeat.runtime.clock import holding, nap
from drumbeat.runtime.contained import contained
from drumbeat.runtime.log import log
from drumbeat.runtime.marks import mark_of
from drumbeat.runtime.schedule_marks import instant
from drumbeat.runtime.services import Services
from drumbeat.runtime.store_retention import REMEMBERED

__all__ = ["Retention", "forgotten_before"]

_GONE = ".gone"
"""Where what is being removed lies; no slug begins with a dot."""
_AGAIN = timedelta(hours=1)
"""When it is tried again after trouble."""
_FORGOTTEN = "engine:forgotten"
_KEY = "engine:clock"
"""The mark of what is known of the wall clock."""


@attrs.define(kw_only=True)
class Retention:
    """The retention of one engine: as it starts, and each `Settings.tidy_interval`.

    While the clock is doubted nothing goes, and it is looked at once more after a day.
    """

    services: Services
    is_answering: Callable[[], bool] = lambda: True
    """Whether a person's answer is going, or about to be."""
    _belief: Belief = attrs.field(factory=Belief)
    _since: float = 0.0
    """At which monotonic time what is believed was so, as far as that is known."""
    _looked: float = 0.0
    """At which monotonic time the clock was looked at last."""
    _shown: set[Path] = attrs.field(factory=set)

    async def run(self) -> None:
        """Tidy until cancelled."""
        services = self.services
        while True:
            pause = services.settings.tidy_interval
            try:
                well = await contained(services, "retention", self._round)
            except StoreError as error:
                services.trouble(error)
                well = False
            if not well:
                pause = min(pause, _AGAIN)
            elif self._doubts:
                pause = min(pause, CONFIRMED)
            await nap(services.clock, pause)

    @property
    def _doubts(self) -> bool:
        return self._belief.doubted is not None

    async def recall(self) -> None:
        """Read what was known of the clock; before anything is put into the store.

        Raises:
            StoreError: the store could not be read.
        """
        services = self.services
        self._since = services.clock.monotonic()
        value = (await mark_of(services.store, _KEY)).value
        if value is not None:
            believed, doubted = instant(value["believed"]), instant(value["doubted"])
            self._belief = Belief(believed=believed, doubted=doubted)
        elif not await services.store.fires(limit=1, payloads=False):
            # There is nothing that a clock that is wrong could take.
            self._belief = Belief(believed=services.clock.now())

    async def _round(self) -> None:
        try:
            await self._look_at_the_clock()
        except StoreError as error:
            if not _is_full(error) or self._doubts:
                raise
            await self._tidy_folders()
            await self._look_at_the_clock()
        if not self._doubts:
            await self.tidy()

    async def _look_at_the_clock(self) -> None:
        services = self.services
        now, steady = services.clock.now(), services.clock.monotonic()
        passed = timedelta(seconds=steady - self._since)
        looked = timedelta(seconds=steady - self._looked)
        belief = believe(self._belief, now=now, passed=passed, looked=looked)
        # What was seen was seen, also when it is not kept: the next process only knows less. Before
        # the store is asked, which may refuse to read too, and nothing goes by an earlier look.
        self._belief, self._looked = belief, steady
        if belief.doubted is None:
            self._since = steady
        if belief.doubted == now and belief.believed is not None:
            ahead = now - belief.believed
            log.warning("clock_doubted", seconds=ahead.total_seconds(), now=now.isoformat())
        value = {
            "believed": None if belief.believed is None else belief.believed.isoformat(),
            "doubted": None if belief.doubted is None else belief.doubted.isoformat(),
        }
        mark = attrs.evolve(await mark_of(services.store, _KEY), value=value)
        await services.store.record(marks=(mark,))

    async def tidy(self) -> None:
        """Let go what is older than is kept.

        Raises:
            StoreError: the store could not be read or written; what is left goes the next time.
            Exception: whatever else kept a folder from going; all the others have gone.
        """
        services = self.services
        now = services.clock.now()
        folders, mistake = await self._tidy_folders()
        events = runs = fires = 0
        complete = False
        while not complete:
            purged = await services.store.purge(
                now=now,
                keep_events=services.settings.keep_events,
                keep_runs=services.settings.keep_runs,
            )
            events, runs = events + purged.events, runs + purged.runs
            fires, complete = fires + purged.fires, purged.complete
        if runs or fires:
            await self._forgot(now - max(services.settings.keep_runs, REMEMBERED))
        if folders or events or runs or fires:
            log.info("tidied", folders=folders, events=events, runs=runs, fires=fires)
        if mistake is not None:
            raise mistake

    async def _tidy_folders(self) -> tuple[int, Exception | None]:
        """Let folders go; return how many went, and what kept one from it."""
        services = self.services
        now = services.clock.now()
        folders = 0
        mistake: Exception | None = None
        with holding(services.clock, "retention"):
            await services.threads.run(self._clear)
            for folder, works in await services.threads.run(self._aged, now):
                try:
                    folders += await self._tidy(folder, now, works=works)
                except StoreError:
                    raise
                except Exception as error:  # noqa: BLE001  raised when all others were seen to
                    mistake = error
            await services.threads.run(self._drop_empty)
        return folders, mistake

    async def _forgot(self, before: datetime) -> None:
        """Remember up to when records are gone, for whoever asks of that time."""
        store = self.services.store
        earlier = await forgotten_before(store)
        if earlier is None or earlier < before:
            mark = attrs.evolve(await mark_of(store, _FORGOTTEN), value=before.isoformat())
            await store.record(marks=(mark,))

    def _aged(self, now: datetime) -> list[tuple[Path, bool]]:
        """The folders of runs old enough to be looked at, and whether each has its `work/`."""
        settings = self.services.settings
        found = []
        for folder, began in self._folders(self.services.artifacts.root):
            works = self._works(folder)
            if began <= now - settings.keep_artifacts or (
                works and began <= now - settings.keep_work
            ):
                found.append((folder, works))
        return found

    def _works(self, folder: Path) -> bool:
        try:
            return stat.S_ISDIR((folder / "work").lstat().st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:  # a folder of another user, such as one who ran it by hand
            self._complain("folder_not_read", folder, error)
            return False

    def _folders(self, root: Path) -> Iterator[tuple[Path, datetime]]:
        """The folders of runs, and when each run began; anything else is somebody's, and stays."""
        for slug in self._listed(root):
            if slug.name == _GONE:
                continue
            for folder in self._listed(slug):
                began = run_began(folder.name)
                if began is not None:
                    yield folder, began

    def _listed(self, folder: Path) -> list[Path]:
        """The folders in a folder; links are somebody's."""
        try:
            with os.scandir(folder) as entries:
                return [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._complain("folder_not_read", folder, error)
            return []

    def _complain(self, what: str, folder: Path, error: OSError) -> None:
        if folder not in self._shown:
            self._shown.add(folder)
            reason = error.strerror or str(error)
            log.warning("folder_untidy", what=what, folder=str(folder), reason=reason)

    async def _tidy(self, folder: Path, now: datetime, *, works: bool) -> bool:
        """Remove what is old of one folder, and say whether that was anything."""
        run = await self._run_of(folder)
        aged = self._aged_part(folder, run, now, works=works)
        if aged is None:
            return False
        if run is None or run.session_id is None:
            return await self._remove(aged)  # nobody can answer it
        try:
            async with borrowed(self.services, run.session_id, "tidy", slug=run.slug) as quiet:
                if not quiet:
                    return False
                still = self._aged_part(folder, await self._run_of(folder), now, works=works)
                return still is not None and await self._remove(still)
        except StoreError as error:
            if not _is_full(error) or self.is_answering():
                raise
        return await self._remove(aged)

    async def _run_of(self, folder: Path) -> RunRecord | None:
        runs = await self.services.store.runs(target=folder.name, limit=1, payloads=False)
        return next((run for run in runs if run.run_id == folder.name), None)

    def _aged_part(
        self, folder: Path, run: RunRecord | None, now: datetime, *, works: bool
    ) -> Path | None:
        """What is to be removed of one folder, by what the store knows of its run."""
        settings = self.services.settings
        if run is None:
            began = run_began(folder.name)
            old = began is not None and began <= now - settings.keep_artifacts
            return folder if old else None
        if run.finished_at is None or _is_awaited(run):
            return None
        # Answers of people are turns in it that come later.
        last = max([run.finished_at, *(turn.finished_at for turn in run.turns)])
        if last <= now - settings.keep_artifacts:
            return folder
        aged = run.state == "succeeded" and last <= now - settings.keep_work
        return folder / "work" if works and aged else None

    async def _remove(self, folder: Path) -> bool:
        return await self.services.threads.run(self._remove_aside, folder)

    def _remove_aside(self, folder: Path) -> bool:
        root = self.services.artifacts.root
        # Of a run's folder or its `work/`: a name that only one thing at a time can have.
        name = folder.name if run_began(folder.name) else f"{folder.parent.name}.{folder.name}"
        aside = root / _GONE / name
        try:
            aside.parent.mkdir(mode=0o700, exist_ok=True)
            folder.rename(aside)
        except OSError:
            # A disk so full that no name fits on it is all the more to be cleared.
            aside = folder
        return self._removed(aside)

    def _removed(self, folder: Path) -> bool:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            self._complain("folder_not_removed", folder, error)
            return False
        return True

    def _clear(self) -> None:
        """Remove what a kill left aside."""
        for folder in self._listed(self.services.artifacts.root):
            if folder.name == _GONE:
                for left in self._listed(folder):
                    self._removed(left)

    def _drop_empty(self) -> None:
        """Remove the folders of automations that are gone with all their runs."""
        for folder in self._listed(self.services.artifacts.root):
            if folder.name == _GONE or (
                re.fullmatch(SLUG, folder.name) and not self.services.stands(folder.name)
            ):
                with suppress(OSError):  # there is something in it
                    folder.rmdir()


async def forgotten_before(store: Store) -> datetime | None:
    """The instant before which records of runs and fires are gone; None when none are.

    Raises:
        StoreError: the store could not be read.
    """
    return instant((await mark_of(store, _FORGOTTEN)).value)


def _is_full(error: StoreError) -> bool:
    return error.problem.code == "store-full"


def _is_awaited(run: RunRecord) -> bool:
    return run.delivery == "pending" or run.fire.verdict is None
