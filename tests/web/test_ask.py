"""`/ask`: who may ask, in which form, and what comes back when the agent does not answer."""

import html
import json
import re
from base64 import b64encode
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest

from drumbeat import AgentError, AgentUnavailable, Settings, Turn
from drumbeat.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

SECRET = "a-secret-of-the-doors"
BEARER = {"Authorization": f"Bearer {SECRET}"}
BASIC = {"Authorization": "Basic " + b64encode(f"anybody:{SECRET}".encode()).decode()}
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
EVIL = "</pre><script>alert(1)</script>\"'&\u2028<b>"


def as_json(question: Any, **more: Any) -> bytes:
    return json.dumps({"question": question, **more}).encode()


def shown(got: Any, name: str) -> str | None:
    """The text of the element with that id, as a reader sees it."""
    found = re.search(f'<(\\w+) id="{name}"[^>]*>(.*?)</\\1>', got.body.decode(), re.DOTALL)
    return None if found is None else html.unescape(found[2])


# ---- an answer


@pytest.mark.parametrize("proof", [BEARER, BASIC], ids=["bearer", "basic"])
async def test_a_question_as_json_is_answered_as_json(host: Any, proof: Any) -> None:
    agent = ScriptedAgent({"ask": "All is well."})
    async with host.engine(agent=agent) as engine:
        body = as_json("What ran?")
        got = await host.call(engine, "POST", "/ask", body=body, headers=proof | JSON)
        assert (await engine.runs(), await engine.fires()) == ([], [])
    assert (got.status, got.json) == (200, {"text": "All is well."})
    assert got.headers["cache-control"] == "no-store"
    assert agent.turns[0].prompt == "What ran?"


@pytest.mark.parametrize("profile", ["deep", ""])
async def test_a_question_from_the_page_is_answered_on_the_page(host: Any, profile: str) -> None:
    """With what was asked, so that it can be asked further."""
    host.file("agent-config.yaml", "profiles:\n  deep:\n    debug: {level: high}\n")
    agent = ScriptedAgent({"ask": "All is\n  well."})
    fields = {"question": "What ran?\r\nAnd when?", "profile": profile}
    body = urlencode(fields).encode()
    async with host.engine(agent=agent) as engine:
        got = await host.call(engine, "POST", "/ask", body=body, headers=BASIC | FORM)
    assert got.status == 200
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    assert shown(got, "answer") == "All is\n  well."
    assert shown(got, "question") == "\nWhat ran?\nAnd when?"
    assert f'value="{profile}"' in got.body.decode()
    assert agent.turns[0].prompt == "What ran?\nAnd when?"
    assert agent.turns[0].config == ({"debug": {"level": "high"}} if profile else {})


async def test_whatever_is_said_stays_text(host: Any) -> None:
    """The agent's words and the person's, on the page as in JSON."""
    agent = ScriptedAgent(default=EVIL + "\ud800")
    body = urlencode({"question": EVIL, "profile": ""}).encode()
    async with host.engine(agent=agent) as engine:
        got = await host.call(engine, "POST", "/ask", body=body, headers=BASIC | FORM)
        plain = await host.call(engine, "POST", "/ask", body=as_json(EVIL), headers=BEARER | JSON)
        wrong = urlencode({"question": "?", "profile": '"><script>'}).encode()
        refused = await host.call(engine, "POST", "/ask", body=wrong, headers=BASIC | FORM)
    assert got.body.count(b"<script") == 0
    assert shown(got, "answer") == EVIL + "\\ud800"
    assert shown(got, "question") == "\n" + EVIL
    assert plain.json == {"text": EVIL + "\\ud800"}
    assert refused.status == 400
    assert b"<script" not in refused.body


# ---- the page


async def test_the_page_needs_nothing_from_elsewhere(host: Any) -> None:
    """No script may run, nothing is loaded, nobody may frame it, and its form comes back here."""
    async with host.engine() as engine:
        got = await host.call(engine, "GET", "/ask", headers=BASIC)
        head = await host.call(engine, "HEAD", "/ask", headers=BASIC)
    text = got.body.decode()
    assert (got.status, head.status) == (200, 200)
    policy = got.headers["content-security-policy"]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]{44}'; form-action 'self'; "
        r"base-uri 'none'; frame-ancestors 'none'",
        policy,
    )
    assert got.headers["x-frame-options"] == "DENY"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "same-origin"
    assert got.headers["cache-control"] == "no-store"
    assert re.findall(r"\s(?:src|href|action|style|on\w+)=", text) == []
    assert '<form method="post">' in text
    assert shown(got, "answer") is None
    assert shown(got, "trouble") is None


