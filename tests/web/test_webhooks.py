"""One webhook request, from the door to the fire, on asyncio and trio."""

import json
import threading
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from drumbeat import DrumbeatError, Fire, Problem, Settings, StoreError
from drumbeat.runtime import webhook_door
from drumbeat.runtime.clock import SystemClock
from drumbeat.runtime.store import SqliteStore
from drumbeat.runtime.workspace import WorkspaceCache
from drumbeat.testing import ManualClock, ScriptedAgent

pytestmark = pytest.mark.anyio

SECRET = "a-secret-of-the-doors"
BEARER = {"Authorization": f"Bearer {SECRET}"}
DOOR = "/webhooks/door"
START = datetime(2026, 3, 2, 12, tzinfo=UTC)
FULL = Problem(code="store-full", message="no room in /some/where", remedy="make some")


class Failing(SqliteStore):
    """A real store that takes nothing while it is told so."""

    failing = False

    async def add_fires(self, *given: Any, **named: Any) -> Any:
        self._check()
        return await super().add_fires(*given, **named)

    async def record(self, **given: Any) -> None:
        self._check()
        await super().record(**given)

    def _check(self) -> None:
        if self.failing:
            raise StoreError(FULL)


def payloads(fires: list[Fire]) -> list[bytes | None]:
    return [fire.payload for fire in reversed(fires)]


# ---- what is accepted


async def test_an_event_runs_and_the_run_finds_it(host: Any) -> None:
    """202 with the fire's id; the body lies in the run's folder as it came, and is called data."""
    host.job("look", "webhook: door")
    body = b'{"a": "\xff'
    async with host.engine() as engine:
        got = await host.call(engine, "POST", DOOR, body=body, headers=BEARER)
        await engine.settled()
        (fire,) = await engine.fires()
        (run,) = await engine.runs()
    assert (got.status, got.json) == (202, {"fire": fire.id})
    assert (fire.cause, fire.slug, fire.verdict, fire.payload) == ("webhook", "look", "ran", body)
    (turn,) = host.agent.turns
    assert (turn.cwd / "WEBHOOK_PAYLOAD.json").read_bytes() == body
    assert not (turn.cwd / "INBOX_TRIGGER.json").exists()
    assert str(turn.cwd / "WEBHOOK_PAYLOAD.json") in turn.context
    assert "instructions" in turn.context
    assert run.fire.id == fire.id


async def test_a_route_without_a_body_lays_no_file(host: Any) -> None:
    """`method: get` has nothing to say."""
    host.job("look", "webhook: door", "method: get")
    async with host.engine() as engine:
        got = await host.call(engine, "GET", DOOR, headers=BEARER)
        await engine.settled()
    (turn,) = host.agent.turns
    assert got.status == 202
    assert list(turn.cwd.glob("*.json")) == []


@pytest.mark.parametrize("name", ["Door", "DOOR", "door"])
async def test_the_case_of_a_route_does_not_count(host: Any, name: str) -> None:
    """Nor does that in the file."""
    host.job("look", "webhook: dOOr")
    async with host.engine() as engine:
        assert (await host.call(engine, "POST", f"/webhooks/{name}", headers=BEARER)).status == 202


async def test_events_are_never_folded_and_run_in_order(host: Any) -> None:
    """One at a time, each with its own body."""
    host.job("look", "webhook: door")
    async with host.engine() as engine:
        for number in range(6):
            await host.call(engine, "POST", DOOR, body=b"%d" % number, headers=BEARER)
        await engine.settled()
        fires = await engine.fires()
        runs = await engine.runs()
    assert [fire.verdict for fire in fires] == ["ran"] * 6
    assert payloads(fires) == [b"%d" % number for number in range(6)]
    found = [(turn.cwd / "WEBHOOK_PAYLOAD.json").read_bytes() for turn in host.agent.turns]
    assert found == [b"%d" % number for number in range(6)]
    assert [run.fire.id for run in runs] == [fire.id for fire in fires]


async def test_a_client_of_another_process_takes_what_the_engine_runs(host: Any) -> None:
    """The event is a row; the engine finds it with its next look at the store."""
    host.job("look", "webhook: door")
    done = anyio.Event()
    host.agent = ScriptedAgent(default=lambda turn: done.set() or "done")
    poll = Settings(request_poll=timedelta(milliseconds=20))
    async with host.engine(settings=poll), host.client() as client:
        got = await host.call(client, "POST", DOOR, headers=BEARER)
        with anyio.fail_after(20):
            await done.wait()
    assert got.status == 202


