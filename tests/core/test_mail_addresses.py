"""Address headers: what is plain is read, what readers disagree about is doubtful, all else too."""

import email.message
import email.policy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.mail_addresses import ascii_lower, decoded, mailboxes


def read(raw: str) -> list[str]:
    """The addresses of a header, `?` for one that is doubtful."""
    return ["?" if each.doubtful else each.address for each in mailboxes(raw)]


@pytest.mark.parametrize(
    "raw, addresses",
    [
        ("", []),
        (" \r\n\t", []),
        (" , ,", []),
        ("you@acme.com", ["you@acme.com"]),
        (" <You@Acme.com> ", ["You@Acme.com"]),
        ("You <you@acme.com>", ["you@acme.com"]),
        ("You\r\n <you@acme.com>", ["you@acme.com"]),
        ('"You, Me" <you@acme.com>', ["you@acme.com"]),
        ('"a\\"b@c.d" <you@acme.com>', ["you@acme.com"]),
        ("Y. Ou <you@acme.com>", ["you@acme.com"]),
        ("Y (the (real) one\\)) Ou <you@acme.com>", ["you@acme.com"]),
        ("you@acme.com (You)", ["you@acme.com"]),
        ("(You) you@acme.com", ["you@acme.com"]),
        ("you@acme.com <you@ACME.com>", ["you@ACME.com"]),
        ("Müller <you@acme.com>", ["you@acme.com"]),
        ("M\udcfcller <you@acme.com>", ["you@acme.com"]),
        ("=?utf-8?q?M=C3=BCller=2C_A?= <you@acme.com>", ["you@acme.com"]),
        ("a+b.c@acme.com", ["a+b.c@acme.com"]),
        ('"you"@acme.com', ["you@acme.com"]),
        ('"you there"@acme.com', ['"you there"@acme.com']),
        ('"a@acme.com"@evil.com', ['"a@acme.com"@evil.com']),
        ("a@b.c, d@e.f", ["a@b.c", "d@e.f"]),
        ("a@b.c; d@e.f", ["a@b.c", "d@e.f"]),
        ("A <a@b.c>, d@e.f,", ["a@b.c", "d@e.f"]),
        ("Team: a@b.c, D <d@e.f>;", ["a@b.c", "d@e.f"]),
        ("Team: a@b.c;, x@y.z", ["a@b.c", "x@y.z"]),
        ("undisclosed-recipients:;", []),
        ("you@bücher.de", ["you@bücher.de"]),
        ("you@acme.com.", ["you@acme.com."]),
    ],
)
def test_plain_headers_are_read(raw: str, addresses: list[str]) -> None:
    assert read(raw) == addresses


@pytest.mark.parametrize(
    "raw, addresses",
    [
        ("You", ["?"]),
        ("you@", ["?"]),
        ("@acme.com", ["?"]),
        ("<>", ["?"]),
        ("<you@acme.com", ["?"]),
        ("<you@acme.com, a@b.c", ["?"]),
        ("you@acme.com>", ["?"]),
        ("<you@acme.com> x", ["?"]),
        ("a > b <you@acme.com>", ["?"]),
        ("<<you@acme.com>>", ["?"]),
        ("<evil@bad.com> <you@acme.com>", ["?"]),
        ("you@acme.com <evil@bad.com>", ["?"]),
        ("evil@bad.com, <you@acme.com>", ["evil@bad.com", "you@acme.com"]),
        ("<@relay.com:you@acme.com>", ["?"]),
        ("<you@acme.com@bad.com>", ["?"]),
        ("you@acme.com: evil@bad.com;", ["?"]),
        ("you @ acme.com", ["?"]),
        ("you@acme.com evil", ["?"]),
        ("you(x)@acme.com", ["?"]),
        ("y ou@acme.com", ["?"]),
        ("you..me@acme.com", ["?"]),
        (".you@acme.com", ["?"]),
        ('"you".me@acme.com', ["?"]),
        ('you@"acme.com"', ["?"]),
        ("you@[127.0.0.1]", ["?"]),
        ("=?utf-8?q?you?=@acme.com", ["?"]),
        ("you@=?utf-8?q?acme.com?=", ["?"]),
        ('"you <you@acme.com>', ["?"]),
        ("(you <you@acme.com>", ["?"]),
        ("(\\", ["?"]),
        ("you\\@acme.com", ["?"]),
        ('a@b.c, "never ends, d@e.f', ["a@b.c", "?"]),
    ],
)
def test_what_can_be_read_in_several_ways_is_doubtful(raw: str, addresses: list[str]) -> None:
    assert read(raw) == addresses


def test_the_display_name_is_kept_as_written() -> None:
    (mailbox,) = mailboxes('"a@b.c" von Y. <you@acme.com>')
    assert mailbox.name == "a@b.c von Y."


local_parts = st.from_regex(r"[a-z0-9!#+=_-]{1,8}(\.[a-z0-9]{1,5})?", fullmatch=True)
domains = st.from_regex(r"[a-z0-9-]{1,8}(\.[a-z]{2,4}){1,2}", fullmatch=True)
addresses = st.builds("{}@{}".format, local_parts, domains)


@given(st.lists(addresses, min_size=1, max_size=4))
def test_plain_addresses_are_read_as_by_the_standard_library(given_addresses: list[str]) -> None:
    raw = ", ".join(f"Some One <{each}>" for each in given_addresses)
    message = email.message.EmailMessage(policy=email.policy.default)
    message["To"] = raw
    header: Any = message["To"]
    assert read(raw) == [each.addr_spec for each in header.addresses] == given_addresses


@given(st.text() | st.text('ab@<>()",;:.\\ []=?'))
def test_any_text_is_read_and_an_address_has_one_at_outside_quotes(raw: str) -> None:
    for mailbox in mailboxes(raw):
        assert mailbox.doubtful or mailbox.address.rpartition('"')[2].count("@") == 1


def test_long_headers_are_read_in_one_pass() -> None:
    for raw in ("<" + "," * 200_000, "a:" * 100_000, "(" * 200_000, '"\\' * 100_000):
        assert len(mailboxes(raw)) <= 1
    assert len(mailboxes("a@b.c," * 50_000)) == 50_000


@given(st.text())
def test_lower_case_is_that_of_ascii_alone(text: str) -> None:
    lower = ascii_lower(text)
    assert lower.encode("utf-8", "surrogatepass") == text.encode("utf-8", "surrogatepass").lower()


# ---- text for people


@pytest.mark.parametrize(
    "raw, text",
    [
        ("plain", "plain"),
        (" folded\r\n  line ", "folded   line"),
        ("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        ("=?utf-8?b?R3LDvMOfZQ==?= und 中 =?latin-1?q?=FC?=", "Grüße und 中 ü"),
        ("=?unknown-charset?q?a=FCb?=", "a\ufffdb"),
        ("=?hex?q?6161?=", "6161"),
        ("=?utf-8?q?=FF?=", "\ufffd"),
        ("=?utf-8?b?A?=", "=?utf-8?b?A?="),
        ("bell\x07 \udcfc \u2028x", "bell     x"),
        ("=?utf-8?q?a=0D=0Ab?=", "a b"),
        ("x" * 5000, "x" * 2000),
    ],
)
def test_a_header_is_shown_as_text(raw: str, text: str) -> None:
    assert decoded(raw) == text


@given(st.text() | st.builds("=?{}?{}?{}?=".format, st.text(max_size=9), st.text("qb"), st.text()))
def test_any_header_is_shown_and_can_be_stored(raw: str) -> None:
    shown = decoded(raw)
    assert shown.encode().decode() == shown
    assert "\n" not in shown
