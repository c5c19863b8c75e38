"""Ways of `auth`: the published examples pass, and nothing that was changed does."""

import base64
import hmac
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.model import Refused
from drumbeat.core.signatures import (
    WINDOW,
    Auth,
    Headers,
    Signed,
    check_signature,
    parse_auth,
)
from drumbeat.core.vocabulary import AUTH_SCHEMES
from drumbeat.errors import InvalidValue

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
SECRET = "correct horse battery staple"

# "Validating webhook deliveries", docs.github.com
GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB_BODY = b"Hello, World!"
GITHUB_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

# "Verifying requests from Slack", docs.slack.dev
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SLACK_NOW = datetime.fromtimestamp(1531420618, tz=UTC)
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SLACK_HEADERS = {
    "X-Slack-Request-Timestamp": "1531420618",
    "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
}

# "Verifying webhooks manually", docs.svix.com; Standard Webhooks signs the same way
SVIX_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SVIX_NOW = datetime.fromtimestamp(1614265330, tz=UTC)
SVIX_BODY = b'{"test": 2432232314}'
SVIX_HEADERS = {
    "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "svix-timestamp": "1614265330",
    "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def check(
    auth: str,
    headers: dict[str, str],
    body: bytes = b"",
    *,
    secret: str = SECRET,
    now: datetime = NOW,
) -> Signed | Refused:
    return check_signature(
        parse_auth(auth), headers=Headers(headers), body=body, secret=secret, now=now
    )


def code(checked: Signed | Refused) -> str:
    return checked.code if isinstance(checked, Refused) else "signed"


def basic(user: str, password: str) -> dict[str, str]:
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def hexed(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, sha256).hexdigest()


def slack(body: bytes, at: datetime, *, secret: str = SLACK_SECRET) -> dict[str, str]:
    seconds = str(int(at.timestamp()))
    base = b"v0:" + seconds.encode() + b":" + body
    return {
        "X-Slack-Request-Timestamp": seconds,
        "X-Slack-Signature": "v0=" + hexed(base, secret),
    }


def svix(
    body: bytes, at: datetime, *, id: str = "msg_1", family: str = "webhook"
) -> dict[str, str]:
    seconds = str(int(at.timestamp()))
    key = base64.b64decode(SVIX_SECRET.removeprefix("whsec_"))
    base = id.encode() + b"." + seconds.encode() + b"." + body
    digest = base64.b64encode(hmac.new(key, base, sha256).digest()).decode()
    return {
        f"{family}-id": id,
        f"{family}-timestamp": seconds,
        f"{family}-signature": f"v1,{digest}",
    }


# ---- which ways there are


@pytest.mark.parametrize("scheme", AUTH_SCHEMES)
def test_a_scheme_takes_no_variant(scheme: str) -> None:
    assert parse_auth(scheme) == Auth(scheme=scheme)
    with pytest.raises(InvalidValue) as caught:
        parse_auth(f"{scheme}:x")
    assert caught.value.problem.code == "auth-variant"
    assert caught.value.problem.column == len(scheme) + 1


def test_hmac_takes_the_name_of_a_header() -> None:
    assert parse_auth("hmac:X-Acme-Signature") == Auth(scheme="hmac", header="X-Acme-Signature")


@pytest.mark.parametrize(
    "text", ["hmac", "hmac:", "hmac:X Sig", "hmac:X:Y", "hmac:é", f"hmac:{'X' * 101}"]
)
def test_hmac_without_such_a_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_auth(text)
    assert caught.value.problem.code == "auth-header-missing"


@pytest.mark.parametrize("text", ["", "none", "GitHub", "bearer ", "githup", "token:x"])
def test_an_unknown_scheme_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_auth(text)
    assert caught.value.problem.code == "auth-unknown"
    assert "svix or hmac:<Header-Name>" in caught.value.problem.remedy


def test_a_misspelt_scheme_says_what_was_meant() -> None:
    with pytest.raises(InvalidValue, match="did you mean 'github'"):
        parse_auth("GitHub")


@pytest.mark.parametrize(
    "auth, name",
    [
        ("bearer", "AGENT_API_SECRET"),
        ("basic", "AGENT_API_SECRET"),
        ("github", "AGENT_API_SECRET"),
        ("gitlab", "AGENT_API_SECRET"),
        ("hmac:X-Sig", "AGENT_API_SECRET"),
        ("slack", "SLACK_SIGNING_SECRET"),
        ("svix", "SVIX_SECRET"),
    ],
)
def test_each_scheme_has_its_secret(auth: str, name: str) -> None:
    assert parse_auth(auth).secret_name == name


