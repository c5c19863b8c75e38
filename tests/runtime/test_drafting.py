"""A job that the agent drafts: judged, shown what is wrong, and never put over a file (13.4)."""

import errno
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from drumbeat import AgentError, Draft, EngineBusy, Turn, WorkspaceError
from drumbeat.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

WISH = "Look at the shelf every Monday at seven."
FILE = '---\ncron: "0 7 * * MON"\n---\n\nLook at the shelf, and say what is missing.\n'
MAIL = 'inbox: imap:a@b.example\nallowFrom: "@b.example"'
GOOD = f"jobs/shelf-look.md\n{FILE}"


def answers(host: Any, *said: Any) -> ScriptedAgent:
    host.agent = ScriptedAgent({"draft": list(said)}, default="done")
    return host.agent  # type: ignore[no-any-return]


def below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def codes(draft: Draft) -> list[str]:
    return [problem.code for problem in draft.problems]


async def test_wrong_twice_and_then_right_is_written(host: Any) -> None:
    """In one conversation; each time the agent is shown all that is wrong."""
    host.write("backups", steps=["Look at the backups."])
    host.file("SYSTEM.md", "Be brief.")
    agent = answers(
        host,
        "I would suggest a job.",
        'jobs/Shelf look.md\n---\ncron: "0 7 * *"\nmodle: x\n---\n\nLook.\n',
        f"```markdown\n{GOOD}```",
    )
    async with host.engine() as engine:
        before = [event async for event in engine.events(follow=False)]
        draft = await engine.draft_job(WISH)
        assert [event async for event in engine.events(follow=False)] == before
        assert (await engine.runs(), await engine.fires()) == ([], [])
        path = host.workspace / "jobs" / "shelf-look.md"
        assert draft == Draft(text=FILE, path=path, problems=())
        assert path.read_text() == FILE
        assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
        assert below(path.parent) == ["shelf-look.md"]
        run = await engine.run("shelf-look")
        assert run.state == "succeeded"
    first, second, third = agent.turns[:3]
    assert {turn.session_id for turn in agent.turns[:3]} == {first.session_id}
    assert [turn.is_new for turn in agent.turns[:3]] == [True, False, False]
    assert (first.slug, first.origin, first.run_id, first.automation) == (
        "_draft",
        "draft",
        None,
        None,
    )
    assert first.prompt == WISH
    assert "- automations/backups.md (by hand): Look at the backups." in first.context
    assert first.system_prompt == "Be brief."
    assert (second.context, third.context) == ("", "")
    assert "[draft-unreadable]" in second.prompt
    for code in ("slug-invalid", "cron-field-count", "unknown-key"):
        assert f"[{code}]" in third.prompt
    assert "did you mean 'model'" in third.prompt


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


async def test_an_agent_that_never_gets_it_right_writes_nothing(host: Any) -> None:
    """After three answers; the last one is handed back with what is wrong with it."""
    agent = answers(host, "one", "two", "jobs/a.md\n---\ncorn: x\n---\nLook.\n")
    async with host.engine() as engine:
        draft = await engine.draft_job(WISH)
    assert (draft.path, codes(draft)) == (None, ["unknown-key"])
    assert draft.text == "---\ncorn: x\n---\nLook.\n"
    assert len(agent.turns) == 3
    assert not (host.workspace / "jobs").exists()


