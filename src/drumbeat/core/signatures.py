"""Whether a webhook's sender is who it says: one check for each way of `auth`.

Theory. Every check is over the raw bytes of the body and compares in constant time. A comparison
is made between digests, so that not even the length of a secret shows. What a header says is never
repeated in a reason, because it may be a secret that was sent to the wrong place.

The checks are written out here although there are libraries for some. Each is at most one HMAC
of the standard library, over bytes that the sender's documents spell out, and the published
examples are tests. A library for each sender would be a dependency for each sender, those of Svix
and Standard Webhooks take the time from the system instead of from `now`, and none says by a code,
which could be kept on record, whether a request was unsigned, signed wrongly or too old.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256

import attrs

from drumbeat.core.asked import check_aware
from drumbeat.core.messages import did_you_mean, listed, quoted
from drumbeat.core.model import Refused
from drumbeat.core.vocabulary import AUTH, AUTH_FORMS, AUTH_SCHEMES
from drumbeat.errors import InvalidValue, Problem

__all__ = [
    "DOOR_SECRETS",
    "WINDOW",
    "Auth",
    "Headers",
    "Signed",
    "check_proof",
    "check_signature",
    "parse_auth",
]

WINDOW = timedelta(minutes=5)
"""How far a signed time may lie from `now`, either way (spec, section 13.1)."""

_AUTH = re.compile(AUTH)
_HEX_DIGEST = re.compile("[0-9a-fA-F]{64}")
_SVIX_DIGEST = re.compile("v1,[A-Za-z0-9+/]{43}=")
_SECONDS = re.compile(r"\d{1,12}", re.ASCII)


_SHARED_SECRET = "AGENT_API_SECRET"  # noqa: S105  the name of a secret, not one
_OWN_SECRETS = {"slack": "SLACK_SIGNING_SECRET", "svix": "SVIX_SECRET"}

DOOR_SECRETS = frozenset({_SHARED_SECRET, *_OWN_SECRETS.values()})
"""The names of the secrets that senders are checked against, as in the environment."""


@attrs.frozen(kw_only=True)
class Auth:
    """A way of `auth`; `header` is the variant of `hmac`, "" for all others."""

    scheme: str
    header: str = ""

    @property
    def secret_name(self) -> str:
        """The name of the secret it checks against, as in the environment."""
        return _OWN_SECRETS.get(self.scheme, _SHARED_SECRET)


class Headers:
    """A request's headers, looked up whatever their case.

    Args:
        headers: by name. One that stands several times may be given by names that differ in case,
            or by a mapping whose `items()` repeats the name, as web frameworks do.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in headers.items():
            self._values.setdefault(name.lower(), []).append(value.strip(" \t\r\n"))

    def all(self, name: str) -> list[str]:
        """Every value of a header, without white space at its edges; those that are empty too."""
        return self._values.get(name.lower(), [])

    def first(self, name: str) -> str:
        """The first value that is not empty, else ""."""
        return next(filter(None, self.all(name)), "")


@attrs.frozen(kw_only=True)
class Signed:
    """The sender is who it says.

    `delivery_id` is what only the sender can choose: the id that the signature covers, or under
    `slack`, which has none, the signature itself; None where there is nothing of the kind.
    """

    delivery_id: str | None = None


def parse_auth(text: str) -> Auth:
    """Read a way of `auth`: a scheme, or `hmac:<Header-Name>`.

    Raises:
        InvalidValue: the scheme is not known (`auth-unknown`), takes no variant (`auth-variant`),
            or is `hmac` without a header's name (`auth-header-missing`). `problem.column` counts
            within the text.
    """
    if _AUTH.fullmatch(text):
        scheme, _, header = text.partition(":")
        return Auth(scheme=scheme, header=header)
    scheme, colon, _ = text.partition(":")
    if scheme == "hmac":
        problem = Problem(
            code="auth-header-missing",
            message=f"{quoted(text)} names no header that could hold the signature",
            remedy="write the header's name behind the colon, such as `hmac:X-Signature`",
            column=len(scheme) + 1,
        )
    elif colon and scheme in AUTH_SCHEMES:
        problem = Problem(
            code="auth-variant",
            message=f"`{scheme}` takes no variant, and {quoted(text)} has one",
            remedy=f"write `{scheme}` alone; only `hmac:<Header-Name>` has a variant",
            column=len(scheme) + 1,
        )
    else:
        problem = Problem(
            code="auth-unknown",
            message=f"{quoted(text)} is no way to check a sender"
            f"{did_you_mean(scheme, (*AUTH_SCHEMES, 'hmac'))}",
            remedy=f"write {listed(AUTH_FORMS)}",
            column=1,
        )
    raise InvalidValue(problem)


