"""What the author of a file that loads would want to know about it."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, tzinfo
from pathlib import PurePath
from typing import TypeAlias

import attrs

from drumbeat.core.asked import check_aware
from drumbeat.core.automation_file import AutomationSource, read_automation
from drumbeat.core.findings import finding, long_prompt_findings, placed, secret_findings
from drumbeat.core.guidance import asks_to_prune, guidance_files, writes_guidance
from drumbeat.core.job_file import read_job
from drumbeat.core.job_lint import job_findings
from drumbeat.core.messages import on_lines, quoted, shown
from drumbeat.core.model import Automation, Cron, Kind, Notify
from drumbeat.core.nodes import ListNode, MapNode, Node, ScalarNode
from drumbeat.core.notify import NOTHING_TO_REPORT, URGENT_MARKER
from drumbeat.core.problem_order import in_file_order
from drumbeat.core.schedule import parse_schedule
from drumbeat.core.schedule_lint import schedule_findings
from drumbeat.errors import Finding, ScheduleError

__all__ = ["lint_automation"]

_SENTINELS: Mapping[Notify, str] = {"auto": NOTHING_TO_REPORT, "urgent-only": URGENT_MARKER}


@attrs.frozen(kw_only=True)
class _File:
    """What a rule looks at: an automation file that has loaded, so that its nodes are there."""

    source: AutomationSource
    zone: tzinfo | None
    now: datetime | None

    @property
    def automation(self) -> Automation:
        return self.source.automation

    def node(self, *names: str) -> Node | None:
        node: Node = self.source.block
        for name in names:
            entry = node.find(name) if isinstance(node, MapNode) else None
            if entry is None:
                return None
            node = entry.value
        return node

    def items(self, name: str) -> tuple[Node, ...]:
        node = self.node(name)
        return node.items if isinstance(node, ListNode) else ()

    def prompts(self) -> Iterator[tuple[str, Node]]:
        """Each step's prompt, and where it stands."""
        for step, item in zip(self.automation.steps, self.items("steps"), strict=True):
            entry = item.find("prompt") if isinstance(item, MapNode) else None
            yield step.prompt, item if entry is None else entry.value


_Rule: TypeAlias = Callable[[_File], Iterator[Finding]]


def lint_automation(
    text: str | bytes,
    *,
    path: PurePath | None = None,
    zone: tzinfo | None = None,
    now: datetime | None = None,
    kind: Kind | None = None,
) -> list[Finding]:
    """Find what loads and still is not what its author wants (spec, section 3.3).

    Args:
        text: the file, as text or as UTF-8 bytes with or without a byte order mark.
        path: where the file lies, for the findings' locations.
        zone: the zone that rules the schedule. Without `zone` and `now` nothing is said about
            days, changes of the clocks and uneven steps.
        now: an aware instant, from which the dates that findings name are counted.
        kind: which of the two kinds of file it is. None goes by `path`: a file in a folder `jobs`
            is a job, all else an automation file.

    Returns:
        Findings in file order, each with its place.

    Raises:
        AutomationError: the file does not load.
        TypeError: `now` is no datetime.
        ValueError: `kind` is neither of the two, or `now` is not aware, with or without a `zone`,
            or lies before 1900 or after 8999 and the file has a schedule of the wall clock.
    """
    if kind not in (None, "automation", "job"):
        msg = f"there are no rules for files of the kind {kind!r}"
        raise ValueError(msg)
    if kind is None:
        kind = "job" if path is not None and path.parent.name == "jobs" else "automation"
    if now is not None:
        check_aware("now", now)
    if kind == "job":
        job = read_job(text, path=path)
        front_matter = job.front_matter
        findings = list(job_findings(job, zone=zone, now=now))
    else:
        source = read_automation(text, path=path)
        front_matter = source.front_matter
        file = _File(source=source, zone=zone, now=now)
        findings = [found for rule in _RULES for found in rule(file)]
    findings += secret_findings(front_matter.text)
    return in_file_order((), (attrs.evolve(found, path=path) for found in findings))


