"""Every limit has bounds, and what the environment says is read strictly."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

import drumbeat
from drumbeat import InvalidValue, Settings

DURATIONS = [
    field.name
    for field in attrs.fields(Settings)
    if isinstance(field.default, timedelta) and field.name not in {"catch_up", "drain_timeout"}
]
COUNTS = [field.name for field in attrs.fields(Settings) if isinstance(field.default, int)]


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = Settings()
    assert settings.max_concurrent_runs == 3
    assert settings.catch_up == timedelta(hours=24)
    assert settings.run_timeout == timedelta(minutes=60)
    assert settings.turn_timeout is None
    assert settings.inject_timeout == settings.deliver_timeout == timedelta(seconds=60)
    assert settings.reload_interval == timedelta(seconds=10)
    assert settings.max_sleep == timedelta(seconds=60)
    assert settings.store_probe == timedelta(seconds=30)
    assert settings.deliver_attempts == 8


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("value", [timedelta(0), timedelta(seconds=-1), 60, "a minute"])
def test_a_duration_is_a_timedelta_above_zero(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"Settings.{name} must be a timedelta of more than zero"):
        Settings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2.5, "three", True])
def test_a_count_is_a_whole_number_above_zero(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"Settings.{name} must be a whole number above zero"):
        Settings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["catch_up", "drain_timeout"])
def test_some_durations_may_be_zero_and_none_is_negative(name: str) -> None:
    zero: dict[str, Any] = {name: timedelta(0)}
    assert getattr(Settings(**zero), name) == timedelta(0)
    for value in (timedelta(seconds=-1), 5):
        with pytest.raises(ValueError, match=f"Settings.{name} must be a timedelta"):
            Settings(**{name: value})  # type: ignore[arg-type]


def test_a_turn_may_have_a_limit_or_none() -> None:
    assert Settings(turn_timeout=timedelta(minutes=1)).turn_timeout == timedelta(minutes=1)
    with pytest.raises(ValueError, match=r"Settings.turn_timeout must be"):
        Settings(turn_timeout=timedelta(0))


@pytest.mark.parametrize(
    "hosts", [(), ("github.com",), ("git.acme.example:8443", "127.0.0.1:80"), ("[::1]:8123",)]
)
def test_hosts_may_have_a_port(hosts: tuple[str, ...]) -> None:
    assert Settings(git_hosts=hosts).git_hosts == hosts


@pytest.mark.parametrize(
    "hosts", ["github.com", ["github.com"], ("https://github.com",), ("a b",), ("",), (1,), None]
)
def test_hosts_are_a_tuple_of_names(hosts: Any) -> None:
    with pytest.raises(ValueError, match=r"Settings\.git_hosts must be a tuple of hosts"):
        Settings(git_hosts=hosts)


def test_the_environment_names_the_run_limit_and_nothing_else() -> None:
    settings = Settings.from_env({"MAX_CONCURRENT_RUNS": " 7 ", "RUN_TIMEOUT": "60"})
    assert settings.max_concurrent_runs == 7
    assert attrs.evolve(settings, max_concurrent_runs=3) == Settings()


def test_an_empty_variable_is_none() -> None:
    assert Settings.from_env({"MAX_CONCURRENT_RUNS": " "}) == Settings()
    asked = Settings.from_env({"AGENT_INBOX_POLL_SECONDS": "60"})
    assert asked == Settings(inbox_poll=timedelta(minutes=1))


def test_overrides_win_over_the_environment() -> None:
    settings = Settings.from_env({"MAX_CONCURRENT_RUNS": "7"}, max_concurrent_runs=1)
    assert settings.max_concurrent_runs == 1


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "1000000", "٣"])
def test_anything_but_a_whole_number_within_the_bounds_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Settings.from_env({"MAX_CONCURRENT_RUNS": text})
    problem = caught.value.problem
    assert problem.code == "setting-invalid"
    assert problem.message.startswith(f"MAX_CONCURRENT_RUNS is {text!r}")
    assert "from 1 to 999,999" in problem.message
    assert "MAX_CONCURRENT_RUNS" in problem.remedy
    with pytest.raises(InvalidValue, match="AGENT_INBOX_POLL_SECONDS is"):
        Settings.from_env({"AGENT_INBOX_POLL_SECONDS": text})


def test_every_field_of_settings_is_read_by_some_part_of_the_engine() -> None:
    """A setting that does nothing would be believed."""
    package = Path(drumbeat.__file__).parent
    code = "".join(
        path.read_text("utf-8") for path in package.rglob("*.py") if path.name != "settings.py"
    )
    names = [field.name for field in attrs.fields(Settings)]
    assert len(names) > 15
    assert [name for name in names if not re.search(rf"settings\.{name}\b", code)] == []
