"""What a sender is told: small JSON, and the headers that HTTP wants with a status."""

import json
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from drumbeat import Answer, Fire, Ignored, Refused, WebhookTrigger
from drumbeat.core import webhook_answers

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
FIRE = Fire(id="webhook-1", slug="a", cause="webhook", slot="s", due=NOW, created_at=NOW)


def said(answer: Answer) -> Any:
    assert answer.headers["Content-Type"] == "application/json"
    return json.loads(answer.body)


def test_what_is_kept_names_its_fire() -> None:
    """With the fire itself beside it."""
    answer = webhook_answers.accepted(FIRE)
    assert (answer.status, answer.fire, said(answer)) == (202, FIRE, {"fire": "webhook-1"})


def test_what_starts_nothing_says_why() -> None:
    """Nothing is wrong, so it is 200."""
    skipped, again = webhook_answers.settled(FIRE, "disabled"), webhook_answers.known_before(FIRE)
    assert (skipped.status, said(skipped)) == (200, {"fire": "webhook-1", "reason": "disabled"})
    assert (again.status, said(again)["fire"], again.fire) == (200, "webhook-1", FIRE)
    left_out = webhook_answers.ignored(Ignored(reason="left out"))
    assert (left_out.status, said(left_out)) == (200, {"fire": None, "reason": "left out"})


@pytest.mark.parametrize(
    ("verdict", "reason", "state"),
    [
        (None, "", None),
        ("ran", "failed", "failed"),
        ("skipped", "disabled", "disabled"),
        ("skipped", "paused (the vendor is down)", "paused"),
    ],
)
def test_what_came_before_says_what_became_of_it(verdict: Any, reason: str, state: Any) -> None:
    """Somebody may have sent it again to have it done; why it is paused is nobody else's affair."""
    fire = attrs.evolve(FIRE, verdict=verdict, reason=reason)
    answer = webhook_answers.known_before(fire)
    told = {key: said(answer)[key] for key in ("verdict", "state")}
    assert told == {"verdict": verdict, "state": state}


def test_another_event_under_a_known_id_is_no_repetition() -> None:
    """Its sender gives every event one id, and has to be told."""
    answer = webhook_answers.known_before(FIRE, same=False)
    assert (answer.status, said(answer)["fire"]) == (200, "webhook-1")
    assert "another event" in said(answer)["reason"]


def test_a_greeting_is_answered_with_what_it_asks() -> None:
    """As plain text and nothing else."""
    answer = webhook_answers.ignored(Ignored(reason="greets", body=b"challenge"))
    assert (answer.body, answer.headers) == (
        b"challenge",
        {"Content-Type": "text/plain; charset=utf-8"},
    )


@pytest.mark.parametrize(
    ("status", "auth", "header"),
    [
        (401, "bearer", {"WWW-Authenticate": 'Bearer realm="drumbeat"'}),
        (401, "basic", {"WWW-Authenticate": 'Basic realm="drumbeat"'}),
        (401, "hmac:X-Signature", {}),
        (405, "github", {"Allow": "GET"}),
        (503, "svix", {"Retry-After": "30"}),
        (400, "bearer", {}),
    ],
)
def test_a_refusal_says_how_to_ask_instead(status: int, auth: str, header: dict[str, str]) -> None:
    """In the headers that go with the status."""
    trigger = WebhookTrigger(route="door", auth=auth, method="get")
    found = Refused(code="some-code", reason="some reason", status=status)
    answer = webhook_answers.refused(found, trigger)
    assert said(answer) == {"code": "some-code", "reason": "some reason"}
    assert answer.headers == {"Content-Type": "application/json"} | header


def test_without_a_trigger_there_is_nothing_to_say_of_it() -> None:
    """A route that no file has takes no method and no scheme."""
    answer = webhook_answers.refused(Refused(code="some-code", reason="r", status=404))
    assert answer.headers == {"Content-Type": "application/json"}
