"""The doors over real HTTP: many at once, senders that are known, and clients that misbehave.

The server needs asyncio; the doors themselves are tested on both backends beside this.
"""

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from drumbeat.testing import ManualClock

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SECRET = "a-secret-of-the-doors"
BEARER = {"Authorization": f"Bearer {SECRET}"}
DOOR = "/webhooks/door"
HEAD = f"POST {DOOR} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n".encode()

# "Validating webhook deliveries", docs.github.com
GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB = {
    "X-Hub-Signature-256": "sha256="
    "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
}
# "Verifying requests from Slack", docs.slack.dev
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SLACK = {
    "X-Slack-Request-Timestamp": "1531420618",
    "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
}
# "Verifying webhooks manually", docs.svix.com
SVIX_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SVIX = {
    "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "svix-timestamp": "1614265330",
    "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("auth", "secret", "at", "headers", "body"),
    [
        ("github", {"AGENT_API_SECRET": GITHUB_SECRET}, 0, GITHUB, b"Hello, World!"),
        ("slack", {"SLACK_SIGNING_SECRET": SLACK_SECRET}, 1531420618, SLACK, SLACK_BODY),
        ("svix", {"SVIX_SECRET": SVIX_SECRET}, 1614265330, SVIX, b'{"test": 2432232314}'),
    ],
    ids=["github", "slack", "svix"],
)
async def test_what_known_senders_publish_is_taken(  # noqa: PLR0917  the columns of a table
    host: Any, auth: str, secret: Any, at: int, headers: Any, body: bytes
) -> None:
    """Their examples, byte for byte; one changed byte shuts the door."""
    host.job("look", "webhook: door", f"auth: {auth}")
    clock = ManualClock(datetime.fromtimestamp(at, UTC))
    async with host.engine(clock=clock, secrets=secret) as engine:
        async with host.serving(engine) as server:
            got = await server.post(DOOR, body, headers)
            changed = await server.post(DOOR, body + b" ", headers)
        (fire,) = await engine.fires()
    assert (got.status, changed.status) == (202, 401)
    assert fire.payload == body
    assert changed.json["code"] == "webhook-signature"


async def test_slack_is_greeted(host: Any) -> None:
    """The challenge comes back as plain text, once the signature is right."""
    import hmac

    host.job("look", "webhook: door", "auth: slack")
    body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1aB"}).encode()
    signed = hmac.new(b"slack-secret", b"v0:1531420618:" + body, "sha256").hexdigest()
    headers = {
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": f"v0={signed}",
    }
    clock = ManualClock(datetime.fromtimestamp(1531420618, UTC))
    secrets = {"SLACK_SIGNING_SECRET": "slack-secret"}
    async with host.engine(clock=clock, secrets=secrets) as engine:
        async with host.serving(engine) as server:
            got = await server.post(DOOR, body, headers)
        assert await engine.fires() == []
    assert (got.status, got.body) == (200, b"3eZbrw1aB")
    assert got.headers["content-type"].startswith("text/plain")


async def test_a_deploy_starts_its_check(host: Any) -> None:
    """A whole job file: the right deploy runs, the others do not."""
    host.job(
        "after-deploy",
        "webhook: deploy-check",
        "auth: bearer",
        'filter: "deployment.state==success && deployment.env==production"',
        "timeoutSeconds: 1800",
        prompt="Look at the error rate since the deploy that WEBHOOK_PAYLOAD.json names.",
    )
    path = "/webhooks/deploy-check"
    async with host.engine() as engine:
        async with host.serving(engine) as server:
            statuses = []
            for state, env in (
                ("success", "production"),
                ("failure", "production"),
                ("success", "x"),
            ):
                body = json.dumps({"deployment": {"state": state, "env": env}}).encode()
                statuses.append((await server.post(path, body)).status)
            await engine.settled()
        (run,) = await engine.runs()
    assert statuses == [202, 200, 200]
    assert (run.state, run.fire.cause) == ("succeeded", "webhook")


async def test_hundreds_at_once_lose_nothing_that_was_acknowledged(host: Any) -> None:
    """Each 202 is a fire with the body that was sent, and there is no other."""
    host.job("look", "webhook: door")
    taken: dict[str, bytes] = {}
    async with host.client() as client:
        async with host.serving(client) as server, anyio.create_task_group() as group:

            async def send(number: int) -> None:
                body = b"%d" % number
                got = await server.post(DOOR, body)
                assert got.status == 202, got
                taken[got.json["fire"]] = body

            for number in range(300):
                group.start_soon(send, number)
        fires = await client.fires(limit=1000)
    assert {fire.id: fire.payload for fire in fires} == taken
    assert len(taken) == 300


# ---- clients that misbehave


@pytest.fixture
def faults(caplog: pytest.LogCaptureFixture) -> Any:
    """What the server or its tasks complained of, loudly."""
    caplog.set_level(logging.INFO)
    return lambda: [record for record in caplog.records if record.levelno >= logging.ERROR]


async def sent_raw(host: Any, *parts: bytes, hang_up: bool = False) -> tuple[bytes, int]:
    """What came back, and how many fires there were once the server had ended."""
    host.job("look", "webhook: door")
    async with host.client() as client:
        async with host.serving(client, max_body=1000) as server:
            got = await server.raw(*parts, hang_up=hang_up)
            assert (await server.get("/health")).status == 503  # it still answers
        return got, len(await client.fires())