async def test_a_standby_takes_events_too(host: Any) -> None:
    """What it puts in is run by whoever holds the folder."""
    host.job("look", "webhook: door")
    poll = Settings(request_poll=timedelta(milliseconds=20))
    async with host.engine(settings=poll) as engine, host.engine(standby=True) as standby:
        got = await host.call(standby, "POST", DOOR, body=b"7", headers=BEARER)
        with anyio.fail_after(20):
            while not await engine.runs():
                await anyio.sleep(0.01)
        await engine.settled()
        (run,) = await engine.runs()
    assert (got.status, run.fire.payload) == (202, b"7")


async def test_the_engine_answers_without_the_web(host: Any) -> None:
    """A host with routes of its own gives back status, headers and body as they are."""
    host.job("look", "webhook: door")
    async with host.engine() as engine:
        answer = await engine.webhook("door", method="post", headers=BEARER, body=b"x")
        (fire,) = await engine.fires()
    assert (answer.status, json.loads(answer.body)) == (202, {"fire": fire.id})
    assert answer.fire is not None
    assert (answer.fire.id, answer.fire.payload) == (fire.id, b"x")
    with pytest.raises(DrumbeatError):
        await engine.webhook("door", method="post", headers=BEARER, body=b"x")


# ---- what is in order and starts nothing


async def test_a_filter_leaves_events_out(host: Any) -> None:
    """200 and no fire; what it lets through runs."""
    host.job("look", "webhook: door", 'filter: "action==opened"')
    async with host.client() as client:
        got = await host.call(client, "POST", DOOR, body=b'{"action": "closed"}', headers=BEARER)
        assert await client.fires() == []
        assert (got.status, got.json["fire"]) == (200, None)
        got = await host.call(client, "POST", DOOR, body=b'{"action": "opened"}', headers=BEARER)
        assert (got.status, len(await client.fires())) == (202, 1)


@pytest.mark.parametrize("kind", ["client", "engine"])
async def test_a_disabled_job_is_told_and_skips(host: Any, kind: str) -> None:
    """The fire is settled at once, the door is checked first all the same."""
    host.job("look", "webhook: door", "disabled: true")
    async with getattr(host, kind)() as client:
        assert (await host.call(client, "POST", DOOR)).status == 401
        got = await host.call(client, "POST", DOOR, headers=BEARER)
        (fire,) = await client.fires()
        settled = await host.events(client, "fire_settled")
    assert (got.status, got.json) == (200, {"fire": fire.id, "reason": "disabled"})
    assert (fire.verdict, fire.reason) == ("skipped", "disabled")
    assert [event.data["verdict"] for event in settled] == ["skipped"]
    assert host.agent.turns == []


@pytest.mark.parametrize("kind", ["client", "engine"])
async def test_a_paused_job_skips_and_keeps_the_reason_to_itself(host: Any, kind: str) -> None:
    """As the dispatcher would; the sender is told no more than that."""
    host.job("look", "webhook: door")
    async with getattr(host, kind)() as client:
        await client.pause("look", "the vendor is down")
        got = await host.call(client, "POST", DOOR, headers=BEARER)
        (fire,) = await client.fires()
        await client.resume("look")
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202
    assert (got.status, got.json) == (200, {"fire": fire.id, "reason": "paused"})
    assert (fire.verdict, fire.reason) == ("skipped", "paused (the vendor is down)")


@pytest.mark.parametrize(
    "header", ["X-GitHub-Delivery", "svix-id", "webhook-id", "Idempotency-Key"]
)
async def test_a_delivery_that_comes_again_is_the_same_fire(host: Any, header: str) -> None:
    """Also after a restart, and for another door it is another one."""
    host.job("look", "webhook: door")
    host.job("other", "webhook: window")
    headers = BEARER | {header: "delivery 7"}
    async with host.engine() as engine:
        first = await host.call(engine, "POST", DOOR, body=b"1", headers=headers)
        again = await host.call(engine, "POST", DOOR, body=b"2", headers=headers)
        await engine.settled()
    async with host.engine() as engine:
        late = await host.call(engine, "POST", DOOR, body=b"3", headers=headers)
        other = await host.call(engine, "POST", "/webhooks/window", headers=headers)
        await engine.settled()
        fires = await engine.fires("look")
    assert [got.status for got in (first, again, late, other)] == [202, 200, 200, 202]
    assert first.json["fire"] == again.json["fire"] == late.json["fire"] == fires[0].id
    assert [(fire.slot, fire.payload) for fire in fires] == [("delivery 7", b"1")]


