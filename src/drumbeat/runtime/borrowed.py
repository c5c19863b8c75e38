"""A conversation taken for a moment by the engine itself, so that nobody talks in it meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import anyio

from drumbeat.errors import ClaimLost
from drumbeat.runtime.services import Services


@asynccontextmanager
async def borrowed(
    services: Services, session_id: str, purpose: str, *, slug: str
) -> AsyncIterator[bool]:
    """Hold a conversation for the block, and say whether it could be had.

    Args:
        services: the engine's parts.
        session_id: the conversation.
        purpose: what for, in a word, as the name of the claim.
        slug: whose conversation it is.

    Raises:
        StoreError: the store could not be asked.
    """
    services.borrowing.append(session_id)
    try:
        claim = await services.store.hold(session_id, run_id=f"{purpose}-{uuid4()}")
        if claim is None:
            yield False
            return
        try:
            yield True
        finally:
            # Whatever happens meanwhile: nobody else would free it before the next start.
            with anyio.CancelScope(shield=True):
                try:
                    await services.insist(lambda: services.store.finish(claim, None))
                except ClaimLost as error:
                    services.claim_lost(slug, claim.run_id, error)
    finally:
        services.borrowing.remove(session_id)
        services.conversations_freed.notify()
