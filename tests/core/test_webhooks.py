"""One webhook request, decided: in which order things are checked, and under which id it counts."""

import base64
import hmac
import json
from collections.abc import ItemsView, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drumbeat
from drumbeat.core import webhooks
from drumbeat.core.json_parts import MOST_PARTS
from drumbeat.core.model import (
    Accepted,
    Automation,
    Ignored,
    InboxTrigger,
    Refused,
    Step,
    WebhookTrigger,
)
from drumbeat.core.webhooks import DELIVERY_HEADERS, check_head, check_webhook, route_clashes

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
SECRET = "correct horse battery staple"
SECRETS = {
    "AGENT_API_SECRET": SECRET,
    "SLACK_SIGNING_SECRET": SECRET,
    "SVIX_SECRET": "c2VjcmV0IG9mIHN2aXg=",
}
BEARER = {"Authorization": f"Bearer {SECRET}"}


def check(
    headers: Mapping[str, str],
    body: bytes = b"{}",
    *,
    method: str = "POST",
    secrets: Mapping[str, str] = SECRETS,
    trigger_method: Any = "post",
    **trigger: Any,
) -> Accepted | Ignored | Refused:
    return check_webhook(
        WebhookTrigger(route="x", method=trigger_method, **trigger),
        method=method,
        headers=headers,
        body=body,
        secrets=secrets,
        now=NOW,
    )


def slack(body: bytes) -> dict[str, str]:
    seconds = str(int(NOW.timestamp()))
    base = f"v0:{seconds}:".encode() + body
    signature = hmac.new(SECRET.encode(), base, sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": seconds, "X-Slack-Signature": f"v0={signature}"}


def svix(body: bytes, id: str) -> dict[str, str]:
    seconds = str(int(NOW.timestamp()))
    digest = hmac.new(b"secret of svix", f"{id}.{seconds}.".encode() + body, sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": id, "webhook-timestamp": seconds, "webhook-signature": signature}


def sent(value: Any) -> bytes:
    return json.dumps(value).encode()


# ---- what comes of a request


def test_a_request_in_order_is_accepted_with_its_body_as_it_came() -> None:
    body = b'{"a" :1.0}\r\n'
    assert check(BEARER, body) == Accepted(slot=None, payload=body)
    assert check(BEARER, b"") == Accepted(slot=None, payload=b"")
    assert check(BEARER, b"\xff no json") == Accepted(slot=None, payload=b"\xff no json")


def test_a_route_without_a_body_has_no_payload() -> None:
    trigger = WebhookTrigger(route="x", method="get")
    answer = check_webhook(
        trigger, method="get", headers=BEARER, body=b"x", secrets=SECRETS, now=NOW
    )
    assert answer == Accepted(slot=None, payload=None)


@pytest.mark.parametrize(
    "takes, method", [("post", "GET"), ("post", "HEAD"), ("post", "put"), ("get", "HEAD")]
)
def test_another_method_is_refused_before_anything_else(takes: Any, method: str) -> None:
    trigger = WebhookTrigger(route="x", method=takes)
    answer = check_webhook(trigger, method=method, headers={}, body=b"", secrets={}, now=NOW)
    assert isinstance(answer, Refused)
    assert (answer.code, answer.status) == ("webhook-method", 405)
    assert takes.upper() in answer.reason


@pytest.mark.parametrize(
    "auth, name",
    [
        ("bearer", "AGENT_API_SECRET"),
        ("hmac:X-Sig", "AGENT_API_SECRET"),
        ("slack", "SLACK_SIGNING_SECRET"),
        ("svix", "SVIX_SECRET"),
    ],
)
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_secret_refuses_that_trigger_and_names_the_variable(
    auth: str, name: str, value: str | None
) -> None:
    others = {key: each for key, each in SECRETS.items() if key != name}
    secrets = others if value is None else {**others, name: value}
    empty_bearer = {"Authorization": "Bearer "}
    answer = check(empty_bearer, auth=auth, secrets=secrets)
    assert isinstance(answer, Refused)
    assert (answer.code, answer.status) == ("webhook-secret-missing", 503)
    assert answer.reason.startswith(f"{name} is not set: `auth: ")
    assert answer.reason.endswith("` cannot check who sends")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_end_behind_a_secret_is_no_part_of_it(end: str) -> None:
    """A file has one from which it was read, and no sender knows of it."""
    secrets = {name: value + end for name, value in SECRETS.items()}
    assert isinstance(check(BEARER, secrets=secrets), Accepted)
    signed = hmac.new(SECRET.encode(), b"{}", "sha256").hexdigest()
    assert isinstance(check({"X-Sig": signed}, auth="hmac:X-Sig", secrets=secrets), Accepted)


def test_a_wrong_sender_is_refused_without_a_word_about_the_filter() -> None:
    answer = check({"Authorization": "Bearer no"}, b"no json", filter="a==b")
    assert isinstance(answer, Refused)
    assert (answer.code, answer.status) == ("webhook-signature", 401)
    assert SECRET not in answer.reason


def test_a_secret_that_is_none_for_its_scheme_is_not_the_senders_fault() -> None:
    answer = check(svix(b"{}", "m"), auth="svix", secrets={"SVIX_SECRET": "whsec_%"})
    assert isinstance(answer, Refused)
    assert (answer.code, answer.status) == ("webhook-secret-unusable", 503)


BASIC = {"Authorization": f"Basic {base64.b64encode(f'any:{SECRET}'.encode()).decode()}"}
HERE = {"Host": "here.example"}


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://here.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
    ],
)
def test_another_sites_page_cannot_use_a_browsers_password(
    method: Any, headers: dict[str, str]
) -> None:
    """A browser sends what opens `basic` with whatever a page makes it ask for."""
    answer = check(BASIC | HERE | headers, auth="basic", method=method, trigger_method=method)
    assert isinstance(answer, Refused)
    assert (answer.code, answer.status) == ("webhook-foreign", 403)
    stranger = check(HERE | headers, auth="basic", method=method, trigger_method=method)
    assert isinstance(stranger, Refused)
    assert stranger.code == "webhook-unsigned"
    # No browser sends the others by itself.
    assert isinstance(
        check(BEARER | HERE | headers, method=method, trigger_method=method), Accepted
    )


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://here.example"},
    ],
)
def test_programs_and_pages_of_the_same_site_use_the_password(headers: dict[str, str]) -> None:
    assert isinstance(check(BASIC | HERE | headers, auth="basic"), Accepted)


