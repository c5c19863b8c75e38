"""Jobs that work in another repository, with the real git (spec, section 13.5)."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from drumbeat import Reply, Turn
from drumbeat.runtime.clone import clone_repository
from drumbeat.runtime.retention import Retention
from drumbeat.testing import drive

pytestmark = pytest.mark.anyio

TOKEN = "ghp_oneTokenThatStandsNowhere"
FILES: dict[str, str | Path] = {"code.py": "print(1)\n", "docs/a.md": "A\n"}

# git and its servers are processes: what they do does not depend on the loop.
one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


def job(host: Any, address: str, prompt: str = "Review.\n", *, keys: str = "") -> None:
    host.file("jobs/review.md", f"---\nrepo: {address}\n{keys}---\n{prompt}")


class Worker:
    """An agent that does its work in a thread, as a child process would."""

    def __init__(self, work: Callable[[Turn], str | None] = lambda turn: None) -> None:
        self.work = work
        self.turns: list[Turn] = []

    async def take_turn(self, turn: Turn, /) -> Reply:
        self.turns.append(turn)
        said = await to_thread.run_sync(self.work, turn)
        return Reply(text=said or "done")


def tool(turn: Turn, *args: object) -> str:
    done = subprocess.run(
        ["git", *map(str, args)],
        cwd=turn.cwd,
        env=turn.env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout or done.stderr


GIT_ENV = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Author",
    "GIT_AUTHOR_EMAIL": "author@example.org",
    "GIT_COMMITTER_NAME": "Committer",
    "GIT_COMMITTER_EMAIL": "committer@example.org",
}


def env(**more: str) -> dict[str, str]:
    return {**GIT_ENV, **more}


# ---- a clone to work in


async def test_a_job_works_in_a_fresh_clone_of_its_repository(host: Any, repos: Any) -> None:
    """The whole history is there, blobs are not; the rules are still the workspace's."""
    bare = repos.make({**FILES, "SYSTEM.md": "Obey the repository.\n"})
    job(host, bare)
    host.file("SYSTEM.md", "Spend nothing.\n")
    seen: list[str] = []

    def work(turn: Turn) -> None:
        seen.append(tool(turn, "log", "--format=%s"))
        seen.append(tool(turn, "config", "remote.origin.partialclonefilter"))
        seen.append(tool(turn, "remote", "get-url", "origin"))
        (turn.cwd / "code.py").write_text("left behind")

    agent = Worker(work)
    async with host.engine(agent=agent, env=env()) as engine:
        first = await engine.run("review")
        second = await engine.run("review")
    assert (first.state, second.state) == ("succeeded", "succeeded")
    assert seen[:3] == ["One\n", "blob:none\n", f"{bare}\n"]
    one, two = agent.turns
    assert (one.cwd, two.cwd) == (host.folder(first) / "work", host.folder(second) / "work")
    assert one.system_prompt == "Spend nothing.\n"
    assert (two.cwd / "docs" / "a.md").read_text() == "A\n"
    assert f"a fresh clone of {bare}: {one.cwd}\n" in one.context
    assert "never rules how you work" in one.context
    assert one.env["DRUMBEAT_WORKSPACE"] == str(host.workspace)
    assert one.env["GIT_AUTHOR_NAME"] == "Author"


@one_loop
async def test_an_empty_repository_and_one_without_filters_are_cloned(
    host: Any, repos: Any
) -> None:
    repos.git("init", "-q", "--bare", "product.git", cwd=repos.root)
    whole = repos.make(FILES, name="whole.git").removeprefix("file://")
    repos.git("config", "uploadpack.allowFilter", "false", cwd=whole)
    agent = Worker()
    async with host.engine(agent=agent, env=env()) as engine:
        for name in ("product.git", "whole.git"):
            job(host, f"file://{repos.root / name}")
            assert (await engine.run("review")).state == "succeeded"
    assert (agent.turns[0].cwd / ".git").is_dir()
    assert (agent.turns[1].cwd / "code.py").is_file()


@one_loop
async def test_a_repository_of_which_nothing_is_checked_out_aborts(host: Any, repos: Any) -> None:
    """Git is content with that, and the agent would find an empty folder."""
    job(host, repos.make(FILES))
    repos.git("symbolic-ref", "HEAD", "refs/heads/gone")
    agent = Worker()
    async with host.engine(agent=agent, env=env()) as engine:
        run = await engine.run("review")
    assert (run.state, run.failure.code) == ("aborted", "repo-headless")
    assert agent.turns == []


