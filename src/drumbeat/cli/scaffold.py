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
        You were given the tasks that are open. Decide with guidance/TASKS.md which of them
        somebody has to hear about today, and say for each why today. Touch neither tasks.txt nor
        any other file. A list that came in broken or cut short is a fault to report, never an
        empty list. Most days there is nothing to raise; then answer NOTHING_TO_REPORT and not a
        word more.
    - id: update-guidance
      prompt: >-
        Was there something today that next month's runs should know? Then rework
        guidance/TASKS.md: correct what it says already, merge what belongs together, prune what is
        over. A page at most. Name whatever you were unable to do.
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
