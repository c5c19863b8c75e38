"""The rules for job files: what loads and still is not what its author wants."""

from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from typing import TypeAlias

import attrs

from drumbeat.core.findings import LONGEST_PROMPT, finding, placed, secret_findings
from drumbeat.core.job_file import JobSource, allowed_senders
from drumbeat.core.model import Automation, Cron, ScheduleTrigger, WebhookTrigger
from drumbeat.core.nodes import Node, ScalarNode
from drumbeat.core.schedule_lint import schedule_findings
from drumbeat.core.secret_shapes import quoted
from drumbeat.core.senders import is_allow_entry
from drumbeat.core.signatures import parse_auth
from drumbeat.errors import Finding

__all__ = ["job_findings"]

_SIGN_THE_BODY = ("github", "hmac")


@attrs.frozen(kw_only=True)
class _Subject:
    source: JobSource
    zone: tzinfo | None
    now: datetime | None

    @property
    def job(self) -> Automation:
        return self.source.automation

    @property
    def text(self) -> str:
        return self.source.front_matter.text

    def value(self, name: str) -> Node:
        """The value of a key, the whole front matter where it is missing."""
        entry = self.source.front_matter.root.find(name)
        return self.source.front_matter.root if entry is None else entry.value


_Rule: TypeAlias = Callable[[_Subject], Iterator[Finding]]


def job_findings(
    source: JobSource, *, zone: tzinfo | None, now: datetime | None
) -> Iterator[Finding]:
    """Find what the author of a job would want to know (spec, section 3.3).

    Args:
        source: a job that loaded.
        zone: the zone that rules its schedule; nothing is said about it without `zone` and `now`.
        now: an aware instant, from which the dates that findings name are counted.

    Yields:
        Findings without a path, by rule.

    Raises:
        ValueError: `now` is not aware.
    """
    subject = _Subject(source=source, zone=zone, now=now)
    for rule in _RULES:
        yield from rule(subject)


def _schedule(subject: _Subject) -> Iterator[Finding]:
    """What a schedule holds in store."""
    node = subject.value("cron")
    if subject.zone is None or subject.now is None or not isinstance(node, ScalarNode):
        return
    for trigger in subject.job.triggers:
        if isinstance(trigger, ScheduleTrigger) and isinstance(trigger.schedule, Cron):
            within = trigger.schedule.expression
            for found in schedule_findings(trigger.schedule, zone=subject.zone, now=subject.now):
                yield placed(found, node, subject.text, severity=found.severity, within=within)


def _senders(subject: _Subject) -> Iterator[Finding]:
    """An entry of `allowFrom` that lets nobody in."""
    for sender in allowed_senders(subject.source.front_matter):
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


def _secrets(subject: _Subject) -> Iterator[Finding]:
    """What looks like a secret, anywhere in the file."""
    yield from secret_findings(subject.text)


def _long_prompt(subject: _Subject) -> Iterator[Finding]:
    """A prompt that hardly is one concern."""
    prompt = subject.job.steps[0].prompt
    if len(prompt) > LONGEST_PROMPT:
        yield Finding(
            code="prompt-too-long",
            message=f"the prompt has {len(prompt):,} characters, more than {LONGEST_PROMPT:,}",
            remedy="make a job of each concern, and move criteria into a file that it names",
            line=subject.source.front_matter.body_line,
            column=1,
        )


def _signed_nothing(subject: _Subject) -> Iterator[Finding]:
    """A signature over the body of a request that has none: it is the same for ever."""
    for trigger in subject.job.triggers:
        if isinstance(trigger, WebhookTrigger) and trigger.method == "get":
            scheme = parse_auth(trigger.auth).scheme
            if scheme in _SIGN_THE_BODY:
                yield finding(
                    "signature-covers-nothing",
                    f"`{scheme}` signs the body, and with `method: get` there is none: the "
                    "signature is the same for ever, so whoever has seen one can start runs",
                    "use `auth: bearer`, or a sender that can post",
                    subject.value("auth"),
                )


_RULES: tuple[_Rule, ...] = (_schedule, _senders, _secrets, _long_prompt, _signed_nothing)
