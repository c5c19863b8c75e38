"""What a host counts on: the chain goes on over a restart, ends, and gives nothing away."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from chain_agent import Builder
from chain_host import service
from watch_build import ended

from drumbeat import Reply, Settings, Turn
from drumbeat.testing import RecordingDeliverer

WORKSPACE = Path(__file__).with_name("workspace")

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio, which is what uvicorn knows."""
    return "asyncio"


async def test_a_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    """In one conversation and with one memory, until there is nothing left to wait for."""
    agent, sent = Builder(looks=3), RecordingDeliverer()
    async with service(WORKSPACE, agent, sent, data_dir=tmp_path) as engine:
        await engine.fire("build-watch")
        await ended(engine, 1)
    async with service(WORKSPACE, agent, sent, data_dir=tmp_path) as engine:
        await ended(engine, 3)
        await engine.settled()
        assert [run.fire.depth for run in await engine.runs()] == [2, 1, 0]
        assert (await engine.status()).waiting == ()
    assert len(set(agent.conversations)) == 1
    assert [intent.text for intent in sent.intents][-1] == "Look 3: the build is green."
    notes = (tmp_path / "memory" / "automations" / "build-watch" / "looks.txt").read_text()
    assert notes.splitlines()[1:] == ["Look 2 at the build.", "Look 3 at the build."]


async def test_a_chain_that_would_never_end_is_told_so(tmp_path: Path) -> None:
    """The tool prints the refusal, and the agent passes it on to people."""
    agent, sent = Builder(looks=99, seconds=0), RecordingDeliverer()
    few = Settings(follow_up_depth=2)
    async with service(WORKSPACE, agent, sent, data_dir=tmp_path, settings=few) as engine:
        await engine.fire("build-watch")
        await ended(engine, 3)
        await engine.settled()
    assert len(sent.intents) == 3
    last = sent.intents[-1].text
    assert last.startswith("Look 3: still going, and I cannot look again (refused: no follow-up:")
    assert "2 is the limit" in last


class Forgetful(Builder):
    """Leaves its token lying about."""

    def __init__(self) -> None:
        super().__init__(looks=1)
        self.env: dict[str, str] = {}

    async def take_turn(self, turn: Turn, /) -> Reply:
        """Keep what nobody should keep."""
        self.env = dict(turn.env)
        return await super().take_turn(turn)


def ask(env: dict[str, str]) -> int:
    """Ask as the tool does; the status of the answer."""
    request = urllib.request.Request(  # noqa: S310  the engine's own address
        env["DRUMBEAT_FOLLOWUPS_URL"],
        data=json.dumps({"prompt": "Once more.", "after_seconds": 0}).encode(),
        headers={"Authorization": f"Bearer {env['DRUMBEAT_RUN_TOKEN']}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  the same
            return int(response.status)
    except urllib.error.HTTPError as refused:
        return refused.code


async def test_a_token_is_worthless_after_its_run(tmp_path: Path) -> None:
    """Whoever finds it, and even though it is nowhere in what the engine wrote."""
    agent, sent = Forgetful(), RecordingDeliverer()
    async with service(WORKSPACE, agent, sent, data_dir=tmp_path) as engine:
        await engine.run("build-watch")
        with anyio.fail_after(30):
            assert await to_thread.run_sync(ask, agent.env) == 401
        assert len(await engine.fires()) == 1
    token = agent.env["DRUMBEAT_RUN_TOKEN"].encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if token in path.read_bytes()] == []
