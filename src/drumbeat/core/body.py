"""The body of an automation file: markdown for people, never run."""

import re
from collections.abc import Iterator

__all__ = ["numbered_lists"]

_LIST_ITEM = re.compile(r" {0,3}(\d{1,9})[.)][ \t]+\S", re.ASCII)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def numbered_lists(body: str) -> Iterator[tuple[int, int]]:
    """Find the items of numbered lists outside code fences.

    A number other than 1 begins a list only where it does not go on with a paragraph (CommonMark
    0.31, section 5.2), so that a line of prose may begin with a year and a full stop.

    Yields:
        The line of each item, counted from 0, and its column, counted from 1.
    """
    fence = ""
    paragraph = False
    for number, line in enumerate(body.split("\n")):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
            continue
        if mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence, paragraph = mark[1], False
            continue
        item = _LIST_ITEM.match(line)
        if item and (int(item[1]) == 1 or not paragraph):
            yield number, item.start(1) + 1
        paragraph = bool(line.strip()) and not line.lstrip().startswith("#")
