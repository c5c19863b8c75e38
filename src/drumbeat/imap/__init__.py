"""Mail over IMAP: needs the extra `drumbeat[imap]`."""

from drumbeat.imap.source import ImapSource, gmail

__all__ = ["ImapSource", "gmail"]
