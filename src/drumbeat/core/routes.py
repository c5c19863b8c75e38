"""Which automation a webhook's route belongs to, that of a file which is broken included."""

import re
from collections.abc import Mapping

import attrs

from drumbeat.core.model import Automation, WebhookTrigger, Workspace

__all__ = ["BrokenRoute", "Route", "find_route", "said_route"]

_SAID = re.compile(
    r"""^[ \t]*["']?webhook["']?[ \t]*:[ \t]*["']?([A-Za-z0-9][A-Za-z0-9_.-]{0,99})""",
    re.MULTILINE,
)
_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)


@attrs.frozen(kw_only=True)
class Route:
    """A route whose file loads."""

    automation: Automation
    trigger: WebhookTrigger


@attrs.frozen(kw_only=True)
class BrokenRoute:
    """A route whose file is broken at present: its last version had it, or its text says so.

    `route` is as the file writes it, in whatever case it was asked for.
    """

    slug: str
    route: str


def find_route(
    name: str,
    *,
    workspace: Workspace,
    last_good: Mapping[str, Automation],
    said: Mapping[str, str],
) -> Route | BrokenRoute | None:
    """Find a route by its name, case aside, as `route_clashes` compares them.

    Args:
        name: as a sender asked for it.
        workspace: as it is known.
        last_good: by slug, the last version that loaded of every file, broken or not.
        said: by slug, the routes of broken files as `said_route` reads them.

    Returns:
        None when no file has it.
    """
    wanted = name.lower()
    for automation in workspace.automations:
        trigger = _trigger(automation)
        if trigger is not None and trigger.route.lower() == wanted:
            return Route(automation=automation, trigger=trigger)
    for slug in sorted(path.stem for path in workspace.problems):
        good = last_good.get(slug)
        trigger = None if good is None else _trigger(good)
        for route in (said.get(slug, ""), "" if trigger is None else trigger.route):
            if route and route.lower() == wanted:
                return BrokenRoute(slug=slug, route=route)
    return None


def _trigger(automation: Automation) -> WebhookTrigger | None:
    for trigger in automation.triggers:
        if isinstance(trigger, WebhookTrigger):
            return trigger
    return None


def said_route(data: bytes) -> str:
    """The route that a job file seems to ask for although it cannot be read as one; else "".

    A sender is then told to come again, and not that there is no such route: the file may be saved
    half-way, and what is sent meanwhile would be lost.

    Args:
        data: the file's bytes, whatever they are.
    """
    text = data.decode("utf-8", "replace")
    begin = _END.search(text)
    end = None if begin is None else _END.search(text, begin.end())
    found = _SAID.search(text, 0, len(text) if end is None else end.start())
    return "" if found is None else found[1]
