"""The nouns: frozen values that every room speaks of (spec, sections 1 and 15).

Instants are aware UTC `datetime`s, durations are `timedelta`s. A name means the same thing in code,
in documents, in log events and in error codes.
"""

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from drumbeat.errors import Problem

if TYPE_CHECKING:
    from drumbeat.protocols import FollowUps

Json: TypeAlias = Mapping[str, Any]
Env: TypeAlias = Mapping[str, str]
Kind: TypeAlias = Literal["automation", "job"]
Notify: TypeAlias = Literal["always", "auto", "urgent-only", "never"]
Lifecycle: TypeAlias = Literal["continuous", "fresh", "daily"]
GuidanceDelivery: TypeAlias = Literal["reference", "inline"]
RouteMethod: TypeAlias = Literal["post", "get"]
Cause: TypeAlias = Literal["schedule", "webhook", "inbox", "follow-up", "manual"]
FireVerdict: TypeAlias = Literal["ran", "folded", "missed", "skipped"]
RunState: TypeAlias = Literal[
    "running", "succeeded", "failed", "aborted", "interrupted", "cancelled"
]
Origin: TypeAlias = Literal["inject", "step", "judgment", "follow-up", "reply", "ask", "draft"]
Rotation: TypeAlias = Literal[
    "fresh",
    "daily-boundary",
    "steps-changed",
    "provider-changed",
    "context-ceiling",
    "conversation-missing",
    "operator",
]
Verdict: TypeAlias = Literal["deliver", "withhold", "demote"]
Sent: TypeAlias = Literal["pending", "delivered", "abandoned"]
Gate: TypeAlias = Literal[
    "policy-always",
    "policy-never",
    "nothing-to-report",
    "near-sentinel",
    "judged-worth-saying",
    "urgent-marker",
    "urgent-marker-missing",
    "judgment-failed",
    "final-reply-empty",
    "run-failed",
    "repeat-failure",
]


# ---- policy: what a file says


@attrs.frozen(kw_only=True)
class Interval:
    """`every N minutes`: a slot lies `every` after the last run ended, whatever the time of day."""

    every: timedelta


@attrs.frozen(kw_only=True)
class DailyAt:
    """`daily at HH:MM`: a time of day in the zone that rules the file."""

    at: time


@attrs.frozen(kw_only=True)
class Cron:
    """A five-field cron expression, as written, its fields joined by single spaces."""

    expression: str


Schedule: TypeAlias = Interval | DailyAt | Cron


@attrs.frozen(kw_only=True)
class Step:
    """One turn that the author wrote: what is asked (`prompt`), and how records call it (`id`)."""

    id: str
    prompt: str
    label: str | None = None


@attrs.frozen(kw_only=True)
class InjectSpec:
    """A tool that runs ahead of the steps; what it prints is read by the agent as a turn."""

    argv: tuple[str, ...]
    label: str


@attrs.frozen(kw_only=True)
class ScheduleTrigger:
    """When a file runs by itself. `schedule` is None for an expression outside the grammar."""

    expression: str
    schedule: Schedule | None


@attrs.frozen(kw_only=True)
class WebhookTrigger:
    """A route at which another system's event starts a run (spec, section 13.1)."""

    route: str
    auth: str = "bearer"
    filter: str | None = None
    method: RouteMethod = "post"


@attrs.frozen(kw_only=True)
class InboxTrigger:
    """An address at which mail from the listed senders starts a run (spec, section 13.2)."""

    system: str
    address: str
    allow_from: tuple[str, ...]


Trigger: TypeAlias = ScheduleTrigger | WebhookTrigger | InboxTrigger


