"""The IMAP source, against a real server and against one that does whatever a test says."""

import imaplib
import json
import logging
import pickle
import re
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
import trustme
from anyio import to_thread

from drumbeat import AgentError, Engine
from drumbeat.core.model import MailBatch, RunRecord
from drumbeat.core.senders import decide_mail
from drumbeat.errors import MailError
from drumbeat.imap import ImapSource, connection, folder, gmail
from drumbeat.imap.folder import MAX_HEADERS
from drumbeat.imap.mark import format_mark, parse_mark
from drumbeat.testing import ManualClock, ScriptedAgent, check_mail_source, drive

ADDRESS = "jobs@example.com"
PASSWORD = "correct horse"
START = datetime(2026, 11, 30, 12, tzinfo=UTC)


async def code_of(source: ImapSource, after: str | None = None) -> str:
    """The code of the error that a poll ends in; it holds nothing secret."""
    with pytest.raises(MailError) as raised:
        await source.poll(ADDRESS, after)
    assert PASSWORD not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    return raised.value.problem.code


# ---- a real server


@attrs.frozen
class Pymap:
    """A server in a process of its own, which offers STARTTLS."""

    port: int
    trust: ssl.SSLContext

    def source(self, **changes: Any) -> ImapSource:
        given = {"user": "demouser", "password": "demopass", "port": self.port, "tls": "starttls"}
        return ImapSource(**({"host": "localhost", "ssl_context": self.trust} | given | changes))

    @contextmanager
    def session(self) -> Iterator[imaplib.IMAP4]:
        with imaplib.IMAP4("localhost", self.port, timeout=10) as client:
            client.starttls(self.trust)
            client.login("demouser", "demopass")
            yield client

    def put(self, message: bytes, folder: str = "INBOX") -> None:
        with self.session() as client:
            said, _ = client.append(folder, "", "", message)
            assert said == "OK"

    async def send(self, subject: str) -> None:
        text = f"From: a@example.com\r\nTo: {ADDRESS}\r\nSubject: {subject}\r\n\r\nHello\r\n"
        await to_thread.run_sync(self.put, text.encode())


@pytest.fixture(scope="module")
def pymap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pymap]:
    folder = tmp_path_factory.mktemp("pymap")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = ["--host", "127.0.0.1", "--port", str(port)]
    argv += ["--cert", str(folder / "cert.pem"), "--key", str(folder / "key.pem")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("pymap")), *argv, "dict", "--demo-data"],
            stdout=log,
            stderr=log,
        )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue  # it is still starting
                pytest.fail((folder / "log").read_text())
        yield Pymap(port, trust)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])  # each login takes the server a while
async def test_the_source_keeps_the_contract_over_starttls(pymap: Pymap) -> None:
    await check_mail_source(lambda: pymap.source(max_batch=2), address=ADDRESS, send=pymap.send)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what it is about is the library
