"""How git is called for a repository: its arguments, its environment, what its complaints mean.

Theory of operation. The token is in the environment and nowhere else: git asks a helper for the
password, and the helper is a line of shell that prints the variable. The helper is configured for
one scheme, host and port, so that git asks it for no other, wherever a server redirects; and it is
configured by variables (`GIT_CONFIG_COUNT`), so that nothing of it is written into the clone. An
empty helper comes before it, because git also tells each helper which password was right: those
of the machine would write the token to its disk.
"""

import base64
import binascii
import re
from collections.abc import Collection

import attrs

from drumbeat.core.model import Env
from drumbeat.core.repo_address import repo_host
from drumbeat.errors import Problem

__all__ = [
    "TOKEN",
    "clone_argv",
    "clone_env",
    "clone_problem",
    "fenced_env",
    "git_env",
    "git_token",
    "known_secrets",
    "may_have_token",
    "said",
]

TOKEN = "GITHUB_TOKEN"  # noqa: S105  the name of a variable
"""The variable that holds what git may show to the hosts of `Settings.git_hosts`."""

_USER = "x-access-token"
_HELPER = (
    '!f() { if test "$1" = get; then '
    f'printf "username={_USER}\\npassword=%s\\n" "${TOKEN}"; fi; }}; f'
)
# What `git rev-parse --local-env-vars` names, but for configuration: each of them would make git
# work in another repository than the one that it stands in.
_ELSEWHERE = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
_LINES = 6
_LONGEST_LINE = 300
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s']+@")
_BASIC = re.compile(r"(?i)(\bbasic\s+)([a-z0-9+/]+={0,2})")


def git_token(env: Env, secrets: Env) -> str | None:
    """The token that there is, of the secrets before the environment; None for a blank one."""
    token = secrets.get(TOKEN) or env.get(TOKEN) or ""
    return token.strip() or None


def known_secrets(env: Env, secrets: Env) -> Env:
    """The secrets, and the token among them: it stands in no record wherever it comes from.

    As git sends it, in base64, it is another value, which a host may quote as it refuses it.
    """
    token = git_token(env, secrets)
    if token is None:
        return secrets
    sent = base64.b64encode(f"{_USER}:{token}".encode("utf-8", "surrogatepass")).decode()
    return {**secrets, TOKEN: token, f"{TOKEN} in base64": sent.rstrip("=")}


def may_have_token(address: str, hosts: Collection[str]) -> bool:
    """Whether the host of an address is among `hosts`, case aside."""
    host = repo_host(address)
    return host is not None and host.name in {each.lower().removesuffix(":443") for each in hosts}


def fenced_env(base: Env, *, folder: str) -> dict[str, str]:
    """The environment of whoever works below a folder in which no repository of others counts.

    Args:
        base: the environment so far.
        folder: an absolute folder. Git looks for no repository there or above, so that a clone that
            is gone, or was never made, is not mistaken for what lies around it.
    """
    made = {name: value for name, value in base.items() if name not in _ELSEWHERE}
    ceilings = [entry for entry in (base.get("GIT_CEILING_DIRECTORIES"), folder) if entry]
    return {**made, "GIT_CEILING_DIRECTORIES": ":".join(ceilings)}


def git_env(
    base: Env, *, address: str, hosts: Collection[str], token: str | None, folder: str
) -> dict[str, str]:
    """The environment of whoever works in a clone: nothing prompts, and one host has the token.

    Args:
        base: the environment so far; `GIT_CONFIG_COUNT` and what it counts are kept and added to.
        address: the repository's.
        hosts: those that may have the token, case aside.
        token: None when there is none; then the machine's own ways to authenticate stand.
        folder: the absolute folder below which the clone lies, as `fenced_env` has it.

    Returns:
        All of it. `GITHUB_TOKEN` is in it only for a repository on one of `hosts`.
    """
    made = fenced_env(base, folder=folder)
    made.pop(TOKEN, None)
    made |= {
        "GIT_ASKPASS": "",
        "GIT_TERMINAL_PROMPT": "0",
        # No child process has a terminal, so ssh could ask nobody but such a program.
        "SSH_ASKPASS_REQUIRE": "never",
    }
    host = repo_host(address)
    if host is None or token is None or not may_have_token(address, hosts):
        return made
    made[TOKEN] = token
    count = base.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isascii() and count.isdigit() else 0
    for number, helper in enumerate(("", _HELPER), start=first):
        made[f"GIT_CONFIG_KEY_{number}"] = f"credential.{host.web}://{host.name}.helper"
        made[f"GIT_CONFIG_VALUE_{number}"] = helper
        made["GIT_CONFIG_COUNT"] = str(number + 1)
    return made


