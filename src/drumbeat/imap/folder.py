"""What came into a folder after a mark: the commands to a server, and what its answers mean."""

import imaplib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import attrs

from drumbeat.core.model import MailBatch, MailMessage
from drumbeat.errors import MailError, Problem
from drumbeat.imap.authentication import dmarc_result
from drumbeat.imap.headers import Headers, message_id, parse_headers
from drumbeat.imap.mark import Mark, format_mark

__all__ = ["MAX_HEADERS", "Folder"]

MAX_HEADERS = 256 * 1024
_HEADER = f"BODY.PEEK[HEADER]<0.{MAX_HEADERS}>"
# Strangers may make each message as large as it can be, and its headers so that they take long to
# read, seconds for a MiB: a batch has to fit into an answer, and to be read in the time of a poll.
_ENOUGH = 4 * 1024 * 1024  # bytes of headers in a batch, give or take one answer
_AT_ONCE = _ENOUGH // MAX_HEADERS  # messages in an answer
_LARGEST = 2**32 - 1  # RFC 3501, section 2.3.1.1
_OVERLAP = timedelta(days=2)  # zones, and clocks that differ
_ROUNDS = 20
_NAMING = ("from", "subject", "date", "message-id")

Fetched = Mapping[bytes, Any]


@attrs.frozen(kw_only=True)
class Folder:
    """A folder of a server that is logged in to."""

    client: Any
    name: str
    max_batch: int
    authserv_id: str | None
    now: datetime

    def read(self, after: Mark | None) -> MailBatch:
        """Return what came after a mark, or with None the present mark.

        Raises:
            MailError: the folder cannot be opened, or has no numbers that last, or some that IMAP
                does not have.
        """
        validity, next_uid = self._open()
        if after is None:
            return MailBatch(messages=(), mark=format_mark(self._present(validity, next_uid)))
        mark = after
        if after.validity != validity or (next_uid is not None and next_uid <= after.uid):
            # A folder that numbers from below what it had given out has forgotten its numbers too.
            until = self._last(next_uid)
            mark = attrs.evolve(after, validity=validity, uid=0, until=until)
        restarted = mark.catching_up
        for _ in range(_ROUNDS):
            restarted = mark.catching_up
            uids = self._following(mark)
            if not uids and not restarted:
                break
            if not uids:
                mark = attrs.evolve(mark, uid=mark.until)
                continue
            messages, mark = self._batch(uids, mark)
            if messages:
                return MailBatch(
                    messages=tuple(messages), mark=format_mark(mark), restarted=restarted
                )
        return MailBatch(messages=(), mark=format_mark(mark), restarted=restarted)

    # ---- where a folder stands

    def _open(self) -> tuple[int, int | None]:
        try:
            facts = self.client.select_folder(self.name, readonly=True)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            if isinstance(error.__context__, OSError) or not str(error).startswith("select failed"):
                raise
            raise MailError(
                Problem(
                    code="mail-folder-missing",
                    message=f"the folder {self.name!r} cannot be opened",
                    remedy="check its name, upper and lower case included, and that this account "
                    "may read it",
                )
            ) from None
        validity = facts.get(b"UIDVALIDITY")
        if not isinstance(validity, int) or b"UIDNOTSTICKY" in facts:
            raise MailError(
                Problem(
                    code="mail-uids-missing",
                    message=f"the server does not number the messages of {self.name!r} for good, "
                    "so what was read cannot be told from what was not",
                    remedy="use another folder or another server",
                )
            )
        next_uid = facts.get(b"UIDNEXT")
        self._check(validity, *([] if next_uid is None else [next_uid]))
        return validity, next_uid

    def _check(self, *numbers: int) -> None:
        """Refuse what no server gives out, before it gets into a mark, which is kept for good."""
        odd = next((each for each in numbers if not 0 <= each <= _LARGEST), None)
        if odd is not None:
            raise MailError(
                Problem(
                    code="mail-protocol",
                    message=f"the server numbers {self.name!r} or a message in it {odd}, and "
                    f"numbers of IMAP are 0 to {_LARGEST}",
                    remedy="see what is wrong with the server; the next poll asks for the same "
                    "mail",
                )
            )

    def _search(self, criteria: Sequence[Any]) -> list[int]:
        found: list[int] = list(self.client.search(criteria))
        self._check(*found)
        return found

    def _last(self, next_uid: int | None) -> int:
        if next_uid is not None:
            return max(next_uid - 1, 0)
        return max(self._search(["UID", "*"]), default=0)

    def _present(self, validity: int, next_uid: int | None) -> Mark:
        """The mark of a folder as it stands, and when the latest of its mail arrived."""
        mark = Mark(validity=validity, uid=self._last(next_uid))
        latest = [uid for uid in self._search(["UID", "*"]) if uid <= mark.uid][-1:]
        if not latest:
            return mark
        born = self._arrived(self._fetch(latest, ["INTERNALDATE"]).get(latest[0], {}))
        return attrs.evolve(mark, born=born, newest=born)

    # ---- what came after a mark

    def _following(self, mark: Mark) -> list[int]:
        """The numbers that follow a mark, ascending, as many as a batch may have."""
        last, since = "*", []
        if mark.catching_up:
            last, since = str(mark.until), _since(mark.newest)
        found = self._search(["UID", f"{mark.uid + 1}:{last}", *since])
        # `5:*` finds the last message although its number be 4.
        return sorted(uid for uid in found if uid > mark.uid)[: self.max_batch]

    def _batch(self, uids: Sequence[int], mark: Mark) -> tuple[list[MailMessage], Mark]:
        items = [_HEADER, "INTERNALDATE"]
        if self.client.has_capability("X-GM-EXT-1"):
            items.append("X-GM-THRID")
        uids, fetched = self._fetch_enough(uids, items)
        messages: list[MailMessage] = []
        ids: set[str] = set()
        newest = mark.newest
        for uid in uids:
            if uid not in fetched:
                continue  # deleted since
            arrived = self._arrived(fetched[uid])
            if mark.catching_up:
                if mark.born is not None and arrived <= mark.born:
                    continue
            else:
                newest = arrived if newest is None else max(newest, arrived)
            headers = _headers(fetched[uid])
            thread = fetched[uid].get(b"X-GM-THRID")
            names = (message_id(headers), _digest(headers), f"{mark.validity}:{uid}")
            name = next(each for each in names if each is not None and each not in ids)
            ids.add(name)
            messages.append(
                MailMessage(
                    id=name,
                    headers=headers,
                    thread_id=None if thread is None else str(thread),
                    dmarc=dmarc_result(headers, self.authserv_id),
                )
            )
        return messages, attrs.evolve(mark, uid=uids[-1], newest=newest)

    def _fetch_enough(
        self, uids: Sequence[int], items: Sequence[str]
    ) -> tuple[Sequence[int], dict[int, Fetched]]:
        """Fetch of the messages in several answers, and say how far down the list that went.

        Raises:
            imaplib.IMAP4.error: the server can give none of the first ones.
        """
        found: dict[int, Fetched] = {}
        size = done = 0
        while done < len(uids) and size < _ENOUGH:
            asked = uids[done : done + _AT_ONCE]
            try:
                part = self._fetch(asked, items)
            except imaplib.IMAP4.abort:
                raise
            except imaplib.IMAP4.error as error:
                if not done or isinstance(error.__context__, OSError):
                    raise
                break  # those before them come, and the next poll begins with these
            found |= part
            done += len(asked)
            size += sum(len(_block(each)) for each in part.values())
        return uids[:done], found

    def _fetch(self, uids: Sequence[int], items: Sequence[str]) -> dict[int, Fetched]:
        """Fetch of several messages; one that the server cannot give is there with nothing.

        Raises:
            imaplib.IMAP4.error: it can give none of them.
        """
        try:
            return self._ask(uids, items)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            if len(uids) == 1 or isinstance(error.__context__, OSError):
                raise
            failure = error
        found: dict[int, Fetched] = {}
        broken: dict[int, Fetched] = {}
        for uid in uids:
            try:
                found |= self._ask([uid], items)
            except imaplib.IMAP4.abort:
                raise
            except imaplib.IMAP4.error:
                broken[uid] = {}
        if len(broken) == len(uids):
            raise failure
        return found | broken

    def _ask(self, uids: Sequence[int], items: Sequence[str]) -> dict[int, Fetched]:
        self.client.allow_an_answer()
        return dict(self.client.fetch(uids, items))

    def _arrived(self, fetched: Fetched) -> datetime:
        """When the server got a message; no wrong date lies beyond the present."""
        said = fetched.get(b"INTERNALDATE")
        return min(said, self.now) if isinstance(said, datetime) else self.now


def _block(fetched: Fetched) -> bytes:
    blocks = (value for name, value in fetched.items() if name.startswith(b"BODY[HEADER]"))
    block = next(blocks, None)
    return block if isinstance(block, bytes) else b""


def _headers(fetched: Fetched) -> Headers:
    block = _block(fetched)
    headers = parse_headers(block)
    if len(block) < MAX_HEADERS:
        return headers
    # What was cut off could change who sent it, so nothing says to whom it was sent either.
    return tuple(each for each in headers if each[0].strip().lower() in _NAMING)


def _digest(headers: Headers) -> str:
    """A name that a message keeps when its folder is numbered anew."""
    return f"headers-{sha256(repr(headers).encode()).hexdigest()[:32]}"


def _since(newest: datetime | None) -> list[Any]:
    return [] if newest is None else ["SINCE", (newest - _OVERLAP).date()]
