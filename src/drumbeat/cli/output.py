"""What reaches the terminal: text made harmless, problems, tables.

Names, prompts and replies come from files and models, so they may hold escape sequences that move
the cursor, retitle the window or hide what stands before them. Whatever `Output` prints passes
through `visible`, which shows such characters instead of sending them and changes nothing that it
has shown before.
"""

import io
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drumbeat import Finding, Problem

_UNBOUNDED = 1_000_000
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_HIDDEN = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff{_BIDI}\ud800-\udfff]")
_HIDDEN_IN_LINE = re.compile(rf"{_HIDDEN.pattern}|[\t\n]")
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _shown(match: re.Match[str]) -> str:
    char = match.group()
    number = ord(char)
    return _NAMED.get(char) or (f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}")


def visible(text: object, *, lines: bool = False) -> str:
    """`text` with control, bidirectional and unpairable characters written as escapes.

    Args:
        text: what to show; `str()` of it is taken.
        lines: keep line ends and tabs; otherwise the result is one line.
    """
    return (_HIDDEN if lines else _HIDDEN_IN_LINE).sub(_shown, str(text))


def problem_lines(problem: Problem) -> list[str]:
    """A problem as it is printed: `path:line:column: message [code]`, then the remedy, indented."""
    head = f"{visible(problem.message)} [{visible(problem.code)}]"
    if isinstance(problem, Finding):
        head = f"{problem.severity}: {head}"
    if problem.location:
        head = f"{visible(problem.location)}: {head}"
    remedy = visible(problem.remedy, lines=True).splitlines()
    return [head, *(f"  {line}" for line in remedy)]


def local(instant: datetime, zone: tzinfo) -> str:
    """An instant as the wall clock of `zone` shows it, with its offset; `read_instant` reads it."""
    shown = instant.astimezone(zone)
    return shown.strftime("%a %Y-%m-%d %H:%M:%S %z" if shown.second else "%a %Y-%m-%d %H:%M %z")


def read_instant(text: str) -> datetime:
    """An instant in ISO 8601, or as `local` shows one; naive where no offset is given.

    Raises:
        ValueError: it is neither.
    """
    words = text.split()
    if words and words[0].isalpha():
        del words[0]
    date, *rest = words or [""]
    return datetime.fromisoformat(date + ("T" + "".join(rest) if rest else ""))


class Output:
    """Where the commands write; colour and width follow the terminal, a pipe gets neither."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        width = None if sys.stdout.isatty() else _UNBOUNDED
        self._out = Console(highlight=False, soft_wrap=True, width=width)
        self._err = Console(highlight=False, soft_wrap=True, stderr=True)

    def line(self, text: str = "", *, style: str = "") -> None:
        """Print one line; nothing in it is markup."""
        self._out.print(Text(visible(text), style=style))

    def lines(self, text: str) -> None:
        """Print a text that may have several lines."""
        self._out.print(Text(visible(text, lines=True)))

    def error(self, text: str, *, lines: bool = False) -> None:
        """Print one line to standard error; with `lines`, a text that may have several."""
        self._err.print(Text(visible(text, lines=lines)))

    def aside(self, problems: Iterable[Problem]) -> None:
        """Print problems to standard error: what is wrong beside what was asked for."""
        for problem in problems:
            for line in problem_lines(problem):
                self.error(line)

    def problem(self, problem: Problem) -> None:
        """Print a problem, its head in the colour of its weight."""
        warning = isinstance(problem, Finding) and problem.severity == "warning"
        head, *rest = problem_lines(problem)
        self.line(head, style="yellow" if warning else "red")
        for text in rest:
            self.line(text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print rows under headings; only on a terminal, and only the last column is folded."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns[:-1]:
            table.add_column(column, no_wrap=True)
        table.add_column(columns[-1], overflow="fold")
        for row in rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        self._out.print(table, soft_wrap=False)

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Print names and values below one another."""
        rows = [(name, visible(value)) for name, value in pairs]
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self.line(f"  {name:<{width}}  {value}")
