"""What an agent is told of a workspace and of what ran in it: a line for each, within bounds."""

from collections.abc import Iterable
from datetime import tzinfo

from drumbeat.core.model import Automation, InboxTrigger, RunRecord, ScheduleTrigger, Trigger

__all__ = ["automation_lines", "printable", "run_lines"]

_MOST_AUTOMATIONS = 200
_MOST_RUNS = 20
_LONGEST = 200
"""Characters of a text that somebody wrote, in a line."""


def automation_lines(automations: Iterable[Automation], broken: Iterable[str] = ()) -> list[str]:
    """A line for each automation: its file, its triggers, and how its prompt begins.

    Args:
        automations: those that load.
        broken: the names of files that do not.
    """
    lines = [_automation(automation) for automation in automations]
    lines += [f"- {_one_line(name)}: does not load" for name in broken]
    if len(lines) > _MOST_AUTOMATIONS:
        left = len(lines) - _MOST_AUTOMATIONS
        lines = [*lines[:_MOST_AUTOMATIONS], f"- and {left} more"]
    return lines


def run_lines(runs: Iterable[RunRecord], zone: tzinfo) -> list[str]:
    """A line for each of the first 20 runs: when, which, how it ended, and how its message begins.

    Args:
        runs: the latest first.
        zone: in which the instants are shown.
    """
    return [_run(run, zone) for run, _ in zip(runs, range(_MOST_RUNS), strict=False)]


def printable(name: object) -> str:
    """A name on one line, whatever characters stand in it."""
    text = str(name)
    return text if text.isprintable() else ascii(text)


def _automation(automation: Automation) -> str:
    folder = "jobs" if automation.kind == "job" else "automations"
    triggers = "; ".join(map(_trigger, automation.triggers)) or "by hand"
    state = "" if automation.enabled else ", disabled"
    begins = _one_line(automation.steps[0].prompt) if automation.steps else ""
    return f"- {folder}/{automation.slug}.md ({triggers}{state}): {begins}"


def _trigger(trigger: Trigger) -> str:
    if isinstance(trigger, ScheduleTrigger):
        return _one_line(trigger.expression)
    if isinstance(trigger, InboxTrigger):
        return f"mail to {trigger.system}:{trigger.address}"
    return f"webhook {trigger.route}"


def _run(run: RunRecord, zone: tzinfo) -> str:
    began = f"{run.started_at.astimezone(zone):%Y-%m-%d %H:%M}"
    line = f"- {began} {run.slug}, {run.fire.cause}: {run.state}"
    if run.intent is not None:
        line += f", {run.intent.verdict} ({run.intent.gate})"
    if run.failure is not None:
        return f"{line}: {_one_line(run.failure.message)} [{run.failure.code}]"
    if run.intent is not None and run.intent.text.strip():
        return f"{line}: {_one_line(run.intent.text)}"
    return line


def _one_line(text: str) -> str:
    """The beginning of a text, on one line: what somebody wrote must look like no line of ours."""
    shown = printable(" ".join(text[: 4 * _LONGEST].split()))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