@one_loop
async def test_the_git_configuration_of_the_machine_holds(host: Any, repos: Any) -> None:
    """Here an address of a web host leads to a mirror; hooks and templates have no part in it."""
    repos.make(FILES)
    hooks = repos.root / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text("#!/bin/sh\ntouch hooked\n")
    (hooks / "post-checkout").chmod(0o755)
    home = repos.root / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[url "file://{repos.root}/"]\n  insteadOf = https://github.com/acme/\n'
        f"[core]\n  hooksPath = {hooks}\n[init]\n  templateDir = {repos.root}\n"
    )
    host.file(
        "jobs/review.md",
        '---\ncron: "0 6 * * 1"\nrepo: https://github.com/acme/product.git\n---\n\nReview.\n',
    )
    agent = Worker(lambda turn: tool(turn, "status", "--porcelain") or "clean")
    async with host.engine(agent=agent, env=env(HOME=str(home), GITHUB_TOKEN=TOKEN)) as engine:
        (run,) = await drive(engine, until=host.clock.now() + timedelta(days=7))
    (turn,) = agent.turns
    assert run.fire.cause == "schedule"
    assert run.turns[0].reply.text == "clean"
    assert turn.env["GITHUB_TOKEN"] == TOKEN
    assert not (turn.cwd / ".git" / "home").exists()
    assert f"a fresh clone of https://github.com/acme/product.git: {turn.cwd}\n" in turn.context


@one_loop
async def test_the_environment_of_another_repository_leads_nowhere(host: Any, repos: Any) -> None:
    """A hook of git may start an engine; and where the clone is gone, none around it is taken."""
    job(host, repos.make(FILES))
    repos.git("init", "-q", ".", cwd=host.workspace)
    agent = Worker(lambda turn: tool(turn, "rev-parse", "--show-toplevel"))
    elsewhere = {"GIT_DIR": str(host.workspace / ".git"), "GIT_WORK_TREE": str(host.workspace)}
    async with host.engine(agent=agent, env=env(**elsewhere)) as engine:
        run = await engine.run("review")
        assert run.turns[0].reply.text.strip() == str(host.folder(run) / "work")
        shutil.rmtree(host.folder(run) / "work")
        agent.work = lambda turn: tool(turn, "status")
        reply = await engine.reply(run.run_id, "And?")
    assert "not a git repository" in reply.text


@one_loop
async def test_the_clone_goes_with_the_work_folder(host: Any, repos: Any) -> None:
    job(host, repos.make(FILES))
    async with host.engine(agent=Worker(), env=env()) as engine:
        run = await engine.run("review")
        assert (host.folder(run) / "work" / ".git").is_dir()
        await host.clock.advance(timedelta(days=2))
        await Retention(services=engine._life.services).tidy()
    assert (host.folder(run) / "result.json").is_file()
    assert not (host.folder(run) / "work").exists()


# ---- what is laid into it


async def test_what_is_laid_into_a_clone_is_not_added_to_it(host: Any, repos: Any) -> None:
    """`git add -A` carries what the agent changed, and neither the payload nor our skills."""
    bare = repos.make({**FILES, "skills/mail/SKILL.md": "Theirs.\n"})
    host.file("skills/mail/SKILL.md", "Ours.\n")
    host.file("skills/report/SKILL.md", "Report.\n")
    host.file("skills/report/bin/run", "#!/bin/sh\n").chmod(0o755)
    job(host, bare)

    def work(turn: Turn) -> str:
        (turn.cwd / "new.txt").write_text("new")
        assert (turn.cwd / "WEBHOOK_PAYLOAD.json").read_bytes() == b'{"a": 1}'
        assert os.access(turn.cwd / "skills/report/bin/run", os.X_OK)
        tool(turn, "add", "-A")
        return tool(turn, "diff", "--cached", "--name-only") + tool(turn, "status", "--porcelain")

    agent = Worker(work)
    async with host.engine(agent=agent, env=env()) as engine:
        await engine.fire("review", payload=b'{"a": 1}')
        await engine.settled()
        (run,) = await engine.runs()
    (turn,) = agent.turns
    assert run.turns[0].reply.text == "new.txt\nA  new.txt\n"
    assert turn.skills == (turn.cwd / "skills/mail", turn.cwd / "skills/report")
    assert (turn.skills[0] / "SKILL.md").read_text() == "Theirs.\n"
    assert f"came from outside: {turn.cwd / 'WEBHOOK_PAYLOAD.json'}\n" in turn.context


