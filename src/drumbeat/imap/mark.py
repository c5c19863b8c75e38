"""How far a folder was read, as the text that a poll gives back and is given again.

Theory of operation. A server numbers the messages of a folder (UID) for as long as UIDVALIDITY
stays as it is; when that changes, the numbers mean nothing any more. A source keeps no state, so
the mark says what is needed to go on from there: mail is read again from two days before the
`newest` that had been known, up to `until`, the highest number at that moment. What had arrived by
`born`, before the first poll, is passed over then as it was passed over at first.
"""

import re
from datetime import UTC, datetime

import attrs

from drumbeat.errors import MailError, Problem

__all__ = ["Mark", "format_mark", "parse_mark"]

_MARK = re.compile(r"imap1" + r":(0|[1-9]\d{0,9})" * 3 + r":(0|[1-9]\d{0,10})" * 2, re.ASCII)


@attrs.frozen(kw_only=True)
class Mark:
    """What a folder was read up to.

    `born` and `newest` are the server's times of arrival, None for none; `until` is 0 but after
    UIDVALIDITY changed.
    """

    validity: int
    uid: int
    until: int = 0
    born: datetime | None = None
    newest: datetime | None = None

    @property
    def catching_up(self) -> bool:
        """Whether what follows was there when UIDVALIDITY changed."""
        return self.uid < self.until


def format_mark(mark: Mark) -> str:
    """Write a mark; its times in whole seconds."""
    until = mark.until if mark.catching_up else 0
    return f"imap1:{mark.validity}:{mark.uid}:{until}:{_seconds(mark.born)}:{_seconds(mark.newest)}"


def parse_mark(text: str) -> Mark:
    """Read a mark.

    Raises:
        MailError: it is none of an IMAP source (`mail-mark-unknown`).
    """
    match = _MARK.fullmatch(text)
    if match is None:
        raise MailError(
            Problem(
                code="mail-mark-unknown",
                message="the mark of this mailbox was not made by an IMAP source",
                remedy="give the source another system name: polling then begins with the mail "
                "that arrives from that time on",
            )
        )
    validity, uid, until, born, newest = map(int, match.groups())
    return Mark(validity=validity, uid=uid, until=until, born=_time(born), newest=_time(newest))


def _seconds(time: datetime | None) -> int:
    return 0 if time is None else max(int(time.timestamp()), 0)


def _time(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
