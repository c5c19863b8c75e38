"""Every limit and duration in one frozen value."""

from datetime import timedelta
from typing import Any, Self

import attrs

from drumbeat.core.model import Env
from drumbeat.errors import DrumbeatError, Problem

_DAY = timedelta(days=1)


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
    if not isinstance(value, tuple) or not all(isinstance(host, str) and host for host in value):
        _refuse(attribute, value, "a tuple of host names")


@attrs.frozen(kw_only=True)
class Settings:
    """Every limit and duration of an engine. Counts and durations are more than zero.

    Raises:
        ValueError: a field is outside its bounds or of another type; the message names it.
    """

    max_concurrent_runs: int = attrs.field(default=3, validator=_count)
    """How many runs go at once, over all automations."""
    catch_up: timedelta = attrs.field(default=_DAY, validator=_not_negative)
    """How late a missed slot may be and still be run once; zero runs no missed slot."""
    run_timeout: timedelta = attrs.field(default=timedelta(minutes=60), validator=_positive)
    """The bound on one run; a job's `timeoutSeconds` takes its place."""
    turn_timeout: timedelta | None = attrs.field(default=None, validator=_positive_or_none)
    """The bound on one turn; None leaves only the run's."""
    inject_timeout: timedelta = attrs.field(default=timedelta(seconds=60), validator=_positive)
    """The bound on one inject tool, in real time."""
    deliver_timeout: timedelta = attrs.field(default=timedelta(seconds=60), validator=_positive)
    """The bound on one call of the deliverer."""
    drain_timeout: timedelta = attrs.field(default=timedelta(seconds=30), validator=_not_negative)
    """What running turns get when the engine drains, before they are cancelled."""
    reload_interval: timedelta = attrs.field(default=timedelta(seconds=10), validator=_positive)
    """How often the workspace is looked at for changes."""
    inbox_poll: timedelta = attrs.field(default=timedelta(seconds=300), validator=_positive)
    """How often a mailbox is looked at."""
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
    git_hosts: tuple[str, ...] = attrs.field(default=("github.com",), validator=_hosts)
    """The hosts to which `GITHUB_TOKEN` may be shown."""
    max_sleep: timedelta = attrs.field(default=timedelta(seconds=60), validator=_positive)
    """The longest sleep of the scheduler, so that a clock that jumped is noticed."""
    request_poll: timedelta = attrs.field(default=timedelta(seconds=1), validator=_positive)
    """How often fires that another process put in are looked for."""
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

    @classmethod
    def from_env(cls, env: Env, /, **overrides: Any) -> Self:
        """Read `MAX_CONCURRENT_RUNS` and `AGENT_INBOX_POLL_SECONDS`; `overrides` win.

        Raises:
            DrumbeatError: a variable is not a whole number above zero.
            ValueError: an override is outside its bounds.
        """
        values: dict[str, Any] = {}
        for variable, name, unit in (
            ("MAX_CONCURRENT_RUNS", "max_concurrent_runs", 1),
            ("AGENT_INBOX_POLL_SECONDS", "inbox_poll", timedelta(seconds=1)),
        ):
            text = env.get(variable, "").strip()
            if not text:
                continue
            if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) > 0):
                raise DrumbeatError(
                    Problem(
                        code="setting-invalid",
                        message=f"{variable} is {text!r}, not a whole number above zero",
                        remedy=f"set {variable} to a number such as 3, or unset it",
                    )
                )
            values[name] = int(text) * unit
        return cls(**(values | overrides))