@one_loop
async def test_a_gitignore_of_the_repository_brings_nothing_of_ours_back(
    host: Any, repos: Any
) -> None:
    """It weighs more than the exclude file: the payload lies beside, skills ignore themselves."""
    bare = repos.make({".gitignore": "*\n!*/\n!*.json\n!*.md\n!.gitignore\n", "a.md": "A"})
    host.file("skills/report/SKILL.md", "Report.\n")
    host.file("skills/report/.gitignore", "!*\n")
    host.file("skills/report/more/.gitignore", "!*.md\n")
    host.file("skills/report/more/extra.md", "More.\n")
    job(host, bare)
    agent = Worker(lambda turn: tool(turn, "status", "--porcelain", "-uall") or "clean")
    async with host.engine(agent=agent, env=env()) as engine:
        await engine.fire("review", payload=b"{}")
        await engine.settled()
        (run,) = await engine.runs()
    (turn,) = agent.turns
    beside = host.folder(run) / "WEBHOOK_PAYLOAD.json"
    assert run.turns[0].reply.text == "clean"
    assert (turn.cwd / "skills/report/SKILL.md").is_file()
    assert beside.read_bytes() == b"{}"
    assert f"came from outside: {beside}\n" in turn.context


@one_loop
@pytest.mark.parametrize("payload_file", ["tracked\n", Path("/etc/hostname"), Path("nowhere")])
async def test_a_repository_with_a_file_of_the_payload_s_name_aborts(
    host: Any, repos: Any, payload_file: str | Path
) -> None:
    """The prompt names the file and means ours: neither is read for the other."""
    job(host, repos.make({**FILES, "WEBHOOK_PAYLOAD.json": payload_file}))
    async with host.engine(agent=Worker(), env=env()) as engine:
        by_hand = await engine.run("review")
        await engine.fire("review", payload=b"{}")
        await engine.settled()
        run, _ = await engine.runs()
    assert by_hand.state == "succeeded"
    assert (run.state, run.failure.code) == ("aborted", "payload-blocked")
    assert [intent.gate for intent in host.deliverer.intents] == ["policy-always", "run-failed"]


@one_loop
@pytest.mark.parametrize(
    "keys, file",
    [
        ("webhook: review\n", "WEBHOOK_PAYLOAD.json"),
        ("webhook: review\n", "INBOX_TRIGGER.json"),
        ('inbox: imap:desk@example.org\nallowFrom: "@example.org"\n', "INBOX_TRIGGER.json"),
    ],
)
async def test_a_repository_makes_up_no_event_for_a_run_that_nobody_sent_one_for(
    host: Any, repos: Any, keys: str, file: str
) -> None:
    job(host, repos.make({**FILES, file: '{"action": "deploy"}'}), keys=keys)
    agent = Worker()
    async with host.engine(agent=agent, env=env()) as engine:
        run = await engine.run("review")
    assert (run.state, run.failure.code) == ("aborted", "payload-blocked")
    assert file in run.failure.message
    assert agent.turns == []


