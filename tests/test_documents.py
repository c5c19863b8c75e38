"""Importing the package stays light, and what stands in two places says the same."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import attrs
import pytest

import drumbeat
from drumbeat import Settings
from drumbeat.core.git_access import TOKEN
from drumbeat.core.signatures import DOOR_SECRETS
from drumbeat.runtime.config_files import OPERATOR_VARIABLE

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
    extra, core = _required("cli")
    assert {"click", "rich"} <= extra
    assert extra & core == set()


def test_the_doors_are_an_extra() -> None:
    """Nor those of the web."""
    extra, core = _required("web")
    assert extra == {"starlette"}
    assert extra & core == set()


def _required(extra: str) -> tuple[set[str], set[str]]:
    """The libraries of an extra, and those of the core package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [project["optional-dependencies"][extra], project["dependencies"]]
    first, second = ({re.split("[<>=]", line)[0] for line in lines} for lines in named)
    return first, second


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
    from drumbeat.cli.commands import drumbeat as command

    owners = {"engine": Engine, "client": Client}
    return {
        *(f"drumbeat {name}" for name in _commands(text) - command.commands.keys()),
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
    from drumbeat.cli.commands import drumbeat as command

    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    found = re.findall(r"^## (drumbeat ([a-z-]+).*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    sections = {name: section for section, name in found}
    assert sections.keys() == command.commands.keys()
    assert "The options are those of `run`" in sections["serve"]
    sections["serve"] += sections["run"]
    missing = [
        f"{name} {option}"
        for name, command in command.commands.items()
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


# ---- tables that follow the code


def _rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the tables below a heading, cells stripped, without the head."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    lines = [line for line in section[1].splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _shown(value: object) -> str:
    """A default as the table writes it: a number, `none`, names, a duration in its largest unit."""
    if isinstance(value, tuple):
        return ", ".join(f"`{name}`" for name in value)
    if value is None or not isinstance(value, timedelta):
        return "none" if value is None else str(value)
    seconds = int(value.total_seconds())
    units = ((86400, "day"), (60, "minute"), (1, "second"))
    size, unit = next(
        (size, unit)
        for size, unit in units
        if seconds % size == 0 and (seconds > size or seconds == size != 60)
    )
    count = seconds // size
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def test_the_settings_page_has_every_field_with_its_default() -> None:
    """Both ways: no field is left out, and none stands there that is gone."""
    listed = {cells[0].strip("`"): cells[1] for cells in _rows("settings.md", "Settings")}
    fields = {field.name: _shown(field.default) for field in attrs.fields(Settings)}
    assert listed == fields


def test_the_settings_page_has_every_variable_that_is_read_or_set() -> None:
    """What the code asks the environment for, and what a run is given."""
    rows = _rows("settings.md", "Variables of the environment")
    listed = {name for cells in rows for name in re.findall("`([A-Z_]+)`", cells[0])}
    read: set[str] = set(DOOR_SECRETS) | {OPERATOR_VARIABLE, TOKEN}
    for path in (ROOT / "src" / "drumbeat").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        read |= set(re.findall(r"\b(?:env|environ|host)\.get\(\"([A-Z_]+)\"", text))
        read |= set(re.findall(r"^ +\"(DRUMBEAT_[A-Z_]+)\":", text, re.MULTILINE))
    assert listed == read


_LEVELS = {"info", "warning", "error"}


def _said(tree: ast.AST) -> Iterator[tuple[str, str, str, set[str]]]:
    """What code says: `log` or `event`, its level if any, the name, and its facts."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        texts = [a.value for a in node.args if isinstance(a, ast.Constant) and a.value]
        names = {keyword.arg for keyword in node.keywords if keyword.arg}
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(owner, ast.Name) and owner.id == "log" and called in _LEVELS:
            yield "log", called, str(texts[0]), names
        elif called in {"event", "note"} and texts:
            # what a note of a run's journal rides on is no data of it
            yield "event", "", str(texts[0]), names - {"claim", "record"}
        elif called == "_settle" and len(texts) == 2:
            yield "event", "", str(texts[1]), set()
        elif isinstance(node.func, ast.Name) and node.func.id == "Event":
            kinds = [k.value for k in node.keywords if k.arg == "kind"]
            yield from (
                ("event", "", str(text.value), set())
                for kind in kinds
                for text in ast.walk(kind)
                if isinstance(text, ast.Constant) and isinstance(text.value, str)
            )


def _all_said() -> list[tuple[str, str, str, set[str]]]:
    found = []
    for path in (ROOT / "src" / "drumbeat").rglob("*.py"):
        if "testing" not in path.parts:
            found += list(_said(ast.parse(path.read_text(encoding="utf-8"))))
    return found


def test_the_page_of_events_has_every_log_event() -> None:
    """Names both ways, levels, and each fact that a line is given."""
    rows = {cells[0].strip("`"): cells for cells in _rows("events.md", "Log events")}
    said = [(name, level, facts) for what, level, name, facts in _all_said() if what == "log"]
    assert rows.keys() == {name for name, _, _ in said}
    wrong = [
        (name, level, fact)
        for name, level, facts in said
        for fact in (facts or {""})
        if rows[name][1] != level or (fact and f"`{fact}`" not in rows[name][3])
    ]
    assert wrong == []


def test_the_page_of_events_has_every_kind_of_durable_event() -> None:
    """Names both ways, and what their data hold."""
    rows = {cells[0].strip("`"): cells for cells in _rows("events.md", "Durable events")}
    said = [(name, facts) for what, _, name, facts in _all_said() if what == "event"]
    assert rows.keys() == {name for name, _ in said}
    wrong = [
        (name, fact) for name, facts in said for fact in facts if f"`{fact}`" not in rows[name][2]
    ]
    assert wrong == []


def test_the_reference_names_everything_by_what_it_is_for() -> None:
    """A list by the alphabet helps only who knows the name already."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    table = text.partition("## By task")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE))
    assert rows.keys() == set(drumbeat.__all__) - {"__version__"}
    stale = [
        name
        for name, said in rows.items()
        if inspect.isroutine(thing := getattr(drumbeat, name)) or inspect.isclass(thing)
        if said != " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    ]
    assert stale == []


# ---- what is promised


def test_each_promise_names_tests_that_are_there() -> None:
    """A file or folder of tests, or one function in it."""
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[^`]+)`", page)
    assert len(named) > 40
    for name in named:
        path, _, function = name.partition("::")
        assert (ROOT / path).exists(), name
        if function:
            assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name