async def test_a_delivery_that_comes_many_times_at_once_is_one_fire(host: Any) -> None:
    """The store decides, so it holds over processes; one sender is told 202."""
    host.job("look", "webhook: door")
    headers = BEARER | {"Idempotency-Key": "7"}
    statuses = []

    async def send(client: Any) -> None:
        statuses.append((await host.call(client, "POST", DOOR, headers=headers)).status)

    async with host.engine() as engine, host.client() as client:
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(send, engine)
                group.start_soon(send, client)
        await engine.settled()
        assert len(await engine.fires()) == len(await engine.runs()) == 1
    assert sorted(statuses) == [200] * 19 + [202]


async def test_a_delivery_is_remembered_for_a_week_after_it_settled(host: Any) -> None:
    """However short runs are kept; later the same id is another event."""
    host.job("look", "webhook: door")
    day = timedelta(days=1)
    clock = ManualClock(START)
    headers = BEARER | {"Idempotency-Key": "7"}
    async with host.engine(clock=clock, settings=Settings(keep_runs=day)) as engine:
        statuses = []
        for days in (0, 6, 3):
            await clock.advance(days * day)
            got = await host.call(engine, "POST", DOOR, headers=headers)
            statuses.append(got.status)
    assert statuses == [202, 200, 202]


# ---- what is refused


@pytest.mark.parametrize(
    ("lines", "method", "headers", "body", "status", "code"),
    [
        ((), "POST", {}, b"", 401, "webhook-unsigned"),
        ((), "POST", {"Authorization": "Bearer wrong"}, b"", 401, "webhook-signature"),
        ((), "GET", BEARER, b"", 405, "webhook-method"),
        ((), "HEAD", BEARER, b"", 405, "webhook-method"),
        ((), "OPTIONS", BEARER, b"", 405, "webhook-method"),
        (("method: get",), "HEAD", BEARER, b"", 405, "webhook-method"),
        (('filter: "a==b"',), "POST", BEARER, b"{", 400, "webhook-not-json"),
        (("auth: svix",), "POST", {}, b"", 503, "webhook-secret-missing"),
        ((), "POST", BEARER, b"x" * 2001, 413, "webhook-too-large"),
    ],
)
async def test_what_is_not_in_order_starts_nothing(  # noqa: PLR0917  the columns of a table
    host: Any, lines: Any, method: str, headers: Any, body: bytes, status: int, code: str
) -> None:
    """Each with its status and code, one event about it, and nothing of what was sent in it."""
    host.job("look", "webhook: door", *lines)
    async with host.engine() as engine:
        got = await host.call(engine, method, DOOR, body=body, headers=headers, max_body=2000)
        assert await engine.fires() == []
        await engine.drain("to look at the events")
        (event,) = await host.events(engine, "webhook_refused")
    assert (got.status, got.json["code"]) == (status, code)
    assert (event.slug, event.data["route"]) == ("look", "door")
    assert (event.data["code"], event.data["count"]) == (code, 1)
    assert "wrong" not in str(event)


async def test_a_body_of_just_the_size_is_taken(host: Any) -> None:
    """`max_body` is what is allowed, and who sends more is told how much that is."""
    host.job("look", "webhook: door")
    async with host.client() as client:
        got = await host.call(client, "POST", DOOR, body=b"x" * 2000, headers=BEARER, max_body=2000)
        more = await host.call(
            client, "POST", DOOR, body=b"x" * 2001, headers=BEARER, max_body=2000
        )
    assert got.status == 202
    assert more.status == 413
    assert "2000 bytes" in more.json["reason"]


