import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drumbeat.core.model import Decision
from drumbeat.core.notify import (
    NOTHING_TO_REPORT,
    URGENT_MARKER,
    evaluate_judgment_failed,
    evaluate_notify,
    judgment_prompt,
    needs_judgment,
)
from drumbeat.errors import DrumbeatError, InvalidValue

POLICIES = ["always", "auto", "urgent-only", "never"]
JUDGED = ["auto", "urgent-only"]
PIECES = [
    NOTHING_TO_REPORT, URGENT_MARKER, "URGENT", ":", "```", "```python", "~~~", "\n", "\r\n", " ",
    "**", "> ", "1. ", "- [x] ", "disk full", "<b>", "</b>", "<b ", "\\_", "\u2028", "é", "!",
]  # fmt: skip
replies = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))


def verdict(policy: str, reply: str, judgment: str | None = None) -> tuple[str, str]:
    decision = evaluate_notify(policy, reply, judgment=judgment)
    return decision.verdict, decision.gate


# ---- the table, row by row


@pytest.mark.parametrize("reply", ["All is well.", NOTHING_TO_REPORT, "URGENT: x", "."])
def test_always_delivers_anything_non_empty_as_it_stands(reply: str) -> None:
    decision = evaluate_notify("always", reply)
    assert (decision.verdict, decision.gate, decision.text) == ("deliver", "policy-always", reply)


@pytest.mark.parametrize("reply", ["All is well.", NOTHING_TO_REPORT, "URGENT: disk full"])
def test_never_withholds_anything(reply: str) -> None:
    assert verdict("never", reply) == ("withhold", "policy-never")


@pytest.mark.parametrize("policy", JUDGED)
@pytest.mark.parametrize("reply", [NOTHING_TO_REPORT, f"\n \t{NOTHING_TO_REPORT}\r\n"])
def test_exactly_the_sentinel_withholds(policy: str, reply: str) -> None:
    assert verdict(policy, reply) == ("withhold", "nothing-to-report")


@pytest.mark.parametrize("policy", JUDGED)
@pytest.mark.parametrize(
    "around",
    [
        "{}.", "**{}**", "`{}`", "```\n{}\n```", "```text\n{}\n```", "> {}", "# {}", "- {}",
        "1. {}", "“{}”", "({})", "<b>{}</b>",
        '<p class="x">{}</p>', "&nbsp;{}", "{}\n\n---", "✅ {}",
        "{0}\n{0}", "{0}{0}", "\u200b{}", "~~~\n{}\n~~~", "~~~{}~~~", "> 2) **{}**", "_{}_",
    ],
)  # fmt: skip
def test_the_token_in_nothing_but_decoration_is_demoted(policy: str, around: str) -> None:
    assert verdict(policy, around.format(NOTHING_TO_REPORT)) == ("demote", "near-sentinel")


def test_a_token_whose_underscores_were_escaped_as_markup_is_demoted() -> None:
    assert verdict("auto", r"NOTHING\_TO\_REPORT") == ("demote", "near-sentinel")


@pytest.mark.parametrize(
    "reply",
    [
        "Two mails need an answer.",
        f"{NOTHING_TO_REPORT} is not true: the disk is full",
        f"{NOTHING_TO_REPORT} 2",
        f"{NOTHING_TO_REPORT} <bob@example.org>",
        f"The disk is full.\n{NOTHING_TO_REPORT}",
        f"MY{NOTHING_TO_REPORT}",
        NOTHING_TO_REPORT.lower(),
        "Nothing to report.",
        "---",
        f"```important thing\n{NOTHING_TO_REPORT}\n```",
    ],
)
def test_auto_delivers_anything_else_also_what_mentions_the_token(reply: str) -> None:
    assert verdict("auto", reply) == ("deliver", "judged-worth-saying")


