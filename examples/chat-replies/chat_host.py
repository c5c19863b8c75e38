"""A chat host: automations post, people answer a post, and the answer goes where it belongs."""

from datetime import timedelta

import anyio
from chat_room import Chat, Message

from drumbeat import (
    AgentError,
    Deliverer,
    DeliveryIntent,
    Engine,
    EngineBusy,
    NotFound,
    Receipt,
    SessionBusy,
)

PATIENCE = timedelta(minutes=10)


class ChatDeliverer(Deliverer):
    """Posts what people should hear. The receipt's id is the message's: people answer that."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    async def deliver(self, intent: DeliveryIntent, /) -> Receipt:
        """Post the text under the automation's name."""
        again = " (may be a repeat)" if intent.attempt > 1 else ""
        message = await self._chat.post("drumbeat", f"{intent.name}{again}: {intent.text}")
        return Receipt(id=message.id)


class Answers:
    """Takes what people write to the engine, and the agent's answers back to the channel.

    A thread goes on: an answer of the agent can be answered too. The channel knows which message
    began it, and that is the one that the engine knows.
    """

    def __init__(self, chat: Chat, engine: Engine) -> None:
        self._chat = chat
        self._engine = engine

    async def serve(self) -> None:
        """Answer each message in a task of its own, until the channel is closed."""
        async with anyio.create_task_group() as group:
            async for message in self._chat.incoming():
                group.start_soon(self._answer, message)

    async def _answer(self, message: Message) -> None:
        root = self._root(message)
        if root is None:
            return  # people talk among themselves
        try:
            reply = await self._engine.reply(root.id, message.text, wait=PATIENCE)
        except NotFound:
            await self._say(message, "I do not remember what this was about any more.")
        except SessionBusy:
            await self._say(message, "I am still at work on this. Please ask again later.")
        except EngineBusy:
            await self._say(message, "I am about to stop. Please ask again in a minute.")
        except AgentError as error:
            await self._say(message, f"That went wrong: {error.problem.message}")
        else:
            await self._say(message, reply.text.strip() or "(nothing)")

    def _root(self, message: Message) -> Message | None:
        """The message of an automation that began the thread, if one did."""
        while message.answers is not None:
            message = self._chat.messages[message.answers]
        return message if message.author == "drumbeat" else None

    async def _say(self, to: Message, text: str) -> None:
        await self._chat.post("drumbeat", text, answers=to.id)
