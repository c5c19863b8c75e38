"""The doors beside webhooks: who is let in, what they answer, on asyncio and trio."""

import json
from base64 import b64encode
from datetime import timedelta
from threading import get_ident
from typing import Any

import pytest

from drumbeat import Client
from drumbeat.web import ask
from drumbeat.web.doors import json_object

pytestmark = pytest.mark.anyio

SECRET = "a-secret-of-the-doors"
BEARER = {"Authorization": f"Bearer {SECRET}"}
BASIC = {"Authorization": "Basic " + b64encode(f"anybody:{SECRET}".encode()).decode()}
RUN = "/automations/look/run"


# ---- starting one by hand


@pytest.mark.parametrize("proof", [BEARER, BASIC], ids=["bearer", "basic"])
async def test_a_run_is_started_by_whoever_has_the_secret(host: Any, proof: Any) -> None:
    """202 and the fire's id, which is committed by then and runs."""
    host.job("look")
    async with host.engine() as engine:
        got = await host.call(engine, "POST", RUN, headers=proof)
        await engine.settled()
        (fire,) = await engine.fires()
    assert (got.status, got.json) == (202, {"fire": fire.id})
    assert (fire.cause, fire.verdict) == ("manual", "ran")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/webhooks/door/", 202),
        ("POST", "/automations/look/run/", 202),
        ("GET", "/ask/", 200),
        ("POST", "/followups/", 401),
        ("GET", "/health/", 200),
        ("POST", "/webhooks//", 404),
    ],
)
async def test_a_slash_at_the_end_leads_to_the_same_door(
    host: Any, method: str, path: str, status: int
) -> None:
    """Nobody is sent elsewhere: senders of events do not follow."""
    host.job("look", "webhook: door")
    async with host.engine() as engine:
        got = await host.call(engine, method, path, headers=BEARER)
        assert got.status == status


async def test_a_key_makes_it_idempotent(host: Any) -> None:
    """One key is one fire, also when it is long or no text to keep."""
    host.job("look")
    async with host.client() as client:
        for key in ("order 7", "x" * 300):
            headers = BEARER | {"Idempotency-Key": key}
            first = await host.call(client, "POST", RUN, headers=headers)
            again = await host.call(client, "POST", RUN, headers=headers)
            assert (first.status, first.json) == (again.status, again.json)
        slots = [fire.slot for fire in await client.fires()]
    assert slots[1] == "order 7"
    assert slots[0].startswith("sha256:")
    assert len(slots) == 2


async def test_it_can_wait(host: Any) -> None:
    """`after` is in seconds."""
    host.job("look")
    async with host.client() as client:
        got = await host.call(client, "POST", RUN, body=b'{"after": 90.5}', headers=BEARER)
        (fire,) = await client.fires()
    assert got.status == 202
    assert fire.due - fire.created_at == timedelta(seconds=90.5)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[" * 100_000,
        b"[]",
        b'{"affter": 3}',
        b'{"after": "3"}',
        b'{"after": true}',
        b'{"after": -1}',
        b'{"after": 1e300}',
        b'{"after": NaN}',
        b'{"after": 999999999999}',
        b'{"after": 2592001}',
        b'{"after": -1e300}',
    ],
)
async def test_a_body_that_says_nothing_clear_starts_nothing(host: Any, body: bytes) -> None:
    """400 and what is wrong."""
    host.job("look")
    async with host.client() as client:
        got = await host.call(client, "POST", RUN, body=body[:60_000], headers=BEARER)
        assert await client.fires() == []
    assert (got.status, got.json["code"]) == (400, "body-invalid")
    assert got.json["reason"]


async def test_a_body_of_another_size_is_refused(host: Any) -> None:
    """Nobody needs 64 KiB to say a number."""
    host.job("look")
    async with host.client() as client:
        got = await host.call(client, "POST", RUN, body=b" " * 70_000, headers=BEARER)
    assert (got.status, got.json["code"]) == (413, "body-too-large")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic " + b64encode(b"anybody:wrong").decode()},
        {"Authorization": "Digest x"},
    ],
    ids=["none", "bearer", "basic", "another"],
)
async def test_nobody_else_is_let_in(host: Any, headers: Any) -> None:
    """401, which names the way to ask for the secret, and no fire."""
    host.job("look")
    async with host.client() as client:
        got = await host.call(client, "POST", RUN, headers=headers)
        assert await client.fires() == []
    assert (got.status, got.json["code"]) == (401, "caller-unknown")
    assert got.headers["www-authenticate"].startswith("Basic realm=")
    assert SECRET not in got.body.decode()


