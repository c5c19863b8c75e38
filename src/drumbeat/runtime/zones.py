"""Which zone rules a schedule, and where it came from."""

import os
import zoneinfo
from collections.abc import Callable
from datetime import timedelta, timezone, tzinfo
from difflib import get_close_matches
from re import ASCII, IGNORECASE, fullmatch
from typing import NamedTuple
from zoneinfo import ZoneInfo

import attrs
import tzlocal

from drumbeat.core.model import Env, Kind
from drumbeat.errors import DrumbeatError, Finding, Problem
from drumbeat.runtime.log import log

__all__ = [
    "GIVEN",
    "Zone",
    "check_zone",
    "resolve_zone",
    "system_zone",
    "system_zone_problem",
    "zones_for",
]

UTC_ZONE = "UTC"
GIVEN = "timezone"
"""The source of a zone that the host set itself."""

_PLACES = {
    -600: "Pacific/Honolulu",
    -540: "America/Anchorage",
    -480: "America/Los_Angeles",
    -420: "America/Denver",
    -360: "America/Chicago",
    -300: "America/New_York",
    -240: "America/Halifax",
    -210: "America/St_Johns",
    -180: "America/Sao_Paulo",
    -60: "Atlantic/Azores",
    0: "Europe/London",
    60: "Europe/Berlin",
    120: "Europe/Athens",
    180: "Asia/Riyadh",
    240: "Asia/Dubai",
    300: "Asia/Karachi",
    330: "Asia/Kolkata",
    345: "Asia/Kathmandu",
    360: "Asia/Dhaka",
    420: "Asia/Bangkok",
    480: "Asia/Singapore",
    540: "Asia/Tokyo",
    570: "Australia/Adelaide",
    600: "Australia/Sydney",
    660: "Pacific/Noumea",
    720: "Pacific/Auckland",
}
_ABBREVIATIONS = {
    "EST": "America/New_York",
    "EDT": "America/New_York",
    "MST": "America/Denver",
    "MDT": "America/Denver",
    "PST": "America/Los_Angeles",
    "PDT": "America/Los_Angeles",
    "CDT": "America/Chicago",
    "HST": "Pacific/Honolulu",
    "BST": "Europe/London",
    "CEST": "Europe/Berlin",
    "JST": "Asia/Tokyo",
}
_USE_A_NAME = "use an IANA name: a continent and a city, such as `Europe/Berlin`, or `UTC`"
_NOT_PLACES = frozenset({"localtime", "posixrules", "Factory"})


class Zone(NamedTuple):
    """A zone, its IANA name, and where it came from."""

    tzinfo: tzinfo
    name: str
    source: str


def check_zone(value: object) -> None:
    """Refuse what cannot name a zone, without a look at the zone database.

    Args:
        value: what a host gives as `timezone`.

    Raises:
        TypeError: it is neither text nor a `tzinfo`.
        DrumbeatError: `zone-unknown`, it is blank; `zone-fixed-offset`, it is an offset.
    """
    if not isinstance(value, str | tzinfo):
        msg = f"timezone must be a name such as 'Europe/Berlin' or a ZoneInfo, not {value!r}"
        raise TypeError(msg)
    if isinstance(value, str):
        _check_name(value.strip(), GIVEN)
    elif isinstance(value, timezone) and value.utcoffset(None):
        resolve_zone(value)


def resolve_zone(value: str | tzinfo, *, source: str = "timezone") -> ZoneInfo:
    """The zone that `value` names.

    Reads the zone database, which is a small file or a cached value.

    Args:
        value: an IANA name such as `Europe/Berlin`, a `ZoneInfo` made from one, or UTC.
        source: what the value is called where it was set, for the message.

    Raises:
        DrumbeatError: `zone-fixed-offset`, because an offset knows no change of the clocks, or
            `zone-unknown`; the remedy gives the name to use.
    """
    if isinstance(value, str):
        return _named(value.strip(), source)
    if isinstance(value, ZoneInfo) and value.key is not None:
        return _named(value.key, source)
    if isinstance(value, timezone):
        offset = value.utcoffset(None)
        if not offset:
            return ZoneInfo(UTC_ZONE)
        raise _fixed(str(value), offset, source)
    name = getattr(value, "zone", None) or getattr(value, "key", None)
    use = f"zoneinfo.ZoneInfo({name!r})" if isinstance(name, str) else "zoneinfo.ZoneInfo"
    raise DrumbeatError(
        Problem(
            code="zone-unknown",
            message=f"{source} is {value!r}, a zone without an IANA name that can be relied on",
            remedy=f"give {use}, or the name as text, such as `Europe/Berlin`",
        )
    )


def _present_name() -> str | None:
    # Looked up again: the first answer is kept by the library for as long as the process lives.
    tzlocal.reload_localzone()
    return tzlocal.get_localzone_name()


def system_zone(lookup: Callable[[], str | None] = _present_name) -> Zone:
    """The machine's zone by name, or UTC with a `zone_unnamed` warning in the log.

    Reads configuration files of the system.

    Args:
        lookup: gives the name; it may return None or raise `LookupError` or `ValueError`.
    """
    zone, problem = _system_zone(lookup)
    if problem is not None:
        log.warning("zone_unnamed", zone=zone.name, reason=problem.message, remedy=problem.remedy)
    return zone


def system_zone_problem(lookup: Callable[[], str | None] = _present_name) -> Problem | None:
    """Why `system_zone` falls back to UTC, or None where the machine's zone has a name.

    A `$TZ` that names no zone is somebody's slip (`zone-unknown`, `zone-fixed-offset`); a machine
    without a zone by name (`zone-unnamed`) may be meant to be one, and is a finding.
    """
    return _system_zone(lookup)[1]