def clone_env(env: Env, *, address: str) -> dict[str, str]:
    """The environment of the clone itself, made of what `git_env` returned.

    Complaints are in English, so that they can be told apart; nothing is traced, because traces
    hold more than a record should; and git speaks no protocol but those of an address.
    """
    made = {
        name: value
        for name, value in env.items()
        if not name.startswith(("GIT_TRACE", "GIT_CURL_VERBOSE")) and name != "LANGUAGE"
    }
    protocols = "http:https:ssh:file" if address.startswith("http:") else "https:ssh:file"
    return {"GIT_ALLOW_PROTOCOL": protocols, **made, "LC_ALL": "C"}


def clone_argv(address: str, folder: str) -> list[str]:
    """Git's arguments for a fresh clone: the whole history, blobs on demand, and no hooks.

    A server that cannot leave blobs out sends them all. Neither hooks nor templates of the machine
    have a part in it: the clone holds what the repository does.
    """
    return [
        "git",
        *("-c", "core.hooksPath=/dev/null"),
        "clone",
        "--quiet",
        "--filter=blob:none",
        "--origin=origin",
        "--template=",
        "--no-recurse-submodules",
        "--",
        address,
        folder,
    ]


def said(stderr: str) -> str:
    """The last lines that git wrote, as they may be shown: printable and without credentials.

    Neither users of URLs are shown nor what a server quotes of basic authentication: of a helper of
    the machine nobody else knows what is secret.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return "\n".join(_shown(line) for line in lines[-_LINES:])


def _shown(line: str) -> str:
    # Before it is cut, as half of a credential cannot be told for one.
    line = _BASIC.sub(_without_credentials, _USER_IN_URL.sub("…@", line))
    return "".join(char if char.isprintable() else " " for char in line)[:_LONGEST_LINE]


def _without_credentials(found: re.Match[str]) -> str:
    try:
        plain = base64.b64decode(found[2], validate=True)
    except binascii.Error:
        return found[0]  # a word after "basic"
    return f"{found[1]}…" if b":" in plain else found[0]


@attrs.frozen(kw_only=True)
class _Kind:
    code: str
    words: re.Pattern[str]
    remedy: str


_KINDS = (
    _Kind(
        code="work-folder-unwritable",
        words=re.compile(
            r"No space left on device|Out of diskspace|Disk quota exceeded|Read-only file system"
            r"|File too large"
        ),
        remedy="make room in the data folder, and let the engine write there",
    ),
    _Kind(
        code="repo-access",
        words=re.compile(
            r"Authentication failed|could not read (?:Username|Password)|terminal prompts disabled"
            r"|returned error: 40[13]|Permission denied \(|Permission to .* denied"
            r"|Host key verification failed|Access denied|dubious ownership"
        ),
        remedy="let the engine's user read the repository: over https by a GITHUB_TOKEN that may, "
        "with the host in Settings.git_hosts; over ssh by a key, with the host in known_hosts",
    ),
    _Kind(
        code="repo-missing",
        words=re.compile(
            r"(?i)repository .*not found|does not exist|not appear to be a git repo|error: 404"
        ),
        remedy="correct the address in `repo`; hosts say the same of what a token may not see",
    ),
    _Kind(
        code="repo-unreachable",
        words=re.compile(
            r"(?i)could not resolve|(?:failed|unable) to connect|couldn't connect"
            r"|connection (?:closed|refused|reset)|timed out|network is unreachable"
            r"|no route to host|ssl|certificate|unable to access|error: 5\d\d"
            r"|early eof|hung up|disconnect"
        ),
        remedy="see whether this machine reaches the host, by name, route and certificate",
    ),
)


def clone_problem(address: str, stderr: str, *, ended: str) -> Problem:
    """What kept a repository from being cloned, by what git said of it.

    Args:
        address: the repository's.
        stderr: what git wrote, in English.
        ended: how git ended, in words.

    Returns:
        One of `repo-access`, `repo-missing`, `repo-unreachable`, `work-folder-unwritable`, and
        `clone-failed` for what is none of these.
    """
    lines = said(stderr)
    message = f"{address} could not be cloned: git {ended}"
    if lines:
        message += f" and said:\n{lines}"
    for kind in _KINDS:
        if kind.words.search(stderr):
            return Problem(code=kind.code, message=message, remedy=kind.remedy)
    return Problem(
        code="clone-failed",
        message=message,
        remedy="run `git clone` of that address by hand, as the engine's user",
    )
