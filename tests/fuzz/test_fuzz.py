"""Whatever comes in, only documented errors go out; the long run is `nox -s fuzz`."""

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")


@pytest.mark.slow
def test_a_sample_of_damaged_texts_is_read_or_refused() -> None:
    """Each parser gets some, and no answer breaks its contract."""
    command = [sys.executable, str(FUZZ), "--inputs", "80", "--hostile", "0", "--seed", "sample"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 violations") == done.stdout.count("inputs and") > 20


@pytest.mark.slow
def test_a_violation_is_told(tmp_path: Path) -> None:
    """A run that could not fail would say nothing: here a parser is broken on purpose."""
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import fuzz, dataclasses\n"
        "def answer(content):\n"
        "    raise KeyError(content[:1])\n"
        "broken = dataclasses.replace(fuzz.PARSERS[-1], name='broken', answer=answer)\n"
        "fuzz.PARSERS = (broken,)\n"
        "sys.exit(fuzz.main())\n"
    )
    command = [sys.executable, "-c", script, str(FUZZ.parent), "--inputs", "3", "--hostile", "0"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "broken: 3 inputs and 0 of 64 KB, 3 violations" in done.stdout
    assert "KeyError at <string>:3" in done.stdout
    assert (tmp_path / "broken-0").exists()
