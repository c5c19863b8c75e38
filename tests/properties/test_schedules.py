"""Schedules through changes of the clocks, against every minute; all is `nox -s properties`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCHEDULES = Path(__file__).with_name("schedules.py")
ZONES = (
    "Africa/Casablanca",
    "America/Havana",
    "America/Nuuk",
    "America/St_Johns",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Pacific/Apia",
)


def check(*options: str, script: str = "") -> "subprocess.CompletedProcess[str]":
    begin = ["-c", script, str(SCHEDULES.parent)] if script else [str(SCHEDULES)]
    command = [sys.executable, *begin, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.slow
def test_slots_around_changes_are_those_that_a_look_at_every_minute_finds() -> None:
    """None is missed, none invented, each comes once, and they rise; so it is counted, too."""
    done = check("--expressions", "12", *(f"--zone={name}" for name in ZONES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(", 0 disagreements\n")
    counted = re.search(r"'cases': (\d+)", done.stdout)
    assert counted is not None
    assert int(counted[1]) >= 150


@pytest.mark.slow
def test_a_disagreement_is_told() -> None:
    """A check that could not fail would say nothing: here each slot is a minute late."""
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import schedules\n"
        "from datetime import timedelta\n"
        "honest = schedules.next_fire\n"
        "schedules.next_fire = lambda *a, **k: honest(*a, **k) + timedelta(minutes=1)\n"
        "sys.exit(schedules.main())\n"
    )
    done = check("--expressions", "3", "--zone=Europe/Berlin", script=script)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Europe/Berlin gap" in done.stdout
