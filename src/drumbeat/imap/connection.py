"""One connection to an IMAP server: what blocks, and how it is ended from outside.

Theory of operation. The library blocks, so it works in a thread. Whoever does not want to wait any
longer calls `Line.hang_up`, which shuts the socket down under it: whatever the thread is waiting
for ends at once, and so does the thread. The socket that is shut down is a duplicate, which stays
the same while the library wraps its own in TLS.
"""

import imaplib
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from threading import Lock
from typing import IO, Any, Literal

import attrs
from imapclient import IMAPClient

from drumbeat.errors import MailError, Problem

__all__ = ["Address", "Line", "Server", "is_loopback", "unreachable"]

Address = tuple[int, int, Any]

MIB = 1024 * 1024
_LONGEST_LINE = 8 * MIB  # the numbers of 800,000 messages
_MOST = 64 * MIB  # of one answer
_FAREWELL = 5.0  # seconds
_REFUSALS = ("AUTHENTICATIONFAILED", "AUTHORIZATIONFAILED", "CONTACTADMIN", "EXPIRED")


@attrs.frozen(kw_only=True)
class Server:
    """Where a mailbox is, and how it is opened."""

    host: str
    port: int
    tls: bool | Literal["starttls"]
    ssl_context: ssl.SSLContext | None
    timeout: float

    def __str__(self) -> str:
        """Return `host:port`."""
        return f"{self.host}:{self.port}"

    def context(self) -> ssl.SSLContext:
        """The host's own context, or one that verifies against the system's trust."""
        return self.ssl_context or ssl.create_default_context()


def is_loopback(host: str) -> bool:
    """Whether a host is this machine whatever the name service says."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def unreachable(server: object, why: str) -> MailError:
    """What a poll raises when the server does not answer."""
    return MailError(
        Problem(
            code="mail-unreachable",
            message=f"the mail server {server} does not answer: {why}",
            remedy="check the host and the port, and that this machine may connect to it; the "
            "next poll asks for the same mail",
        )
    )


class Line:
    """A connection that another thread may end at any moment."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._over = False
        self.said_bye = False

    def hang_up(self) -> None:
        """End whatever is going on, now and later; harmless when nothing is."""
        with self._lock:
            self._over = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended by itself

    def close(self) -> None:
        """Give the duplicate back; the library closes its own socket."""
        with self._lock:
            self._over = True
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def connect(self, addresses: Sequence[Address], timeout: float) -> socket.socket:
        """Connect to the first address that answers.

        Raises:
            OSError: none does, or the line was hung up.
        """
        failure: OSError = ConnectionError("it has no address")
        for family, kind, address in addresses:
            made = socket.socket(family, kind)
            try:
                made.settimeout(timeout / len(addresses))
                # The library sends a command in pieces, and each would wait for the one before.
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._use(made)
                made.connect(address)
                made.settimeout(timeout)
                self._use(made.dup())
            except OSError as error:
                made.close()
                failure = error
            else:
                return made
        raise failure

    def _use(self, made: socket.socket) -> None:
        with self._lock:
            if self._over:
                made.close()
                msg = "the connection was ended"
                raise ConnectionAbortedError(msg)
            self._socket = made

    @contextmanager
    def entered(
        self, server: Server, addresses: Sequence[Address], user: str, password: str
    ) -> Iterator[IMAPClient]:
        """Connect and log in; log out and close at the end, without a word when that fails.

        Raises:
            MailError: the server cannot be reached, is not whom it claims to be, refuses the
                login, or says what IMAP does not know.
        """
        made: socket.socket | None = None
        client: IMAPClient | None = None
        try:
            with self.translated(server, "the greeting"):
                made = self.connect(addresses, server.timeout)
                if server.tls is True:
                    made = self._secured(server, made)
                client = _Client(made, server, self)
            with self.translated(server, "STARTTLS"):
                if server.tls == "starttls":
                    self._start_tls(server, client)
            with self.translated(server, "the login"):
                _log_in(client, server, user, password)
            yield client
            try:
                client.socket().settimeout(min(server.timeout, _FAREWELL))
                client.logout()
            except (OSError, imaplib.IMAP4.error):
                pass  # everything that was asked for has come
        finally:
            if client is not None:
                try:
                    client.shutdown()  # closes what it reads from too
                except OSError:
                    pass  # it is closed
            if made is not None:
                made.close()
            self.close()

    def _secured(self, server: Server, made: socket.socket) -> socket.socket:
        try:
            return server.context().wrap_socket(made, server_hostname=server.host)
        except BaseException:
            made.close()
            raise

    def _start_tls(self, server: Server, client: IMAPClient) -> None:
        if not client.has_capability("STARTTLS"):
            raise _tls(server, "it offers no STARTTLS")
        client.starttls(server.context())

    @contextmanager
    def translated(self, server: Server, what: str) -> Iterator[None]:
        """Turn what the library and the system raise into a `MailError`.

        Nothing of what the server said is repeated, and no cause is kept: it may quote the
        password.

        Raises:
            MailError: anything went wrong in the block.
        """
        try:
            yield
        except MailError:
            raise
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or type(error).__name__
            raise _tls(server, str(why)) from None
        except OSError as error:
            raise unreachable(server, error.strerror or str(error)) from None
        except Exception as error:  # noqa: BLE001  the library raises whatever odd bytes lead to
            if self.said_bye or _stems_from(error, OSError):
                raise unreachable(server, f"it ended the connection at {what}") from None
            raise MailError(
                Problem(
                    code="mail-protocol",
                    message=f"the mail server {server} answered {what} with what cannot be "
                    f"understood ({type(error).__name__})",
                    remedy="check that an IMAP server listens at this port, and that `tls` fits it",
                )
            ) from None