def check_signature(
    auth: Auth, *, headers: Headers, body: bytes, secret: str, now: datetime
) -> Signed | Refused:
    """Check a request by one way of `auth` (spec, section 13.1).

    Args:
        auth: made by `parse_auth`.
        headers: the request's.
        body: its raw bytes.
        secret: the shared secret; not blank.
        now: an aware instant.

    Returns:
        `Signed`, or `Refused` with the code `webhook-unsigned` (what proves the sender is not
        there), `webhook-header-repeated` (it is there twice), `webhook-signature` (it is wrong),
        `webhook-too-old` (a signed time is outside the window) or `webhook-secret-unusable` (the
        secret is none for this scheme).

    Raises:
        TypeError: `now` is no datetime.
        ValueError: `now` is not aware.
    """
    return _checked(auth, headers=headers, body=body, secret=secret, now=now)


def _checked(
    auth: Auth, *, headers: Headers, body: bytes | None, secret: str, now: datetime
) -> Signed | Refused:
    check_aware("now", now)
    return _CHECKS[auth.scheme](
        _Request(auth=auth, headers=headers, body=body, secret=secret, now=now)
    )


def check_proof(auth: Auth, *, headers: Headers, secret: str, now: datetime) -> Refused | None:
    """As `check_signature`, as far as the headers alone decide, before the body is there.

    A secret that is sent along is checked wholly; of a signature, that it stands there once, has
    the right form, and was made in time.

    Returns:
        What `check_signature` refuses whatever the body is, None when that depends on the body.

    Raises:
        TypeError: `now` is no datetime.
        ValueError: `now` is not aware.
    """
    checked = _checked(auth, headers=headers, body=None, secret=secret, now=now)
    return checked if isinstance(checked, Refused) else None


@attrs.frozen(kw_only=True)
class _Request:
    auth: Auth
    headers: Headers
    body: bytes | None
    """None before it is there: then no signature over it is looked at."""
    secret: str
    now: datetime

    @property
    def key(self) -> bytes:
        return _bytes(self.secret)

    def header(self, name: str) -> str | Refused:
        """The value of a header that has to stand there exactly once."""
        values = self.headers.all(name)
        if len(values) > 1:
            return _refused("webhook-header-repeated", f"the header {name} stands there twice")
        if not values or not values[0]:
            return _refused(
                "webhook-unsigned",
                f"the header {name}, which proves the sender, is missing",
            )
        return values[0]

    def hmac(self, *parts: bytes, key: bytes | None = None) -> bytes:
        made = hmac.new(self.key if key is None else key, digestmod=sha256)
        for part in parts:
            made.update(part)
        return made.digest()

    def on_time(self, seconds: str, name: str) -> Refused | None:
        # Compared as numbers: a time that is far off has no datetime at all.
        if abs(self.now.timestamp() - int(seconds)) <= WINDOW.total_seconds():
            return None
        return _refused(
            "webhook-too-old",
            f"the signed time in {name} is more than 5 minutes from the receiver's clock",
        )


def _refused(code: str, reason: str, status: int = 401) -> Refused:
    return Refused(code=code, reason=reason, status=status)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _spellings(header: str) -> list[bytes]:
    """The bytes that a header may have been: servers decode them as Latin-1, others as UTF-8."""
    if all(ord(char) < 256 for char in header):
        return [_bytes(header), header.encode("latin-1")]
    return [_bytes(header)]


