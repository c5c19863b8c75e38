"""What an agent is told that drafts a job, and how its answer is read."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat import validate_job_content
from drumbeat.core.drafting import (
    JobDraft,
    job_contract,
    read_draft,
    render_draft_context,
    render_problems,
)
from drumbeat.core.vocabulary import JOB
from drumbeat.errors import Problem

FILE = '---\ncron: "0 7 * * 1"\n---\n\nLook at the shelf.\n'
NAME = "jobs/shelf-look.md"


@pytest.mark.parametrize(
    "answer",
    [
        f"{NAME}\n{FILE}",
        f"{NAME}\n\n{FILE}",
        f"\n \n{NAME}\n{FILE}\n\n",
        f"shelf-look.md\n{FILE}",
        f"`{NAME}`:\n{FILE}",
        f"**{NAME}**\n{FILE}",
        f"## {NAME}\n{FILE}",
        f"{NAME}\n```markdown\n{FILE}```",
        f"{NAME}\n\n~~~\n{FILE}~~~\n",
        f"```\n{NAME}\n{FILE}```\n",
        f"\ufeff{NAME}\n{FILE}",
        f"{NAME}\n{FILE}".replace("\n", "\r\n"),
    ],
)
def test_an_answer_is_a_path_and_a_file(answer: str) -> None:
    """A fence around it is taken off, and nothing else is changed."""
    assert read_draft(answer) == JobDraft(slug="shelf-look", text=FILE)


def test_a_fence_within_the_prompt_stays() -> None:
    file = f"{FILE}\n```sh\nmake\n```\n"
    assert read_draft(f"{NAME}\n{file}") == JobDraft(slug="shelf-look", text=file)
    assert read_draft(f"{NAME}\n````md\n{file}````") == JobDraft(slug="shelf-look", text=file)


@pytest.mark.parametrize(
    "second",
    [
        f"jobs/two.md\n{FILE}",
        f"**`jobs/two.md`**:\n\n```md\n{FILE}```\n",
        f"```\n\n# jobs/two.md\n```\n{FILE}",
    ],
)
def test_a_second_file_is_no_part_of_the_first_ones_prompt(second: str) -> None:
    problem = read_draft(f"{NAME}\n{FILE}\n{second}")
    assert isinstance(problem, Problem)
    assert problem.code == "draft-unreadable"
    assert "second file, 'jobs/two.md'" in problem.message


@pytest.mark.parametrize(
    "prompt",
    ["See jobs/two.md\n---\n", "two.md\n---\n", "jobs/two.md\nis another.\n", "jobs/two.md\n"],
)
def test_a_prompt_may_name_another_file(prompt: str) -> None:
    assert read_draft(f"{NAME}\n{FILE}{prompt}") == JobDraft(slug="shelf-look", text=FILE + prompt)


def test_what_looks_like_a_line_end_stays_what_it_is() -> None:
    file = FILE.replace("the shelf", "the\u2028shelf\x0c")
    assert read_draft(f"{NAME}\n{file}") == JobDraft(slug="shelf-look", text=file)


@pytest.mark.parametrize(
    "answer, said",
    [
        ("", "empty"),
        (" \n\n", "empty"),
        ("Here is the job.\n" + FILE, "first line"),
        (FILE, "first line"),
        (f"jobs/{'a' * 300}.md\n{FILE}", "first line"),
        (f"automations/shelf.md\n{FILE}", "first line"),
        (f"jobs/a/b.md\n{FILE}", "first line"),
        (f"../shelf.md\n{FILE}", "first line"),
        (NAME, "no file that begins"),
        (f"{NAME}\n```", "no file that begins"),
        (f"{NAME}\nLook at the shelf.", "no file that begins"),
        (f"{NAME}\n```\n{FILE}", "no file that begins"),
    ],
)
def test_what_is_no_such_answer_is_a_problem(answer: str, said: str) -> None:
    problem = read_draft(answer)
    assert isinstance(problem, Problem)
    assert problem.code == "draft-unreadable"
    assert said in problem.message


@given(st.text())
def test_any_answer_is_read_or_refused(text: str) -> None:
    """And what is read names no other folder."""
    for answer in (text, f"{NAME}\n{text}", f"{text}\n{FILE}"):
        draft = read_draft(answer)
        if isinstance(draft, JobDraft):
            assert "/" not in draft.slug
            assert draft.text.startswith("---")


def test_the_contract_has_every_key_as_the_vocabulary_has_it() -> None:
    text = job_contract()
    for key in JOB.keys:
        (line,) = re.findall(rf"^- `{key.name}`: .*$", text, re.MULTILINE)
        assert key.meaning in line
        assert key.remedy in line
        assert key.default is None or f"`{key.default}`" in line


def test_each_example_in_the_contract_keeps_the_contract() -> None:
    """Whoever copies what is shown for a key gets a file that loads."""
    beside = {
        "auth": "webhook: a\n",
        "filter": "webhook: a\n",
        "inbox": 'allowFrom: "@a.example"\n',
        "allowFrom": "inbox: imap:a@b.example\n",
    }
    examples = re.findall(r"`(([a-zA-Z]+): [^`]+)`", job_contract())
    assert {key for _, key in examples} >= {"cron", "webhook", "filter", "inbox", "allowFrom"}
    for example, key in examples:
        validate_job_content(f"---\n{beside.get(key, '')}{example}\n---\nLook.\n")


def render(**changed: Any) -> str:
    given_: dict[str, Any] = {"zone": "UTC", "systems": ["imap"], "automations": ["- jobs/a.md"]}
    return render_draft_context(**given_ | changed)


def test_the_agent_is_told_what_there_is() -> None:
    text = render()
    found = re.match(r"<drumbeat-context ([0-9a-f]+)>\n", text)
    assert found is not None
    assert f"<automations {found[1]}>\n- jobs/a.md\n</automations {found[1]}>" in text
    assert "in the zone UTC. The mail systems are: imap." in text
    assert job_contract() in text
    bare = render(systems=[], automations=[])
    assert "none, so that no `inbox` can be used" in bare
    assert "(none yet)" in bare


def test_problems_are_shown_with_place_code_and_remedy() -> None:
    problem = Problem(code="cron-syntax", message="no cron", remedy="write one", line=2)
    assert "- <text>:2: no cron [cron-syntax]\n  write one" in render_problems([problem])
