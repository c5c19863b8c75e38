"""Whether somebody who asks over HTTP knows the secret of the engine's doors.

Theory. A browser that was given a password by a person sends it along with whatever a page makes it
ask for, another site's page too. Such a request proves nothing about who wants it, so where a
password opens, it is looked at where the request comes from: browsers say so themselves, in
`Sec-Fetch-Site` where the address is a safe one, and in `Origin` with whatever is no mere reading.
"""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlsplit

from drumbeat.core.model import Refused
from drumbeat.core.redaction import one_line
from drumbeat.core.signatures import Headers, check_signature, parse_auth

__all__ = ["check_caller", "is_foreign"]

_SAME = {"same-origin", "none"}
_READING = {"get", "head"}


def check_caller(
    headers: Mapping[str, str],
    *,
    secrets: Mapping[str, str],
    now: datetime,
    method: str | None = None,
) -> Refused | None:
    """Check that a request brings `AGENT_API_SECRET`, as bearer or as the password of basic.

    Args:
        headers: by name, in any case.
        secrets: value by name; a blank one counts as missing.
        now: an aware instant.
        method: the request's, in any case. GET and HEAD are for reading, and what is read no page
            of another site gets to see; any other is refused when such a page made it. With None
            that is not looked at.

    Returns:
        None when it does; else `Refused` with status 401 (`caller-unknown`), 403
        (`caller-foreign`), or 503 (`caller-secret-missing`: nobody can be told, so nobody is let
        in). No reason holds a secret or a header.
    """
    bearer = parse_auth("bearer")
    secret = one_line(secrets.get(bearer.secret_name, ""))
    if not secret.strip():
        return Refused(
            code="caller-secret-missing",
            reason=f"{bearer.secret_name} is not set, so nobody who asks can be told",
            status=503,
        )
    found = Headers(headers)
    said = found.first("Authorization").partition(" ")[0].lower()
    auth = parse_auth("basic") if said == "basic" else bearer
    checked = check_signature(auth, headers=found, body=b"", secret=secret, now=now)
    if isinstance(checked, Refused):
        return Refused(code="caller-unknown", reason=checked.reason, status=checked.status)
    if method is not None and method.lower() not in _READING and is_foreign(found):
        return Refused(
            code="caller-foreign",
            reason="this request was made by the page of another site",
            status=403,
        )
    return None


def is_foreign(headers: Headers) -> bool:
    """Whether a browser made this request for the page of another site, as far as it says so."""
    site = headers.first("Sec-Fetch-Site")
    if site:
        return site.lower() not in _SAME
    origin = headers.first("Origin")
    if not origin:
        return False
    try:
        site = urlsplit(origin).netloc
    except ValueError:
        return True  # it is no address, so not this one either
    return not site or site != headers.first("Host")