# ---- who may ask


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic " + b64encode(b"anybody:wrong").decode()},
        {"Authorization": "Bearer wrong"},
    ],
    ids=["none", "wrong password", "wrong token"],
)
async def test_only_who_knows_the_secret_may(host: Any, method: str, headers: Any) -> None:
    """A browser is told to ask for the password."""
    agent = ScriptedAgent()
    async with host.engine(agent=agent) as engine:
        body = as_json("What ran?")
        got = await host.call(engine, method, "/ask", body=body, headers=headers | JSON)
    assert (got.status, got.json["code"]) == (401, "caller-unknown")
    assert got.headers["www-authenticate"].startswith("Basic ")
    assert agent.turns == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example", "Host": "acme.example"},
        {"Origin": "null", "Host": "acme.example"},
    ],
)
@pytest.mark.parametrize("kind", [FORM, JSON], ids=["form", "json"])
async def test_no_other_site_may_ask_with_a_browsers_password(
    host: Any, headers: dict[str, str], kind: dict[str, str]
) -> None:
    """A browser sends the password with any form that is sent here."""
    agent = ScriptedAgent()
    async with host.engine(agent=agent) as engine:
        got = await host.call(
            engine, "POST", "/ask", body=b"question=a", headers=BASIC | kind | headers
        )
    assert (got.status, got.json["code"]) == (403, "caller-foreign")
    assert agent.turns == []


async def test_the_page_itself_may(host: Any) -> None:
    agent = ScriptedAgent(default="yes")
    body = urlencode({"question": "May I?"}).encode()
    own = {"Sec-Fetch-Site": "same-origin"}
    old = {"Origin": "https://acme.example", "Host": "acme.example"}
    async with host.engine(agent=agent) as engine:
        for said in (own, old):
            headers = BASIC | FORM | said
            got = await host.call(engine, "POST", "/ask", body=body, headers=headers)
            assert (got.status, shown(got, "answer")) == (200, "yes")


# ---- what cannot be asked


@pytest.mark.parametrize(
    "kind, body",
    [
        (JSON, b""),
        (JSON, b"{"),
        (JSON, b"[" * 100_000),
        (JSON, b"[]"),
        (JSON, b'{"question": 1}'),
        (JSON, b'{"question": " "}'),
        (JSON, b'{"profile": "a"}'),
        (JSON, b'{"question": "a", "profile": 1}'),
        (JSON, b'{"question": "a", "more": 1}'),
        (JSON, b'{"question": "\\ud800"}'),
        (JSON, b'{"question": "a\\u0000"}'),
        (JSON, b'{"question": "a", "profile": "\\u0000"}'),
        (FORM, b""),
        (FORM, b"profile=a"),
        (FORM, b"question=+"),
        (FORM, b"question=a&question=b"),
        (FORM, b"question=a&profile=b&profile=c"),
        (FORM, b"question=%ff"),
        (FORM, b"question=\xff"),
        (FORM, b"question=%00a"),
        (FORM, b"&".join([b"question=a"] * 20)),
    ],
)
async def test_what_is_no_question_is_a_400(host: Any, kind: Any, body: bytes) -> None:
    agent = ScriptedAgent()
    async with host.engine(agent=agent) as engine:
        got = await host.call(engine, "POST", "/ask", body=body, headers=BASIC | kind)
    assert (got.status, got.json["code"]) == (400, "body-invalid")
    assert agent.turns == []


async def test_other_bodies_are_refused(host: Any) -> None:
    """By their kind, and by their size without being read."""
    async with host.engine() as engine:
        plain = await host.call(engine, "POST", "/ask", body=b"Hello?", headers=BASIC)
        large = await host.call(engine, "POST", "/ask", body=b"a" * 262_145, headers=BASIC | JSON)
        other = await host.call(engine, "PUT", "/ask", headers=BASIC)
    assert (plain.status, plain.json["code"]) == (415, "body-invalid")
    assert (large.status, large.json["code"]) == (413, "body-too-large")
    assert (other.status, other.headers["allow"]) == (405, "GET, HEAD, POST")


# ---- no answer


