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


# ---- what documents tell people to use


PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")],
    key=str,
)


def _commands(text: str) -> set[str]:
    """The commands that a page names in backquotes, in headings or in blocks for a shell."""
    shell = "\n".join(re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return {
        *re.findall(r"`drumbeat ([a-z][a-z-]*)", text),
        *re.findall(r"^#+ drumbeat ([a-z][a-z-]*)", text, re.MULTILINE),
        *re.findall(r"^(?:\$ )?drumbeat ([a-z][a-z-]*)", shell, re.MULTILINE),
    }


def _members(text: str) -> set[tuple[str, str]]:
    """What a page uses of an engine or a client, in code or in a sentence."""
    uses = re.findall(r"\b(engine|client)\.([a-z_]+)\(", text)
    names = re.findall(r"\b(Engine|Client)\.([a-z_]+)", text)
    return {(owner.lower(), name) for owner, name in (*uses, *names)}


def _unresolved(text: str) -> set[str]:
    """The commands and members that a page names and nobody has."""
    from drumbeat import Client, Engine
    from drumbeat.cli.commands import drumbeat

    owners = {"engine": Engine, "client": Client}
    return {
        *(f"drumbeat {name}" for name in _commands(text) - drumbeat.commands.keys()),
        *(f"{owner}.{name}" for owner, name in _members(text) if not hasattr(owners[owner], name)),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_tells_people_to_use_is_there(page: Path) -> None:
    """Commands, and what is called on an engine or a client."""
    pytest.importorskip("click")
    pytest.importorskip("rich")
    assert _unresolved(page.read_text(encoding="utf-8")) == set()


def test_what_nobody_has_is_found_wherever_it_stands() -> None:
    """Or the test above could not fail."""
    pytest.importorskip("click")
    pytest.importorskip("rich")
    page = (
        "drumbeat prose is no command. Use `drumbeat polish`, `drumbeat runs` or "
        "`await engine.shine(1)`; `Client.gleam` and `engine.run(slug)`.\n\n"
        "## drumbeat rinse [FOLDER]\n\n```console\n$ drumbeat wipe --all\n```\n\n"
        "```sh\ndrumbeat scrub\ndrumbeat why a\n```\n"
    )
    nobodys = {"drumbeat polish", "drumbeat rinse", "drumbeat wipe", "drumbeat scrub"}
    assert _unresolved(page) == {*nobodys, "engine.shine", "client.gleam"}


def test_the_command_line_page_has_every_command() -> None:
    """A section for each, and the name of each of its options."""
    pytest.importorskip("click")
    pytest.importorskip("rich")
    from drumbeat.cli.commands import drumbeat

    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    found = re.findall(r"^## (drumbeat ([a-z-]+).*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    sections = {name: section for section, name in found}
    assert sections.keys() == drumbeat.commands.keys()
    assert "The options are those of `run`" in sections["serve"]
    sections["serve"] += sections["run"]
    missing = [
        f"{name} {option}"
        for name, command in drumbeat.commands.items()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and option not in sections[name]
    ]
    assert missing == []


def test_nothing_is_installed_from_where_it_is_not_published() -> None:
    """Every line that installs drumbeat does so from a clone."""
    places = [*PAGES, *(ROOT / "src").rglob("*.py")]
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in places
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install ['\"]?drumbeat", line)
    ]
    assert wrong == []
    assert 'pip install ".[cli]"' in (ROOT / "README.md").read_text(encoding="utf-8")
