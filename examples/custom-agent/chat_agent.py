"""An agent for a chat service: which conversation a turn belongs to, and what each error means."""

from datetime import timedelta

from chat_api import ApiError, ChatApi

from drumbeat import (
    Agent,
    AgentError,
    AgentUnavailable,
    ContextCeiling,
    ConversationNotFound,
    Reply,
    Turn,
    Usage,
    is_context_ceiling,
)


class ChatAgent(Agent):
    """Takes each turn in a thread of the service.

    The service names its threads itself, so the thread's id goes back as `Reply.handle`; the engine
    keeps it beside the session id and hands it in again as `Turn.handle`. Nothing about a
    conversation is kept here, so a restart of the host loses none.
    """

    def __init__(self, api: ChatApi, *, model: str = "chat-small") -> None:
        self._api = api
        self._model = model

    async def take_turn(self, turn: Turn, /) -> Reply:
        """Send `turn.text` into the conversation's thread, or into one begun for it."""
        if not turn.is_new and turn.handle is None:
            raise ConversationNotFound(f"no thread is known for session {turn.session_id}")
        model = model_of(turn, default=self._model)
        try:
            thread = turn.handle or await self._api.create_thread(system=turn.system_prompt)
            answer = await self._api.send(
                thread,
                turn.text,
                model=model,
                # The id stays over retries: an answer that was lost on the way is not paid twice.
                # It goes with the session, for a turn may be taken again in another conversation.
                idempotency_key=f"{turn.session_id}/{turn.turn_id}",
            )
        except ApiError as error:
            raise meaning(error) from error
        return Reply(
            text=answer.text,
            usage=Usage(input_tokens=answer.tokens_in, output_tokens=answer.tokens_out),
            provider="chat",
            model=model,
            handle=thread,
        )


def model_of(turn: Turn, *, default: str) -> str:
    """The model that the automation's `agent_config` asks for, or else the host's."""
    config = turn.config.get("provider", {}).get("config", {})
    return str(config.get("default_model", default))


def meaning(error: ApiError) -> AgentError:
    """What an error of the service means to the engine.

    Unavailable is tried again; a full or lost conversation gets a fresh one; everything else fails
    the run, with a code that says which failures have one cause.
    """
    message = str(error)
    if error.status == 429 or error.status >= 500:
        wait = None if error.retry_after is None else timedelta(seconds=error.retry_after)
        return AgentUnavailable(message, retry_after=wait)
    if error.status == 404:
        return ConversationNotFound(message)
    if is_context_ceiling(message):
        return ContextCeiling(message)
    if error.status in (401, 403):
        return AgentError(message, code="chat-credentials")
    return AgentError(message, code=f"chat-{error.status}")
