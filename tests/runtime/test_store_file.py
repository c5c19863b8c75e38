"""The file of the store: made, kept private, checked, upgraded, refused."""

import os
import random
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from drumbeat.core.model import Fire
from drumbeat.errors import StoreError
from drumbeat.runtime import store_schema
from drumbeat.runtime.store import SqliteStore
from drumbeat.runtime.store_problems import store_error
from drumbeat.runtime.store_schema import SCHEMA_VERSION, STEPS, prepare

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
LEASE = timedelta(minutes=5)
BUSY = timedelta(seconds=1)


def fire(number: int) -> Fire:
    return Fire(
        id=f"f{number}",
        slug=f"slug-{number}",
        cause="manual",
        slot=str(number),
        due=NOW,
        created_at=NOW,
        prompt=f"prompt {number} " * 20,
        payload=bytes(300),
    )


async def filled(path: Path, count: int = 3) -> None:
    store = SqliteStore(path)
    await store.open(holder="test", lease=LEASE)
    await store.add_fires([fire(number) for number in range(count)])
    await store.close()


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@pytest.mark.anyio
async def test_the_files_belong_to_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "drumbeat.db"
    umask = os.umask(0)
    try:
        store = SqliteStore(path)
        await store.open(holder="test", lease=LEASE)
        await store.add_fires([fire(1)])
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert modes(path.parent) == dict.fromkeys(
            ["drumbeat.db", "drumbeat.db-wal", "drumbeat.db-shm"], 0o600
        )
        await store.close()
        assert modes(path.parent) == {"drumbeat.db": 0o600}
        path.chmod(0o644)
        await store.open(holder=None, lease=LEASE)
        await store.close()
        assert modes(path.parent) == {"drumbeat.db": 0o600}
    finally:
        os.umask(umask)


@pytest.mark.anyio
async def test_a_store_can_be_opened_again_and_commits_survive(tmp_path: Path) -> None:
    path = tmp_path / "odd name?#%.db"
    await filled(path)
    store = SqliteStore(str(path))
    await store.open(holder=None, lease=LEASE)
    await store.open(holder=None, lease=LEASE)
    assert len(await store.fires()) == 3
    await store.close()
    await store.open(holder=None, lease=LEASE)
    assert (await store.fires())[0] == fire(2)
    await store.close()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.anyio
async def test_commits_are_synced_to_the_disk_before_they_count(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "drumbeat.db")
    await store.open(holder="test", lease=LEASE)
    db = store._using().commits._db
    assert db is not None
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert db.execute("PRAGMA foreign_keys").fetchone() == (1,)
    await store.close()


@pytest.mark.anyio
async def test_who_is_slower_in_making_the_file_uses_the_other_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "drumbeat.db"
    await filled(path)
    store_schema._make(path, busy=BUSY, steps=STEPS)
    store = SqliteStore(path)
    await store.open(holder=None, lease=LEASE)
    assert len(await store.fires()) == 3
    await store.close()
    assert [file.name for file in tmp_path.iterdir()] == ["drumbeat.db"]


@pytest.mark.anyio
@pytest.mark.parametrize("there", [True, False])
async def test_what_a_kill_left_of_a_file_in_the_making_is_cleared_away(
    tmp_path: Path, there: bool
) -> None:
    """By the holder of the folder alone; a client may be making one at that moment."""
    path = tmp_path / "drumbeat.db"
    if there:
        await filled(path)
    left = [f"drumbeat.db.0123456789abcdef.draft{end}" for end in ("", "-wal", "-shm", "-journal")]
    others = ["drumbeat.db.mine.draft", "other.db.0123456789abcdef.draft"]
    for name in (*left, *others):
        (tmp_path / name).touch()
    for holder, rest in ((None, [*left, *others]), ("test", others)):
        store = SqliteStore(path)
        await store.open(holder=holder, lease=LEASE)
        assert len(await store.fires()) == (3 if there else 0)
        await store.close()
        assert {file.name for file in tmp_path.iterdir()} == {path.name, *rest}


