"""What has to be had before a run's first turn: its file, what that requires, what tools say."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import attrs

from drumbeat.core.context import render_context
from drumbeat.core.model import Automation, Kind, Requirement, RunRecord
from drumbeat.errors import AgentError, AutomationError, NotFound, Problem, WorkspaceError
from drumbeat.runtime.clock import holding
from drumbeat.runtime.follow_ups import RunFollowUps
from drumbeat.runtime.inbox_marks import last_state
from drumbeat.runtime.inject import run_inject
from drumbeat.runtime.journal import Journal
from drumbeat.runtime.listing import FOLDER_CODES
from drumbeat.runtime.requirements import check_requirements
from drumbeat.runtime.search_path import child_env
from drumbeat.runtime.services import Services
from drumbeat.runtime.system_prompt import read_system_prompt
from drumbeat.runtime.turns import Ask, Frame
from drumbeat.runtime.working_folder import WorkingFolder, folder_env, make_ready


class Unready(Exception):  # noqa: N818  a signal to the run
    """The run cannot begin; no turn is spent."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem

    def as_failure(self) -> AgentError:
        """The same for a turn whose caller waits, and gets what a turn fails with."""
        return AgentError(self.problem.message, code=self.problem.code)


class Unseen(Unready):
    """Nobody can tell what the file says, or whether it is there: its folder cannot be seen."""


async def read_automation(services: Services, slug: str) -> Automation:
    """Read the file of `slug` afresh.

    Raises:
        Unseen: its folder has vanished or cannot be read.
        Unready: it is broken; the problem names everything that is wrong with it.
        NotFound: it is not there.
    """
    try:
        with holding(services.clock, "reading an automation file"):
            return await services.workspace.read(slug)
    except NotFound:
        raise
    except AutomationError as error:
        first, *others = error.problems
        message = "\n".join([first.message, *map(_described, others)])
        unready = Unseen if first.code in FOLDER_CODES else Unready
        raise unready(
            attrs.evolve(
                first,
                code="automation-broken",
                message=message,
                remedy=_remedies(error.problems),
            )
        ) from None


def turn_env(services: Services, slug: str, run_id: str) -> dict[str, str]:
    """The environment that a run's tools have, complete.

    The agent has `MEMORY_DIR` besides, and what `RunFollowUps.env` gives.
    """
    return child_env(
        services.base_env,
        path=services.search_path,
        extra={
            "DRUMBEAT_DATA_DIR": str(services.data_dir),
            "DRUMBEAT_RUN_ID": run_id,
            "DRUMBEAT_AUTOMATION": slug,
            "DRUMBEAT_WORKSPACE": str(services.workspace_dir),
        },
        withheld=services.withheld,
    )


def memory_folder(services: Services, kind: Kind, slug: str) -> Path:
    """Where the automation keeps its own notes."""
    return services.memory_dir / f"{kind}s" / slug


def working_folder(services: Services, kind: Kind, slug: str, run_id: str) -> Path:
    """Where the agent works: in the workspace for an automation file, in `work/` for a job."""
    if kind == "job":
        return services.artifacts.work(slug, run_id)
    return services.workspace_dir


async def system_prompt(services: Services, kind: Kind) -> str | None:
    """The workspace's `SYSTEM.md` as it stands, for a job that has one; None for other files.

    Raises:
        Unready: it is there and cannot be read, or is blank: a job must not run without its rules.
    """
    if kind != "job":
        return None
    with holding(services.clock, "system prompt"):
        try:
            return await services.threads.run(read_system_prompt, services.workspace_dir)
        except WorkspaceError as error:
            raise Unready(error.problem) from None


