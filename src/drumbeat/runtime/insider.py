"""How an engine that holds its data folder stands, as it knows itself."""

from typing import Literal

from drumbeat.core.model import Fire, InboxState, Status, WebhookState
from drumbeat.errors import Problem, StoreError
from drumbeat.runtime import requests
from drumbeat.runtime.answers import said
from drumbeat.runtime.inbox_states import inbox_states
from drumbeat.runtime.life import Life
from drumbeat.runtime.webhook_states import webhook_states

__all__ = ["status_of"]


async def status_of(
    life: Life,
    *,
    state: Literal["standby", "running", "draining", "stopped"],
    fault: BaseException | None,
) -> Status:
    """As `Engine.status`; a store that cannot be read is among the faults, and never raised.

    Args:
        life: what the engine is made of.
        state: what it does.
        fault: what stopped it.
    """
    services = life.services
    waiting: list[Fire] = []
    paused: dict[str, str] = {}
    inboxes: tuple[InboxState, ...] = ()
    webhooks: tuple[WebhookState, ...] = ()
    try:
        waiting = await services.store.fires(open=True, limit=None, payloads=False)
        paused = await requests.paused(services.store)
        inboxes = await inbox_states(
            services.store, services.known_workspace, systems=services.mail
        )
        webhooks = await webhook_states(services.store, services.known_workspace)
    except StoreError as error:
        services.trouble(error)
    faults = list(services.faults.values())
    if fault is not None:
        faults.append(
            Problem(
                code="engine-failed",
                message=services.redactor.text(f"the engine stopped: {said(fault)}"),
                remedy="look at what wait() raises, and enter another engine",
            )
        )
    going = life.dispatcher.going
    return Status(
        state=state,
        path=services.search_path,
        workspace=services.known_workspace,
        paused=paused,
        running=tuple(run.standing for run in going.values()),
        stuck=tuple(sorted(services.stuck)),
        waiting=tuple(fire for fire in waiting if fire.run_id not in going),
        faults=tuple(faults),
        zones={kind: (name, source) for kind, (_, name, source) in services.zones.items()},
        inboxes=inboxes,
        webhooks=webhooks,
    )
