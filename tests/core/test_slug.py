"""Slugs: what may name an automation, and which names clash."""

from pathlib import PurePath

import pytest

from drumbeat.core.slug import MAX_LENGTH, slug_clashes, slug_problem


@pytest.mark.parametrize(
    "stem", ["email-check", "a", "7", "A.b_c-D", "x" * MAX_LENGTH, "a..b", "0.1.2"]
)
def test_a_stem_of_the_right_characters_is_a_slug_as_it_stands(stem: str) -> None:
    assert slug_problem(stem, PurePath("automations") / f"{stem}.md") is None


@pytest.mark.parametrize(
    "stem",
    [
        "",
        "-a",
        ".a",
        "_a",
        "a b",
        "a/b",
        "ä",
        "a\n",
        "email\u2011check",
        "\u0661",
        "x" * 101,
        "a\x00",
    ],
)
def test_any_other_stem_is_refused_with_rename_it(stem: str) -> None:
    path = PurePath("automations/file.md")
    problem = slug_problem(stem, path)
    assert problem is not None
    assert problem.code == "slug-invalid"
    assert problem.remedy.startswith("rename it")
    assert problem.path == path


def test_a_long_stem_is_told_its_length() -> None:
    problem = slug_problem("x" * 101, None)
    assert problem is not None
    assert "101 characters" in problem.message
    assert "at most 100 characters" in problem.remedy


def test_slugs_that_differ_by_case_or_folder_only_clash_and_each_names_the_other() -> None:
    upper, lower = PurePath("automations/Email.md"), PurePath("automations/email.md")
    job, other = PurePath("jobs/email.md"), PurePath("jobs/other.md")
    problems = slug_clashes([other, job, lower, upper])
    assert [problem.path for problem in problems] == [upper, lower, job]
    assert {problem.code for problem in problems} == {"slug-clash"}
    assert str(upper) in problems[0].message
    assert str(lower) in problems[0].message
    assert str(upper) in problems[2].message
    assert [problem.remedy for problem in problems] == ["rename it, or the other one"] * 3


def test_different_slugs_do_not_clash() -> None:
    assert slug_clashes([PurePath("automations/a.md"), PurePath("automations/a.b.md")]) == ()