@attrs.define(kw_only=True)
class Preparation:
    """The preparation of one run."""

    services: Services
    journal: Journal
    automation: Automation
    record: RunRecord
    follow_ups: RunFollowUps
    deadline: float

    async def frame(self) -> tuple[Frame, list[Ask]]:
        """Check all of `requires`, run all `inject` tools, and return what the turns are made of.

        Returns:
            What all turns have in common, and one turn to take for each tool that said something.

        Raises:
            Unready: something is missing or failed; the problem names all of it.
            DrumbeatError: so is what it works in or with: a clone, a skill, a folder.
        """
        services, automation = self.services, self.automation
        requirements = await self._requirements()
        slug, run_id = self.record.slug, self.record.run_id
        cwd = working_folder(services, automation.kind, slug, run_id)
        env = folder_env(
            services,
            turn_env(services, slug, run_id),
            cwd,
            kind=automation.kind,
            repo=automation.repo,
        )
        asks = await self._injected(env)
        memory_dir = memory_folder(services, automation.kind, slug)
        await self.journal.make(memory_dir)
        with holding(services.clock, "agent configuration"):
            layers = await services.config.current()
        rules = await system_prompt(services, automation.kind)
        # Last, because it takes longest: what else is wrong is said without it.
        folder = await make_ready(
            services,
            automation,
            self.record,
            cwd=cwd,
            env=env,
            limit=timedelta(seconds=self.deadline - services.clock.monotonic()),
        )
        frame = Frame(
            slug=slug,
            automation=automation,
            run_id=run_id,
            context=await self._context(requirements, memory_dir, folder),
            requirements=requirements,
            config=layers.resolve(automation),
            env={**env, **self.follow_ups.env(), "MEMORY_DIR": str(memory_dir)},
            cwd=folder.path,
            skills=folder.skills,
            system_prompt=rules,
            memory_dir=memory_dir,
            follow_ups=self.follow_ups,
            deadline=self.deadline,
        )
        return frame, asks

    async def _requirements(self) -> tuple[Requirement, ...]:
        services = self.services
        with holding(services.clock, "requirements"):
            met, unmet = await check_requirements(
                self.automation,
                workspace=services.workspace_dir,
                packs=services.packs,
                search_path=services.search_path,
                threads=services.threads,
            )
        if unmet:
            raise Unready(
                Problem(
                    code="requirement-unmet",
                    message="\n".join(problem.message for problem in unmet),
                    remedy=_remedies(unmet),
                    path=self.automation.path,
                )
            )
        return met

    async def _injected(self, env: Mapping[str, str]) -> list[Ask]:
        services = self.services
        asks: list[Ask] = []
        failures: list[Problem] = []
        for spec in self.automation.inject:
            tool = spec.argv[0]
            with holding(services.clock, f"inject {tool}"):
                outcome = await run_inject(
                    spec,
                    cwd=services.workspace_dir,
                    env=env,
                    timeout=services.settings.inject_timeout,
                )
            if outcome.kind == "idle":
                await self.journal.note(
                    "inject_skipped",
                    services.clock.now(),
                    tool=tool,
                    label=spec.label,
                    reason=outcome.reason,
                )
            elif outcome.kind == "inject":
                asks.append(Ask(origin="inject", prompt=outcome.text, label=spec.label))
            else:
                failures.append(
                    Problem(
                        code=outcome.code,
                        message=f"inject {tool} ({spec.label}): it {outcome.reason}",
                        remedy=_remedy(tool, runs=outcome.code != "inject-not-startable"),
                        path=self.automation.path,
                    )
                )
        if failures:
            raise Unready(
                attrs.evolve(
                    failures[0],
                    message="\n".join(failure.message for failure in failures),
                    remedy=_remedies(failures),
                )
            )
        return asks

    async def _context(
        self, requirements: tuple[Requirement, ...], memory_dir: Path, folder: WorkingFolder
    ) -> str:
        services, record, fire = self.services, self.record, self.record.fire
        zone, name, _ = services.zones[self.automation.kind]
        job = self.automation.kind == "job"
        last = await services.endure(lambda: last_state(services.store, fire))
        return render_context(
            local=record.started_at.astimezone(zone),
            zone=name,
            cause=fire.cause,
            payload=folder.payload,
            interrupted=fire.attempt > 1,
            failed=last in ("failed", "aborted"),
            folded=fire.folded_slots,
            late=max(timedelta(0), record.started_at - fire.due),
            requirements=requirements,
            guidance_delivery=self.automation.guidance_delivery,
            workspace=services.workspace_dir,
            data_dir=services.data_dir,
            run_folder=services.artifacts.folder(record.slug, record.run_id),
            memory_dir=memory_dir,
            clone=None if self.automation.repo is None else (self.automation.repo, folder.path),
            systems=await self._standing("systems") if job else None,
            worlds=await self._standing("worlds") if job else None,
        )

    async def _standing(self, name: str) -> Path | None:
        """A folder of the workspace, if it has it."""
        folder = self.services.workspace_dir / name
        with holding(self.services.clock, "folders of the workspace"):
            return folder if await self.services.threads.run(folder.is_dir) else None


def _described(problem: Problem) -> str:
    where = f"{problem.location}: " if problem.location else ""
    return f"{where}{problem.message}"


def _remedy(tool: str, *, runs: bool) -> str:
    if not runs:
        return (
            f"check that {tool} is there (in bin/ of the workspace or of a pack, or on the PATH of "
            "the engine), is executable and begins with a line such as #!/bin/sh"
        )
    return f"run {tool} by hand in the workspace folder and mend it"


def _remedies(problems: "tuple[Problem, ...] | list[Problem]") -> str:
    return "\n".join(dict.fromkeys(problem.remedy for problem in problems))
