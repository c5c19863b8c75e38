"""Names that lead elsewhere, wherever a name can be given: they name nothing."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Engine, NotFound, SystemClock

pytestmark = pytest.mark.anyio

NAMES = [
    "../outside",
    "../../outside",
    "/etc/passwd",
    "..",
    "a/../look",
    "jobs/look",
    "look\0",
]
BEARER = {"Authorization": "Bearer a-secret-of-the-doors"}
ASKED: dict[str, Callable[[Engine, str], Awaitable[object]]] = {
    "fire": lambda engine, name: engine.fire(name),
    "run": lambda engine, name: engine.run(name),
    "pause": lambda engine, name: engine.pause(name, "a reason"),
    "resume": lambda engine, name: engine.resume(name),
    "rotate": lambda engine, name: engine.rotate(name, "a reason"),
    "why": lambda engine, name: engine.why(name, at=SystemClock().now()),
    "find_run": lambda engine, name: engine.find_run(name),
    "reply": lambda engine, name: engine.reply(name, "What was it?"),
    "cancel": lambda engine, name: engine.cancel(name, "a reason"),
    "ask": lambda engine, name: engine.ask("What ran?", name),
}


def tree(folder: Path) -> set[str]:
    """What stands below it, but for what an engine keeps for itself in its data folder."""
    found = {path for path in folder.rglob("*") if path.parent.name != ".drumbeat"}
    return {str(path.relative_to(folder)) for path in found}


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_leads_elsewhere_names_nothing(
    host: Any, tmp_path: Path, name: str
) -> None:
    """Though a file that would load stands where it leads; and nothing is made for it."""
    job = host.job("look", "webhook: look").read_text()
    for folder in (tmp_path, host.workspace):
        (folder / "outside.md").write_text(job)
    async with host.engine() as engine:
        before = tree(tmp_path)
        for what, ask in ASKED.items():
            try:
                known = await ask(engine, name)
            except NotFound:
                continue
            pytest.fail(f"{what} knows {name!r}: {known!r}")
        for path in (f"/webhooks/{name}", f"/automations/{name}/run"):
            got = await host.call(engine, "POST", path, body=b"{}", headers=BEARER)
            assert got.status == 404
        assert (await engine.fires(), await engine.runs(), await engine.sessions()) == ([], [], {})
        assert tree(tmp_path) == before
    assert host.agent.turns == []
