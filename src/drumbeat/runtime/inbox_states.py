"""How the inboxes of a workspace stand, from what the store keeps of them."""

from collections.abc import Collection

from drumbeat.core.inbox import Standing, inbox_key
from drumbeat.core.model import InboxState, InboxTrigger, Workspace
from drumbeat.protocols import Store
from drumbeat.runtime.inbox_faults import kept_faults
from drumbeat.runtime.inbox_marks import read_standing


async def inbox_states(
    store: Store | None, workspace: Workspace, *, systems: Collection[str] | None
) -> tuple[InboxState, ...]:
    """How each inbox of the files that load stands, by slug.

    Args:
        store: what is kept of them; None for nothing.
        workspace: the files.
        systems: the mail systems of the engine, None when they are not known.

    Raises:
        StoreError: the store could not be read.
    """
    declared = [
        (automation.slug, trigger)
        for automation in workspace.automations
        for trigger in automation.triggers
        if isinstance(trigger, InboxTrigger)
    ]
    faults = {} if store is None or not declared else await kept_faults(store)
    found: list[InboxState] = []
    for slug, trigger in declared:
        key, standing = inbox_key(slug, trigger), None
        if store is not None:
            _, standing = await read_standing(store, key)
        known = standing if isinstance(standing, Standing) else None
        batch = None if known is None else known.batch
        fault = faults.get(slug, {})
        found.append(
            InboxState(
                slug=slug,
                system=trigger.system,
                address=trigger.address,
                begun=standing is not None,
                fire=None if batch is None else batch.fire,
                parked=() if known is None else known.parked,
                fault=fault.get("reason", ""),
                code=fault.get("code", ""),
                served=systems is None or trigger.system in systems,
            )
        )
    return tuple(found)