# ---- the published examples


def test_the_example_of_github_passes() -> None:
    headers = {"X-Hub-Signature-256": GITHUB_SIGNATURE}
    assert check("github", headers, GITHUB_BODY, secret=GITHUB_SECRET) == Signed()


def test_the_example_of_slack_passes() -> None:
    checked = check("slack", SLACK_HEADERS, SLACK_BODY, secret=SLACK_SECRET, now=SLACK_NOW)
    assert checked == Signed(delivery_id=SLACK_HEADERS["X-Slack-Signature"])


@pytest.mark.parametrize("family", ["svix", "webhook"])
def test_the_example_of_svix_passes_under_both_names_and_gives_its_id(family: str) -> None:
    headers = {name.replace("svix", family): value for name, value in SVIX_HEADERS.items()}
    checked = check("svix", headers, SVIX_BODY, secret=SVIX_SECRET, now=SVIX_NOW)
    assert checked == Signed(delivery_id="msg_p5jXN8AQM9LWM0D4loKWxJek")


# ---- what passes besides


@pytest.mark.parametrize(
    "auth, headers, secret",
    [
        ("bearer", {"authorization": f"Bearer {SECRET}"}, SECRET),
        ("bearer", {"AUTHORIZATION": f" bearer   {SECRET}\t"}, SECRET),
        ("bearer", {"Authorization": "Bearer pässwörd"}, "pässwörd"),
        ("bearer", {"Authorization": "Bearer pÃ¤ss"}, "päss"),
        ("bearer", {"Authorization": "Bearer 秘密"}, "秘密"),
        ("basic", basic("anyone", SECRET), SECRET),
        ("basic", basic("", SECRET), SECRET),
        ("basic", basic("a", "b:c"), "b:c"),
        ("basic", basic("ü", "pä:ss"), "pä:ss"),
        ("gitlab", {"X-Gitlab-Token": SECRET}, SECRET),
        ("hmac:X-Sig", {"x-sig": hexed(b"")}, SECRET),
        ("hmac:X-Sig", {"X-Sig": f"sha256={hexed(b'')}"}, SECRET),
        ("hmac:X-Sig", {"X-Sig": hexed(b"").upper()}, SECRET),
    ],
)
def test_a_sender_that_knows_the_secret_passes(
    auth: str, headers: dict[str, str], secret: str
) -> None:
    assert check(auth, headers, secret=secret) == Signed()


@pytest.mark.parametrize("secret", [SVIX_SECRET, SVIX_SECRET.removeprefix("whsec_")])
def test_the_prefix_of_a_svix_secret_may_be_left_out(secret: str) -> None:
    assert code(check("svix", svix(b"x", NOW), b"x", secret=secret)) == "signed"


