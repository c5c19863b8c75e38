"""Where in a file a character of a value stands."""

from drumbeat.core.nodes import ScalarNode

__all__ = ["column_in_value"]


def column_in_value(node: ScalarNode, text: str, column: int, *, within: str | None = None) -> int:
    """The 1-based column, on the line of `node`, of a character of its value.

    Where escapes or line ends make the file's text another than the value, nothing can be told
    apart and the value's own column is the place.

    Args:
        node: the value.
        text: the whole file.
        column: the 1-based column in the value, or in `within`.
        within: the value with other spaces between its words.
    """
    line = text.split("\n")[node.line - 1]
    start = node.column - 1 if node.plain else node.column
    if not node.text or not line.startswith(node.text, start):
        return node.column
    if within is None or within == node.text:
        return start + min(column, len(node.text))
    before = len("".join(within[: column - 1].split()))
    inked = [index for index, char in enumerate(node.text) if not char.isspace()]
    return start + 1 + inked[min(before, len(inked) - 1)]
