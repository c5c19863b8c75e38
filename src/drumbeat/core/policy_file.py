"""What automation files and job files share: the name, the front matter and the verdict."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath

import attrs

from drumbeat.core.fields import FieldReader
from drumbeat.core.frontmatter import FrontMatter, read_front_matter
from drumbeat.core.messages import quoted
from drumbeat.core.nodes import Entry
from drumbeat.core.problem_order import in_file_order
from drumbeat.core.slug import slug_problem
from drumbeat.core.vocabulary import RETIRED, Level
from drumbeat.errors import AutomationError, Problem

__all__ = ["OpenedFile", "PolicyReader", "open_file"]


@attrs.frozen(kw_only=True)
class OpenedFile:
    """A file whose front matter can be read. `misnamed` says what is wrong with its name."""

    front_matter: FrontMatter
    misnamed: tuple[Problem, ...]

    def refuse(self, meant: Iterable[Problem]) -> None:
        """Give the verdict.

        Args:
            meant: what is wrong with what the file says.

        Raises:
            AutomationError: anything is wrong: with the name first, then in file order.
        """
        problems = [*self.misnamed, *in_file_order(self.front_matter.problems, meant)]
        if problems:
            raise AutomationError(problems)


def open_file(
    text: str | bytes, *, path: PurePath | None, may_be_empty: bool = False
) -> OpenedFile:
    """Look at a file's name and read its front matter.

    Args:
        text: the file, as text or as UTF-8 bytes with or without a byte order mark.
        path: where it lies, whose stem has to be a slug; None leaves that unchecked.
        may_be_empty: whether front matter without a key is a mapping without one.

    Raises:
        AutomationError: the front matter cannot be read; the name's problem comes first.
    """
    problem = None if path is None else slug_problem(path.stem, path)
    misnamed = () if problem is None else (problem,)
    try:
        front_matter = read_front_matter(text, path=path, may_be_empty=may_be_empty)
    except AutomationError as error:
        raise AutomationError([*misnamed, *error.problems]) from error
    return OpenedFile(front_matter=front_matter, misnamed=misnamed)


class PolicyReader(FieldReader):
    """Reads a file's nodes under the rules that both kinds of file share."""

    def retired(self, entry: Entry) -> bool:
        """Report a key that no file has any more; whether it is one."""
        if entry.name not in RETIRED:
            return False
        message = f"`{entry.name}` is retired: no file has it any more"
        self.report("retired-key", message, RETIRED[entry.name], entry.key)
        return True

    def guessed(self, entry: Entry, level: Level, instead: Mapping[str, str]) -> bool:
        """Report a key by which authors mean what the files say otherwise; whether it is one.

        Args:
            entry: the key.
            level: where it stands.
            instead: what to do, by the key without case, `_` and `-`.
        """
        remedy = instead.get(entry.name.casefold().replace("_", "").replace("-", ""))
        if remedy is None:
            return False
        self.report(
            "unknown-key", f"{level.name} has no key {quoted(entry.name)}", remedy, entry.key
        )
        return True