def test_padding_of_a_svix_secret_does_not_count() -> None:
    key = base64.b64encode(b"0123456789").decode()
    digest = hmac.new(b"0123456789", b"m.1.x", sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    headers = {"webhook-id": "m", "webhook-timestamp": "1", "webhook-signature": signature}
    now = datetime.fromtimestamp(1, tz=UTC)
    for secret in (key, key.rstrip("="), f"whsec_{key}"):
        assert code(check("svix", headers, b"x", secret=secret, now=now)) == "signed"


def test_any_one_of_several_svix_signatures_is_enough() -> None:
    headers = svix(b"x", NOW)
    headers["webhook-signature"] = f"v1a,AAAA v1,BBBB {headers['webhook-signature']} v2,CCCC"
    assert code(check("svix", headers, b"x", secret=SVIX_SECRET)) == "signed"


def test_a_svix_id_beyond_ascii_is_signed_as_the_bytes_it_was() -> None:
    headers = svix(b"x", NOW, id="nächste")
    assert code(check("svix", headers, b"x", secret=SVIX_SECRET)) == "signed"
    headers["webhook-id"] = "nächste".encode().decode("latin-1")
    assert code(check("svix", headers, b"x", secret=SVIX_SECRET)) == "signed"


# ---- what does not


@pytest.mark.parametrize(
    "auth, headers, expected",
    [
        ("bearer", {}, "webhook-unsigned"),
        ("bearer", {"Authorization": ""}, "webhook-unsigned"),
        ("bearer", {"Authorization": "Bearer"}, "webhook-unsigned"),
        ("bearer", {"Authorization": "Bearer  "}, "webhook-unsigned"),
        ("bearer", {"Authorization": SECRET}, "webhook-unsigned"),
        ("bearer", basic("x", SECRET), "webhook-unsigned"),
        ("bearer", {"Authorization": "Bearer wrong"}, "webhook-signature"),
        ("bearer", {"Authorization": f"Bearer {SECRET}x"}, "webhook-signature"),
        ("bearer", {"Authorization": "Bearer 秘密\ud800"}, "webhook-signature"),
        ("bearer", {"Authorization": "Bearer x", "authorization": "y"}, "webhook-header-repeated"),
        ("basic", {}, "webhook-unsigned"),
        ("basic", {"Authorization": f"Bearer {SECRET}"}, "webhook-unsigned"),
        ("basic", {"Authorization": "Basic %%%"}, "webhook-signature"),
        ("basic", {"Authorization": "Basic YTpi="}, "webhook-signature"),
        ("basic", {"Authorization": "Basic é"}, "webhook-signature"),
        ("basic", basic("a", "wrong"), "webhook-signature"),
        ("basic", basic(SECRET, ""), "webhook-signature"),
        (
            "basic",
            {"Authorization": f"Basic {base64.b64encode(SECRET.encode()).decode()}"},
            "webhook-signature",
        ),
        ("gitlab", {}, "webhook-unsigned"),
        ("gitlab", {"X-Gitlab-Token": "wrong"}, "webhook-signature"),
        ("github", {"X-Hub-Signature": "sha1=00"}, "webhook-unsigned"),
        ("github", {"X-Hub-Signature-256": hexed(b"")}, "webhook-signature"),
        ("github", {"X-Hub-Signature-256": "sha256="}, "webhook-signature"),
        ("github", {"X-Hub-Signature-256": f"sha256={'é' * 64}"}, "webhook-signature"),
        ("github", {"X-Hub-Signature-256": f"sha256={'0' * 64}"}, "webhook-signature"),
        ("github", {"X-Hub-Signature-256": f"sha256={hexed(b'', 'other')}"}, "webhook-signature"),
        ("hmac:X-Sig", {"X-Other": hexed(b"")}, "webhook-unsigned"),
        ("hmac:X-Sig", {"X-Sig": f"sha512={hexed(b'')}"}, "webhook-signature"),
        ("slack", {}, "webhook-unsigned"),
        ("slack", {"X-Slack-Signature": "v0=00"}, "webhook-unsigned"),
        ("slack", slack(b"", NOW) | {"X-Slack-Request-Timestamp": "soon"}, "webhook-signature"),
        ("slack", slack(b"", NOW) | {"X-Slack-Request-Timestamp": "１"}, "webhook-signature"),
        ("slack", slack(b"", NOW), "webhook-signature"),
        ("svix", {}, "webhook-unsigned"),
        ("svix", {"svix-id": "m", "svix-timestamp": "1"}, "webhook-unsigned"),
        ("svix", svix(b"", NOW) | {"svix-id": "m"}, "webhook-unsigned"),
        ("svix", svix(b"", NOW) | {"webhook-timestamp": "1.5"}, "webhook-signature"),
        ("svix", svix(b"", NOW), "webhook-secret-unusable"),
    ],
)
def test_a_sender_that_cannot_be_told_is_rejected_and_no_secret_is_shown(
    auth: str, headers: dict[str, str], expected: str
) -> None:
    checked = check(auth, headers)
    assert isinstance(checked, Refused)
    assert checked.code == expected
    assert checked.status == (503 if expected == "webhook-secret-unusable" else 401)
    assert checked.reason
    for value in (SECRET, *headers.values()):
        assert len(value) < 10 or value not in checked.reason


@pytest.mark.parametrize("secret", ["whsec_", "whsec_é", "whsec_A", "=="])
def test_a_svix_secret_that_is_no_base64_is_the_receivers_fault(secret: str) -> None:
    checked = check("svix", svix(b"", NOW), secret=secret)
    assert isinstance(checked, Refused)
    assert (checked.code, checked.status) == ("webhook-secret-unusable", 503)
    assert "SVIX_SECRET" in checked.reason


def test_a_signature_of_another_version_is_none() -> None:
    headers = svix(b"x", NOW)
    headers["webhook-signature"] = headers["webhook-signature"].replace("v1,", "v2,")
    assert code(check("svix", headers, b"x", secret=SVIX_SECRET)) == "webhook-signature"


# ---- the window


@pytest.mark.parametrize(
    "off, expected",
    [
        (timedelta(0), "signed"),
        (WINDOW, "signed"),
        (-WINDOW, "signed"),
        (WINDOW + timedelta(seconds=1), "webhook-too-old"),
        (-WINDOW - timedelta(seconds=1), "webhook-too-old"),
        (timedelta(days=300), "webhook-too-old"),
    ],
)
def test_a_signed_time_counts_for_five_minutes_both_ways(off: timedelta, expected: str) -> None:
    headers = slack(b"x", NOW + off)
    assert code(check("slack", headers, b"x", secret=SLACK_SECRET)) == expected
    headers = svix(b"x", NOW + off)
    assert code(check("svix", headers, b"x", secret=SVIX_SECRET)) == expected


def test_a_signed_time_beyond_all_calendars_is_outside() -> None:
    base = b"v0:999999999999:x"
    headers = {
        "X-Slack-Request-Timestamp": "999999999999",
        "X-Slack-Signature": "v0=" + hexed(base, SLACK_SECRET),
    }
    assert code(check("slack", headers, b"x", secret=SLACK_SECRET)) == "webhook-too-old"


def test_a_zone_does_not_count_and_a_missing_one_is_refused() -> None:
    elsewhere = SLACK_NOW.astimezone(tz=None)
    checked = check("slack", SLACK_HEADERS, SLACK_BODY, secret=SLACK_SECRET, now=elsewhere)
    assert checked == Signed(delivery_id=SLACK_HEADERS["X-Slack-Signature"])
    with pytest.raises(ValueError, match="aware"):
        check("bearer", {}, now=NOW.replace(tzinfo=None))


# ---- any single change


def changed(data: bytes, at: int, by: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ by]) + data[at + 1 :]


