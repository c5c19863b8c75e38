"""Repositories made and served for tests, by the real git."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

GIT_ENV = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Author",
    "GIT_AUTHOR_EMAIL": "author@example.org",
    "GIT_COMMITTER_NAME": "Committer",
    "GIT_COMMITTER_EMAIL": "committer@example.org",
}


def git(*args: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run git, which has to succeed, and return what it writes."""
    done = subprocess.run(
        ["git", *map(str, args)],
        cwd=cwd,
        env=GIT_ENV if env is None else env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(root: Path, files: dict[str, str | Path], *, name: str = "product.git") -> Path:
    """A bare repository whose one commit holds `files`; a path stands for a link to it."""
    bare, source = root / name, root / f"{name}-source"
    source.mkdir(parents=True)
    git("init", "-q", "-b", "main", ".", cwd=source)
    for path, content in files.items():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            target.symlink_to(content)
        else:
            target.write_text(content)
    git("add", "-A", "-f", ".", cwd=source)
    git("commit", "-q", "--allow-empty", "-m", "One", cwd=source)
    git("clone", "-q", "--bare", "--template=", source, bare, cwd=root)
    for key in ("uploadpack.allowFilter", "http.receivepack"):
        git("config", key, "true", cwd=bare)
    return bare


class GitServer:
    """A server of the repositories below a folder, and what was asked of it."""

    def __init__(self, root: Path, *, token: str | None, redirect: str | None) -> None:
        self.root = root
        self.token = token
        self.redirect = redirect
        self.quotes = False
        """Whether it refuses whoever proves to be somebody, and quotes the proof."""
        self.seen: list[tuple[str, str | None]] = []
        """The path and the Authorization header of each request."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self, b"")

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length")
                if length is not None:
                    body = self.rfile.read(int(length))
                else:
                    body = b"".join(_chunks(self))
                server.answer(self, body)

            def log_message(self, *args: object) -> None:
                """Write nothing: the requests are kept."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._http.server_port}"

    def url(self, name: str = "product.git") -> str:
        """The address of a repository."""
        return f"http://{self.host}/{name}"

    @property
    def authorizations(self) -> list[str]:
        """The Authorization headers that came."""
        return [header for _, header in self.seen if header]

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request: elsewhere, not without the token, or by git itself."""
        given = request.headers.get("Authorization")
        self.seen.append((request.path, given))
        if self.token is not None and given != basic(self.token):
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="git"')
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if self.quotes:
            said = f"you sent {given}".encode()
            request.send_response(403)
            request.send_header("Content-Type", "text/plain")
            request.send_header("Content-Length", str(len(said)))
            request.end_headers()
            request.wfile.write(said)
            return
        if self.redirect is not None:
            request.send_response(302)
            request.send_header("Location", f"{self.redirect}{request.path}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        path, _, query = request.path.partition("?")
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            check=False,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(self.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": request.command,
                "CONTENT_TYPE": request.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
                "REMOTE_USER": "agent",
                "REMOTE_ADDR": "127.0.0.1",
            },
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        request.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def begin(self) -> threading.Thread:
        """Serve in a thread of its own."""
        thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        thread.start()
        return thread

    def end(self) -> None:
        """Serve no more."""
        self._http.shutdown()
        self._http.server_close()


def basic(token: str) -> str:
    """The header in which git shows a token."""
    return "Basic " + base64.b64encode(f"x-access-token:{token}".encode()).decode()


@contextmanager
def serving(
    root: Path, *, token: str | None = None, redirect: str | None = None
) -> Iterator[GitServer]:
    """Serve the repositories below `root`; with a token, to nobody who does not have it."""
    server = GitServer(root, token=token, redirect=redirect)
    thread = server.begin()
    try:
        yield server
    finally:
        server.end()
        thread.join()


def _chunks(request: BaseHTTPRequestHandler) -> Iterator[bytes]:
    while size := int(request.rfile.readline().strip(), 16):
        yield request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()


class Repositories:
    """Bare repositories below one folder."""

    root: Path
    env = GIT_ENV

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self, files: dict[str, str | Path], *, name: str = "product.git") -> str:
        """Make a repository and return its file address."""
        return f"file://{repository(self.root, files, name=name)}"

    def git(self, *args: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
        """Run git, in the repository unless told otherwise."""
        return git(*args, cwd=self.root / "product.git" if cwd is None else cwd, env=env)

    def serving(self, **options: str | None) -> AbstractContextManager[GitServer]:
        """Serve all of them."""
        return serving(self.root, **options)


@pytest.fixture
def repos(tmp_path: Path) -> Repositories:
    """A folder for repositories."""
    folder = tmp_path / "repositories"
    folder.mkdir()
    return Repositories(folder)


@pytest.fixture
def guarded(repos: Repositories) -> Iterator[GitServer]:
    """A server that shows its repository to whoever has the token."""
    repos.make({"code.py": "print(1)\n", "docs/a.md": "A\n"})
    with repos.serving(token="ghp_oneTokenThatStandsNowhere") as server:
        yield server
