"""What of a workspace is written by people, read through once for what looks like a secret."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import Final

import attrs

from drumbeat.core.file_text import decode
from drumbeat.core.findings import secret_findings
from drumbeat.core.model import Workspace
from drumbeat.errors import AutomationError, Finding
from drumbeat.runtime.config_files import WORKSPACE_FILE
from drumbeat.runtime.files import FileFault, read_inside
from drumbeat.runtime.packs import LIST, pack_cards
from drumbeat.runtime.system_prompt import SYSTEM_PROMPT
from drumbeat.runtime.threads import Threads

__all__ = ["written_secrets"]

_FILES: Final = (WORKSPACE_FILE, LIST, str(SYSTEM_PROMPT))
_FOLDERS: Final = ("guidance", "skills", "bin")
_MOST: Final = 5_000
"""Files of a folder that are read at most: a folder of so many was not written by hand."""


async def written_secrets(workspace: Workspace) -> list[Finding]:
    """What looks like a secret in the files around the automations, each at its place.

    Read are `agent-config.yaml`, `SYSTEM.md`, the list of packs and their cards, all below
    `guidance/`, `skills/` and `bin/`, what files require, and the text of the files that do not
    load. Of those that load, `lint_automation` tells. What is no text is left out. Runs in a
    thread.

    Args:
        workspace: as it stands.
    """
    return await Threads().run(lambda: list(_found(workspace)))


def _found(workspace: Workspace) -> Iterator[Finding]:
    root = workspace.path
    required = {name for automation in workspace.automations for name in automation.requires}
    names = {*_FILES, *map(str, workspace.problems), *required, *_below(root)}
    judged = {str(automation.path) for automation in workspace.automations}
    for name in sorted(names - judged):
        yield from _in_file(root, PurePath(name), PurePath(name))
    for card in pack_cards(root):
        yield from _in_file((root / card).parent, PurePath(card.name), card)


def _below(root: Path) -> Iterator[str]:
    for folder in _FOLDERS:
        files = (Path(place, name) for place, _, names in os.walk(root / folder) for name in names)
        yield from (str(path.relative_to(root)) for path in islice(files, _MOST))


def _in_file(folder: Path, name: PurePath, shown: PurePath) -> Iterator[Finding]:
    try:
        text = decode(read_inside(folder, name))
    except (FileFault, AutomationError):
        return  # missing, or no text: what that means to a run is said elsewhere
    for found in secret_findings(text):
        yield attrs.evolve(found, path=shown)
