"""What looks like a secret, what does not, and that it is kept out of messages."""

import pytest

from drumbeat.core.messages import quoted
from drumbeat.core.secret_shapes import find_secrets, hide_secrets

# Put together here, so that no scanner takes this file for a leak.
SECRETS = [
    ("a private key", "-----BEGIN " + "RSA PRIVATE KEY-----"),
    ("a GitHub token", "ghp_" + "a1B2" * 9),
    ("a GitHub token", "github_pat_" + "a1B2" * 8),
    ("a GitLab token", "glpat-" + "a1B2" * 5),
    ("a Slack token", "xoxb-" + "123456789012-abc"),
    ("an AWS access key", "AKIA" + "ABCD1234" * 2),
    ("a Google API key", "AIza" + "a1B2-" * 7),
    ("a Stripe key", "sk_live_" + "a1B2" * 5),
    ("a model provider's API key", "sk-ant-api03-" + "a1B2" * 8),
    ("a model provider's API key", "sk-" + "a1B2" * 8),
    ("a signing secret", "whsec_" + "a1B2" * 6),
    ("an npm token", "npm_" + "a1B2" * 9),
    ("a PyPI token", "pypi-" + "a1B2" * 14),
    ("a Hugging Face token", "hf_" + "a1B2" * 9),
    ("a JSON web token", "eyJ" + "a1B2" * 4 + ".eyJ" + "a1B2" * 4 + "." + "a1B2" * 8),
    ("a bearer token", "Bearer " + "a1B2" * 6),
    ("a password in a URL", "https://ana:" + "hunter2@example.org"),
    ("a credential", "api_key: " + "a1B2c3D4e5F6"),
    ("a credential", 'password = "' + "correct7horse"),
]


@pytest.mark.parametrize("what, secret", SECRETS)
def test_a_secret_is_found_in_its_place_and_hidden(what: str, secret: str) -> None:
    text = f"\u00e4 use {secret} for it"
    (found,) = find_secrets(text)
    assert found.what == what
    assert (found.start, text[found.start : found.end]) == (6, secret.removesuffix("example.org"))
    assert secret not in hide_secrets(text)
    assert "[hidden]" in quoted(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "reply with exactly NOTHING_TO_REPORT",
        "max_tokens: 4000",
        "api_key: $API_KEY_V2_FROM_ENV",
        "the token: see the vault",
        "a task-force-for-the-whole-of-europe",
        "sk-this-is-only-a-long-word-with-dashes",
        "https://example.org:8080/a@b",
        "https://user:${PASSWORD_1}@example.org",
        "https://user:<password1>@example.org",
        "Bearer of good news which are very long",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "AKIA is a prefix",
        "mail ana@example.org",
    ],
)
def test_ordinary_text_is_no_secret(text: str) -> None:
    assert find_secrets(text) == ()
    assert hide_secrets(text) == text


def test_several_secrets_come_in_order_and_without_overlaps() -> None:
    key = "sk-" + "a1B2" * 8
    text = f"token: {key} and Authorization: Bearer {key}"
    found = find_secrets(text)
    assert [each.start for each in found] == [0, text.index("Bearer")]
    assert "a1B2" not in hide_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "eyJ" * 20_000,
        "-eyJa" * 10_000,
        "sk-" * 20_000,
        "token:" * 10_000,
        "a://" * 16_000,
        "Bearer " * 9_000,
        "https://a:" * 6_000,
        "-----BEGIN " * 6_000,
        "api key" * 9_000,
    ],
)
def test_hostile_text_is_searched_all_the_same(text: str) -> None:
    """Each repeats the beginning of a shape; none is one."""
    assert find_secrets(text) == ()
