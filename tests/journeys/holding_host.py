"""A host to be killed inside `deliver`: each intent is written to a file, and then it hangs.

Usage: holding_host.py BACKEND WORKSPACE DELIVERIES ACTION…, each action being `run:SLUG` or
`settle`. While the workspace has a file `hold`, a delivery never returns once its line is written.
Says `done` on its standard output when the actions are over.
"""

import json
import os
import sys
from pathlib import Path

import anyio

from drumbeat import DeliveryIntent, Engine
from drumbeat.agents import CommandAgent


class Holding:
    """Appends one line for each intent, synced to the disk, and returns unless it is to hang."""

    def __init__(self, workspace: Path, deliveries: Path) -> None:
        self.hold = workspace / "hold"
        self.deliveries = deliveries

    async def deliver(self, intent: DeliveryIntent, /) -> None:
        line = json.dumps({"slug": intent.slug, "id": intent.id, "attempt": intent.attempt})
        with self.deliveries.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        if self.hold.exists():
            await anyio.sleep_forever()


async def main(workspace: Path, deliveries: Path, actions: list[str]) -> None:
    model = Path(__file__).with_name("model.py")
    engine = Engine(
        workspace,
        agent=CommandAgent([sys.executable, str(model), str(workspace)]),
        deliverer=Holding(workspace, deliveries),
        timezone="UTC",
    )
    async with engine:
        for action in actions:
            verb, _, slug = action.partition(":")
            if verb == "run":
                await engine.run(slug)
            else:
                await engine.settled()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    backend, workspace, deliveries, *actions = sys.argv[1:]
    anyio.run(main, Path(workspace), Path(deliveries), actions, backend=backend)