class Repeating(Mapping[str, str]):
    """Headers as web frameworks give them: one name may come several times."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self.pairs = pairs

    def __getitem__(self, name: str) -> str:
        return dict(self.pairs)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.pairs))

    def __len__(self) -> int:
        return len(dict(self.pairs))

    def items(self) -> ItemsView[str, str]:
        return self.pairs  # type: ignore[return-value]


def test_a_proof_that_comes_twice_proves_nothing() -> None:
    twice = Repeating(("authorization", "Bearer x"), ("authorization", f"Bearer {SECRET}"))
    answer = check(twice)
    assert isinstance(answer, Refused)
    assert (answer.code, answer.status) == ("webhook-header-repeated", 401)


@pytest.mark.parametrize("trigger", [{"filter": "nothing"}, {"auth": "none"}])
def test_a_trigger_that_no_file_could_hold_is_an_error(trigger: dict[str, Any]) -> None:
    """One class, which a host can import: `check_webhook` is public."""
    with pytest.raises(drumbeat.InvalidValue):
        check(BEARER, **trigger)


AT = str(int(NOW.timestamp()))
SIGNED = {
    "github": {"X-Hub-Signature-256": f"sha256={'0' * 64}"},
    "hmac:X-Sig": {"X-Sig": "0" * 64},
    "slack": {"X-Slack-Request-Timestamp": AT, "X-Slack-Signature": f"v0={'0' * 64}"},
    "svix": {"svix-id": "m", "svix-timestamp": AT, "svix-signature": f"v2,x v1,{'A' * 43}="},
}


def head(headers: Mapping[str, str], *, method: str = "POST", **trigger: Any) -> str | None:
    refused = check_head(
        WebhookTrigger(route="x", **trigger),
        method=method,
        headers=headers,
        secrets=SECRETS,
        now=NOW,
    )
    return None if refused is None else refused.code


@pytest.mark.parametrize(
    ("auth", "headers"),
    [
        ("bearer", {"Authorization": "Bearer no"}),
        ("basic", {"Authorization": f"Basic {base64.b64encode(b'a:no').decode()}"}),
        ("gitlab", {"X-Gitlab-Token": "no"}),
    ],
)
def test_a_secret_that_is_sent_along_is_checked_before_the_body(auth: str, headers: Any) -> None:
    """So whoever has it not is not waited for."""
    assert head(headers, auth=auth) == "webhook-signature"
    assert head({}, auth=auth) == "webhook-unsigned"


@pytest.mark.parametrize("auth", SIGNED)
def test_of_a_signature_the_body_decides(auth: str) -> None:
    """Beforehand it has to stand there, once, in its form."""
    signed = SIGNED[auth]
    assert head(signed, auth=auth) is None
    assert isinstance(check(signed, auth=auth), Refused)
    assert head({}, auth=auth) == "webhook-unsigned"
    name = list(signed)[-1]
    twice = Repeating(*signed.items(), (name, signed[name]))
    assert head(twice, auth=auth) == "webhook-header-repeated"
    assert head({**signed, name: "v1,short v2,x"}, auth=auth) == "webhook-signature"


@pytest.mark.parametrize(
    ("auth", "time"), [("slack", "X-Slack-Request-Timestamp"), ("svix", "svix-timestamp")]
)
@pytest.mark.parametrize("off", [-301, 301])
def test_a_time_outside_the_window_is_not_waited_for(auth: str, time: str, off: int) -> None:
    """Whether it is signed does not matter then, and the answer is the same once the body is."""
    headers = {**SIGNED[auth], time: str(int(AT) + off)}
    assert head(headers, auth=auth) == "webhook-too-old"
    refused = check(headers, auth=auth)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.status) == ("webhook-too-old", 401)


def test_the_rest_of_the_head_is_checked_too() -> None:
    assert head(BEARER) is None
    assert head(BEARER, method="GET") == "webhook-method"
    assert head(BASIC | {"Sec-Fetch-Site": "cross-site"}, auth="basic") == "webhook-foreign"


# ---- the filter


def test_an_event_that_the_filter_leaves_out_is_ignored_and_says_why() -> None:
    trigger: dict[str, Any] = {"filter": "action==opened && number!=7"}
    assert isinstance(check(BEARER, sent({"action": "opened"}), **trigger), Accepted)
    answer = check(BEARER, sent({"action": "closed"}), **trigger)
    assert isinstance(answer, Ignored)
    assert (answer.status, answer.body) == (200, b"")
    assert "action==opened && number!=7" in answer.reason


GITHUB_REPOSITORY: dict[str, Any] = {"id": 7, "full_name": "acme/shop", "private": True}
GITHUB_EVENTS: dict[str, dict[str, Any]] = {
    "ping": {
        "zen": "Keep it logically awesome.",
        "hook_id": 109,
        "hook": {"type": "Repository", "id": 109, "active": True, "events": ["pull_request"]},
        "repository": GITHUB_REPOSITORY,
        "sender": {"login": "ann", "type": "User"},
    },
    "pull_request": {
        "action": "opened",
        "number": 12,
        "pull_request": {"number": 12, "state": "open", "draft": False, "title": "Mend the till"},
        "repository": GITHUB_REPOSITORY,
        "sender": {"login": "ann", "type": "User"},
    },
    "issues": {
        "action": "opened",
        "issue": {"number": 13, "state": "open", "title": "The till is stuck"},
        "repository": GITHUB_REPOSITORY,
        "sender": {"login": "ann", "type": "User"},
    },
}


@pytest.mark.parametrize(
    "filter, passing",
    [
        ("action==opened && pull_request.state==open", ["pull_request"]),
        ("action==opened", ["pull_request", "issues"]),
        (None, ["ping", "pull_request", "issues"]),
    ],
)
def test_a_filter_knows_the_kind_of_an_event_of_github_by_its_fields_alone(
    filter: str | None, passing: list[str]
) -> None:
    """The header that says it is no part of the body; a ping has no action."""
    accepted = []
    for kind, event in GITHUB_EVENTS.items():
        body = sent(event)
        signature = hmac.new(SECRET.encode(), body, sha256).hexdigest()
        headers = {"X-GitHub-Event": kind, "X-Hub-Signature-256": f"sha256={signature}"}
        answer = check(headers, body, auth="github", filter=filter)
        assert isinstance(answer, Accepted | Ignored)
        if isinstance(answer, Accepted):
            accepted.append(kind)
    assert accepted == passing


@pytest.mark.parametrize("body", [b"", b"a=1", b"\xff", b"[" * 100_000])
def test_a_filter_needs_json(body: bytes) -> None:
    answer = check(BEARER, body, filter="a!=b")
    assert isinstance(answer, Refused)
    assert (answer.code, answer.status) == ("webhook-not-json", 400)


def test_a_body_of_too_many_lists_and_objects_is_not_read() -> None:
    """One that nothing filters is passed on as it is, whatever it is made of."""
    most = b"[%s]" % b",".join([b"{}"] * (MOST_PARTS - 1))
    assert isinstance(check(BEARER, most, filter="a!=b"), Accepted)
    over = most.replace(b"[{}", b"[[],{}", 1)
    answer = check(BEARER, over, filter="a!=b")
    assert isinstance(answer, Refused)
    assert (answer.code, answer.status) == ("webhook-too-many-parts", 400)
    assert str(MOST_PARTS) in answer.reason
    answer = check(BEARER, over)
    assert isinstance(answer, Accepted)
    assert answer.payload == over


def test_an_event_of_slack_that_is_too_large_to_be_read_is_known_by_its_signature() -> None:
    body = b'{"type":"event_callback","event_id":"Ev1","event":[%s]}' % b",".join(
        [b"[]"] * MOST_PARTS
    )
    answer = check(slack(body), body, auth="slack")
    assert isinstance(answer, Accepted)
    assert answer.slot is not None
    assert answer.slot.startswith("v0=")


# ---- Slack's greeting


def test_slack_is_answered_once_it_is_verified() -> None:
    body = sent({"type": "url_verification", "challenge": "3eZbrw1aÄ", "token": "x"})
    answer = check(slack(body), body, auth="slack", filter="event.type==app_mention")
    assert isinstance(answer, Ignored)
    assert (answer.status, answer.body) == (200, "3eZbrw1aÄ".encode())
    refused = check(slack(b"other"), body, auth="slack")
    assert isinstance(refused, Refused)
    assert refused.status == 401


@pytest.mark.parametrize(
    "challenge, body_of_answer", [(None, b""), ([], b""), ("\ud800", b"?"), (5, b"5")]
)
def test_a_greeting_with_an_odd_challenge_is_answered_all_the_same(
    challenge: Any, body_of_answer: bytes
) -> None:
    body = sent({"type": "url_verification", "challenge": challenge})
    answer = check(slack(body), body, auth="slack")
    assert isinstance(answer, Ignored)
    assert answer.body == body_of_answer


def test_only_slack_greets() -> None:
    body = sent({"type": "url_verification", "challenge": "x"})
    assert isinstance(check(BEARER, body), Accepted)


# ---- when a body is read


@pytest.mark.parametrize(
    ("headers", "body", "trigger", "reads"),
    [
        (BEARER, b"[1]", {}, False),
        (BEARER, b'{"type": "event_callback"}', {}, True),
        (BEARER | {"Idempotency-Key": "7"}, b'{"type": "event_callback"}', {}, False),
        (BEARER | {"Idempotency-Key": "7"}, b"[1]", {"filter": "a!=b"}, True),
    ],
)
def test_a_body_is_read_only_where_what_it_says_may_matter(
    monkeypatch: pytest.MonkeyPatch, headers: Any, body: bytes, trigger: Any, reads: bool
) -> None:
    """A large one takes long."""
    read = []
    monkeypatch.setattr(webhooks, "read_payload", lambda given: read.append(given) or {})
    check(headers, body, **trigger)
    assert read == ([body] if reads else [])


@pytest.mark.parametrize("body", [b"a=1", b'{"type": "event_callback", "event_id": "E"}'])
def test_slacks_commands_are_not_read_and_its_events_are(
    monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    read = []
    monkeypatch.setattr(webhooks, "read_payload", lambda given: read.append(given) or {})
    assert isinstance(check(slack(body), body, auth="slack"), Accepted)
    assert bool(read) == (b"event_callback" in body)


# ---- delivery ids


def slot(headers: Mapping[str, str], body: bytes = b"{}", **trigger: Any) -> str | None:
    answer = check(headers, body, **trigger)
    assert isinstance(answer, Accepted)
    return answer.slot


@pytest.mark.parametrize("name", DELIVERY_HEADERS)
def test_a_delivery_id_is_found_under_any_scheme_and_kept_as_given(name: str) -> None:
    assert slot(BEARER | {name.upper(): " 72d3162e-cc78 "}) == "72d3162e-cc78"


def test_the_first_delivery_header_that_says_something_counts() -> None:
    headers = {name: f"id of {name}" for name in DELIVERY_HEADERS}
    for name in DELIVERY_HEADERS:
        assert slot(BEARER | headers) == f"id of {name}"
        headers[name] = " "
    assert slot(BEARER | headers) is None


EVENT = sent({"type": "event_callback", "event_id": "Ev0PV52K21", "event": {}})


def test_the_id_of_a_slack_event_counts_under_any_scheme() -> None:
    assert slot(BEARER, EVENT) == "Ev0PV52K21"
    assert slot(slack(EVENT), EVENT, auth="slack") == "Ev0PV52K21"


@pytest.mark.parametrize(
    "value",
    [
        {"event_id": "shared by several deliveries"},
        {"type": "event_callback"},
        {"type": "event_callback", "event_id": None},
        {"type": ["event_callback"], "event_id": "x"},
        ["event_callback"],
    ],
)
def test_what_is_no_slack_event_has_no_such_id(value: Any) -> None:
    assert slot(BEARER, sent(value)) is None


def test_an_id_that_is_signed_comes_before_any_that_is_not() -> None:
    """Else a captured request could be sent again under another one."""
    forged = dict.fromkeys(DELIVERY_HEADERS, "forged")
    assert slot(forged | slack(EVENT), EVENT, auth="slack") == "Ev0PV52K21"
    rest = {"X-GitHub-Delivery": "forged", "Idempotency-Key": "forged"}
    assert slot(rest | svix(EVENT, "msg_1"), EVENT, auth="svix") == "msg_1"
    assert slot(forged | BEARER, EVENT) == "forged"


def test_a_command_of_slack_is_known_again_by_its_signature() -> None:
    """It has no id, so one that was captured could be sent again under any header."""
    body = b"command=%2Fdeploy&text=now"
    signed = slack(body)
    expected = signed["X-Slack-Signature"]
    again = [
        signed,
        signed | {"Idempotency-Key": "another"},
        signed | {"X-Slack-Signature": f"v0={expected.removeprefix('v0=').upper()}"},
    ]
    assert {slot(headers, body, auth="slack") for headers in again} == {expected}


@pytest.mark.parametrize("given_id", ["x" * 256, "a\tb", "a\u202eb", "\ud800"])
def test_an_id_that_cannot_be_kept_is_replaced_by_its_digest(given_id: str) -> None:
    found = slot(BEARER | {"webhook-id": given_id})
    assert found is not None
    assert found.startswith("sha256:")
    assert len(found) == 71
    assert slot(BEARER | {"webhook-id": given_id + "x"}) != found


def test_the_longest_id_is_kept() -> None:
    assert slot(BEARER | {"webhook-id": "x" * 255}) == "x" * 255


@given(st.dictionaries(st.text(max_size=15), st.text(max_size=30)), st.binary(), st.text())
def test_whatever_comes_without_the_secret_is_refused(
    headers: dict[str, str], body: bytes, method: str
) -> None:
    for auth in ("bearer", "basic", "github", "gitlab", "hmac:X-Sig", "slack", "svix"):
        for each in (method, "POST"):
            answer = check(headers, body, method=each, auth=auth)
            assert isinstance(answer, Refused)
            assert answer.status in (401, 405)
            assert SECRET not in answer.reason


@given(st.binary())
def test_whatever_a_sender_that_is_known_sends_is_answered(body: bytes) -> None:
    assert isinstance(check(BEARER, body), Accepted)
    assert isinstance(check(slack(body), body, auth="slack"), Accepted | Ignored)


# ---- routes of a workspace


def job(name: str, *triggers: Any) -> Automation:
    return Automation(
        slug=name,
        name=name,
        kind="job",
        steps=(Step(id="prompt", prompt="x"),),
        triggers=triggers,
        path=PurePosixPath("jobs") / f"{name}.md",
    )


def test_files_that_share_a_route_are_named_in_path_order_case_aside() -> None:
    jobs = [
        job("c", WebhookTrigger(route="Deploy")),
        job("a", WebhookTrigger(route="deploy")),
        job("b", WebhookTrigger(route="other")),
        job("d", InboxTrigger(system="imap", address="a@b", allow_from=())),
        job("e"),
    ]
    first, second = route_clashes(jobs)
    assert (str(first.path), str(second.path)) == ("jobs/a.md", "jobs/c.md")
    assert {first.code, second.code} == {"route-clash"}
    for problem in (first, second):
        assert "jobs/a.md" in problem.message
        assert "jobs/c.md" in problem.message
    assert route_clashes(jobs[1:]) == ()
