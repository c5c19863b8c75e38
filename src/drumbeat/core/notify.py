"""Who hears about a run: the notify policy, its sentinel and its marker (spec, section 10).

Theory. Silence is the dangerous answer, so every rule that can silence is narrow and every doubt
speaks. Only the exact sentinel withholds; a sentinel with decoration is kept on record as a near
miss; a text that merely mentions it is sent. The marker is looked for generously (markup, list
numbers, quote signs and symbols before it, a fence around the whole reply), because a missed marker
is a page that nobody got. Markup is read as CommonMark means it, with one exception: a code fence
that is never closed hides nothing.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeGuard, get_args

import attrs

from drumbeat.core.messages import did_you_mean, listed, quoted
from drumbeat.core.model import Decision, Gate, Notify, Verdict
from drumbeat.errors import InvalidValue, Problem

__all__ = [
    "NOTHING_TO_REPORT",
    "URGENT_MARKER",
    "evaluate_judgment_failed",
    "evaluate_notify",
    "judgment_prompt",
    "needs_judgment",
]

NOTHING_TO_REPORT = "NOTHING_TO_REPORT"
"""The sentinel: a judgment of exactly this withholds."""
URGENT_MARKER = "URGENT:"
"""The marker that `urgent-only` delivers on, followed by a reason on the same line."""

_POLICIES: tuple[Notify, ...] = get_args(Notify)

# Only these count as markup: an unknown `<name>` may be an address or a placeholder, so text.
_TAG = (
    r"</?(?:a|b|big|blockquote|br|center|code|div|em|font|h[1-6]|hr|i|kbd|li|mark|ol|p|pre|s|samp|"
    r"small|span|strong|sub|sup|tt|u|ul)(?:[\s/][^<>]*)?>"
)
_MARKUP = re.compile(rf"{_TAG}|&(?:nbsp|\#160);", re.IGNORECASE)
_LIST_NUMBER = re.compile(rf"[\W_]*+[0-9]{{1,9}}[.)](?=[\W_]*+{NOTHING_TO_REPORT})")
_MARKER = re.compile(
    rf"""
    (?>                                # whatever may stand before the marker:
        (?i:{_TAG}|&(?:nbsp|\#160);)   # a tag
      | \[[xX]\]                       # a ticked box
      | [0-9]{{1,9}}[.)]               # a list number
      | [0-9]\ufe0f?\u20e3             # a number as a symbol
      | [\W_]                          # markup, a quote sign, a symbol, white space
    )*+
    URGENT
    (?>(?i:{_TAG})|[\s*_~`"'”’»\\\]\)])*+:
    (?P<reason>.*)
    """,
    re.VERBOSE | re.DOTALL,
)
_FENCE = re.compile(r"[\s>]*(?P<run>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)", re.DOTALL)


def needs_judgment(policy: str) -> TypeGuard[Literal["auto", "urgent-only"]]:
    """Whether a run under `policy` ends with a judgment turn.

    Raises:
        InvalidValue: `policy` is none of the four.
    """
    return _known(policy) in ("auto", "urgent-only")


def evaluate_notify(policy: str, final_reply: str, *, judgment: str | None = None) -> Decision:
    """Decide who hears about a run that succeeded (spec, section 10).

    Total: every policy and every pair of texts has an answer, and its `reason` is never empty.

    Args:
        policy: `always`, `auto`, `urgent-only` or `never`.
        final_reply: the reply of the last step; with `judgment=None` it is also what is judged.
        judgment: the judgment turn's reply. A blank one counts as a judgment turn that failed:
            then the last step's reply is judged, and one of exactly the sentinel withholds under
            the gate `judgment-failed` (the last row of the table in section 10). `always` and
            `never` ask for none and pay no heed to it.

    Returns:
        The decision. `text` is what is delivered (for `auto` and `urgent-only` without the lines
        that are nothing but the sentinel), or, when nothing is, the reply that was judged,
        verbatim.

    Raises:
        InvalidValue: `policy` is none of the four; also a `ValueError`.
    """
    known = _known(policy)
    if judgment is None or not needs_judgment(known):
        return _judge(known, final_reply)
    if not judgment.strip():
        return evaluate_judgment_failed(policy, final_reply, "its reply was empty")
    if (
        known == "urgent-only"
        and judgment.strip() != NOTHING_TO_REPORT
        and not _carries_marker(judgment)
        and _carries_marker(final_reply)
    ):
        return _decision(
            "deliver",
            "urgent-marker",
            f"the last step's reply carries the {URGENT_MARKER} marker, the judgment does not",
            _without_sentinel_lines(final_reply),
        )
    return _judge(known, judgment)


def evaluate_judgment_failed(policy: str, last_step_reply: str, why: str) -> Decision:
    """Decide for a run whose steps succeeded and whose judgment turn failed.

    The verdict is the policy's on the last step's reply, under the gate `judgment-failed`. A blank
    reply stays `final-reply-empty`, and so do `policy-always` and `policy-never`, which ask for no
    judgment. A last step's reply of exactly the sentinel therefore withholds, with the gate
    `judgment-failed`: the step has judged by itself, and the gate shows that nothing confirmed it.

    Args:
        policy: `always`, `auto`, `urgent-only` or `never`.
        last_step_reply: the reply of the last step.
        why: what went wrong with the judgment turn, for people.

    Raises:
        InvalidValue: `policy` is none of the four; also a `ValueError`.
    """
    known = _known(policy)
    decided = _judge(known, last_step_reply)
    if not needs_judgment(known) or decided.gate == "final-reply-empty":
        return decided
    cause = why.strip() or "no cause was given"
    return attrs.evolve(
        decided,
        gate="judgment-failed",
        reason=f"the judgment turn failed ({cause}), so the last step's reply was judged: "
        f"{decided.reason}",
    )


def judgment_prompt(policy: Literal["auto", "urgent-only"]) -> str:
    """Return the built-in prompt of the judgment turn; `prompts/judgment.md` replaces it.

    Args:
        policy: `urgent-only` adds what the marker means and how it is written.
    """
    return _JUDGMENT + (_JUDGMENT_URGENT if policy == "urgent-only" else "")


_JUDGMENT = f"""\
The work of this run is done. Decide whether somebody should hear about it.

If nothing in it is worth a person's attention, reply with exactly this and nothing else:

{NOTHING_TO_REPORT}

Silence is a good answer when nothing happened: do not search for news to fill it.

Otherwise reply with the complete message to send. Your reply goes out as it stands, to people
who have seen nothing of this conversation, so leave out everything that is not for them. Work
that could not be done, and things that could not be looked at, are worth a message: never pass
them over as nothing found.
"""

_JUDGMENT_URGENT = f"""
A message is sent only when it is urgent. If somebody has to act before the next run, put a line
of this form at its top, with the reason in one line:

{URGENT_MARKER} <reason>

Without that line the message is kept on record and nobody is disturbed. Most runs should not
carry it.
"""


def _known(policy: str) -> Notify:
    for known in _POLICIES:
        if known == policy:
            return known
    raise InvalidValue(
        Problem(
            code="notify-unknown",
            message=f"{quoted(str(policy))} is no notify policy"
            f"{did_you_mean(str(policy), _POLICIES)}",
            remedy=f"use {listed(_POLICIES)}",
        )
    )


def _decision(verdict: Verdict, gate: Gate, reason: str, text: str) -> Decision:
    return Decision(verdict=verdict, gate=gate, reason=reason, text=text)


def _judge(policy: Notify, reply: str) -> Decision:
    """Apply the table of section 10 to one reply, the rows of the judgment turn excepted."""
    trimmed = reply.strip()
    if not trimmed:
        return _decision("withhold", "final-reply-empty", "the final reply is empty", reply)
    if policy == "always":
        return _decision("deliver", "policy-always", "the policy is always", reply)
    if policy == "never":
        return _decision("withhold", "policy-never", "the policy is never", reply)
    if trimmed == NOTHING_TO_REPORT:
        return _decision(
            "withhold", "nothing-to-report", f"the reply is exactly {NOTHING_TO_REPORT}", reply
        )
    if _is_near_sentinel(trimmed):
        return _decision(
            "demote",
            "near-sentinel",
            f"the reply is {NOTHING_TO_REPORT} with markup or punctuation around it; "
            "only the exact token withholds",
            reply,
        )
    if policy == "auto":
        return _decision(
            "deliver",
            "judged-worth-saying",
            f"the reply is something else than {NOTHING_TO_REPORT}",
            _without_sentinel_lines(reply),
        )
    if _carries_marker(reply):
        return _decision(
            "deliver",
            "urgent-marker",
            f"the reply carries the {URGENT_MARKER} marker",
            _without_sentinel_lines(reply),
        )
    return _decision(
        "demote",
        "urgent-marker-missing",
        f"the policy is urgent-only and the reply has no line that begins with {URGENT_MARKER} "
        "and gives a reason",
        reply,
    )


def _is_near_sentinel(text: str) -> bool:
    # A token that is repeated is one too: nothing of it would be left to deliver.
    text = text.replace("\\_", "_")
    if NOTHING_TO_REPORT not in text:
        return False
    for line in text.splitlines():
        if not _is_plain_fence(line):
            bare = _MARKUP.sub("", line)
            # At the beginning alone: what stands before a number elsewhere says something anyway,
            # and a search from every place of a long line would take minutes.
            number = _LIST_NUMBER.match(bare)
            bare = bare if number is None else bare[number.end() :]
            if _says_something(bare.replace(NOTHING_TO_REPORT, "")):
                return False
    return True


def _is_plain_fence(line: str) -> bool:
    fence = _FENCE.fullmatch(line)
    return fence is not None and len(fence["info"].split()) <= 1 and (NOTHING_TO_REPORT not in line)


def _says_something(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _without_sentinel_lines(text: str) -> str:
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if line.strip() != NOTHING_TO_REPORT]
    return text if len(kept) == len(lines) else "".join(kept).strip("\r\n")


def _carries_marker(text: str) -> bool:
    for line in _outside_fences(_unwrapped(text.strip().splitlines())):
        marker = _MARKER.fullmatch(line)
        if marker is not None and _says_something(_MARKUP.sub("", marker["reason"])):
            return True
    return False


def _unwrapped(lines: list[str]) -> list[str]:
    """Take off a fence that runs from the first line to the last.

    A fence with an info string inside one of the same kind opens an inner one, whatever
    CommonMark says of it: that is how a whole report in a fence is commonly written.
    """
    opening = _FENCE.fullmatch(lines[0]) if lines else None
    if opening is None:
        return lines
    depth = 1
    for number, line in enumerate(lines[1:], start=1):
        fence = _FENCE.fullmatch(line)
        if fence is None or not fence["run"].startswith(opening["run"]):
            continue
        depth += 1 if fence["info"].strip() else -1
        if depth == 0:
            return lines[1:number] if number == len(lines) - 1 else lines
    return lines


def _outside_fences(lines: list[str]) -> Iterator[str]:
    hidden: list[str] = []
    run = ""
    for line in lines:
        fence = _FENCE.fullmatch(line)
        if not run:
            if fence is None:
                yield line
            else:
                run = fence["run"]
                hidden.append(line)
        elif fence is not None and fence["run"].startswith(run) and not fence["info"].strip():
            run = ""
            hidden.clear()
        else:
            hidden.append(line)
    yield from hidden
