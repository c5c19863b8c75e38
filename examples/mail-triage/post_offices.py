"""Two mail systems to try the desk with: one in memory, and a real IMAP server in a process."""

import imaplib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Protocol

from anyio import to_thread

from drumbeat import MailSource
from drumbeat.testing import ScriptedMailbox

USER, PASSWORD = "demouser", "demopass"
"""Of the account that pymap makes up."""
DESK = "desk@museum.example"


class PostOffice(Protocol):
    """Where mail is posted, seen by drumbeat (`source`), and fetched by the agent (`fetch`)."""

    @property
    def source(self) -> MailSource:
        """What an engine is given."""
        ...

    async def post(self, name: str, sender: str, subject: str, text: str) -> None:
        """Let a mail arrive."""
        ...

    async def fetch(self, id: str) -> str:
        """The text of the mail that has this id in `INBOX_TRIGGER.json`."""
        ...


class InMemory:
    """A mailbox that is there as long as the process."""

    def __init__(self) -> None:
        self.source = self._mailbox = ScriptedMailbox()
        self._texts: dict[str, str] = {}

    async def post(self, name: str, sender: str, subject: str, text: str) -> None:
        """As `PostOffice.post`."""
        message = self._mailbox.send(sender, DESK, subject, message_id=f"<{name}@example>")
        self._texts[message.id] = text

    async def fetch(self, id: str) -> str:
        """As `PostOffice.fetch`."""
        return self._texts[id]


class OverImap:
    """The account of a server on this machine."""

    def __init__(self, port: int) -> None:
        from drumbeat.imap import ImapSource

        self.source = ImapSource("127.0.0.1", port=port, tls=False, user=USER, password=PASSWORD)
        self._port = port

    async def post(self, name: str, sender: str, subject: str, text: str) -> None:
        """As `PostOffice.post`: what a mail server does when mail comes in."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = sender, DESK, subject
        message["Message-ID"] = f"<{name}@example>"
        message.set_content(text)

        def append() -> None:
            with self._session() as client:
                client.append("INBOX", "", "", message.as_bytes())

        await to_thread.run_sync(append)

    async def fetch(self, id: str) -> str:
        """As `PostOffice.fetch`: the Message-ID is the id."""

        def look() -> str:
            with self._session() as client:
                client.select("INBOX", readonly=True)
                _, found = client.search(None, f'HEADER Message-ID "{id}"')
                _, parts = client.fetch(found[0].split()[0].decode(), "(BODY.PEEK[TEXT])")
                for part in parts:
                    if isinstance(part, tuple):
                        return part[1].decode()
            return ""

        return await to_thread.run_sync(look)

    @contextmanager
    def _session(self) -> Iterator[imaplib.IMAP4]:
        with imaplib.IMAP4("127.0.0.1", self._port, timeout=10) as client:
            client.login(USER, PASSWORD)
            yield client


@contextmanager
def pymap() -> Iterator[OverImap]:
    """Start pymap, an IMAP server from PyPI, on loopback; it ends with the block."""
    beside = Path(sys.executable).with_name("pymap")
    program = str(beside) if beside.exists() else shutil.which("pymap")
    if program is None:
        raise SystemExit("there is no pymap: pip install pymap")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [program, "--host", "127.0.0.1", "--port", str(port), "--no-tls", "dict", "--demo-data"]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not _listens(port):
            try:
                server.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise SystemExit("pymap ended before it was there")
        yield OverImap(port)
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
