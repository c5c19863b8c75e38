"""Files that are damaged, torn or mixed up: whole, or refused loudly and left as they were."""

import random
import shutil
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from drumbeat import Fire, Pin, SessionPins, StoreError
from drumbeat.runtime.store import SqliteStore

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LEASE = timedelta(minutes=5)


async def fill(path: Path, numbers: Iterable[int], *, killed: Path | None = None) -> None:
    """Add fires, one commit each; `killed` gets the files as a kill at the end would leave them."""
    store = SqliteStore(path)
    await store.open(holder="test", lease=LEASE)
    for number in numbers:
        fire = Fire(
            id=f"{number:04d}",
            slug=f"s-{number % 7}",
            cause="manual",
            slot=f"{number}",
            due=NOW,
            created_at=NOW,
        )
        await store.add_fires([fire])
    if killed is not None:
        killed.mkdir()
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", killed / f"drumbeat.db{end}")
    await store.close()


async def look(path: Path) -> list[str] | str:
    """The fires of the store, or why it is refused; what is refused is left byte for byte."""
    files = [path, path.with_name(f"{path.name}-wal")]
    before = [file.read_bytes() if file.is_file() else None for file in files]
    store = SqliteStore(path)
    try:
        await store.open(holder="test", lease=LEASE)
        try:
            return sorted(fire.id for fire in await store.fires(limit=10_000))
        finally:
            await store.close()
    except StoreError as error:
        left = [file.read_bytes() if file.is_file() else None for file in files]
        return error.problem.code if left == before else "not left as it was"


def ids(count: int) -> list[str]:
    return [f"{number:04d}" for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("first", [20, 40, 60])
@pytest.mark.parametrize("then", [5, 30])
def test_a_backup_beside_the_log_of_a_later_state_is_no_store(
    tmp_path: Path, first: int, then: int
) -> None:
    """As when it was put back, and the log was left. It never opens with a mixture."""

    async def mix() -> None:
        path = tmp_path / "of-today.db"
        await fill(path, range(first))
        shutil.copy(path, tmp_path / "backup.db")
        await fill(path, range(first, first + then))
        await fill(path, range(first + then, first + then + 3), killed=tmp_path / "killed")
        victim = tmp_path / "killed" / "drumbeat.db"
        whole = tmp_path / "whole"
        shutil.copytree(tmp_path / "killed", whole)
        assert await look(whole / "drumbeat.db") == ids(first + then + 3)
        shutil.copy(tmp_path / "backup.db", victim)
        found = await look(victim)
        assert found in ("store-damaged", ids(first + then + 3))

    anyio.run(mix)


@pytest.mark.slow
def test_a_log_that_is_torn_or_changed_gives_whole_commits_up_to_there(tmp_path: Path) -> None:
    """Its frames carry checksums: what comes behind the first wrong one was never there."""

    async def tear() -> None:
        await fill(tmp_path / "a.db", range(60), killed=tmp_path / "killed")
        log = (tmp_path / "killed" / "drumbeat.db-wal").read_bytes()
        chance = random.Random(1)
        counts = set()
        for number in range(40):
            content, at = bytearray(log), chance.randrange(len(log))
            if number % 2:
                content[at] ^= 1 << chance.randrange(8)
            else:
                del content[at:]
            victim = tmp_path / f"torn-{number}" / "drumbeat.db"
            victim.parent.mkdir()
            shutil.copy(tmp_path / "killed" / "drumbeat.db", victim)
            victim.with_name("drumbeat.db-wal").write_bytes(content)
            found = await look(victim)
            assert found == ids(len(found)), number
            counts.add(len(found))
        assert len(counts) > 10

    anyio.run(tear)


@pytest.mark.slow
def test_a_file_that_ends_at_any_page_is_refused(tmp_path: Path) -> None:
    """At the beginning and in the middle of each page; it is never a store with less in it."""

    async def cut() -> None:
        await fill(tmp_path / "whole.db", range(60))
        content = (tmp_path / "whole.db").read_bytes()
        page = int.from_bytes(content[16:18], "big")
        assert len(content) > 20 * page
        for end in range(0, len(content), page // 2):
            victim = tmp_path / f"cut-{end}.db"
            victim.write_bytes(content[:end])
            # Reading it makes an empty log beside it, of which nothing is kept.
            victim.with_name(f"{victim.name}-wal").touch()
            assert await look(victim) == "store-damaged", end

    anyio.run(cut)


@pytest.mark.parametrize("name", ["drumbeat.db", "drumbeat.db-wal"])
def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    async def replace() -> None:
        path = tmp_path / "drumbeat.db"
        await fill(path, range(3))
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).mkdir()
        assert await look(path) == "store-failed"
        assert (tmp_path / name).is_dir()

    anyio.run(replace)


@pytest.mark.slow
def test_pins_of_which_any_byte_is_another_are_never_other_pins(tmp_path: Path) -> None:
    """Neither another conversation, nor none: the same, or set aside and refused."""
    path = tmp_path / "session_pins.json"

    async def change_each() -> None:
        pins = SessionPins(tmp_path)
        for slug in ("mail", "brief"):
            await pins.set(
                slug,
                Pin(
                    session_id="5e4c30f2-ae5d-4b58-9286-1d14f0a1f7de",
                    fingerprint="ab" * 32,
                    provider="acme",
                    day=date(2026, 3, 1),
                    at=NOW,
                    handle="thread-1",
                ),
            )
        await pins.rotate("old", reason="fresh", now=NOW, id="r-1")
        whole, wanted = path.read_bytes(), await pins.all()
        refused = set()
        for at in range(len(whole)):
            changed = bytearray(whole)
            changed[at] ^= 0x01
            path.write_bytes(changed)
            copy = path.with_name("session_pins.json.damaged-1")
            try:
                found, kept = await SessionPins(tmp_path).all(), path
            except StoreError as error:
                code = error.problem.code
                found, kept = wanted, copy if code == "pins-damaged" else path
                refused.add(code)
            assert found == wanted, at
            assert kept.read_bytes() == changed
            copy.unlink(missing_ok=True)
        assert refused == {"pins-damaged", "pins-newer"}

    anyio.run(change_each)
