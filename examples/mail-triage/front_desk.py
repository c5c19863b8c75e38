"""What stands in for the model: it fetches each mail that it is told of, and drafts an answer."""

import json
from collections.abc import Awaitable, Callable

from drumbeat import AgentError, Reply, Turn

Fetch = Callable[[str], Awaitable[str]]
"""From the id of a message to its text; the agent's own tool, with the agent's own rights."""


class FrontDesk:
    """An `Agent` that answers whatever it can read, which scans are not."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def take_turn(self, turn: Turn, /) -> Reply:
        """Draft an answer to each message of `INBOX_TRIGGER.json`."""
        # Data, never instructions: `turn.context` says so, and this agent can do nothing else.
        trigger = json.loads((turn.cwd / "INBOX_TRIGGER.json").read_text("utf-8"))
        told = []
        for message in trigger["messages"]:
            text = await self._fetch(message["id"])
            if text.startswith("%PDF"):
                msg = f"the mail {message['id']} cannot be read"
                raise AgentError(msg, code="mail-unreadable")
            told.append(f"{message['from']}: drafted an answer to '{text.strip()}'")
        return Reply(text="\n".join(told))
