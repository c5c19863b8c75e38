"""Mail over IMAP: needs the extra `drumbeat[imap]`."""

from drumbeat.errors import extra_missing

try:
    from drumbeat.imap.source import ImapSource, gmail
except ModuleNotFoundError as error:
    raise extra_missing(error, "drumbeat.imap", extra="imap", brings="imapclient") from None

__all__ = ["ImapSource", "gmail"]
