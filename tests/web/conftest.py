"""What the tests of the doors share: a host on disk, a real HTTP server, and raw requests."""

import http.client
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette

from drumbeat import Client, Engine, Event, Settings
from drumbeat.testing import RecordingDeliverer, ScriptedAgent
from drumbeat.web import routes

SECRET = "a-secret-of-the-doors"
BEARER = {"Authorization": f"Bearer {SECRET}"}


@attrs.frozen
class Got:
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Host:
    """A workspace, and what works on it."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.data = workspace / ".drumbeat"
        self.agent = ScriptedAgent(default="done")
        self.deliverer = RecordingDeliverer()
        self.secrets: dict[str, str] = {"AGENT_API_SECRET": SECRET}

    def job(self, slug: str, *lines: str, prompt: str = "Look at it.") -> Path:
        """Write a job file from the lines of its front matter."""
        return self.file(f"jobs/{slug}.md", "\n".join(["---", *lines, "---", prompt, ""]))

    def file(self, name: str, text: str) -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def engine(self, **options: Any) -> Engine:
        options.setdefault("secrets", self.secrets)
        options.setdefault("settings", Settings())
        return Engine(
            self.workspace,
            agent=options.pop("agent", self.agent),
            deliverer=options.pop("deliverer", self.deliverer),
            env=options.pop("env", {"PATH": "/usr/bin:/bin"}),
            timezone="UTC",
            **options,
        )

    def client(self, **options: Any) -> Client:
        options.setdefault("secrets", self.secrets)
        return Client(self.workspace, **options)

    def serving(self, client: Client, **options: Any) -> AbstractAsyncContextManager["Served"]:
        """Serve a client's doors over HTTP on the loopback; needs asyncio."""
        return _serving(client, **options)

    async def call(self, client: Client, method: str, path: str, **given: Any) -> Got:
        """Call the doors as an ASGI host does, on whatever loop this is."""
        return await _called(client, method, path, **given)

    async def events(self, client: Client, *kinds: str) -> list[Event]:
        """The events so far of these kinds."""
        return [event async for event in client.events(follow=False) if event.kind in kinds]


class Served:
    """A server on the loopback, and requests to it."""

    def __init__(self, port: int) -> None:
        self.port = port
        # Threads of the tests' own: the loop's are for what is tested.
        self._threads = anyio.CapacityLimiter(50)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Got:
        """Make one request over a connection of its own."""
        return await to_thread.run_sync(
            self._request, method, path, body, dict(headers or {}), limiter=self._threads
        )

    def _request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Got:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Got(response.status, named, response.read())
        finally:
            connection.close()

    async def post(
        self, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Got:
        return await self.request("POST", path, body, BEARER if headers is None else headers)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Got:
        return await self.request("GET", path, None, headers)

    async def raw(self, *parts: bytes, hang_up: bool = False) -> bytes:
        """Send bytes as they are; return what comes until the server closes."""
        return await to_thread.run_sync(self._raw, parts, hang_up, limiter=self._threads)

    def _raw(self, parts: tuple[bytes, ...], hang_up: bool) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            try:
                for part in parts:
                    connection.sendall(part)
                if hang_up:
                    return b""
                found = b""
                while part := connection.recv(65536):
                    found += part
            except ConnectionError:
                pass  # the server has closed on what it would not read
            return found


@asynccontextmanager
async def _serving(client: Client, **options: Any) -> AsyncIterator[Served]:
    """Serve a client's doors with uvicorn, which needs asyncio."""
    app = Starlette(routes=routes(client, **options))
    config = uvicorn.Config(app, lifespan="off", ws="none", log_level="warning")
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        async with anyio.create_task_group() as group:
            group.start_soon(server._serve, [listening])
            try:
                yield Served(listening.getsockname()[1])
            finally:
                server.should_exit = True


async def _called(
    client: Client,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    gone: anyio.Event | None = None,
    **options: Any,
) -> Got:
    """Call the doors as an ASGI host does, on whatever loop this is, until `gone` is set."""
    app = Starlette(routes=routes(client, **options))
    sent: list[dict[str, Any]] = []
    hung_up = gone or anyio.Event()
    chunks = [body[at : at + 1000] for at in range(0, len(body), 1000)] or [b""]

    async def receive() -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        if not chunks:
            await hung_up.wait()
            return {"type": "http.disconnect"}
        chunk = chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

    async def send(message: Any) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (name.lower().encode(), value.encode()) for name, value in (headers or {}).items()
        ],
    }
    await app(scope, receive, send)
    if not sent:
        return Got(0, {}, b"")  # nobody was left to be answered
    (start, *rest) = sent
    named = {name.decode(): value.decode() for name, value in start["headers"]}
    return Got(start["status"], named, b"".join(part.get("body", b"") for part in rest))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with an empty workspace."""
    workspace = tmp_path / "workspace"
    (workspace / "jobs").mkdir(parents=True)
    return Host(workspace)
