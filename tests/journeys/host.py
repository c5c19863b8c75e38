"""A host process to be killed: real time, a command as the agent, a file as the way out.

Usage: host.py WORKSPACE DELIVERIES ACTION…, each action being `fire:SLUG`, `fire:SLUG:SLOT`,
`run:SLUG`, `settle` or `stay`; with `standby` among them the engine waits for one that holds the
folder. Says `done` on its standard output when the actions are over.
"""

import sys
from pathlib import Path

import anyio

from drumbeat import Engine, Settings
from drumbeat.agents import CommandAgent
from drumbeat.deliverers import StreamDeliverer


async def main(workspace: Path, deliveries: Path, actions: list[str]) -> None:
    model = Path(__file__).with_name("model.py")
    engine = Engine(
        workspace,
        agent=CommandAgent([sys.executable, str(model), str(workspace)]),
        deliverer=StreamDeliverer(deliveries),
        timezone="UTC",
        settings=Settings(),
        standby="standby" in actions,
    )
    async with engine:
        for action in actions:
            verb, _, rest = action.partition(":")
            slug, _, slot = rest.partition(":")
            if verb == "fire":
                await engine.fire(slug, slot=slot or None)
            elif verb == "run":
                await engine.run(slug)
            elif verb == "settle":
                await engine.settled()
            elif verb == "stay":
                await anyio.sleep_forever()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    backend, workspace, deliveries, *actions = sys.argv[1:]
    anyio.run(main, Path(workspace), Path(deliveries), actions, backend=backend)