@attrs.frozen(kw_only=True)
class Automation:
    """One file, read and found to keep the contract.

    `slug` is the filename stem, or "" when the text was validated without a path. `triggers` is
    empty for `manual` and `event`. `fingerprint` is `steps_fingerprint(steps)`: a conversation
    goes on for as long as it stays the same.
    """

    slug: str
    name: str
    kind: Kind
    steps: tuple[Step, ...]
    triggers: tuple[Trigger, ...] = ()
    enabled: bool = True
    notify: Notify = "auto"
    requires: tuple[str, ...] = ()
    conversation: Lifecycle = "continuous"
    inject: tuple[InjectSpec, ...] = ()
    guidance_delivery: GuidanceDelivery = "reference"
    agent_config: Json = attrs.field(factory=dict[str, Any])
    timeout: timedelta | None = None
    repo: str | None = None
    fingerprint: str = ""
    path: PurePath | None = None

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that makes slots, or None: no such trigger, or one that cannot be read."""
        for trigger in self.triggers:
            if isinstance(trigger, ScheduleTrigger):
                return trigger.schedule
        return None


@attrs.frozen(kw_only=True)
class Pack:
    """A folder of tools with the card that explains them to the agent."""

    name: str
    description: str
    folder: Path
    tools: tuple[str, ...]
    activity: Json
    card: str


@attrs.frozen(kw_only=True)
class Workspace:
    """What stands in a workspace folder: the files that load, and why the others do not."""

    path: Path
    automations: tuple[Automation, ...]
    problems: Mapping[Path, tuple[Problem, ...]]
    packs: tuple[Pack, ...]

    def find(self, slug: str) -> Automation | None:
        """The automation of that slug, or None."""
        for automation in self.automations:
            if automation.slug == slug:
                return automation
        return None

    def stands(self, slug: str) -> bool:
        """Whether there is a file for `slug`, broken or not."""
        broken = any(path.stem == slug for path in self.problems)
        return broken or self.find(slug) is not None


# ---- runs: what happened


@attrs.frozen(kw_only=True)
class Usage:
    """What turns cost, as far as the agent said."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: Decimal | None = None

    def __add__(self, other: "Usage") -> "Usage":
        """Add field by field; a cost that neither side knows stays unknown."""
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost_usd=sum(costs, Decimal(0)) if costs else None,
        )


@attrs.frozen(kw_only=True)
class Fire:
    """One durable request to run one automation; it ends in exactly one `verdict`.

    `slot` is what makes it unique for its `slug` and `cause`: the scheduled instant, the delivery
    id, the mail batch's mark, the follow-up id or the request id. `payload` is the bytes that the
    run will find in a file. `attempt` counts the runs made for it so far, `run_id` is the last of
    them, and `folded_slots` how many earlier slots it stands for besides its own.
    """

    id: str
    slug: str
    cause: Cause
    slot: str
    due: datetime
    created_at: datetime
    payload: bytes | None = None
    prompt: str | None = None
    parent_run: str | None = None
    depth: int = 0
    attempt: int = 0
    folded_slots: int = 0
    verdict: FireVerdict | None = None
    reason: str = ""
    run_id: str | None = None
    folded_into: str | None = None


@attrs.frozen(kw_only=True)
class Requirement:
    """A file or tool that a run needs, read afresh; the text of a tool is its pack's card."""

    name: str
    kind: Literal["file", "tool"]
    path: Path
    text: str


@attrs.frozen(kw_only=True)
class Turn:
    """One call of the agent with one prompt, inside a conversation.

    `prompt` is the file's (or tool's) text verbatim; `context` is the engine's and stands on a
    run's first turn only. `turn_id` stays the same over retries, while a retried first turn of a
    conversation gets a fresh `session_id`. `env` is complete, as for a child process. `timeout` is
    what is left for this turn. `cwd` is the workspace, and for a job the run's own `work/`, which
    is a clone where its file names a repository. `skills` are the folders of the skills that hold
    there, absolute and in order of their names: the clone's, the workspace's, then the engine's
    (spec, section 13.5).
    """

    turn_id: str
    attempt: int
    slug: str
    session_id: str
    is_new: bool
    handle: str | None
    automation: Automation | None
    run_id: str | None
    origin: Origin
    step_id: str | None
    label: str | None
    prompt: str
    context: str
    requirements: tuple[Requirement, ...]
    system_prompt: str | None
    skills: tuple[Path, ...]
    config: Json
    memory_dir: Path
    follow_ups: "FollowUps"
    env: Env
    cwd: Path
    timeout: timedelta

    @property
    def text(self) -> str:
        """Context and prompt joined, for agents that take one string."""
        return f"{self.context}\n\n{self.prompt}" if self.context else self.prompt


@attrs.frozen(kw_only=True)
class Reply:
    """What the agent answered.

    `handle` is the agent's own id for the conversation, given back as `Turn.handle` next time. The
    text has 8 MiB of characters at most, and the other texts 64 KiB.
    """

    text: str
    usage: Usage | None = None
    provider: str | None = None
    model: str | None = None
    handle: str | None = None


@attrs.frozen(kw_only=True)
class Decision:
    """What the notify policy says of a reply: `text` is what would be sent, `reason` says why."""

    verdict: Verdict
    gate: Gate
    reason: str
    text: str