def _stems_from(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__context__
    return False


def _tls(server: Server, why: str) -> MailError:
    return MailError(
        Problem(
            code="mail-tls",
            message=f"there is no trusted TLS connection to the mail server {server}: {why}",
            remedy="use the name that its certificate has, and give an `ssl_context` that trusts "
            "who signed it; check that `tls` fits the port",
        )
    )


def _log_in(client: IMAPClient, server: Server, user: str, password: str) -> None:
    code = ""
    try:
        if client.has_capability("LOGINDISABLED"):
            code = "LOGINDISABLED"
        elif user.isascii() and password.isascii():
            # The library quotes the password alone, and a user may be DOMAIN\\name.
            quoted = user.replace("\\", "\\\\").replace('"', '\\"')
            client.login(f'"{quoted}"', password)
            return
        else:
            client.plain_login(user, password)
            return
    except imaplib.IMAP4.abort:
        raise
    except imaplib.IMAP4.error as error:
        if _stems_from(error, imaplib.IMAP4.abort):
            raise  # nobody refused anything: the connection broke
        said = str(error)
        if "[UNAVAILABLE]" in said:
            raise unreachable(server, "it cannot check a login for now") from None
        code = next((each for each in _REFUSALS if f"[{each}]" in said), "")
    because = f" ({code})" if code else ""
    raise MailError(
        Problem(
            code="mail-login-refused",
            message=f"the mail server {server} refused the login of {user}{because}",
            remedy="check the user name and the password; where the account has a second factor, "
            "make an app password. LOGINDISABLED: the server wants TLS, or another way to log in",
        )
    )


class _Client(IMAPClient):  # type: ignore[misc]  # the library ships no types
    """The library over a socket that is connected already."""

    def __init__(self, made: socket.socket, server: Server, line: Line) -> None:
        self._made = made
        self._line = line
        super().__init__(server.host, server.port, ssl=False, timeout=server.timeout)
        self.normalise_times = False

    def _create_IMAP4(self) -> imaplib.IMAP4:  # noqa: N802  the seam that the library has for it
        return _Wire(self._made, self.host, self._line)

    def allow_an_answer(self) -> None:
        """Let the next answer be as long as any."""
        self._imap.left = _MOST


class _Wire(imaplib.IMAP4):
    """Reads no more than an answer may have; a connection that ends is an `OSError`."""

    def __init__(self, made: socket.socket, host: str, line: Line) -> None:
        self._made = made
        self._line = line
        self._read_from: tuple[socket.socket, IO[bytes]] | None = None
        self.left = _MOST
        super().__init__(host)  # by which STARTTLS checks the certificate

    def _create_socket(self, timeout: float | None = None) -> socket.socket:
        return self._made

    def read(self, size: int) -> bytes:
        self._spend(size)
        data: bytes = self._binary().read(size)
        if len(data) < size:
            raise _ended()
        return data

    def readline(self) -> bytes:
        data: bytes = self._binary().readline(min(_LONGEST_LINE, self.left) + 1)
        self._spend(len(data))
        if not data.endswith(b"\n"):
            if len(data) > _LONGEST_LINE:
                msg = "a line is too long"
                raise self.abort(msg)
            raise _ended()
        if data[:5].upper() == b"* BYE":
            self._line.said_bye = True
        return data

    def _binary(self) -> IO[bytes]:
        """What the socket says, as a file of our own: the library's is its own affair.

        STARTTLS puts another socket in place, and what came before it in the clear counts no more.
        """
        if self._read_from is None or self._read_from[0] is not self.sock:
            self._close_file()
            self._read_from = (self.sock, self.sock.makefile("rb"))
        return self._read_from[1]

    def _close_file(self) -> None:
        if self._read_from is not None:
            self._read_from[1].close()

    def shutdown(self) -> None:
        # The socket stays open for as long as a file of it does.
        self._close_file()
        super().shutdown()

    def _spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            msg = "an answer is too long"
            raise self.abort(msg)


def _ended() -> ConnectionError:
    return ConnectionError("it ended the connection")
