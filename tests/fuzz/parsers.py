"""Everything that reads what others wrote: its examples, its words, and what it may answer.

Each `Parser` has one function that hands an input in and judges the answer. It raises `Broken` for
an answer that breaks the contract; any other exception is one that is not documented.
"""

import base64
import hmac
import json
import pickle
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePath
from zoneinfo import ZoneInfo

from drumbeat.agents.command import _parse as parse_reply
from drumbeat.agents.command import _Unusable
from drumbeat.core.automation_file import validate_automation_content
from drumbeat.core.ceilings import is_context_ceiling
from drumbeat.core.config_layers import config_hash, read_operator_config, read_workspace_config
from drumbeat.core.drafting import read_draft
from drumbeat.core.filters import parse_filter, read_payload
from drumbeat.core.inbox import Standing, Unreadable
from drumbeat.core.job_file import validate_job_content
from drumbeat.core.lint import lint_automation
from drumbeat.core.mail_addresses import mailboxes
from drumbeat.core.model import Accepted, Ignored, MailMessage, Refused, WebhookTrigger
from drumbeat.core.notify import evaluate_notify
from drumbeat.core.pack_file import read_pack_file
from drumbeat.core.redaction import Redactor
from drumbeat.core.repo_address import repo_host, repo_problem
from drumbeat.core.schedule import format_schedule, missed_slots, next_fire, parse_schedule
from drumbeat.core.senders import decide_mail, is_allow_entry
from drumbeat.core.signatures import parse_auth
from drumbeat.core.slug import slug_clashes, slug_problem
from drumbeat.core.vocabulary import AUTOMATION, JOB
from drumbeat.core.webhooks import check_webhook
from drumbeat.errors import (
    AgentError,
    AutomationError,
    DrumbeatError,
    InvalidValue,
    MailError,
    Problem,
    ScheduleError,
    StoreError,
    WorkspaceError,
)
from drumbeat.imap.authentication import dmarc_result
from drumbeat.imap.headers import message_id, parse_headers
from drumbeat.imap.mark import format_mark, parse_mark
from drumbeat.runtime.packs import read_packs
from drumbeat.runtime.pins import _Damaged
from drumbeat.runtime.pins import _parsed as parse_pins
from drumbeat.web.follow_ups import _read as read_follow_up

