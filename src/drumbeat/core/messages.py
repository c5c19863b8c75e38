"""The words of messages: quoting what an author wrote, the nearest word, lists, places."""

import difflib
from collections.abc import Iterable, Sequence
from datetime import timedelta

from drumbeat.core.secret_shapes import hide_secrets

__all__ = ["closest", "did_you_mean", "exactly", "lasting", "listed", "on_lines", "quoted", "shown"]

_LONGEST_SEARCHED = 400
_LONGEST_SHOWN = 60


def quoted(text: str) -> str:
    """Quote what an author wrote for a message: short, on one line, without anything secret."""
    return repr(_short(text, _LONGEST_SHOWN))


def shown(text: str, *, longest: int = _LONGEST_SHOWN) -> str:
    """What an author wrote as part of a line, without quotes, else as `quoted`.

    Args:
        text: what was written.
        longest: the characters above which it is cut.
    """
    short = _short(text, longest)
    return "".join(each if each.isprintable() else _escaped(each) for each in short)


def lasting(span: timedelta) -> str:
    """A duration as people say it, such as `4 d 4 h 45 min`; in seconds only below a minute."""
    if span < timedelta(minutes=1):
        return f"{span // timedelta(seconds=1)} s"
    hours, minutes = divmod(span // timedelta(minutes=1), 60)
    parts = ((span.days, "d"), (hours % 24, "h"), (minutes, "min"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def exactly(span: timedelta) -> str:
    """A duration to its last fraction, such as `1 h 0.5 s`, as the limit that it is or breaks."""
    sign, left = ("-", -span) if span < timedelta(0) else ("", span)
    minutes, rest = divmod(left, timedelta(minutes=1))
    hours = minutes // 60
    seconds = f"{rest.seconds + rest.microseconds / 1_000_000:.6f}".rstrip("0").rstrip(".")
    parts = [(hours // 24, "d"), (hours % 24, "h"), (minutes % 60, "min")]
    told = [f"{count} {unit}" for count, unit in parts if count]
    if rest or not told:
        told.append(f"{seconds} s")
    return sign + " ".join(told)


def closest(word: str, options: Iterable[str]) -> str | None:
    """The option that `word` most likely stands for, or None. Case, `_` and spaces count little."""
    known = {_plain(option): option for option in options}
    match = difflib.get_close_matches(_plain(word)[:100], known, n=1, cutoff=0.6)
    return known[match[0]] if match else None


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Return `; did you mean …?`, or nothing where no option is near."""
    option = closest(word, options)
    return "" if option is None else f"; did you mean {option!r}?"


def listed(names: Sequence[str]) -> str:
    """Join words for a message: `a, b or c`."""
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def on_lines(first: int, second: int) -> str:
    """Where something stands twice: on two lines, or on one."""
    if first == second:
        return f"both times on line {first}"
    return f"on line {first} and on line {second}"


def _short(text: str, longest: int) -> str:
    # A cut secret would look like none: what is shown lies well before the cut.
    text = hide_secrets(text[: max(_LONGEST_SEARCHED, 2 * longest)])
    return text if len(text) <= longest else text[: longest - 3] + "…"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _plain(word: str) -> str:
    return word.strip().casefold().replace("_", "-").replace(" ", "-")