@attrs.frozen(kw_only=True)
class Receipt:
    """What a channel gave back for a delivery; `find_run` finds the run by its `id`.

    One with an id or address of more than 4,096 characters is not kept.
    """

    id: str | None = None
    url: str | None = None


@attrs.frozen(kw_only=True)
class DeliveryIntent:
    """The one decision of a run about who hears of it.

    The same `id` comes with every attempt; an `attempt` above 1 may be a repeat.
    """

    id: str
    run_id: str
    slug: str
    name: str
    session_id: str | None
    fire: Fire
    created_at: datetime
    attempt: int
    verdict: Verdict
    gate: Gate
    reason: str
    text: str


@attrs.frozen(kw_only=True)
class TurnRecord:
    """One turn of a run, as it went; `reply` is None when it failed."""

    turn_id: str
    origin: Origin
    step_id: str | None
    attempts: int
    started_at: datetime
    finished_at: datetime
    reply: Reply | None


@attrs.frozen(kw_only=True)
class RunRecord:
    """One attempt at one fire. `intent` is None only while the run is going.

    `turns` and `usage` hold the replies that were given in it later too. `handle` is the agent's
    own id for the conversation, as it was last said. `kind` is that of the file which it ran, None
    when there was none that loaded, and `repo` the address that the file named.
    """

    run_id: str
    slug: str
    fire: Fire
    state: RunState
    started_at: datetime
    finished_at: datetime | None
    config_hash: str
    session_id: str | None
    rotation: Rotation | None
    turns: tuple[TurnRecord, ...]
    usage: Usage
    failure: Problem | None
    intent: DeliveryIntent | None
    delivery: Sent | None
    receipt: Receipt | None
    handle: str | None = None
    kind: Kind | None = None
    repo: str | None = None


@attrs.frozen(kw_only=True)
class Pin:
    """Which conversation an automation resumes, and what it was begun under."""

    session_id: str
    fingerprint: str
    provider: str | None
    day: date
    at: datetime
    handle: str | None = None


@attrs.frozen(kw_only=True)
class InjectOutcome:
    """What became of an inject tool: its output is a turn, or it was idle, or the run aborts."""

    kind: Literal["inject", "idle", "abort"]
    code: str
    reason: str
    text: str
    exit_code: int | None
    stderr: str


@attrs.frozen(kw_only=True)
class Event:
    """One entry of the durable event stream; `id` rises and survives restarts."""

    id: int
    at: datetime
    kind: str
    slug: str | None
    run_id: str | None
    data: Json


@attrs.frozen(kw_only=True)
class InboxState:
    """How an inbox stands.

    `begun`: whether mail counts by now, which it does from the first poll on. `fire` is the id of
    the one that is out for a batch. `parked` has a line for each of the latest messages that were
    given up. `fault`: why it could not be polled when that was last tried, "" when it could, and
    `code` the same as a code.
    `served`: whether the engine has its mail system; for a client, the engine that was last there.
    """

    slug: str
    system: str
    address: str
    begun: bool
    fire: str | None
    parked: tuple[str, ...]
    fault: str = ""
    code: str = ""
    served: bool = True


@attrs.frozen(kw_only=True)
class LeftOut:
    """Requests that were in order and started nothing: how many, and when the first and last came.

    They are counted by the minute, so the latest are not in it yet.
    """

    count: int
    since: datetime
    last: datetime


@attrs.frozen(kw_only=True)
class WebhookState:
    """How a webhook's route stands: what it was sent that was in order and started nothing.

    `filtered`: what its filter left out, as the filter stands in the file. `repeated`: deliveries
    that came before. `conflicting`: events with the id of an earlier delivery and another body, as
    from a sender that gives every event the same id. Each is None when there was none.
    """

    slug: str
    route: str
    filter: str | None = None
    filtered: LeftOut | None = None
    repeated: LeftOut | None = None
    conflicting: LeftOut | None = None


@attrs.frozen(kw_only=True)
class Status:
    """What an engine is doing at this moment.

    The fires in it are shown without their payloads. `stuck` has the ids of what goes on although
    it was cancelled: of runs, of deliveries (`intent-…`), of answers to runs (`reply-…`) and of the
    turns of `ask` and `draft_job` (`ask-…`, `draft-…`). `faults` is what is wrong around the work:
    a part of the engine, the store, a folder of the workspace, a pack.
    """

    state: Literal["standby", "running", "draining", "stopped"]
    path: tuple[Path, ...]
    workspace: Workspace
    paused: Mapping[str, str]
    running: tuple[RunRecord, ...]
    stuck: tuple[str, ...]
    waiting: tuple[Fire, ...]
    faults: tuple[Problem, ...]
    zones: Mapping[Kind, tuple[str, str]]
    inboxes: tuple[InboxState, ...] = ()
    webhooks: tuple[WebhookState, ...] = ()


