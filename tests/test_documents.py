"""Importing the package stays light, and what stands in two places says the same."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


# ---- what importing loads


def _loaded_by(statement: str) -> set[str]:
    """The modules that are there after a fresh interpreter ran `statement`."""
    script = f"import sys\n{statement}\nprint(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.slow
def test_importing_the_package_loads_no_edge_and_no_library_of_one() -> None:
    """A host pays only for what it uses.

    What structlog looks for by itself, where it is installed, is structlog's own affair.
    """
    loaded = _loaded_by("from drumbeat import *") - _loaded_by("import structlog")
    edges = {
        f"drumbeat.{name}" for name in ("agents", "cli", "deliverers", "imap", "testing", "web")
    }
    extras = {"click", "rich", "starlette", "trio", "pytest", "hypothesis", "pygments"}
    assert "drumbeat.engine" in loaded
    assert loaded & (edges | extras) == set()


@pytest.mark.slow
def test_the_testing_kit_needs_no_test_runner() -> None:
    """A host may use the kit with any runner, or with none."""
    assert _loaded_by("import drumbeat.testing") & {"pytest", "_pytest", "hypothesis"} == set()


def test_the_command_line_is_an_extra() -> None:
    """What the core package requires names none of the command line's libraries."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extra = {re.split("[<>=]", line)[0] for line in project["optional-dependencies"]["cli"]}
    core = {re.split("[<>=]", line)[0] for line in project["dependencies"]}
    assert {"click", "rich"} <= extra
    assert extra & core == set()


# ---- what stands in two places


def test_contributing_names_every_command() -> None:
    """Each nox session is explained where contributors look."""
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    sessions = set(re.findall(r'@nox\.session\(name="([^"]+)"', text))
    sessions |= set(re.findall(r"@nox\.session\ndef (\w+)", text))
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(sessions) >= 7
    assert {name for name in sessions if f"`nox -s {name}`" not in page} == set()


def test_readme_states_the_python_that_is_required() -> None:
    """The first line of requirements is the one the installer checks."""
    needed = re.search(
        r'^requires-python = ">=([\d.]+)"$',
        (ROOT / "pyproject.toml").read_text("utf-8"),
        re.MULTILINE,
    )
    assert needed is not None
    assert f"Python {needed[1]} or later" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("room", ["core", "runtime"])
def test_design_lists_the_files_of_a_room(room: str) -> None:
    """Who looks for a file finds what it is about, and no file that is gone."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = re.search(rf"^### {room}\n(.*?)^##", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|$", section[1], re.MULTILINE)
    listed = [name for files in rows for name in re.findall("`([a-z_]+)`", files)]
    there = {path.stem for path in (ROOT / "src" / "drumbeat" / room).glob("*.py")} - {"__init__"}
    assert sorted(listed) == sorted(there)
