"""What git is called with, and what its complaints mean (spec, section 13.5)."""

import base64
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.git_access import (
    clone_argv,
    clone_env,
    clone_problem,
    fenced_env,
    git_env,
    git_token,
    known_secrets,
    said,
)
from drumbeat.core.redaction import Redactor
from drumbeat.core.repo_address import RepoHost, repo_host

ADDRESS = "https://github.com/acme/product.git"


def made(
    env: dict[str, str] | None = None,
    *,
    address: str = ADDRESS,
    hosts: tuple[str, ...] = ("github.com",),
    token: str | None = "ghp_abcdefgh",
) -> dict[str, str]:
    return git_env(env or {}, address=address, hosts=hosts, token=token, folder="/d/runs/a/1")


@pytest.mark.parametrize(
    "address, host",
    [
        (ADDRESS, RepoHost(name="github.com", web="https")),
        ("https://GitHub.com:443/a/b", RepoHost(name="github.com", web="https")),
        ("https://git.acme.com:8443/a", RepoHost(name="git.acme.com:8443", web="https")),
        ("http://127.0.0.1:8123/a", RepoHost(name="127.0.0.1:8123", web="http")),
        ("http://localhost:80/a", RepoHost(name="localhost", web="http")),
        ("https://[::1]:8123/a", RepoHost(name="[::1]:8123", web="https")),
        ("git@github.com:acme/product.git", RepoHost(name="github.com", web="https")),
        ("ssh://git@github.com:22/acme/a", RepoHost(name="github.com", web="https")),
        ("github.com:acme/product.git", RepoHost(name="github.com", web="https")),
        ("file:///srv/github.com/a", None),
        ("nothing", None),
    ],
)
def test_the_host_of_an_address(address: str, host: RepoHost | None) -> None:
    assert repo_host(address) == host


# ---- the environment


def test_a_listed_host_alone_has_the_token_by_a_helper_that_reads_it() -> None:
    env = made()
    assert env["GITHUB_TOKEN"] == "ghp_abcdefgh"
    assert env["GIT_CONFIG_COUNT"] == "2"
    assert env["GIT_CONFIG_KEY_0"] == env["GIT_CONFIG_KEY_1"]
    assert env["GIT_CONFIG_KEY_0"] == "credential.https://github.com.helper"
    assert env["GIT_CONFIG_VALUE_0"] == ""  # the helpers of the machine hear nothing
    assert "ghp_abcdefgh" not in env["GIT_CONFIG_VALUE_1"]
    assert (env["GIT_TERMINAL_PROMPT"], env["GIT_ASKPASS"]) == ("0", "")
    assert env["SSH_ASKPASS_REQUIRE"] == "never"


def test_the_helper_says_the_token_when_it_is_asked_and_nothing_else() -> None:
    """It is a line of shell, as git runs it."""
    env = made()
    line = env["GIT_CONFIG_VALUE_1"].removeprefix("!")
    answers = [
        subprocess.run(
            ["/bin/sh", "-c", f"{line} {action}"], env=env, capture_output=True, check=True
        ).stdout
        for action in ("get", "store", "erase")
    ]
    assert answers == [b"username=x-access-token\npassword=ghp_abcdefgh\n", b"", b""]


@pytest.mark.parametrize("listed", ["GITHUB.com", "github.com:443"])
def test_a_host_is_listed_case_aside_and_with_its_own_port(listed: str) -> None:
    assert "GITHUB_TOKEN" in made(hosts=(listed,))
    assert "GITHUB_TOKEN" in made(hosts=(listed,), address="git@GitHub.com:acme/product.git")


@pytest.mark.parametrize(
    "address",
    [
        "https://gitlab.com/acme/a.git",
        "https://github.com.evil.example/a",
        "https://github.com:8443/a",
        "https://sub.github.com/a",
        "file:///srv/github.com/a",
    ],
)
def test_no_other_address_brings_the_token(address: str) -> None:
    env = made({"GITHUB_TOKEN": "ghp_abcdefgh"}, address=address)
    assert "GITHUB_TOKEN" not in env
    assert "GIT_CONFIG_COUNT" not in env
    assert env["GIT_TERMINAL_PROMPT"] == "0"


