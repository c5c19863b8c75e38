"""What the author of a file that loads would want to know about it."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from pathlib import PurePath
from typing import TypeAlias

import attrs

from drumbeat.core.automation_file import AutomationSource, read_automation
from drumbeat.core.findings import LONGEST_PROMPT, finding, placed, secret_findings
from drumbeat.core.job_file import read_job
from drumbeat.core.job_lint import job_findings
from drumbeat.core.model import Automation, Cron, Kind
from drumbeat.core.nodes import ListNode, MapNode, Node, ScalarNode
from drumbeat.core.schedule import parse_schedule
from drumbeat.core.schedule_lint import schedule_findings
from drumbeat.core.secret_shapes import quoted
from drumbeat.errors import Finding, ScheduleError

__all__ = ["LONGEST_PROMPT", "lint_automation"]

_SENTINELS = {"auto": "NOTHING_TO_REPORT", "urgent-only": "URGENT:"}
_GUIDANCE = re.compile(r"(?<![\w./-])(?:\./)?(guidance/[\w./-]*\w)")
_UPDATES = re.compile(
    r"\b(?:updat|append|add|extend|record|writ|edit|revis|improv|maintain|sav|not(?:e|ing)\b|put)",
    re.IGNORECASE,
)
_PRUNES = re.compile(
    r"\b(?:prun|consolidat|condens|trim|shorten|compact|distil|dedup|merg|delet|remov|tidy|drop)"
    r"|\b(?:keep|stay)\w*\b.{0,40}\b(?:short|small|brief|bounded)",
    re.IGNORECASE,
)


@attrs.frozen(kw_only=True)
class _Subject:
    """What a rule looks at. Every accessor finds its node, because the file has loaded."""

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


_Rule: TypeAlias = Callable[[_Subject], Iterator[Finding]]


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
        ValueError: `kind` is neither of the two, or `now` is not aware.
    """
    if kind not in (None, "automation", "job"):
        msg = f"there are no rules for files of the kind {kind!r}"
        raise ValueError(msg)
    if kind is None:
        kind = "job" if path is not None and path.parent.name == "jobs" else "automation"
    if kind == "job":
        findings = list(job_findings(read_job(text, path=path), zone=zone, now=now))
    else:
        subject = _Subject(source=read_automation(text, path=path), zone=zone, now=now)
        findings = [found for rule in _RULES for found in rule(subject)]
    return sorted(
        (attrs.evolve(found, path=path) for found in findings),
        key=lambda found: (found.line or 0, found.column or 0),
    )


# ---- rules


def _schedule(subject: _Subject) -> Iterator[Finding]:
    """An expression that cannot be read or does nothing, and what a schedule holds in store."""
    node = subject.node("trigger", "expression")
    if not isinstance(node, ScalarNode):
        return
    text = subject.source.front_matter.text
    if not subject.automation.triggers:
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
    if subject.zone is not None and subject.now is not None:
        within = schedule.expression if isinstance(schedule, Cron) else node.text
        for found in schedule_findings(schedule, zone=subject.zone, now=subject.now):
            yield placed(found, node, text, severity=found.severity, within=within)


def _secrets(subject: _Subject) -> Iterator[Finding]:
    """What looks like a secret, anywhere in the file."""
    yield from secret_findings(subject.source.front_matter.text)


def _sentinel(subject: _Subject) -> Iterator[Finding]:
    """A policy that waits for a word which no step names."""
    sentinel = _SENTINELS.get(subject.automation.notify)
    if sentinel is None or any(sentinel in prompt for prompt, _ in subject.prompts()):
        return
    example = (
        f"reply with exactly {sentinel} if nothing is worth saying, and a quiet run is a success"
        if subject.automation.notify == "auto"
        else f"begin a line with `{sentinel} <reason>` if it cannot wait, and most runs need none"
    )
    yield finding(
        "sentinel-not-named",
        f"`notify: {subject.automation.notify}` goes by {sentinel}, and no step names it",
        f"say in the step that decides: {example}",
        subject.node("notify") or subject.source.block,
    )


def _guidance_not_required(subject: _Subject) -> Iterator[Finding]:
    """A guidance file that a step speaks of and no run is sure to have."""
    known = {entry.removeprefix("./") for entry in subject.automation.requires}
    for prompt, node in subject.prompts():
        for name in dict.fromkeys(_GUIDANCE.findall(prompt)):
            if name not in known:
                known.add(name)
                yield finding(
                    "guidance-not-required",
                    f"the step names {quoted(name)}, and `requires` does not: a run goes on "
                    "without it and nothing says so",
                    f"add `- {name}` to `requires:`",
                    node,
                )


def _guidance_not_pruned(subject: _Subject) -> Iterator[Finding]:
    """A last step that lets a guidance file grow without end."""
    *_, (prompt, node) = subject.prompts()
    if _GUIDANCE.search(prompt) and _UPDATES.search(prompt) and not _PRUNES.search(prompt):
        yield finding(
            "guidance-not-pruned",
            "the last step adds to a guidance file and never asks to prune it: it grows until "
            "it fills the agent's context",
            "ask it to prune or consolidate too, rather than only to append",
            node,
        )


def _duplicate_requires(subject: _Subject) -> Iterator[Finding]:
    """One requirement that stands twice."""
    seen: dict[str, int] = {}
    entries = zip(subject.automation.requires, subject.items("requires"), strict=True)
    for entry, node in entries:
        name = entry.removeprefix("./")
        if name in seen:
            yield finding(
                "requires-duplicate",
                f"{quoted(entry)} stands in `requires` twice: on line {seen[name]} and on line "
                f"{node.line}",
                "keep one of them",
                node,
            )
        else:
            seen[name] = node.line


def _long_prompts(subject: _Subject) -> Iterator[Finding]:
    """A step that hardly is one concern."""
    for prompt, node in subject.prompts():
        if len(prompt) > LONGEST_PROMPT:
            yield finding(
                "prompt-too-long",
                f"the prompt has {len(prompt):,} characters, more than {LONGEST_PROMPT:,}",
                "make a step of each concern, and move criteria into a guidance file",
                node,
            )


_RULES: tuple[_Rule, ...] = (
    _schedule,
    _secrets,
    _sentinel,
    _guidance_not_required,
    _guidance_not_pruned,
    _duplicate_requires,
    _long_prompts,
)
