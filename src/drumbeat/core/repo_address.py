"""Which git addresses a job may name: those that hold no credentials and are no options."""

import re

from drumbeat.core.messages import quoted
from drumbeat.core.vocabulary import REPO_REMEDY
from drumbeat.errors import Problem

__all__ = ["repo_problem"]

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
_PATH = r"[^\s\x00-\x20\x7f?#]+"
_ADDRESS = re.compile(
    rf"https://{_HOST}(?::\d{{1,5}})?/{_PATH}"
    rf"|ssh://(?:{_USER}@)?{_HOST}(?::\d{{1,5}})?/{_PATH}"
    rf"|(?:{_USER}@)?{_HOST}:(?![-:]|//|\d+/){_PATH}"
    rf"|file:///{_PATH}",
    re.ASCII,
)
_SECRET = re.compile(r"(?i:https?|ftps?|git)://[^/]*@|[a-zA-Z+]+://[^/@]*:[^/]*@|[^/@:]*:[^/@]*@")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def repo_problem(text: str) -> Problem | None:
    """Say what keeps a text from being the address of a repository, or None when nothing does.

    Known are `https://`, `ssh://` and `file:///` URLs and `user@host:path`. A user name before an
    https host is a credential (git hosts take tokens there); `ssh` may have one, without password.

    Args:
        text: what stands in the file; it is in no message when it may hold a credential.
    """
    if _SECRET.match(text):
        return Problem(
            code="repo-credentials",
            message="this address holds a user or a password, and everybody who reads the file "
            "or a log has it",
            remedy="take what stands before the @ out and renew it; a token belongs in "
            "GITHUB_TOKEN, in the environment of the engine",
        )
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() not in ("https", "ssh", "file"):
        return Problem(
            code="repo-invalid",
            message=f"a repository is not cloned over {scheme[1]}: nothing there says that it is "
            "the right one",
            remedy="write an https, ssh or file address",
        )
    if _ADDRESS.fullmatch(text):
        return None
    return Problem(
        code="repo-invalid",
        message=f"{quoted(text)} is no address of a git repository",
        remedy=REPO_REMEDY,
    )