URGENT = [
    "URGENT: disk full",
    "**URGENT: disk full**",
    "**URGENT**: disk full",
    "**URGENT:** disk full",
    "*URGENT* : 1",
    "`URGENT: disk full`",
    "```URGENT: disk full```",
    "> URGENT: disk full",
    "1. URGENT: disk full",
    "> 2) __URGENT:__ disk full",
    "- [x] URGENT: disk full",
    "- [ ] URGENT: disk full",
    "1\ufe0f\u20e3 URGENT: disk full",
    "🚨 URGENT: disk full",
    "“URGENT: disk full”",
    "“URGENT”: disk full",
    "<b>URGENT:</b> disk full",
    "<B>URGENT</B>: disk full",
    "&nbsp;URGENT: disk full",
    "    URGENT: disk full",
    "## URGENT: é",
    "The report.\n\nURGENT: disk full\nMore.",
    "```\nURGENT: disk full\n```",
    "```markdown\nReport\nURGENT: disk full\n```",
    "~~~\nURGENT: disk full\n~~~\n",
    "```markdown\nURGENT: disk full\n```sh\ndf\n```\n```",
    "````\nURGENT: disk full\n```\ndf\n```\n````",
    "```sh\ndf\n```\nURGENT: disk full",
    "```sh\ndf\n```\nURGENT: disk full\n```sh\ndf\n```",
    "```sh\ndf\nURGENT: disk full",
    "~~~ URGENT: disk full",
    "```\n~~~\n```\nURGENT: disk full",
    "text\n```\n```sh\n```\nURGENT: disk full",
    "> ```\n> df\n> ```\n> URGENT: disk full",
    f"URGENT: {NOTHING_TO_REPORT}",
]


@pytest.mark.parametrize("reply", URGENT)
def test_urgent_only_delivers_what_carries_the_marker(reply: str) -> None:
    assert verdict("urgent-only", reply) == ("deliver", "urgent-marker")


NOT_URGENT = [
    "All is well.",
    "This is not URGENT: all is well",
    "urgent: disk full",
    "URGENT disk full",
    "URGENTLY: disk full",
    "NOTURGENT: disk full",
    "URGENT:",
    "URGENT: !?",
    "URGENT:\ndisk full",
    "**URGENT:**\ndisk full",
    "<b>URGENT: </b>",
    "URGENT (a bit): disk full",
    "Example:\n```\nURGENT: disk full\n```",
    "```\nURGENT: disk full\n```\nThat was an example.",
    "```\nURGENT: one\n```\nand\n```\nURGENT: two\n```",
    "> ~~~\n> URGENT: disk full\n> ~~~\n> was quoted",
    "Look:\n````\n```\nURGENT: disk full\n```\n````",
    "```\nReport\n~~~\nURGENT: an example\n~~~\n```",
]


@pytest.mark.parametrize("reply", NOT_URGENT)
def test_urgent_only_demotes_anything_else(reply: str) -> None:
    assert verdict("urgent-only", reply) == ("demote", "urgent-marker-missing")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("reply", ["", " \n\t", "\u00a0"])
def test_an_empty_reply_withholds_under_any_policy(policy: str, reply: str) -> None:
    assert verdict(policy, reply) == ("withhold", "final-reply-empty")


@pytest.mark.parametrize(
    "policy, reply, expected",
    [
        ("auto", "Two mails.", "deliver"),
        ("auto", NOTHING_TO_REPORT, "withhold"),
        ("auto", f"{NOTHING_TO_REPORT}.", "demote"),
        ("urgent-only", "URGENT: disk full", "deliver"),
        ("urgent-only", "Two mails.", "demote"),
        ("urgent-only", NOTHING_TO_REPORT, "withhold"),
    ],
)
def test_a_failed_judgment_leaves_the_policy_to_the_last_steps_reply(
    policy: str, reply: str, expected: str
) -> None:
    decision = evaluate_judgment_failed(policy, reply, "the agent was unreachable")
    assert (decision.verdict, decision.gate) == (expected, "judgment-failed")
    assert "the agent was unreachable" in decision.reason
    assert decision.text == reply