def test_who_makes_the_file_while_another_has_made_it_uses_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "drumbeat.db"
    real = os.link

    def faster(draft: Path, name: Path) -> None:
        monkeypatch.setattr(os, "link", real)
        prepare(path, busy=BUSY)
        assert not draft.exists()
        real(draft, name)

    monkeypatch.setattr(os, "link", faster)
    prepare(path, busy=BUSY)
    assert schema_of(path) == (SCHEMA_VERSION, 0, False)
    assert not [file.name for file in tmp_path.iterdir() if "draft" in file.name]


def test_a_file_system_without_hard_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    prepare(tmp_path / "drumbeat.db", busy=BUSY)
    assert schema_of(tmp_path / "drumbeat.db") == (SCHEMA_VERSION, 0, False)
    assert [file.name for file in tmp_path.glob("*.draft*")] == []


def test_a_file_system_without_a_write_ahead_log_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_memory(path: Path, *, busy: timedelta) -> sqlite3.Connection:
        return sqlite3.connect(":memory:")

    monkeypatch.setattr(store_schema, "connect", in_memory)
    with pytest.raises(StoreError, match="no write-ahead log, only memory") as caught:
        prepare(tmp_path / "drumbeat.db", busy=BUSY)
    assert caught.value.problem.code == "store-failed"
    assert list(tmp_path.iterdir()) == []


def test_one_instance_may_serve_one_loop_after_the_other(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "drumbeat.db")

    async def use() -> int:
        await store.open(holder=None, lease=LEASE)
        await store.add_fires([fire(1)])
        found = await store.events(after=0, limit=9, wait=timedelta(days=1))
        await store.close()
        return len(found)

    assert [anyio.run(use, backend=name) for name in ("asyncio", "trio", "asyncio")] == [1, 1, 1]


@pytest.mark.anyio
async def test_a_file_that_vanishes_while_it_is_opened_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "drumbeat.db"
    await filled(path)

    def vanish(path: Path, *, busy: timedelta, whole: bool) -> None:
        path.unlink()

    monkeypatch.setattr("drumbeat.runtime.store.prepare", vanish)
    assert (await refusal(path)).problem.code == "store-failed"


@pytest.mark.anyio
async def test_only_a_holder_reads_the_whole_file_for_damage(tmp_path: Path) -> None:
    """A client opens a large file at once; what is damaged shows when it is read."""
    path = tmp_path / "drumbeat.db"
    await filled(path)
    content = bytearray(path.read_bytes())
    content[4096 * 3 + 100 : 4096 * 4] = b"\xff" * (4096 - 100)
    path.write_bytes(content)
    assert (await refusal(path)).problem.code == "store-damaged"
    client = SqliteStore(path)
    await client.open(holder=None, lease=LEASE)
    await client.close()


@pytest.mark.anyio
async def test_only_a_holder_upgrades(tmp_path: Path) -> None:
    """A client of a later release does not change the schema under a running engine."""
    path = tmp_path / "drumbeat.db"
    await filled(path)
    before = path.read_bytes()
    steps = (*STEPS, lambda db: db.execute("CREATE TABLE more (a)"))
    with pytest.raises(StoreError) as refused:
        prepare(path, busy=LEASE, steps=steps, whole=False)
    assert refused.value.problem.code == "store-older"
    assert path.read_bytes() == before


# ---- what cannot be used


