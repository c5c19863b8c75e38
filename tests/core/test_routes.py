"""Whose a route is: that of a file that loads, of one that is broken, or nobody's."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat import Automation, Problem, Workspace, validate_job_content
from drumbeat.core.routes import BrokenRoute, Route, find_route, said_route

WRONG = Problem(code="x", message="m", remedy="r")


def job(slug: str, *lines: str) -> Automation:
    text = "\n".join(["---", *lines, "---", "Do it.", ""])
    return validate_job_content(text, path=Path(f"jobs/{slug}.md"))


def workspace(*automations: Automation, broken: tuple[str, ...] = ()) -> Workspace:
    return Workspace(
        path=Path("/w"),
        automations=automations,
        problems={Path(f"jobs/{slug}.md"): (WRONG,) for slug in broken},
        packs=(),
    )


@pytest.mark.parametrize("name", ["Door", "door", "DOOR"])
def test_case_does_not_count(name: str) -> None:
    """As for clashes: the route is typed into the settings of a sender."""
    door = job("a", 'cron: "0 7 * * *"', "webhook: Door", "method: get")
    found = find_route(name, workspace=workspace(job("b"), door), last_good={}, said={})
    assert isinstance(found, Route)
    assert (found.automation, found.trigger.method) == (door, "get")


def test_what_no_file_has_is_nobodys() -> None:
    """Nor is the empty name that of every file without a route."""
    known = workspace(job("a", "webhook: door"), job("b"), broken=("c",))
    for name in ("window", ""):
        assert find_route(name, workspace=known, last_good={"c": job("c")}, said={}) is None


def test_a_broken_file_keeps_its_route_and_has_the_one_it_says() -> None:
    """Both, since nobody can tell which of them it is going to have."""
    known = workspace(broken=("a", "b"))
    good = {"a": job("a", "webhook: old"), "elsewhere": job("elsewhere", "webhook: gone")}
    for name, route in (("OLD", "old"), ("new", "New")):
        found = find_route(name, workspace=known, last_good=good, said={"a": "New"})
        assert found == BrokenRoute(slug="a", route=route)
    assert find_route("gone", workspace=known, last_good=good, said={"a": "New"}) is None


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("---\nwebhook: door\n---\nx", "door"),
        ("---\nwebhook: 'door' # here\nfilter: 'a\n---\nx", "door"),
        ('---\r\n"webhook":\tdoor.v2\r\n---\r\nx', "door.v2"),
        ("---\nwebhook: door\nno end", "door"),
        ("webhook: door\n", "door"),
        ("---\ncron: x\n---\nwebhook: in-prose", ""),
        ("---\nwebhooks: door\n---\n", ""),
        ("---\nwebhook:\n---\n", ""),
        ("", ""),
    ],
)
def test_a_route_is_read_off_a_text_that_is_no_job(text: str, route: str) -> None:
    """Whatever else is wrong with it, and never from the prompt."""
    assert said_route(text.encode()) == route


@given(st.binary(max_size=300))
def test_any_bytes_say_a_route_or_none(data: bytes) -> None:
    """Nothing is raised."""
    assert len(said_route(b"---\nwebhook: " + data)) <= 100