@attrs.frozen(kw_only=True)
class Health:
    """Whether work is done: `ok` is what a load balancer asks, `faults` the codes of what is wrong.

    `ok` holds while an engine runs or stands by and its store takes writes. Other faults, such as a
    pack that is wrong, keep no work from being done.
    """

    ok: bool
    state: Literal["standby", "running", "draining", "stopped"]
    faults: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Draft:
    """A job file as an agent wrote it, and what became of it.

    `path` is the file that was written, on a dry run the one that would have been. It is None when
    there are `problems`, which then are those of the last answer; `text` is that answer.
    """

    text: str
    path: Path | None
    problems: tuple[Problem, ...]


@attrs.frozen(kw_only=True)
class Due:
    """A moment of a schedule: `folded` earlier ones go with it; one `missed` is too late to run.

    `since` is the first of them, from which on something is due: `slot` itself where none is.
    """

    slug: str
    slot: datetime
    folded: int
    missed: bool
    since: datetime = attrs.field(default=attrs.Factory(lambda due: due.slot, takes_self=True))


# ---- what comes in from outside


@attrs.frozen(kw_only=True)
class Accepted:
    """A webhook request that starts a run.

    `slot` is the sender's delivery id, None when it gave none. `payload` is the body as it came,
    None on a route that has no body.
    """

    slot: str | None
    payload: bytes | None


@attrs.frozen(kw_only=True)
class Ignored:
    """A webhook request that is in order and starts nothing: filtered out, or Slack's greeting.

    `filtered`: which of the two.
    """

    reason: str
    body: bytes = b""
    status: int = 200
    filtered: bool = False


@attrs.frozen(kw_only=True)
class Refused:
    """A webhook request that is not in order; `reason` holds nothing secret."""

    reason: str
    code: str
    status: int


@attrs.frozen(kw_only=True)
class Answer:
    """What the sender of a webhook is told: `status`, `headers` and `body` go back as they are.

    `fire` is what the event became; a delivery that came before has the earlier one.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    fire: Fire | None = None


# ---- the store's own


@attrs.frozen(kw_only=True)
class Mark:
    """A small fact that outlives a process. `version` is as read; 0 inserts."""

    key: str
    value: Any
    version: int = 0


@attrs.frozen(kw_only=True)
class Claim:
    """A lease on a slug, or with no `fire` on a conversation. `token` rises per slug: the fence."""

    slug: str
    run_id: str
    token: int
    fire: Fire | None


@attrs.frozen(kw_only=True)
class Backlog:
    """The open fires of one slug at an instant, without reading them: when, and how many.

    `due` is when the first of them is due. Of those that are due later than that instant, `ahead`
    is the first, and `overdue` the first that had been due as it was put in: the clock was set back
    since. `follow_ups` counts those of that cause which nobody has claimed.
    """

    slug: str
    due: datetime
    ahead: datetime | None
    overdue: datetime | None
    follow_ups: int


@attrs.frozen(kw_only=True)
class Purged:
    """What a store forgot: how much of each kind, and whether that was all there was to forget."""

    events: int = 0
    runs: int = 0
    fires: int = 0
    marks: int = 0
    complete: bool = True


# ---- mail


@attrs.frozen(kw_only=True)
class MailMessage:
    """One message as its server holds it: headers raw, in order; DMARC the server's own result."""

    id: str
    headers: tuple[tuple[str, str], ...]
    thread_id: str | None = None
    dmarc: Literal["pass", "fail"] | None = None


@attrs.frozen(kw_only=True)
class MailBatch:
    """Messages, oldest first, and the mark that covers just these.

    `restarted` says that the mailbox has been numbered anew (UIDVALIDITY), so that messages that an
    earlier mark covered may be among these: the poller then leaves out those it has handled. It
    stays True, batch by batch, until all that lay in the mailbox at the change has been returned.
    How far back the source then begins is its own to decide, as only it knows when mail arrived.
    """

    messages: tuple[MailMessage, ...]
    mark: str
    restarted: bool = False