async def test_nothing_is_read_from_the_librarys_own_file(
    pymap: Pymap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever does is warned from Python 3.14 on; it may become another one with STARTTLS."""

    class Kept:
        def __get__(self, wire: Any, owner: Any = None) -> Any:
            assert sys._getframe(1).f_globals["__name__"] == "imaplib"
            return wire.__dict__["kept"]

        def __set__(self, wire: Any, value: Any) -> None:
            wire.__dict__["kept"] = value

    monkeypatch.setattr(imaplib.IMAP4, "file", Kept(), raising=False)
    assert (await pymap.source().poll(ADDRESS, None)).mark


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what it is about is the server
async def test_headers_come_raw_and_nothing_is_marked_as_seen(pymap: Pymap) -> None:
    source = pymap.source()
    mark = (await source.poll(ADDRESS, None)).mark
    await to_thread.run_sync(
        pymap.put,
        b"Received: by x\r\nFROM: =?utf-8?q?J=C3=B6?= <a@b.example>\r\nTo: one,\r\n two\r\n"
        b"Message-ID: <one@b.example>\r\n\r\nFrom: body\r\n",
    )
    batch = await source.poll(ADDRESS, mark)
    assert [(each.id, each.headers) for each in batch.messages] == [
        (
            "<one@b.example>",
            (
                ("Received", "by x"),
                ("FROM", "=?utf-8?q?J=C3=B6?= <a@b.example>"),
                ("To", "one, two"),
                ("Message-ID", "<one@b.example>"),
            ),
        )
    ]
    assert not batch.restarted
    after = await source.poll(ADDRESS, batch.mark)
    assert after == MailBatch(messages=(), mark=batch.mark)

    def unseen() -> list[bytes]:
        with pymap.session() as client:
            client.select("INBOX", readonly=True)
            return client.search(None, "UNSEEN HEADER Message-ID <one@b.example>")[1]

    assert (await to_thread.run_sync(unseen))[0].split()


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what it is about is the server
@pytest.mark.parametrize(
    "changes, code",
    [
        ({"password": PASSWORD}, "mail-login-refused"),
        ({"user": 'a "b" \\c'}, "mail-login-refused"),
        ({"password": "pässword"}, "mail-login-refused"),
        ({"folder": "No such"}, "mail-folder-missing"),
        ({"ssl_context": None}, "mail-tls"),
        ({"tls": True}, "mail-tls"),
    ],
)
async def test_a_real_refusal_has_its_code(
    pymap: Pymap, changes: dict[str, Any], code: str
) -> None:
    assert await code_of(pymap.source(**changes)) == code


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])  # each login takes the server a while
async def test_mail_in_a_real_account_is_sorted_run_over_and_never_seen_twice(
    pymap: Pymap, tmp_path: Path
) -> None:
    """One message passes and one is dropped; the run fails first, and the engine is another one."""
    (tmp_path / "jobs").mkdir()
    text = f'---\ninbox: imap:{ADDRESS}\nallowFrom: "@listed.example"\n---\n\nLook at it.\n'
    (tmp_path / "jobs" / "desk.md").write_text(text, encoding="utf-8")
    clock = ManualClock(START)
    agent = ScriptedAgent({"prompt": [AgentError("no", code="no"), "done"]})

    async def put(name: str, sender: str) -> None:
        text = f"From: {sender}\r\nTo: {ADDRESS}\r\nSubject: {name}\r\nMessage-ID: <{name}@x>\r\n"
        await to_thread.run_sync(pymap.put, f"{text}\r\nHello\r\n".encode())

    def enter() -> Engine:
        return Engine(tmp_path, agent=agent, mail={"imap": pymap.source(clock=clock)}, clock=clock)

    async with enter() as engine:
        await drive(engine, until=clock.now() + timedelta(minutes=1))
        await put("dropped", "eve@example.net")
        await put("asked", "Ann <ann@listed.example>")
        (failed,) = await drive(engine, until=clock.now() + timedelta(minutes=5))
    async with enter() as engine:
        (run,) = await drive(engine, until=clock.now() + timedelta(minutes=10))
        dropped = [each async for each in engine.events(follow=False)]
        assert await drive(engine, until=clock.now() + timedelta(minutes=6)) == []
    (message,) = json.loads(run.fire.payload or b"")["messages"]
    assert (message["id"], message["from"]) == ("<asked@x>", "ann@listed.example")
    assert (failed.state, run.state, run.fire.id) == ("failed", "succeeded", failed.fire.id)
    told = [each.data["message"] for each in dropped if each.kind == "mail_dropped"]
    assert told == ["<dropped@x>"]


# ---- a server that does what a test says


@attrs.define
class Mail:
    """A message of the scripted server."""

    header: bytes = b"Subject: x\r\n"
    arrived: str = "30-Nov-2026 10:00:00 +0000"


@attrs.define
class Scripted:
    """An IMAP server's state, and what it answers instead of the truth.

    `instead` maps a command, or `greeting`, to what is called with the connection and the tag;
    its bytes are sent in place of the answer, and None ends the connection.
    """

    messages: dict[int, Mail] = attrs.Factory(dict)
    validity: int = 7
    next_uid: int | None = None
    capabilities: str = "IMAP4rev1"
    instead: dict[str, Callable[[socket.socket, str], bytes | None]] = attrs.Factory(dict)
    commands: list[str] = attrs.Factory(list)
    ended: threading.Semaphore = attrs.Factory(lambda: threading.Semaphore(0))
    context: ssl.SSLContext | None = None
    port: int = 0

    def source(self, **changes: Any) -> ImapSource:
        given: dict[str, Any] = {"user": "crm", "password": PASSWORD, "tls": False}
        given |= {"port": self.port, "clock": ManualClock(START)}
        return ImapSource(**({"host": "127.0.0.1"} | given | changes))

    def mark(self, uid: int, **changes: Any) -> str:
        mark = parse_mark(f"imap1:{self.validity}:{uid}:0:0:0")
        return format_mark(attrs.evolve(mark, **changes))

    def serve(self, plain: socket.socket) -> None:
        try:
            made = self.context.wrap_socket(plain, server_side=True) if self.context else plain
            with made, made.makefile("rb") as lines:
                self._talk(made, lines)
        except OSError:
            pass  # the source hung up, or did not trust the certificate
        finally:
            self.ended.release()

    def _talk(self, made: socket.socket, lines: Any) -> None:
        made.sendall(self._answer("greeting", made, "*", "") or b"")
        for line in lines:
            tag, _, rest = line.decode().strip().partition(" ")
            verb = rest.upper().removeprefix("UID ").partition(" ")[0]
            self.commands.append(rest)
            answer = self._answer(verb, made, tag, rest)
            if answer is None:
                return
            made.sendall(answer)

    def _answer(self, verb: str, made: socket.socket, tag: str, rest: str) -> bytes | None:
        if verb in self.instead:
            return self.instead[verb](made, tag)
        done = f"{tag} OK done\r\n".encode()
        match verb:
            case "greeting":
                return b"* OK ready\r\n"
            case "CAPABILITY":
                return f"* CAPABILITY {self.capabilities}\r\n".encode() + done
            case "EXAMINE":
                known = max(self.messages, default=0) + 1
                following = known if self.next_uid is None else self.next_uid
                shown = f"* OK [UIDNEXT {following}] next\r\n" if following >= 0 else ""
                return f"* OK [UIDVALIDITY {self.validity}] v\r\n{shown}".encode() + done
            case "SEARCH":
                found = " ".join(str(uid) for uid in self._found(rest))
                return f"* SEARCH {found}\r\n".encode() + done
            case "FETCH":
                return b"".join(self._fetched(rest)) + done
            case "LOGOUT":
                return b"* BYE then\r\n" + done
        return done

    def _found(self, criteria: str) -> list[int]:
        if "UID *" in criteria:
            return [max(self.messages)] if self.messages else []
        first, last = re.findall(r"UID (\d+):(\S+)", criteria)[0]
        top = max(self.messages, default=0)
        ends = sorted((int(first), top if last == "*" else int(last)))
        since = re.search(r"SINCE (\S+)", criteria)
        floor = datetime.strptime(since[1], "%d-%b-%Y").replace(tzinfo=UTC) if since else None
        return [
            uid
            for uid, mail in reversed(self.messages.items())
            if ends[0] <= uid <= ends[1]
            and (floor is None or datetime.strptime(mail.arrived, "%d-%b-%Y %H:%M:%S %z") >= floor)
        ]

    def _fetched(self, rest: str) -> Iterator[bytes]:
        wanted = re.findall(r"FETCH (\S+)", rest)[0].split(",")
        for uid in map(int, wanted):
            if uid in self.messages:
                mail = self.messages[uid]
                head = mail.header[:MAX_HEADERS]
                yield f'* {uid} FETCH (INTERNALDATE "{mail.arrived}" UID {uid}'.encode()
                if "X-GM-THRID" in rest:
                    yield f" X-GM-THRID {uid + 10**18}".encode()
                yield b" BODY[HEADER]<0> {%d}\r\n" % len(head) + head + b")\r\n"


class _Threads(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def serving(scripted: Scripted) -> Iterator[Scripted]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            scripted.serve(self.request)

    with _Threads(("127.0.0.1", 0), Handler) as server:
        scripted.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield scripted
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving(Scripted()) as scripted:
        yield scripted


def hangs(made: socket.socket, tag: str) -> None:
    """Say nothing until the other side ends the connection."""
    while made.recv(4096):
        pass


def says(*lines: bytes) -> Callable[[socket.socket, str], bytes]:
    return lambda _, tag: b"".join(line.replace(b"TAG", tag.encode()) for line in lines)


def mail(name: str, **headers: str) -> Mail:
    fields = {"Message-ID": f"<{name}@x>", "Subject": name, **headers}
    return Mail("".join(f"{key}: {value}\r\n" for key, value in fields.items()).encode())


def subjects(batch: MailBatch) -> list[str]:
    return [dict(message.headers).get("Subject", "") for message in batch.messages]


# ---- what comes, and the mark


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_source_keeps_the_contract(server: Scripted) -> None:
    async def send(subject: str) -> None:
        server.messages[max(server.messages) + 3] = mail(subject)

    server.messages = {4: mail("old")}
    await check_mail_source(lambda: server.source(max_batch=2), address=ADDRESS, send=send)


@pytest.mark.anyio
async def test_the_first_poll_brings_nothing_and_later_ones_bring_what_came(
    server: Scripted,
) -> None:
    server.messages = {1: mail("old")}
    source = server.source()
    first = await source.poll(ADDRESS, None)
    assert first.messages == ()
    server.messages |= {2: mail("a"), 5: mail("b")}
    second = await source.poll(ADDRESS, first.mark)
    assert [message.id for message in second.messages] == ["<a@x>", "<b@x>"]
    assert await source.poll(ADDRESS, first.mark) == second
    assert await source.poll(ADDRESS, second.mark) == MailBatch(messages=(), mark=second.mark)
    assert any("BODY.PEEK[HEADER]<0.262144>" in each for each in server.commands)
    assert not any(each.startswith(("SELECT", "STORE")) for each in server.commands)


@pytest.mark.anyio
async def test_mail_that_comes_to_an_empty_folder_is_the_first(server: Scripted) -> None:
    source = server.source()
    first = await source.poll(ADDRESS, None)
    server.messages[1] = mail("a")
    assert subjects(await source.poll(ADDRESS, first.mark)) == ["a"]


@pytest.mark.anyio
async def test_a_server_without_uidnext_is_asked_for_the_last_number(server: Scripted) -> None:
    server.next_uid = -1
    server.messages = {1: mail("old")}
    source = server.source()
    first = await source.poll(ADDRESS, None)
    server.messages[2] = mail("a")
    assert subjects(await source.poll(ADDRESS, first.mark)) == ["a"]


@pytest.mark.anyio
async def test_batches_are_bounded_and_oldest_first(server: Scripted) -> None:
    server.messages = {uid: mail(str(uid)) for uid in (9, 3, 4, 7, 12)}
    source = server.source(max_batch=2)
    mark, seen = server.mark(0), []
    while (batch := await source.poll(ADDRESS, mark)).messages:
        seen.append(subjects(batch))
        mark = batch.mark
    assert seen == [["3", "4"], ["7", "9"], ["12"]]


@pytest.mark.anyio
async def test_deleted_mail_is_passed_over(server: Scripted) -> None:
    server.messages = {1: mail("a")}
    server.instead["SEARCH"] = lambda made, tag: (
        server.instead.pop("SEARCH") and f"* SEARCH 1 2 3\r\n{tag} OK done\r\n".encode()
    )
    batch = await server.source().poll(ADDRESS, server.mark(0))
    assert subjects(batch) == ["a"]
    assert parse_mark(batch.mark).uid == 3


@pytest.mark.anyio
async def test_a_batch_that_was_deleted_meanwhile_hides_no_later_one(server: Scripted) -> None:
    server.messages = {5: mail("a")}
    server.instead["SEARCH"] = lambda made, tag: (
        server.instead.pop("SEARCH") and f"* SEARCH 1 2\r\n{tag} OK done\r\n".encode()
    )
    assert subjects(await server.source(max_batch=2).poll(ADDRESS, server.mark(0))) == ["a"]


@pytest.mark.anyio
async def test_a_copied_message_id_hides_nothing(server: Scripted) -> None:
    """Whoever has seen an id can send mail under it; both messages come, each under its own."""
    server.messages = {1: mail("a"), 2: mail("a", From="b"), 3: mail("a", From="b")}
    source = server.source()
    batch = await source.poll(ADDRESS, server.mark(0))
    first, second, third = (message.id for message in batch.messages)
    assert first == "<a@x>"
    assert second.startswith("headers-")
    assert third == "7:3"
    server.messages[4] = mail("a", From="c")
    later = await source.poll(ADDRESS, batch.mark)
    assert [message.id for message in later.messages] == ["<a@x>"]
    assert not later.restarted


@pytest.mark.anyio
async def test_mail_in_the_account_starts_a_run_that_names_it(
    server: Scripted, tmp_path: Path
) -> None:
    """And once only, also when the folder is numbered anew and the engine is another one."""
    (tmp_path / "jobs").mkdir()
    text = f'---\ninbox: imap:{ADDRESS}\nallowFrom: "@example.com"\n---\n\nLook at the mail.\n'
    (tmp_path / "jobs" / "desk.md").write_text(text, encoding="utf-8")
    server.messages = {1: mail("old")}
    clock = ManualClock(START)
    asked = mail("Hours?", From="Ann <ann@example.com>", To=ADDRESS)
    asked.arrived = "30-Nov-2026 11:00:00 +0000"

    async def day() -> list[RunRecord]:
        source = server.source(clock=clock)
        engine = Engine(tmp_path, agent=ScriptedAgent(), mail={"imap": source}, clock=clock)
        async with engine:
            begun = await drive(engine, until=clock.now() + timedelta(minutes=6))
            server.messages |= {uid: asked for uid in (12, 13) if server.validity == 7}
            return begun + await drive(engine, until=clock.now() + timedelta(minutes=6))

    (run,) = await day()
    assert run.state == "succeeded"
    payload = json.loads(run.fire.payload or b"")
    assert [each["subject"] for each in payload["messages"]] == ["Hours?", "Hours?"]
    assert payload["messages"][0]["id"] == "<Hours?@x>"
    server.validity = 8
    server.messages = {1: mail("old"), 2: asked}
    assert await day() == []


# ---- UIDVALIDITY


@pytest.mark.anyio
async def test_a_folder_that_is_numbered_anew_is_read_again_from_near_the_end(
    server: Scripted,
) -> None:
    """Batches say so until all that was there has come; what is older never comes again."""
    server.messages = {40: Mail(b"Subject: before\r\n", "27-Nov-2026 10:00:00 +0000")}
    source = server.source(max_batch=2)
    begun = await source.poll(ADDRESS, None)
    server.messages |= {41: mail("a"), 42: mail("b")}
    handled = await source.poll(ADDRESS, begun.mark)

    server.validity = 8
    server.messages = {
        1: Mail(b"Subject: long ago\r\n", "01-Feb-2020 10:00:00 +0000"),
        2: Mail(b"Subject: before\r\n", "27-Nov-2026 10:00:00 +0000"),
        3: Mail(b"Subject: late\r\n", "28-Nov-2026 00:30:00 +0000"),
        4: mail("a"),
        5: mail("b"),
    }
    once = await source.poll(ADDRESS, handled.mark)
    assert (subjects(once), once.restarted) == (["late", "a"], True)
    assert await source.poll(ADDRESS, handled.mark) == once
    server.messages[6] = mail("c")
    again = await source.poll(ADDRESS, once.mark)
    assert (subjects(again), again.restarted) == (["b"], True)
    assert [message.id for message in again.messages] == [handled.messages[1].id]
    fresh = await source.poll(ADDRESS, again.mark)
    assert (subjects(fresh), fresh.restarted) == (["c"], False)
    assert (await source.poll(ADDRESS, fresh.mark)).mark == fresh.mark


@pytest.mark.anyio
async def test_mail_from_before_the_first_poll_never_comes(server: Scripted) -> None:
    """Numbered anew or not: the first poll had passed it over."""
    server.messages = {uid: mail(str(uid)) for uid in range(1, 6)}
    source = server.source(max_batch=2)
    begun = await source.poll(ADDRESS, None)
    server.validity = 8
    batch = await source.poll(ADDRESS, begun.mark)
    assert batch.messages == ()
    assert parse_mark(batch.mark).uid == 5
    assert await source.poll(ADDRESS, batch.mark) == MailBatch(messages=(), mark=batch.mark)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what it is about is the answer
async def test_a_long_way_back_is_gone_in_several_polls(server: Scripted) -> None:
    server.messages = {uid: mail(str(uid)) for uid in range(1, 31)}
    source = server.source(max_batch=1)
    begun = await source.poll(ADDRESS, None)
    server.validity = 8
    server.messages[31] = attrs.evolve(mail("new"), arrived="30-Nov-2026 11:00:00 +0000")
    batch = await source.poll(ADDRESS, begun.mark)
    assert batch.messages == ()
    assert batch.restarted
    assert batch.mark != begun.mark
    assert subjects(await source.poll(ADDRESS, batch.mark)) == ["new"]


@pytest.mark.anyio
async def test_a_folder_that_is_numbered_anew_may_hold_only_what_is_long_ago(
    server: Scripted,
) -> None:
    server.validity = 8
    server.messages = {uid: Mail(arrived="01-Feb-2020 10:00:00 +0000") for uid in (1, 2)}
    batch = await server.source().poll(ADDRESS, server.mark(40, validity=7, newest=START))
    assert batch == MailBatch(messages=(), mark=server.mark(2, newest=START))


@pytest.mark.anyio
async def test_a_folder_that_gives_numbers_out_again_counts_as_numbered_anew(
    server: Scripted,
) -> None:
    """As one does that was restored from a backup: mail below the mark would never be seen."""
    server.messages = {3: mail("a")}
    batch = await server.source().poll(ADDRESS, server.mark(9))
    assert (subjects(batch), batch.restarted) == (["a"], True)


@pytest.mark.anyio
async def test_a_message_without_id_keeps_its_name_in_a_folder_that_is_numbered_anew(
    server: Scripted,
) -> None:
    server.messages = {1: Mail(b"Subject: a\r\n")}
    source = server.source()
    once = await source.poll(ADDRESS, server.mark(0))
    server.validity = 8
    server.messages = {5: Mail(b"Subject: a\r\n")}
    again = await source.poll(ADDRESS, once.mark)
    assert [each.id for each in once.messages] == [each.id for each in again.messages]


@pytest.mark.anyio
async def test_mail_from_the_future_does_not_set_the_mark_beyond_today(server: Scripted) -> None:
    server.messages = {1: attrs.evolve(mail("a"), arrived="01-Jan-2099 10:00:00 +0000")}
    batch = await server.source().poll(ADDRESS, server.mark(0))
    assert parse_mark(batch.mark).newest == START


# ---- hostile messages


@pytest.mark.anyio
async def test_headers_beyond_the_limit_pass_nobody(server: Scripted) -> None:
    """What was cut off may hold a second From; the message is dropped and the next one comes."""
    front = f"From: a@example.com\r\nTo: {ADDRESS}\r\nMessage-ID: <big@x>\r\nX: ".encode()
    server.messages = {1: Mail(front + b"x" * 5_000_000 + b"\r\n"), 2: mail("a")}
    batch = await server.source().poll(ADDRESS, server.mark(0))
    assert [message.id for message in batch.messages] == ["<big@x>", "<a@x>"]
    decision = decide_mail(batch.messages[0], address=ADDRESS, allow_from=["a@example.com"])
    assert decision.code == "mail-not-addressed"
    assert decision.sender == "a@example.com"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what it is about is the answer
@pytest.mark.parametrize("answer", [b"NIL", b'""', b"{0}\r\n"])
async def test_a_message_without_headers_passes_nobody(server: Scripted, answer: bytes) -> None:
    server.messages = {1: Mail()}
    server.instead["FETCH"] = says(
        b"* 1 FETCH (UID 1 BODY[HEADER]<0> ", answer, b")\r\nTAG OK done\r\n"
    )
    batch = await server.source().poll(ADDRESS, server.mark(0))
    assert [message.headers for message in batch.messages] == [()]


@pytest.mark.anyio
async def test_a_message_that_the_server_cannot_give_does_not_hold_up_the_others(
    server: Scripted,
) -> None:
    server.messages = {1: mail("a"), 2: mail("b")}

    def refuse(made: socket.socket, tag: str) -> bytes:
        asked = server.commands[-1]
        if "FETCH 1 " in asked:
            return b"".join(server._fetched(asked)) + f"{tag} OK done\r\n".encode()
        return f"{tag} NO cannot be read\r\n".encode()

    server.instead["FETCH"] = refuse
    batch = await server.source().poll(ADDRESS, server.mark(0))
    assert subjects(batch) == ["a", ""]
    server.instead["FETCH"] = says(b"TAG NO later\r\n")
    assert await code_of(server.source(), server.mark(0)) == "mail-protocol"
    assert await code_of(server.source(), server.mark(1)) == "mail-protocol"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # megabytes through a loopback socket
async def test_no_number_of_large_messages_holds_up_those_behind_them(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All together they are more than is read of one answer, and than one batch should hold."""
    assert folder._AT_ONCE * MAX_HEADERS == folder._ENOUGH < connection._MOST // 2
    at_once = 3
    monkeypatch.setattr(connection, "_MOST", 2 * at_once * MAX_HEADERS)
    monkeypatch.setattr(folder, "_ENOUGH", at_once * MAX_HEADERS)
    monkeypatch.setattr(folder, "_AT_ONCE", at_once)
    large = Mail(b"X: " + b"x" * MAX_HEADERS)
    server.messages = dict.fromkeys(range(1, 9), large) | {1000: mail("a")}
    source, mark, found = server.source(), server.mark(0), []
    while (batch := await source.poll(ADDRESS, mark)).messages:
        mark = batch.mark
        found.append(subjects(batch))
    assert found == [[""] * 3, [""] * 3, ["", "", "a"]]


@pytest.mark.anyio
async def test_messages_that_cannot_be_given_hold_up_none_before_them(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_AT_ONCE", 2)
    server.messages = {uid: mail(str(uid)) for uid in range(1, 5)}

    def refuse(made: socket.socket, tag: str) -> bytes:
        asked = server.commands[-1]
        if "FETCH 1,2 " in asked:
            return b"".join(server._fetched(asked)) + f"{tag} OK done\r\n".encode()
        return f"{tag} NO cannot be read\r\n".encode()

    server.instead["FETCH"] = refuse
    batch = await server.source().poll(ADDRESS, server.mark(0))
    assert (subjects(batch), parse_mark(batch.mark).uid) == (["1", "2"], 2)
    assert await code_of(server.source(), batch.mark) == "mail-protocol"
    del server.instead["FETCH"]
    assert subjects(await server.source().poll(ADDRESS, batch.mark)) == ["3", "4"]
    assert subjects(await server.source().poll(ADDRESS, server.mark(0))) == ["1", "2", "3", "4"]


@pytest.mark.anyio
async def test_gmail_tells_the_thread_and_a_trusted_server_the_dmarc_result(
    server: Scripted,
) -> None:
    results = {"Authentication-Results": "mx.google.com; dmarc=fail"}
    server.messages = {1: mail("a", **results)}
    server.capabilities = "IMAP4rev1 X-GM-EXT-1"
    source = server.source(authserv_id="mx.google.com")
    (message,) = (await source.poll(ADDRESS, server.mark(0))).messages
    assert (message.thread_id, message.dmarc) == ("1000000000000000001", "fail")
    server.capabilities = "IMAP4rev1"
    (message,) = (await server.source().poll(ADDRESS, server.mark(0))).messages
    assert (message.thread_id, message.dmarc) == (None, None)


# ---- servers that are gone, slow or talk nonsense

STEPS = ["greeting", "CAPABILITY", "LOGIN", "EXAMINE", "SEARCH", "FETCH"]


@pytest.mark.anyio
@pytest.mark.parametrize("step", STEPS)
async def test_a_poll_is_cancelled_while_the_server_hangs(server: Scripted, step: str) -> None:
    """The connection is ended with it, so that the thread behind it ends too."""
    reached = threading.Event()

    def hang(made: socket.socket, tag: str) -> None:
        reached.set()
        hangs(made, tag)

    server.messages = {1: mail("a")}
    server.instead[step] = hang
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(server.source().poll, ADDRESS, server.mark(0))
            await to_thread.run_sync(reached.wait)
            group.cancel_scope.cancel()
        assert await to_thread.run_sync(server.ended.acquire, True, 10)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_poll_is_cancelled_while_nobody_takes_the_connection(server: Scripted) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(4):
            other = waiting.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        source = server.source(port=full.getsockname()[1])
        with anyio.fail_after(20):
            with anyio.move_on_after(0.3) as scope:
                await source.poll(ADDRESS, None)
            assert scope.cancelled_caught


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("step", ["greeting", "FETCH"])
async def test_a_poll_has_its_time_whatever_the_server_drips(server: Scripted, step: str) -> None:
    def drip(made: socket.socket, tag: str) -> None:
        made.settimeout(0.02)
        while True:
            made.sendall(b"* OK wait\r\n" if step == "FETCH" else b"*")
            try:
                if not made.recv(4096):
                    return
            except TimeoutError:
                pass

    server.messages = {1: mail("a")}
    server.instead[step] = drip
    source = server.source(timeout=timedelta(seconds=0.4))
    with anyio.fail_after(20):
        assert await code_of(source, server.mark(0)) == "mail-unreachable"


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_server_that_hangs_at_the_logout_loses_no_mail(server: Scripted) -> None:
    server.messages = {1: mail("a")}
    server.instead["LOGOUT"] = hangs
    source = server.source(timeout=timedelta(seconds=0.5))
    assert subjects(await source.poll(ADDRESS, server.mark(0))) == ["a"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what it is about is the answer
@pytest.mark.parametrize("step", STEPS)
async def test_a_server_that_ends_the_connection_is_gone_for_now(
    server: Scripted, step: str
) -> None:
    server.messages = {1: mail("a"), 2: mail("b")}
    server.instead[step] = lambda made, tag: made.shutdown(socket.SHUT_RDWR)
    assert await code_of(server.source(), server.mark(0)) == "mail-unreachable"
    server.instead[step] = says(b"* BYE of ", PASSWORD.encode(), b"\r\n")
    assert await code_of(server.source(), server.mark(0)) == "mail-unreachable"


@pytest.mark.anyio
async def test_a_server_that_goes_in_the_middle_of_a_message_is_gone_for_now(
    server: Scripted,
) -> None:
    server.messages = {1: mail("a")}

    def half(made: socket.socket, tag: str) -> None:
        made.sendall(b"* 1 FETCH (UID 1 BODY[HEADER]<0> {1000}\r\nSubject: half")

    server.instead["FETCH"] = half
    assert await code_of(server.source(), server.mark(0)) == "mail-unreachable"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what it is about is the answer
@pytest.mark.parametrize(
    "step, lines",
    [
        ("greeting", [b"220 mail.example ESMTP\r\n"]),
        ("greeting", [b"\r\n"]),
        ("CAPABILITY", [b"* CAPABILITY IMAP2\r\nTAG OK done\r\n"]),
        ("LOGIN", [b"what is ", PASSWORD.encode(), b"\r\n"]),
        ("EXAMINE", [b"TAG BAD what\r\n"]),
        ("EXAMINE", [b"* OK [UIDVALIDITY x] v\r\nTAG OK done\r\n"]),
        ("SEARCH", [b"* SEARCH one two\r\nTAG OK done\r\n"]),
        ("SEARCH", [b"TAG NO done\r\n"]),
        ("FETCH", [b"* 1 FETCH (UID 1 BODY[HEADER]<0>)\r\nTAG OK done\r\n"]),
        ("FETCH", [b"* 1 FETCH " + b"(" * 100_000 + b"\r\nTAG OK done\r\n"]),
        ("FETCH", [b"* 1 FETCH (UID 1 BODY[HEADER]<0> {50000000}\r\n", b"x" * 1000]),
        ("FETCH", [b"* 1 FETCH (UID 1 BODY[HEADER]<0> {99999999999}\r\n"]),
    ],
)
async def test_nonsense_is_an_error_and_no_mail(
    server: Scripted, step: str, lines: list[bytes]
) -> None:
    server.messages = {1: mail("a")}
    server.instead[step] = says(*lines)
    if b"{50000000}" in lines[0]:
        # A whole message in place of its headers is within what an answer may have; it ends early.
        server.instead[step] = lambda made, tag: made.sendall(b"".join(lines))  # type: ignore[func-returns-value]
        assert await code_of(server.source(), server.mark(0)) == "mail-unreachable"
    else:
        assert await code_of(server.source(), server.mark(0)) == "mail-protocol"


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # megabytes through a loopback socket
async def test_a_line_that_never_ends_is_cut_off(server: Scripted) -> None:
    server.instead["SEARCH"] = lambda made, tag: b"* SEARCH" + b" 1" * 5_000_000
    assert await code_of(server.source(), server.mark(0)) == "mail-protocol"


@pytest.mark.anyio
async def test_a_folder_without_lasting_numbers_is_refused(server: Scripted) -> None:
    server.instead["EXAMINE"] = says(b"* OK [UIDNEXT 3] n\r\nTAG OK done\r\n")
    assert await code_of(server.source()) == "mail-uids-missing"
    server.instead["EXAMINE"] = says(
        b"* OK [UIDVALIDITY 3] v\r\n* NO [UIDNOTSTICKY] u\r\nTAG OK done\r\n"
    )
    assert await code_of(server.source()) == "mail-uids-missing"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what it is about is the answer
@pytest.mark.parametrize("after", [None, 0])
@pytest.mark.parametrize(
    "step, lines",
    [
        ("EXAMINE", [b"* OK [UIDVALIDITY 99999999999] v\r\n"]),
        ("EXAMINE", [b"* OK [UIDVALIDITY 7] v\r\n* OK [UIDNEXT 12345678902] n\r\n"]),
        ("SEARCH", [b"* SEARCH 12345678901 1\r\n"]),
        ("SEARCH", [b"* SEARCH 4294967296\r\n"]),
    ],
)
async def test_a_number_that_imap_does_not_have_gets_into_no_mark(
    server: Scripted, step: str, lines: list[bytes], after: int | None
) -> None:
    server.messages = {1: mail("a")}
    mark = None if after is None else server.mark(after)
    server.instead[step] = says(*lines, b"TAG OK done\r\n")
    with pytest.raises(MailError, match="numbers of IMAP are 0 to 4294967295") as raised:
        await server.source().poll(ADDRESS, mark)
    assert raised.value.problem.code == "mail-protocol"


@pytest.mark.anyio
async def test_the_largest_numbers_of_imap_are_numbers(server: Scripted) -> None:
    largest = 2**32 - 1
    server.validity, server.next_uid = largest, largest
    server.messages = {largest - 1: mail("a")}
    source = server.source()
    first = await source.poll(ADDRESS, None)
    server.messages[largest] = mail("b")
    server.next_uid = -1
    batch = await source.poll(ADDRESS, first.mark)
    assert subjects(batch) == ["b"]
    assert (await source.poll(ADDRESS, batch.mark)).mark == batch.mark


@pytest.mark.anyio
async def test_nobody_listens(server: Scripted) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert await code_of(server.source(port=port)) == "mail-unreachable"
    assert await code_of(server.source(host="no.such.host.invalid", tls=True)) == "mail-unreachable"
    assert await code_of(server.source(host="a" * 64 + ".example", tls=True)) == "mail-unreachable"


@pytest.mark.anyio
async def test_a_mark_of_another_source_is_refused_before_anything_is_asked(
    server: Scripted,
) -> None:
    assert await code_of(server.source(), "1") == "mail-mark-unknown"
    assert server.commands == []


@pytest.mark.anyio
async def test_polls_of_one_source_make_four_connections_at_most(server: Scripted) -> None:
    there = threading.Semaphore(0)
    go_on = threading.Event()
    most: list[int] = []
    open_now: list[str] = []

    def wait(made: socket.socket, tag: str) -> bytes:
        open_now.append(tag)
        most.append(len(open_now))
        there.release()
        assert go_on.wait(10)
        open_now.pop()
        return f"{tag} OK done\r\n".encode()

    server.instead["LOGIN"] = wait
    source = server.source()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(source.poll, ADDRESS, None)
            for _ in range(4):
                assert await to_thread.run_sync(there.acquire, True, 10)
            go_on.set()
    assert len(most) == 6
    assert max(most) <= 4


# ---- passwords and TLS


@pytest.mark.anyio
async def test_a_password_is_read_when_it_is_needed(server: Scripted) -> None:
    """So that a rotated one is used, and a missing one asks nothing of the server."""
    env: dict[str, str] = {}
    source = server.source(password=None, env=env)
    for bad in ({}, {"IMAP_PASSWORD": ""}, {"IMAP_PASSWORD": "a\r\nb"}, {"IMAP_PASSWORD": "a\0"}):
        env |= bad
        assert await code_of(source) == "mail-password-unusable"
    assert server.commands == []
    for password in ("one", 'two "quoted" \\'):
        env["IMAP_PASSWORD"] = password + "\n"
        await source.poll(ADDRESS, None)
    assert [each for each in server.commands if each.startswith("LOGIN")] == [
        'LOGIN "crm" "one"',
        'LOGIN "crm" "two \\"quoted\\" \\\\"',
    ]


@pytest.mark.anyio
async def test_the_environment_is_the_default(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_SECRET", "from there")
    await server.source(password=None, password_variable="MAIL_SECRET").poll(ADDRESS, None)
    assert 'LOGIN "crm" "from there"' in server.commands


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what it is about is the answer
@pytest.mark.parametrize(
    "lines, code, words",
    [
        (
            [b"TAG NO [AUTHENTICATIONFAILED] not ", PASSWORD.encode(), b"\r\n"],
            "mail-login-refused",
            "AUTHENTICATIONFAILED",
        ),
        ([b"TAG NO ", PASSWORD.encode(), b"\r\n"], "mail-login-refused", "login of crm ["),
        ([b"TAG NO [UNAVAILABLE] later\r\n"], "mail-unreachable", "for now"),
    ],
)
async def test_what_the_server_says_of_a_login_is_not_repeated(
    server: Scripted,
    lines: list[bytes],
    code: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    server.instead["LOGIN"] = says(*lines)
    source = server.source()
    with pytest.raises(MailError, match=re.escape(words)) as raised:
        await source.poll(ADDRESS, None)
    assert raised.value.problem.code == code
    assert PASSWORD not in f"{raised.value!r} {raised.value} {source!r}"
    assert not [each for each in caplog.messages if PASSWORD in each and "LOGIN" in each]


@pytest.mark.anyio
async def test_a_server_that_takes_no_password_gets_none(server: Scripted) -> None:
    server.capabilities = "IMAP4rev1 LOGINDISABLED"
    assert await code_of(server.source()) == "mail-login-refused"
    assert not any(PASSWORD in each for each in server.commands)


@pytest.mark.anyio
async def test_tls_is_verified_before_the_password_goes_out() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with serving(Scripted(messages={1: mail("a")}, context=context)) as server:
        trusting = server.source(host="localhost", tls=True, ssl_context=trust)
        assert subjects(await trusting.poll(ADDRESS, server.mark(0))) == ["a"]
        server.commands.clear()
        assert await code_of(server.source(host="localhost", tls=True)) == "mail-tls"
        other_name = server.source(host="127.0.0.1", tls=True, ssl_context=trust)
        assert await code_of(other_name) == "mail-tls"
        assert server.commands == []


@pytest.mark.anyio
async def test_a_server_without_starttls_gets_no_password(server: Scripted) -> None:
    assert await code_of(server.source(tls="starttls")) == "mail-tls"
    server.instead["greeting"] = says(b"* PREAUTH welcome\r\n")
    server.capabilities = "IMAP4rev1 STARTTLS"
    assert await code_of(server.source(tls="starttls")) in ("mail-protocol", "mail-tls")
    assert not any(PASSWORD in each for each in server.commands)


# ---- making one


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"host": ""}, "host is text"),
        ({"user": "a\r\nb"}, "user is text"),
        ({"folder": "a\0"}, "folder is text"),
        ({"tls": "ssl"}, "tls is"),
        ({"tls": False}, "loopback"),
        ({"tls": False, "host": "10.0.0.1"}, "loopback"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"max_batch": 0}, "max_batch"),
        ({"max_batch": 501}, "max_batch"),
        ({"port": 0}, "port"),
    ],
)
def test_a_source_that_cannot_work_is_not_made(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ImapSource(**({"host": "imap.example.com", "user": "crm"} | changes))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "127.0.0.1", "127.9.9.9", "::1"])
def test_a_loopback_host_may_do_without_tls(host: str) -> None:
    assert "port=143" in repr(ImapSource(host, user="crm", tls=False))


def test_gmail_is_imap_with_what_gmail_says() -> None:
    source = gmail("crm@gmail.com", password=PASSWORD)
    assert repr(source) == (
        "ImapSource('imap.gmail.com', port=993, user='crm@gmail.com', folder='INBOX')"
    )
    assert source._authserv_id == "mx.google.com"
