"""A job file's text, judged against the contract and turned into an `Automation`."""

import re
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import PurePath
from typing import Any

import attrs

from drumbeat.core.cron import parse_cron
from drumbeat.core.filters import parse_filter
from drumbeat.core.frontmatter import FrontMatter
from drumbeat.core.messages import did_you_mean, quoted, shown
from drumbeat.core.model import (
    Automation,
    Cron,
    DailyAt,
    InboxTrigger,
    ScheduleTrigger,
    Step,
    Trigger,
    WebhookTrigger,
)
from drumbeat.core.nodes import Entry, ListNode, Node, ScalarNode
from drumbeat.core.policy_file import PolicyReader, open_file
from drumbeat.core.repo_address import repo_problem
from drumbeat.core.rotation import steps_fingerprint
from drumbeat.core.schedule import parse_schedule
from drumbeat.core.secret_shapes import hide_secrets
from drumbeat.core.signatures import parse_auth
from drumbeat.core.slug import slug_problem
from drumbeat.core.value_places import column_in_value
from drumbeat.core.vocabulary import JOB, JOB_GUESSED, JOB_INSTEAD, Key, Level
from drumbeat.errors import DrumbeatError, Problem, ScheduleError

__all__ = ["AllowedSender", "JobSource", "allowed_senders", "read_job", "validate_job_content"]

JOB_STEP = "prompt"
"""What a job's one step is called in records (spec, section 3.2)."""

_INTERVAL = re.compile(r"`every [^`]*`")
_SYSTEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ADDRESS = re.compile(r"[^\s@,;:<>()\"]+@[^\s@,;:<>()\"]+")
# What means nothing without the key behind it.
_NEEDS = {"auth": "webhook", "filter": "webhook", "method": "webhook", "allowFrom": "inbox"}


@attrs.frozen(kw_only=True)
class JobSource:
    """A job together with the text it was read from."""

    automation: Automation
    front_matter: FrontMatter


@attrs.frozen(kw_only=True)
class AllowedSender:
    """One entry of `allowFrom`, and the 1-based place in the file at which it stands."""

    entry: str
    line: int
    column: int


def validate_job_content(
    text: str | bytes, *, path: PurePath | None = None, systems: Collection[str] | None = None
) -> Automation:
    """Judge a job file and return what it says (spec, section 3.2).

    It has one step, `prompt`, whose prompt is everything below the closing `---`, byte for byte;
    `notify: always`, `conversation: fresh`, and its triggers in the order of the file. `model`
    stands in `agent_config` as `provider.config.default_model`.

    Args:
        text: the file, as text or as UTF-8 bytes with or without a byte order mark.
        path: where the file lies. Its stem becomes the slug and the name, which without a path
            are "".
        systems: the mail systems that the host has; None leaves the system of an inbox unchecked.

    Returns:
        The job, with every default filled in.

    Raises:
        AutomationError: the file breaks the contract. It carries all problems, in file order; of a
            text that cannot be read as YAML, the first that the parser met.
    """
    return read_job(text, path=path, systems=systems).automation


def read_job(
    text: str | bytes, *, path: PurePath | None = None, systems: Collection[str] | None = None
) -> JobSource:
    """Judge a job file as `validate_job_content`, and keep its nodes.

    Raises:
        AutomationError: the file breaks the contract.
    """
    opened = open_file(text, path=path, may_be_empty=True)
    front_matter = opened.front_matter
    reader = _JobReader(front_matter, path, systems)
    job = reader.job()
    opened.refuse(reader.problems)
    return JobSource(automation=job, front_matter=front_matter)


def allowed_senders(front_matter: FrontMatter) -> Iterator[AllowedSender]:
    """The entries of `allowFrom` with their places; those that are no text are left out.

    A text is split at its commas, a list is not: an entry of a list is one entry.
    """
    entry = front_matter.root.find("allowFrom")
    value = None if entry is None else entry.value
    if isinstance(value, ScalarNode):
        at = 0
        for part in value.text.split(","):
            word = part.strip()
            if word:
                index = at + part.index(word)
                column = column_in_value(value, front_matter.text, index + 1)
                yield AllowedSender(entry=word, line=value.line, column=column)
            at += len(part) + 1
    elif isinstance(value, ListNode):
        for item in value.items:
            if isinstance(item, ScalarNode) and item.text.strip():
                yield AllowedSender(entry=item.text.strip(), line=item.line, column=item.column)


