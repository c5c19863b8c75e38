"""What an unquoted text stands for by the rules of YAML 1.2: a null, a truth value, a number."""

import math
import re
from typing import TypeGuard

from drumbeat.core.nodes import Node, ScalarNode

__all__ = ["is_null", "typed_value"]

# YAML 1.2.2, section 10.3.2 (core schema), ASCII digits only.
_NULL = re.compile(r"(?:null|Null|NULL|~|)")
_TRUE = re.compile(r"(?:true|True|TRUE)")
_FALSE = re.compile(r"(?:false|False|FALSE)")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))")

_LONGEST_NUMBER = 300


def is_null(node: Node) -> TypeGuard[ScalarNode]:
    """Whether a node is a null: `null` or `~`, unquoted, or nothing at all."""
    return isinstance(node, ScalarNode) and node.plain and _NULL.fullmatch(node.text) is not None


def typed_value(node: ScalarNode) -> str | bool | int | float:
    """The value of a text that is no null; quoted texts and blocks are text.

    Returns:
        The value. A number that JSON cannot hold, or of more than 300 characters, is infinite:
        whoever stores values as JSON has to refuse it.
    """
    text = node.text
    if not node.plain:
        return text
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _FLOAT.fullmatch(text) or _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        return _number(text) if len(text) <= _LONGEST_NUMBER else math.inf
    if _NOT_FINITE.fullmatch(text):
        return math.inf
    return text


def _number(text: str) -> int | float:
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        return int(text, 0)
    return float(text)
