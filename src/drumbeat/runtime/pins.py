"""Which conversation each automation resumes, kept in two files that people can read.

Theory of operation. `session_pins.json` holds the pins and is only ever replaced as a whole: a file
beside it is written, synced, renamed over it, and the folder synced. `session_rotations.jsonl` is
the log of rotations (`rotation_log.py`).

A rotation touches both, and the first is its commit: the same replacement that clears the pin
notes the log line in `last_rotation`. Then the line is appended. A crash between the two leaves
the line noted and not logged; whatever rotation comes next, the repeat with the same id
included, appends it first. So a rotation has happened wholly or not at all, and its line is never
lost and never doubled. An id is known to be done when it is that of the last rotation of its slug,
which `rotated` keeps, or among the latest lines: nothing has to be read that grows with time.

Writers exclude each other, across objects and processes, by a lock on the folder itself. Readers
take none: they see one whole file or the other.

The file says its own checksum, so that one changed letter is not another conversation, nor another
automation's. A file that cannot be understood is renamed to `session_pins.json.damaged-N`, and
while such a copy waits without a `session_pins.json` beside it every call is refused, so that a
restart does not quietly begin every conversation afresh. The operator mends it by renaming the
repaired copy back, without its checksum,
or by deleting it, which forgets the pins on purpose.
"""

import errno
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import anyio
import attrs

from drumbeat.core.asked import check_aware
from drumbeat.core.messages import shown
from drumbeat.core.model import Pin, Rotation
from drumbeat.errors import DrumbeatError, Problem, StoreError
from drumbeat.protocols import Clock, Pins
from drumbeat.runtime.clock import SystemClock, holding
from drumbeat.runtime.files import remedy_for, sync_folder
from drumbeat.runtime.rotation_log import RotationLog
from drumbeat.runtime.threads import Threads

__all__ = ["SessionPins"]

T = TypeVar("T")

_PINS = "session_pins.json"
_KEYS = ("version", "pins", "rotated", "last_rotation", "checksum")
_DAMAGED = re.compile(re.escape(_PINS) + r"\.damaged-([0-9]{1,9})")
_VERSION = 2
"""The first one had no checksum."""
_TRIES = 500
_PAUSE = 0.01


