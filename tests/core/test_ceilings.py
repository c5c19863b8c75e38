# ruff: noqa: E501  a message stands on one line, as a provider sends it
import pytest

from drumbeat.core.ceilings import is_context_ceiling

CEILINGS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. Please reduce the length of the messages.",
    "This model’s maximum context length is 4,097 tokens,\nhowever you requested 4360 tokens",
    "Error code: 400 - {'error': {'code': 'context_length_exceeded', 'type': 'rate_limit'}}",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
    "stop_reason: model_context_window_exceeded",
    "Prompt is too long",
    "Conversation too long. Press esc twice to go up a few messages and try again.",
    "Context limit reached",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Unable to submit request because the input token count is 40000 but model only supports up to 32768.",
    "Input is too long for requested model.",
    "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
    "The prompt exceeds the model's context limit of 8192 tokens",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.",
    "too many tokens: size limit exceeded by 4235 tokens.",
    "the request exceeds the available context size. try increasing the context size",
    "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    '{"type":"exceed_context_size_error"}',
    "Requested tokens (5000) exceed context window of 4096",
    "input length exceeds maximum context length",
    "the input length exceeds the context length",
    "prompt too long; exceeded max context length by 1200 tokens",
    "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
    "Reached context length of 4096 tokens with model (arch: llama)",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "Input prompt (5000 tokens) is too long and exceeds limit of 4096",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "Requested token count exceeds the model's maximum context length of 8192 tokens.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 200 `max_new_tokens`",
    "`inputs` must have less than 4096 tokens. Given: 5000",
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "This endpoint's maximum context length is 200000 tokens. However, you requested about 210000 tokens",
    "prompt token count of 140000 exceeds the limit of 128000",
    "Invalid request: Your request exceeded model token limit: 131072",
    "invalid params, context window exceeds limit (2013)",
    "Range of input length should be [1, 129024]",
    "Prompt exceeds max length",
    "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
    "litellm.ContextWindowExceededError: BadRequestError",
]  # fmt: skip

OTHERS = [
    "",
    "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31000. The input or output tokens must be reduced in order to run successfully.",
    "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 8000, please reduce your message size and try again.",
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute.",
    "Too many tokens, please wait before trying again.",
    "Too many tokens per day, please wait before trying again.",
    "Quota exceeded for quota metric 'Generate Content API requests per minute'",
    "You exceeded your current quota: input token count exceeds the maximum number of tokens of the free tier",
    "max_tokens: 300000 > 8192, which is the maximum allowed number of output tokens for claude",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
    "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context length is 8192 tokens and your request has 100 input tokens (9000 > 8192 - 100).",
    "The maximum tokens you requested exceeds the model limit of 4096.",
    "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576",
    "Overloaded",
    "The context was cancelled: context deadline exceeded",
    "Internal server error",
    "the run exceeded its time limit",
]  # fmt: skip


@pytest.mark.parametrize("message", CEILINGS)
def test_the_wordings_of_the_usual_providers_are_known(message: str) -> None:
    assert is_context_ceiling(message)
    assert is_context_ceiling(f"HTTP 400:\n  {message.upper()}")


@pytest.mark.parametrize("message", OTHERS)
def test_what_a_fresh_conversation_would_not_mend_is_no_ceiling(message: str) -> None:
    assert not is_context_ceiling(message)
