"""Known secret values are taken out of what the engine writes (spec, section 12)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from drumbeat.core.identity import TOKEN_FORM
from drumbeat.core.model import Fire

__all__ = ["CUT", "Redactor", "one_line"]

CUT = "…"
"""Stands where the beginning of a text was cut away."""
_SHORTEST = 8
_SHORTEST_REST = 4
_TOKEN = re.compile(TOKEN_FORM)
_LONGEST_TOKEN = 64
"""Characters that no token is longer than, nor the rest of one and what tells its end."""
# Shorter rests leave too much to be guessed, and are found in ordinary text.
_TOKEN_REST = re.compile(rf"(?<={CUT})[A-Za-z0-9_-]{{20,48}}(?![A-Za-z0-9_-])")
_TOKEN_IN = "DRUMBEAT_RUN_TOKEN"  # noqa: S105  the name of the variable that holds one


def one_line(secret: str) -> str:
    """A secret without the line end behind it, as a file has that was read into a variable."""
    return secret.rstrip("\r\n")


class Redactor:
    """Replaces known secret values by `[redacted NAME]`.

    Only values of 8 characters and more count, a line end behind them aside: shorter ones stand in
    ordinary text by chance. A value is found as it stands, never in another case or encoding.
    Overlapping occurrences are all taken out, and one that lies wholly inside another goes with the
    longer one. Of a value that was cut the rest goes too: 4 characters and more of its end,
    directly behind a `CUT`.

    The tokens of runs go in the same way, by their form and not by a list: so it takes them out of
    what is written after the run's end, and in another process. Behind a `CUT`, a word of 20 to 48
    characters counts as the rest of one.

    Args:
        secrets: value by name, copied at once. Of two names for one value the first in
            alphabetical order is shown.
    """

    __slots__ = ("_names", "_rests")

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._names: dict[str, str] = {}
        for name, given in sorted(secrets.items()):
            value = one_line(given)
            if len(value) >= _SHORTEST and value.strip():
                self._names.setdefault(value, name)
        # By how a rest begins, so that a text full of cuts costs one look-up at each of them.
        self._rests: dict[str, list[tuple[str, int]]] = {}
        for value in self._names:
            for begin in range(1, len(value) - _SHORTEST_REST + 1):
                head = value[begin : begin + _SHORTEST_REST]
                self._rests.setdefault(head, []).append((value, begin))

    def __repr__(self) -> str:
        """Return how many values are known, and none of them."""
        return f"Redactor({len(self._names)} values)"

    def text(self, text: str) -> str:
        """Return `text` without any known value."""
        return self._without(text, self._spans(text), len(text))

    @property
    def reach(self) -> int:
        """How many characters behind the place where it cuts `head` looks at."""
        return max([_LONGEST_TOKEN, *map(len, self._names)])

    def head(self, text: str, longest: int) -> str:
        """Return the beginning of `text`, `longest` characters at most, without any known value.

        What is behind it is not looked at, however long the text is, and no value is cut in two.
        """
        seen = text[: longest + self.reach]
        spans = [span for span in self._spans(seen) if span[0] < longest]
        return self._without(seen, spans, longest)[:longest]

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        spans = [
            span
            for value, name in self._names.items()
            if value in text
            for span in _occurrences(text, value, name)
        ]
        spans += [_span(found) for found in _TOKEN.finditer(text)]
        if CUT in text:
            spans += self._rests_in(text)
            spans += [_span(found) for found in _TOKEN_REST.finditer(text)]
        return spans

    def _without(self, text: str, spans: list[tuple[int, int, str]], until: int) -> str:
        parts: list[str] = []
        done = 0
        # Of two that begin together the longer comes first, and the shorter then lies inside it.
        for start, negative_end, name in sorted(spans):
            end = -negative_end
            if end > done:
                parts += [text[done:start], f"[redacted {name}]"]
                done = end
        return "".join((*parts, text[done:until]))

    def _rests_in(self, text: str) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        start = text.find(CUT) + len(CUT)
        while start >= len(CUT):
            for value, begin in self._rests.get(text[start : start + _SHORTEST_REST], ()):
                if text.startswith(value[begin:], start):
                    end = start + len(value) - begin
                    found.append((start, -end, self._names[value]))
            start = text.find(CUT, start) + len(CUT)
        return found

    def json(self, value: Any) -> Any:
        """Return a copy of a JSON value without any known value in its texts, keys included.

        Mappings come back as dicts, sequences as lists; what is no text, mapping or sequence comes
        back as it is.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.json(key): self.json(item) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
            return [self.json(item) for item in value]
        return value

    def fire(self, fire: Fire) -> Fire:
        """Return a fire as it may be shown: the slot is a caller's word, the prompt an agent's."""
        prompt = None if fire.prompt is None else self.text(fire.prompt)
        return attrs.evolve(fire, slot=self.text(fire.slot), prompt=prompt)


def _span(found: re.Match[str]) -> tuple[int, int, str]:
    return found.start(), -found.end(), _TOKEN_IN


def _occurrences(text: str, value: str, name: str) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    start = text.find(value)
    while start >= 0:
        found.append((start, -(start + len(value)), name))
        start = text.find(value, start + 1)
    return found
