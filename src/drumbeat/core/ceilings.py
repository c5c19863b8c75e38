"""How the usual providers say that a conversation has outgrown the model's context."""

import re

__all__ = ["is_context_ceiling"]

# Codes and class names say it beyond doubt, whatever else a wrapped message holds.
_CODES = re.compile(
    r"context_length_exceeded|exceed_context_size_error|model_context_window_exceeded"
    r"|model_max_prompt_tokens_exceeded|contextwindowexceedederror|contextoverflowerror"
)

# What sounds alike and is mended by waiting or by asking for a shorter answer.
_OTHERS = re.compile(
    r"\brate[ _-]?limit|\bquota|\btpm\b|\btokens?[ _]per[ _](?:min|minute|hour|day)\b"
    r"|too many tokens, please wait|too many tokens per\b"
    r"|'?\bmax_(?:completion_|output_|new_)?tokens'?(?: or '?max_(?:completion_)?tokens'?)?"
    r" is too large"
)

_WORDINGS = (
    # OpenAI, Azure, DeepSeek, OpenRouter, xAI, vLLM, Groq, Cerebras
    r"\bmaximum (?:context|prompt) length is [\d,]+",
    r"\breduce the length of the messages\b",
    # OpenAI, Anthropic, llama.cpp and its Python binding, SGLang, Ollama, LiteLLM
    r"\bexceed(?:s|ed)? (?:the )?(?:model'?s? )?(?:maximum |max |available )?"
    r"context (?:window|size|length|limit)\b",
    # Anthropic, on its own and behind other doors; vLLM, Fireworks, Ollama
    r"\b(?:prompt|conversation)(?: \([\d,]+ tokens\))? (?:is )?too long\b",
    r"\bcontext limit reached\b",
    # Gemini, Vertex
    r"\binput token count\b.{0,40}\bexceeds the maximum number of tokens\b",
    r"\binput token count is [\d,]+ but (?:the )?model only supports\b",
    # Bedrock
    r"\binput is too long for (?:the )?requested model\b",
    r"\btoo many input tokens\b",
    r"\bnumber of input tokens exceeds\b",
    # Mistral
    r"\btoo large for model with [\d,]+ maximum context length\b",
    # Cohere
    r"\btoo many tokens: (?:total number of tokens in the prompt cannot exceed"
    r"|size limit exceeded)\b",
    # LM Studio
    r"\bmodel is loaded with context length of only\b",
    r"\breached context length of [\d,]+ tokens\b",
    # vLLM, SGLang, Text Generation Inference
    r"\bis longer than the (?:maximum model length|model'?s context length)\b",
    r"\binputs`? tokens \+ `?max_new_tokens`? must be <=",
    r"\binputs`? must have less than [\d,]+ tokens\b",
    # Copilot, Moonshot, MiniMax, DashScope, Zhipu
    r"\bprompt token count of [\d,]+ exceeds the limit\b",
    r"\brequest exceeded model token limit\b",
    r"\bcontext window exceeds limit\b",
    r"\brange of input length should be \[",
    r"\bprompt exceeds max(?:imum)? length\b",
)
_SAYS_SO = re.compile("|".join(_WORDINGS))


def is_context_ceiling(message: str) -> bool:
    """Whether a provider's error message says that the conversation is too long for the model.

    For agents that have only a text to go by: one that says so is raised as `ContextCeiling`,
    upon which the engine rotates the conversation. Knows the wordings of OpenAI, Azure, Anthropic,
    Gemini, Bedrock, Mistral, Cohere, xAI, DeepSeek, OpenRouter, Moonshot, llama.cpp, Ollama,
    LM Studio, vLLM, SGLang and Text Generation Inference. Rate limits counted in tokens and
    answers that were asked to be too long are none, since a fresh conversation mends neither.

    Args:
        message: the provider's message, alone or inside a longer error text. Case, line breaks and
            the shape of apostrophes do not count.
    """
    text = " ".join(message.casefold().replace("\u2019", "'").split())
    if _CODES.search(text):
        return True
    return _OTHERS.search(text) is None and _SAYS_SO.search(text) is not None