# ---- the prose


@pytest.mark.parametrize("judgment", ["", " \n"])
def test_an_empty_judgment_counts_as_failed(judgment: str) -> None:
    assert verdict("auto", "Two mails.", judgment) == ("deliver", "judgment-failed")
    assert verdict("urgent-only", "Two mails.", judgment) == ("demote", "judgment-failed")


@pytest.mark.parametrize("policy", JUDGED)
def test_an_empty_judgment_of_an_empty_reply_is_an_empty_reply(policy: str) -> None:
    assert verdict(policy, " ", "") == ("withhold", "final-reply-empty")


@pytest.mark.parametrize("policy, gate", [("always", "policy-always"), ("never", "policy-never")])
def test_policies_without_a_judgment_pay_no_heed_to_one(policy: str, gate: str) -> None:
    for judgment in ("", NOTHING_TO_REPORT, "URGENT: x"):
        decision = evaluate_notify(policy, "The report.", judgment=judgment)
        assert (decision.gate, decision.text) == (gate, "The report.")
    assert evaluate_judgment_failed(policy, "The report.", "").gate == gate


def test_the_judgments_reply_is_the_final_reply() -> None:
    decision = evaluate_notify("auto", "A long report.", judgment="Two mails need you.")
    assert (decision.gate, decision.text) == ("judged-worth-saying", "Two mails need you.")


@pytest.mark.parametrize("judgment", ["A calm summary.", f"**{NOTHING_TO_REPORT}**"])
def test_a_marker_that_only_the_last_step_carries_makes_its_reply_the_text(judgment: str) -> None:
    decision = evaluate_notify(
        "urgent-only", f"{NOTHING_TO_REPORT}\nURGENT: disk full", judgment=judgment
    )
    assert (decision.verdict, decision.gate) == ("deliver", "urgent-marker")
    assert decision.text == "URGENT: disk full"


def test_a_marker_that_both_carry_leaves_the_judgments_reply_as_the_text() -> None:
    decision = evaluate_notify("urgent-only", "URGENT: long", judgment="URGENT: short")
    assert decision.text == "URGENT: short"


def test_a_marker_in_neither_is_missing() -> None:
    assert verdict("urgent-only", "Fine.", "All fine.") == ("demote", "urgent-marker-missing")


@pytest.mark.parametrize("policy", JUDGED)
def test_a_judgment_of_exactly_the_sentinel_withholds_whatever_the_steps_said(policy: str) -> None:
    assert verdict(policy, "URGENT: disk full", f" {NOTHING_TO_REPORT}\n") == (
        "withhold",
        "nothing-to-report",
    )


@pytest.mark.parametrize(
    "reply, text",
    [
        (f"{NOTHING_TO_REPORT}\n\n  Disk full.\n", "  Disk full."),
        (f"Disk full.\r\n \t{NOTHING_TO_REPORT} \r\nSoon.", "Disk full.\r\nSoon."),
        (f"Not {NOTHING_TO_REPORT}\n", f"Not {NOTHING_TO_REPORT}\n"),
        (f"x\n**{NOTHING_TO_REPORT}**\n", f"x\n**{NOTHING_TO_REPORT}**\n"),
    ],
)
def test_lines_of_nothing_but_the_sentinel_are_left_out_of_what_is_delivered(
    reply: str, text: str
) -> None:
    assert evaluate_notify("auto", reply).text == text
    assert evaluate_notify("always", reply).text == reply


