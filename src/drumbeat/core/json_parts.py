"""How many lists and objects a JSON text has, found out before any of them is made.

Theory. The standard library reads JSON in one call, during which no other thread of the process
runs, and a list that costs its sender three bytes takes a hundred of memory. What such a call costs
is decided by the lists and objects, of which each begins with a bracket outside the texts. The
texts are passed over whole, in steps between which other threads run.
"""

import re

__all__ = ["MOST_PARTS", "has_more_parts"]

MOST_PARTS = 500_000
"""So many lists and objects are read of a webhook's body: one for every 52 bytes of 25 MiB."""

_BEGIN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[{]', re.DOTALL)
_QUOTE = ord('"')


def has_more_parts(body: bytes, most: int) -> bool:
    """Whether a body that is JSON has more than `most` lists and objects.

    Of one that is no JSON it may be said as well; up to the fault, it has no more than are counted.

    Args:
        body: JSON in UTF-8, or anything else.
        most: how many there may be.
    """
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    found = 0
    for begin in _BEGIN.finditer(body):
        if body[begin.start()] != _QUOTE:
            found += 1
            if found > most:
                return True
    return False
