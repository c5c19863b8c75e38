"""`/followups`: the token of a run, what it opens, and every way to be refused (spec, 13.3)."""

import json
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from threading import get_ident
from typing import Any

import anyio
import pytest

from drumbeat import Engine, Turn
from drumbeat.testing import ScriptedAgent
from drumbeat.web import follow_ups

pytestmark = pytest.mark.anyio

LONG = b"a" * 65_537
ASK = {"prompt": "Look again.", "after_seconds": 600}


async def during(host: Any, ask: Callable[[Engine, str], Awaitable[Any]], **options: Any) -> Any:
    """What `ask` returns, called with the token of a run that is going; the run's record too."""
    found: list[Any] = []

    async def say(turn: Turn) -> str:
        if turn.origin == "step":
            found.append(await ask(engine, turn.env["DRUMBEAT_RUN_TOKEN"]))
        return "done"

    host.job("look")
    engine = host.engine(agent=ScriptedAgent(default=say), **options)
    async with engine:
        run = await engine.run("look")
        assert run.state == "succeeded", run.failure
        fires = [fire for fire in await engine.fires() if fire.cause == "follow-up"]
        events = await host.events(engine, "follow_up_refused")
    (answer,) = found
    return answer, run, fires, events


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("slug", [{}, {"slug": "look"}, {"slug": None}])
async def test_a_turn_asks_for_a_later_run(host: Any, slug: dict[str, Any]) -> None:
    """202 and the fire, which is committed by then."""

    async def ask(engine: Engine, token: str) -> Any:
        body = json.dumps({**ASK, **slug}).encode()
        got = await host.call(engine, "POST", "/followups", body=body, headers=bearer(token))
        return got, [fire for fire in await engine.fires() if fire.cause == "follow-up"]

    (got, committed), run, _, _ = await during(host, ask)
    (fire,) = committed
    assert got.status == 202
    assert got.json == {"fire": fire.id, "slug": "look", "due": fire.due.isoformat()}
    assert got.headers["cache-control"] == "no-store"
    assert (fire.prompt, fire.parent_run, fire.depth) == ("Look again.", run.run_id, 1)
    assert fire.due - fire.created_at == timedelta(seconds=600)


@pytest.mark.parametrize(
    "body, code, said",
    [
        (b"", "body-invalid", "no JSON"),
        (b"{", "body-invalid", "no JSON"),
        (b"[" * 60_000, "body-invalid", "more than 100 lists and objects"),
        (b'{"prompt": "\xff"}', "body-invalid", "no JSON"),
        (b"[]", "body-invalid", "no JSON object"),
        (b'{"prompt": "a", "after_seconds": 1, "after": 1}', "body-invalid", "keys other than"),
        (b'{"after_seconds": 1}', "body-invalid", "`prompt`"),
        (b'{"prompt": 1, "after_seconds": 1}', "body-invalid", "`prompt`"),
        (b'{"prompt": "a"}', "body-invalid", "`after_seconds`"),
        (b'{"prompt": "a", "after_seconds": "1"}', "body-invalid", "`after_seconds`"),
        (b'{"prompt": "a", "after_seconds": true}', "body-invalid", "`after_seconds`"),
        (b'{"prompt": "a", "after_seconds": NaN}', "body-invalid", "`after_seconds`"),
        (b'{"prompt": "a", "after_seconds": 1, "slug": 1}', "body-invalid", "`slug`"),
        (b'{"prompt": " ", "after_seconds": 1}', "follow-up-prompt-invalid", "blank"),
        (b'{"prompt": "a\\u0000b", "after_seconds": 1}', "follow-up-prompt-invalid", "null"),
        (b'{"prompt": "\\ud800", "after_seconds": 1}', "follow-up-prompt-invalid", "surrogate"),
        (b'{"prompt": "' + LONG + b'", "after_seconds": 1}', "follow-up-prompt-invalid", "limit"),
        (b'{"prompt": "a", "after_seconds": -1}', "follow-up-delay", "outside"),
        (b'{"prompt": "a", "after_seconds": 2592001}', "follow-up-delay", "outside"),
        (b'{"prompt": "a", "after_seconds": 1e300}', "follow-up-delay", "outside"),
        (b'{"prompt": "a", "after_seconds": -Infinity}', "follow-up-delay", "outside"),
    ],
)
async def test_what_cannot_be_asked_for_is_a_400(
    host: Any, body: bytes, code: str, said: str
) -> None:
    """And nothing is put in; a limit is recorded."""

    async def ask(engine: Engine, token: str) -> Any:
        return await host.call(engine, "POST", "/followups", body=body, headers=bearer(token))

    got, _, fires, events = await during(host, ask)
    assert (got.status, got.json["code"]) == (400, code)
    assert said in got.json["reason"]
    assert fires == []
    assert [event.data["code"] for event in events] == ([code] if code != "body-invalid" else [])