class SessionPins(Pins):
    """Pins in `session_pins.json` and rotations in `session_rotations.jsonl` (spec, section 7).

    Each call is durable when it returns, calls are serialised, and several objects on one folder,
    in one process or in many, may be used at once. Disk work runs in a worker thread; a call that
    is cancelled has either not begun or is carried out wholly. The folder is created by the first
    write, for its owner alone (0700, files 0600); one that was there and is gone is never made in
    its place, and every call is refused until it is back.

    Args:
        data_dir: the folder that holds both files.
        clock: where `rotate` takes the instant from when it is given none; the machine's by
            default.
    """

    def __init__(self, data_dir: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self._files = _Files(folder=Path(data_dir))
        self._clock: Clock = SystemClock() if clock is None else clock
        self._turn = anyio.Lock()
        self._threads = Threads()

    async def get(self, slug: str, /) -> Pin | None:
        """Return the pin of `slug`, or None.

        Raises:
            StoreError: the file is damaged, of a newer version, or cannot be read.
        """
        return (await self.all()).get(slug)

    async def all(self) -> dict[str, Pin]:
        """Return every pin by slug, in the order of the slugs; `get` says what it raises."""
        return await self._work(lambda: dict(self._files.load().pins))

    async def set(self, slug: str, pin: Pin, /) -> None:
        """Pin `slug` to a conversation, durably.

        Raises:
            StoreError: the file is damaged, of a newer version, or cannot be read or written.
            ValueError: `pin.at` is naive.
        """
        if pin.at.tzinfo is None:
            msg = "Pin.at must be an aware datetime"
            raise ValueError(msg)
        await self._work(lambda: self._files.pin(slug, pin))

    async def rotate(
        self,
        slug: str,
        /,
        *,
        reason: Rotation,
        note: str = "",
        now: datetime | None = None,
        id: str | None = None,
    ) -> Pin | None:
        """Clear the pin of `slug`, leave a line in the rotation log, return what was pinned.

        The line is left also when nothing was pinned; its `session_id` is null then.

        Args:
            slug: whose conversation is given up.
            reason: why; `operator` needs a `note`.
            note: what a person said about it.
            now: the instant that the line bears, aware; None asks the clock.
            id: makes the call idempotent, across processes and crashes: once a rotation of this id
                has happened, the call at most completes its log line, and returns None. It is known
                as long as it is the last rotation of `slug`, or one of the last thousand or so of
                all.

        Raises:
            DrumbeatError: the reason is `operator` and the note is blank.
            StoreError: a file is damaged, of a newer version, or cannot be read or written. The
                pin may be cleared already; a repeat with the same id completes what is missing.
            TypeError: `now` is no datetime.
            ValueError: `now` is naive.
        """
        if reason == "operator" and not note.strip():
            raise DrumbeatError(
                Problem(
                    code="rotation-note-missing",
                    message=f"the conversation of {slug} cannot be rotated without a reason",
                    remedy="say why: it is kept in the rotation log",
                )
            )
        at = self._clock.now() if now is None else check_aware("now", now)
        line: dict[str, Any] = {
            "id": uuid4().hex if id is None else id,
            "slug": slug,
            "reason": reason,
            "note": note,
            "session_id": None,
            "at": at.astimezone(UTC).isoformat(),
        }
        return await self._work(lambda: self._files.rotate(slug, line))

    async def _work(self, call: Callable[[], T]) -> T:
        with holding(self._clock, "session pins"):
            async with self._turn:
                for _ in range(_TRIES):
                    with suppress(_Busy):
                        return await self._threads.run(call)
                    # Real time, whatever the clock: it is another process that is waited for.
                    await anyio.sleep(_PAUSE)
                raise StoreError(
                    Problem(
                        code="pins-busy",
                        message=f"another process keeps {_PINS} locked",
                        remedy="end the process that has the data folder open, or try again",
                        path=self._files.folder,
                    )
                )


@attrs.frozen(kw_only=True)
class _State:
    """`session_pins.json`, read."""

    pins: Mapping[str, Pin]
    rotated: Mapping[str, str] | None = None
    """By slug, the id of its last rotation; None where the log has to be asked."""
    last_rotation: Mapping[str, Any] | None = None


class _Busy(Exception):  # noqa: N818  a signal within this module
    """Another object or process has the folder's lock; nothing was done."""


class _Damaged(Exception):  # noqa: N818  a signal within this module
    """The file is not what was written; the message says where."""


@attrs.define(kw_only=True)
class _Files:
    """The two files of one folder, read and written in the calling thread."""

    folder: Path
    _seen: bool = False
    """The folder was there: when it is not, somebody moved it away."""

    @property
    def log(self) -> RotationLog:
        return RotationLog(self.folder)

    def load(self) -> _State:
        with _translated(self.folder):
            self._look()
            try:
                return self._read()
            except _Damaged:
                pass
            with self._locked():
                return self._read_or_set_aside()

    def pin(self, slug: str, pin: Pin) -> None:
        with _translated(self.folder), self._locked():
            state = self._read_or_set_aside()
            self._replace(attrs.evolve(state, pins={**state.pins, slug: pin}))

    def rotate(self, slug: str, line: dict[str, Any]) -> Pin | None:
        with _translated(self.folder), self._locked():
            state = self._read_or_set_aside()
            noted = state.last_rotation
            rotated = self.log.last_of_each() if state.rotated is None else state.rotated
            ids = self.log.latest({line["id"]} | ({noted["id"]} if noted else set()), last=noted)
            if noted:
                # Synced in either case: below, the note that stood for this line is written over.
                self.log.append(None if noted["id"] in ids else noted)
                ids.add(noted["id"])
            if line["id"] in ids or rotated.get(slug) == line["id"]:
                return None
            pin = state.pins.get(slug)
            line = {**line, "session_id": pin.session_id if pin else None}
            kept = {name: other for name, other in state.pins.items() if name != slug}
            rotated = {**rotated, slug: line["id"]}
            self._replace(_State(pins=kept, rotated=rotated, last_rotation=line))
            self.log.append(line)
            return pin

    def _look(self) -> None:
        if self.folder.is_dir():
            self._seen = True
        elif self._seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.folder))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._look()
        if not self._seen:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._seen = True
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _Busy from None
            yield
        finally:
            os.close(handle)

    def _read(self) -> _State:
        path = self.folder / _PINS
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            waiting = self._set_aside_copies()
            if waiting:
                raise _refusal(self.folder / waiting[max(waiting)], "it was damaged") from None
            return _State(pins={})
        return _parsed(content, path)

    def _read_or_set_aside(self) -> _State:
        try:
            return self._read()
        except _Damaged as damage:
            number = max(self._set_aside_copies(), default=0) + 1
            copy = self.folder / f"{_PINS}.damaged-{number}"
            # The name is taken first, so that no rename can go over somebody's copy.
            copy.touch(mode=0o600, exist_ok=False)
            (self.folder / _PINS).rename(copy)
            sync_folder(self.folder)
            raise _refusal(copy, str(damage)) from damage

    def _set_aside_copies(self) -> dict[int, str]:
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return {}
        return {int(found[1]): name for name in names if (found := _DAMAGED.fullmatch(name))}

    def _replace(self, state: _State) -> None:
        document: dict[str, Any] = {
            "version": _VERSION,
            "pins": {slug: _pin_to_json(state.pins[slug]) for slug in sorted(state.pins)},
            **({} if state.rotated is None else {"rotated": dict(sorted(state.rotated.items()))}),
            "last_rotation": state.last_rotation,
        }
        document["checksum"] = _checksum(document)
        content = (json.dumps(document, indent=2) + "\n").encode("ascii")
        fresh = self.folder / f".{_PINS}.tmp"
        fresh.unlink(missing_ok=True)  # left by a crash
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(handle)
            fresh.replace(self.folder / _PINS)
        except OSError:
            with suppress(OSError):  # the first error is the one to tell
                fresh.unlink()
            raise
        sync_folder(self.folder)


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        usual = "let the engine's user own the data folder"
        if isinstance(error, FileNotFoundError):
            usual = "put the data folder back where it was"
        raise StoreError(
            Problem(
                code="pins-inaccessible",
                message=f"the pins cannot be read or written: {error.strerror or error}",
                remedy=remedy_for(error, usual),
                path=Path(os.fsdecode(error.filename)) if error.filename else folder / _PINS,
            )
        ) from error


