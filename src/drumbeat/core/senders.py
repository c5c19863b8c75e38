"""Whose mail starts a run: every reason for dropping a message, in one order."""

import re
import unicodedata
from collections.abc import Callable, Collection
from urllib.parse import unquote

import attrs

from drumbeat.core.mail_addresses import ascii_lower, decoded, mailboxes
from drumbeat.core.model import MailMessage

__all__ = ["MailDecision", "decide_mail", "is_allow_entry"]

_LABEL = r"[^\s@,;:<>()\[\]\\\"*.]+"
_ENTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*)?@{_LABEL}(?:\.{_LABEL})*")
_POST = re.compile(r"<\s*mailto:([^<>?]*)(?:\?[^<>]*)?>", re.IGNORECASE)
_COMMENT = re.compile(r"\([^()]*\)")
_RECIPIENTS = ("to", "cc", "delivered-to")
_NEEDLESS_MAIL = ("bulk", "junk")
_LONGEST_LABEL = 63  # of a domain (RFC 1035); decoding longer ones takes ever longer
# The letters that pass for ASCII ones most often, beside what compatibility forms (NFKC) cover.
_LOOKS = str.maketrans("аеорсухіјѕԁԛԝһӏαορνικυ01ıł。", "aeopcyxijsdqwhlaopvikuolil.")


@attrs.frozen(kw_only=True)
class MailDecision:
    """Whether one message counts, and why not.

    `code` and `reason` are "" for one that counts. `sender` is the one From address, "" where
    there is no such thing, and `subject` is decoded; both are what the sender wrote.
    """

    passes: bool
    code: str
    reason: str
    sender: str
    subject: str


def is_allow_entry(entry: str) -> bool:
    """Whether an entry of `allowFrom` is `addr@domain` or `@domain`; others match nobody."""
    return _ENTRY.fullmatch(entry.strip()) is not None


def decide_mail(
    message: MailMessage,
    *,
    address: str,
    allow_from: Collection[str],
    others: Collection[str] = (),
) -> MailDecision:
    """Decide whether a message may start a run (spec, section 13.2).

    The first of these that holds drops it: it is not addressed to the job
    (`mail-not-addressed`); it has no From (`mail-from-missing`), several (`mail-from-several`) or
    one that cannot be told for sure (`mail-from-unclear`); a machine sent it
    (`mail-auto-submitted`, `mail-return-path-empty`, `mail-mailer-daemon`, `mail-precedence`); it
    is the job's own, or that of another inbox, and came over no list (`mail-own-address`); its
    sender is not listed (`mail-name-only`: a listed address stands in the display name,
    `mail-look-alike`: the domain resembles a listed one, else `mail-unlisted`); its DMARC check
    failed (`mail-dmarc`).

    Addresses and domains are compared exactly, ASCII case aside: a subdomain, a trailing dot,
    another script or an encoded form of a domain is another one.

    Args:
        message: with its headers raw and in order, whatever they hold.
        address: the job's own.
        allow_from: entries as in `allowFrom`; those that are none match nobody.
        others: the addresses of the workspace's other inboxes, from which jobs may write as well:
            two that answer each other would do so for ever. None of them passes by being listed.

    Returns:
        The decision. Nothing in a message makes this raise.
    """
    mail = _Mail(
        message,
        address=ascii_lower(address.strip()),
        others=frozenset(ascii_lower(each.strip()) for each in others),
        allowed=_allowed(allow_from),
    )
    for rule in _RULES:
        found = rule(mail)
        if found is not None:
            return mail.decision(found)
    return mail.decision(None)


@attrs.frozen(kw_only=True)
class _Drop:
    code: str
    reason: str


class _Mail:
    """A message's headers, looked up by name, and what they are compared with."""

    def __init__(
        self,
        message: MailMessage,
        *,
        address: str,
        others: frozenset[str],
        allowed: frozenset[str],
    ) -> None:
        self.message = message
        self.address = address
        self.others = others
        self.allowed = allowed
        self._headers: dict[str, list[str]] = {}
        for name, value in message.headers:
            self._headers.setdefault(ascii_lower(name.strip()), []).append(value)
        self.senders = [each for value in self.all("from") for each in mailboxes(value)]

    def all(self, name: str) -> list[str]:
        return self._headers.get(name, [])

    def words(self, name: str) -> list[str]:
        """The values of a header that is one word, without comments and parameters."""
        plain = (_COMMENT.sub("", value).partition(";")[0] for value in self.all(name))
        return [ascii_lower(value.strip()) for value in plain]

    @property
    def sender(self) -> str:
        sure = [each.address for each in self.senders if not each.doubtful]
        return sure[0] if len(sure) == len(self.senders) == len(self.all("from")) == 1 else ""

    @property
    def over_list(self) -> bool:
        return any(name.startswith("list-") for name in self._headers)

    def decision(self, drop: _Drop | None) -> MailDecision:
        return MailDecision(
            passes=drop is None,
            code="" if drop is None else drop.code,
            reason="" if drop is None else drop.reason,
            sender=self.sender,
            subject=decoded(" ".join(self.all("subject")[:1])),
        )


