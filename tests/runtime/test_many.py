"""Ten thousand automations, of which hundreds are broken: each is named, and the others go on."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

ALL = 10_000
BROKEN = (
    "---\nautomation:\n  nmae: x\n---\n",
    "---\nautomation:\n\tname: x\n---\n",
    "no front matter\n",
    "",
    "---\nautomation: {name: [\n---\n",
)
GOOD = "---\nautomation: {name: A, trigger: {type: manual}, steps: [{id: a, prompt: b}]}\n---\n"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # nearly all of it is parsing
async def test_hundreds_of_broken_files_among_thousands_stop_no_other(host: Any) -> None:
    """Broken from the start, and broken while the engine runs."""
    folder = host.workspace / "automations"
    bad = {Path(f"automations/a{n}.md"): BROKEN[n % len(BROKEN)] for n in range(500)}
    good = [f"a{n}" for n in range(500, ALL)]
    for path, text in bad.items():
        (host.workspace / path).write_text(text)
    for slug in good:
        (folder / f"{slug}.md").write_text(GOOD)
    async with host.engine() as engine:
        known = (await engine.status()).workspace
        assert known.problems.keys() == bad.keys()
        for path, problems in known.problems.items():
            assert problems
            assert all((each.path, bool(each.code)) == (path, True) for each in problems)
        assert sorted(each.slug for each in known.automations) == sorted(good)
        await engine.reload()
        told = await host.events(engine, "workspace_error")
        assert sorted(event.data["path"] for event in told) == sorted(map(str, bad))
        for slug in good[:: len(good) // 10]:
            assert (await engine.run(slug)).state == "succeeded"
        assert (await engine.run("a7")).failure.code == "automation-broken"
        (folder / f"{good[0]}.md").write_text(BROKEN[0])
        (folder / "a7.md").write_text(GOOD)
        await engine.reload()
        known = (await engine.status()).workspace
        assert (len(known.problems), len(known.automations)) == (500, ALL - 500)
        assert (await engine.run("a7")).state == "succeeded"
