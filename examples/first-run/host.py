"""A host: runs the automations of a workspace until it is told to stop."""

import signal
import sys
from pathlib import Path

import anyio
import structlog

from drumbeat import Engine
from drumbeat.agents import CommandAgent
from drumbeat.deliverers import StreamDeliverer

HERE = Path(__file__).resolve().parent


async def drain_on_signal(engine: Engine) -> None:
    """Let running work end when the service is asked to stop."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            await engine.drain(f"{signal.Signals(number).name} received")


async def main() -> None:
    """Bring a model and a way out to people, enter the engine, wait."""
    engine = Engine(
        HERE / "workspace",
        agent=CommandAgent([sys.executable, str(HERE / "stub_model.py")]),  # the model
        deliverer=StreamDeliverer(sys.stdout, format="text"),  # the way out to people
    )
    async with engine, anyio.create_task_group() as group:
        group.start_soon(drain_on_signal, engine)
        for automation in (await engine.status()).workspace.automations:
            print("serving", automation.slug, flush=True)
        await engine.wait()  # returns when drained, raises what stopped the engine
        group.cancel_scope.cancel()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    anyio.run(main)
