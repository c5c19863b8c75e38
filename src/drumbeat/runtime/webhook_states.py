"""How the webhooks of a workspace stand, from what the store keeps of them."""

from drumbeat.core.left_out import LEFT_OUT_MARKS, left_out_key, webhook_state
from drumbeat.core.model import WebhookState, WebhookTrigger, Workspace
from drumbeat.protocols import Store


async def webhook_states(store: Store | None, workspace: Workspace) -> tuple[WebhookState, ...]:
    """How each route of the files that load stands, by slug.

    Args:
        store: what is kept of them; None for nothing.
        workspace: the files.

    Raises:
        StoreError: the store could not be read.
    """
    declared = [
        (automation.slug, trigger)
        for automation in workspace.automations
        for trigger in automation.triggers
        if isinstance(trigger, WebhookTrigger)
    ]
    marks = [] if store is None or not declared else await store.marks(LEFT_OUT_MARKS)
    kept = {mark.key: mark.value for mark in marks}
    return tuple(
        webhook_state(slug, trigger, kept.get(left_out_key(slug))) for slug, trigger in declared
    )
