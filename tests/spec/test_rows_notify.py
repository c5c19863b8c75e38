"""The rows of the notify table that meet each other (spec, section 10)."""

import pytest

from drumbeat import evaluate_notify

SENTINEL = "NOTHING_TO_REPORT"


@pytest.mark.parametrize(
    ("policy", "reply", "text"),
    [
        ("auto", f"Disk full.\n{SENTINEL}", "Disk full."),
        ("urgent-only", f"{SENTINEL}\nURGENT: disk full\n", "URGENT: disk full"),
        ("urgent-only", f"URGENT: disk full\n {SENTINEL}\t\nMore.", "URGENT: disk full\nMore."),
        ("always", f"Disk full.\n{SENTINEL}", f"Disk full.\n{SENTINEL}"),
    ],
)
@pytest.mark.parametrize("judged", [False, True])
def test_a_line_of_the_sentinel_alone_is_left_out_except_under_always(
    policy: str, reply: str, text: str, judged: bool
) -> None:
    decision = (
        evaluate_notify(policy, "the steps", judgment=reply)
        if judged and policy != "always"
        else evaluate_notify(policy, reply)
    )
    assert (decision.verdict, decision.text) == ("deliver", text)


@pytest.mark.parametrize("policy", ["auto", "urgent-only"])
def test_a_text_that_is_kept_on_record_is_kept_whole(policy: str) -> None:
    """What is demoted is for whoever looks into the record, so nothing is taken out of it."""
    reply = f"**{SENTINEL}**"
    assert evaluate_notify(policy, reply).text == reply
