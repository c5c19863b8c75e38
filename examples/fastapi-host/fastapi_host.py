"""A FastAPI service with an engine inside: GitHub tells it of deployments, and an agent looks."""

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from fastapi import FastAPI

from drumbeat import Agent, Deliverer, DeliveryIntent, Engine, Receipt, Reply, Turn
from drumbeat.web import routes

HERE = Path(__file__).resolve().parent


class StandIn(Agent):
    """Stands in for the model: says which event it was given."""

    async def take_turn(self, turn: Turn, /) -> Reply:
        """A real one reads the event as data, and does what the prompt says about it."""
        event = (turn.cwd / "WEBHOOK_PAYLOAD.json").read_bytes()
        return Reply(text=f"The error rate is as before; the event had {len(event)} bytes.")


class Team(Deliverer):
    """The way out to people: here standard output, in your service its chat or mail."""

    async def deliver(self, intent: DeliveryIntent, /) -> Receipt:
        """Hand one message over; it may come a second time, with a higher attempt."""
        print(f"{intent.name}: {intent.text}", flush=True)
        return Receipt(id=intent.id)


async def end_with(engine: Engine) -> None:
    """End the process if the engine fails: else the service answers 503 until somebody looks."""
    try:
        await engine.wait()
    except Exception:  # noqa: BLE001  whatever it was: the log has it as `engine_failed`
        # This is how a server is asked to stop.
        signal.raise_signal(signal.SIGTERM)


def make_app(data_dir: Path | None = None) -> FastAPI:
    """A service with an engine of its own, which can be entered once: so each test makes another.

    Args:
        data_dir: where the engine keeps its state; `.drumbeat/` in the workspace if None.
    """
    # Secrets come from the environment: AGENT_API_SECRET is what GitHub signs with.
    engine = Engine(HERE / "workspace", agent=StandIn(), deliverer=Team(), data_dir=data_dir)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        """Run what is due while the service runs; leaving lets what goes on end."""
        async with engine, anyio.create_task_group() as group:
            group.start_soon(end_with, engine)
            yield
            group.cancel_scope.cancel()

    app = FastAPI(lifespan=lifespan)
    app.router.routes.extend(routes(engine))

    @app.get("/")
    async def front() -> dict[str, int]:
        """What the service had before goes on beside the doors."""
        return {"runs": len(await engine.runs())}

    return app


def serve(app: FastAPI, **where: Any) -> None:
    """Serve until SIGINT or SIGTERM, and let the engine drain then."""
    import uvicorn

    # Else a client that never ends its request would keep the engine from draining.
    uvicorn.run(app, timeout_graceful_shutdown=40, **where)


if __name__ == "__main__":
    serve(make_app(), host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
