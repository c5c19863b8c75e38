"""Whether what a host brings has the shape of what it stands for, before anything is started."""

import inspect
from typing import Any
from urllib.parse import urlsplit


def check_brought(what: str, given: object, method: str) -> None:
    """Refuse what could only fail at its first call, which may be at night.

    Args:
        what: the parameter's name.
        given: the agent or the deliverer.
        method: the async method that it must have.

    Raises:
        TypeError: it is a class, or it has no such method, or that is not async.
    """
    if inspect.isclass(given):
        name = given.__name__
        msg = f"{what} must be an instance, not the class {name}: give {what}={name}(…)"
        raise TypeError(msg)
    found: Any = getattr(given, method, None)
    if not callable(found):
        msg = f"{what} must have an `async def {method}`, and {type(given).__name__} has none"
        raise TypeError(msg)
    # A callable of another kind may return anything; what a function returns is written down.
    if inspect.isroutine(found) and not inspect.iscoroutinefunction(inspect.unwrap(found)):
        msg = f"`{method}` of {type(given).__name__} must be async: begin it with `async def`"
        raise TypeError(msg)


def follow_ups_url(base_url: str) -> str:
    """Where turns ask for follow-ups, below the address at which the host serves the routes.

    Raises:
        ValueError: it is no address that a turn could use, or it would put a password into the
            environment of every turn.
    """
    try:
        parts = urlsplit(base_url)
        sound = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
            and not (parts.query or parts.fragment or "@" in parts.netloc)
            and base_url.isascii()
            and base_url.isprintable()
            and " " not in base_url
        )
    except ValueError:
        sound = False
    if not sound:
        msg = (
            "base_url must be an address such as http://127.0.0.1:8000 or https://acme.test/beat, "
            "with no user, query or fragment"
        )
        raise ValueError(msg)
    return f"{base_url.rstrip('/')}/followups"
