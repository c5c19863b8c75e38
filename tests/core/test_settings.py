"""Every limit has bounds, and what the environment says is read strictly."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from drumbeat import DrumbeatError, Settings

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
    assert settings.inbox_poll == timedelta(seconds=300)
    assert settings.max_sleep == timedelta(seconds=60)
    assert settings.store_probe == timedelta(seconds=30)
    assert settings.deliver_attempts == 8
    assert settings.keep_artifacts == timedelta(days=30)
    assert settings.keep_events == timedelta(days=90)
    assert settings.keep_runs == timedelta(days=400)
    assert settings.git_hosts == ("github.com",)


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


@pytest.mark.parametrize("hosts", ["github.com", ["github.com"], ("",), (1,)])
def test_hosts_are_a_tuple_of_names(hosts: Any) -> None:
    """One text would otherwise be taken letter by letter."""
    with pytest.raises(ValueError, match=r"Settings.git_hosts must be a tuple of host names"):
        Settings(git_hosts=hosts)


def test_the_environment_names_the_run_limit_and_the_poll() -> None:
    env = {"MAX_CONCURRENT_RUNS": " 7 ", "AGENT_INBOX_POLL_SECONDS": "60", "OTHER": "x"}
    settings = Settings.from_env(env)
    assert settings.max_concurrent_runs == 7
    assert settings.inbox_poll == timedelta(minutes=1)
    rest: dict[str, Any] = {"max_concurrent_runs": 3, "inbox_poll": timedelta(minutes=5)}
    assert attrs.evolve(settings, **rest) == Settings()


def test_an_empty_variable_is_none() -> None:
    env = {"MAX_CONCURRENT_RUNS": " ", "AGENT_INBOX_POLL_SECONDS": ""}
    assert Settings.from_env(env) == Settings()


def test_overrides_win_over_the_environment() -> None:
    settings = Settings.from_env({"MAX_CONCURRENT_RUNS": "7"}, max_concurrent_runs=1)
    assert settings.max_concurrent_runs == 1


@pytest.mark.parametrize("variable", ["MAX_CONCURRENT_RUNS", "AGENT_INBOX_POLL_SECONDS"])
@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "1000000", "٣"])
def test_anything_but_a_whole_number_is_refused_by_name(variable: str, text: str) -> None:
    with pytest.raises(DrumbeatError) as caught:
        Settings.from_env({variable: text})
    assert caught.value.problem.code == "setting-invalid"
    assert variable in caught.value.problem.message
    assert variable in caught.value.problem.remedy
