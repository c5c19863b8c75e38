"""What a host keeps secret stands nowhere afterwards, whatever was done with it and went wrong."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from drumbeat import (
    AgentError,
    ContextCeiling,
    DeliveryIntent,
    DrumbeatError,
    MailBatch,
    Receipt,
    Reply,
    Settings,
    Turn,
)
from drumbeat.cli.commands import drumbeat

DOORS = {
    "AGENT_API_SECRET": "doors-4711-correct-horse",
    "SLACK_SIGNING_SECRET": "slack-4711-battery-staple",
    "SVIX_SECRET": "whsec_c3ZpeC00NzExLXNlY3JldC1rZXk=",
}
SLOT = "a-slot-4711-that-is-a-secret"
HANDLE = "a-handle-4711-that-is-a-secret"
SECRETS = {
    **DOORS,
    "DATABASE_URL": "postgres://me:pass-4711@db/all",
    "GITHUB_TOKEN": "ghp_4711TokenOfTheRepositories",
}
ALL = " and ".join(SECRETS.values())
BEARER = {"Authorization": f"Bearer {SECRETS['AGENT_API_SECRET']}"}


class Indiscreet:
    """An agent that says whatever it knows, in each place in which it can say something."""

    def __init__(self) -> None:
        self.tokens: set[str] = set()
        self.environments: list[str] = []
        self.full = False

    async def take_turn(self, turn: Turn) -> Reply:
        self.environments.append("\n".join(turn.env.values()))
        token = turn.env.get("DRUMBEAT_RUN_TOKEN", "")
        said = f"{ALL} {token}"
        if token:
            self.tokens.add(token)
        if turn.slug == "raises":
            raise AgentError(said, code="said-no")
        if turn.slug == "fills" and not self.full:
            self.full = True
            raise ContextCeiling(said)
        if turn.slug == "judges" and turn.origin == "judgment":
            raise AgentError(said)
        if turn.slug == "breaks":
            raise ValueError(said) from OSError(said)
        if turn.slug == "asks" and turn.origin == "step":
            await turn.follow_ups.schedule("Look again.", after=timedelta(0))
            try:
                await turn.follow_ups.schedule(said, after=timedelta(days=99))
            except DrumbeatError as refused:
                raise AgentError(str(refused)) from refused
        return Reply(text=said, provider=said, model=said, handle=HANDLE)


class Talkative:
    """A deliverer that fails first, and then gives back what it knows."""

    def __init__(self) -> None:
        self.told = ""

    async def deliver(self, intent: DeliveryIntent) -> Receipt:
        self.told += str(intent)
        if intent.attempt == 1 and intent.slug == "says":
            raise OSError(ALL)
        return Receipt(id=f"{intent.id} {ALL}", url=f"https://chat.test/{ALL}")


class Closed:
    """A mailbox that does not let anybody in, and says with what it was tried."""

    async def poll(self, address: str, after: str | None) -> MailBatch:
        msg = f"LOGIN {ALL} failed"
        raise OSError(msg)


def write(host: Any, tmp_path: Path) -> None:
    (tmp_path / "known").write_text(ALL)
    seen = tmp_path / "seen"
    for name, script in {
        "look": f"cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline >> {seen} 2>&1; echo three",
        "fail": f"cat {tmp_path}/known >&2; cat {tmp_path}/known; exit 3",
        "git": f'printf "%s\\n" "$@" >> {tmp_path}/argv; '
        f"cat /proc/$$/cmdline /proc/[0-9]*/cmdline >> {tmp_path}/argv 2>/dev/null; "
        f"cat {tmp_path}/known >&2; exit 128",
    }.items():
        host.file(f"bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)
    automation = (
        "---\nautomation:\n  name: It\n  trigger: {{type: manual}}\n  notify: {notify}\n{more}"
        "  steps:\n    - id: one\n      prompt: Look.\n---\n"
    )
    for slug, more in {
        "says": "",
        "raises": "",
        "breaks": "",
        "judges": "",
        "fills": "",
        "asks": "",
        "looks": "  inject:\n    - {argv: [look], label: look}\n",
        "fails": "  inject:\n    - {argv: [fail], label: fail}\n",
    }.items():
        notify = "auto" if slug in ("says", "judges") else "always"
        host.file(f"automations/{slug}.md", automation.format(notify=notify, more=more))
    host.job("hook", "webhook: hook")
    host.job("chat", "webhook: chat", "auth: slack")
    host.job("clone", "repo: https://git.test/acme/product")
    host.job("mail", "inbox: imap:me@acme.test", "allowFrom: '@acme.test'")


async def play(
    host: Any, agent: Indiscreet, deliverer: Talkative, env: dict[str, str]
) -> tuple[str, str]:
    """Let everything happen that can, and return what was answered, and the records."""
    answers: list[object] = []

    async def call(method: str, path: str, body: bytes = b"", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        got = await host.call(engine, method, path, body=body, headers=named)
        answers.append((got.status, got.headers, got.body))

    async def asked(what: Any) -> None:
        try:
            answers.append(await what)
        except DrumbeatError as error:
            answers.append((error, repr(error), error.problem))

    settings = Settings(git_hosts=("git.test",), follow_ups_pending=1)
    async with host.engine(
        agent=agent,
        deliverer=deliverer,
        env=env,
        secrets={**SECRETS, "SLOT": SLOT, "HANDLE": HANDLE},
        settings=settings,
        mail={"imap": Closed()},
        base_url="http://127.0.0.1:8000",
    ) as engine:
        for slug in (
            "says",
            "raises",
            "breaks",
            "judges",
            "fills",
            "asks",
            "looks",
            "fails",
            "clone",
        ):
            await asked(engine.run(slug))
        (run, *_) = await engine.runs("says")
        await engine.reply(run.run_id, "What was it?")  # who asks hears it as it is said
        await asked(engine.rotate("says", f"because of {ALL}"))
        await asked(engine.pause("looks", f"because of {ALL}"))
        await engine.fire("looks", slot=SLOT)
        await call("GET", "/health")
        await call("POST", "/webhooks/hook", b"{}", Authorization=f"Bearer {ALL}")
        await call("POST", "/webhooks/hook", b"{}", **BEARER, Idempotency_Key=SLOT)
        await call("POST", "/webhooks/chat", b"{}", X_Slack_Signature=f"v0={ALL}")
        await call("POST", "/automations/says/run", b"", Authorization=f"Basic {ALL}")
        await call("POST", "/automations/says/run", b"", **BEARER, Idempotency_Key=SLOT)
        await call("POST", f"/automations/{ALL.replace(' ', '%20')}/run", b"", **BEARER)
        for token in (ALL, *agent.tokens):
            body = b'{"prompt": "x", "after_seconds": 1}'
            await call("POST", "/followups", body, Authorization=f"Bearer {token}")
        await call("POST", "/ask", b"", Authorization=f"Bearer {ALL}")
        await engine.settled()
        with anyio.fail_after(60):
            async for event in engine.events():
                if event.kind == "mail_poll_failed":
                    break
        answers += [await engine.status(), await engine.health()]
        answers.append(await engine.intents())
        records = [*await engine.runs(), *await engine.fires()]
        answers += [event async for event in engine.events(follow=False)]
    return "\n".join(f"{answer!s} {answer!r}" for answer in answers), str(records)


@pytest.mark.slow
def test_no_secret_stands_anywhere_afterwards(
    host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In no record, event, log line, answer, file, argument or environment of a child.

    Two things are kept as they were said, and stand where they are kept alone: what a caller named
    a fire by, and what an agent calls a conversation. All of the data folder is its owner's alone,
    whatever the umask.
    """
    write(host, tmp_path)
    agent, deliverer = Indiscreet(), Talkative()
    env = {"PATH": "/usr/bin:/bin", **SECRETS}
    umask = os.umask(0)
    try:
        with capture_logs() as logs:
            answers, records = anyio.run(play, host, agent, deliverer, env)
    finally:
        os.umask(umask)
    for name, value in {**SECRETS, "SLOT": SLOT, "HANDLE": HANDLE}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(host.workspace)
    commands = [["status"], ["runs"], ["events"], ["doctor"], ["validate"], ["upcoming"]]
    commands += [["why", slug] for slug in ("says", "clone", "looks")]
    printed = [CliRunner().invoke(drumbeat, words).output for words in commands]
    places = {
        "answers": answers,
        "records": records,
        "logs": str(logs),
        "intents": deliverer.told,
        "command line": "\n".join(printed),
        "arguments": text_of(tmp_path / "argv"),
        "children": text_of(tmp_path / "seen"),
        **{path.name: text_of(path) for path in host.data.rglob("*") if path.is_file()},
        **{str(path): text_of(path) for path in (host.data / "runs").rglob("*") if path.is_file()},
    }
    sought = {**SECRETS, "SLOT": SLOT, "HANDLE": HANDLE, **{each: each for each in agent.tokens}}
    found = {
        (place, name)
        for place, text in places.items()
        for name, value in sought.items()
        if value in text
    }
    assert found == {
        ("drumbeat.db", "SLOT"),
        ("records", "SLOT"),
        ("session_pins.json", "HANDLE"),
    }
    assert not any(value in "\n".join(agent.environments) for value in SECRETS.values())
    modes = {(path.is_dir(), path.stat().st_mode & 0o7777) for path in host.data.rglob("*")}
    assert modes == {(True, 0o700), (False, 0o600)}
    # Each of it went to where it could have been told.
    assert len(agent.tokens) > 5
    assert {"turn_failed", "delivery_failed", "mail_poll_failed"} <= {
        line["event"] for line in logs
    }
    assert "clone-failed" in answers
    assert "inject-failed" in answers
    assert "the judgment turn failed" in answers
    assert "context-ceiling" in places["session_rotations.jsonl"]
    assert all(
        "PATH=" in places[place] or "clone" in places[place] for place in ("children", "arguments")
    )
    for name in SECRETS:
        assert f"[redacted {name}]" in answers


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")