async def test_a_large_body_is_checked_beside_the_loop(host: Any, monkeypatch: Any) -> None:
    """Whoever else is served does not wait for it; a small one is checked at once."""
    threads: dict[int, int] = {}
    real = webhook_door.check_webhook

    def check(*given: Any, **named: Any) -> Any:
        threads[len(named["body"])] = threading.get_ident()
        return real(*given, **named)

    monkeypatch.setattr(webhook_door, "check_webhook", check)
    host.job("look", "webhook: door", 'filter: "a==b"')
    small, large = b'{"a": "b"}', b'{"a": "b", "c": "' + b"x" * 70_000 + b'"}'
    async with host.client() as client:
        for body in (small, large):
            answer = await client.webhook("door", method="POST", headers=BEARER, body=body)
            assert answer.status == 202
    assert threads[len(small)] == threading.get_ident() != threads[len(large)]


async def test_another_sites_page_starts_no_webhook(host: Any) -> None:
    """A browser that was given the password sends it along; it is counted as refused."""
    host.job("look", "webhook: door", "auth: basic")
    proof = b64encode(f"any:{SECRET}".encode()).decode()
    headers = {"Authorization": f"Basic {proof}", "Origin": "https://evil.example", "Host": "here"}
    async with host.client() as client:
        got = await host.call(client, "POST", DOOR, headers=headers)
        assert await client.fires() == []
    assert (got.status, got.json["code"]) == (403, "webhook-foreign")
    async with host.client() as client:
        (event,) = await host.events(client, "webhook_refused")
    assert event.data["code"] == "webhook-foreign"


@pytest.mark.parametrize("kind", ["client", "engine"])
async def test_an_unknown_route_is_not_found(host: Any, kind: str) -> None:
    """404, before anything is asked about who sends."""
    host.job("look")
    async with getattr(host, kind)() as client:
        got = await host.call(client, "POST", "/webhooks/nowhere", headers=BEARER)
    assert (got.status, got.json["code"]) == (404, "webhook-route-unknown")
    async with host.client() as client:
        (event,) = await host.events(client, "webhook_refused")
    assert (event.slug, event.data["route"]) == (None, "nowhere")


@pytest.mark.parametrize("kind", ["client", "engine"])
async def test_a_file_that_was_written_a_moment_ago_has_its_route(host: Any, kind: str) -> None:
    """Nobody who just made a job has to wait for the next look at the folder."""
    host.job("look")
    clock = ManualClock(START)
    options = {"clock": clock} if kind == "engine" else {}
    async with getattr(host, kind)(**options) as client:
        if kind == "engine":
            assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 404
            await clock.advance(timedelta(seconds=1))
        host.job("fresh", "webhook: door")
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202


async def test_unknown_routes_do_not_make_the_engine_read_all_the_time(host: Any) -> None:
    """Who sends decides how often: within a second the folder is looked at once."""
    host.job("look")
    async with host.engine(clock=ManualClock(START)) as engine:
        assert (await host.call(engine, "POST", DOOR, headers=BEARER)).status == 404
        host.job("fresh", "webhook: door")
        assert (await host.call(engine, "POST", DOOR, headers=BEARER)).status == 404


async def test_the_route_of_a_file_that_is_gone_is_not_found(host: Any) -> None:
    """After two looks without it; until then its senders are to come again, and nothing is kept."""
    path = host.job("look", "webhook: door")
    host.job("other", "webhook: window")
    clock = ManualClock(START)
    async with host.engine(clock=clock) as engine:
        path.unlink()
        early = await host.call(engine, "POST", DOOR, headers=BEARER)
        for _ in range(2):
            await clock.advance(timedelta(seconds=10))
        late = await host.call(engine, "POST", DOOR, headers=BEARER)
        assert await engine.fires() == []
    async with host.client() as client:
        refused, _ = await host.events(client, "webhook_refused")
    assert (early.status, early.json["code"]) == (503, "webhook-file-missing")
    assert (early.headers["retry-after"], late.status) == ("30", 404)
    assert (refused.slug, refused.data["code"]) == ("look", "webhook-file-missing")