CLOSE = b"Connection: close\r\n"


@pytest.mark.parametrize(
    ("parts", "status", "fires"),
    [
        ((HEAD, CLOSE, b"Content-Length: 3\r\n\r\n", b"abc"), 202, 1),
        ((HEAD, CLOSE, b"Content-Length: 3\r\n\r\n", b"abc" * 900), 202, 1),
        ((HEAD, CLOSE, b"Content-Length: 1001\r\n\r\n"), 413, 0),
        ((HEAD, CLOSE, b"Content-Length: 99999999999999999999\r\n\r\n"), 413, 0),
        ((HEAD, b"Content-Length: 3x\r\n\r\n", b"abc"), 400, 0),
        ((HEAD, b"Content-Length: -3\r\n\r\n", b"abc"), 400, 0),
        ((HEAD, b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n", b"abcd"), 400, 0),
        (
            (HEAD, CLOSE, b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
            202,
            1,
        ),
        (
            (HEAD, b"Transfer-Encoding: chunked\r\n\r\n", *[b"64\r\n" + b"x" * 100 + b"\r\n"] * 20),
            413,
            0,
        ),
        ((HEAD, b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\nabc"), 400, 0),
    ],
    ids=[
        "true",
        "more than said",
        "too many said",
        "far too many said",
        "no number",
        "negative",
        "two lengths",
        "chunked",
        "chunked without end",
        "chunked wrongly",
    ],
)
async def test_whatever_the_length_says_the_bytes_count(
    host: Any, faults: Any, parts: tuple[bytes, ...], status: int, fires: int
) -> None:
    """What HTTP frames is taken or refused whole, and nothing else becomes of it."""
    got, found = await sent_raw(host, *parts)
    if got:  # a server that closes on unread bytes may cost the client its answer
        assert got.startswith(b"HTTP/1.1 %d " % status)
    assert found == fires
    assert faults() == []


HALF = b"Host: x\r\nContent-Length: 10\r\n\r\nabc"
PROOF = f"Authorization: Bearer {SECRET}\r\n".encode()
GUESS = b"Authorization: Bearer dbrt_guess\r\n"


@pytest.mark.parametrize(
    ("start", "headers", "status"),
    [
        (b"POST /webhooks/nowhere", b"", 404),
        (b"PUT /webhooks/door", PROOF, 405),
        (b"POST /webhooks/door", b"", 401),
        (b"POST /webhooks/door", GUESS, 401),
        (b"POST /webhooks/signed", b"", 401),
        (b"POST /followups", GUESS, 401),
        (b"POST /automations/look/run", GUESS, 401),
        (b"POST /ask", GUESS, 401),
        (b"PUT /ask", GUESS, 405),
    ],
)
async def test_who_is_refused_anyway_is_not_waited_for(
    host: Any, start: bytes, headers: bytes, status: int
) -> None:
    """A body that never ends keeps nobody, the end of the host included."""
    host.job("look", "webhook: door")
    host.job("other", "webhook: signed", "auth: github")
    with anyio.fail_after(20):
        async with host.engine() as engine, host.serving(engine) as server:
            got = await server.raw(start, b" HTTP/1.1\r\n", headers, HALF)
    assert got.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in got.lower()


@pytest.mark.parametrize("path", [b"/webhooks/door", b"/automations/look/run", b"/ask"])
async def test_a_body_has_its_time(host: Any, path: bytes) -> None:
    """408 for whoever may ask and does not end, and the connection is let go of."""
    host.job("look", "webhook: door")
    brief = timedelta(milliseconds=50)
    with anyio.fail_after(20):
        async with host.engine() as engine:
            async with host.serving(engine, body_timeout=brief) as server:
                got = await server.raw(b"POST ", path, b" HTTP/1.1\r\n", PROOF, HALF)
            assert await engine.fires() == []
    assert got.startswith(b"HTTP/1.1 408 ")
    assert b"too-slow" in got


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD,),
        (HEAD, b"Content-Length: 500\r\n\r\n", b"abc"),
        (HEAD, b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n"),
    ],
    ids=["in the head", "in the body", "in the chunks"],
)
async def test_who_hangs_up_in_the_middle_starts_nothing(
    host: Any, faults: Any, parts: tuple[bytes, ...]
) -> None:
    """No fire, and no complaint in the log; the server ends, so nothing was left running."""
    _, fires = await sent_raw(host, *parts, hang_up=True)
    assert fires == 0
    assert faults() == []


async def test_a_head_or_a_question_for_options_is_answered_without_a_run(host: Any) -> None:
    """405 with what the route takes, over HTTP without a body for HEAD."""
    host.job("look", "webhook: door", "method: get")
    async with host.client() as client:
        async with host.serving(client) as server:
            head = await server.request("HEAD", DOOR, None, BEARER)
            options = await server.request("OPTIONS", DOOR, None, BEARER)
            got = await server.get(DOOR, BEARER)
        assert len(await client.fires()) == 1
    assert (head.status, head.headers["allow"], head.body) == (405, "GET", b"")
    assert (options.status, options.headers["allow"]) == (405, "GET")
    assert got.status == 202
