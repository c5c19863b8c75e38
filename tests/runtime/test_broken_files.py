"""A file that breaks while an engine runs: what is said of it, and how often."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

pytestmark = pytest.mark.anyio

BROKEN = "---\nautomation:\n  name: 1\n---\n"
WORSE = "---\nautomation:\n  nmae: x\n---\n"


async def test_a_file_that_breaks_is_told_with_its_reason_once_for_each_way(host: Any) -> None:
    """The log and the durable events say where, what and which code; so much changes no more."""
    host.write()
    async with host.engine() as engine:
        await engine.reload()
        assert await host.events(engine, "workspace_error") == []
        host.file("automations/check.md", BROKEN)
        with capture_logs() as logs:
            for _ in range(3):
                await engine.reload()
        (line,) = [line for line in logs if line["event"] == "automation_broken"]
        (problem, *_) = (await engine.status()).workspace.problems[Path("automations/check.md")]
        assert (line["log_level"], line["path"]) == ("error", "automations/check.md")
        assert (line["line"], line["code"]) == (problem.line, problem.code)
        assert (line["message"], line["remedy"]) == (problem.message, problem.remedy)
        (event,) = await host.events(engine, "workspace_error")
        assert event.slug == "check"
        assert event.data == {
            "what": "file",
            "path": "automations/check.md",
            "line": problem.line,
            "code": problem.code,
            "message": problem.message,
        }
        host.file("automations/check.md", WORSE)
        await engine.reload()
        host.write()
        await engine.reload()
        host.file("automations/check.md", WORSE)
        await engine.reload()
        events = await host.events(engine, "workspace_error")
        assert len(events) == 3


async def test_a_file_that_is_broken_at_the_start_is_told_with_its_reason(host: Any) -> None:
    """Whoever reads the log of a start needs no second command to know what is wrong."""
    host.file("automations/check.md", BROKEN)
    with capture_logs() as logs:
        async with host.engine() as engine:
            await engine.reload()
            assert len(await host.events(engine, "workspace_error")) == 1
    (line,) = [line for line in logs if line["event"] == "automation_broken"]
    assert line["remedy"]
