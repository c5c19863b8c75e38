"""What the service does for GitHub, over real HTTP."""

import hmac
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SECRET = "it-is-a-secret"  # noqa: S105  one for the test
SERVE = """
import sys
from pathlib import Path
from fastapi_host import make_app, serve

serve(make_app(Path(sys.argv[1])), fd=int(sys.argv[2]))
"""
PRODUCTION = {
    "deployment_status": {"state": "success"},
    "deployment": {"environment": "production"},
}


class Service:
    """The service in a process of its own."""

    def __init__(self, data_dir: Path) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            self.port = listening.getsockname()[1]
            fd = listening.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(data_dir), str(fd)],
                cwd=HERE,
                env=os.environ | {"AGENT_API_SECRET": SECRET},
                pass_fds=[fd],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, object]:
        """The status, and what the body says."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers=named)
        response = connection.getresponse()
        said: object = json.loads(response.read())
        connection.close()
        return response.status, said

    def event(self, delivery: str, event: object, *, secret: str = SECRET) -> int:
        """The status that GitHub gets for an event."""
        body = json.dumps(event).encode()
        signature = hmac.new(secret.encode(), body, "sha256").hexdigest()
        status, _ = self.ask(
            "POST",
            "/webhooks/deployed",
            body,
            X_Hub_Signature_256=f"sha256={signature}",
            X_GitHub_Delivery=delivery,
        )
        return status

    def wait_for(self, text: str) -> None:
        """Read what the service says until it says that."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return
        pytest.fail(f"the service ended without saying {text!r}")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service that has started, that ends well, and that leaves nothing behind."""
    service = Service(tmp_path)
    try:
        yield service
        service.process.send_signal(signal.SIGTERM)
        service.process.communicate(timeout=60)
        assert service.process.returncode in (0, -signal.SIGTERM)
    finally:
        service.process.kill()
        service.process.communicate()


def test_a_deployment_is_looked_at_once(service: Service) -> None:
    """Once for its delivery, not for another environment, and not for somebody else."""
    assert service.ask("GET", "/health")[0] == 200
    assert service.event("1", PRODUCTION) == 202
    service.wait_for("after-deploy: The error rate is as before")
    assert service.event("1", PRODUCTION) == 200
    staging = PRODUCTION | {"deployment": {"environment": "staging"}}
    assert service.event("2", staging) == 200
    assert service.event("3", PRODUCTION, secret="another") == 401  # noqa: S106  a wrong one
    assert service.ask("GET", "/") == (200, {"runs": 1})


def test_the_service_ends_when_its_engine_fails(service: Service, tmp_path: Path) -> None:
    """So that whoever looks after the service starts another one."""
    assert service.ask("GET", "/health")[0] == 200
    (tmp_path / "engine.lock").unlink()  # somebody tidies up
    assert service.process.wait(timeout=60) == -signal.SIGTERM
