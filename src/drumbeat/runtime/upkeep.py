"""What an engine looks after as long as it lives: its workspace and its leases."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import attrs

from drumbeat.core.model import Claim
from drumbeat.core.redaction import Redactor
from drumbeat.errors import ClaimLost, Problem, StoreError, WorkspaceError
from drumbeat.runtime.agenda import Agenda
from drumbeat.runtime.clock import holding, nap
from drumbeat.runtime.conclusion import Ending
from drumbeat.runtime.contained import contained
from drumbeat.runtime.dispatcher import Dispatcher
from drumbeat.runtime.inbox import Inboxes
from drumbeat.runtime.known_files import KnownFiles
from drumbeat.runtime.log import log
from drumbeat.runtime.pack_cache import PackCache
from drumbeat.runtime.presence import Presence
from drumbeat.runtime.replies import Replies
from drumbeat.runtime.rules import Rules, publish
from drumbeat.runtime.services import Services
from drumbeat.runtime.system_prompt import look_at_system_prompt

_RULES = "system prompt"
"""What the rules of jobs are called where they cannot be read."""
_WORKSPACE = "workspace"
_LATEST = 100
"""So many runs are looked at for a missing `result.json` at the start."""


def log_broken(path: Path, problems: Sequence[Problem], redactor: Redactor) -> None:
    """Say in the log that a file does not load: where it is wrong first, and how to mend that.

    What is quoted of the file may hold a secret that somebody wrote into it.
    """
    first = problems[0]
    log.error(
        "automation_broken",
        path=str(path),
        line=first.line,
        code=first.code,
        message=redactor.text(first.message),
        remedy=redactor.text(first.remedy),
        problems=len(problems),
    )


@attrs.define(kw_only=True)
class Upkeep:
    """The upkeep of one engine."""

    services: Services
    agenda: Agenda
    dispatcher: Dispatcher
    replies: Replies
    inboxes: Inboxes
    rules: Rules
    """What clients have to know; left in the store as soon as it takes them."""
    presence: Presence
    _packs: PackCache = attrs.field(
        default=attrs.Factory(
            lambda self: PackCache(self.services.workspace_dir, threads=self.services.threads),
            takes_self=True,
        ),
        init=False,
    )
    _files: KnownFiles = attrs.field(
        default=attrs.Factory(lambda self: KnownFiles(services=self.services), takes_self=True),
        init=False,
    )
    _lost: tuple[Problem, ...] = ()
    """What was wrong with the folders of files that an earlier engine knew."""
    _published: bool = False
    _broken: dict[Path, tuple[Problem, ...]] = attrs.field(factory=dict)
    """The broken files for which there is an event, and what it is about."""
    _lock: anyio.Lock = attrs.field(factory=anyio.Lock)

    async def publish(self) -> None:
        """Leave the rules in the store, once.

        Raises:
            StoreError: it takes nothing; the next reload tries again.
        """
        if not self._published:
            await publish(self.services, self.rules)
            self._published = True

    async def recall(self) -> None:
        """Take up which files an earlier engine knew, before anything is decided by them.

        Raises:
            StoreError: the store could not be read.
        """
        self._lost = await self._files.recall()

    async def begin(self) -> None:
        """Say what is wrong and keeps no engine from starting, before anything runs.

        Raises:
            StoreError: it takes no event; the next reload tries again.
        """
        with holding(self.services.clock, "system prompt"):
            rules = await self._look_at_rules()
        await self._report(_RULES, rules)
        await self._report(_WORKSPACE, self._lost)
        self._files.look(removing=False)
        await self._files.keep()

    async def _look_at_rules(self) -> Sequence[Problem]:
        services = self.services
        return await look_at_system_prompt(services.workspace_dir, threads=services.threads)

    async def complete_results(self) -> None:
        """Write `result.json` for the latest runs that a crash left without one.

        The record is committed first, so a kill just behind that leaves a run's folder without it.
        """
        services = self.services
        try:
            latest = await services.store.runs(limit=_LATEST, payloads=False)
        except StoreError as error:
            services.trouble(error)
            return
        for run in latest:
            if run.state != "running":
                try:
                    await services.artifacts.complete(run)
                except OSError as error:
                    log.warning(
                        "artifact_failed",
                        slug=run.slug,
                        run_id=run.run_id,
                        name="result.json",
                        reason=error.strerror or str(error),
                    )

    async def keep_reloading(self) -> None:
        """Look at the workspace each `Settings.reload_interval`, until cancelled.

        What goes wrong anywhere is said in the sign of life by the next look.
        """
        services = self.services
        await contained(services, "results", self.complete_results)
        while True:
            await contained(services, "sign of life", self.presence.beat)
            await nap(services.clock, services.settings.reload_interval)
            try:
                await contained(services, "reload", partial(self.reload, removing=True))
            except StoreError as error:
                services.trouble(error)

    async def reload(self, *, removing: bool = False) -> WorkspaceError | None:
        """Look at the workspace at once; return what of it cannot be read, if so.

        Args:
            removing: whether this look counts as one of the two in a row without a file that it
                takes for the file to be removed (spec, section 5). One that somebody asks for does
                not: two requests within a moment would outrun an editor that replaces the file.

        Raises:
            StoreError: what changed could not be written; the next look does what is left.
        """
        services = self.services
        async with self._lock:
            with holding(services.clock, "workspace reload"):
                change = await services.workspace.reload(removing=removing)
                packs = await self._packs.reload(services.packs)
                config = await services.config.reload()
                rules = await self._look_at_rules()
            services.packs = packs.packs
            await self.publish()
            await self.presence.begin()
            problems = () if config.error is None else config.error.problems
            await self._report("packs", packs.problems)
            await self._report("config", problems)
            await self._report(_RULES, rules)
            wrong = () if change.error is None else change.error.problems
            await self._report(_WORKSPACE, wrong)
            if change.blind:
                return change.error
            for path in change.broken:
                log_broken(path, services.workspace.workspace.problems[path], services.redactor)
            gone = self._files.look(change.removed, removing=removing)
            self.dispatcher.removed(gone)
            await self.agenda.sync(services.workspace.workspace)
            await self.inboxes.sync(services.workspace.workspace)
            await self.dispatcher.workspace_reloaded(removing=removing)
            await self._files.keep(gone, self.dispatcher.lapsed)
            self.dispatcher.lapsed.clear()
            await self._record_broken()
            return change.error

    async def _record_broken(self) -> None:
        """Leave an event for each file that is broken, one for each way in which it is."""
        services = self.services
        present = services.workspace.workspace.problems
        self._broken = {
            path: told for path, told in self._broken.items() if present.get(path) == told
        }
        for path, problems in present.items():
            if path in self._broken:
                continue
            first = problems[0]
            event = services.event(
                "workspace_error",
                services.clock.now(),
                path.stem,
                what="file",
                path=str(path),
                line=first.line,
                code=first.code,
                message=first.message,
            )
            await services.store.record(events=(event,))
            self._broken[path] = problems

    async def _report(self, what: str, problems: Sequence[Problem]) -> None:
        """Say loudly at each look what is wrong around the files, with an event per change."""
        services = self.services
        if not problems:
            if services.faults.pop(what, None) is not None:
                log.info("workspace_recovered", what=what)
            return
        first = problems[0]
        message = "\n".join(f"{problem.location}: {problem.message}" for problem in problems)
        shown = services.redactor.text
        problem = attrs.evolve(
            first,
            message=shown(message if len(problems) > 1 else first.message),
            remedy=shown(first.remedy),
        )
        log.error("workspace_error", what=what, code=problem.code, message=problem.message)
        if services.faults.get(what) == problem:
            return
        event = services.event(
            "workspace_error",
            services.clock.now(),
            what=what,
            code=problem.code,
            message=problem.message,
        )
        await services.store.record(events=(event,))
        # Only then, so that a store in trouble does not cost the event.
        services.faults[what] = problem

    async def keep_renewing(self) -> None:
        """Renew what runs and replies hold, conversations included, until cancelled."""
        services = self.services
        while True:
            await nap(services.clock, services.settings.lease / 3)
            try:
                await contained(services, "renewal", self._renew)
            except StoreError as error:
                services.trouble(error)

    async def _renew(self) -> None:
        runs, replies = dict(self.dispatcher.going), self.replies.holding()
        claims = [claim for run in runs.values() for claim in run.claims]
        claims += [claim for _, claim in replies]
        if not claims:
            return
        held = await self.services.store.renew(claims)
        for run_id, run in runs.items():
            if run_id not in held and run_id in self.dispatcher.going:
                # Whoever has taken it over settles it; this one only ends.
                run.stop(Ending(state="interrupted"))
        for reply, claim in replies:
            if claim.run_id not in held and reply.claim is claim:
                reply.stop(_taken_over(claim))


def _taken_over(claim: Claim) -> ClaimLost:
    return ClaimLost(
        Problem(
            code="claim-lost",
            message=f"the conversation {claim.slug} was taken over in the middle of a reply",
            remedy="see to it that one engine alone works on the data folder, and ask again",
        )
    )