async def test_a_dry_run_writes_nothing(host: Any) -> None:
    """And says where the file would be; the folder is not made either."""
    answers(host, GOOD)
    async with host.engine() as engine:
        draft = await engine.draft_job(WISH, dry_run=True)
    path = host.workspace / "jobs" / "shelf-look.md"
    assert draft == Draft(text=FILE, path=path, problems=())
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "there",
    [
        "jobs/shelf-look.md",
        "jobs/Shelf-Look.md",
        "jobs/shelf-look.MD",
        "automations/shelf-look.md",
        "automations/SHELF-LOOK.md",
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_slug_that_is_taken_is_refused(host: Any, there: str, dry_run: bool) -> None:
    """Case aside, in both folders, and whether that file loads or not."""
    taken = host.file(there, "not even a file of ours")
    answers(host, GOOD, GOOD, GOOD.replace("shelf-look", "shelf"))
    async with host.engine() as engine:
        draft = await engine.draft_job(WISH, dry_run=dry_run)
    assert draft.path == host.workspace / "jobs" / "shelf.md"
    assert draft.path.exists() is not dry_run
    assert "[slug-clash]" in host.agent.turns[1].prompt
    assert there in host.agent.turns[1].prompt
    assert taken.read_text() == "not even a file of ours"


def appear(host: Any) -> None:
    host.file("jobs/shelf-look.md", "somebody was faster")


def link_to_nothing(host: Any) -> None:
    (host.workspace / "jobs").mkdir(exist_ok=True)
    (host.workspace / "jobs" / "shelf-look.md").symlink_to("nowhere")


@pytest.mark.parametrize("happens", [appear, link_to_nothing])
@pytest.mark.parametrize("links", [True, False])
async def test_a_file_that_appears_meanwhile_stays(
    host: Any, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Any], None], links: bool
) -> None:
    """It appears after the last look and before the file is created."""
    answers(host, GOOD, "no", "no")
    link = os.link

    def late(source: Path, target: Path) -> None:
        happens(host)
        if not links:
            raise OSError(errno.EPERM, "no links here")
        link(source, target)

    async with host.engine() as engine:
        with monkeypatch.context() as patched:
            patched.setattr(os, "link", late)
            draft = await engine.draft_job(WISH)
    assert draft.path is None
    assert "[slug-clash]" in host.agent.turns[1].prompt
    there = host.workspace / "jobs" / "shelf-look.md"
    assert below(there.parent) == ["shelf-look.md"]
    if happens is appear:
        assert there.read_text() == "somebody was faster"
    else:
        assert there.is_symlink()
        assert not (there.parent / "nowhere").exists()