# ---- rules, in the order in which they are asked


def _not_addressed(mail: _Mail) -> _Drop | None:
    named = [each for name in _RECIPIENTS for value in mail.all(name) for each in mailboxes(value)]
    posts = [unquote(post) for value in mail.all("list-post") for post in _POST.findall(value)]
    addresses = {ascii_lower(each.address) for each in named if not each.doubtful}
    addresses |= {ascii_lower(post.strip()) for post in posts}
    if mail.address and mail.address in addresses:
        return None
    return _Drop(
        code="mail-not-addressed",
        reason="To, Cc, Delivered-To and List-Post do not hold the job's address",
    )


def _from(mail: _Mail) -> _Drop | None:
    headers = mail.all("from")
    if len(headers) > 1 or len(mail.senders) > 1:
        return _Drop(code="mail-from-several", reason="From names several senders")
    if not mail.senders:
        return _Drop(code="mail-from-missing", reason="there is no From")
    if mail.senders[0].doubtful:
        return _Drop(code="mail-from-unclear", reason="From can be read in several ways")
    return None


def _automatic(mail: _Mail) -> _Drop | None:
    if any(word != "no" for word in mail.words("auto-submitted")):
        return _Drop(
            code="mail-auto-submitted", reason="Auto-Submitted says that no person sent it"
        )
    paths = mail.words("return-path")
    if any(path.replace(" ", "") in ("", "<>") for path in paths):
        return _Drop(
            code="mail-return-path-empty", reason="its return path is empty, as that of a bounce"
        )
    origins = (*(path.strip("<>") for path in paths), ascii_lower(mail.sender))
    if any(origin.partition("@")[0] == "mailer-daemon" for origin in origins):
        return _Drop(code="mail-mailer-daemon", reason="a mail server sent it")
    if any(word in _NEEDLESS_MAIL for word in mail.words("precedence")):
        return _Drop(code="mail-precedence", reason="its precedence is bulk or junk")
    return None


def _own(mail: _Mail) -> _Drop | None:
    sender = ascii_lower(mail.sender)
    if mail.over_list or (sender != mail.address and sender not in mail.others):
        return None
    whose = "the job's own address" if sender == mail.address else "another inbox of the workspace"
    return _Drop(code="mail-own-address", reason=f"it comes from {whose} and over no list")


def _unlisted(mail: _Mail) -> _Drop | None:
    sender = ascii_lower(mail.sender)
    domain = sender.rpartition("@")[2]
    if sender in mail.allowed or f"@{domain}" in mail.allowed:
        return None
    shown = ascii_lower(decoded(mail.senders[0].name))
    words = re.split(r"[\s<>\"'(),;:]+", shown)
    if any(
        word in mail.allowed or f"@{word.rpartition('@')[2]}" in mail.allowed
        for word in words
        if "@" in word
    ):
        return _Drop(
            code="mail-name-only", reason="a listed address stands in the display name only"
        )
    listed = {entry.rpartition("@")[2] for entry in mail.allowed}
    if domain not in listed and any(_resembles(domain, each) for each in listed):
        return _Drop(
            code="mail-look-alike", reason="the sender's domain only resembles a listed one"
        )
    return _Drop(code="mail-unlisted", reason="the sender is not in allowFrom")


def _dmarc(mail: _Mail) -> _Drop | None:
    if mail.message.dmarc == "fail":
        return _Drop(code="mail-dmarc", reason="the receiving server found its DMARC check failed")
    return None


_RULES: tuple[Callable[[_Mail], _Drop | None], ...] = (
    _not_addressed,
    _from,
    _automatic,
    _own,
    _unlisted,
    _dmarc,
)


def _allowed(entries: Collection[str]) -> frozenset[str]:
    return frozenset(ascii_lower(entry.strip()) for entry in entries if is_allow_entry(entry))


# ---- domains that resemble each other


def _resembles(domain: str, listed: str) -> bool:
    """Whether a person might take one domain for the other; it decides about the reason alone."""
    skeleton = _skeleton(domain)
    return skeleton == _skeleton(listed) or f".{listed}." in f".{domain}."


def _skeleton(domain: str) -> str:
    labels = [_unicode_label(label) for label in domain.strip(".").split(".")]
    plain = unicodedata.normalize("NFKC", ".".join(labels)).casefold().translate(_LOOKS)
    marked = unicodedata.normalize("NFKD", plain)
    bare = "".join(char for char in marked if not unicodedata.combining(char))
    return bare.replace("rn", "m").replace("vv", "w").replace("-", "").strip(".")


def _unicode_label(label: str) -> str:
    if not label.startswith("xn--") or len(label) > _LONGEST_LABEL:
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return label
