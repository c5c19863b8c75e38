"""What a secret looks like, so that one in a file is noticed and none gets into a message."""

import re
from collections.abc import Iterator

import attrs

__all__ = ["SecretShape", "find_secrets", "hide_secrets"]

# Every repetition is bounded or cannot overlap what follows it, so that a search stays linear.
# A lookbehind keeps a shape from beginning in the middle of a word.
_SHAPES = (
    ("a private key", r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"),
    ("a GitHub token", r"(?<![A-Za-z0-9_])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{22,255})"),
    ("a GitLab token", r"(?<![A-Za-z0-9_])glpat-[A-Za-z0-9_-]{20,255}"),
    ("a Slack token", r"(?<![A-Za-z0-9_])xox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    ("an AWS access key", r"(?<![A-Za-z0-9_])(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])"),
    ("a Google API key", r"(?<![A-Za-z0-9_])AIza[0-9A-Za-z_-]{35}"),
    ("a Stripe key", r"(?<![A-Za-z0-9_])[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}"),
    ("a model provider's API key", r"(?<![A-Za-z0-9_])sk-(?=[a-z-]{0,20}[A-Z0-9])[\w-]{20,255}"),
    ("a signing secret", r"(?<![A-Za-z0-9_])whsec_[A-Za-z0-9+/]{16,255}"),
    ("an npm token", r"(?<![A-Za-z0-9_])npm_[A-Za-z0-9]{36}"),
    ("a PyPI token", r"(?<![A-Za-z0-9_])pypi-[A-Za-z0-9_-]{50,255}"),
    ("a Hugging Face token", r"(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{30,255}"),
    (
        "a JSON web token",
        r"(?<![A-Za-z0-9_])eyJ[\w-]{10,2000}\.[\w-]{10,2000}\.[\w-]{10,2000}",
    ),
    ("a bearer token", r"(?i:(?<![a-z])bearer) +(?=[^\s]{0,200}\d)[A-Za-z0-9._~+/-]{20,2000}"),
    (
        "a password in a URL",
        r"(?<![A-Za-z0-9])[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,64}:"
        r"(?![$<{*%\[])[^\s/@]{3,128}@",
    ),
    (
        "a credential",
        r"(?i:(?:api[ _-]?key|token|secret|password|passwd|authorization))[\"']?[ ]?[:=][ ]?"
        r"[\"']?(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])[A-Za-z0-9+/_.~-]{12,2000}",
    ),
)
_COMPILED = tuple((what, re.compile(pattern, re.ASCII)) for what, pattern in _SHAPES)


@attrs.frozen(kw_only=True)
class SecretShape:
    """A stretch of text that looks like a secret: what kind, and where in the text."""

    what: str
    start: int
    end: int


def find_secrets(text: str) -> tuple[SecretShape, ...]:
    """Find what looks like a secret, in order, without overlaps; what it is, never its value."""
    return tuple(_apart(sorted(_matches(text), key=lambda found: (found.start, -found.end))))


def hide_secrets(text: str) -> str:
    """Return `text` with `[hidden]` in place of whatever looks like a secret."""
    for found in reversed(find_secrets(text)):
        text = f"{text[: found.start]}[hidden]{text[found.end :]}"
    return text


def _matches(text: str) -> Iterator[SecretShape]:
    for what, pattern in _COMPILED:
        for match in pattern.finditer(text):
            yield SecretShape(what=what, start=match.start(), end=match.end())


def _apart(found: list[SecretShape]) -> Iterator[SecretShape]:
    end = 0
    for shape in found:
        if shape.start >= end:
            yield shape
            end = shape.end
