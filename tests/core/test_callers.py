"""Who may ask, by the secret of the doors."""

from base64 import b64encode
from datetime import UTC, datetime

import pytest

from drumbeat.core.callers import check_caller
from drumbeat.core.model import Refused

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
SECRETS = {"AGENT_API_SECRET": "correct horse"}


def basic(pair: str) -> str:
    return f"Basic {b64encode(pair.encode()).decode()}"


@pytest.mark.parametrize(
    "value", ["Bearer correct horse", "bearer correct horse", basic("any:correct horse")]
)
def test_the_secret_opens(value: str) -> None:
    """As bearer, or as the password of whatever user."""
    assert check_caller({"authorization": value}, secrets=SECRETS, now=NOW) is None


@pytest.mark.parametrize(
    "value", ["", "Bearer x", basic("correct horse:x"), "Basic ???", "Other x"]
)
def test_nothing_else_does(value: str) -> None:
    """401, and nothing of what was sent is said again."""
    refused = check_caller({"Authorization": value}, secrets=SECRETS, now=NOW)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.status) == ("caller-unknown", 401)
    assert "correct horse" not in refused.reason


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_end_behind_the_secret_is_no_part_of_it(end: str) -> None:
    """A file has one from which it was read; no header could bring it."""
    secrets = {"AGENT_API_SECRET": f"correct horse{end}"}
    assert check_caller({"authorization": "Bearer correct horse"}, secrets=secrets, now=NOW) is None
    assert check_caller({"authorization": "Bearer correct"}, secrets=secrets, now=NOW) is not None


@pytest.mark.parametrize("secrets", [{}, {"AGENT_API_SECRET": "  "}])
def test_without_a_secret_it_is_shut(secrets: dict[str, str]) -> None:
    """An empty one opens to nobody."""
    refused = check_caller({"Authorization": "Bearer   "}, secrets=secrets, now=NOW)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.status) == ("caller-secret-missing", 503)


FOREIGN = {"Origin": "https://evil.example", "Host": "here.example"}


@pytest.mark.parametrize("method", ["POST", "post", "DELETE"])
def test_another_sites_page_does_nothing(method: str) -> None:
    """403 for who brings the secret; who does not is told no more than that."""
    headers = {"Authorization": "Bearer correct horse", **FOREIGN}
    refused = check_caller(headers, secrets=SECRETS, now=NOW, method=method)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.status) == ("caller-foreign", 403)
    refused = check_caller(FOREIGN, secrets=SECRETS, now=NOW, method=method)
    assert isinstance(refused, Refused)
    assert refused.code == "caller-unknown"


@pytest.mark.parametrize("method", ["GET", "head", None])
def test_reading_is_let_through(method: str | None) -> None:
    """A link on another page may lead here."""
    headers = {"Authorization": "Bearer correct horse", **FOREIGN}
    assert check_caller(headers, secrets=SECRETS, now=NOW, method=method) is None
