"""The IMAP mail source, as the engine polls it."""

import os
import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import anyio
from anyio import CapacityLimiter, to_thread

from drumbeat.core.asked import check_span
from drumbeat.core.model import Env, MailBatch
from drumbeat.core.redaction import one_line
from drumbeat.errors import MailError, Problem
from drumbeat.imap.connection import Address, Line, Server, is_loopback, unreachable
from drumbeat.imap.folder import Folder
from drumbeat.imap.mark import parse_mark
from drumbeat.protocols import Clock, MailSource
from drumbeat.runtime.clock import SystemClock

__all__ = ["ImapSource", "gmail"]

_TIMEOUT = timedelta(seconds=60)
_MOST_MESSAGES = 500
_CONNECTIONS = 4  # a provider bounds them per account, and other programs read the mailbox too


class ImapSource(MailSource):
    """A folder of an IMAP account (spec, section 13.2).

    A poll connects, opens the folder for reading only, takes the headers of what came, at most
    256 KiB of each message, and logs out. Nothing is marked as seen and no body is fetched.

    The id of a message is its Message-ID. Where it has none, several or one out of shape, or a
    message before it in the batch has the same, its id is a digest of its headers, so that no
    message hides behind another one's. When UIDVALIDITY changes, mail is read again from two days
    before the newest that was known, as `restarted` batches.

    A message whose headers are larger than 256 KiB comes without those that say to whom it was
    sent, and one whose headers the server cannot give without any: both are for no address.

    One source may be polled from many places at once; it makes four connections at most. Making one
    connects to nothing.

        >>> ImapSource("imap.example.com", user="crm@example.com")
        ImapSource('imap.example.com', port=993, user='crm@example.com', folder='INBOX')

    Args:
        host: the server's name, for which its certificate must be.
        user: who logs in.
        password: of that account; None reads it from `env` at each poll.
        env: where the password stands; None for the process's environment.
        password_variable: the name under which it stands there.
        port: None for 993, and for 143 where `tls` is not True.
        tls: True for TLS from the first byte, `"starttls"` to begin without and demand it before
            the login. False sends the password as it is, and is taken for a loopback host alone.
        ssl_context: whom to trust; None for whom the system trusts. A context that does not
            verify lets anybody on the way read the password.
        folder: which folder, as people see its name.
        timeout: how long one poll may take, from connecting to logging out.
        max_batch: how many messages one poll brings at most, 1 to 500. One that has brought 4 MiB
            of headers leaves the others to the next.
        authserv_id: by what name the receiving server calls itself in `Authentication-Results`;
            None trusts no such header, and no message has a DMARC result.
        clock: whose present keeps a wrong time of arrival from being taken for the newest.

    Raises:
        TypeError: `timeout` is no timedelta.
        ValueError: an argument is none of what is described here.
    """

    def __init__(
        self,
        host: str,
        *,
        user: str,
        password: str | None = None,
        env: Env | None = None,
        password_variable: str = "IMAP_PASSWORD",  # noqa: S107  the name of a variable
        port: int | None = None,
        tls: bool | Literal["starttls"] = True,
        ssl_context: ssl.SSLContext | None = None,
        folder: str = "INBOX",
        timeout: timedelta = _TIMEOUT,
        max_batch: int = 50,
        authserv_id: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        _check_text("host", host)
        _check_text("user", user)
        _check_text("folder", folder)
        _check(tls is True or tls is False or tls == "starttls", "tls is True, False or 'starttls'")
        _check(
            tls is not False or is_loopback(host),
            f"tls=False would send the password to {host!r} for anybody on the way to read; it is "
            "for a loopback host alone",
        )
        _check(check_span("timeout", timeout) > timedelta(0), "timeout is longer than nothing")
        _check(1 <= max_batch <= _MOST_MESSAGES, f"max_batch is 1 to {_MOST_MESSAGES}")
        chosen = port if port is not None else 993 if tls is True else 143
        _check(0 < chosen < 65536, "port is 1 to 65535")
        self._server = Server(
            host=host,
            port=chosen,
            tls=tls,
            ssl_context=ssl_context,
            timeout=timeout.total_seconds(),
        )
        self._user = user
        self._password = password
        self._env = env
        self._variable = password_variable
        self._folder = folder
        self._max_batch = max_batch
        self._authserv_id = authserv_id
        self._clock: Clock = SystemClock() if clock is None else clock
        self._connections = anyio.Semaphore(_CONNECTIONS)

    def __repr__(self) -> str:
        """Return where it reads, and nothing secret."""
        return (
            f"ImapSource({self._server.host!r}, port={self._server.port}, user={self._user!r}, "
            f"folder={self._folder!r})"
        )

    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        """Return what came into the folder after the mark `after`, oldest first.

        Which messages are for `address` is not looked at: what a folder holds is the account's
        setting. A batch without messages may have a later mark than `after`. Cancellation ends
        the connection and returns at once.

        Raises:
            MailError: the mailbox could not be read; the code says why, and the same mark may be
                asked for again.
        """
        mark = None if after is None else parse_mark(after)
        password = self._secret()
        now = self._clock.now()

        def read(line: Line, addresses: list[Address]) -> MailBatch:
            with (
                line.entered(self._server, addresses, self._user, password) as client,
                line.translated(self._server, "a question about the folder"),
            ):
                return Folder(
                    client=client,
                    name=self._folder,
                    max_batch=self._max_batch,
                    authserv_id=self._authserv_id,
                    now=now,
                ).read(mark)

        async with self._connections:
            return await self._within(read)

    def _secret(self) -> str:
        env = os.environ if self._env is None else self._env
        given = env.get(self._variable, "") if self._password is None else self._password
        password = one_line(given)
        where = "the argument `password`" if self._password is not None else self._variable
        if not password or any(char in password for char in "\r\n\0"):
            raise MailError(
                Problem(
                    code="mail-password-unusable",
                    message=f"there is no usable password for {self._user} at {self._server}: "
                    f"{where} is {'of several lines' if password else 'not set'}",
                    remedy=f"set {where} to the password, one line of text",
                )
            )
        return password

    async def _within(self, read: Callable[[Line, list[Address]], MailBatch]) -> MailBatch:
        """Read in a thread that has ended when this returns, whatever the server does."""
        line = Line()
        batches: list[MailBatch] = []
        errors: list[MailError] = []

        def work(addresses: list[Address]) -> None:
            try:
                batches.append(read(line, addresses))
            except MailError as error:
                errors.append(error)  # raised outside: a group would wrap it

        async def attend() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                line.hang_up()

        with anyio.move_on_after(self._server.timeout) as scope:
            addresses = await self._addresses()
            async with anyio.create_task_group() as group:
                group.start_soon(attend)
                # A limiter of its own: a slow server does not use up the host's threads.
                await to_thread.run_sync(work, addresses, limiter=CapacityLimiter(1))
                group.cancel_scope.cancel()
        if batches:
            return batches[0]  # in time, but for the logout perhaps
        await anyio.lowlevel.checkpoint_if_cancelled()  # then the error is that of hanging up
        if errors and not scope.cancel_called:
            raise errors[0]
        raise unreachable(self._server, f"it took longer than {self._server.timeout:g} s")

    async def _addresses(self) -> list[Address]:
        try:
            found = await anyio.getaddrinfo(
                self._server.host, self._server.port, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError):
            raise unreachable(self._server, "its name is not known") from None
        return [(family, kind, address) for family, kind, _, _, address in found]


def gmail(
    user: str,
    *,
    password: str | None = None,
    env: Env | None = None,
    password_variable: str = "GMAIL_APP_PASSWORD",  # noqa: S107  the name of a variable
    folder: str = "INBOX",
    timeout: timedelta = _TIMEOUT,
    max_batch: int = 50,
    clock: Clock | None = None,
) -> ImapSource:
    """Make the source of a Gmail account, over IMAP.

    Messages have Gmail's thread as `thread_id`, and the DMARC result that Gmail found.

    Args:
        user: the account's address.
        password: an app password of it, not the one people log in with; None reads it from `env` at
            each poll.
        env: where the password stands; None for the process's environment.
        password_variable: the name under which it stands there.
        folder: a label, as people see it.
        timeout: how long one poll may take.
        max_batch: how many messages one poll brings at most, 1 to 500.
        clock: as for `ImapSource`.

    Raises:
        TypeError: as for `ImapSource`.
        ValueError: as for `ImapSource`.
    """
    return ImapSource(
        "imap.gmail.com",
        user=user,
        password=password,
        env=env,
        password_variable=password_variable,
        folder=folder,
        timeout=timeout,
        max_batch=max_batch,
        authserv_id="mx.google.com",
        clock=clock,
    )


def _check(holds: bool, msg: str) -> None:
    if not holds:
        raise ValueError(msg)


def _check_text(name: str, value: str) -> None:
    holds = bool(value.strip()) and not any(char in value for char in "\r\n\0")
    _check(holds, f"{name} is text of one line, not {value!r}")
