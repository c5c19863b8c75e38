"""What the IMAP source decides without a server: marks, headers, DMARC results."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.errors import MailError
from drumbeat.imap.authentication import dmarc_result
from drumbeat.imap.headers import message_id, parse_headers
from drumbeat.imap.mark import Mark, format_mark, parse_mark

NUMBERS = st.integers(0, 2**32 - 1)
TIMES = st.none() | st.integers(1, 10**10).map(lambda at: datetime.fromtimestamp(at, UTC))

# ---- marks


@given(validity=NUMBERS, uid=NUMBERS, until=NUMBERS, born=TIMES, newest=TIMES)
def test_a_mark_reads_back(
    validity: int, uid: int, until: int, born: datetime | None, newest: datetime | None
) -> None:
    mark = Mark(validity=validity, uid=uid, until=until, born=born, newest=newest)
    again = parse_mark(format_mark(mark))
    assert again == Mark(
        validity=validity, uid=uid, until=until if uid < until else 0, born=born, newest=newest
    )
    assert format_mark(again) == format_mark(mark)
    assert len(format_mark(mark)) < 64


@pytest.mark.parametrize(
    "text",
    ["", "12", "imap1:1:2:0:0", "imap2:1:2:0:0:0", "imap1:1:2:0:0:-1", "imap1:01:2:0:0:0"],
)
def test_what_is_no_mark_is_refused(text: str) -> None:
    """Taken for none, it would lose the mail that came meanwhile."""
    with pytest.raises(MailError, match="mail-mark-unknown"):
        parse_mark(text)


# ---- headers


@pytest.mark.parametrize(
    "block, headers",
    [
        (b"", ()),
        (b"A: b\r\nC:d\r\n\r\nE: body\r\n", (("A", "b"), ("C", "d"))),
        (b"Subject: one\r\n two\r\n\tthree\r\n", (("Subject", "one two\tthree"),)),
        (b"A: b\nC: d\n", (("A", "b"), ("C", "d"))),
        (b"From : a@b\r\n", (("From ", "a@b"),)),
        (b"From: a@b\r\nno header\r\n folded\r\nFrom: c@d\r\n", (("From", "a@b"), ("From", "c@d"))),
        (b" folded into nothing\r\nA: b\r\n", (("A", "b"),)),
        (b"A: b\r\n" + b" c\n" * 3 + b"D: e\n" + b"\tf" * 2, (("A", "b c c c"), ("D", "e\tf\tf"))),
        (b"Subject: caf\xc3\xa9\r\nX: caf\xe9\r\n", (("Subject", "café"), ("X", "café"))),
        (b"Subject: a\0b\rFrom: c\r\n", (("Subject", "a\0b\rFrom: c"),)),
        (b"A:\r\n", (("A", ""),)),
    ],
)
def test_headers_are_read_raw_and_in_order(
    block: bytes, headers: tuple[tuple[str, str], ...]
) -> None:
    assert parse_headers(block) == headers


@given(st.binary())
def test_no_block_of_headers_raises_and_all_can_be_stored(block: bytes) -> None:
    for name, value in parse_headers(block):
        assert name
        (name + value).encode("utf-8")


@pytest.mark.parametrize(
    "values, found",
    [
        (["<a@b>"], "<a@b>"),
        ([], None),
        (["<a@b>", "<c@d>"], None),
        (["a@b"], None),
        (["<a b@c>"], None),
        (["<a@b> <c@d>"], None),
        (["<" + "a" * 256 + ">"], None),
        (["<ä@b>"], None),
        (["<a\0@b>"], None),
        (["<>"], None),
    ],
)
def test_a_message_id_is_one_and_in_shape(values: list[str], found: str | None) -> None:
    assert message_id([("Message-ID", value) for value in values]) == found


# ---- DMARC

OURS = "mx.google.com"


@pytest.mark.parametrize(
    "values, result",
    [
        ([f"{OURS}; dkim=pass header.i=@a.b; dmarc=pass (p=NONE) header.from=a.b"], "pass"),
        ([f"{OURS}; dmarc=fail (p=REJECT; sp=x) header.from=a.b; spf=pass"], "fail"),
        (["MX.Google.com 1; DMARC / 1 = Fail"], "fail"),
        ([f'"{OURS}"; dmarc=pass'], "pass"),
        ([f"{OURS} (a (nested) comment); dmarc=pass"], "pass"),
        # the sender's own claims: below, of another server, in a comment, in a quoted text
        ([f"{OURS}; dmarc=fail", f"{OURS}; dmarc=pass"], "fail"),
        (["evil.example; dmarc=pass"], None),
        (["evil.example; dmarc=pass", f"{OURS}; dmarc=fail"], "fail"),
        ([f"{OURS}.evil.example; dmarc=pass"], None),
        ([f"{OURS}; spf=pass (dmarc=pass; dmarc=pass)"], None),
        ([f'{OURS}; spf=fail reason="; dmarc=pass"; dmarc=fail'], "fail"),
        ([f'{OURS}; spf=fail reason="a\\"; dmarc=pass; "'], None),
        ([f"{OURS}; x=(a\\); dmarc=pass"], None),
        ([f"{OURS}; xdmarc=pass; dmarc-x=pass; spf=pass dmarc=pass"], None),
        # several milters, each with a header of its own
        ([f"{OURS}; dkim=pass", f"{OURS}; dmarc=fail"], "fail"),
        # neither passed nor failed
        ([f"{OURS}; dmarc=none"], None),
        ([f"{OURS}; dmarc=temperror", f"{OURS}; dmarc=pass"], None),
        ([f"{OURS}; dmarc=pass; dmarc=none"], None),
        ([f"{OURS}; dmarc=pass; dmarc=fail"], "fail"),
        ([f"{OURS}; dmarc=passed-by"], None),
        ([f"{OURS}; none"], None),
        # what can be read in several ways
        ([f"{OURS}; spf=pass (; dmarc=pass", f"{OURS}; dmarc=pass"], None),
        ([f'{OURS}; "dmarc=pass'], None),
        ([f"{OURS}; spf=pass ) ; dmarc=pass"], None),
        ([""], None),
        ([], None),
    ],
)
def test_dmarc_is_what_the_receiving_server_found(values: list[str], result: str | None) -> None:
    headers = [("Authentication-Results", value) for value in values]
    assert dmarc_result([("Received", "by x"), *headers], OURS) == result


def test_without_a_name_no_server_is_trusted() -> None:
    assert dmarc_result([("Authentication-Results", f"{OURS}; dmarc=pass")], None) is None


@given(st.text(alphabet='ab ();"\\=dmrc', max_size=40))
def test_no_header_of_results_raises(value: str) -> None:
    assert dmarc_result([("Authentication-Results", value)], "a") in (None, "pass", "fail")
