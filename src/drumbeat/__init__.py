"""Agent work that runs unattended for months without silently going wrong.

Markdown files say what an agent does, when it runs and whether anyone hears about it; `Engine` runs
them inside a host's own process; the host brings an `Agent` (its model) and a `Deliverer` (its
channel).

Each public name is loaded from its room when it is first asked for, so that a program which only
validates files does not pay for the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drumbeat.client import Client
    from drumbeat.core.automation_file import validate_automation_content
    from drumbeat.core.ceilings import is_context_ceiling
    from drumbeat.core.job_file import validate_job_content
    from drumbeat.core.lint import lint_automation
    from drumbeat.core.model import (
        Accepted,
        Automation,
        Cause,
        Claim,
        Cron,
        DailyAt,
        Decision,
        DeliveryIntent,
        Due,
        Env,
        Event,
        Fire,
        FireVerdict,
        Gate,
        Ignored,
        InboxTrigger,
        InjectOutcome,
        InjectSpec,
        Interval,
        Json,
        Kind,
        MailBatch,
        MailMessage,
        Mark,
        Origin,
        Pack,
        Pin,
        Receipt,
        Refused,
        Reply,
        Requirement,
        Rotation,
        RunRecord,
        RunState,
        Schedule,
        ScheduleTrigger,
        Sent,
        Status,
        Step,
        Trigger,
        Turn,
        TurnRecord,
        Usage,
        Verdict,
        WebhookTrigger,
        Workspace,
    )
    from drumbeat.core.notify import evaluate_notify
    from drumbeat.core.schedule import format_schedule, next_fire, parse_schedule
    from drumbeat.core.settings import Settings
    from drumbeat.core.webhooks import check_webhook
    from drumbeat.engine import Engine
    from drumbeat.errors import (
        AgentError,
        AgentUnavailable,
        AutomationError,
        ClaimLost,
        ContextCeiling,
        ConversationNotFound,
        DeliveryRefused,
        DrumbeatError,
        EngineBusy,
        EventsExpired,
        Finding,
        FollowUpRefused,
        NotFound,
        NotRun,
        Problem,
        ScheduleError,
        SessionBusy,
        StoreError,
        WorkspaceError,
    )
    from drumbeat.protocols import Agent, Clock, Deliverer, FollowUps, MailSource, Pins, Store
    from drumbeat.runtime.clock import SystemClock
    from drumbeat.runtime.inject import run_inject
    from drumbeat.runtime.pins import SessionPins
    from drumbeat.runtime.scheduler import Scheduler
    from drumbeat.runtime.store import SqliteStore
    from drumbeat.runtime.workspace import load_workspace

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Agent",
    "AgentError",
    "AgentUnavailable",
    "Automation",
    "AutomationError",
    "Cause",
    "Claim",
    "ClaimLost",
    "Client",
    "Clock",
    "ContextCeiling",
    "ConversationNotFound",
    "Cron",
    "DailyAt",
    "Decision",
    "Deliverer",
    "DeliveryIntent",
    "DeliveryRefused",
    "DrumbeatError",
    "Due",
    "Engine",
    "EngineBusy",
    "Env",
    "Event",
    "EventsExpired",
    "Finding",
    "Fire",
    "FireVerdict",
    "FollowUpRefused",
    "FollowUps",
    "Gate",
    "Ignored",
    "InboxTrigger",
    "InjectOutcome",
    "InjectSpec",
    "Interval",
    "Json",
    "Kind",
    "MailBatch",
    "MailMessage",
    "MailSource",
    "Mark",
    "NotFound",
    "NotRun",
    "Origin",
    "Pack",
    "Pin",
    "Pins",
    "Problem",
    "Receipt",
    "Refused",
    "Reply",
    "Requirement",
    "Rotation",
    "RunRecord",
    "RunState",
    "Schedule",
    "ScheduleError",
    "ScheduleTrigger",
    "Scheduler",
    "Sent",
    "SessionBusy",
    "SessionPins",
    "Settings",
    "SqliteStore",
    "Status",
    "Step",
    "Store",
    "StoreError",
    "SystemClock",
    "Trigger",
    "Turn",
    "TurnRecord",
    "Usage",
    "Verdict",
    "WebhookTrigger",
    "Workspace",
    "WorkspaceError",
    "__version__",
    "check_webhook",
    "evaluate_notify",
    "format_schedule",
    "is_context_ceiling",
    "lint_automation",
    "load_workspace",
    "next_fire",
    "parse_schedule",
    "run_inject",
    "validate_automation_content",
    "validate_job_content",
]

_ROOMS = {
    "drumbeat.client": ("Client",),
    "drumbeat.core.automation_file": ("validate_automation_content",),
    "drumbeat.core.ceilings": ("is_context_ceiling",),
    "drumbeat.core.job_file": ("validate_job_content",),
    "drumbeat.core.lint": ("lint_automation",),
    "drumbeat.core.model": (
        "Accepted",
        "Automation",
        "Cause",
        "Claim",
        "Cron",
        "DailyAt",
        "Decision",
        "DeliveryIntent",
        "Due",
        "Env",
        "Event",
        "Fire",
        "FireVerdict",
        "Gate",
        "Ignored",
        "InboxTrigger",
        "InjectOutcome",
        "InjectSpec",
        "Interval",
        "Json",
        "Kind",
        "MailBatch",
        "MailMessage",
        "Mark",
        "Origin",
        "Pack",
        "Pin",
        "Receipt",
        "Refused",
        "Reply",
        "Requirement",
        "Rotation",
        "RunRecord",
        "RunState",
        "Schedule",
        "ScheduleTrigger",
        "Sent",
        "Status",
        "Step",
        "Trigger",
        "Turn",
        "TurnRecord",
        "Usage",
        "Verdict",
        "WebhookTrigger",
        "Workspace",
    ),
    "drumbeat.core.notify": ("evaluate_notify",),
    "drumbeat.core.schedule": (
        "format_schedule",
        "next_fire",
        "parse_schedule",
    ),
    "drumbeat.core.settings": ("Settings",),
    "drumbeat.core.webhooks": ("check_webhook",),
    "drumbeat.engine": ("Engine",),
    "drumbeat.errors": (
        "AgentError",
        "AgentUnavailable",
        "AutomationError",
        "ClaimLost",
        "ContextCeiling",
        "ConversationNotFound",
        "DeliveryRefused",
        "DrumbeatError",
        "EngineBusy",
        "EventsExpired",
        "Finding",
        "FollowUpRefused",
        "NotFound",
        "NotRun",
        "Problem",
        "ScheduleError",
        "SessionBusy",
        "StoreError",
        "WorkspaceError",
    ),
    "drumbeat.protocols": (
        "Agent",
        "Clock",
        "Deliverer",
        "FollowUps",
        "MailSource",
        "Pins",
        "Store",
    ),
    "drumbeat.runtime.clock": ("SystemClock",),
    "drumbeat.runtime.inject": ("run_inject",),
    "drumbeat.runtime.pins": ("SessionPins",),
    "drumbeat.runtime.scheduler": ("Scheduler",),
    "drumbeat.runtime.store": ("SqliteStore",),
    "drumbeat.runtime.workspace": ("load_workspace",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    room = _ROOM_OF.get(name)
    if room is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