async def refusal(path: Path, *, holder: str | None = "test") -> StoreError:
    store = SqliteStore(path, busy_timeout=timedelta(milliseconds=5))
    with pytest.raises(StoreError) as caught:
        await store.open(holder=holder, lease=LEASE)
    assert caught.value.problem.path == path
    assert path.name in caught.value.problem.message
    assert caught.value.problem.remedy
    with pytest.raises(StoreError, match="store-closed"):
        await store.fires()
    return caught.value


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
        db.commit()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "write, said",
    [
        (lambda path: path.write_bytes(b""), "it is empty"),
        (lambda path: path.write_text("not a database\n" * 99), "file is not a database"),
        (lambda path: path.write_bytes(b"SQLite format 3\x00" + bytes(9)), "is damaged"),
        (foreign, "another program wrote it"),
    ],
)
async def test_what_is_no_store_is_refused_and_left_as_it_was(
    tmp_path: Path, write: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "drumbeat.db"
    write(path)
    path.chmod(0o640)
    before = path.read_bytes()
    error = await refusal(path)
    assert error.problem.code == "store-damaged"
    assert said in error.problem.message
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.anyio
async def test_a_schema_of_a_later_release_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "drumbeat.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    for holder in ("test", None):
        error = await refusal(path, holder=holder)
        assert error.problem.code == "store-newer"
        assert f"schema {SCHEMA_VERSION + 1}" in error.problem.message
        assert path.read_bytes() == before


@pytest.mark.anyio
async def test_a_path_that_cannot_hold_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert (await refusal(tmp_path / "file" / "drumbeat.db")).problem.code == "store-failed"
    assert (await refusal(tmp_path)).problem.code == "store-failed"


@pytest.mark.anyio
async def test_a_locked_file_is_refused_and_opens_once_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "drumbeat.db"
    await filled(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        assert (await refusal(path)).problem.code == "store-locked"
    store = SqliteStore(path)
    await store.open(holder="test", lease=LEASE)
    assert len(await store.fires()) == 3
    await store.close()


def test_a_disk_that_is_full_while_the_file_is_made_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="no room left") as caught:
        prepare(tmp_path / "drumbeat.db", busy=BUSY)
    assert caught.value.problem.code == "store-full"


@pytest.mark.parametrize(
    "code, expected",
    [
        (sqlite3.SQLITE_BUSY, "store-locked"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "store-locked"),
        (sqlite3.SQLITE_LOCKED, "store-locked"),
        (sqlite3.SQLITE_FULL, "store-full"),
        (sqlite3.SQLITE_CORRUPT_INDEX, "store-damaged"),
        (sqlite3.SQLITE_NOTADB, "store-damaged"),
        (sqlite3.SQLITE_IOERR_FSYNC, "store-failed"),
        (sqlite3.SQLITE_READONLY, "store-failed"),
    ],
)
def test_what_sqlite_says_has_a_code_of_ours(code: int, expected: str) -> None:
    error = sqlite3.OperationalError("said")
    error.sqlite_errorcode = code
    problem = store_error(error, Path("state/drumbeat.db")).problem
    assert problem.code == expected
    assert "drumbeat.db" in problem.message


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_CANTOPEN])
@pytest.mark.parametrize(
    "said, expected",
    [
        ({"f_bavail": 15}, "store-full"),
        ({"f_favail": 0}, "store-full"),
        ({"f_files": 0, "f_favail": 0}, "store-failed"),  # as where inodes are not counted
        ({}, "store-failed"),
    ],
)
def test_what_sqlite_keeps_to_itself_is_asked_of_the_disk(
    monkeypatch: pytest.MonkeyPatch, code: int, said: dict[str, int], expected: str
) -> None:
    """It calls a file that could not grow, or not be made, a failure of the disk."""
    room = {"f_bavail": 100, "f_frsize": 4096, "f_files": 9, "f_favail": 5}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**{**room, **said}))
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    problem = store_error(error, Path("state/drumbeat.db")).problem
    assert problem.code == expected
    assert ("inodes" if expected == "store-full" else "ulimit") in problem.remedy


@pytest.mark.anyio
async def test_a_path_that_is_too_long_for_sqlite_is_said_to_be_that(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 250) / ("e" * 250)
    error = await refusal(folder / "drumbeat.db")
    assert error.problem.code == "store-failed"
    assert "shorter path" in error.problem.remedy
    assert list(folder.iterdir()) == []


def test_a_log_that_cannot_be_written_back_makes_no_store(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
        closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as writer,
    ):
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE t (x)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        writer.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.OperationalError, match="written back"):
            store_schema._write_back(writer)