def _same(given: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(sha256(given).digest(), sha256(expected).digest())


def _wrong(name: str, what: str = "does not match the secret") -> Refused:
    return _refused("webhook-signature", f"the header {name} {what}")


# ---- a secret that is sent along


def _authorization(request: _Request, scheme: str) -> str | Refused:
    value = request.header("Authorization")
    if isinstance(value, Refused):
        return value
    said, _, token = value.partition(" ")
    if said.lower() != scheme.lower() or not token.strip():
        return _refused("webhook-unsigned", f"the header Authorization is not `{scheme} …`")
    return token.strip()


def _bearer(request: _Request) -> Signed | Refused:
    token = _authorization(request, "Bearer")
    if isinstance(token, Refused):
        return token
    return _shared(request, token, "Authorization")


def _basic(request: _Request) -> Signed | Refused:
    token = _authorization(request, "Basic")
    if isinstance(token, Refused):
        return token
    try:
        pair = base64.b64decode(_bytes(token), validate=True)
    except binascii.Error:
        return _wrong("Authorization", "is no user and password in base64")
    _, _, password = pair.partition(b":")
    return Signed() if _same(password, request.key) else _wrong("Authorization")


def _gitlab(request: _Request) -> Signed | Refused:
    token = request.header("X-Gitlab-Token")
    if isinstance(token, Refused):
        return token
    return _shared(request, token, "X-Gitlab-Token")


def _shared(request: _Request, given: str, name: str) -> Signed | Refused:
    same = [_same(spelling, request.key) for spelling in _spellings(given)]
    return Signed() if any(same) else _wrong(name)


# ---- a signature over the body


def _github(request: _Request) -> Signed | Refused:
    return _signed_body(request, "X-Hub-Signature-256", prefix="sha256=")


def _hmac(request: _Request) -> Signed | Refused:
    return _signed_body(request, request.auth.header, prefix="sha256=", bare=True)


def _signed_body(
    request: _Request, name: str, *, prefix: str, bare: bool = False
) -> Signed | Refused:
    value = request.header(name)
    if isinstance(value, Refused):
        return value
    given = _hex(value, name, prefix=prefix, bare=bare)
    if isinstance(given, Refused) or request.body is None:
        return given if isinstance(given, Refused) else Signed()
    return Signed() if _same(given, request.hmac(request.body)) else _wrong(name)


def _hex(value: str, name: str, *, prefix: str, bare: bool = False) -> bytes | Refused:
    """The bytes of a signature in hexadecimal."""
    given = value.removeprefix(prefix)
    if not _HEX_DIGEST.fullmatch(given) or not (bare or value.startswith(prefix)):
        return _wrong(name, f"is no `{prefix}` and 64 hexadecimal digits")
    return bytes.fromhex(given)


# ---- a signature over the body and a time


def _slack(request: _Request) -> Signed | Refused:
    signature, time = "X-Slack-Signature", "X-Slack-Request-Timestamp"
    value, seconds = request.header(signature), request.header(time)
    if isinstance(value, Refused):
        return value
    if isinstance(seconds, Refused):
        return seconds
    if not _SECONDS.fullmatch(seconds):
        return _wrong(time, "is no number of seconds")
    given = _hex(value, signature, prefix="v0=")
    if isinstance(given, Refused):
        return given
    late = request.on_time(seconds, time)
    if late is not None or request.body is None:
        return late or Signed()
    if not _same(given, request.hmac(b"v0:", _bytes(seconds), b":", request.body)):
        return _wrong(signature)
    # As it was worked out: what came may be spelt in several ways.
    return Signed(delivery_id=f"v0={given.hex()}")


def _svix(request: _Request) -> Signed | Refused:
    # Both names of each header mean the same; a request is checked by one set, never by a mixture.
    parts = ("id", "timestamp", "signature")
    family = "svix" if any(request.headers.all(f"svix-{part}") for part in parts) else "webhook"
    values: list[str] = []
    for part in parts:
        value = request.header(f"{family}-{part}")
        if isinstance(value, Refused):
            return value
        values.append(value)
    delivery, seconds, signatures = values
    if not _SECONDS.fullmatch(seconds):
        return _wrong(f"{family}-timestamp", "is no number of seconds")
    key = _svix_key(request.secret)
    if not key:
        return _refused(
            "webhook-secret-unusable",
            f"{request.auth.secret_name} is no `whsec_` and base64",
            503,
        )
    # Several stand there while a secret is being replaced; all are looked at.
    given = [_bytes(each) for each in signatures.split() if _SVIX_DIGEST.fullmatch(each)]
    if not given:
        return _wrong(f"{family}-signature", "holds no `v1,` and 32 bytes in base64")
    late = request.on_time(seconds, f"{family}-timestamp")
    body = request.body
    if late is not None or body is None:
        return late or Signed()
    expected = [
        base64.b64encode(request.hmac(spelling, b".", _bytes(seconds), b".", body, key=key))
        for spelling in _spellings(delivery)
    ]
    same = [_same(each, b"v1," + digest) for each in given for digest in expected]
    return Signed(delivery_id=delivery) if any(same) else _wrong(f"{family}-signature")


def _svix_key(secret: str) -> bytes:
    """The bytes that a `whsec_…` stands for; empty when it stands for none."""
    encoded = _bytes(secret.removeprefix("whsec_").rstrip("="))
    try:
        return base64.b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
    except binascii.Error:
        return b""


_CHECKS: Mapping[str, Callable[[_Request], Signed | Refused]] = {
    "bearer": _bearer,
    "basic": _basic,
    "github": _github,
    "gitlab": _gitlab,
    "hmac": _hmac,
    "slack": _slack,
    "svix": _svix,
}
