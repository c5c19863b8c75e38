"""Mail over IMAP: needs the extra `drumbeat[imap]`."""

from drumbeat.errors import extra_missing

try:
    from drumbeat.imap.source import ImapSource, gmail
except ModuleNotFoundError as _error:
    raise extra_missing(_error, "drumbeat.imap", extra="imap", brings="imapclient") from None

__all__ = ["ImapSource", "gmail"]
