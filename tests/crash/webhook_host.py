"""A host with a webhook door that is started again and again, to be killed.

Usage: webhook_host.py WORKSPACE LOG. Each line on its standard input starts one host in a process
of its own, which says `port N pid P`; the next line is read when that one has ended. The libraries
are imported once, by the process that forks.
"""

import json
import os
import random
import socket
import sys
from pathlib import Path

import anyio
import uvicorn
from starlette.applications import Starlette

from drumbeat import Engine, Reply, Settings, Turn
from drumbeat.testing import RecordingDeliverer
from drumbeat.web import routes

SECRETS = {"AGENT_API_SECRET": "a-secret-of-the-doors"}


class Agent:
    """Says in a file which event it was given, and takes a moment."""

    def __init__(self, log: Path) -> None:
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def take_turn(self, turn: Turn, /) -> Reply:
        event = (turn.cwd / "WEBHOOK_PAYLOAD.json").read_text(encoding="utf-8")
        line = {"event": event, "told": "interrupted" in turn.context}
        os.write(self.log, json.dumps(line).encode() + b"\n")
        await anyio.sleep(random.random() / 20)
        return Reply(text="done")


async def main(workspace: Path, log: Path) -> None:
    engine = Engine(
        workspace,
        agent=Agent(log),
        deliverer=RecordingDeliverer(),
        timezone="UTC",
        secrets=SECRETS,
        env={"PATH": "/usr/bin:/bin"},
        settings=Settings(max_concurrent_runs=4),
    )
    app = Starlette(routes=routes(engine))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_level="critical"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(256)
        async with engine:
            # Written by the host itself and at once: a buffer of the fork would be written twice.
            said = f"port {listening.getsockname()[1]} pid {os.getpid()}\n"
            os.write(1, said.encode())
            await server.serve([listening])


if __name__ == "__main__":
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            os.close(0)
            with open(os.devnull, "w", encoding="utf-8") as nothing:  # noqa: PTH123  a descriptor
                os.dup2(nothing.fileno(), 2)
                sys.stdout = nothing  # the log has no reader
                anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]))
            os._exit(0)
        os.waitpid(child, 0)