async def test_without_a_secret_nobody_is_let_in(host: Any) -> None:
    """503, whatever was sent; an empty secret is none."""
    host.job("look")
    host.secrets = {"AGENT_API_SECRET": " "}
    async with host.client() as client:
        got = await host.call(client, "POST", RUN, headers={"Authorization": "Bearer  "})
    assert (got.status, got.json["code"]) == (503, "caller-secret-missing")
    assert got.headers["retry-after"] == "30"


async def test_the_secret_is_that_of_the_environment(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `secrets` the doors' variables count, those that an engine was given first."""
    host.job("look")
    monkeypatch.setenv("AGENT_API_SECRET", SECRET)
    async with host.client(secrets=None) as client:
        assert client.admit(BEARER) is None
    monkeypatch.setenv("AGENT_API_SECRET", "another")
    env = {"PATH": "/usr/bin:/bin", "AGENT_API_SECRET": SECRET}
    async with host.engine(secrets=None, env=env) as engine:
        assert engine.admit(BEARER) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({"Sec-Fetch-Site": "none"}, 202),
        ({"Origin": "https://evil.example", "Host": "here.example"}, 403),
        ({"Origin": "null", "Host": "here.example"}, 403),
        ({"Origin": "https://here.example", "Host": "here.example"}, 202),
    ],
)
async def test_another_sites_page_cannot_use_a_browsers_password(
    host: Any, headers: Any, status: int
) -> None:
    """A browser sends the password along with whatever a page makes it ask for."""
    host.job("look")
    async with host.client() as client:
        got = await host.call(client, "POST", RUN, headers=BASIC | headers)
        assert len(await client.fires()) == (status == 202)
    assert got.status == status


async def test_what_is_not_there_is_not_found(host: Any) -> None:
    """404, without a word of where it was looked for."""
    async with host.client() as client:
        got = await host.call(client, "POST", "/automations/nobody/run", headers=BEARER)
    assert (got.status, got.json["code"]) == (404, "slug-unknown")
    assert str(host.workspace) not in got.body.decode()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE", "PUT"])
async def test_only_posting_starts_a_run(host: Any, method: str) -> None:
    """405 and what is served."""
    host.job("look")
    async with host.client() as client:
        got = await host.call(client, method, RUN, headers=BEARER)
        assert await client.fires() == []
    assert (got.status, got.headers["allow"]) == (405, "POST")


async def test_doors_that_nobody_stands_behind_say_so(host: Any) -> None:
    """Before the engine is entered and after it was left: 503, so that callers come again."""
    host.job("look")
    engine = host.engine()
    before = await host.call(engine, "POST", RUN, headers=BEARER)
    async with engine:
        pass
    after = await host.call(engine, "POST", RUN, headers=BEARER)
    assert [(got.status, got.json["code"]) for got in (before, after)] == [
        (503, "not-entered"),
        (503, "left"),
    ]


# ---- what is counted


async def test_who_is_turned_away_leaves_a_trace_and_no_flood(host: Any) -> None:
    """One event a minute for each door and code, whatever comes; and no word of what was sent."""
    host.job("look")
    wrong = {"Authorization": "Bearer dbrt_a-guess"}
    foreign = BASIC | {"Origin": "https://evil.example", "Host": "here.example"}
    async with host.engine() as engine:
        for _ in range(20):
            await host.call(engine, "POST", RUN, headers=wrong)
            await host.call(engine, "POST", "/automations/other/run", headers=wrong)
            await host.call(engine, "GET", "/ask", headers=wrong)
            await host.call(engine, "POST", "/followups", headers=wrong)
        await host.call(engine, "POST", "/followups")
        await host.call(engine, "POST", "/ask", headers=foreign)
        engine.admit(wrong, door="a door of the host")
        assert await host.events(engine, "caller_refused") == []
    async with host.client() as client:
        events = await host.events(client, "caller_refused")
    assert {(each.data["door"], each.data["code"]): each.data["count"] for each in events} == {
        ("/automations/{slug}/run", "caller-unknown"): 40,
        ("/ask", "caller-unknown"): 20,
        ("/followups", "run-token-unknown"): 21,
        ("/ask", "caller-foreign"): 1,
        ("a door of the host", "caller-unknown"): 1,
    }
    assert "guess" not in str(events)


