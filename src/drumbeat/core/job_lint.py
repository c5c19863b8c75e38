"""The rules for job files: what loads and still is not what its author wants."""

from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from typing import TypeAlias

import attrs

from drumbeat.core.filters import doubtful_values, parse_filter
from drumbeat.core.findings import finding, long_prompt_findings, placed
from drumbeat.core.job_file import JobSource, allowed_senders
from drumbeat.core.messages import quoted
from drumbeat.core.model import Automation, Cron, ScheduleTrigger, WebhookTrigger
from drumbeat.core.nodes import Node, ScalarNode
from drumbeat.core.schedule_lint import schedule_findings
from drumbeat.core.senders import is_allow_entry
from drumbeat.core.signatures import parse_auth
from drumbeat.errors import Finding

__all__ = ["job_findings"]

_SIGN_THE_BODY = ("github", "hmac")


@attrs.frozen(kw_only=True)
class _Job:
    """What a rule looks at: a job that has loaded."""

    source: JobSource
    zone: tzinfo | None
    now: datetime | None

    @property
    def automation(self) -> Automation:
        return self.source.automation

    @property
    def text(self) -> str:
        return self.source.front_matter.text

    def value(self, name: str) -> Node:
        """The value of a key, the whole front matter where it is missing."""
        entry = self.source.front_matter.root.find(name)
        return self.source.front_matter.root if entry is None else entry.value


_Rule: TypeAlias = Callable[[_Job], Iterator[Finding]]


def job_findings(
    source: JobSource, *, zone: tzinfo | None, now: datetime | None
) -> Iterator[Finding]:
    """Find what the author of a job would want to know (spec, section 3.3).

    Args:
        source: a job that loaded.
        zone: the zone that rules its schedule; nothing is said about it without `zone` and `now`.
        now: an aware instant, from which the dates that findings name are counted.

    Yields:
        Findings without a path, by rule; secrets in the file are not looked for.
    """
    job = _Job(source=source, zone=zone, now=now)
    for rule in _RULES:
        yield from rule(job)


def _schedule(job: _Job) -> Iterator[Finding]:
    """What a schedule holds in store."""
    node = job.value("cron")
    if job.zone is None or job.now is None or not isinstance(node, ScalarNode):
        return
    for trigger in job.automation.triggers:
        if isinstance(trigger, ScheduleTrigger) and isinstance(trigger.schedule, Cron):
            within = trigger.schedule.expression
            for found in schedule_findings(
                trigger.schedule, zone=job.zone, now=job.now, kind="job"
            ):
                yield placed(found, node, job.text, severity=found.severity, within=within)


def _senders(job: _Job) -> Iterator[Finding]:
    """An entry of `allowFrom` that lets nobody in."""
    for sender in allowed_senders(job.source.front_matter):
        if not is_allow_entry(sender.entry):
            yield Finding(
                code="allow-from-no-address",
                message=f"{quoted(sender.entry)} is neither `addr@domain` nor `@domain`, so it "
                "matches nobody",
                remedy="write an address, or a domain with an @ before it, without a name, "
                "wildcards or angle brackets",
                severity="error",
                line=sender.line,
                column=sender.column,
            )


def _long_prompt(job: _Job) -> Iterator[Finding]:
    """A prompt that hardly is one concern."""
    yield from long_prompt_findings(
        job.automation.steps[0].prompt,
        remedy="make a job of each concern, and move criteria into a file that it names",
        line=job.source.front_matter.body_line,
        column=1,
    )


def _signed_nothing(job: _Job) -> Iterator[Finding]:
    """A signature over the body of a request that has none: it is the same for ever."""
    for trigger in job.automation.triggers:
        if isinstance(trigger, WebhookTrigger) and trigger.method == "get":
            scheme = parse_auth(trigger.auth).scheme
            if scheme in _SIGN_THE_BODY:
                yield finding(
                    "signature-covers-nothing",
                    f"`{scheme}` signs the body, and with `method: get` there is none: the "
                    "signature is the same for ever, so whoever has seen one can start runs",
                    "use `auth: bearer`, or a sender that can post",
                    job.value("auth"),
                )


def _doubtful_filter(job: _Job) -> Iterator[Finding]:
    """A filter whose text seems to hold what was meant to be another comparison."""
    node = job.value("filter")
    for trigger in job.automation.triggers:
        if (
            isinstance(trigger, WebhookTrigger)
            and trigger.filter is not None
            and isinstance(node, ScalarNode)
        ):
            for problem in doubtful_values(parse_filter(trigger.filter)):
                yield placed(problem, node, job.text, severity="warning")


_RULES: tuple[_Rule, ...] = (
    _schedule,
    _senders,
    _long_prompt,
    _signed_nothing,
    _doubtful_filter,
)
