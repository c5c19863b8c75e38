"""What a prompt says about guidance files, judged by whole words."""

import pytest

from drumbeat.core.guidance import asks_to_prune, guidance_files, writes_guidance


@pytest.mark.parametrize(
    "prompt",
    [
        "Update guidance/A.md with what you learned.",
        "Append it to guidance/A.md.",
        "Put what you learned into guidance/A.md.",
        "Add a line to ./guidance/b/A.md, however short.",
        "Open guidance/A.md and add to it what you learned.",
        "Open guidance/A.md, then write what you learned into the file.",
        "Read guidance/A.md and update it.",
        "Do not send mail, but update guidance/A.md.",
        "Do not forget to update guidance/A.md.",
        "Read the reports. Afterwards, keep recording in guidance/A.md.",
    ],
)
def test_a_prompt_that_writes_to_guidance(prompt: str) -> None:
    assert writes_guidance(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "Load and follow guidance/A.md.",
        "Update your notes.",
        "Read guidance/A.md and put the answer in the reply",
        "Read guidance/A.md and write a reply that follows it.",
        "Check the address in guidance/A.md.",
        "Do what is written in guidance/A.md.",
        "Update the ticket as guidance/A.md says.",
        "Add a comment to the ticket after reading guidance/A.md.",
        "Save the report. Follow guidance/A.md.",
        "Do not edit guidance/A.md.",
        "Don\u2019t update guidance/A.md.",
        "Follow guidance/A.md without editing it.",
    ],
)
def test_a_prompt_that_writes_elsewhere_or_nowhere(prompt: str) -> None:
    assert not writes_guidance(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "Update guidance/A.md; prune or consolidate.",
        "Update guidance/A.md and keep it short.",
        "Keep guidance/A.md\nsmall.",
        "Merge what says the same, rather than only appending.",
        "Append to guidance/A.md, never without pruning.",
        "Do not just append to guidance/A.md: prune it.",
        "Do not only append but remove what is old.",
        "Update guidance/A.md and do not forget to prune it.",
        "Trim guidance/A.md before deleting old tickets.",
    ],
)
def test_a_prompt_that_prunes(prompt: str) -> None:
    assert asks_to_prune(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "Update guidance/A.md, but do not remove anything",
        "Update guidance/A.md. Don't shorten it.",
        "Update guidance/A.md without deleting what is there.",
        "Record in guidance/A.md what you learned of removable media and dropouts.",
        "Append to guidance/A.md. Never trim it.",
    ],
)
def test_a_prompt_that_does_not_prune(prompt: str) -> None:
    assert not asks_to_prune(prompt)


def test_the_files_that_a_prompt_names() -> None:
    prompt = "Follow ./guidance/A.md, guidance/b/C.md; not my/guidance/D.md or guidance/."
    assert guidance_files(prompt) == ("guidance/A.md", "guidance/b/C.md")
