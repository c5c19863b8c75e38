"""Zones: by IANA name only, and always with where they came from."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
import structlog

from drumbeat.errors import DrumbeatError, Finding, Problem
from drumbeat.runtime.zones import resolve_zone, system_zone, system_zone_problem, zones_for


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)


def refusal(value: str | tzinfo) -> Problem:
    """The problem with which a zone is refused."""
    with pytest.raises(DrumbeatError) as caught:
        resolve_zone(value)
    return caught.value.problem


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("  Asia/Tokyo ", "Asia/Tokyo"),
        (ZoneInfo("Australia/Lord_Howe"), "Australia/Lord_Howe"),
        ("UTC", "UTC"),
        ("utc", "UTC"),
        ("Etc/UTC", "Etc/UTC"),
        ("Etc/GMT-3", "Etc/GMT-3"),
        (UTC, "UTC"),
        (timezone(timedelta(0)), "UTC"),
    ],
)
def test_a_name_or_a_named_zone_is_taken(value: str | tzinfo, key: str) -> None:
    """UTC is a zone, however it is written."""
    assert resolve_zone(value).key == key


@pytest.mark.parametrize(
    ("value", "use"),
    [
        ("+02:00", "Europe/Athens"),
        ("UTC+2", "Etc/GMT-2"),
        ("GMT-0500", "America/New_York"),
        ("+05:30", "Asia/Kolkata"),
        ("+01:17", "Europe/Berlin"),
        ("+00:00", "`UTC`"),
        ("EST", "America/New_York"),
        ("cest", "Europe/Berlin"),
        (ZoneInfo("EST"), "America/New_York"),
        (timezone(timedelta(hours=9)), "Asia/Tokyo"),
        (timezone(timedelta(hours=-8), "PST"), "America/Los_Angeles"),
        (timezone(timedelta(hours=14)), "Etc/GMT-14"),
    ],
)
def test_a_fixed_offset_is_refused_with_the_name_to_use(value: str | tzinfo, use: str) -> None:
    """It knows no change of the clocks."""
    problem = refusal(value)
    assert problem.code == "zone-fixed-offset"
    assert use in problem.remedy


@pytest.mark.parametrize(
    ("value", "use"),
    [
        ("europe/berlin", "`Europe/Berlin`"),
        ("Berlin", "`Europe/Berlin`"),
        ("new york", "`America/New_York`"),
        ("Europe/Belrin", "`Europe/Berlin`"),
        ("Tokio", "`Asia/Tokyo`"),
        ("Nowhere/At/All", "a continent and a city"),
        ("", "a continent and a city"),
        ("America", "America"),
        ("../../etc/passwd", "a continent and a city"),
        ("Europe/Berlin\0", ""),
        ("x" * 5000, "a continent and a city"),
        ("localtime", ""),
        ("posix/Europe/Berlin", ""),
    ],
)
def test_an_unknown_zone_is_refused_with_a_suggestion(value: str, use: str) -> None:
    """Whatever text comes in."""
    problem = refusal(value)
    assert problem.code == "zone-unknown"
    assert use in problem.remedy
    assert len(problem.message) < 300


class Foreign(tzinfo):
    """A zone of another library."""

    def __init__(self, zone: str | None) -> None:
        self.zone = zone

    def utcoffset(self, when: datetime | None, /) -> timedelta:
        return timedelta(hours=1)

    def dst(self, when: datetime | None, /) -> timedelta:
        return timedelta(0)

    def tzname(self, when: datetime | None, /) -> str:
        return "somewhere"


@pytest.mark.parametrize(
    ("value", "use"),
    [(Foreign("Europe/Paris"), "ZoneInfo('Europe/Paris')"), (Foreign(None), "zoneinfo.ZoneInfo")],
)
def test_a_zone_of_another_library_is_refused(value: tzinfo, use: str) -> None:
    """Only `zoneinfo` says what a time in a gap or a fold means."""
    problem = refusal(value)
    assert problem.code == "zone-unknown"
    assert use in problem.remedy


def test_the_message_names_where_the_zone_was_set() -> None:
    """So that it can be found."""
    with pytest.raises(DrumbeatError, match=r"\$TIMEZONE is 'Mars/Base'"):
        zones_for(None, {"TIMEZONE": "Mars/Base"})


def test_a_given_timezone_rules_both_kinds() -> None:
    """Spec, section 4."""
    zones = zones_for("Europe/Berlin", {"TIMEZONE": "Asia/Tokyo"})
    assert set(zones) == {"automation", "job"}
    for zone in zones.values():
        assert (zone.tzinfo, zone.name, zone.source) == (
            ZoneInfo("Europe/Berlin"),
            "Europe/Berlin",
            "timezone",
        )


def test_without_one_jobs_follow_the_variable_else_utc() -> None:
    """An empty variable counts as unset."""
    assert zones_for(None, {"TIMEZONE": "Asia/Tokyo"})["job"][1:] == ("Asia/Tokyo", "$TIMEZONE")
    for env in ({}, {"TIMEZONE": " "}):
        zone = zones_for(None, env)["job"]
        assert zone.name == "UTC"
        assert "not set" in zone.source


def test_without_one_automations_follow_the_system() -> None:
    """By the name that the system gives."""
    assert zones_for(None, {})["automation"] == system_zone()
    zone = system_zone(lambda: "Europe/Berlin")
    assert zone == (ZoneInfo("Europe/Berlin"), "Europe/Berlin", "system")


def no_entry() -> str:
    """A system whose settings contradict each other."""
    msg = "conflicting"
    raise LookupError(msg)


@pytest.mark.parametrize(
    "lookup",
    [lambda: None, lambda: "local", lambda: "", no_entry],
    ids=["none", "no name", "empty", "conflict"],
)
def test_a_system_without_a_zone_by_name_is_utc_with_a_warning(
    lookup: Callable[[], str | None],
) -> None:
    """Nobody should find out a year later."""
    with structlog.testing.capture_logs() as logs:
        zone = system_zone(lookup)
    assert zone.name == "UTC"
    assert "no name" in zone.source
    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("zone_unnamed", "warning")
    assert entry["reason"]


@pytest.mark.parametrize(
    "value, code, remedy",
    [
        ("Europe/Berln", "zone-unknown", "did you mean `Europe/Berlin`?"),
        (":Europe/Berln", "zone-unknown", "did you mean `Europe/Berlin`?"),
        ("CET-1CEST,M3.5.0,M10.5.0", "zone-unknown", "use an IANA name: "),
        ("UTC+3", "zone-fixed-offset", "set TZ to the IANA name of the place"),
        ("EST", "zone-fixed-offset", "`America/New_York`"),
    ],
)
def test_a_variable_that_names_no_zone_is_the_reason(
    value: str, code: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that the system had no zone; and a slip is told from what may be meant to be so."""
    monkeypatch.setenv("TZ", value)
    with structlog.testing.capture_logs() as logs:
        zone = system_zone()
    assert (zone.name, zone.source) == ("UTC", "default, because $TZ names no zone")
    problem = system_zone_problem()
    assert problem is not None
    assert (problem.code, isinstance(problem, Finding)) == (code, False)
    assert problem.message.startswith(f"$TZ is {value.removeprefix(':')!r}, ")
    assert remedy in problem.remedy
    assert (logs[0]["reason"], logs[0]["remedy"]) == (problem.message, problem.remedy)


@pytest.mark.parametrize("value", ["America/Ciudad_Juarez", ":America/Ciudad_Juarez"])
def test_a_variable_that_names_a_zone_is_taken_at_its_word(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", value)

    def lookup() -> str:
        raise AssertionError

    zone = system_zone(lookup)
    assert (zone.name, zone.source) == ("America/Ciudad_Juarez", "system")


@pytest.mark.parametrize("value", ["", "/etc/nowhere"])
def test_a_system_without_a_zone_by_name_is_a_finding(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", value)

    def lookup() -> str:
        msg = "Conflicting configurations:\n/etc/timezone: UTC\n"
        raise LookupError(msg)

    problem = system_zone_problem(lookup)
    assert isinstance(problem, Finding)
    assert (problem.code, problem.severity) == ("zone-unnamed", "warning")
    assert problem.message == (
        "Conflicting configurations: /etc/timezone: UTC, so UTC is taken in its place"
    )
    assert system_zone_problem(lambda: "Europe/Berlin") is None


def test_a_machine_without_the_zone_database_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty database makes every name unknown."""
    monkeypatch.setattr("zoneinfo.available_timezones", set)
    assert "tzdata" in refusal("Mars/Base").remedy
