import io
import json
import os
import resource
import threading
from datetime import UTC, datetime
from pathlib import Path

import anyio
import attrs
import pytest

from drumbeat.core.model import DeliveryIntent, Fire, Receipt
from drumbeat.deliverers import StreamDeliverer
from drumbeat.testing import example_intent

AT = datetime(2026, 3, 1, 7, 0, tzinfo=UTC)


def intent(text: str = "All is well.", *, id: str = "intent-1", attempt: int = 1) -> DeliveryIntent:
    fire = Fire(id="f", slug="a", cause="webhook", slot="s", due=AT, created_at=AT, payload=b"\xff")
    return example_intent(
        id=id,
        run_id="r",
        slug="a",
        name="Email Check",
        session_id=None,
        fire=fire,
        created_at=AT,
        attempt=attempt,
        reason="always",
        text=text,
    )


@pytest.mark.anyio
async def test_a_stream_gets_one_json_line_for_each_intent() -> None:
    stream = io.StringIO()
    deliverer = StreamDeliverer(stream)
    assert await deliverer.deliver(intent("two\nlines ü")) == Receipt(id="intent-1")
    await deliverer.deliver(intent(id="intent-2"))
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert second["id"] == "intent-2"
    assert set(first) == {field.name for field in attrs.fields(DeliveryIntent)}
    assert (first["text"], first["attempt"]) == ("two\nlines ü", 1)
    assert first["created_at"] == "2026-03-01T07:00:00+00:00"
    assert (first["fire"]["cause"], "payload" in first["fire"]) == ("webhook", False)


@pytest.mark.anyio
async def test_people_get_one_readable_line() -> None:
    stream = io.StringIO()
    deliverer = StreamDeliverer(stream, format="text")
    await deliverer.deliver(intent("One.\n\n  Two \x1b[31m.\r\n"))
    await deliverer.deliver(intent("Again.", attempt=2))
    assert stream.getvalue() == (
        "2026-03-01 07:00Z Email Check: One. / Two  [31m.\n"
        "2026-03-01 07:00Z Email Check (may be a repeat): Again.\n"
    )


@pytest.mark.anyio
async def test_what_a_stream_cannot_encode_is_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    await StreamDeliverer(stream, format="text").deliver(intent("ü €"))
    assert raw.getvalue().endswith(b"\xfc \\u20ac\n")


@pytest.mark.anyio
async def test_a_file_is_appended_to_and_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for name in ("1", "2"):
        assert await StreamDeliverer(path).deliver(intent(id=name)) == Receipt(id=name)
    await StreamDeliverer(str(path), format="text").deliver(intent("\ud800"))
    lines = path.read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines[:2]] == ["1", "2"]
    assert lines[2].startswith("2026-03-01 07:00Z")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.anyio
async def test_half_a_line_that_a_crash_left_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"id": "to')
    await StreamDeliverer(path).deliver(intent())
    broken, whole = path.read_text().splitlines()
    assert (broken, json.loads(whole)["id"]) == ('{"id": "to', "intent-1")


@pytest.mark.anyio
async def test_a_line_that_cannot_be_written_whole_leaves_nothing_behind(tmp_path: Path) -> None:
    """The disk is full after a part of it: that part would read as a whole line."""
    path = tmp_path / "out"
    deliverer = StreamDeliverer(path, format="text")
    await deliverer.deliver(intent("First."))
    whole = path.read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 40, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            await deliverer.deliver(intent("Second. " * 100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == whole
    await deliverer.deliver(intent("Third."))
    assert [line.split(": ")[1] for line in path.read_text().splitlines()] == ["First.", "Third."]


@pytest.mark.anyio
async def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "out"
    deliverer = StreamDeliverer(path)
    await deliverer.deliver(intent())
    path.rename(tmp_path / "old")
    await deliverer.deliver(intent())
    assert path.read_text() == (tmp_path / "old").read_text()


@pytest.mark.anyio
async def test_lines_written_at_once_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "out"
    deliverer = StreamDeliverer(path)
    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(deliverer.deliver, intent("x" * 10_000, id=str(number)))
    ids = {json.loads(line)["id"] for line in path.read_text().splitlines()}
    assert ids == {str(number) for number in range(30)}


@pytest.mark.anyio
async def test_what_cannot_be_written_raises(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        await StreamDeliverer(tmp_path).deliver(intent())
    stream = io.StringIO()
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        await StreamDeliverer(stream).deliver(intent())


@pytest.mark.anyio
async def test_a_stalled_reader_holds_up_no_cancellation() -> None:
    """The line may come later, and until then no other is begun."""
    stalled, goes_on = threading.Event(), threading.Event()

    class Stalling(io.StringIO):
        def write(self, text: str) -> int:
            stalled.set()
            goes_on.wait()
            return super().write(text)

    stream = Stalling()
    deliverer = StreamDeliverer(stream)
    async with anyio.create_task_group() as group:
        group.start_soon(deliverer.deliver, intent())
        await anyio.to_thread.run_sync(stalled.wait)
        group.cancel_scope.cancel()
    try:
        with pytest.raises(BlockingIOError):
            await deliverer.deliver(intent())
    finally:
        goes_on.set()
    with anyio.fail_after(30):
        while True:
            try:
                await deliverer.deliver(intent(id="intent-2"))
                break
            except BlockingIOError:
                await anyio.sleep(0.01)
    assert [json.loads(line)["id"] for line in stream.getvalue().splitlines()] == [
        "intent-1",
        "intent-2",
    ]


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="'json' or 'text'"):
        StreamDeliverer(os.devnull, format="yaml")  # type: ignore[arg-type]
