"""What a host checks of its own agent: the engine's contract first, then what its errors mean."""

from datetime import timedelta

import pytest
from chat_agent import ChatAgent, meaning
from chat_api import ApiError, ChatApi

from drumbeat import AgentError, AgentUnavailable, ContextCeiling, ConversationNotFound
from drumbeat.testing import check_agent


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio."""
    return "asyncio"


@pytest.mark.anyio
async def test_the_agent_keeps_the_contract() -> None:
    """Conversations, errors and cancellation are as the engine counts on."""
    await check_agent(lambda: ChatAgent(ChatApi()))


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (ApiError(503, "Overloaded."), AgentUnavailable, "agent-unavailable"),
        (ApiError(404, "No thread found."), ConversationNotFound, "conversation-missing"),
        (
            ApiError(400, "This model's maximum context length is 4000 tokens."),
            ContextCeiling,
            "context-ceiling",
        ),
        (ApiError(401, "Invalid API key."), AgentError, "chat-credentials"),
        (ApiError(422, "No such model."), AgentError, "chat-422"),
    ],
)
def test_an_error_of_the_service_has_one_meaning(
    error: ApiError, kind: type[AgentError], code: str
) -> None:
    """Each answer of the service becomes the exception that the engine acts upon."""
    found = meaning(error)
    assert type(found) is kind
    assert found.code == code


def test_a_named_pause_is_handed_on() -> None:
    """`Retry-After` reaches the engine as the shortest wait."""
    found = meaning(ApiError(429, "Too many requests.", retry_after=2.5))
    assert isinstance(found, AgentUnavailable)
    assert found.retry_after == timedelta(seconds=2.5)
