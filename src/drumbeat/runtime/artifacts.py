"""The folder of a run, for people: `result.json`, the turns as they happened, and `work/`."""

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import attrs

from drumbeat.core.model import RunRecord
from drumbeat.core.redaction import Redactor
from drumbeat.protocols import Clock
from drumbeat.runtime.clock import holding
from drumbeat.runtime.store_rows import encode
from drumbeat.runtime.threads import Threads


def _make_folder(path: Path, data_dir: Path) -> None:
    """Make a folder and those above it, each for its owner alone; `parents=True` would not.

    Never the data folder, which was moved away when it is not there: what is made in its place
    would be in the way when it comes back.
    """
    while not path.is_dir():
        if path == data_dir:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        _make_folder(path.parent, data_dir)
        # Retention may have removed the one above in this instant, as an empty one.
        with suppress(FileNotFoundError):
            path.mkdir(mode=0o700, exist_ok=True)


def _write(path: Path, data: bytes, *, beside: Path | None = None) -> None:
    partial = (beside or path.parent) / f".{path.name}.partial"
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        partial.replace(path)
    except OSError:
        with suppress(OSError):  # the first error is the one to tell
            partial.unlink()
        raise


class Artifacts:
    """Writes below `<data_dir>/runs/`, for the owner alone; every text passes the redactor first.

    A file is there wholly or not at all. Each method raises `OSError` as it comes: the run makes an
    event of it and goes on.
    """

    def __init__(self, data_dir: Path, redactor: Redactor, clock: Clock, threads: Threads) -> None:
        self._data_dir = data_dir
        self._root = data_dir / "runs"
        self._redactor = redactor
        self._clock = clock
        self._threads = threads

    @property
    def root(self) -> Path:
        """Where the folders of all runs lie, by slug."""
        return self._root

    def folder(self, slug: str, run_id: str) -> Path:
        """Where the artifacts of a run lie."""
        return self._root / slug / run_id

    def work(self, slug: str, run_id: str) -> Path:
        """The run's own working folder."""
        return self.folder(slug, run_id) / "work"

    async def _do(self, call: Callable[[], None]) -> None:
        with holding(self._clock, "artifact"):
            await self._threads.run(call)

    def _write(self, path: Path, data: bytes, *, beside: Path | None = None) -> None:
        _make_folder(path.parent, self._data_dir)
        _write(path, data, beside=beside)

    async def prepare(self, folder: Path) -> None:
        """Make a folder, such as `work()`, and those above it."""
        await self._do(lambda: _make_folder(folder, self._data_dir))

    async def payload(self, slug: str, run_id: str, name: str, payload: bytes) -> Path:
        """Write a trigger's payload into `work/`, byte for byte, and return its path."""
        path = self.work(slug, run_id) / name
        # What a clone has under the name of the partial may be a link to anywhere.
        beside = self.folder(slug, run_id)
        await self._do(lambda: self._write(path, payload, beside=beside))
        return path

    async def text(self, slug: str, run_id: str, name: str, text: str) -> Path:
        """Write one text file into the run's folder and return its path."""
        path = self.folder(slug, run_id) / name
        data = self._redactor.text(text).encode("utf-8", "backslashreplace")
        await self._do(lambda: self._write(path, data))
        return path

    async def result(self, run: RunRecord) -> None:
        """Write `result.json`: the run as it was committed, without the payload's bytes."""
        fire = attrs.evolve(run.fire, payload=None)
        intent = None if run.intent is None else attrs.evolve(run.intent, fire=fire)
        record = json.loads(encode(attrs.evolve(run, fire=fire, intent=intent)))
        text = json.dumps(self._redactor.json(record), indent=2, ensure_ascii=False)
        await self.text(run.slug, run.run_id, "result.json", text + "\n")

    async def complete(self, run: RunRecord) -> None:
        """Write `result.json` unless it is there, or the run's folder is not."""
        folder = self.folder(run.slug, run.run_id)

        def lacks() -> bool:
            return folder.is_dir() and not (folder / "result.json").exists()

        with holding(self._clock, "artifact"):
            lacking = await self._threads.run(lacks)
        if lacking:
            await self.result(run)