__all__ = ["PARSERS", "Broken", "Parser"]

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
NOW = datetime(2026, 3, 28, 22, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
SECRET = "s3cret-of-the-doors"
_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST = 2000
"""Characters: no problem is longer, whatever it is about; people read it on a screen."""


class Broken(AssertionError):  # noqa: N818  it says what an answer is
    """An answer that the contract does not know."""


@dataclass(frozen=True, kw_only=True)
class Parser:
    """One thing that reads what others wrote."""

    name: str
    answer: Callable[[str | bytes], None]
    examples: Sequence[str]
    words: Sequence[str]
    slow: bool = False
    """Reads YAML: milliseconds, not microseconds."""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Broken(what)


def sound(problems: Iterable[Problem]) -> None:
    """Each problem can be shown, logged and stored, and says where, what and how to mend it."""
    problems = tuple(problems)
    for one in problems:
        expect(_CODE.fullmatch(one.code) is not None, f"a code {one.code!r}")
        expect(bool(one.message.strip()), "no message")
        for said in (one.message, one.remedy):
            expect("\n" not in said and "\r" not in said, f"several lines: {said!r}")
            expect(said.isprintable(), f"cannot be shown: {said!r}")
            said.encode()
        expect(len(str(one)) <= _LONGEST, f"{len(str(one))} characters: {one.code}")
        expect(one.line is None or one.line >= 1, f"line {one.line}")
        expect(one.column is None or one.column >= 1, f"column {one.column}")


def kept(error: DrumbeatError) -> None:
    """The error survives its way to another process."""
    expect(str(pickle.loads(pickle.dumps(error))) == str(error), "changed by pickling")


def text_of(content: str | bytes) -> str:
    return content if isinstance(content, str) else content.decode("utf-8", "surrogateescape")


def bytes_of(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")


# ---- files


def automation(content: str | bytes) -> None:
    try:
        value = validate_automation_content(content, path=PurePath("automations/a.md"))
    except AutomationError as error:
        sound(error.problems)
        kept(error)
        return
    expect(bool(value.steps) and all(step.prompt.strip() for step in value.steps), "no steps")
    json.dumps(value.agent_config, allow_nan=False)


def job(content: str | bytes) -> None:
    try:
        value = validate_job_content(content, path=PurePath("jobs/a.md"))
    except AutomationError as error:
        sound(error.problems)
        kept(error)
        return
    expect(bool(value.steps[0].prompt.strip()), "no prompt")
    for trigger in value.triggers:
        if isinstance(trigger, WebhookTrigger):
            parse_auth(trigger.auth)
            expect(trigger.filter is None or bool(parse_filter(trigger.filter)), "no filter")


def lint(content: str | bytes) -> None:
    path = PurePath(("automations", "jobs")[len(content) % 2], "a.md")
    try:
        findings = lint_automation(content, path=path, zone=BERLIN, now=NOW)
    except AutomationError:
        return  # which the two above look at
    sound(findings)


def agent_config(content: str | bytes) -> None:
    try:
        config = read_workspace_config(content, path=PurePath("agent-config.yaml"))
        config_hash(config.default)
    except WorkspaceError as error:
        sound(error.problems)
        kept(error)


def operator_config(content: str | bytes) -> None:
    try:
        config_hash(read_operator_config(content, path=PurePath("operator.yaml")))
    except WorkspaceError as error:
        sound(error.problems)


def pack_file(content: str | bytes) -> None:
    try:
        pack = read_pack_file(content, path=PurePath("drumpack.md"))
    except WorkspaceError as error:
        sound(error.problems)
        return
    expect(bool(pack.card.strip()) and bool(pack.tools), "no card or no tools")


class _PackList:
    """`drumpacks.txt` in a workspace that has one pack, and mostly in one that has none."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __call__(self, content: str | bytes) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
            self._lay_out(Path(self._folder.name))
        workspace = Path(self._folder.name, "without" if len(content) % 8 else "with")
        (workspace / "drumpacks.txt").write_bytes(bytes_of(content))
        try:
            _packs, problems = read_packs(workspace)
        except WorkspaceError as error:
            problems = error.problems
        sound(problems)

    def _lay_out(self, folder: Path) -> None:
        tools = folder / "with" / "drumpacks" / "mail" / "bin"
        tools.mkdir(parents=True)
        (tools / "mailbox").write_text("#!/bin/sh\n")
        (tools / "mailbox").chmod(0o755)
        card = (CORPUS / "packs" / "good" / "smallest.md").read_text()
        (tools.parent / "drumpack.md").write_text(card)
        (folder / "without").mkdir()


# ---- values


def schedule(content: str | bytes) -> None:
    text = text_of(content)
    try:
        value = parse_schedule(text)
    except ScheduleError as error:
        sound([error.problem])
        kept(error)
        column = error.problem.column
        expect(column is not None and column <= len(text) + 1, f"column {column} of {len(text)}")
        return
    expect(parse_schedule(format_schedule(value)) == value, "not read back")
    try:
        slot = next_fire(value, after=NOW, zone=BERLIN)
    except ScheduleError as error:
        expect(error.problem.code == "schedule-never", error.problem.code)
        return
    expect(slot > NOW, "not later")
    if hasattr(value, "at") or hasattr(value, "expression"):
        count, newest = missed_slots(value, after=NOW, until=slot, zone=BERLIN)
        expect((count, newest) == (1, slot), "not the one slot")


def webhook_filter(content: str | bytes) -> None:
    """The expression up to the first line end, and a body behind it."""
    text, _, body = text_of(content).partition("\n")
    try:
        payload = read_payload(body.encode("utf-8", "surrogatepass"))
    except ValueError:
        payload = body
    try:
        expression = parse_filter(text)
    except InvalidValue as error:
        sound([error.problem])
        column = error.problem.column
        expect(column is not None and column <= len(text) + 1, f"column {column} of {len(text)}")
        return
    expect(expression.matches(payload) in (True, False), "neither yes nor no")


def webhook(content: str | bytes) -> None:
    """First line: scheme and filter; header lines; an empty line; the body.

    `{sign}` in a header stands for the right signature of the body, so that what lies behind the
    check is reached too.
    """
    head, _, body_text = text_of(content).partition("\n\n")
    body = body_text.encode("utf-8", "surrogateescape" if isinstance(content, bytes) else "replace")
    first, *lines = head.split("\n")
    scheme, _, condition = first.partition(" ")
    headers = [line.partition(":")[::2] for line in lines]
    trigger = WebhookTrigger(route="r", auth=scheme, filter=condition or None)
    stamp = str(int(NOW.timestamp()))
    given = {name: _signed(value, scheme, stamp, body) for name, value in headers}
    secrets = {
        "AGENT_API_SECRET": SECRET,
        "SLACK_SIGNING_SECRET": SECRET,
        "SVIX_SECRET": "whsec_" + base64.b64encode(SECRET.encode()).decode(),
    }
    try:
        answer = check_webhook(
            trigger, method="POST", headers=given, body=body, secrets=secrets, now=NOW
        )
    except InvalidValue as error:
        sound([error.problem])
        return
    if isinstance(answer, Accepted):
        slot = answer.slot
        expect(slot is None or (slot.isprintable() and len(slot) <= 255), f"a slot {slot!r}")
        proofs = ("{sign}", SECRET, _BASIC)
        known = any(proof in value for _, value in headers for proof in proofs)
        expect(known or scheme == "basic", "a stranger is let in")
        if slot is not None:
            slot.encode()
    elif isinstance(answer, Refused):
        expect(answer.status in (400, 401, 405, 503), f"status {answer.status}")
        expect(SECRET not in answer.reason, "tells the secret")
        answer.reason.encode()
    else:
        expect(isinstance(answer, Ignored), "no answer")
        answer.reason.encode()


def _signed(value: str, scheme: str, stamp: str, body: bytes) -> str:
    value = value.replace("{now}", stamp)
    if "{sign}" not in value:
        return value
    signed = {
        "slack": b"v0:" + stamp.encode() + b":" + body,
        "svix": b"msg_1." + stamp.encode() + b"." + body,
    }.get(scheme, body)
    digest = hmac.new(SECRET.encode(), signed, sha256)
    sign = base64.b64encode(digest.digest()).decode() if scheme == "svix" else digest.hexdigest()
    return value.replace("{sign}", sign)


def mail(content: str | bytes) -> None:
    """A block of headers; `X-Allow` is what the job's `allowFrom` says."""
    if isinstance(content, bytes):
        headers = parse_headers(content)
    else:
        pairs = (line.partition(":")[::2] for line in content.split("\n"))
        headers = tuple((name, value.strip()) for name, value in pairs)
    allowed = [each for name, value in headers if name == "X-Allow" for each in value.split(",")]
    found = dmarc_result(headers, "mx.acme.example")
    message = MailMessage(id="1", headers=headers, dmarc=found)
    decision = decide_mail(
        message, address="desk@acme.example", allow_from=[*allowed, "@friends.example"]
    )
    expect(decision.passes == (not decision.code), "neither passes nor is dropped")
    expect(bool(decision.code) == bool(decision.reason), "no reason")
    if decision.passes:
        sender = decision.sender.lower()
        known = [each.strip().lower() for each in (*allowed, "@friends.example")]
        expect(sender in known or f"@{sender.rpartition('@')[2]}" in known, "a stranger passes")
        expect(found != "fail", "passes although DMARC failed")
    for entry in allowed:
        is_allow_entry(entry)
    message_id(headers)


def mail_address(content: str | bytes) -> None:
    for mailbox in mailboxes(text_of(content)):
        expect(mailbox.doubtful or mailbox.address.count("@") >= 1, "a sure address without @")


def mail_authentication(content: str | bytes) -> None:
    value = text_of(content)
    results = [("Authentication-Results", each) for each in value.split("\n")]
    expect(dmarc_result(results, "mx.acme.example") in ("pass", "fail", None), "no result")
    expect(dmarc_result(results, None) is None, "trusts nobody's server")


def mail_mark(content: str | bytes) -> None:
    text = text_of(content)
    try:
        mark = parse_mark(text)
    except MailError as error:
        sound([error.problem])
        return
    expect(parse_mark(format_mark(mark)).uid == mark.uid, "not read back")


def repository(content: str | bytes) -> None:
    text = text_of(content)
    problem = repo_problem(text)
    if problem is not None:
        sound([problem])
        return
    expect(not text.startswith("-"), "an option of git")
    host = repo_host(text)
    expect((host is None) == text.startswith("file:"), f"no host of {text!r}")


def slug(content: str | bytes) -> None:
    text = text_of(content)
    path = PurePath("automations") / "a.md"
    problem = slug_problem(text, path)
    if problem is not None:
        sound([problem])
    else:
        expect("/" not in text and not text.startswith(".") and text.isascii(), "no slug")
        sound(slug_clashes([PurePath(f"jobs/{text}.md"), PurePath(f"automations/{text}.md")]))


def reply(content: str | bytes) -> None:
    try:
        answer = parse_reply(bytes_of(content))
    except (AgentError, _Unusable) as error:
        str(error).encode()
        expect(len(str(error)) <= 100_000, "an error longer than a log")
        return
    answer.reply.text.encode()


def follow_up(content: str | bytes) -> None:
    asked = read_follow_up(bytes_of(content))
    if isinstance(asked, str):
        asked.encode()
        expect(len(asked) <= _LONGEST, "a long reason")


def pins(content: str | bytes) -> None:
    try:
        parse_pins(bytes_of(content), PurePath("session_pins.json"))  # type: ignore[arg-type]
    except _Damaged:
        return
    except StoreError as error:
        sound([error.problem])


def inbox_mark(content: str | bytes) -> None:
    try:
        value = json.loads(bytes_of(content))
    except (ValueError, RecursionError):
        return
    standing = Standing.from_json(value)
    expect(
        isinstance(standing, Unreadable) or Standing.from_json(standing.to_json()) == standing,
        "not read back",
    )


# ---- what an agent says

_REDACTOR = Redactor({"KEY": "sk-0123456789abcdef", "OTHER": "hunter2hunter2", "LONG": "ab" * 40})


_WAYS = (
    ("always", False),
    ("never", False),
    ("auto", False),
    ("auto", True),
    ("urgent-only", False),
    ("urgent-only", True),
)


def said(content: str | bytes) -> None:
    text = text_of(content)
    policy, judged = _WAYS[len(text) % len(_WAYS)]
    decision = evaluate_notify(policy, text, judgment=text if judged else None)
    expect(bool(decision.reason), "no reason")
    silent = decision.verdict == "withhold" and decision.gate == "nothing-to-report"
    expect(not silent or text.strip() == "NOTHING_TO_REPORT", "withheld by near the sentinel")
    is_context_ceiling(text)


def redaction(content: str | bytes) -> None:
    shown = _REDACTOR.text(text_of(content))
    for value in ("sk-0123456789abcdef", "hunter2hunter2", "ab" * 40):
        expect(value not in shown, "a secret shows")


def draft(content: str | bytes) -> None:
    answer = read_draft(text_of(content))
    if isinstance(answer, Problem):
        sound([answer])
    else:
        expect(bool(answer.slug) and "/" not in answer.slug, "a way out of the folder")


# ---- all of them


def _files(*patterns: str) -> list[str]:
    found = [
        path.read_bytes().decode("utf-8", "surrogateescape")
        for pattern in patterns
        for path in sorted(ROOT.glob(pattern))
    ]
    return [text for text in found if len(text) < 1500]


_YAML = (
    "---\n", "- ", "? ", ": ", "key: ", "!!str ", "&a ", "*a", "<<: ", "|\n", ">-\n", "'", '"',
    "[", "]", "{", "}",
    "# ", "%YAML 1.1\n", "...\n", "~", "null", "true", "off", "2026-03-01", '"\\ud800"', '"\\0"',
    "\n  ", "@", "`",
)  # fmt: skip
_AUTOMATION_WORDS = (
    *_YAML, *(f"{name}: " for name in AUTOMATION.names), "automation:", "session:",
    "every 5 minutes", "daily at 02:30",
    "0 7 * * 1-5", "*/7 * * * *", "schedule", "manual", "event", "urgent-only",
    "NOTHING_TO_REPORT", "URGENT:",
    "guidance/x.md", "provider:", "api_key: ", "id: ", "prompt: ", "argv: ", "label: ", "1. ",
    "```\n",
)  # fmt: skip
_JOB_WORDS = (
    *_YAML, *(f"{name}: " for name in JOB.names), "0 7 1 * MON", "hmac:X-S", "slack",
    "a.b==c && d~=e", "imap:desk@a.example",
    "@friends.example", "https://github.com/a/b", "86400", "get", "post",
)  # fmt: skip
_CONFIG = (
    "default:\n  provider:\n    module: m\n    config: {default_model: x, temperature: 0.5}\n",
    "default: {skills: [a, b], debug: true}\nprofiles:\n  quick:\n    provider: {module: small}\n",
    "profiles: {}\n",
    '{"default": {"mcp": {"servers": [{"url": "https://x.example"}]}}}\n',
)
_OPERATOR = ("provider: {module: m, config: {default_model: x}}\nmcp: {a: [1, 2.5, no]}\n", "{}\n")
_JSON = (
    "{", "}", "[", "]", ",", ":", '"', '"a"', "null", "true", "NaN", "Infinity", "1e999", "-0",
    "1.50", '"\\ud800"',
    '"\\u0000"', '{"a":1,"a":2}',
)  # fmt: skip
_PAYLOAD = (
    '{"action":"opened","a":{"b":[1,1.50,null,{"c":"d e"}]},"type":"event_callback",'
    '"event_id":"Ev1"}'
)
_BASIC = base64.b64encode(f"u:{SECRET}".encode()).decode()
_REQUESTS = (
    "bearer\nAuthorization: Bearer " + SECRET + "\nIdempotency-Key: 1\n\n" + _PAYLOAD,
    "basic action==opened\nAuthorization: Basic " + _BASIC + "\n\n" + _PAYLOAD,
    "github a.b.3.c~=d\nX-Hub-Signature-256: sha256={sign}\nX-GitHub-Delivery: 72d3\n\n" + _PAYLOAD,
    f"gitlab\nX-Gitlab-Token: {SECRET}\n\n" + _PAYLOAD,
    "hmac:X-Sig a.b.0==1 && a.b.1==1.50 || x!=y\nX-Sig: {sign}\n\n" + _PAYLOAD,
    "slack\nX-Slack-Request-Timestamp: {now}\nX-Slack-Signature: v0={sign}\n\n" + _PAYLOAD,
    "slack\nX-Slack-Request-Timestamp: {now}\nX-Slack-Signature: v0={sign}\n\n"
    '{"type":"url_verification","challenge":"c"}',
    "svix\nsvix-id: msg_1\nsvix-timestamp: {now}\nsvix-signature: v1,{sign} v1,AAAA\n\n" + _PAYLOAD,
    "svix\nwebhook-id: msg_1\nwebhook-timestamp: {now}\nwebhook-signature: v1,{sign}\n\n"
    + _PAYLOAD,
)
_MAILS = (
    "From: Ann <ann@friends.example>\nTo: desk@acme.example\nSubject: =?utf-8?q?hi?=\n"
    "Message-ID: <1@x.example>\n"
    "Authentication-Results: mx.acme.example; dmarc=pass header.from=x\n",
    'From: "ann@friends.example" <bob@evil.example>\nTo: desk@acme.example\nReturn-Path: <>\n',
    "X-Allow: ann@x.example, @y.example\nFrom: ann@x.example (c (d)), Bob: b@y.example;\n"
    "Cc: Desk <desk@acme.example>\nAuto-Submitted: no; x=y\nPrecedence: bulk\nList-Id: <l>\n",
    "From: =?utf-8?b?w6k=?= <a@xn--bcher-kva.example>\nDelivered-To: desk@acme.example\n"
    "List-Post: <mailto:desk%40acme.example?subject=x>\nReturn-Path: <MAILER-DAEMON@x.example>\n",
)
_MAIL_WORDS = (
    "From: ", "To: ", "Cc: ", "X-Allow: ", "Return-Path: ", "<>", "<", ">", "@", ",", ";", ":",
    "(", ")", '"', "\\", "\\(",
    "a@b.example", "@friends.example", "ann@friends.example", "desk@acme.example", "=?utf-8?q?a?=",
    "=?utf-8?b?w6k=?=",
    "=?idna?q?xn--?=", "=?", "?=", "xn--", "xn--99999999999", "xn--bcher-kva", "mailto:",
    "<mailto:", "%40", "аnn",
    "dmarc=fail", "dmarc=pass", "mx.acme.example;", "(c)", "\n ", "MAILER-DAEMON", "bulk", "no;",
    ".", "..", "rn",
)  # fmt: skip
_SAID = (
    "NOTHING_TO_REPORT",
    "**NOTHING_TO_REPORT**.",
    "All fine.\nNOTHING_TO_REPORT\n",
    "1. **URGENT**: the disk is full\n```\nURGENT: not this\n```\n",
    "> URGENT:\n> a reason\n",
    "```markdown\nURGENT: this\n```\n",
    "prompt is too long: 210000 tokens > 200000 maximum",
)
_SAID_WORDS = (
    "NOTHING_TO_REPORT", "URGENT", "URGENT:", "URGENT: a", "**", "*", "_", "> ", "- ", "1. ", "1",
    ".", "#", "```", "~~~", "````",
    "\n```\n", "`", "⚠", ":", "：", "maximum context length", "tokens", "context", "token",
    "exceeds", "the ",
)  # fmt: skip
_REPLIES = (
    '{"text":"done","usage":{"input_tokens":1,"output_tokens":2,"cost":0.5},"provider":"p"}',
    '{"text":"","handle":"h","follow_ups":[{"prompt":"Look","after_seconds":60}]}',
    '{"error":{"code":"busy","message":"later","retry_after":5}}',
    '{"error":{"code":"context-ceiling","message":"full"},"usage":null}',
)
_PIN = (
    '{"session_id":"s","fingerprint":"f","provider":null,"day":"2026-03-01",'
    '"at":"2026-03-01T07:00:00+00:00","handle":null}'
)
_SCHEDULES = (
    "every 30 minutes", "every minute", "every 2 hours", "daily at 07:00", "every day at 23:59",
    "0 7 * * 1-5",
    "*/15 9-17 * * MON-FRI", "0 0 L * *", "30 2 1,15 JAN,jun 5#2", "0 12 * * L5",
    "0-59/7 */2 1-31/3 */4 0-6/2", "@daily",
    "5m", "weekdays at 08:30", "*/10 2 * 3 L0", "0 0 29 2 1#5",
)  # fmt: skip
_SCHEDULE_WORDS = (
    "every ", "daily at ", "minutes", "hours", "*", "*/", "/", "-", ",", "L", "#", "MON", "jan",
    "0", "7", "59", "60", "@",
    " ", "  ", "5#5", "LW", "W", "?", "H", "R", ":", "am",
)  # fmt: skip
_FILTERS = (
    f"action==opened && a.b.3.c~=d\n{_PAYLOAD}",
    f"a.b.1==1.50 || a.b.2==null || x!=y\n{_PAYLOAD}",
    f"a!={{}}\n{_PAYLOAD}",
    '0.a==b\n[{"a":"b"}]',
)
_FILTER_WORDS = (
    "==", "!=", "~=", " && ", " || ", "&&", "||", "a.b", ".", "0", "$.", "[0]", "(", ")", '"',
    "<=", "=~", "=", *_JSON,
)  # fmt: skip
_REPOS = (
    "https://github.com/acme/product", "git@github.com:acme/product.git",
    "ssh://git@h.example:22/a/b",
    "file:///srv/a.git", "https://user:pw@h.example/a", "http://127.0.0.1:8080/a",
    "ftp://h.example/a", "-oProxy=x",
    "host:path", "https://[::1]/a",
)  # fmt: skip
_REPO_WORDS = (
    "https://",
    "ssh://",
    "git@",
    "@",
    ":",
    "/",
    "//",
    ".",
    "-",
    "[::1]",
    "%00",
    "?",
    "#",
    "a.",
)
_PACK_LIST = (
    "drumpacks/mail\n# a comment\ndrumpacks/other # why\n",
    "/no/pack\n\n./drumpacks/mail/\n",
)
_PACK_LIST_WORDS = (
    "drumpacks/mail",
    "\n",
    "#",
    "/",
    "..",
    "~",
    "$HOME",
    "'",
    '"',
    "/dev/null",
    ":",
)

_AUTOMATIONS = _files("tests/corpus/*/*.md", "examples/*/workspace/automations/*.md")
_JOBS = _files("tests/corpus/*/jobs/*.md", "examples/*/workspace/jobs/*.md")
_PACKS = _files("tests/corpus/packs/*/*.md", "examples/*/drumpack.md")


def _parser(
    answer: Callable[[str | bytes], None],
    examples: Sequence[str],
    words: Sequence[str],
    *,
    name: str = "",
    slow: bool = False,
) -> Parser:
    given = name or answer.__name__.replace("_", "-")
    return Parser(name=given, answer=answer, examples=examples, words=words, slow=slow)


PARSERS = (
    _parser(automation, _AUTOMATIONS, _AUTOMATION_WORDS, slow=True),
    _parser(job, _JOBS, _JOB_WORDS, slow=True),
    _parser(lint, [*_AUTOMATIONS, *_JOBS], (*_AUTOMATION_WORDS, *_JOB_WORDS), slow=True),
    _parser(agent_config, _CONFIG, (*_YAML, *_JSON), slow=True),
    _parser(operator_config, _OPERATOR, (*_YAML, *_JSON), slow=True),
    _parser(pack_file, _PACKS, (*_YAML, "tools: ", "pack_format: 1", "activity: "), slow=True),
    _parser(_PackList(), _PACK_LIST, _PACK_LIST_WORDS, name="pack-list"),
    _parser(schedule, _SCHEDULES, _SCHEDULE_WORDS),
    _parser(webhook_filter, _FILTERS, _FILTER_WORDS),
    _parser(
        webhook,
        _REQUESTS,
        ("Authorization: ", "Bearer ", "{sign}", "{now}", "v0=", "v1,", "sha256=", *_JSON),
    ),
    _parser(mail, _MAILS, _MAIL_WORDS),
    _parser(mail_address, [m.partition(": ")[2].partition("\n")[0] for m in _MAILS], _MAIL_WORDS),
    _parser(
        mail_authentication,
        (
            "mx.acme.example; dmarc=pass (p=none) header.from=x; spf=fail",
            "mx.acme.example 1; dmarc/1 = fail\nother.example; dmarc=pass",
            'mx.acme.example; x="a;b\\"c"; dmarc=none',
        ),
        ("mx.acme.example", ";", "dmarc=", "dmarc / 1 =", "pass", "fail", "(", ")", '"', "\\"),
    ),
    _parser(mail_mark, ("imap1:1:2:0:0:0", "imap1:4294967295:9:12:1700000000:1700000001"), (":",)),
    _parser(repository, _REPOS, _REPO_WORDS),
    _parser(slug, ("certificate-watch", "a.b_c", "A1", ".hidden", "x" * 100), (".", "-", "_", "/")),
    _parser(reply, _REPLIES, (*_JSON, '"text":', '"error":', '"usage":', '"follow_ups":')),
    _parser(
        follow_up,
        ('{"prompt":"Look","after_seconds":60}', '{"prompt":"x","after_seconds":0.5,"slug":"a"}'),
        (*_JSON, '"prompt":', '"after_seconds":', "1e400", "-1e308"),
    ),
    _parser(
        pins,
        (
            f'{{"version":1,"pins":{{"a":{_PIN}}},"last_rotation":null}}',
            '{"version":1,"pins":{},"last_rotation":{"id":"x"}}',
            '{"version":2}',
        ),
        (*_JSON, '"version":', "2026-02-30", "T25:00", "+99:99", "9999-12-31T23:59:59-23:59"),
    ),
    _parser(
        inbox_mark,
        (
            '{"version":1,"mark":"m","handled":["a"],"told":[],"parked":[],"batch":null}',
            '{"version":1,"mark":"m","handled":[],"told":["x"],"parked":["y"],"batch":'
            '{"fire_id":"f","mark":"n","handled":["b"],"tries":1,"last":null}}',
        ),
        _JSON,
    ),
    _parser(said, _SAID, _SAID_WORDS),
    _parser(
        redaction,
        ("the key sk-0123456789abcdef …", "… hunter2hunter2hunter2", "…bcdef abab", "ab" * 45),
        ("…", "sk-0123456789abcdef", "hunter2hunter2", "abab", "0123456789abcdef", "drt_", "sk-"),
    ),
    _parser(
        draft,
        ("jobs/a.md\n---\ncron: 0 7 * * *\n---\nLook.\n", "```\njobs/b.md\n```\n\n---\n---\nx\n"),
        ("jobs/", ".md", "---\n", "```", "````", "~~~", "`", "\n"),
    ),
)
