"""A conversation taken for a moment by the engine itself, so that nobody talks in it meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import anyio

from drumbeat.errors import ClaimLost
from drumbeat.runtime.log import log
from drumbeat.runtime.services import Services


@asynccontextmanager
async def borrowed(services: Services, session_id: str, purpose: str) -> AsyncIterator[bool]:
    """Hold a conversation for the block, and say whether it could be had.

    Args:
        services: the engine's parts.
        session_id: the conversation.
        purpose: what for, in a word, as the name of the claim.

    Raises:
        StoreError: the store could not be asked.
    """
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
                log.error("claim_lost", run_id=claim.run_id, message=error.problem.message)
        services.conversations_freed.notify()
