"""Whether somebody who asks over HTTP knows the secret of the engine's doors."""

from collections.abc import Mapping
from datetime import datetime

from drumbeat.core.model import Refused
from drumbeat.core.signatures import Headers, check_signature, parse_auth

__all__ = ["check_caller"]


def check_caller(
    headers: Mapping[str, str], *, secrets: Mapping[str, str], now: datetime
) -> Refused | None:
    """Check that a request brings `AGENT_API_SECRET`, as bearer or as the password of basic.

    Args:
        headers: by name, in any case.
        secrets: value by name; a blank one counts as missing.
        now: an aware instant.

    Returns:
        None when it does; else `Refused` with status 401 (`caller-unknown`), or 503
        (`caller-secret-missing`: nobody can be told, so nobody is let in). No reason holds a
        secret or a header.
    """
    bearer = parse_auth("bearer")
    secret = secrets.get(bearer.secret_name, "")
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
    return None
