"""A model that needs no network: one turn as JSON on standard input, the answer on standard output.

`CommandAgent` starts it once for each turn. It knows the automations of this example by name and
always says the same; swap the command in `host.py` for one that asks a real model.
"""

import json
import subprocess
import sys
from typing import Any


def answer(turn: dict[str, Any]) -> str:
    """What the model says to one turn."""
    slug, origin, step = turn["slug"], turn["origin"], turn["step_id"]
    if origin == "inject":
        return f"Noted, {turn['label']}:\n{turn['prompt'].strip()}"
    if origin == "judgment":
        return judge(slug)
    if slug == "inbox-check" and step == "sort":
        # The workspace's bin/ is on the PATH of every turn.
        listing = subprocess.run(["mailbox", "list"], capture_output=True, text=True, check=True)
        lines = [line for line in listing.stdout.splitlines() if line.startswith(("m1", "m3"))]
        return "These need somebody:\n" + "\n".join(lines)
    if slug == "disk-watch":
        return "/var is 61 % full, 2 % more than last time. Nothing else moved."
    if slug == "morning-note":
        return "Good morning! The kettle is on and the inbox is short."
    if slug == "calendar-watch":
        return "NOTHING_TO_REPORT"
    return "Done."


def judge(slug: str) -> str:
    """What the model answers when it is asked whether a run is worth a message."""
    if slug == "inbox-check":
        return (
            "Ana (Okafor) has waited two days for the signed contract: send it today.\n"
            "Invoice 118 of the print shop falls due on Friday: approve it."
        )
    if slug == "disk-watch":
        return "/var is 61 % full and grows slowly; there is no hurry."
    return "NOTHING_TO_REPORT"


def main() -> None:
    """Read one turn, write one reply."""
    turn = json.load(sys.stdin)
    text = answer(turn)
    usage = {"input_tokens": len(turn["text"]) // 4, "output_tokens": len(text) // 4}
    json.dump({"text": text, "usage": usage, "provider": "stub", "model": "stub-1"}, sys.stdout)


if __name__ == "__main__":
    main()