async def test_what_was_in_the_way_for_a_moment_makes_no_draft_look_written(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file came and went between the look and the link."""
    answers(host, GOOD, GOOD)
    link, refused = os.link, [FileExistsError(errno.EEXIST, "File exists")]

    def once(source: Path, target: Path) -> None:
        if refused:
            raise refused.pop()
        link(source, target)

    async with host.engine() as engine:
        with monkeypatch.context() as patched:
            patched.setattr(os, "link", once)
            draft = await engine.draft_job(WISH)
    assert "[slug-clash]" in host.agent.turns[1].prompt
    assert draft.path is not None
    assert draft.path.read_text() == FILE


async def test_a_file_system_without_links_will_do(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(host, GOOD)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    async with host.engine() as engine:
        with monkeypatch.context() as patched:
            patched.setattr(os, "link", refuse)
            draft = await engine.draft_job(WISH)
    assert draft.path is not None
    assert draft.path.read_text() == FILE
    assert below(draft.path.parent) == ["shelf-look.md"]


@pytest.mark.parametrize("call", ["link", "fsync"])
async def test_a_folder_that_takes_nothing_loses_no_text(
    host: Any, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It is said at once: no other answer would help. Nothing is left of the file."""
    agent = answers(host, GOOD)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with host.engine() as engine:
        with monkeypatch.context() as patched:
            patched.setattr(os, call, full)
            draft = await engine.draft_job(WISH)
    assert (draft.path, draft.text, codes(draft)) == (None, FILE, ["jobs-folder-unwritable"])
    assert "No space left on device" in draft.problems[0].message
    assert below(host.workspace / "jobs") == []
    assert len(agent.turns) == 1


async def test_a_folder_that_leads_out_of_the_workspace_is_refused(
    host: Any, tmp_path: Path
) -> None:
    """Before the agent is asked; and also if it leads there by the time the answer has come."""
    outside = tmp_path / "outside"
    outside.mkdir()
    jobs = host.workspace / "jobs"
    jobs.symlink_to(outside)
    agent = answers(host)
    async with host.engine() as engine:
        with pytest.raises(WorkspaceError) as caught:
            await engine.draft_job(WISH)
    assert caught.value.problem.code == "jobs-folder-outside"
    assert agent.turns == []
    jobs.unlink()

    def say(_: Turn) -> str:
        jobs.symlink_to(outside)
        return GOOD

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        draft = await engine.draft_job(WISH)
    assert (draft.path, codes(draft)) == (None, ["jobs-folder-outside"])
    assert below(outside) == []


@pytest.mark.parametrize("hidden", [".git/hooks", ".drumbeat", "content/.cache"])
async def test_a_folder_that_leads_to_what_others_keep_is_refused(host: Any, hidden: str) -> None:
    """What lies in a hidden folder is no part of the workspace's content."""
    (host.workspace / hidden).mkdir(parents=True, exist_ok=True)
    (host.workspace / "jobs").symlink_to(hidden)
    agent = answers(host)
    async with host.engine() as engine:
        with pytest.raises(WorkspaceError) as caught:
            await engine.draft_job(WISH)
    assert caught.value.problem.code == "jobs-folder-outside"
    assert "hidden" in caught.value.problem.message
    assert agent.turns == []


async def test_a_link_within_the_workspace_will_do(host: Any) -> None:
    (host.workspace / "content").mkdir()
    (host.workspace / "jobs").symlink_to("content")
    answers(host, GOOD)
    async with host.engine() as engine:
        draft = await engine.draft_job(WISH)
    assert draft.path == host.workspace / "jobs" / "shelf-look.md"
    assert below(host.workspace / "content") == ["shelf-look.md"]


async def test_what_is_no_folder_is_refused(host: Any) -> None:
    answers(host)
    async with host.engine() as engine:
        host.file("jobs", "in the way")
        with pytest.raises(WorkspaceError) as caught:
            await engine.draft_job(WISH)
    assert caught.value.problem.code == "jobs-folder-unusable"


@pytest.mark.parametrize(
    "answer, code",
    [
        (GOOD.replace("shelf-look", "readme"), "slug-invalid"),
        (GOOD.replace("shelf-look", "_shelf"), "slug-invalid"),
        (GOOD.replace("shelf-look", "s" * 101), "slug-invalid"),
        (GOOD.replace("the shelf", "what s3cret-value opens"), "draft-secret"),
        (GOOD.replace("the shelf", "sk-live-A1b2C3d4E5f6G7h8I9j0K1"), "secret-in-file"),
        (
            GOOD.replace("cron", "inbox: imap:a@b.example\nallowFrom: x\ncron"),
            "inbox-system-unknown",
        ),
        (GOOD.replace("cron", "webhook: ring\ncron"), "route-clash"),
        (GOOD.replace("Look at the shelf, and say what is missing.", ""), "prompt-blank"),
        (GOOD.replace("the shelf", "the \ud800"), "not-utf8"),
    ],
)
async def test_what_the_workspace_would_not_take_is_shown(
    host: Any, answer: str, code: str
) -> None:
    """As the loader and the linter judge it, and without showing what is secret."""
    host.file("jobs/bell.md", "---\nwebhook: Ring\n---\nRing.\n")
    agent = answers(host, answer, answer, answer)
    async with host.engine(secrets={"MY_TOKEN": "s3cret-value"}) as engine:
        draft = await engine.draft_job(WISH)
    assert (draft.path, codes(draft)) == (None, [code])
    assert f"[{code}]" in agent.turns[1].prompt
    assert "s3cret-value" not in agent.turns[1].prompt
    assert "sk-live-A1" not in agent.turns[1].prompt
    assert below(host.workspace / "jobs") == ["bell.md"]


async def test_warnings_keep_nothing_from_being_written(host: Any) -> None:
    """An author may look at them with `drumbeat validate`."""
    answers(host, GOOD.replace("0 7 * * MON", "*/7 * 13 * FRI"))
    async with host.engine() as engine:
        draft = await engine.draft_job(WISH)
    assert draft.problems == ()
    assert draft.path is not None


async def test_the_systems_of_the_host_may_be_used(host: Any) -> None:
    class Mailbox:
        async def poll(self, address: str, after: str | None, /) -> Any:
            raise ConnectionError

    agent = answers(host, f"jobs/mail.md\n---\n{MAIL}\n---\nLook.\n")
    async with host.engine(mail={"imap": Mailbox()}) as engine:
        draft = await engine.draft_job(WISH, dry_run=True)
    assert draft.problems == ()
    assert "The mail systems are: imap." in agent.turns[0].context


async def test_it_has_the_time_of_one_run_for_all_answers(host: Any) -> None:
    raised: list[AgentError] = []

    async def say(turn: Turn) -> str:
        await host.clock.sleep(timedelta(minutes=25))
        return "nothing"

    async def draft() -> None:
        try:
            await engine.draft_job(WISH)
        except AgentError as error:
            raised.append(error)

    host.agent = ScriptedAgent(default=say)
    engine = host.engine()
    async with engine, anyio.create_task_group() as group:
        group.start_soon(draft)
        await host.clock.advance(timedelta(hours=2))
    assert [error.code for error in raised] == ["draft-timeout"]
    assert len(host.agent.turns) == 3


async def test_what_cannot_be_drafted_is_refused(host: Any) -> None:
    host.write()
    async with host.engine() as engine:
        with pytest.raises(ValueError, match="description must not be blank"):
            await engine.draft_job(" ")
        async with host.engine(standby=True) as standby:
            with pytest.raises(EngineBusy):
                await standby.draft_job(WISH)
        await engine.drain("enough")
        with pytest.raises(EngineBusy):
            await engine.draft_job(WISH)
    assert host.agent.turns == []
