"""A chat service as its client library would show it, kept in memory: no network, no key."""

from collections.abc import AsyncIterator

import anyio
import attrs


@attrs.frozen(kw_only=True)
class Message:
    """One message of the channel."""

    id: str
    author: str
    text: str
    answers: str | None = None
    """The id of the message that it answers."""


class Chat:
    """One channel. Ids are never used twice, so each names one message for good."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self._inbox, self._incoming = anyio.create_memory_object_stream[Message](100)

    async def post(self, author: str, text: str, *, answers: str | None = None) -> Message:
        """Put a message into the channel and return it, its id included."""
        message = Message(
            id=f"msg-{len(self.messages) + 1}", author=author, text=text, answers=answers
        )
        self.messages[message.id] = message
        if author != "drumbeat":
            await self._inbox.send(message)
        return message

    async def incoming(self) -> AsyncIterator[Message]:
        """What people write, as it comes, until the channel is closed."""
        async for message in self._incoming:
            yield message

    def close(self) -> None:
        """Let `incoming` end once it has given all that there is."""
        self._inbox.close()

    def thread(self, message_id: str) -> list[Message]:
        """A message and everything that answers it, and answers that, in order."""
        ids = {message_id}
        found = []
        for message in self.messages.values():
            if message.id in ids or message.answers in ids:
                ids.add(message.id)
                found.append(message)
        return found
