"""Whole files: the good ones load, the bad ones are refused for exactly what stands beside them."""

from pathlib import Path

import attrs
import pytest

from drumbeat.core.automation_file import validate_automation_content
from drumbeat.core.job_file import validate_job_content
from drumbeat.core.model import Automation
from drumbeat.errors import AutomationError, Problem

CORPUS = Path(__file__).parents[1] / "corpus"
GOOD = sorted((CORPUS / "good").rglob("*.md"))
BAD = sorted((CORPUS / "bad").rglob("*.md"))


def read(content: str | bytes, path: Path) -> Automation:
    """Judge a file by where it lies: those in `jobs/` are job files."""
    validate = validate_job_content if path.parent.name == "jobs" else validate_automation_content
    return validate(content, path=path)


def located(problem: Problem) -> str:
    """A line of a `.problems` file: `line:column code`, `-` where the whole file is meant."""
    place = "-" if problem.line is None else f"{problem.line}:{problem.column}"
    return f"{place} {problem.code}"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: str(path.relative_to(CORPUS)))
def test_a_good_file_loads_as_bytes_as_text_with_crlf_and_with_a_byte_order_mark(
    path: Path,
) -> None:
    raw = path.read_bytes()
    automation = read(raw, path)
    assert automation.slug == path.stem
    assert read(raw.decode(), path) == automation
    assert read(b"\xef\xbb\xbf" + raw, path) == automation
    crlf = read(raw.replace(b"\n", b"\r\n"), path)
    if automation.kind == "job":  # its prompt is the file's, byte for byte
        crlf = attrs.evolve(crlf, steps=automation.steps, fingerprint=automation.fingerprint)
    assert crlf == automation


@pytest.mark.parametrize("path", BAD, ids=lambda path: str(path.relative_to(CORPUS)))
def test_a_bad_file_is_refused_for_exactly_the_problems_beside_it(path: Path) -> None:
    expected = path.with_suffix(".problems").read_text().splitlines()
    with pytest.raises(AutomationError) as caught:
        read(path.read_bytes(), path)
    assert [located(problem) for problem in caught.value.problems] == expected
    for problem in caught.value.problems:
        assert problem.path == path
        assert problem.message
        assert problem.remedy


@pytest.mark.parametrize("path", BAD, ids=lambda path: str(path.relative_to(CORPUS)))
def test_crlf_line_ends_move_no_problem(path: Path) -> None:
    with pytest.raises(AutomationError) as plain:
        read(path.read_bytes(), path)
    with pytest.raises(AutomationError) as crlf:
        read(path.read_bytes().replace(b"\n", b"\r\n"), path)
    assert crlf.value.problems == plain.value.problems


def test_every_bad_file_has_its_problems_beside_it_and_nothing_else_lies_there() -> None:
    beside = sorted((CORPUS / "bad").rglob("*.problems"))
    assert [path.with_suffix(".md") for path in beside] == BAD
    for kind, good, bad in (("automation", 5, 50), ("jobs", 5, 15)):
        assert sum((path.parent.name == "jobs") == (kind == "jobs") for path in GOOD) > good
        assert sum((path.parent.name == "jobs") == (kind == "jobs") for path in BAD) > bad