# ---- rules


def _schedule(file: _File) -> Iterator[Finding]:
    """An expression that cannot be read or does nothing, and what a schedule holds in store."""
    node = file.node("trigger", "expression")
    if not isinstance(node, ScalarNode):
        return
    text = file.source.front_matter.text
    if not file.automation.triggers:
        yield finding(
            "expression-without-schedule",
            "this expression does nothing: only `type: schedule` has one",
            "take it out, or write `type: schedule`",
            node,
            severity="error",
        )
        return
    try:
        schedule = parse_schedule(node.text)
    except ScheduleError as error:
        yield placed(error.problem, node, text, severity="error")
        return
    if file.zone is not None and file.now is not None:
        within = schedule.expression if isinstance(schedule, Cron) else node.text
        for found in schedule_findings(schedule, zone=file.zone, now=file.now):
            yield placed(found, node, text, severity=found.severity, within=within)


def _sentinel(file: _File) -> Iterator[Finding]:
    """A policy that waits for a word which no step names."""
    sentinel = _SENTINELS.get(file.automation.notify)
    if sentinel is None or any(sentinel in prompt for prompt, _ in file.prompts()):
        return
    example = (
        f"reply with exactly {sentinel} if nothing is worth saying, which is a good answer too"
        if file.automation.notify == "auto"
        else f"begin a line with `{sentinel} <reason>` if it cannot wait, and most runs need none"
    )
    yield finding(
        "sentinel-not-named",
        f"`notify: {file.automation.notify}` goes by {sentinel}, and no step names it",
        f"say in the step that decides: {example}",
        file.node("notify") or file.source.block,
    )


def _guidance_not_required(file: _File) -> Iterator[Finding]:
    """A guidance file that a step speaks of and no run is sure to have."""
    known = {entry.removeprefix("./") for entry in file.automation.requires}
    for prompt, node in file.prompts():
        for name in dict.fromkeys(guidance_files(prompt)):
            if name not in known:
                known.add(name)
                yield finding(
                    "guidance-not-required",
                    f"the step names {quoted(name)}, and `requires` does not: a run goes on "
                    "without it and nothing says so",
                    f"add `- {shown(name)}` to `requires:`",
                    node,
                )


def _guidance_not_pruned(file: _File) -> Iterator[Finding]:
    """A last step that lets a guidance file grow without end."""
    *_, (prompt, node) = file.prompts()
    if writes_guidance(prompt) and not asks_to_prune(prompt):
        yield finding(
            "guidance-not-pruned",
            "the last step writes to a guidance file and nowhere says that it shall stay short: "
            "each run leaves more for the next one to read, until little else fits",
            "say in the same step that what no longer helps is to be removed or merged",
            node,
        )


def _duplicate_requires(file: _File) -> Iterator[Finding]:
    """One requirement that stands twice."""
    seen: dict[str, int] = {}
    entries = zip(file.automation.requires, file.items("requires"), strict=True)
    for entry, node in entries:
        name = entry.removeprefix("./")
        if name in seen:
            yield finding(
                "requires-duplicate",
                f"{quoted(entry)} stands in `requires` twice: {on_lines(seen[name], node.line)}",
                "keep one of them",
                node,
            )
        else:
            seen[name] = node.line


def _long_prompts(file: _File) -> Iterator[Finding]:
    """A step that hardly is one concern."""
    for prompt, node in file.prompts():
        yield from long_prompt_findings(
            prompt,
            remedy="make a step of each concern, and move criteria into a guidance file",
            line=node.line,
            column=node.column,
        )


_RULES: tuple[_Rule, ...] = (
    _schedule,
    _sentinel,
    _guidance_not_required,
    _guidance_not_pruned,
    _duplicate_requires,
    _long_prompts,
)
