import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import attrs
import pytest

from drumbeat.core.model import Pin
from drumbeat.errors import DrumbeatError, StoreError
from drumbeat.runtime import pins as module
from drumbeat.runtime.pins import SessionPins

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, 6, 30, tzinfo=UTC)
PIN = Pin(
    session_id="00000000-0000-4000-8000-000000000001",
    fingerprint="f" * 64,
    provider="openai",
    day=date(2026, 3, 1),
    at=NOW,
    handle='thread "7" \ud800é',
)
OTHER = attrs.evolve(
    PIN, session_id="00000000-0000-4000-8000-000000000002", provider=None, handle=None
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "data"


def log(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "session_rotations.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"id"')]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[StoreError]]:
    with pytest.raises(StoreError) as caught:
        yield caught
    assert caught.value.problem.code == code
    assert caught.value.problem.remedy


# ---- what is kept


async def test_nothing_is_pinned_and_nothing_is_written_at_first(folder: Path) -> None:
    pins = SessionPins(folder)
    assert await pins.all() == {}
    assert await pins.get("mail") is None
    assert not folder.exists()


async def test_pins_survive_the_object_that_set_them(folder: Path) -> None:
    pins = SessionPins(str(folder))
    await pins.set("mail", PIN)
    await pins.set("a-report", OTHER)
    await pins.set("mail", OTHER)
    await pins.set("mail", PIN)
    again = SessionPins(folder)
    assert await again.get("mail") == PIN
    assert await again.get("nobody") is None
    assert list((await again.all()).items()) == [("a-report", OTHER), ("mail", PIN)]


async def test_the_files_are_their_owners_alone_and_people_can_read_them(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", OTHER)
    await pins.rotate("nobody", reason="fresh", now=NOW, id="r0")
    assert mode(folder) == 0o700
    assert mode(folder / "session_pins.json") == 0o600
    assert mode(folder / "session_rotations.jsonl") == 0o600
    assert sorted(path.name for path in folder.iterdir()) == [
        "session_pins.json",
        "session_rotations.jsonl",
    ]
    text = (folder / "session_pins.json").read_text()
    assert json.loads(text)["version"] == 2
    assert json.loads(text)["pins"]["mail"] == {
        "session_id": OTHER.session_id,
        "fingerprint": OTHER.fingerprint,
        "provider": None,
        "day": "2026-03-01",
        "at": "2026-03-01T06:30:00+00:00",
        "handle": None,
    }
    assert '\n    "mail": {\n' in text


async def test_an_instant_of_another_zone_is_kept_as_the_same_instant_in_utc(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", attrs.evolve(PIN, at=NOW.astimezone(timezone(timedelta(hours=9)))))
    kept = await pins.get("mail")
    assert kept == PIN
    assert kept is not None
    assert kept.at.utcoffset() == timedelta(0)


async def test_naive_instants_are_refused_before_anything_is_written(folder: Path) -> None:
    pins = SessionPins(folder)
    with pytest.raises(ValueError, match=r"Pin\.at"):
        await pins.set("mail", attrs.evolve(PIN, at=NOW.replace(tzinfo=None)))
    with pytest.raises(ValueError, match="now must be"):
        await pins.rotate("mail", reason="fresh", now=NOW.replace(tzinfo=None))
    assert not folder.exists()


# ---- rotation


async def test_a_rotation_clears_the_pin_and_leaves_a_line(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    await pins.set("report", OTHER)
    cleared = await pins.rotate("mail", reason="operator", note="it went round", now=NOW, id="r1")
    assert cleared == PIN
    assert await pins.all() == {"report": OTHER}
    assert log(folder) == [
        {
            "id": "r1",
            "slug": "mail",
            "reason": "operator",
            "note": "it went round",
            "session_id": PIN.session_id,
            "at": "2026-03-01T06:30:00+00:00",
        }
    ]


async def test_what_was_written_is_on_the_disk_when_a_call_returns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file before the folder that holds its name."""
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    log, synced = folder / "session_rotations.jsonl", []
    sync = os.fsync

    def fsync(handle: int) -> None:
        files = {"folder": folder, "log": log, "pins": folder / ".session_pins.json.tmp"}
        synced.extend(
            name
            for name, file in files.items()
            if file.exists() and os.path.samestat(os.fstat(handle), file.stat())
        )
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    await pins.set("mail", PIN)
    assert synced == ["pins", "folder"]
    for number, wanted in enumerate((["log", "folder"], ["log"])):
        synced.clear()
        await pins.rotate("mail", reason="fresh", now=NOW, id=f"r-{number}")
        # Before the second, the line of the first is made sure of once more.
        assert synced == ["log"] * number + ["pins", "folder", *wanted]


async def test_a_rotation_of_nothing_leaves_a_line_too(folder: Path) -> None:
    assert await SessionPins(folder).rotate("mail", reason="context-ceiling", now=NOW) is None
    assert [(line["slug"], line["session_id"]) for line in log(folder)] == [("mail", None)]


async def test_rotations_without_an_id_get_one_each_and_an_instant(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.rotate("mail", reason="fresh")
    await pins.rotate("mail", reason="fresh")
    first, second = log(folder)
    assert first["id"] != second["id"]
    assert datetime.fromisoformat(first["at"]).utcoffset() == timedelta(0)


async def test_a_rotation_happens_once_per_id_whoever_repeats_it(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    assert await pins.rotate("mail", reason="fresh", now=NOW, id="r1") == PIN
    await pins.set("mail", PIN)
    assert await pins.rotate("mail", reason="fresh", now=NOW, id="r1") is None
    assert await pins.rotate("mail", reason="fresh", now=NOW, id='r"2é') == PIN
    await pins.set("mail", OTHER)
    for repeated in ("r1", 'r"2é', "r1"):
        assert await SessionPins(folder).rotate("mail", reason="fresh", id=repeated) is None
    assert await pins.get("mail") == OTHER
    assert [line["id"] for line in log(folder)] == ["r1", 'r"2é']


async def test_an_id_inside_another_line_is_not_taken_for_it(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.rotate("r2", reason="operator", note="r2", now=NOW, id="r1")
    await pins.set("mail", PIN)
    assert await pins.rotate("mail", reason="fresh", now=NOW, id="r2") == PIN


@pytest.mark.parametrize("note", ["", " \n"])
async def test_an_operator_has_to_say_why(folder: Path, note: str) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    with pytest.raises(DrumbeatError) as caught:
        await pins.rotate("mail", reason="operator", note=note, now=NOW)
    assert caught.value.problem.code == "rotation-note-missing"
    assert await pins.get("mail") == PIN


async def test_callers_at_once_lose_nothing(folder: Path) -> None:
    """Several tasks through several objects, each of which reads, changes and replaces."""
    both = [SessionPins(folder), SessionPins(folder)]
    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(both[number % 2].set, f"s{number}", PIN)

            async def rotate(number: int = number) -> None:
                await both[number % 2].rotate(f"r{number}", reason="fresh", now=NOW, id=f"{number}")

            group.start_soon(rotate)
    assert sorted(await both[0].all()) == sorted(f"s{number}" for number in range(12))
    assert sorted(int(line["id"]) for line in log(folder)) == list(range(12))


async def test_a_cancelled_call_is_carried_out_or_not_begun(folder: Path) -> None:
    pins = SessionPins(folder)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await pins.set("mail", PIN)
    assert scope.cancelled_caught
    assert await pins.get("mail") in (None, PIN)
    await pins.set("mail", OTHER)
    assert await pins.get("mail") == OTHER


async def test_a_folder_that_stays_locked_is_reported_and_reading_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRIES", 3)
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with refused("pins-busy"):
            await pins.set("mail", OTHER)
        assert await pins.get("mail") == PIN
        fcntl.flock(handle, fcntl.LOCK_UN)
        await pins.set("mail", OTHER)
    finally:
        os.close(handle)
    assert await pins.get("mail") == OTHER


# ---- damage


async def test_a_damaged_file_is_set_aside_and_every_later_call_is_refused(folder: Path) -> None:
    await SessionPins(folder).set("mail", PIN)
    (folder / "session_pins.json").write_text("{")
    for _ in range(2):  # a restart changes nothing
        pins = SessionPins(folder)
        with refused("pins-damaged") as caught:
            await pins.get("mail")
        assert caught.value.problem.path == folder / "session_pins.json.damaged-1"
        with refused("pins-damaged"):
            await pins.all()
        with refused("pins-damaged"):
            await pins.set("mail", OTHER)
        with refused("pins-damaged"):
            await pins.rotate("mail", reason="fresh", now=NOW)
    assert (folder / "session_pins.json.damaged-1").read_text() == "{"
    assert not (folder / "session_pins.json").exists()


async def test_renaming_the_mended_copy_back_restores_the_pins(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    path = folder / "session_pins.json"
    whole = path.read_text()
    path.write_text(whole[:-9])
    with refused("pins-damaged"):
        await pins.set("mail", OTHER)
    copy = folder / "session_pins.json.damaged-1"
    copy.write_text(whole)
    copy.rename(path)
    assert await pins.get("mail") == PIN


async def test_deleting_the_copy_forgets_the_pins_on_purpose(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    (folder / "session_pins.json").write_text("")
    with refused("pins-damaged"):
        await pins.all()
    (folder / "session_pins.json.damaged-1").unlink()
    assert await pins.all() == {}


async def test_no_copy_is_ever_written_over(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    whole = (folder / "session_pins.json").read_text()
    for content in ("one", "two"):
        (folder / "session_pins.json").write_text(content)
        with refused("pins-damaged"):
            await pins.all()
    assert (folder / "session_pins.json.damaged-1").read_text() == "one"
    assert (folder / "session_pins.json.damaged-2").read_text() == "two"
    (folder / "session_pins.json").write_text(whole)
    assert await pins.get("mail") == PIN


@pytest.mark.slow
async def test_a_file_cut_short_at_any_byte_is_whole_or_refused(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    path = folder / "session_pins.json"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        if size == len(whole) - 1:  # only the last line ending is missing
            assert await pins.all() == {"mail": PIN}
        else:
            with refused("pins-damaged"):
                await pins.all()
            (folder / "session_pins.json.damaged-1").unlink()


def document(**changed: Any) -> str:
    pin = {
        "session_id": "s",
        "fingerprint": "f",
        "provider": None,
        "day": "2026-03-01",
        "at": "2026-03-01T06:30:00+00:00",
        "handle": None,
    }
    return json.dumps({"version": 1, "pins": {"mail": pin | changed}})


async def test_a_file_written_by_hand_needs_no_more_than_version_and_pins(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "session_pins.json").write_text(document())
    pin = await SessionPins(folder).get("mail")
    assert pin is not None
    assert pin.session_id == "s"


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"\x00" * 64,
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"version": "1", "pins": {}}',
        b'{"version": 1}',
        b'{"version": 1, "pins": []}',
        b'{"version": 1, "pins": {}, "pin": {}}',
        b'{"version": 1, "pins": {}, "pins": {}}',
        b'{"version": 1, "pins": {"mail": 7}}',
        b'{"version": 1, "pins": {}, "rotated": ["r1"]}',
        b'{"version": 1, "pins": {}, "rotated": {"mail": 1}}',
        b'{"version": 1, "pins": {}, "last_rotation": "r1"}',
        b'{"version": 1, "pins": {}, "last_rotation": {"id": 1}}',
        document(session_id=None).encode(),
        re.sub(r'"provider": [^,}]*,? ?', "", document()).encode(),
        document(handel="x").encode(),
        document(day="2026-02-30").encode(),
        document(at="2026-03-01T06:30:00").encode(),
    ],
)
async def test_anything_but_what_was_written_is_refused(folder: Path, content: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "session_pins.json").write_bytes(content)
    with refused("pins-damaged"):
        await SessionPins(folder).all()
    assert (folder / "session_pins.json.damaged-1").read_bytes() == content


async def test_a_version_without_end_is_shown_in_part(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "session_pins.json").write_text(f'{{"version": {"9" * 4000}}}')
    with pytest.raises(StoreError) as caught:
        await SessionPins(folder).all()
    assert caught.value.problem.code == "pins-newer"
    assert len(str(caught.value)) < 500


async def test_a_newer_version_is_refused_and_left_where_it_is(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "session_pins.json").write_text('{"version": 3, "pins": {}}')
    with refused("pins-newer"):
        await SessionPins(folder).all()
    with refused("pins-newer"):
        await SessionPins(folder).set("mail", PIN)
    assert [path.name for path in folder.iterdir()] == ["session_pins.json"]


async def test_trouble_with_the_disk_is_a_store_error_that_names_the_place(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("a file where the folder should be")
    pins = SessionPins(folder)
    with refused("pins-inaccessible") as caught:
        await pins.all()
    assert caught.value.problem.path == folder / "session_pins.json"
    with refused("pins-inaccessible"):
        await pins.set("mail", PIN)


async def test_a_replacement_that_fails_leaves_the_old_pins_and_no_rubbish(folder: Path) -> None:
    pins = SessionPins(folder)
    path = folder / "session_pins.json"
    path.mkdir(parents=True)
    with refused("pins-inaccessible"):
        await pins.set("mail", PIN)
    path.rmdir()
    await pins.set("mail", PIN)
    (folder / ".session_pins.json.tmp").mkdir()
    with refused("pins-inaccessible"):
        await pins.set("mail", OTHER)
    (folder / ".session_pins.json.tmp").rmdir()
    assert await pins.get("mail") == PIN


@pytest.mark.slow
async def test_a_full_disk_leaves_the_old_pins_and_no_rubbish(folder: Path) -> None:
    """The limit on the size of files stands for a disk that is full."""
    await SessionPins(folder).set("mail", PIN)
    script = """
        import resource, signal, sys
        from pathlib import Path
        from drumbeat.errors import StoreError
        from drumbeat.runtime.pins import _Files
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        files = _Files(folder=Path(sys.argv[1]))
        pin = files.load().pins["mail"]
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        try:
            files.pin("other", pin)
        except StoreError as error:
            print(error.problem.code)
    """
    assert child(script, folder) == "pins-inaccessible\n"
    assert await SessionPins(folder).all() == {"mail": PIN}
    assert [path.name for path in folder.iterdir()] == ["session_pins.json"]


async def test_a_log_that_cannot_be_written_is_completed_by_the_repeat(folder: Path) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    (folder / "session_rotations.jsonl").symlink_to(folder / "missing" / "log")
    with refused("pins-inaccessible"):
        await pins.rotate("mail", reason="fresh", now=NOW, id="r1")
    (folder / "session_rotations.jsonl").unlink()
    assert await pins.rotate("mail", reason="fresh", now=NOW, id="r1") is None
    assert await pins.all() == {}
    assert [(line["id"], line["session_id"]) for line in log(folder)] == [("r1", PIN.session_id)]


async def test_a_repeat_is_known_after_any_number_of_other_rotations(folder: Path) -> None:
    """A rotation that a crash cut off is completed when its automation runs next."""
    pins = SessionPins(folder)
    await pins.rotate("mail", reason="fresh", now=NOW, id="r1")
    fill(folder, 20_000)
    await pins.rotate("other", reason="fresh", now=NOW, id="r2")
    await pins.set("mail", PIN)
    assert await SessionPins(folder).rotate("mail", reason="fresh", now=NOW, id="r1") is None
    assert await pins.get("mail") == PIN


async def test_a_rotation_does_not_read_all_that_there_were(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = SessionPins(folder)
    await pins.set("mail", PIN)
    await pins.rotate("mail", reason="fresh", now=NOW, id="r1")
    fill(folder, 20_000)
    read: list[object] = []
    real = json.loads

    def counted(text: Any, **given: Any) -> Any:
        read.append(text)
        return real(text, **given)

    monkeypatch.setattr(json, "loads", counted)
    await pins.rotate("mail", reason="fresh", now=NOW, id="r2")
    assert 0 < len(read) < 3_000
    assert await pins.rotate("mail", reason="fresh", now=NOW, id="o-19999") is None


async def test_pins_without_the_last_ids_take_them_from_the_log(folder: Path) -> None:
    """As when the file was mended by hand, or deleted on purpose."""
    pins = SessionPins(folder)
    await pins.rotate("mail", reason="fresh", now=NOW, id="r1")
    fill(folder, 3_000)
    (folder / "session_pins.json").unlink()
    await pins.set("mail", PIN)
    assert await pins.rotate("mail", reason="fresh", now=NOW, id="r1") is None
    assert await pins.rotate("mail", reason="fresh", now=NOW, id="r2") == PIN
    written = json.loads((folder / "session_pins.json").read_text())
    assert written["rotated"] == {"mail": "r2", "other": "o-2999"}


async def test_the_log_keeps_a_part_of_what_there_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drumbeat.runtime.rotation_log._LARGEST", 1_000)
    pins = SessionPins(folder)
    ids = [f"r{number}" for number in range(60)]
    for id in ids:  # noqa: A001
        await pins.rotate("mail", reason="fresh", now=NOW, id=id)
    now, before = folder / "session_rotations.jsonl", folder / "session_rotations.1.jsonl"
    assert 1_000 <= before.stat().st_size < 1_200
    assert 0 < now.stat().st_size < 1_200
    assert mode(now) == mode(before) == 0o600
    kept = [
        json.loads(line)["id"] for file in (before, now) for line in file.read_text().splitlines()
    ]
    assert kept == ids[-len(kept) :]
    assert await pins.rotate("mail", reason="fresh", now=NOW, id="r59") is None


def fill(folder: Path, count: int) -> None:
    """Write many rotations of another automation into the log."""
    with (folder / "session_rotations.jsonl").open("a") as file:
        file.writelines(
            json.dumps({"id": f"o-{number}", "slug": "other", "note": "x" * 200}) + "\n"
            for number in range(count)
        )


# ---- crashes


@pytest.mark.slow
async def test_a_line_torn_at_any_byte_is_completed_by_the_repeat_and_by_any_other(
    folder: Path,
) -> None:
    pins = SessionPins(folder)
    await pins.rotate("first", reason="fresh", now=NOW, id="r0")
    path = folder / "session_rotations.jsonl"
    before = path.read_bytes()
    await pins.set("mail", PIN)
    await pins.rotate("mail", reason="fresh", now=NOW, id="r1")
    whole, committed = path.read_bytes(), (folder / "session_pins.json").read_bytes()
    for size in range(len(before), len(whole)):
        for other in ("r1", "r2"):
            path.write_bytes(whole[:size])
            (folder / "session_pins.json").write_bytes(committed)
            assert await pins.rotate("mail", reason="fresh", now=NOW, id=other) is None
            lines = path.read_bytes().splitlines(keepends=True)
            assert all(line.endswith(b"\n") for line in lines)
            torn = whole[len(before) : size]
            readable = [line for line in lines if line[:-1] != torn or size == len(whole) - 1]
            ids = [json.loads(line)["id"] for line in readable]
            assert ids == (["r0", "r1"] if other == "r1" else ["r0", "r1", "r2"])


CRASH = """
    import os, shutil, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from drumbeat.runtime import rotation_log
    from drumbeat.runtime.pins import _Files

    start, out = Path(sys.argv[1]), Path(sys.argv[2])
    rotation_log._LARGEST = int(sys.argv[3])
    line = {"id": "r1", "slug": "mail", "reason": "fresh", "note": "", "session_id": None,
            "at": "2026-03-01T06:30:00+00:00"}
    for number in range(1, 100):
        folder = out / f"{number:02}"
        shutil.copytree(start, folder)
        pid = os.fork()
        if not pid:
            left = number
            def hook(event, arguments):
                global left
                if event in ("open", "os.rename", "os.remove", "os.mkdir", "fcntl.flock"):
                    left -= 1
                    if not left:
                        os.kill(os.getpid(), 9)
            sys.addaudithook(hook)
            try:
                _Files(folder=folder).rotate("mail", line)
            finally:
                os._exit(0)
        if os.waitpid(pid, 0)[1] == 0:
            print(number)
            break
"""


def child(script: str, *arguments: Path | int) -> str:
    source = Path(module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", dedent(script), *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("largest", [1 << 20, 10])
async def test_a_kill_at_any_step_of_a_rotation_leaves_it_done_or_undone(
    folder: Path, tmp_path: Path, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step the pins are the old or the cleared ones, and the repeat ends in one line.

    Also where the log was to be renamed before that line.
    """
    monkeypatch.setattr("drumbeat.runtime.rotation_log._LARGEST", largest)
    await SessionPins(folder).rotate("other", reason="fresh", now=NOW, id="r0")
    await SessionPins(folder).set("mail", PIN)
    await SessionPins(folder).set("report", OTHER)
    out = tmp_path / "killed"
    out.mkdir()
    steps = int(child(CRASH, folder, out, largest))
    assert steps > 5
    seen: set[bool] = set()
    for number in range(1, steps + 1):
        killed = SessionPins(out / f"{number:02}")
        left = await killed.all()
        assert left in ({"mail": PIN, "report": OTHER}, {"report": OTHER})
        seen.add("mail" in left)
        repeated = await killed.rotate("mail", reason="fresh", now=NOW, id="r1")
        assert repeated == left.get("mail")
        assert await killed.all() == {"report": OTHER}
        last = log(out / f"{number:02}")
        before = out / f"{number:02}" / "session_rotations.1.jsonl"
        assert before.exists() == (largest == 10)
        first = (
            [json.loads(line) for line in before.read_text().splitlines()]
            if before.exists()
            else []
        )
        lines = [(line["id"], line["session_id"]) for line in (*first, *last)]
        assert lines == [("r0", None), ("r1", PIN.session_id)]
    assert seen == {True, False}
