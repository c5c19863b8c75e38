"""What is known of files that are gone, and of folders that are away."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from drumbeat import DrumbeatError, Fire, NotFound, Problem, StoreError, WorkspaceError
from drumbeat.runtime import known_files
from drumbeat.runtime.store import SqliteStore

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
FULL = StoreError(Problem(code="store-full", message="no room", remedy="make some"))
JOB = "---\nwebhook: door\n---\nLook.\n"


async def said(host: Any, engine: Any) -> list[tuple[str | None, Any]]:
    return [(each.slug, each.data) for each in await host.events(engine, "automation_removed")]


async def test_a_file_that_counts_as_removed_is_named_with_what_ended_for_it(host: Any) -> None:
    host.write("stays")
    job = host.file("jobs/job.md", JOB)
    host.file("jobs/other.md", "---\ncron: never\n---\nLook.\n")
    with capture_logs() as logs:
        async with host.engine() as engine:
            await engine.fire("job", after=DAY)
            await engine.fire("job", after=2 * DAY)
            job.unlink()
            await host.look()
            assert await said(host, engine) == []
            await host.look(3)
            path = "jobs/job.md"
            assert await said(host, engine) == [("job", {"path": path, "skipped": 2})]
            why = await engine.why("job", at=host.clock.now() - timedelta(hours=7))
            host.file("jobs/job.md", JOB)
            await host.look()
            back = await engine.why("job", at=host.clock.now() - timedelta(hours=7))
            job.unlink()
            await host.look(3)
            assert await said(host, engine) == [
                ("job", {"path": path, "skipped": 2}),
                ("job", {"path": path, "skipped": 0}),
            ]
    assert (
        "its file jobs/job.md is gone and has counted as removed since 2026-03-02T12:00:20Z" in why
    )
    assert "removed since" not in back
    (line, _) = [line for line in logs if line["event"] == "automation_removed"]
    assert (line["log_level"], line["path"], line["skipped"]) == ("warning", path, 2)


async def test_a_time_of_day_behind_a_removal_is_told_by_the_removal(host: Any) -> None:
    """It is no moment that an engine has to take up yet, unless it came before."""
    host.write("stays")
    host.write("goes", trigger={"type": "schedule", "expression": "daily at 14:00"})
    noon = host.clock.now()
    async with host.engine() as engine:
        await host.clock.advance(timedelta(hours=3))
        (host.workspace / "automations" / "goes.md").unlink()
        await host.look(3)
        await host.clock.advance(2 * DAY)
        after = await engine.why("goes", at=noon + timedelta(hours=26))
    assert "goes was not due at 2026-03-03T14:00:00Z; before that, goes (schedule)" in after
    assert "its file automations/goes.md is gone and has counted as removed since" in after
    assert "taken that up" not in after


async def test_a_moment_that_was_owed_as_its_file_went_is_told_with_that(host: Any) -> None:
    host.write("stays")
    host.write("goes", trigger={"type": "schedule", "expression": "daily at 14:00"})
    noon = host.clock.now()
    async with host.engine():
        pass
    (host.workspace / "automations" / "goes.md").unlink()
    await host.clock.advance(timedelta(hours=3))
    async with host.engine() as engine:
        await host.look(3)
        told = await engine.why("goes", at=noon + timedelta(hours=2))
    assert "goes was due at 2026-03-02T14:00:00Z, and no engine took that up; its file" in told
    assert "counted as removed since 2026-03-02T15:00:" in told
    assert "no engine was there from 2026-03-02T12:00:00Z to 2026-03-02T15:00:00Z" in told


async def test_a_removal_that_the_store_did_not_take_is_said_later(host: Any) -> None:
    """With what ended for it by then, and once."""
    host.write("stays")
    host.write("goes")
    store = host.faulty()
    async with host.engine(store=store) as engine:
        await engine.fire("goes", after=DAY)
        (host.workspace / "automations" / "goes.md").unlink()
        store.faults["record automation_removed"] = [FULL]
        await host.look(2)
        assert await said(host, engine) == []
        await host.look(6)
        assert await said(host, engine) == [("goes", {"path": "automations/goes.md", "skipped": 1})]


async def test_a_file_that_went_while_no_engine_ran_is_missed(host: Any) -> None:
    host.write("stays")
    host.write("goes")
    async with host.engine() as engine:
        await engine.fire("goes", after=DAY)
    (host.workspace / "automations" / "goes.md").unlink()
    async with host.client() as client:
        with pytest.raises(NotFound):
            await client.why("nothing", at=host.clock.now())
    async with host.engine() as engine:
        await host.look(3)
        assert await said(host, engine) == [("goes", {"path": "automations/goes.md", "skipped": 1})]


async def test_a_file_that_only_ever_stood_there_is_known_by_its_removal(host: Any) -> None:
    """Nothing else is on record of it."""
    host.write("stays")
    host.file("jobs/other.md", JOB)
    job = host.file("jobs/job.md", "---\ncron: never\n---\nLook.\n")
    async with host.engine() as engine:
        job.unlink()
        await host.look(2)
        here = await engine.why("job", at=host.clock.now())
    async with host.client() as client:
        there = await client.why("job", at=host.clock.now())
    assert "its file jobs/job.md is gone and has counted as removed since" in here
    assert "its file jobs/job.md is gone and has counted as removed since" in there


async def test_a_start_without_a_folder_loses_nothing_that_lay_in_it(host: Any) -> None:
    """A reboot before the mount: what was accepted waits, and everybody is told what is away."""
    host.write("stays")
    host.file("jobs/job.md", JOB)
    jobs, away = host.workspace / "jobs", host.workspace / "away"
    async with host.engine() as engine:
        await engine.pause("job", "for now")
    async with host.client() as client:
        await client.resume("job")
        fire = await client.fire("job", slot="one")
    jobs.rename(away)
    async with host.client() as client:
        (fault,) = (await client.status()).faults
        assert (fault.code, str(jobs) in fault.message) == ("automations-folder-missing", True)
        with pytest.raises(WorkspaceError, match="automations-folder-missing"):
            await client.upcoming(until=host.clock.now() + DAY)
        with pytest.raises(DrumbeatError, match="automations-folder-missing"):
            await client._find_route("door")
    with capture_logs() as logs:
        async with host.engine() as engine:
            (fault,) = (await engine.status()).faults
            assert fault.code == "automations-folder-missing"
            await host.look(4)
            (problem,) = (await engine.status()).workspace.problems[Path("jobs/job.md")]
            assert problem.code == "automations-folder-missing"
            assert await engine.runs() == []
            assert await said(host, engine) == []
            assert "workspace_recovered" not in {line["event"] for line in logs}
            away.rename(jobs)
            await host.look(2)
            assert (await engine.status()).faults == ()
            (run,) = await engine.runs()
    assert (run.fire.id, run.state) == (fire.id, "succeeded")
    assert "workspace_recovered" in {line["event"] for line in logs}


async def test_an_empty_folder_says_that_its_files_are_meant_to_be_gone(host: Any) -> None:
    """At a start as well as under way; then nothing is missed any more."""
    host.write("stays")
    host.file("jobs/job.md", JOB)
    async with host.engine():
        pass
    shutil.rmtree(host.workspace / "jobs")
    async with host.engine() as engine:
        await host.look(2)
        (host.workspace / "jobs").mkdir()
        await host.look(3)
        assert await said(host, engine) == [("job", {"path": "jobs/job.md", "skipped": 0})]
    (host.workspace / "jobs").rmdir()
    async with host.client() as client:
        assert (await client.status()).faults == ()


async def test_a_store_that_cannot_be_read_says_nothing_of_folders(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that no file has is refused as one; who puts an event in is told of the trouble."""
    host.write("stays")
    async with host.engine():
        pass

    async def refuse(store: SqliteStore, prefix: str) -> Any:
        raise FULL

    async with host.client() as client:
        monkeypatch.setattr(SqliteStore, "marks", refuse)
        assert await client._find_route("door") is None


async def test_what_ends_for_a_removal_later_is_told_with_the_file(host: Any) -> None:
    """Such as an event that another process put in before it saw the removal."""
    host.write("stays")
    host.write("goes")
    async with host.engine() as engine:
        (host.workspace / "automations" / "goes.md").unlink()
        await host.look(3)
        now = host.clock.now()
        late = Fire(id="late", slug="goes", cause="webhook", slot="late", due=now, created_at=now)
        await engine._put(late)
        await host.look(3)
        path = "automations/goes.md"
        assert await said(host, engine) == [
            ("goes", {"path": path, "skipped": 0}),
            ("goes", {"path": path, "skipped": 1}),
        ]


async def test_only_the_latest_removals_are_remembered(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what is kept does not grow for ever."""
    monkeypatch.setattr(known_files, "_MOST", 1)
    for slug in ("stays", "first", "second"):
        host.write(slug)
    async with host.engine() as engine:
        for slug in ("first", "second"):
            (host.workspace / "automations" / f"{slug}.md").unlink()
            await host.look(3)
        assert "counted as removed" in await engine.why("second", at=host.clock.now())
        with pytest.raises(NotFound):
            await engine.why("first", at=host.clock.now())