@pytest.mark.parametrize("path", ["/health", RUN])
async def test_a_client_writes_them_with_what_is_asked_next(host: Any, path: str) -> None:
    """It has no loop of its own."""
    host.job("look")
    async with host.client() as client:
        client.admit({})
        client._refusals._begun -= 61
        method = "GET" if path == "/health" else "POST"
        await host.call(client, method, path, headers=BEARER)
        assert len(await host.events(client, "caller_refused")) == 1


# ---- health


async def health(host: Any, client: Client) -> tuple[int, Any]:
    got = await host.call(client, "GET", "/health")
    assert got.headers["cache-control"] == "no-store"
    return got.status, json.loads(got.body)


async def test_health_follows_the_life_of_an_engine(host: Any) -> None:
    """200 while it runs, 503 before and after."""
    engine = host.engine()
    stopped = {"ok": False, "state": "stopped"}
    assert await health(host, engine) == (503, stopped | {"faults": ["not-entered"]})
    async with engine:
        assert await health(host, engine) == (200, {"ok": True, "state": "running", "faults": []})
        await engine.drain("a deploy")
        assert await health(host, engine) == (503, stopped | {"faults": []})
    assert await health(host, engine) == (503, stopped | {"faults": ["left"]})


async def test_a_client_and_a_standby_say_who_works(host: Any) -> None:
    """A client is well while there is an engine; a standby is in any case, ready to take over."""
    async with host.client() as client:
        assert await health(host, client) == (503, {"ok": False, "state": "stopped", "faults": []})
        async with host.engine(), host.engine(standby=True) as standby:
            assert (await health(host, client))[0] == 200
            found = {"ok": True, "state": "standby", "faults": []}
            assert await health(host, standby) == (200, found)


async def test_a_store_that_is_gone_is_no_health(host: Any) -> None:
    """Of the engine and of the client beside it."""
    async with host.engine() as engine, host.client() as client:
        (host.data / "drumbeat.db").rename(host.data / "elsewhere.db")
        for each in (engine, client):
            status, found = await health(host, each)
            assert (status, found["faults"]) == (503, ["store-gone"])
        (host.data / "elsewhere.db").rename(host.data / "drumbeat.db")


async def test_health_is_for_looking_at(host: Any) -> None:
    """HEAD is served too, nothing else."""
    async with host.engine() as engine:
        assert (await host.call(engine, "HEAD", "/health")).status == 200
        got = await host.call(engine, "POST", "/health", headers=BEARER)
    assert (got.status, got.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b"{}", {}),
        (b"{", "is no JSON: "),
        (b"[" * 100_000, "has more than 100 lists and objects: "),
        ('{"a": 1}'.encode("utf-16"), "is no JSON: "),
        (b"\xef\xbb\xbf{}", {}),
        (b"\xff", "is no JSON: "),
        (b"[1]", "is no JSON object: "),
        (b'{"a": 1, "secret": 2}', "has keys other than `a` and `b`: "),
    ],
)
def test_a_body_is_an_object_of_known_keys_or_the_sender_is_shown_one(
    body: bytes, said: object
) -> None:
    """What it was instead is not said again."""
    read = json_object(body, keys=("a", "b"), example={"a": "x"})
    told = f'the body {said}send an object such as {{"a": "x"}}'
    assert read == (said if isinstance(said, dict) else told)


@pytest.mark.parametrize("form", [False, True], ids=["json", "form"])
@pytest.mark.parametrize("length", [10, 100_000])
async def test_a_long_question_is_read_in_a_thread(
    host: Any, monkeypatch: pytest.MonkeyPatch, length: int, form: bool
) -> None:
    """So that nobody else on the loop waits for it."""
    name = "_read_form" if form else "_read_json"
    read, threads = getattr(ask, name), list[int]()

    def noted(body: bytes) -> Any:
        threads.append(get_ident())
        return read(body)

    monkeypatch.setattr(ask, name, noted)
    question = "a" * length
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    body = f"question={question}" if form else json.dumps({"question": question})
    headers = BEARER | {"Content-Type": kind}
    async with host.engine() as engine:
        got = await host.call(engine, "POST", "/ask", body=body.encode(), headers=headers)
    assert got.status == 200
    assert [thread == get_ident() for thread in threads] == [length == 10]