@pytest.mark.parametrize(
    "raised, status, code",
    [
        (AgentError("at /srv/secret-place", code="quota-used-up"), 502, "quota-used-up"),
        (AgentUnavailable("at /srv/secret-place"), 502, "agent-unavailable"),
        (ValueError("at /srv/secret-place"), 502, "agent-raised"),
        (AgentError("at /srv/secret-place", code="agent-command-timeout"), 504, None),
    ],
)
async def test_an_agent_that_fails_is_a_502(
    host: Any, raised: Exception, status: int, code: str | None
) -> None:
    """Or a 504 when it took too long; what it says of itself is for the log."""
    agent = ScriptedAgent(default=raised)
    settings = Settings(turn_attempts=1)
    async with host.engine(agent=agent, settings=settings) as engine:
        body = as_json("What ran?")
        got = await host.call(engine, "POST", "/ask", body=body, headers=BEARER | JSON)
        form = await host.call(
            engine, "POST", "/ask", body=b"question=What+ran%3F", headers=BASIC | FORM
        )
    code = code or "agent-command-timeout"
    assert (got.status, got.json["code"]) == (status, code)
    assert form.status == status
    assert f"({code})" in (shown(form, "trouble") or "")
    assert shown(form, "question") == "\nWhat ran?"
    assert b"secret-place" not in got.body + form.body


async def test_an_unknown_profile_is_a_400(host: Any) -> None:
    async with host.engine() as engine:
        body = as_json("What ran?", profile="no-such")
        got = await host.call(engine, "POST", "/ask", body=body, headers=BEARER | JSON)
    assert (got.status, got.json["code"]) == (400, "profile-unknown")


async def test_where_nobody_answers_it_is_a_503(host: Any) -> None:
    """A client, a standby, and an engine that has stopped or was not entered."""
    host.job("look")
    outside = host.engine()
    async with host.engine() as engine, host.client() as client:
        async with host.engine(standby=True) as standby:
            got = {
                name: (
                    await host.call(each, "GET", "/ask", headers=BASIC),
                    await host.call(
                        each, "POST", "/ask", body=as_json("Hello?"), headers=BASIC | JSON
                    ),
                )
                for name, each in (("client", client), ("standby", standby), ("not", outside))
            }
        await engine.drain("enough")
        got["stopped"] = (
            await host.call(engine, "GET", "/ask", headers=BASIC),
            await host.call(engine, "POST", "/ask", body=b"question=a", headers=BASIC | FORM),
        )
    assert {each.status for pair in got.values() for each in pair} == {503}
    # Whoever has no agent never answers, and says who does.
    for name, pair in got.items():
        later = None if name == "client" else "30"
        assert [each.headers.get("retry-after") for each in pair] == [later, later]
    assert got["client"][1].json["reason"] == (
        "this process has no agent; ask the one whose engine holds the data folder"
    )
    assert "This process has no agent" in (shown(got["client"][0], "trouble") or "")
    codes = {name: shown(pair[0], "trouble") for name, pair in got.items()}
    assert "(ask-elsewhere)" in (codes["client"] or "")
    assert "(engine-standby)" in (codes["standby"] or "")
    assert "(not-entered)" in (codes["not"] or "")
    assert "(engine-stopped)" in (codes["stopped"] or "")
    assert got["client"][1].json["code"] == "ask-elsewhere"
    assert got["standby"][1].json["code"] == "engine-standby"
    assert "(engine-stopped)" in (shown(got["stopped"][1], "trouble") or "")


# ---- a client that hangs up


async def test_who_hangs_up_ends_the_turn(host: Any) -> None:
    """Nobody is left to hear the answer."""
    gone, ended = anyio.Event(), anyio.Event()

    async def say(turn: Turn) -> str:
        gone.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    async with host.engine(agent=ScriptedAgent(default=say)) as engine:
        with anyio.fail_after(10):
            got = await host.call(
                engine, "POST", "/ask", body=as_json("Hello?"), headers=BEARER | JSON, gone=gone
            )
    assert ended.is_set()
    assert got.status == 0


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other loop
async def test_it_is_served_over_http(host: Any) -> None:
    """An answer, and a client that hangs up while the agent thinks."""
    begun, ended = anyio.Event(), anyio.Event()

    async def say(turn: Turn) -> str:
        if turn.prompt == "Long?":
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()
        return "yes"

    engine = host.engine(agent=ScriptedAgent(default=say))
    async with host.serving(engine) as served, engine:
        got = await served.post("/ask", as_json("Short?"), BEARER | JSON)
        assert (got.status, got.json) == (200, {"text": "yes"})
        body = as_json("Long?")
        head = (
            f"POST /ask HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {SECRET}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with anyio.fail_after(10):
            stream = await anyio.connect_tcp("127.0.0.1", served.port)
            async with stream:
                await stream.send(head.encode() + body)
                await begun.wait()
            await ended.wait()