async def test_what_was_accepted_waits_for_the_folder_of_its_file(host: Any) -> None:
    """A lost mount is no wish to remove files: nothing that was answered 202 is used up by it."""
    host.job("look", "webhook: door")
    host.file(
        "automations/stays.md",
        "---\nautomation:\n  name: Stays\n  trigger: {type: manual}\n  notify: always\n"
        "  steps:\n    - {id: look, prompt: Look.}\n---\n",
    )
    clock, folder = ManualClock(START), host.workspace / "jobs"
    async with host.engine(clock=clock) as engine:
        taken = await host.call(engine, "POST", DOOR, headers=BEARER)
        folder.rename(host.workspace / "away")
        for _ in range(4):
            refused = await host.call(engine, "POST", DOOR, headers=BEARER)
            assert (refused.status, refused.json["code"]) == (503, "webhook-file-missing")
            await clock.advance(timedelta(seconds=10))
        assert await engine.runs() == []
        assert [fault.code for fault in (await engine.status()).faults] == [
            "automations-folder-missing"
        ]
        (host.workspace / "away").rename(folder)
        await clock.advance(timedelta(seconds=20))
        (run,) = await engine.runs()
    assert (taken.status, run.fire.id, run.state) == (202, taken.json["fire"], "succeeded")


async def test_a_delivery_that_ended_as_removed_may_come_again(host: Any) -> None:
    """Its file is back, and its sender sends it again: that runs, once."""
    path = host.job("look", "webhook: door")
    text = path.read_text(encoding="utf-8")
    host.job("other", "webhook: window")
    clock = ManualClock(START)
    headers = BEARER | {"Idempotency-Key": "one"}

    async def sent(body: bytes = b"") -> Any:
        async with host.client() as client:
            client._clock = clock
            return await host.call(client, "POST", DOOR, headers=headers, body=body)

    for _ in ("at first", "again"):
        taken = await sent()
        assert taken.status == 202
        path.unlink()
        async with host.engine(clock=clock) as engine:
            for _ in range(3):
                await clock.advance(timedelta(seconds=10))
            fire, *_ = await engine.fires()
        assert (fire.id, fire.verdict, fire.reason) == (taken.json["fire"], "skipped", "removed")
        path.write_text(text, encoding="utf-8")
    other = await sent(b"another event")
    assert (other.status, other.json["state"]) == (200, "removed")
    again, repeated = await sent(), await sent()
    async with host.engine(clock=clock) as engine:
        await clock.advance(timedelta(seconds=1))
        (run,) = await engine.runs()
    assert (again.status, repeated.status) == (202, 200)
    assert run.fire.id == again.json["fire"] == repeated.json["fire"]


@pytest.mark.parametrize("kind", ["client", "engine"])
@pytest.mark.parametrize("ever", ["never loaded", "loaded before"])
async def test_a_broken_file_asks_its_senders_to_come_again(
    host: Any, kind: str, ever: str
) -> None:
    """503 by the route that it had or that it says; mended, it takes events."""
    broken = "webhook: door\nfilter: 'a"
    clock = ManualClock(START)
    options = {"clock": clock} if kind == "engine" else {}
    host.job("look", "webhook: door" if ever == "loaded before" else broken)
    async with getattr(host, kind)(**options) as client:
        if ever == "loaded before":
            if kind == "engine":
                host.job("look", "cron: never")
                await clock.advance(timedelta(seconds=10))
            else:
                assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202
                host.job("look", "cron: never")
                client._book._looked = None
        got = await host.call(client, "POST", DOOR, headers=BEARER)
        assert (got.status, got.json["code"]) == (503, "webhook-route-broken")
        assert got.headers["retry-after"] == "30"
        host.job("look", "webhook: door", "# mended")
        if kind == "engine":
            await clock.advance(timedelta(seconds=10))
        else:
            client._book._looked = None
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202


@pytest.mark.parametrize("kind", ["engine", "client"])
async def test_a_slip_that_no_look_has_seen_uses_no_event_up(host: Any, kind: str) -> None:
    """The file is looked at as the event comes; nothing is kept that a run would abort with."""
    path = host.job("look", "webhook: door")
    good = path.read_text(encoding="utf-8")
    options = {"clock": ManualClock(START)} if kind == "engine" else {}
    async with getattr(host, kind)(**options) as client:
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202
        path.write_text(good.replace("webhook: door", "webhook: door\ncron: never"))
        got = await host.call(client, "POST", DOOR, headers=BEARER)
        assert (got.status, got.json["code"]) == (503, "webhook-route-broken")
        assert len(await client.fires()) == 1
        path.unlink()
        got = await host.call(client, "POST", DOOR, headers=BEARER)
        assert (got.status, got.json["code"]) == (503, "webhook-file-missing")
        path.write_text(good)
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202
        assert len(await client.fires()) == 2