def test_without_a_token_the_ways_of_the_machine_stand() -> None:
    assert "GIT_CONFIG_COUNT" not in made(token=None)


@pytest.mark.parametrize("count, first", [("1", 1), ("0", 0), ("", 0), ("x", 0), ("²", 0)])
def test_configuration_that_is_there_is_added_to(count: str, first: int) -> None:
    given_ = {"GIT_CONFIG_COUNT": count, "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}
    env = made(given_)
    assert env["GIT_CONFIG_COUNT"] == str(first + 2)
    assert env[f"GIT_CONFIG_KEY_{first + 1}"] == "credential.https://github.com.helper"
    assert (env["GIT_CONFIG_KEY_0"] == "a.b") == bool(first)


def test_another_repository_of_the_environment_is_forgotten_and_names_of_authors_stay() -> None:
    env = made({"GIT_DIR": "/x", "GIT_INDEX_FILE": "/y", "GIT_AUTHOR_NAME": "A", "B": "c"})
    assert "GIT_DIR" not in env
    assert "GIT_INDEX_FILE" not in env
    assert (env["GIT_AUTHOR_NAME"], env["B"]) == ("A", "c")


def test_no_repository_is_looked_for_above_the_clone() -> None:
    assert made()["GIT_CEILING_DIRECTORIES"] == "/d/runs/a/1"
    assert made({"GIT_CEILING_DIRECTORIES": "/h"})["GIT_CEILING_DIRECTORIES"] == "/h:/d/runs/a/1"


def test_a_folder_without_a_clone_is_fenced_as_well_and_keeps_all_else() -> None:
    """It has been promised no repository, so the variables of none reach it."""
    env = fenced_env({"GIT_DIR": "/x", "GITHUB_TOKEN": "t", "B": "c"}, folder="/d/runs/a/1")
    assert env == {"GITHUB_TOKEN": "t", "B": "c", "GIT_CEILING_DIRECTORIES": "/d/runs/a/1"}


def test_the_clone_is_in_english_untraced_and_of_known_protocols() -> None:
    env = clone_env(
        {"LANGUAGE": "de", "GIT_TRACE_CURL": "1", "GIT_CURL_VERBOSE": "1", "PATH": "/bin"},
        address=ADDRESS,
    )
    assert env == {"GIT_ALLOW_PROTOCOL": "https:ssh:file", "LC_ALL": "C", "PATH": "/bin"}
    plain = clone_env({}, address="http://localhost/a")
    assert plain["GIT_ALLOW_PROTOCOL"] == "http:https:ssh:file"
    stricter = clone_env({"GIT_ALLOW_PROTOCOL": "https"}, address=ADDRESS)
    assert stricter["GIT_ALLOW_PROTOCOL"] == "https"


def test_an_address_is_never_read_as_an_option() -> None:
    assert clone_argv("--upload-pack=x", "/w")[-3:] == ["--", "--upload-pack=x", "/w"]
    assert "--filter=blob:none" in clone_argv(ADDRESS, "/w")


@pytest.mark.parametrize(
    "env, secrets, token",
    [
        ({}, {}, None),
        ({"GITHUB_TOKEN": " \n"}, {}, None),
        ({"GITHUB_TOKEN": "a\n"}, {}, "a"),
        ({"GITHUB_TOKEN": "a"}, {"GITHUB_TOKEN": "b"}, "b"),
        ({"GITHUB_TOKEN": "a"}, {"OTHER": "b"}, "a"),
    ],
)
def test_where_the_token_comes_from(
    env: dict[str, str], secrets: dict[str, str], token: str | None
) -> None:
    assert git_token(env, secrets) == token
    assert known_secrets(env, secrets).get("GITHUB_TOKEN") == token


@pytest.mark.parametrize("token", ["ghp_oneToken", "ghp_oneToken1", "ghp_oneToken12"])
def test_the_token_is_known_as_git_sends_it(token: str) -> None:
    sent = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    redactor = Redactor(known_secrets({"GITHUB_TOKEN": token}, {}))
    shown = redactor.text(f"you sent {sent} and {token}").replace("=", "")
    assert shown == "you sent [redacted GITHUB_TOKEN in base64] and [redacted GITHUB_TOKEN]"
    assert known_secrets({}, {"OTHER": "b"}) == {"OTHER": "b"}


# ---- what git says


@pytest.mark.parametrize(
    "stderr, code",
    [
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", "access"),
        ("remote: no\nfatal: Authentication failed for 'https://h/x/'", "access"),
        ("fatal: unable to access 'https://h/': The requested URL returned error: 403", "access"),
        ("git@h: Permission denied (publickey).\nfatal: Could not read from remote", "access"),
        ("Host key verification failed.\nfatal: Could not read from remote", "access"),
        ("remote: Repository not found.\nfatal: repository 'https://h/x/' not found", "missing"),
        ("fatal: '/nowhere.git' does not appear to be a git repository", "missing"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", "unreachable"),
        (
            "fatal: unable to access 'http://h/': Failed to connect to h port 9 after 0 ms: "
            "Couldn't connect to server",
            "unreachable",
        ),
        ("ssh: connect to host h port 9: Connection refused\nfatal: Could not", "unreachable"),
        ("fatal: unable to access 'https://h/': SSL certificate problem", "unreachable"),
        ("error: RPC failed; HTTP 502\nfatal: early EOF", "unreachable"),
    ],
)
def test_what_an_author_would_mend_otherwise_has_a_code_of_its_own(stderr: str, code: str) -> None:
    problem = clone_problem(ADDRESS, stderr, ended="exited with code 128")
    assert problem.code == f"repo-{code}"
    assert ADDRESS in problem.message
    assert stderr.splitlines()[-1] in problem.message
    assert problem.remedy


@pytest.mark.parametrize(
    "stderr",
    [
        "fatal: write error: No space left on device",
        "fatal: sha1 file 'pack' write error. Out of diskspace",
        "error: unable to write file a.bin: File too large",
    ],
)
def test_a_full_disk_is_no_fault_of_the_repository(stderr: str) -> None:
    problem = clone_problem(ADDRESS, stderr, ended="x")
    assert problem.code == "work-folder-unwritable"


@pytest.mark.parametrize("stderr", ["", "fatal: something else"])
def test_anything_else_is_told_as_it_is(stderr: str) -> None:
    problem = clone_problem(ADDRESS, stderr, ended="was ended by SIGKILL")
    assert problem.code == "clone-failed"
    assert "was ended by SIGKILL" in problem.message
    assert stderr in problem.message


def test_what_git_says_is_short_and_shows_no_user_of_a_url() -> None:
    lines = [f"line {number}" for number in range(20)]
    assert said("\n".join(lines)).splitlines() == lines[-6:]
    assert said("fatal: https://me:pw@host/x and ssh://git@h/y") == (
        "fatal: https://…@host/x and ssh://…@h/y"
    )


def test_what_git_says_quotes_no_credentials_of_anybody() -> None:
    sent = base64.b64encode(b"me:" + b"secret" * 50).decode()
    assert said(f"remote: you sent 'Authorization: bAsic  {sent}'") == (
        "remote: you sent 'Authorization: bAsic  …'"
    )
    for harmless in ("remote: HTTP Basic: Access denied", "Basic realm", "Basic auth is off"):
        assert said(harmless) == harmless


@given(st.text())
def test_what_is_shown_is_printable(stderr: str) -> None:
    assert all(line.isprintable() for line in said(stderr).split("\n"))
