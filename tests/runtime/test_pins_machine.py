"""Pins against a plain model of them: set, rotated, opened again, torn, damaged and mended."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from drumbeat.core.model import Pin
from drumbeat.errors import StoreError
from drumbeat.runtime.pins import SessionPins

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
SLUGS = st.sampled_from(["a", "b", "c.d"])
GARBAGE = st.sampled_from([b"", b"{", b"null", b'{"version": 1}', b"\xff\x00", b'{"version": "1"}'])


class PinsMachine(RuleBasedStateMachine):
    """Two objects on one folder, as two processes would have them, next to dictionaries."""

    portal: BlockingPortal

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "session_pins.json"
        self.log = self.path.with_name("session_rotations.jsonl")
        self.objects = [SessionPins(self.folder.name), SessionPins(self.folder.name)]
        self.count = 0
        self.pins: dict[str, Pin] = {}
        self.rotated: list[tuple[str, str, str | None]] = []
        """Each rotation that happened: id, slug, and the conversation that was given up."""
        self.torn = False
        """The last line of the log was lost with a crash, and comes back with the next rotation."""
        self.damaged: list[bytes] = []
        """What the file was damaged to, while it is; the last one first found by the next call."""
        self.good: bytes | None = None

    def call(self, function: Callable[..., Any], /, *args: Any, **given: Any) -> Any:
        async def called() -> Any:
            return await function(*args, **given)

        return self.portal.call(called)

    def refused(self, function: Callable[..., Any], /, *args: Any, **given: Any) -> bool:
        """While the file is damaged nothing works, whoever asks; True then."""
        if not self.damaged:
            return False
        with pytest.raises(StoreError) as caught:
            self.call(function, *args, **given)
        assert caught.value.problem.code == "pins-damaged"
        return True

    def teardown(self) -> None:
        self.folder.cleanup()

    # ---- what is done to both

    @rule(which=st.integers(0, 1), slug=SLUGS, handle=st.none() | st.just("h"))
    def pin(self, which: int, slug: str, handle: str | None) -> None:
        self.count += 1
        pin = Pin(
            session_id=f"session-{self.count}",
            fingerprint="f",
            provider=handle,
            day=date(2026, 3, 1),
            at=NOW + timedelta(minutes=self.count),
            handle=handle,
        )
        if not self.refused(self.objects[which].set, slug, pin):
            self.call(self.objects[which].set, slug, pin)
            self.pins[slug] = pin

    @rule(which=st.integers(0, 1), slug=SLUGS, name=st.none() | st.integers(0, 5))
    def rotate(self, which: int, slug: str, name: int | None) -> None:
        self.count += 1
        id = f"new-{self.count}" if name is None else f"id-{name}"  # noqa: A001
        given: dict[str, Any] = {"reason": "fresh", "id": id, "now": NOW}
        if self.refused(self.objects[which].rotate, slug, **given):
            return
        answer = self.call(self.objects[which].rotate, slug, **given)
        self.torn = False
        if any(done == id for done, _, _ in self.rotated):
            assert answer is None
            return
        before = self.pins.pop(slug, None)
        assert answer == before
        self.rotated.append((id, slug, None if before is None else before.session_id))

    @rule(which=st.integers(0, 1))
    def open_again(self, which: int) -> None:
        self.objects[which] = SessionPins(self.folder.name)

    @precondition(lambda self: self.rotated and not self.torn and not self.damaged)
    @rule(left=st.integers(0, 30))
    def crash_before_the_log_was_written(self, left: int) -> None:
        """The pin is cleared already; of the line that says so a part is there, or nothing."""
        *lines, last = self.log.read_bytes().splitlines(keepends=True)
        self.log.write_bytes(b"".join((*lines, last[: min(left, len(last) - 2)])))
        self.torn = True

    @precondition(lambda self: self.path.exists() and not self.damaged)
    @rule(garbage=GARBAGE)
    def damage(self, garbage: bytes) -> None:
        self.good = self.path.read_bytes()
        self.path.write_bytes(garbage)
        self.damaged.append(garbage)

    @precondition(lambda self: self.damaged)
    @rule()
    def mend(self) -> None:
        """A person puts the file back as it was, and takes the damaged copies away."""
        for copy in self.copies():
            copy.unlink()
        assert self.good is not None
        self.path.write_bytes(self.good)
        self.damaged.clear()

    # ---- what always holds

    def copies(self) -> list[Path]:
        return sorted(self.path.parent.glob("session_pins.json.damaged-*"))

    @invariant()
    def pins_are_the_same_or_refused(self) -> None:
        for each in self.objects:
            if self.refused(each.all):
                # What was found stays for a person to look at: never written over as empty.
                assert [copy.read_bytes() for copy in self.copies()] == self.damaged
            else:
                assert self.call(each.all) == self.pins
                assert not self.copies()

    @invariant()
    def every_rotation_stands_in_the_log_once(self) -> None:
        lines = self.log.read_bytes().split(b"\n") if self.log.exists() else []
        whole = []
        for line in lines:
            try:
                whole.append(json.loads(line))
            except ValueError:
                continue  # torn
        told = [(line["id"], line["slug"], line["session_id"]) for line in whole]
        assert told == (self.rotated[:-1] if self.torn else self.rotated)


@pytest.mark.slow
def test_pins_do_what_a_plain_model_of_them_does() -> None:
    with start_blocking_portal() as portal:
        PinsMachine.portal = portal
        run_state_machine_as_test(
            PinsMachine,
            settings=settings(
                max_examples=25,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
