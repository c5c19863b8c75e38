"""A chain of follow-ups, with a restart of the service in the middle of it."""

import tempfile
from pathlib import Path

import anyio
import structlog
from chain_agent import Builder
from chain_host import service

from drumbeat import Engine
from drumbeat.testing import RecordingDeliverer

WORKSPACE = Path(__file__).with_name("workspace")


async def ended(engine: Engine, runs: int) -> None:
    """Wait until so many runs have ended."""
    with anyio.fail_after(60):
        async for event in engine.events():
            runs -= event.kind == "run_completed"
            if not runs:
                return


async def main() -> None:
    """Look until the build is over; show each run, and what asked for it."""
    agent, sent = Builder(looks=4), RecordingDeliverer()
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        async with service(WORKSPACE, agent, sent, data_dir=data) as engine:
            await engine.fire("build-watch")
            await ended(engine, 2)
        async with service(WORKSPACE, agent, sent, data_dir=data) as engine:
            await ended(engine, 4)
            await engine.settled()
            runs = (await engine.runs())[::-1]
    for run in runs:
        asked = "by hand" if run.fire.parent_run is None else f"follow-up {run.fire.depth}"
        assert run.intent is not None
        print(f"{run.slug} ({asked}): {run.intent.text}")
    print(f"conversations: {len(set(agent.conversations))}")


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    anyio.run(main)
