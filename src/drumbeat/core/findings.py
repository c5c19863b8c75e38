"""What the rules for both kinds of file share: making findings, and secrets anywhere in a text."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from drumbeat.core.nodes import Node, ScalarNode
from drumbeat.core.secret_shapes import find_secrets, hide_secrets
from drumbeat.core.value_places import column_in_value
from drumbeat.errors import Finding, Problem

__all__ = ["LONGEST_PROMPT", "finding", "long_prompt_findings", "placed", "secret_findings"]

LONGEST_PROMPT = 4_000
"""Characters of a prompt above which it hardly is one concern (spec, section 3.3)."""

Severity: TypeAlias = Literal["error", "warning"]


def finding(
    code: str, message: str, remedy: str, at: Node, *, severity: Severity = "warning"
) -> Finding:
    """Make a finding at the place of `at`."""
    return Finding(
        code=code,
        message=message,
        remedy=remedy,
        severity=severity,
        line=at.line,
        column=at.column,
    )


def placed(
    problem: Problem, node: ScalarNode, text: str, *, severity: Severity, within: str | None = None
) -> Finding:
    """Give a problem with a value its place in the file.

    Args:
        problem: its column, where it has one, counts in the value, or in `within`.
        node: the value.
        text: the whole file.
        severity: what the finding counts as.
        within: the value with other spaces between its words.
    """
    column = node.column
    if problem.column is not None:
        column = column_in_value(node, text, problem.column, within=within)
    return Finding(
        code=problem.code,
        message=hide_secrets(problem.message),
        remedy=problem.remedy,
        severity=severity,
        line=node.line,
        column=column,
    )


def long_prompt_findings(prompt: str, *, remedy: str, line: int, column: int) -> Iterator[Finding]:
    """A prompt that hardly is one concern, and what to make of it."""
    if len(prompt) > LONGEST_PROMPT:
        yield Finding(
            code="prompt-too-long",
            message=f"the prompt has {len(prompt):,} characters, more than {LONGEST_PROMPT:,}",
            remedy=remedy,
            line=line,
            column=column,
        )


def secret_findings(text: str) -> Iterator[Finding]:
    """What looks like a secret, anywhere in the file; it is never shown."""
    for found in find_secrets(text):
        yield Finding(
            code="secret-in-file",
            message=f"this looks like {found.what}",
            remedy="take it out and renew it; secrets belong in the environment of the engine",
            severity="error",
            line=text.count("\n", 0, found.start) + 1,
            column=found.start - text.rfind("\n", 0, found.start),
        )