def _system_zone(lookup: Callable[[], str | None]) -> tuple[Zone, Problem | None]:
    # Not left to the lookup: what it makes of a name that it does not know depends on its release.
    named = os.environ.get("TZ", "").removeprefix(":").strip()
    if named and not named.startswith("/"):
        try:
            return _zone(resolve_zone(named, source="$TZ"), "system"), None
        except DrumbeatError as error:
            return _utc("$TZ names no zone"), _slip_in_tz(named, error.problem)
    try:
        name = lookup()
        if name:
            return _zone(resolve_zone(name, source="the system zone"), "system"), None
        why = "the system has no zone by name"
    except DrumbeatError as error:
        why = error.problem.message
    except (LookupError, ValueError) as error:
        why = " ".join(str(error).split())
    return _utc("the system zone has no name"), Finding(
        code="zone-unnamed",
        message=f"{why}, so {UTC_ZONE} is taken in its place",
        remedy="set TZ or the engine's timezone to an IANA name, such as `Europe/Berlin`",
    )


def _utc(because: str) -> Zone:
    return Zone(ZoneInfo(UTC_ZONE), UTC_ZONE, f"default, because {because}")


def _slip_in_tz(named: str, problem: Problem) -> Problem:
    message = f"{problem.message}, so {UTC_ZONE} is taken in its place"
    if problem.code == "zone-fixed-offset" and named.upper() not in _ABBREVIATIONS:
        # What TZ calls UTC+3 lies west of Greenwich, so no place of that offset is named.
        remedy = "set TZ to the IANA name of the place, such as `Europe/Berlin`"
        return attrs.evolve(problem, message=message, remedy=remedy)
    return attrs.evolve(problem, message=message)


def zones_for(timezone: str | tzinfo | None, env: Env) -> dict[Kind, Zone]:
    """The zones that rule both kinds of file (spec, section 4).

    A given `timezone` rules both. Without it, automation files follow the system's zone, and job
    files `$TIMEZONE`, else UTC.

    Args:
        timezone: what the host set, if anything.
        env: where `TIMEZONE` is looked up.

    Raises:
        DrumbeatError: `zone-fixed-offset` or `zone-unknown`, for `timezone` or `$TIMEZONE`.
    """
    if timezone is not None:
        zone = _zone(resolve_zone(timezone), GIVEN)
        return {"automation": zone, "job": zone}
    named = env.get("TIMEZONE", "").strip()
    job = (
        _zone(resolve_zone(named, source="$TIMEZONE"), "$TIMEZONE")
        if named
        else _utc("$TIMEZONE is not set")
    )
    return {"automation": system_zone(), "job": job}


def _zone(zone: ZoneInfo, source: str) -> Zone:
    return Zone(zone, zone.key, source)


def _check_name(name: str, source: str) -> None:
    offset = fullmatch(r"(?:UTC|GMT)?\s*([+-])(\d{1,2})(?::?(\d\d))?", name, ASCII | IGNORECASE)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        raise _fixed(name, timedelta(minutes=minutes if offset[1] == "+" else -minutes), source)
    if name.upper() in _ABBREVIATIONS:
        raise DrumbeatError(
            Problem(
                code="zone-fixed-offset",
                message=f"{source} is {name!r}, an abbreviation that stands for one fixed offset",
                remedy=f"use the IANA name of the place, such as `{_ABBREVIATIONS[name.upper()]}`",
            )
        )
    if not name:
        raise DrumbeatError(
            Problem(
                code="zone-unknown",
                message=f"{source} is blank",
                remedy=_USE_A_NAME,
            )
        )


def _named(name: str, source: str) -> ZoneInfo:
    _check_name(name, source)
    if name.upper() in {"UTC", "Z", "GMT"}:
        return ZoneInfo(UTC_ZONE)
    if name not in _NOT_PLACES and not name.startswith(("posix/", "right/")):
        try:
            return ZoneInfo(name)
        except (LookupError, ValueError, OSError):
            pass  # answered below, with the names that exist
    raise DrumbeatError(
        Problem(
            code="zone-unknown",
            message=f"{source} is {name[:80]!r}, which is no zone of the IANA database",
            remedy=_suggestion(name),
        )
    )


def _suggestion(name: str) -> str:
    known = sorted(zoneinfo.available_timezones())
    if not known:
        return "install the zone database: the `tzdata` package"
    wanted = "_".join(name[:80].lower().replace("\\", "/").split())
    by_name = {zone.lower(): zone for zone in known}
    by_place = {zone.lower().rpartition("/")[2]: zone for zone in known if "/" in zone}
    if wanted in by_name:
        return f"did you mean `{by_name[wanted]}`?"
    if wanted in by_place:
        return f"did you mean `{by_place[wanted]}`?"
    for names in (by_name, by_place):
        close = get_close_matches(wanted, names, n=1, cutoff=0.75)
        if close:
            return f"did you mean `{names[close[0]]}`?"
    return _USE_A_NAME


def _fixed(shown: str, offset: timedelta, source: str) -> DrumbeatError:
    minutes = round(offset.total_seconds() / 60)
    place = _PLACES.get(minutes)
    if minutes == 0:
        remedy = "use `UTC`, or the IANA name of the place, such as `Europe/London`"
    elif place is not None:
        remedy = f"use the IANA name of the place, such as `{place}`"
    else:
        remedy = "use the IANA name of the place: a continent and a city, such as `Europe/Berlin`"
    if minutes % 60 == 0 and -12 <= minutes // 60 <= 14 and minutes:
        remedy += f"; `Etc/GMT{-minutes // 60:+d}` if it really never changes its clocks"
    return DrumbeatError(
        Problem(
            code="zone-fixed-offset",
            message=f"{source} is {shown!r}, a fixed offset, which knows no change of the clocks",
            remedy=remedy,
        )
    )