changes = st.tuples(st.integers(0, 500), st.integers(1, 255))


@given(changes)
def test_a_body_with_one_other_byte_is_rejected(change: tuple[int, int]) -> None:
    github = {"X-Hub-Signature-256": GITHUB_SIGNATURE}
    body = changed(GITHUB_BODY, *change)
    assert code(check("github", github, body, secret=GITHUB_SECRET)) == "webhook-signature"
    assert (
        code(
            check(
                "hmac:X-Sig",
                {"X-Sig": GITHUB_SIGNATURE.removeprefix("sha256=")},
                body,
                secret=GITHUB_SECRET,
            )
        )
        == "webhook-signature"
    )
    body = changed(SLACK_BODY, *change)
    checked = check("slack", SLACK_HEADERS, body, secret=SLACK_SECRET, now=SLACK_NOW)
    assert code(checked) == "webhook-signature"
    body = changed(SVIX_BODY, *change)
    checked = check("svix", SVIX_HEADERS, body, secret=SVIX_SECRET, now=SVIX_NOW)
    assert code(checked) == "webhook-signature"


@given(st.sampled_from(["github", "slack", "svix", "bearer", "gitlab"]), st.integers(0, 2), changes)
def test_a_header_with_one_other_byte_is_rejected(
    scheme: str, which: int, change: tuple[int, int]
) -> None:
    """But for the case of hexadecimal digits and of `Bearer`, and white space at an edge."""
    headers, body, secret, now = {
        "github": ({"X-Hub-Signature-256": GITHUB_SIGNATURE}, GITHUB_BODY, GITHUB_SECRET, NOW),
        "slack": (SLACK_HEADERS, SLACK_BODY, SLACK_SECRET, SLACK_NOW),
        "svix": (SVIX_HEADERS, SVIX_BODY, SVIX_SECRET, SVIX_NOW),
        "bearer": ({"Authorization": f"Bearer {SECRET}"}, b"", SECRET, NOW),
        "gitlab": ({"X-Gitlab-Token": SECRET}, b"", SECRET, NOW),
    }[scheme]
    name = list(headers)[which % len(headers)]
    value = changed(headers[name].encode(), *change).decode("latin-1")
    same = value.strip(" \t\r\n").lower() == headers[name].lower()
    if not same or scheme == "svix":
        checked = check(scheme, headers | {name: value}, body, secret=secret, now=now)
        assert isinstance(checked, Refused)
        assert checked.status == 401


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=80)), st.binary(), st.text())
def test_whatever_comes_is_answered(headers: dict[str, str], body: bytes, secret: str) -> None:
    for scheme in (*AUTH_SCHEMES, "hmac:X-Sig"):
        names = {"Authorization", "X-Sig", "X-Hub-Signature-256", "X-Gitlab-Token"}
        names |= {*SLACK_HEADERS, *SVIX_HEADERS}
        for value in headers.values() or [""]:
            given_headers = dict.fromkeys(names, value) | {"Authorization": f"Basic {value}"}
            checked = check(scheme, given_headers, body, secret=secret)
            assert isinstance(checked, Signed | Refused)