async def test_a_run_that_asks_on_and_on_costs_no_row_each_time(host: Any) -> None:
    """What is refused first is on record at once, with its reason; what follows is counted."""

    async def ask(engine: Engine, token: str) -> Any:
        for prompt in [" "] * 50 + ["\0"] * 50:
            body = json.dumps({"prompt": prompt, "after_seconds": 1}).encode()
            got = await host.call(engine, "POST", "/followups", body=body, headers=bearer(token))
            assert got.json["code"] == "follow-up-prompt-invalid"
        body = b'{"prompt": "a", "after_seconds": -1}'
        await host.call(engine, "POST", "/followups", body=body, headers=bearer(token))

    _, run, _, events = await during(host, ask)
    assert [event.data["code"] for event in events] == [
        "follow-up-prompt-invalid",
        "follow-up-delay",
    ]
    assert "blank" in events[0].data["reason"]
    async with host.client() as client:
        counted = (await host.events(client, "follow_up_refused"))[2:]
    assert [(each.run_id, each.data["count"]) for each in counted] == [(run.run_id, 99)]


@pytest.mark.parametrize("length", [10, 65_000])
async def test_a_long_body_is_read_in_a_thread(
    host: Any, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """So that nobody else on the loop waits for it."""
    read, threads = follow_ups._read, list[int]()

    def noted(body: bytes) -> Any:
        threads.append(get_ident())
        return read(body)

    monkeypatch.setattr(follow_ups, "_read", noted)
    body = json.dumps({"prompt": "é" * length, "after_seconds": 1}).encode()

    async def ask(engine: Engine, token: str) -> Any:
        return await host.call(engine, "POST", "/followups", body=body, headers=bearer(token))

    got, *_ = await during(host, ask)
    assert got.status == 202
    assert [thread == get_ident() for thread in threads] == [length == 10]


async def test_a_body_that_is_too_large_is_not_read(host: Any) -> None:
    async def ask(engine: Engine, token: str) -> Any:
        body = b'{"prompt": "' + b"a" * 1024 * 1024
        return await host.call(engine, "POST", "/followups", body=body, headers=bearer(token))

    got, _, fires, _ = await during(host, ask)
    assert (got.status, got.json["code"], fires) == (413, "body-too-large", [])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer dbrt_wrong"},
        {"Authorization": "Basic {token}"},
        {"Authorization": "Bearer a-secret-of-the-doors"},
        {"X-Token": "{token}"},
    ],
    ids=["none", "empty", "wrong", "basic", "secret", "elsewhere"],
)
async def test_only_the_token_opens(host: Any, headers: dict[str, str]) -> None:
    """Not even the secret of the other doors."""

    async def ask(engine: Engine, token: str) -> Any:
        given = {name: value.format(token=token) for name, value in headers.items()}
        body = json.dumps(ASK).encode()
        return await host.call(engine, "POST", "/followups", body=body, headers=given)

    got, _, fires, events = await during(host, ask)
    assert (got.status, got.json["code"]) == (401, "run-token-unknown")
    assert got.headers["www-authenticate"] == 'Bearer realm="drumbeat"'
    assert (fires, events) == ([], [])


async def test_it_opens_nothing_else(host: Any) -> None:
    """No other automation, and no other door."""
    host.job("other")

    async def ask(engine: Engine, token: str) -> Any:
        body = json.dumps({**ASK, "slug": "other"}).encode()
        other = await host.call(engine, "POST", "/followups", body=body, headers=bearer(token))
        run = await host.call(engine, "POST", "/automations/look/run", headers=bearer(token))
        return other, run

    (other, run), _, fires, events = await during(host, ask)
    assert (other.status, other.json["code"]) == (403, "follow-up-other-automation")
    assert run.status == 401
    assert fires == []
    assert [event.data["code"] for event in events] == ["follow-up-other-automation"]


async def test_the_sixth_that_would_wait_is_a_429(host: Any) -> None:
    async def ask(engine: Engine, token: str) -> Any:
        body = json.dumps(ASK).encode()
        return [
            await host.call(engine, "POST", "/followups", body=body, headers=bearer(token))
            for _ in range(6)
        ]

    got, _, fires, events = await during(host, ask)
    assert [each.status for each in got] == [202] * 5 + [429]
    assert got[-1].json["code"] == "follow-ups-pending"
    assert len(fires) == 5
    assert [event.data["code"] for event in events] == ["follow-ups-pending"]