@given(st.sampled_from(POLICIES), replies, st.none() | replies)
@example("auto", f"{NOTHING_TO_REPORT}\n{NOTHING_TO_REPORT}", None)
@example("urgent-only", f"URGENT: x\n{NOTHING_TO_REPORT}", "")
def test_every_policy_has_an_answer_with_a_reason_to_every_text(
    policy: str, reply: str, judgment: str | None
) -> None:
    """Total, and nothing is delivered that says nothing, and no failure ends by the sentinel."""
    decision = evaluate_notify(policy, reply, judgment=judgment)
    assert decision.reason.strip()
    if decision.verdict == "deliver":
        assert decision.text.strip()
        assert policy != "never"
    if policy == "always":
        assert (decision.verdict == "deliver") == bool(reply.strip())
    if decision.gate == "nothing-to-report":
        assert (reply if judgment is None else judgment).strip() == NOTHING_TO_REPORT
    failed = evaluate_judgment_failed(policy, reply, "")
    assert failed.reason.strip()
    assert failed.gate != "nothing-to-report"
    assert failed.verdict == evaluate_notify(policy, reply).verdict


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 50_000 + NOTHING_TO_REPORT,
        "<b " * 30_000 + NOTHING_TO_REPORT,
        "1." * 40_000 + NOTHING_TO_REPORT,
        "URGENT" + "*" * 60_000,
        "```\n" * 20_000,
        "```a\n" * 20_000,
        "`" * 60_000 + "x`",
        "> " * 40_000,
        NOTHING_TO_REPORT + "~~~- " * 60_000,
        f"*{NOTHING_TO_REPORT}*" + "*`" * 120_000 + "x",
    ],
)
@pytest.mark.parametrize("policy", JUDGED)
def test_a_long_hostile_text_is_answered_in_one_walk(policy: str, text: str) -> None:
    """A pattern that backtracks would not come back from any of these."""
    assert evaluate_notify(policy, text, judgment=text).reason


# ---- around it


@pytest.mark.parametrize(
    "policy, meant",
    [
        ("urgent", "; did you mean 'urgent-only'?"),
        ("Always", "; did you mean 'always'?"),
        ("", ""),
    ],
)
def test_an_unknown_policy_is_refused_with_the_nearest_one(policy: str, meant: str) -> None:
    for ask in (
        lambda: evaluate_notify(policy, "x"),
        lambda: evaluate_judgment_failed(policy, "x", "y"),
        lambda: needs_judgment(policy),
    ):
        with pytest.raises(InvalidValue) as caught:
            ask()
        assert caught.value.problem.code == "notify-unknown"
        assert caught.value.problem.message == f"{policy!r} is no notify policy{meant}"
        assert caught.value.problem.remedy == "use always, auto, urgent-only or never"
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, DrumbeatError)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("policy", JUDGED)
@pytest.mark.parametrize("judgment", ["", " \n"])
def test_a_step_that_replied_the_sentinel_withholds_when_its_judgment_failed(
    policy: str, judgment: str
) -> None:
    """The last row of the table: the policy's verdict on the step's reply, under its own gate."""
    decision = evaluate_notify(policy, NOTHING_TO_REPORT, judgment=judgment)
    assert (decision.verdict, decision.gate) == ("withhold", "judgment-failed")
    assert "judgment turn failed" in decision.reason


def test_only_the_judging_policies_need_a_judgment() -> None:
    assert [policy for policy in POLICIES if needs_judgment(policy)] == JUDGED


def test_the_built_in_judgment_prompt_asks_for_the_sentinel_or_the_message() -> None:
    auto, urgent = judgment_prompt("auto"), judgment_prompt("urgent-only")
    assert f"\n{NOTHING_TO_REPORT}\n" in auto
    assert "complete message to send" in auto
    assert URGENT_MARKER not in auto
    assert urgent.startswith(auto)
    assert f"\n{URGENT_MARKER} <reason>\n" in urgent


def test_a_decision_says_what_it_decided_on() -> None:
    assert evaluate_notify("auto", NOTHING_TO_REPORT) == Decision(
        verdict="withhold",
        gate="nothing-to-report",
        reason="the reply is exactly NOTHING_TO_REPORT",
        text=NOTHING_TO_REPORT,
    )