@one_loop
async def test_nothing_is_written_through_a_link_of_the_repository(
    host: Any, repos: Any, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    job(host, repos.make({".WEBHOOK_PAYLOAD.json.partial": victim}))
    agent = Worker()
    async with host.engine(agent=agent, env=env()) as engine:
        await engine.fire("review", payload=b"{}")
        await engine.settled()
    assert victim.read_text() == "untouched"
    assert (agent.turns[0].cwd / "WEBHOOK_PAYLOAD.json").read_bytes() == b"{}"


@one_loop
@pytest.mark.parametrize(
    "files, code",
    [
        ({"skills": Path("/tmp")}, "skill-blocked"),
        ({"skills/report": Path("/tmp")}, "skill-blocked"),
        ({"skills": Path(".agent/skills"), ".agent/skills/x/SKILL.md": "X\n"}, None),
    ],
)
async def test_what_stands_where_skills_go_is_not_written_through(
    host: Any, repos: Any, files: dict[str, str | Path], code: str | None
) -> None:
    """A link that stays in the repository is followed; what leaves it or is no skill aborts."""
    job(host, repos.make({**FILES, **files}))
    host.file("skills/report/SKILL.md", "Report.\n")
    agent = Worker(lambda turn: tool(turn, "status", "--porcelain", "-uall") or "clean")
    async with host.engine(agent=agent, env=env()) as engine:
        run = await engine.run("review")
    if code is not None:
        assert (run.state, run.failure.code) == ("aborted", code)
        assert agent.turns == []
        return
    assert run.turns[0].reply.text == "clean"
    (turn,) = agent.turns
    assert {skill.name for skill in turn.skills} == {"x", "report"}
    assert (turn.cwd / ".agent/skills/report/SKILL.md").read_text() == "Report.\n"


# ---- the token


@one_loop
@pytest.mark.slow
async def test_the_token_reaches_git_by_the_environment_alone(
    host: Any, guarded: Any, repos: Any, tmp_path: Path
) -> None:
    """Clone, fetch and push work; the token is in no argument, file, record or event.

    Nor do the machine's own helpers hear of it, which would write it to the disk.
    """
    log = tmp_path / "argv.log"
    host.tool("git", f'printf "%s\\n" "$*" >> {log}; exec /usr/bin/git "$@"')
    host.file("skills/report/SKILL.md", "Report.\n")
    job(host, guarded.url())

    def work(turn: Turn) -> str:
        assert turn.env["GITHUB_TOKEN"] == TOKEN
        (turn.cwd / "code.py").write_text("print(2)\n")
        tool(turn, "checkout", "-q", "-b", "change")
        tool(turn, "add", "-A")
        tool(turn, "commit", "-q", "-m", "Two")
        tool(turn, "fetch", "-q")
        tool(turn, "push", "-q", "origin", "change")
        return f"pushed with {turn.env['GITHUB_TOKEN']}"

    settings = {"git_hosts": (guarded.host,)}
    agent = Worker(work)
    stored = tmp_path / "stored"
    variables = {
        "GITHUB_TOKEN": f"{TOKEN}\n",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "credential.helper",
        "GIT_CONFIG_VALUE_0": f"store --file={stored}",
    }
    async with host.engine(agent=agent, env=env(**variables), settings=settings) as engine:
        run = await engine.run("review")
        assert run.state == "succeeded", run.failure
        assert run.turns[0].reply.text == "pushed with [redacted GITHUB_TOKEN]"
    tree = repos.git("ls-tree", "-r", "--name-only", "change")
    assert tree.split() == ["code.py", "docs/a.md"]
    assert repos.git("log", "-1", "--format=%an %cn", "change") == ("Author Committer\n")
    assert guarded.authorizations
    assert "clone" in log.read_text()
    assert TOKEN not in log.read_text()
    assert not stored.exists()
    files = [path for path in host.data.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
    with closing(sqlite3.connect(host.data / "drumbeat.db")) as database:
        assert TOKEN not in "\n".join(database.iterdump())


@one_loop
@pytest.mark.slow
@pytest.mark.parametrize(
    "given, said",
    [({}, "could not read Username"), ({"GITHUB_TOKEN": "wrong-token"}, "Authentication failed")],
)
async def test_without_the_right_token_the_run_aborts_and_is_voiced(
    host: Any, guarded: Any, given: dict[str, str], said: str
) -> None:
    job(host, guarded.url())
    settings = {"git_hosts": (guarded.host,)}
    async with host.engine(agent=Worker(), env=env(**given), settings=settings) as engine:
        run = await engine.run("review")
        await engine.settled()
    assert (run.state, run.failure.code) == ("aborted", "repo-access")
    assert said in run.failure.message
    assert "wrong-token" not in run.failure.message
    assert "GITHUB_TOKEN" in run.failure.remedy
    assert [intent.gate for intent in host.deliverer.intents] == ["run-failed"]


@one_loop
@pytest.mark.slow
async def test_a_host_that_is_not_listed_is_shown_no_token(host: Any, guarded: Any) -> None:
    """Nor has the agent it, as what it works on there is somebody else's."""
    job(host, guarded.url())
    agent = Worker()
    async with host.engine(agent=agent, env=env(GITHUB_TOKEN=TOKEN)) as engine:
        refused = await engine.run("review")
        guarded.token = None
        open_to_all = await engine.run("review")
    assert (refused.state, refused.failure.code) == ("aborted", "repo-access")
    assert open_to_all.state == "succeeded"
    assert guarded.seen
    assert guarded.authorizations == []
    assert "GITHUB_TOKEN" not in agent.turns[0].env


@one_loop
@pytest.mark.slow
async def test_a_host_that_quotes_the_token_as_it_refuses_it_puts_it_into_no_record(
    host: Any, guarded: Any
) -> None:
    """Git sends it in base64, and repeats what the host says to the engine and to the agent."""
    job(host, guarded.url())

    def fetch(turn: Turn) -> str:
        guarded.quotes = True
        return tool(turn, "fetch")

    settings = {"git_hosts": (guarded.host,)}
    async with host.engine(
        agent=Worker(fetch), env=env(GITHUB_TOKEN=TOKEN), settings=settings
    ) as engine:
        told = await engine.run("review")
        refused = await engine.run("review")
        await engine.settled()
    assert "you sent Basic [redacted GITHUB_TOKEN in base64]" in told.turns[0].reply.text
    assert refused.failure.code == "repo-access"
    assert "you sent Basic …" in refused.failure.message
    sent = {each.removeprefix("Basic ").rstrip("=") for each in guarded.authorizations}
    kept = b"".join(each.read_bytes() for each in host.data.rglob("*") if each.is_file())
    assert len(sent) == 1
    assert not any(each.encode() in kept for each in sent)
    assert not any(each in intent.text for each in sent for intent in host.deliverer.intents)


@one_loop
@pytest.mark.slow
async def test_a_redirect_to_another_port_takes_no_token_along(
    host: Any, repos: Any, guarded: Any
) -> None:
    with repos.serving(token=TOKEN, redirect=f"http://{guarded.host}") as door:
        job(host, door.url())
        settings = {"git_hosts": (door.host,)}
        async with host.engine(
            agent=Worker(), env=env(GITHUB_TOKEN=TOKEN), settings=settings
        ) as engine:
            run = await engine.run("review")
    assert (run.state, run.failure.code) == ("aborted", "repo-access")
    assert door.authorizations
    assert guarded.seen
    assert guarded.authorizations == []


@one_loop
async def test_a_token_among_the_secrets_is_for_git_alone(host: Any, repos: Any) -> None:
    """In the environment it is inherited like any variable, but by jobs with a repository."""
    job(host, repos.make(FILES))
    host.write("check")
    async with host.engine(env=env(GITHUB_TOKEN=TOKEN)) as engine:
        await engine.run("check")
        await engine.run("review")
    async with host.engine(env=env(), secrets={"GITHUB_TOKEN": TOKEN}) as engine:
        await engine.run("check")
    held = [turn.env.get("GITHUB_TOKEN") for turn in host.agent.turns]
    assert held == [TOKEN, None, None]


@one_loop
@pytest.mark.parametrize("fate", ["edited", "removed"])
async def test_an_answer_stays_within_the_fences_of_the_clone_whatever_became_of_the_file(
    host: Any, repos: Any, fate: str
) -> None:
    """The run's record says what was cloned: no other address brings a token, or takes fences."""
    repos.git("init", "-q", cwd=host.workspace)
    job(host, repos.make(FILES))
    agent = Worker(lambda turn: tool(turn, "rev-parse", "--show-toplevel"))
    async with host.engine(agent=agent, env=env(GITHUB_TOKEN=TOKEN)) as engine:
        run = await engine.run("review")
        assert run.repo == f"file://{repos.root}/product.git"
        if fate == "edited":
            host.file("jobs/review.md", "---\n---\nReview.\n")
        else:
            (host.workspace / "jobs" / "review.md").unlink()
        await engine.reload()
        work = host.folder(run) / "work"
        assert (await engine.reply(run.run_id, "And?")).text.strip() == str(work)
        shutil.rmtree(work)
        assert "not a git repository" in (await engine.reply(run.run_id, "And?")).text
    assert [turn.env.get("GITHUB_TOKEN") for turn in agent.turns] == [None, None, None]


@one_loop
async def test_git_takes_no_repository_around_the_folder_of_a_job_without_one(
    host: Any, repos: Any
) -> None:
    """The workspace with the policy mostly is one, and lies around the data folder."""
    repos.git("init", "-q", cwd=host.workspace)
    host.file("jobs/review.md", "---\n---\nReview.\n")
    agent = Worker(lambda turn: tool(turn, "rev-parse", "--show-toplevel"))
    async with host.engine(agent=agent, env=env(GIT_DIR=f"{host.workspace}/.git")) as engine:
        run = await engine.run("review")
        answer = await engine.reply(run.run_id, "And?")
    assert "not a git repository" in run.turns[0].reply.text
    assert "not a git repository" in answer.text


# ---- what keeps it from being cloned


@one_loop
@pytest.mark.parametrize(
    "address, code",
    [
        ("file:///nowhere/at/all.git", "repo-missing"),
        ("http://127.0.0.1:9/product.git", "repo-unreachable"),
    ],
)
async def test_a_repository_that_cannot_be_had_aborts_before_any_turn(
    host: Any, address: str, code: str
) -> None:
    job(host, address)
    agent = Worker()
    async with host.engine(agent=agent, env=env()) as engine:
        run = await engine.run("review")
    assert (run.state, run.failure.code) == ("aborted", code)
    assert address in run.failure.message
    assert agent.turns == []


@one_loop
async def test_without_git_the_run_says_so(host: Any, repos: Any) -> None:
    job(host, repos.make(FILES))
    async with host.engine(agent=Worker(), env={**env(), "PATH": str(repos.root)}) as engine:
        run = await engine.run("review")
    assert (run.state, run.failure.code) == ("aborted", "git-missing")


@one_loop
async def test_what_git_says_is_told_without_control_characters_or_users(
    host: Any, repos: Any
) -> None:
    host.tool(
        "git", r"""printf 'remote: \033[31mred\nfatal: https://me:pw@h/x is odd\n' >&2; exit 3"""
    )
    job(host, f"file://{repos.root}/x")
    async with host.engine(agent=Worker(), env=env()) as engine:
        run = await engine.run("review")
    assert run.failure.code == "clone-failed"
    assert "\x1b" not in run.failure.message
    assert "https://…@h/x is odd" in run.failure.message
    assert "code 3" in run.failure.message


@one_loop
@pytest.mark.parametrize(
    "script, code",
    [
        ("case $* in *ls-files*) exit 9;; esac", "clone-failed"),
        ("case $* in *ls-files*) ;; *for-each*) ;; *rev-parse*) touch .git/info;; esac", None),
    ],
)
async def test_what_cannot_be_hidden_is_not_laid_open(
    host: Any, repos: Any, script: str, code: str | None
) -> None:
    """Neither a git that does not say what it would add, nor a clone that takes no exclude file."""
    host.tool("git", f'{script}\nexec /usr/bin/git "$@"')
    host.file("skills/report/SKILL.md", "Report.\n")
    job(host, repos.make(FILES))
    agent = Worker()
    async with host.engine(agent=agent, env=env()) as engine:
        run = await engine.run("review")
    assert (run.state, run.failure.code) == ("aborted", code or "work-folder-unwritable")
    assert agent.turns == []


@pytest.mark.parametrize(
    "anyio_backend, limits",
    [
        ("asyncio", {"clone_timeout": timedelta(seconds=0.3)}),
        ("trio", {"run_timeout": timedelta(seconds=0.3)}),
    ],
    indirect=["anyio_backend"],
)
async def test_a_clone_that_takes_too_long_is_ended(
    host: Any, repos: Any, tmp_path: Path, limits: dict[str, timedelta]
) -> None:
    """By its own limit, or by what the run has left."""
    child = tmp_path / "child"
    host.tool("git", f"echo $$ > {child}; exec sleep 300")
    job(host, f"file://{repos.root}/x")
    async with host.engine(agent=Worker(), env=env(), settings=limits) as engine:
        run = await engine.run("review")
    assert (run.state, run.failure.code) == ("aborted", "repo-timeout")
    # On a busy machine its time may be up before it has said who it is.
    if child.exists() and (pid := child.read_text().strip()):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


async def test_a_clone_that_is_cancelled_leaves_no_process(
    host: Any, repos: Any, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    git_tool = host.tool("git", f"echo $$ > {child}.new; mv {child}.new {child}; exec sleep 300")
    work = tmp_path / "work"
    work.mkdir()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(_clone, work, f"{git_tool.parent}:/usr/bin:/bin")
            while not child.exists():
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)


async def _clone(work: Path, path: str) -> None:
    await clone_repository("file:///x", work, env={"PATH": path}, timeout=timedelta(minutes=5))