@pytest.mark.slow
def test_a_damaged_file_is_refused_or_whole(tmp_path: Path) -> None:
    """Cut short or overwritten anywhere, it never opens with less in it."""
    path, victim = tmp_path / "drumbeat.db", tmp_path / "victim.db"
    anyio.run(filled, path, 60)
    whole = path.read_bytes()
    pages = len(whole) // 4096
    chance = random.Random(1)
    cuts = [chance.randrange(len(whole)) for _ in range(20)]
    damaged = [whole[:cut] for cut in [1, 99, 100, 4095, 4096, *cuts]]
    for page in range(pages):
        blank = bytes(4096) if page % 2 else chance.randbytes(4096)
        damaged.append(whole[: page * 4096] + blank + whole[(page + 1) * 4096 :])
    wanted = sorted(f"f{number}" for number in range(60))

    async def look() -> str:
        store = SqliteStore(victim)
        try:
            await store.open(holder="test", lease=LEASE)
            try:
                assert sorted(one.id for one in await store.fires()) == wanted
            finally:
                await store.close()
        except StoreError as error:
            return error.problem.code
        return "whole"

    async def look_at_each() -> list[str]:
        seen = []
        for content in damaged:
            victim.write_bytes(content)
            for end in ("-wal", "-shm"):
                victim.with_name(victim.name + end).unlink(missing_ok=True)
            seen.append(await look())
            assert seen[-1] == "whole" or victim.read_bytes() == content
        return seen

    seen = anyio.run(look_at_each)
    assert set(seen) <= {"whole", "store-damaged"}
    assert seen.count("store-damaged") > len(damaged) * 0.8


@pytest.mark.anyio
async def test_a_damaged_page_met_later_is_named_by_the_question(tmp_path: Path) -> None:
    path = tmp_path / "drumbeat.db"
    await filled(path)
    store = SqliteStore(path)
    await store.open(holder="test", lease=LEASE)
    await store._write(
        "damage", lambda ledger: ledger.db.execute("UPDATE fires SET record = '{' WHERE id = 'f1'")
    )
    with pytest.raises(StoreError, match="the fire f1 that cannot be read") as caught:
        await store.fires()
    assert caught.value.problem.code == "store-damaged"
    assert len(await store.fires(slug="slug-2")) == 1
    await store._write("damage", lambda ledger: ledger.db.execute("DROP TABLE marks"))
    with pytest.raises(StoreError, match="no such table: marks"):
        await store.marks("")
    await store.close()


# ---- upgrades


