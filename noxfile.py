"""One command for each thing that is done here: `nox -s NAME`; `nox -l` lists them."""

import nox

nox.needs_version = ">=2025.5.1"
nox.options.sessions = ["tests", "lint", "types", "docs", "demo"]

PYTHONS = ["3.11", "3.12", "3.13"]
# Three processes at once, since tests wait as much as they work; a file stays in one: the examples
# of a document build on each other. In their own order, which has no long file at its end.
SHARED = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
GROUPS = nox.project.load_toml("pyproject.toml")


def install(
    session: nox.Session, *groups: str, package: tuple[str, ...] = ("-e", ".[cli,imap,web]")
) -> None:
    """Install the package and the dependency groups of that name."""
    session.install(*package, *nox.project.dependency_groups(GROUPS, *groups))


@nox.session
def tests(session: nox.Session) -> None:
    """Run every test on asyncio and trio, README and documents included, and hold the coverage."""
    install(session, "test")
    if session.posargs:
        session.run("pytest", *SHARED, *session.posargs)
        return
    # Counting lines costs as much again as the tests do. One backend covers the code.
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *SHARED, "-m", "not (trio or long)")
    session.run("pytest", *SHARED, "-m", "trio or long")
    session.run("coverage", "combine", "--quiet")
    session.run(
        "coverage", "report", "--include=src/drumbeat/core/*", "--fail-under=100", "--precision=2"
    )
    session.run("coverage", "report", "--fail-under=95")


@nox.session(name="tests-all", python=PYTHONS)
def tests_all(session: nox.Session) -> None:
    """Run the tests on every supported Python that is there; say which are not."""
    install(session, "test")
    session.run("pytest", *SHARED, *session.posargs)


@nox.session(name="tests-floor")
def tests_floor(session: nox.Session) -> None:
    """Run the tests with the oldest release of each dependency that is allowed."""
    install(session, "test")
    project = nox.project.load_toml("pyproject.toml")["project"]
    extras = project["optional-dependencies"]
    # Not `web`: FastAPI, which an example of a host uses, asks for a later Starlette.
    allowed = [*project["dependencies"], *extras["cli"], *extras["imap"]]
    session.install(*(each.replace(">=", "==") for each in allowed if ">=" in each))
    session.run("pytest", *SHARED, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and where imports point."""
    install(session, "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports", "--no-cache")


@nox.session
def types(session: nox.Session) -> None:
    """Type-check the package, examples, documents, a host's view; every public name is typed."""
    install(session, "types", "test")
    session.run("mypy", "src", "tests/typing", "examples", "bench")
    pages = session.create_tmp()
    session.run("python", "tests/typing/pages.py", pages)
    session.run("mypy", pages)
    session.run("basedpyright", "--verifytypes", "drumbeat", "--ignoreexternal")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documents; a broken reference is an error. Render the changes that are waiting."""
    install(session, "docs")
    session.run("sphinx-build", "-n", "-W", "--keep-going", "-q", "docs", "docs/_build/html")
    session.run("towncrier", "build", "--draft", "--version", "next", "--date", "undated")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure ratios, each within one run; nothing is asserted."""
    install(session)
    session.run("python", "bench/import_cost.py")


@nox.session
def crash(session: nox.Session) -> None:
    """Kill hosts at every step, 1,000 times on each backend or as asked; say what was violated."""
    install(session, "test")
    for backend in ("asyncio", "trio"):
        folder = session.create_tmp() + f"/crash-{backend}"
        command = ("python", "tests/crash/kills.py", folder, f"--backend={backend}")
        session.run(*command, *(session.posargs or ["--kills=1000"]))


@nox.session
def fuzz(session: nox.Session) -> None:
    """Hand 100,000 damaged texts, or as many as asked, to each parser; say what was violated."""
    install(session, package=("-e", ".[imap,web]"))
    session.run("python", "tests/fuzz/fuzz.py", *session.posargs)


@nox.session
def properties(session: nox.Session) -> None:
    """Hold schedules in 49 zones to a look at every minute around changes of the clocks."""
    install(session)
    session.run("python", "tests/properties/schedules.py", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Run the first example, offline, from the package as it would be installed."""
    install(session, package=(".[cli]",))
    session.run("python", "examples/first-run/demo.py", *session.posargs)
