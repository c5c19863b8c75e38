"""A mailbox that a test fills."""

from datetime import UTC, datetime
from email.utils import format_datetime

from drumbeat.core.model import MailBatch, MailMessage
from drumbeat.protocols import MailSource

__all__ = ["ScriptedMailbox"]

_DATE = datetime(2026, 1, 1, tzinfo=UTC)


class ScriptedMailbox(MailSource):
    """A mail source whose messages are put in by `send`.

    As a host's test would use it::

        mailbox = ScriptedMailbox()
        async with Engine(folder, agent=agent, mail={"imap": mailbox}, clock=clock) as engine:
            await clock.advance(timedelta(minutes=1))  # the first poll only sets the mark
            mailbox.send("ann@example.com", "desk@example.org", "A question")
            (run,) = await drive(engine, until=clock.now() + timedelta(minutes=5))

    Attributes:
        messages: what has arrived, oldest first.
        polls: the mark with which each poll asked, None for one that asked for the present mark.

    Args:
        limit: how many messages one batch holds at most.
    """

    def __init__(self, *, limit: int = 100) -> None:
        self.messages: list[MailMessage] = []
        self.polls: list[str | None] = []
        self._limit = limit
        self._numbering = 1

    def send(self, sender: str, to: str, subject: str = "", **headers: str) -> MailMessage:
        """Let a message arrive.

        Args:
            sender: its From, as it stands there.
            to: its To, as it stands there.
            subject: its Subject.
            headers: further ones, `_` for `-`; they take the place of those that it has otherwise.
        """
        number = len(self.messages) + 1
        given = {
            "from": sender,
            "to": to,
            "subject": subject,
            "date": format_datetime(_DATE),
            "message-id": f"<{number}@scripted.example>",
            **{name.replace("_", "-").lower(): value for name, value in headers.items()},
        }
        message = MailMessage(id=str(number), headers=tuple(given.items()), thread_id=str(number))
        self.messages.append(message)
        return message

    def renumber(self) -> None:
        """Number all messages anew, as a mail server does that was restored from a copy."""
        self._numbering += 1

    async def poll(self, address: str, after: str | None, /) -> MailBatch:
        """As `MailSource.poll`; what is addressed to somebody else is returned all the same."""
        self.polls.append(after)
        count = len(self.messages)
        if after is None:
            return MailBatch(messages=(), mark=f"{self._numbering}:{count}:0")
        numbering, begin, renumbered = (int(part) for part in after.split(":"))
        if numbering != self._numbering:
            begin, renumbered = 0, count
        end = min(count, begin + self._limit)
        return MailBatch(
            messages=tuple(self.messages[begin:end]),
            mark=f"{self._numbering}:{end}:{renumbered}",
            restarted=begin < renumbered,
        )