def _refusal(copy: Path, why: str) -> StoreError:
    return StoreError(
        Problem(
            code="pins-damaged",
            message=f"{_PINS} cannot be understood ({why}) and was set aside",
            remedy=f"mend {copy.name}, take its line `checksum` out and rename it back to {_PINS}, "
            "or delete it to start every conversation afresh; until then nothing is resumed",
            path=copy,
        )
    )


def _parsed(content: bytes, path: Path) -> _State:
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_without_doubles)
    except RecursionError:
        raise _Damaged("it is nested too deeply") from None
    except ValueError as error:
        raise _Damaged(str(error)) from error
    if not isinstance(document, dict):
        raise _Damaged("it holds no mapping")
    version = document.get("version")
    if type(version) is int and version > _VERSION:
        raise StoreError(
            Problem(
                code="pins-newer",
                message=f"{_PINS} is of version {shown(str(version))}, and {_VERSION} is the last "
                "one known",
                remedy="use the drumbeat that wrote it, or a later one",
                path=path,
            )
        )
    if type(version) is not int or version < 1 or document.keys() - set(_KEYS):
        raise _Damaged(f"its keys are not {', '.join(_KEYS)}")
    if "checksum" in document and document.pop("checksum") != _checksum(document):
        raise _Damaged(
            "it is not what was written; if it was changed on purpose, take the line `checksum` out"
        )
    pins, noted = document.get("pins"), document.get("last_rotation")
    rotated = document.get("rotated")
    if not isinstance(pins, dict):
        raise _Damaged("pins is no mapping")
    if rotated is not None and not (
        isinstance(rotated, dict) and all(isinstance(last, str) for last in rotated.values())
    ):
        raise _Damaged("rotated is no mapping of texts")
    if noted is not None and not (isinstance(noted, dict) and isinstance(noted.get("id"), str)):
        raise _Damaged("last_rotation is no mapping with an id")
    return _State(
        pins={slug: _pin_from_json(slug, pins[slug]) for slug in sorted(pins)},
        rotated=rotated,
        last_rotation=noted,
    )


def _checksum(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("ascii")).hexdigest()


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        msg = "a key stands twice"
        raise ValueError(msg)
    return mapping


def _pin_to_json(pin: Pin) -> dict[str, Any]:
    return {
        "session_id": pin.session_id,
        "fingerprint": pin.fingerprint,
        "provider": pin.provider,
        "day": pin.day.isoformat(),
        "at": pin.at.astimezone(UTC).isoformat(),
        "handle": pin.handle,
    }


def _pin_from_json(slug: str, value: object) -> Pin:
    names = {field.name for field in attrs.fields(Pin)}
    if not isinstance(value, dict) or value.keys() - names:
        raise _Damaged(f"the pin of {slug} has other keys than {', '.join(sorted(names))}")
    if "provider" not in value:
        raise _Damaged(f"the pin of {slug} does not say which provider, or that there is none")
    for name in names:
        given = value.get(name)
        if not (isinstance(given, str) or (given is None and name in ("provider", "handle"))):
            raise _Damaged(f"{name} of the pin of {slug} is no text")
    try:
        day, at = date.fromisoformat(value["day"]), datetime.fromisoformat(value["at"])
    except ValueError as error:
        raise _Damaged(f"the pin of {slug}: {error}") from error
    if at.tzinfo is None:
        raise _Damaged(f"at of the pin of {slug} has no UTC offset")
    return Pin(**{**value, "day": day, "at": at})