async def test_the_token_is_worthless_when_the_run_is_over(host: Any) -> None:
    """Also to a client and a standby, which cannot tell and say that it is not for them."""
    host.job("look")
    agent = ScriptedAgent(default="done")
    body = json.dumps(ASK).encode()
    async with host.engine(agent=agent) as engine, host.client() as client:
        await engine.run("look")
        headers = bearer(agent.turns[0].env["DRUMBEAT_RUN_TOKEN"])
        late = await host.call(engine, "POST", "/followups", body=body, headers=headers)
        beside = await host.call(client, "POST", "/followups", body=body, headers=headers)
        async with host.engine(standby=True) as standby:
            stands_by = await host.call(standby, "POST", "/followups", body=body, headers=headers)
        assert len(await engine.fires()) == 1
    left = await host.call(engine, "POST", "/followups", body=body, headers=headers)
    assert (late.status, late.json["code"]) == (401, "run-token-unknown")
    assert (beside.status, beside.json["code"]) == (503, "run-token-elsewhere")
    assert (stands_by.status, stands_by.json["code"]) == (503, "run-token-elsewhere")
    assert left.status == 503
    for each in (beside, stands_by):
        assert "retry-after" not in each.headers
        assert "the one whose engine holds the data folder" in each.json["reason"]
    assert left.headers["retry-after"] == "30"


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other loop
async def test_a_chain_over_http_goes_on_to_its_end(host: Any) -> None:
    """Each run asks for the next with what its environment holds, over a restart, ten deep.

    The automation's identity and its memory stay; the eleventh is told that it is too deep, and
    no token of an earlier run opens anything.
    """
    host.job("look")
    tokens: list[str] = []
    answers: list[Any] = []
    counted: list[str] = []

    async def say(turn: Turn) -> str:
        notes = turn.memory_dir / "count"
        notes.write_text(notes.read_text() + "x" if notes.exists() else "x")
        counted.append(f"{turn.slug} {turn.origin} {len(notes.read_text())}")
        for old in tokens:
            got = await served.post("/followups", json.dumps(ASK).encode(), bearer(old))
            assert got.status == 401
        tokens.append(turn.env["DRUMBEAT_RUN_TOKEN"])
        assert turn.env["DRUMBEAT_FOLLOWUPS_URL"] == "http://127.0.0.1:1/followups"
        ask = {"prompt": f"Number {len(tokens)}.", "after_seconds": 0}
        headers = bearer(tokens[-1])
        answers.append(await served.post("/followups", json.dumps(ask).encode(), headers))
        if len(tokens) in (4, 11):
            over.set()
        return "done"

    for _ in range(2):
        over = anyio.Event()
        agent = ScriptedAgent(default=say)
        engine = host.engine(agent=agent, base_url="http://127.0.0.1:1")
        async with host.serving(engine) as served, engine:
            if not tokens:
                await engine.fire("look")
            with anyio.fail_after(60):
                await over.wait()
            if len(tokens) == 11:
                await engine.settled()
    async with host.client() as client:
        runs = await client.runs()
        refused = await host.events(client, "follow_up_refused")
        assert await client.sweep() == []
    assert [got.status for got in answers] == [202] * 10 + [409]
    assert answers[-1].json["code"] == "follow-up-too-deep"
    assert [event.data["code"] for event in refused] == ["follow-up-too-deep"]
    assert [run.fire.depth for run in reversed(runs)] == list(range(11))
    assert {run.state for run in runs} == {"succeeded"}
    assert [run.fire.parent_run for run in runs[:-1]] == [run.run_id for run in runs[1:]]
    assert [run.fire.prompt for run in reversed(runs)][1:] == [f"Number {n}." for n in range(1, 11)]
    assert counted[0] == "look step 1"
    assert counted[1:] == [f"look follow-up {n}" for n in range(2, 12)]


DYING = """\
import http.client, json, os, signal, socket, sys

import anyio, uvicorn
from anyio import to_thread
from starlette.applications import Starlette

from drumbeat import Engine
from drumbeat.testing import ScriptedAgent
from drumbeat.web import routes


async def main():
    listening = socket.create_server(("127.0.0.1", 0))

    def ask(token):
        connection = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1])
        body = json.dumps({"prompt": "Go on.", "after_seconds": 0})
        connection.request("POST", "/followups", body, {"Authorization": f"Bearer {token}"})
        print(token, connection.getresponse().status, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    async def say(turn):
        await to_thread.run_sync(ask, turn.env["DRUMBEAT_RUN_TOKEN"])

    engine = Engine(sys.argv[1], agent=ScriptedAgent(default=say), timezone="UTC")
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes(engine)), lifespan="off"))
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, [listening])
        async with engine:
            await engine.run("look")


anyio.run(main)
"""


@pytest.mark.slow
async def test_what_was_answered_outlives_the_process_and_its_token_does_not(host: Any) -> None:
    """Killed at the moment at which the answer is there."""
    host.job("look")
    done = await anyio.run_process(
        [sys.executable, "-c", DYING, str(host.workspace)], check=False, stderr=None
    )
    token, status = done.stdout.decode().split()[-2:]
    assert (done.returncode, status) == (-signal.SIGKILL, "202")
    agent = ScriptedAgent(default="done")
    async with host.engine(agent=agent) as engine:
        body = json.dumps(ASK).encode()
        got = await host.call(engine, "POST", "/followups", body=body, headers=bearer(token))
        with anyio.fail_after(30):
            await engine.settled()
        later, killed = await engine.runs()
    assert (got.status, got.json["code"]) == (401, "run-token-unknown")
    assert (killed.state, later.state) == ("interrupted", "succeeded")
    assert (later.fire.prompt, later.fire.parent_run) == ("Go on.", killed.run_id)
    assert [turn.origin for turn in agent.turns] == ["follow-up"]
