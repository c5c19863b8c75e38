"""Whether what a host brings has the shape of what it stands for, before anything is started."""

import inspect
from typing import Any


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
