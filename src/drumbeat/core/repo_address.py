"""Which git addresses a job may name: those that hold no credentials and are no options."""

import re

import attrs

from drumbeat.core.messages import quoted
from drumbeat.core.vocabulary import REPO_REMEDY
from drumbeat.errors import Problem

__all__ = ["RepoHost", "repo_host", "repo_problem"]

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
_PATH = r"[^\s\x00-\x20\x7f?#]+"
_LOOPBACK = r"(?:127(?:\.\d{1,3}){3}|localhost|\[::1\])"
_ADDRESS = re.compile(
    rf"http://{_LOOPBACK}(?::\d{{1,5}})?/{_PATH}"
    rf"|https://{_HOST}(?::\d{{1,5}})?/{_PATH}"
    rf"|ssh://(?:{_USER}@)?{_HOST}(?::\d{{1,5}})?/{_PATH}"
    rf"|(?:{_USER}@)?{_HOST}:(?![-:]|//|\d+/){_PATH}"
    rf"|file:///{_PATH}",
    re.ASCII,
)
_SECRET = re.compile(r"(?i:https?|ftps?|git)://[^/]*@|[a-zA-Z+]+://[^/@]*:[^/]*@|[^/@:]*:[^/@]*@")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31})://")
_WEB = re.compile(rf"(https?)://({_HOST})(?::(\d{{1,5}}))?/", re.ASCII)
_SSH = re.compile(rf"(?:ssh://)?(?:{_USER}@)?({_HOST})[:/]", re.ASCII)
_PORTS = {"http": 80, "https": 443}


@attrs.frozen(kw_only=True)
class RepoHost:
    """Where a repository is served from.

    `name` is in lower case, with a port where the web is served at another than its own
    (`git.acme.example:8443`); `web` is the scheme under which git asks it for a password.
    """

    name: str
    web: str


def repo_host(address: str) -> RepoHost | None:
    """The host of an address that `repo_problem` has nothing against; None for a file.

    >>> repo_host("git@github.com:acme/product.git").name
    'github.com'
    """
    if address.startswith("file:"):
        return None
    web = _WEB.match(address)
    if web:
        scheme, host, port = web.groups()
        away = port is not None and int(port) != _PORTS[scheme]
        return RepoHost(name=f"{host}:{port}".lower() if away else host.lower(), web=scheme)
    ssh = _SSH.match(address)
    return None if ssh is None else RepoHost(name=ssh[1].lower(), web="https")


def repo_problem(text: str) -> Problem | None:
    """Say what keeps a text from being the address of a repository, or None when nothing does.

    Known are `https://`, `ssh://` and `file:///` URLs and `user@host:path`; `http://` to this very
    machine, where nobody stands between. A user name before an https host is a credential (git
    hosts take tokens there); `ssh` may have one, without password.

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
    if _ADDRESS.fullmatch(text):
        return None
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() not in ("https", "ssh", "file"):
        return Problem(
            code="repo-invalid",
            message=f"a repository is not cloned over {scheme[1]}: nothing there says that it is "
            "the right one",
            remedy="write an https, ssh or file address",
        )
    return Problem(
        code="repo-invalid",
        message=f"{quoted(text)} is no address of a git repository",
        remedy=REPO_REMEDY,
    )