class _JobReader(PolicyReader):
    """Reads a job file; what it returns is whole when nothing is wrong."""

    def __init__(
        self, front_matter: FrontMatter, path: PurePath | None, systems: Collection[str] | None
    ) -> None:
        super().__init__(path)
        self._front_matter = front_matter
        self._root = front_matter.root
        self._systems = systems

    def job(self) -> Automation:
        """What the file says."""
        self.names(self._root, JOB)
        self._companions()
        prompt = self._prompt()
        steps = (Step(id=JOB_STEP, prompt=prompt),)
        seconds = self._value("timeoutSeconds", self.number)
        stem = "" if self.path is None else self.path.stem
        return Automation(
            slug=stem,
            name=stem,
            path=self.path,
            kind="job",
            enabled=not self._value("disabled", self.boolean),
            triggers=self._triggers(),
            steps=steps,
            fingerprint=steps_fingerprint(steps),
            notify="always",
            conversation="fresh",
            agent_config=self._agent_config(),
            timeout=None if seconds is None else timedelta(seconds=seconds),
            repo=self._value("repo", self._repo),
        )

    def _value(self, name: str, form: Callable[[Entry, Key], Any]) -> Any:
        return self.read(self._root, JOB, name, form)

    def _prompt(self) -> str:
        body = self._front_matter.body
        # An automation file that lies here has its steps above, and is told so.
        if not body.strip() and self._root.find("automation") is None:
            self.problems.append(
                Problem(
                    code="prompt-blank",
                    message="there is no prompt below the front matter",
                    remedy="write what is to be done below the closing `---`",
                    path=self.path,
                    line=self._front_matter.body_line,
                    column=1,
                )
            )
        return body

    # ---- triggers

    def _triggers(self) -> tuple[Trigger, ...]:
        forms: dict[str, Callable[[Entry, Key], Trigger | None]] = {
            "cron": self._cron,
            "webhook": self._webhook,
            "inbox": self._inbox,
        }
        names = [entry.name for entry in self._root if entry.name in forms]
        read = [self._value(name, forms[name]) for name in names]
        # They mean nothing alone, and still what is wrong with them is said at once.
        if self._root.find("webhook") is None:
            self._webhook_parts()
        if self._root.find("inbox") is None:
            self._value("allowFrom", self._allow_from)
        return tuple(trigger for trigger in read if trigger is not None)

    def _cron(self, entry: Entry, key: Key) -> ScheduleTrigger | None:
        text = self.text(entry, key)
        schedule = None if text is None else self._parsed(_job_cron, text, entry)
        if text is None or schedule is None:
            return None
        return ScheduleTrigger(expression=text, schedule=schedule)

    def _webhook(self, entry: Entry, key: Key) -> WebhookTrigger | None:
        route = self.text(entry, key)
        parts = self._webhook_parts()
        if route is None:
            return None
        if slug_problem(route, None) is not None:
            self.report(
                "route-invalid",
                f"{quoted(route)} cannot be a route",
                key.remedy,
                entry.value,
            )
        return WebhookTrigger(route=route, **parts)

    def _webhook_parts(self) -> dict[str, Any]:
        return {
            "auth": self._value("auth", self._auth) or "bearer",
            "filter": self._value("filter", self._filter),
            "method": self._value("method", self.choice) or "post",
        }

    def _auth(self, entry: Entry, key: Key) -> str | None:
        text = self.text(entry, key)
        if text is not None:
            self._parsed(parse_auth, text, entry)
        return text

    def _filter(self, entry: Entry, key: Key) -> str | None:
        text = self.text(entry, key)
        if text is not None:
            self._parsed(parse_filter, text, entry)
        method = self._root.find("method")
        value = None if method is None else method.value
        if isinstance(value, ScalarNode) and value.text == "get":
            self.report(
                "filter-without-body",
                "`filter` looks into the body of a request, and with `method: get` none comes",
                "take out `filter`, or `method: get`",
                entry.key,
            )
        return text

    def _inbox(self, entry: Entry, key: Key) -> InboxTrigger | None:
        text = self.text(entry, key)
        allow_from = self._value("allowFrom", self._allow_from)
        if text is None:
            return None
        system, colon, address = (part.strip() for part in text.partition(":"))
        if not colon:
            self.report(
                "inbox-without-system",
                f"{quoted(text)} names no mail system; were one guessed, a wrong guess would look "
                "like a mailbox to which nobody writes",
                f"write the system and a colon before it, such as `gmail:{shown(text)}`",
                entry.value,
            )
        elif not _SYSTEM.fullmatch(system) or not _ADDRESS.fullmatch(address):
            self.report(
                "inbox-invalid",
                f"{quoted(text)} is no mail system and address",
                key.remedy,
                entry.value,
            )
        elif self._systems is not None and system not in self._systems:
            names = ", ".join(sorted(self._systems)) or "none"
            self.report(
                "inbox-system-unknown",
                f"there is no mail system {quoted(system)} here"
                f"{did_you_mean(system, self._systems)}",
                f"write one of those that the host has ({names}), or let the host add it",
                entry.value,
            )
        return InboxTrigger(system=system, address=address, allow_from=tuple(allow_from or ()))

    def _allow_from(self, entry: Entry, key: Key) -> list[str] | None:
        before = len(self.problems)
        for item in self.text_or_texts(entry, key):
            if not item.text.strip():
                self.blank_item(item, key, key.remedy)
        found = [each.entry for each in allowed_senders(self._front_matter)]
        if not found and len(self.problems) == before:
            self.report("value-missing", f"`{key.name}` lists nobody", key.remedy, entry.value)
        return found

    def _companions(self) -> None:
        """Report keys that mean nothing without another one."""
        for name, other in _NEEDS.items():
            entry = self._root.find(name)
            if entry is not None and self._root.find(other) is None:
                self.report(
                    "key-without-effect",
                    f"`{name}` does nothing without `{other}:`",
                    f"add `{other}:`, or take it out",
                    entry.key,
                )
        inbox = self._root.find("inbox")
        if inbox is not None and self._root.find("allowFrom") is None:
            key = JOB.find("allowFrom")
            assert key is not None
            self.report(
                "allow-from-missing",
                "`inbox` without `allowFrom:` does not say whose mail may start a run",
                key.remedy,
                inbox.key,
            )

    # ---- other keys

    def _agent_config(self) -> dict[str, Any]:
        model = self._value("model", self.text)
        return {} if model is None else {"provider": {"config": {"default_model": model.strip()}}}

    def _repo(self, entry: Entry, key: Key) -> str | None:
        text = self.text(entry, key)
        problem = None if text is None else repo_problem(text)
        if problem is not None:
            self._place(problem, entry.value)
        return text

    def _parsed(self, parse: Callable[[str], Any], text: str, entry: Entry) -> Any:
        """The parsed value, or None after its error got a place in the file."""
        try:
            return parse(text)
        except DrumbeatError as error:
            self._place(error.problem, entry.value)
            return None

    def _place(self, problem: Problem, at: Node) -> None:
        column = at.column
        if problem.column is not None and isinstance(at, ScalarNode):
            column = column_in_value(at, self._front_matter.text, problem.column)
        self.problems.append(
            attrs.evolve(
                problem,
                message=hide_secrets(problem.message),
                path=self.path,
                line=at.line,
                column=column,
            )
        )

    # ---- keys that stand in the wrong file

    def unknown(self, entry: Entry, level: Level) -> None:
        """Report a key that `level` does not know, with what a job has instead of it."""
        if self.retired(entry) or self.guessed(entry, level, JOB_GUESSED):
            return
        if entry.name in JOB_INSTEAD:
            self.report(
                "misplaced-key",
                f"`{entry.name}` is a key of automation files, and this is read as a job",
                JOB_INSTEAD[entry.name],
                entry.key,
            )
        else:
            super().unknown(entry, level)


def _job_cron(text: str) -> Cron:
    """Read a cron expression; to a schedule of automation files, say what to write instead."""
    try:
        return parse_cron(text)
    except ScheduleError as error:
        instead = _cron_instead(text)
        if instead is None:
            instead = _INTERVAL.sub(r"\g<0> in an automation file", error.problem.remedy)
        raise ScheduleError(attrs.evolve(error.problem, remedy=instead)) from error


def _cron_instead(text: str) -> str | None:
    try:
        schedule = parse_schedule(text)
    except ScheduleError:
        return None  # no schedule of any kind: what is wrong with the fields is all there is
    if isinstance(schedule, DailyAt):
        return f'write `cron: "{schedule.at.minute} {schedule.at.hour} * * *"`'
    return (
        'write times of the clock, such as `cron: "*/30 * * * *"`; a distance after the last run '
        "is for automation files"
    )
