"""Stands for a model: answers each turn, writes down what it saw, and hangs while told to."""

import json
import os
import sys
import time
from pathlib import Path

workspace = Path(sys.argv[1])
turn = json.load(sys.stdin)
with (workspace / "model.log").open("a", encoding="utf-8") as log:
    seen = {name: turn[name] for name in ("slug", "session_id", "is_new", "origin", "prompt")}
    log.write(json.dumps(seen | {"context": turn["context"]}) + "\n")
if turn["origin"] == "step" and (workspace / "hang").exists():
    with (workspace / "hung").open("a", encoding="utf-8") as hung:
        hung.write(f"{os.getpid()}\n")
    (workspace / "hanging").write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(600)  # noqa: TID251  a model that takes its time, in a process of its own
json.dump({"text": f"answered {turn['prompt'].strip()}"}, sys.stdout)
