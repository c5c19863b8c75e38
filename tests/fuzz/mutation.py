"""Damages texts the way authors, senders and attackers do: seeded, in plain Python.

A mutator knows examples of a grammar and the words that mean something in it. One input is an
example with one to four changes: spliced with another one, a piece doubled, moved or taken out,
a word of the grammar or a strange character put in, a number replaced, brackets nested deeply.
"""

import random
import re
from collections.abc import Callable, Sequence

__all__ = ["STRANGE", "Mutator"]

STRANGE = (
    "\x00", "\x01", "\x07", "\x1b", "\x7f", "\x85", "\xa0", "\xad", "\u200b", "\u2028", "\u202e",
    "\ufeff", "\ufffd", "\uffff", "\ud800", "\udfff", "\U0001f600", "é", "e\u0301", "ß", "İ", "ı",
    "\uff11", "٣", "“", "”", "’", "–", "…", "\t", "\r", "\r\n", "\n", "\n\n", "\v", "\f", " ", "'",
    '"', "\\", "`", "$", "%", "%s", "{}", "{0}", "<", ">", "|", "&", "*", "!", "#", ":", ",", "-",
)  # fmt: skip
_NUMBERS = (
    "0", "-0", "00", "-1", "1e309", "1e999999999", "0.1", "1_000", "0x10", "0o7", "007", ".5",
    "nan", "NaN",
    "inf", "-Infinity", "60", "61", "86401", "2147483648", "9223372036854775808", "9" * 30,
    "9" * 5000,
)  # fmt: skip
_NUMBER = re.compile(r"\d+", re.ASCII)
_BRACKETS = (("[", "]"), ("{", "}"), ("(", ")"), ("<", ">"), ('"', '"'), ("[{a: ", "}]"))


class Mutator:
    """An endless supply of damaged texts.

    Args:
        seed: the same seed gives the same texts.
        examples: texts of the grammar, good and bad.
        words: what means something in it.
    """

    def __init__(self, seed: int | str, examples: Sequence[str], words: Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._examples = list(examples)
        self._words = [*words, *STRANGE]
        self._changes: tuple[Callable[[str], str], ...] = (
            self._splice,
            self._splice_lines,
            self._double,
            self._cut,
            self._cut,
            self._end_early,
            self._put_in,
            self._put_in,
            self._put_in,
            self._replace_number,
            self._swap_lines,
            self._indent,
            self._nest,
            self._lengthen,
            self._swap_word,
            self._swap_word,
        )

    def text(self) -> str:
        """One damaged text, mostly as long as an example."""
        text = self._random.choice(self._examples)
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 4))):
            text = self._random.choice(self._changes)(text)
        return text

    def raw(self) -> bytes:
        """One damaged text as bytes, of which some may be damaged as well; or mere noise."""
        if self._random.random() < 0.05:
            return self._random.randbytes(self._random.randrange(200))
        data = bytearray(self.text().encode("utf-8", "surrogatepass"))
        for _ in range(self._random.choice((0, 0, 1, 3))):
            if data:
                data[self._random.randrange(len(data))] = self._random.randrange(256)
        return bytes(data)

    def either(self) -> str | bytes:
        """Text mostly, else bytes."""
        return self.text() if self._random.random() < 0.8 else self.raw()

    @property
    def random(self) -> random.Random:
        """The source of chance, for what surrounds a text."""
        return self._random

    # ---- the changes

    def _place(self, text: str) -> int:
        return self._random.randint(0, len(text))

    def _piece(self, text: str) -> tuple[int, int]:
        start = self._place(text)
        return start, min(len(text), start + self._random.choice((1, 2, 5, 20, 100)))

    def _splice(self, text: str) -> str:
        other = self._random.choice(self._examples)
        return text[: self._place(text)] + other[self._place(other) :]

    def _splice_lines(self, text: str) -> str:
        lines, others = text.split("\n"), self._random.choice(self._examples).split("\n")
        at, start = self._random.randint(0, len(lines)), self._random.randrange(len(others))
        piece = others[start : start + self._random.randint(1, 4)]
        return "\n".join([*lines[:at], *piece, *lines[at:]])

    def _double(self, text: str) -> str:
        start, end = self._piece(text)
        times = self._random.choice((2, 2, 2, 3, 20))
        return text[:start] + text[start:end] * times + text[end:]

    def _cut(self, text: str) -> str:
        start, end = self._piece(text)
        return text[:start] + text[end:]

    def _end_early(self, text: str) -> str:
        return text[: self._place(text)]

    def _put_in(self, text: str) -> str:
        at = self._place(text)
        return text[:at] + self._random.choice(self._words) + text[at:]

    def _replace_number(self, text: str) -> str:
        found = list(_NUMBER.finditer(text))
        if not found:
            return self._put_in(text)
        one = self._random.choice(found)
        return text[: one.start()] + self._random.choice(_NUMBERS) + text[one.end() :]

    def _swap_lines(self, text: str) -> str:
        lines = text.split("\n")
        one, other = self._random.randrange(len(lines)), self._random.randrange(len(lines))
        lines[one], lines[other] = lines[other], lines[one]
        return "\n".join(lines)

    def _indent(self, text: str) -> str:
        lines = text.split("\n")
        at = self._random.randrange(len(lines))
        lines[at] = self._random.choice(("  ", " ", "\t", "- ", "? ", ": ")) + lines[at]
        return "\n".join(lines)

    def _nest(self, text: str) -> str:
        opening, closing = self._random.choice(_BRACKETS)
        depth = self._random.choice((1, 3, 20, 200))
        start, end = self._piece(text)
        inner = opening * depth + text[start:end] + closing * self._random.choice((depth, depth, 0))
        return text[:start] + inner + text[end:]

    def _lengthen(self, text: str) -> str:
        at = self._place(text)
        piece = self._random.choice(self._words)
        return text[:at] + piece * self._random.choice((10, 50, 300)) + text[at:]

    def _swap_word(self, text: str) -> str:
        found = list(re.finditer(r"\w+", text))
        if not found:
            return self._put_in(text)
        one = self._random.choice(found)
        return text[: one.start()] + self._random.choice(self._words) + text[one.end() :]
