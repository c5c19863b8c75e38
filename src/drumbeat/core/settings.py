"""The limits and durations that a host may choose, in one frozen value."""

import re
from datetime import timedelta
from typing import Any, Self

import attrs

from drumbeat.core.messages import quoted
from drumbeat.core.model import Env
from drumbeat.errors import InvalidValue, Problem

_DAY = timedelta(days=1)
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


def _refuse(attribute: "attrs.Attribute[Any]", value: object, wanted: str) -> None:
    msg = f"Settings.{attribute.name} must be {wanted}, not {value!r}"
    raise ValueError(msg)


def _count(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        _refuse(attribute, value, "a whole number above zero")


def _positive(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, timedelta) or value <= timedelta(0):
        _refuse(attribute, value, "a timedelta of more than zero")


def _positive_or_none(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is not None:
        _positive(instance, attribute, value)


def _not_negative(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, timedelta) or value < timedelta(0):
        _refuse(attribute, value, "a timedelta that is not negative")


def _hosts(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, tuple) or not all(
        isinstance(host, str) and _HOST.fullmatch(host) for host in value
    ):
        _refuse(
            attribute, value, 'a tuple of hosts such as "github.com" or "git.acme.example:8443"'
        )


@attrs.frozen(kw_only=True)
class Settings:
    """The limits and durations of an engine that a host may choose, checked when it is made.

    Some limits are fixed, because two parties rely on them. A file loads on every host or on none:
    its size (1 MiB), the depth and number of its keys, `timeoutSeconds` up to a day. Senders sign
    for a window of 5 minutes. Deliverers can plan for an intent's text of at most 64 KiB, and
    tools for an output of at most 1 MiB. The pauses between attempts belong to the promise of
    "about a day" that `deliver_attempts` stands for.

    Raises:
        ValueError: a field is outside its bounds or of another type; the message names it.
    """

    max_concurrent_runs: int = attrs.field(default=3, validator=_count)
    """How many runs go at once, over all automations."""
    catch_up: timedelta = attrs.field(default=_DAY, validator=_not_negative)
    """How late a missed slot may be and still be run once. A minute is always allowed: a slot that
    is found within it is on time, so zero runs no slot that is later than that."""
    run_timeout: timedelta = attrs.field(default=timedelta(minutes=60), validator=_positive)
    """The bound on one run; a job's `timeoutSeconds` takes its place."""
    turn_timeout: timedelta | None = attrs.field(default=None, validator=_positive_or_none)
    """The bound on one turn; None leaves only the run's."""
    inject_timeout: timedelta = attrs.field(default=timedelta(seconds=60), validator=_positive)
    """The bound on one inject tool, in real time."""
    clone_timeout: timedelta = attrs.field(default=timedelta(minutes=10), validator=_positive)
    """The bound on the clone that a job with a `repo` works in, in real time; the run's bound holds
    as well."""
    deliver_timeout: timedelta = attrs.field(default=timedelta(seconds=60), validator=_positive)
    """The bound on one call of the deliverer."""
    drain_timeout: timedelta = attrs.field(default=timedelta(seconds=30), validator=_not_negative)
    """What running turns get when the engine drains, before they are cancelled."""
    reload_interval: timedelta = attrs.field(default=timedelta(seconds=10), validator=_positive)
    """How often the workspace is looked at for changes."""
    inbox_poll: timedelta = attrs.field(default=timedelta(minutes=5), validator=_positive)
    """How often each inbox is asked for mail."""
    inbox_timeout: timedelta = attrs.field(default=timedelta(seconds=60), validator=_positive)
    """The bound on one poll of an inbox."""
    inbox_attempts: int = attrs.field(default=6, validator=_count)
    """How many runs one batch of mail gets, the first included, before it is parked."""
    keep_artifacts: timedelta = attrs.field(default=30 * _DAY, validator=_positive)
    """How long the folder of a run is kept."""
    keep_work: timedelta = attrs.field(default=_DAY, validator=_positive)
    """How long `work/` in the folder of a run that succeeded is kept."""
    keep_events: timedelta = attrs.field(default=90 * _DAY, validator=_positive)
    """How long events are kept."""
    keep_runs: timedelta = attrs.field(default=400 * _DAY, validator=_positive)
    """How long runs and settled fires are kept; fires for 7 days after they settled at least."""
    tidy_interval: timedelta = attrs.field(default=_DAY, validator=_positive)
    """How often what is older than is kept goes."""
    max_sleep: timedelta = attrs.field(default=timedelta(seconds=60), validator=_positive)
    """The longest sleep of the scheduler, so that a clock that jumped is noticed."""
    request_poll: timedelta = attrs.field(default=timedelta(seconds=1), validator=_positive)
    """How often what other processes put in or ask for is looked for, a standby tries for the data
    folder, and its holder looks at its lock."""
    turn_attempts: int = attrs.field(default=3, validator=_count)
    """How often one turn is tried while the agent is unavailable."""
    deliver_attempts: int = attrs.field(default=8, validator=_count)
    """How often one intent is handed to the deliverer before it is abandoned."""
    store_probe: timedelta = attrs.field(default=timedelta(seconds=30), validator=_positive)
    """How often a store in trouble is tried again."""
    stuck_after: timedelta = attrs.field(default=timedelta(seconds=30), validator=_positive)
    """How long a cancelled run may go on before it is reported as stuck."""
    lease: timedelta = attrs.field(default=timedelta(minutes=5), validator=_positive)
    """How long a claim lives without being renewed."""
    follow_up_depth: int = attrs.field(default=10, validator=_count)
    """How long a chain of follow-ups may grow."""
    follow_ups_pending: int = attrs.field(default=5, validator=_count)
    """How many follow-ups of one automation may be pending."""
    follow_up_delay: timedelta = attrs.field(default=30 * _DAY, validator=_positive)
    """The longest delay of a follow-up."""
    git_hosts: tuple[str, ...] = attrs.field(default=("github.com",), validator=_hosts)
    """The hosts to which git may show `GITHUB_TOKEN`, each with its port if that is not 443."""

    @classmethod
    def from_env(cls, env: Env, /, **overrides: Any) -> Self:
        """Read `MAX_CONCURRENT_RUNS` and `AGENT_INBOX_POLL_SECONDS`, where set and not blank.

        Raises:
            InvalidValue: a variable is not a whole number from 1 to 999,999.
            ValueError: an override, which wins over its variable, is outside its bounds.
        """
        values: dict[str, Any] = {}
        text = env.get("MAX_CONCURRENT_RUNS", "")
        runs = _whole_number("MAX_CONCURRENT_RUNS", text, such_as=3)
        if runs is not None:
            values["max_concurrent_runs"] = runs
        text = env.get("AGENT_INBOX_POLL_SECONDS", "")
        seconds = _whole_number("AGENT_INBOX_POLL_SECONDS", text, such_as=300)
        if seconds is not None:
            values["inbox_poll"] = timedelta(seconds=seconds)
        return cls(**(values | overrides))


def _whole_number(name: str, text: str, *, such_as: int) -> int | None:
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 6 and int(text) > 0:
        return int(text)
    raise InvalidValue(
        Problem(
            code="setting-invalid",
            message=f"{name} is {quoted(text)}, which is not a whole number from 1 to 999,999",
            remedy=f"set {name} to a number such as {such_as}, or unset it",
        )
    )
