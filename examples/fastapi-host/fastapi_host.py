"""A FastAPI service with an engine inside: GitHub tells it of deployments, and an agent looks."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

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


# Secrets come from the environment: AGENT_API_SECRET is what GitHub signs with.
engine = Engine(HERE / "workspace", agent=StandIn(), deliverer=Team())


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Run what is due while the service runs; leaving lets what goes on end."""
    async with engine:
        yield


app = FastAPI(lifespan=lifespan)
app.router.routes.extend(routes(engine))


@app.get("/")
async def front() -> dict[str, int]:
    """What the service had before goes on beside the doors."""
    return {"runs": len(await engine.runs())}


if __name__ == "__main__":
    import uvicorn

    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    # Else a client that never ends its request would keep the engine from draining.
    uvicorn.run(app, host="127.0.0.1", port=port, timeout_graceful_shutdown=40)