async def test_a_broken_route_is_counted_once_in_whatever_case_it_is_asked_for(host: Any) -> None:
    """Or everybody could make as many events as its letters have cases."""
    host.job("look", "webhook: Door", "filter: 'a")
    async with host.engine() as engine:
        for name in ("door", "Door", "DOOR", "dOOr"):
            got = await host.call(engine, "POST", f"/webhooks/{name}", headers=BEARER)
            assert (got.status, got.json["code"]) == (503, "webhook-route-broken")
    async with host.client() as client:
        events = [each async for each in client.events(follow=False)]
    (told,) = [each for each in events if each.kind == "webhook_refused"]
    assert (told.slug, told.data["route"], told.data["count"]) == ("look", "Door", 4)


async def test_two_files_with_one_route_take_nothing(host: Any) -> None:
    """Whose the event is, nobody knows."""
    host.job("a", "webhook: door")
    host.job("b", "webhook: Door")
    async with host.engine() as engine:
        got = await host.call(engine, "POST", DOOR, headers=BEARER)
        assert await engine.fires() == []
    assert (got.status, got.json["code"]) == (503, "webhook-route-broken")


async def test_requests_that_come_at_once_share_one_look_at_the_files(
    host: Any, looks: list[object]
) -> None:
    """A burst costs a client one stat per file, and none is told of a route too early."""
    host.job("look", "webhook: door")
    statuses = []

    async def send() -> None:
        statuses.append((await host.call(client, "POST", DOOR, headers=BEARER)).status)

    async with host.client() as client, anyio.create_task_group() as group:
        client._book._clock = ManualClock(START)
        for _ in range(20):
            group.start_soon(send)
    assert (len(looks), statuses) == (1, [202] * 20)


async def test_a_workspace_that_is_not_there_asks_to_come_again(host: Any) -> None:
    """To a client that never saw it, and to one that did."""
    path = host.job("look", "webhook: door")
    folder = host.workspace / "jobs"
    async with host.client() as client:
        folder.rename(host.workspace / "away")
        got = await host.call(client, "POST", DOOR, headers=BEARER)
        assert (got.status, got.json["code"]) == (503, "automations-folder-missing")
        (host.workspace / "away").rename(folder)
        client._book._looked = None
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202
        folder.rename(host.workspace / "away")
        client._book._looked = None
        got = await host.call(client, "POST", DOOR, headers=BEARER)
        assert (got.status, got.json["code"]) == (503, "webhook-file-missing")
    assert not path.exists()


