"""A host that serves the doors on the loopback, so that what runs in a turn can ask."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import uvicorn
from starlette.applications import Starlette

from drumbeat import Agent, Deliverer, Engine, Settings
from drumbeat.web import routes


@asynccontextmanager
async def service(
    workspace: Path,
    agent: Agent,
    deliverer: Deliverer,
    *,
    data_dir: Path,
    settings: Settings | None = None,
) -> AsyncIterator[Engine]:
    """One life of the service: an engine, and its doors at a port of their own."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        engine = Engine(
            workspace,
            agent=agent,
            deliverer=deliverer,
            data_dir=data_dir,
            timezone="UTC",
            settings=settings,
            # What runs in a turn is told to ask here.
            base_url=f"http://127.0.0.1:{port}",
        )
        app = Starlette(routes=routes(engine))
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning"))
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listening])
            # The doors are shut after the engine: a turn that ends while it drains may still ask.
            async with engine:
                yield engine
            server.should_exit = True