def add_column(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE marks ADD COLUMN note TEXT")


def fail(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM fires")
    db.execute("SELECT nonsense FROM nowhere")


def schema_of(path: Path) -> tuple[int, int, bool]:
    with closing(sqlite3.connect(path)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (fires,) = db.execute("SELECT count(*) FROM fires").fetchone()
        columns = [row[1] for row in db.execute("PRAGMA table_info(marks)")]
    return version, fires, "note" in columns


@pytest.mark.anyio
async def test_an_upgrade_backs_up_first_and_keeps_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "drumbeat.db"
    await filled(path)
    steps = [*STEPS, add_column]
    prepare(path, busy=BUSY, steps=steps)
    assert schema_of(path) == (SCHEMA_VERSION + 1, 3, True)
    backup = tmp_path / f"drumbeat.db.v{SCHEMA_VERSION}.backup"
    assert schema_of(backup) == (SCHEMA_VERSION, 3, False)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert {file.name for file in tmp_path.iterdir()} == {path.name, backup.name}
    assert (await refusal(path)).problem.code == "store-newer"
    backup.rename(path)
    await filled(path)


@pytest.mark.anyio
async def test_an_upgrade_begins_when_its_backup_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file and its name, so that a cut of the power leaves one or the other."""
    path, synced = tmp_path / "drumbeat.db", []
    await filled(path)
    backup = tmp_path / f"drumbeat.db.v{SCHEMA_VERSION}.backup"
    sync = os.fsync

    def fsync(handle: int) -> None:
        of_folder = os.path.samestat(os.fstat(handle), tmp_path.stat())
        synced.append(("folder" if of_folder else "file", backup.exists(), schema_of(path)[0]))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    prepare(path, busy=BUSY, steps=[*STEPS, add_column])
    assert synced == [("file", False, SCHEMA_VERSION), ("folder", True, SCHEMA_VERSION)]
    assert schema_of(path)[0] == SCHEMA_VERSION + 1


@pytest.mark.anyio
async def test_an_upgrade_that_fails_leaves_the_schema_and_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "drumbeat.db"
    await filled(path)
    with pytest.raises(StoreError, match="no such table: nowhere"):
        prepare(path, busy=BUSY, steps=[*STEPS, add_column, fail])
    assert schema_of(path) == (SCHEMA_VERSION, 3, False)
    store = SqliteStore(path)
    await store.open(holder="test", lease=LEASE)
    assert len(await store.fires()) == 3
    await store.close()


@pytest.mark.anyio
async def test_who_is_slower_in_upgrading_finds_it_done(tmp_path: Path) -> None:
    path = tmp_path / "drumbeat.db"
    await filled(path)
    store_schema._upgrade(path, busy=BUSY, steps=STEPS)
    assert schema_of(path) == (SCHEMA_VERSION, 3, False)
    assert [file.name for file in tmp_path.iterdir()] == ["drumbeat.db"]


def indexes(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql NOT NULL")
        return dict(found.fetchall())


def rows(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        tables = ("fires", "payloads", "marks", "runs", "events")
        return [row for table in tables for row in db.execute(f"SELECT * FROM {table}")]


@pytest.mark.anyio
async def test_a_store_of_each_earlier_schema_becomes_one_of_this(tmp_path: Path) -> None:
    await filled(tmp_path / "whole.db")
    for version in range(1, SCHEMA_VERSION):
        path = tmp_path / f"of-{version}.db"
        prepare(path, busy=BUSY, steps=STEPS[:version])
        with closing(sqlite3.connect(tmp_path / "whole.db")) as db:
            db.execute("ATTACH ? AS earlier", (str(path),))
            for table in ("fires", "payloads"):
                db.execute(f"INSERT INTO earlier.{table} SELECT * FROM {table}")
            db.execute("INSERT INTO earlier.marks VALUES ('m', 7, '{}')")
            db.commit()
        before = rows(path)
        store = SqliteStore(path)
        await store.open(holder="test", lease=LEASE)
        assert [fire.id for fire in await store.fires()] == ["f2", "f1", "f0"]
        await store.close()
        assert schema_of(path) == (SCHEMA_VERSION, 3, False)
        assert rows(path) == before
        assert indexes(path) == indexes(tmp_path / "whole.db")
        assert rows(path.with_name(f"{path.name}.v{version}.backup")) == before
        with closing(sqlite3.connect(path)) as db:
            # Versions of marks go on above those that were given out.
            assert db.execute("SELECT value FROM meta WHERE name = 'marks'").fetchone() == (7,)


@pytest.mark.anyio
async def test_a_store_of_the_first_schema_made_by_this_release_is_whole(tmp_path: Path) -> None:
    """Every index and table that a statement names is there."""
    path = tmp_path / "drumbeat.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as db:
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE sql NOT NULL")}
    assert {"fires", "payloads", "leases", "runs", "intents", "events", "marks", "meta"} <= names
    assert "intents_waiting" in names


def test_a_file_that_may_not_be_opened_is_said_to_be_the_file(tmp_path: Path) -> None:
    """Its folder may be in order."""
    refused = sqlite3.OperationalError("unable to open database file")
    problem = store_error(refused, tmp_path / "drumbeat.db").problem
    assert problem.code == "store-failed"
    assert "check that the file and its folder exist, may be read" in problem.remedy
