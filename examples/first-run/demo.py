"""Runs every automation of the example once, offline, and shows what became of each."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio
import structlog

from drumbeat import Engine, RunRecord
from drumbeat.agents import CommandAgent
from drumbeat.deliverers import StreamDeliverer

HERE = Path(__file__).resolve().parent
HEADINGS = ("automation", "state", "verdict", "gate", "reason")


async def run_all(data_dir: Path) -> list[RunRecord]:
    """Run each automation by hand, deliver what is to be delivered, return the records."""
    engine = Engine(
        HERE / "workspace",
        agent=CommandAgent([sys.executable, str(HERE / "stub_model.py")]),
        deliverer=StreamDeliverer(sys.stdout, format="text"),
        data_dir=data_dir,
    )
    async with engine:
        workspace = (await engine.status()).workspace
        for automation in workspace.automations:
            await engine.run(automation.slug)
        await engine.settled()  # nothing is running, and every message was handed over
        return list(reversed(await engine.runs()))


def table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings, with rich where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ModuleNotFoundError:
        widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
        for row in (HEADINGS, *rows):
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)))
    else:
        grid = Table(*HEADINGS)
        for row in rows:
            grid.add_row(*row)
        Console(width=None if sys.stdout.isatty() else 140, markup=False).print(grid)


def main() -> None:
    """Run the demo and say where everything lies."""
    # The table says it all: what the engine logs meanwhile would only stand in its way.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    data_dir = Path(tempfile.mkdtemp(prefix="drumbeat-demo-"))
    records = anyio.run(run_all, data_dir)
    rows = [
        (record.slug, record.state, record.intent.verdict, record.intent.gate, record.intent.reason)
        for record in records
        if record.intent is not None
    ]
    print()
    table(rows)
    print(f"\nEvery prompt and reply is kept below {data_dir / 'runs'}")


if __name__ == "__main__":
    main()