@pytest.mark.parametrize("wrong", ["folder", "mistake"])
async def test_an_engine_that_cannot_look_for_a_route_asks_to_come_again(
    host: Any, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """As a client does: the file may be there. A file that is there goes on; nobody sees a 500."""
    host.job("look", "webhook: door")
    folder = host.workspace / "jobs"
    clock = ManualClock(START)

    async def mistake(cache: WorkspaceCache, **given: Any) -> Any:
        raise KeyError("a mistake")

    async with host.engine(clock=clock) as engine:
        with monkeypatch.context() as patched:
            if wrong == "folder":
                folder.rename(host.workspace / "away")
            else:
                patched.setattr(WorkspaceCache, "reload", mistake)
            for _ in range(2):
                got = await host.call(engine, "POST", "/webhooks/fresh", headers=BEARER)
                assert got.status == 503
                assert got.json["code"] == (
                    "automations-folder-missing" if wrong == "folder" else "part-failed"
                )
            known = await host.call(engine, "POST", DOOR, headers=BEARER)
            assert known.status == (503 if wrong == "folder" else 202)
        if wrong == "folder":
            (host.workspace / "away").rename(folder)
        host.job("fresh", "webhook: fresh")
        await clock.advance(timedelta(seconds=10))
        got = await host.call(engine, "POST", "/webhooks/fresh", headers=BEARER)
        assert got.status == 202
        got = await host.call(engine, "POST", "/webhooks/other", headers=BEARER)
        assert got.status == 404
        await engine.settled()


async def test_a_folder_that_is_away_is_looked_for_once_a_second(
    host: Any, looks: list[object]
) -> None:
    """Senders decide how many requests come."""
    host.job("look", "webhook: door")
    (host.workspace / "jobs").rename(host.workspace / "away")
    clock = ManualClock(START)
    async with host.client() as client:
        client._book._clock = clock
        for _ in range(5):
            got = await host.call(client, "POST", DOOR, headers=BEARER)
            assert (got.status, got.json["code"]) == (503, "automations-folder-missing")
        assert len(looks) == 1
        await clock.advance(timedelta(seconds=1))
        (host.workspace / "away").rename(host.workspace / "jobs")
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202
        assert len(looks) == 2


async def test_a_client_takes_a_file_for_gone_after_two_looks_apart(host: Any) -> None:
    """As an engine does: an editor may be replacing it."""
    path = host.job("look", "webhook: door")
    host.job("other", "webhook: window")
    async with host.client() as client:
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202
        path.unlink()
        statuses = []
        for removing in (None, -100.0, -100.0):
            client._book._looked = None
            client._book._removed = client._book._removed if removing is None else removing
            statuses.append((await host.call(client, "POST", DOOR, headers=BEARER)).status)
    assert statuses == [503, 503, 404]


# ---- what is in the way


async def test_while_the_engine_drains_senders_come_again(host: Any) -> None:
    """503, and a sender that is nobody is still told 401."""
    host.job("look", "webhook: door")
    begun, go_on = anyio.Event(), anyio.Event()

    async def wait(turn: Any) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    host.agent = ScriptedAgent(default=wait)
    async with host.engine() as engine:
        assert (await host.call(engine, "POST", DOOR, headers=BEARER)).status == 202
        await begun.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(engine.drain, "a deploy")
            await anyio.wait_all_tasks_blocked()
            got = await host.call(engine, "POST", DOOR, headers=BEARER)
            stranger = await host.call(engine, "POST", DOOR)
            go_on.set()
        stopped = await host.call(engine, "POST", DOOR, headers=BEARER)
        assert len(await engine.fires()) == 1
    assert (got.status, got.json["code"]) == (503, "engine-draining")
    assert (stopped.status, stopped.json["code"]) == (503, "engine-stopped")
    assert stranger.status == 401


async def test_trouble_with_the_store_turns_events_away_until_it_is_over(host: Any) -> None:
    """503 and health failing; it recovers by itself, and nothing that was taken is lost."""
    host.job("look", "webhook: door")
    clock = ManualClock(START)
    store = Failing(host.data / "drumbeat.db", clock=clock)
    async with host.engine(clock=clock, store=store) as engine:
        store.failing = True
        with capture_logs() as logs:
            got = await host.call(engine, "POST", DOOR, headers=BEARER)
            again = await host.call(engine, "POST", DOOR, headers=BEARER)
        assert (got.status, got.json["code"]) == (503, "store-full")
        assert "/some/where" not in got.body.decode()
        assert (again.status, again.json["code"]) == (503, "store-full")
        assert [line["event"] for line in logs].count("webhook_not_kept") == 1
        health = await host.call(engine, "GET", "/health")
        assert (health.status, health.json["faults"]) == (503, ["store-full"])
        store.failing = False
        await clock.advance(timedelta(seconds=31))
        assert (await host.call(engine, "GET", "/health")).status == 200
        assert (await host.call(engine, "POST", DOOR, headers=BEARER)).status == 202
        await engine.settled()
        (fire,) = await engine.fires()
    assert fire.verdict == "ran"


async def test_a_client_says_the_same_of_its_store(host: Any) -> None:
    """Each request tries, as there is nobody else who would."""
    host.job("look", "webhook: door")
    async with host.client() as client:
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202
        (host.data / "drumbeat.db").rename(host.data / "elsewhere.db")
        got = await host.call(client, "POST", DOOR, headers=BEARER)
        assert (got.status, got.json["code"]) == (503, "store-gone")
        (host.data / "elsewhere.db").rename(host.data / "drumbeat.db")
        assert (await host.call(client, "POST", DOOR, headers=BEARER)).status == 202


# ---- what is counted


async def test_refusals_are_one_event_a_minute(host: Any) -> None:
    """Of an engine on its clock, one for each route and code."""
    host.job("look", "webhook: door")
    clock = ManualClock(START)
    async with host.engine(clock=clock) as engine:
        for _ in range(5):
            await host.call(engine, "POST", DOOR)
        await host.call(engine, "GET", DOOR)
        assert await host.events(engine, "webhook_refused") == []
        await clock.advance(timedelta(seconds=61))
        events = await host.events(engine, "webhook_refused")
        await host.call(engine, "POST", DOOR)
        await clock.advance(timedelta(seconds=61))
        assert len(await host.events(engine, "webhook_refused")) == 3
    assert {event.data["code"]: event.data["count"] for event in events} == {
        "webhook-unsigned": 5,
        "webhook-method": 1,
    }


@pytest.mark.parametrize("kind", ["client", "engine"])
async def test_what_is_left_out_is_on_record(host: Any, kind: str) -> None:
    """A filter with a slip of the pen, and a constant id: how many, when, and who is to look."""
    host.job("look", "webhook: door", 'filter: "action==opend"')
    host.job("other", "webhook: window")
    constant = BEARER | {"Idempotency-Key": "constant"}
    async with getattr(host, kind)() as client:
        for _ in range(20):
            await host.call(client, "POST", DOOR, body=b'{"action": "opened"}', headers=BEARER)
        for number in (0, 0, 1, 2):
            body = b"%d" % number
            got = await host.call(client, "POST", "/webhooks/window", body=body, headers=constant)
    assert "another event" in got.json["reason"]
    async with host.client() as client:
        events = await host.events(
            client, "webhook_filtered", "webhook_repeated", "webhook_conflicting"
        )
        look, other = (await client.status()).webhooks
        why = [await client.why(slug, at=SystemClock().now()) for slug in ("look", "other")]
    assert [(event.kind, event.slug, event.data["count"]) for event in events] == [
        ("webhook_filtered", "look", 20),
        ("webhook_repeated", "other", 1),
        ("webhook_conflicting", "other", 2),
    ]
    assert events[0].data["filter"] == "action==opend"
    assert (look.filtered.count, look.repeated, look.conflicting) == (20, None, None)
    assert (other.filtered, other.repeated.count, other.conflicting.count) == (None, 1, 2)
    assert "at present events at its webhook door make it run" in why[0]
    assert "its filter 'action==opend' left out 20 events" in why[0]


async def test_another_filter_is_counted_anew(host: Any) -> None:
    """What the one before left out says nothing about it."""
    body = b'{"action": "opened"}'
    host.job("look", "webhook: door", 'filter: "action==opend"')
    async with host.client() as client:
        await host.call(client, "POST", DOOR, body=body, headers=BEARER)
    host.job("look", "webhook: door", 'filter: "action==closed"')
    async with host.client() as client:
        (state,) = (await client.status()).webhooks
        assert state.filtered is None
        await host.call(client, "POST", DOOR, body=body, headers=BEARER)
    async with host.client() as client:
        (state,) = (await client.status()).webhooks
    assert state.filtered.count == 1


async def test_the_last_minute_is_not_lost(host: Any) -> None:
    """Leaving writes it: an engine, a standby, a client."""
    host.job("look", "webhook: door")
    async with host.engine() as engine:
        await host.call(engine, "POST", DOOR)
        async with host.engine(standby=True) as standby:
            await host.call(standby, "POST", DOOR)
    async with host.client() as client:
        await host.call(client, "POST", DOOR)
    async with host.client() as client:
        assert len(await host.events(client, "webhook_refused")) == 3


async def test_a_client_writes_them_with_the_request_that_comes_next(host: Any) -> None:
    """It has no loop of its own."""
    host.job("look", "webhook: door")
    async with host.client() as client:
        await host.call(client, "POST", DOOR)
        client._refusals._begun -= 61
        await host.call(client, "POST", DOOR)
        (event,) = await host.events(client, "webhook_refused")
    assert event.data["count"] == 2


async def test_a_client_that_cannot_write_them_says_so(host: Any) -> None:
    """Leaving goes on all the same."""
    host.job("look", "webhook: door")
    host.file("here", "no folder")
    with capture_logs() as logs:
        async with host.client(data_dir=host.workspace / "here" / "data") as client:
            await host.call(client, "POST", DOOR)
    assert [line["event"] for line in logs] == ["refusals_not_kept"]
