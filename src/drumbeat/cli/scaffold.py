"""The small workspace that `drumbeat init` writes, and how it is written without harm."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

AUTOMATION = """\
---
automation:
  name: Open tasks
  enabled: false                  # true starts the schedule
  trigger:
    type: schedule
    expression: daily at 08:30
  notify: auto
  requires:
    - guidance/TASKS.md
  inject:
    - argv: ["open-tasks"]        # bin/open-tasks; prints INJECT_IDLE when nothing is open
      label: open tasks
  steps:
    - id: review
      prompt: >-
        Go through the open tasks you were given and judge, by guidance/TASKS.md, which of them
        somebody should hear about today. Read only: do NOT edit tasks.txt or any other file. If
        the list could not be read in full, say so instead of treating what is missing as done. A
        quiet day is a success: with nothing to raise, reply with exactly NOTHING_TO_REPORT.
    - id: update-guidance
      prompt: >-
        If this run taught you something that will still hold next month, revise
        guidance/TASKS.md, and prune or merge what it says already rather than only adding to it.
        If a part of this could not be done with the tools you have, say which.
---

Looks over `tasks.txt` once a day. Only the steps above are run; this text is for people.
"""

GUIDANCE = """\
# What is worth raising

- A task whose date has passed, or passes within two days.
- A task that waits for somebody who has not been asked yet.

Leave alone what was raised yesterday and has not changed.
"""

TOOL = """\
#!/bin/sh
# Prints the open tasks of tasks.txt, one a line; INJECT_IDLE when there are none.
set -eu
workspace=$(dirname -- "$(dirname -- "$0")")
tasks="$workspace/tasks.txt"
[ -r "$tasks" ] || { echo "cannot read $tasks" >&2; exit 1; }
open=$(awk 'NF && !/^#/ && !/^x /' "$tasks")
echo "${open:-INJECT_IDLE}"
"""

TASKS = """\
# One task a line; a line that begins with "x " is done.
x Read automations/open-tasks.md
Set enabled: true once a run by hand looks right
"""

IGNORED = """\
# The engine's state: runs, deliveries, conversations. Never under version control.
.drumbeat/
"""


@attrs.frozen(kw_only=True)
class Scaffolded:
    """One entry that was asked for: its path, and whether it was written or stood there before."""

    path: Path
    outcome: Literal["wrote", "kept"]


def scaffold(folder: Path) -> Iterator[Scaffolded]:
    """Write a small workspace into `folder`, one file after the other.

    A file that is there already, whatever it holds and even as a dangling link, stays as it is.

    Raises:
        OSError: a folder or a file could not be written; what was written before it stays.
    """
    for name, text, mode in (
        ("automations/open-tasks.md", AUTOMATION, 0o644),
        ("guidance/TASKS.md", GUIDANCE, 0o644),
        ("bin/open-tasks", TOOL, 0o755),
        ("tasks.txt", TASKS, 0o644),
        (".gitignore", IGNORED, 0o644),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        yield Scaffolded(path=path, outcome="wrote" if _create(path, text, mode) else "kept")


def _create(path: Path, text: str, mode: int) -> bool:
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        return False
    path.chmod(mode)
    return True
