"""The reader of what a kill leaves finds each thing that must not be: one is made at a time."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import attrs
import pytest

# The program that is the long run finds these beside itself.
sys.path.insert(0, str(Path(__file__).parent))

from invariants import Left, compare, read, violations
from lives import SECRETS, Door, Ledger, Steps, lay_out, told_of

from drumbeat import Engine, Reply, Turn
from drumbeat.testing import ManualClock

NOW = datetime(2026, 3, 2, tzinfo=UTC)
Change: TypeAlias = Callable[[Left], Left]


class Worker:
    """The model, whose host ends in the middle of the first turn."""

    def __init__(self, did: Ledger) -> None:
        self._did = did
        self.end: anyio.CancelScope | None = None

    async def take_turn(self, turn: Turn, /) -> Reply:
        facts = told_of(turn)
        self._did.add(what="begin", context=turn.context, **facts)
        try:
            if self.end is not None:
                self.end.cancel()
            await anyio.lowlevel.checkpoint()
        finally:
            self._did.add(what="end", **facts)
        return Reply(text="done")


async def live(folder: Path) -> None:
    """Two lives: a fire by hand that is cut off and made up for, an event, and no mail."""
    lay_out(folder / "workspace")
    for name in ("automations/look", "automations/fresh", "jobs/mail"):
        (folder / "workspace" / f"{name}.md").unlink()
    told, did = Ledger(folder / "told"), Ledger(folder / "did")
    worker = Worker(did)

    clock = ManualClock(NOW)

    def engine() -> Engine:
        return Engine(
            folder / "workspace",
            agent=worker,
            deliverer=Door(Steps("", 0), did),
            timezone="UTC",
            secrets=SECRETS,
            clock=clock,
            env={},
        )

    did.add(what="born", life=0)
    with anyio.CancelScope() as worker.end:
        async with engine() as first:
            fire = await first.fire("chain", slot="ticket")
            told.add(what="asked", fire=fire.id, slot="ticket")
            await first.settled()
    worker.end = None
    clock.jump(timedelta(minutes=1))  # of one instant, the ids of runs have no order
    did.add(what="born", life=1)
    async with engine() as second:
        answer = await second.webhook(
            "hook",
            method="post",
            headers={
                "Authorization": f"Bearer {SECRETS['AGENT_API_SECRET']}",
                "Idempotency-Key": "d-1",
            },
            body=b"{}",
        )
        assert answer.fire is not None
        told.add(what="event", delivery="d-1", fire=answer.fire.id, status=answer.status)
        await second.settled()
        did.add(what="over", at=clock.now().isoformat())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    anyio.run(live, folder)
    return folder


@pytest.fixture(scope="module")
def left(whole: Path) -> Left:
    """What is left where all is as it must be."""
    found = anyio.run(read, whole)
    assert compare(found, over=False) == []
    assert compare(found, over=True) == []
    assert sorted(run.state for run in found.runs.values()) == [
        "interrupted",
        "succeeded",
        "succeeded",
    ]
    return found


# ---- what is done to it


def run_id(left: Left, slug: str) -> str:
    """The latest run of a slug."""
    return max(run for run, record in left.runs.items() if record.slug == slug)


def fire_id(left: Left, slug: str) -> str:
    return next(fire.id for fire in left.fires.values() if fire.slug == slug)


def with_run(slug: str, **changes: Any) -> Change:
    """Change the run that succeeded."""

    def change(left: Left) -> Left:
        (record,) = [
            run for run in left.runs.values() if run.slug == slug and run.state == "succeeded"
        ]
        return attrs.evolve(
            left, runs={**left.runs, record.run_id: attrs.evolve(record, **changes)}
        )

    return change


def with_fire(slug: str, **changes: Any) -> Change:
    def change(left: Left) -> Left:
        fire = attrs.evolve(left.fires[fire_id(left, slug)], **changes)
        return attrs.evolve(left, fires={**left.fires, fire.id: fire})

    return change


def without_fire(left: Left) -> Left:
    gone = fire_id(left, "hook")
    return attrs.evolve(
        left, fires={fire: each for fire, each in left.fires.items() if fire != gone}
    )


def without_run(left: Left) -> Left:
    return attrs.evolve(
        left, runs={run: each for run, each in left.runs.items() if each.slug != "hook"}
    )


def same_slot(left: Left) -> Left:
    twin = attrs.evolve(left.fires[fire_id(left, "hook")], id="twin")
    return attrs.evolve(left, fires={**left.fires, "twin": twin})


def more_runs(count: int, **changes: Any) -> Change:
    """More runs of the fire by hand, each made of the interrupted one."""

    def change(left: Left) -> Left:
        (cut,) = [run for run in left.runs.values() if run.state == "interrupted"]
        more = {}
        for number in range(count):
            given = {"intent": attrs.evolve(cut.intent, id=f"i-{number}"), **changes}
            more[f"9-{number}"] = attrs.evolve(cut, run_id=f"9-{number}", **given)
        return attrs.evolve(left, runs={**left.runs, **more})

    return change


def one_intent_for_two(left: Left) -> Left:
    intent = left.runs[run_id(left, "hook")].intent
    return more_runs(1, intent=intent)(left)


def again(kind: str, of: str = "hook") -> Change:
    """An event stands twice."""

    def change(left: Left) -> Left:
        (event,) = [each for each in left.events if each.kind == kind and each.slug == of]
        return attrs.evolve(left, events=[*left.events, event])

    return change


def without_events(kind: str) -> Change:
    return lambda left: attrs.evolve(
        left, events=[event for event in left.events if event.kind != kind]
    )


def told(**line: Any) -> Change:
    return lambda left: attrs.evolve(left, told=[*left.told, line])


def did(*lines: dict[str, Any]) -> Change:
    return lambda left: attrs.evolve(left, did=[*left.did, *lines])


def handed_over_again(left: Left) -> Left:
    (line,) = [each for each in left.did if each["what"] == "delivered" and each["slug"] == "hook"]
    return did(line)(left)


def never_did(**facts: Any) -> Change:
    """Lines that hold all of these facts are not there."""
    return lambda left: attrs.evolve(
        left,
        did=[line for line in left.did if not facts.items() <= line.items()],
    )


def not_told_of_the_first(left: Left) -> Left:
    lines = [{**line, "context": "Look."} if line["what"] == "begin" else line for line in left.did]
    return attrs.evolve(left, did=lines)


def turn(what: str, *, slug: str, session: str, origin: str = "step") -> dict[str, Any]:
    return {
        "what": what,
        "slug": slug,
        "run": f"run of {session}",
        "session": session,
        "origin": origin,
        "context": "",
    }


def mail(left: Left) -> Left:
    begun = {"what": "mail begun", "at": 1}
    return attrs.evolve(left, mails=3, did=[*left.did, begun])


ALWAYS: list[tuple[str, Change, str]] = [
    ("a slot twice", same_slot, "stands 2 times"),
    ("a verdict twice", again("fire_settled"), "got 2 verdicts"),
    ("no intent", lambda left: attrs.evolve(left, without_intent=["r"]), "run r is finished and"),
    ("an intent of nobody", with_run("hook", intent=None), "is succeeded and its intent None"),
    ("an intent too early", with_run("hook", state="running"), "is running and its intent Del"),
    ("an intent for two runs", one_intent_for_two, "stands twice"),
    ("a run of no fire", without_fire, "belongs to a fire that is not there"),
    ("ran without a run", without_run, "ran, but"),
    ("ran and still going", with_run("hook", state="running", intent=None), "is running"),
    ("two runs of one slug", more_runs(2, state="running", intent=None), "2 runs of chain are"),
    ("pins unreadable", lambda left: attrs.evolve(left, pins="damaged"), "pins cannot be read"),
    ("an event lost", told(what="event", delivery="d-2", fire="gone", status=202), "and is lost"),
    ("a fire lost", told(what="asked", fire="gone", slot=None), "acknowledged and is lost"),
    (
        "one delivery as two fires",
        lambda left: told(what="event", delivery="d-1", fire=fire_id(left, "chain"), status=202)(
            left
        ),
        "delivery d-1 became two fires",
    ),
    ("confirmed twice", again("delivered"), "is confirmed 2 times"),
    ("never handed over", never_did(what="delivered", slug="hook"), "was never handed over"),
    ("an attempt twice", handed_over_again, "was handed over in the attempts [1, 1]"),
    ("sent, unconfirmed", without_events("delivered"), "is delivered, confirmed 0"),
    ("confirmed, not sent", with_run("hook", delivery="pending"), "is pending, confirmed 1"),
    (
        "one slug twice at once",
        did(turn("begin", slug="a", session="s"), turn("begin", slug="a", session="t")),
        "two turns at once in slug a",
    ),
    (
        "one conversation twice at once",
        did(
            turn("begin", slug="a", session="s"),
            turn("begin", slug="a", session="s", origin="reply"),
        ),
        "two turns at once in session s",
    ),
]
AT_THE_END: list[tuple[str, Change, str]] = [
    ("no end", never_did(what="over"), "did not come to its end"),
    ("no verdict", with_fire("hook", verdict=None), "has no verdict"),
    ("stuck in running", with_run("hook", state="running", intent=None), "is still going"),
    ("never delivered", with_run("hook", delivery="pending"), "was never delivered"),
    ("skipped after a yes", with_fire("hook", verdict="skipped"), "was acknowledged and is skip"),
    ("no turn", never_did(what="begin", slug="hook"), "no turn was ever taken for it"),
    ("three attempts", more_runs(1), "had 3 attempts"),
    ("not told", not_told_of_the_first, "was not told that"),
    ("mail unread", mail, "2 messages came and none was read"),
]


def named(cases: list[tuple[str, Change, str]]) -> Any:
    return pytest.mark.parametrize(
        "change, said", [pytest.param(change, said, id=name) for name, change, said in cases]
    )


@named(ALWAYS)
def test_what_may_never_be_is_found_after_each_kill(left: Left, change: Change, said: str) -> None:
    assert said in "\n".join(compare(change(left), over=False))


@named(AT_THE_END)
def test_what_may_not_stay_is_found_at_the_end_alone(left: Left, change: Change, said: str) -> None:
    changed = change(left)
    assert said in "\n".join(compare(changed, over=True))
    assert said not in "\n".join(compare(changed, over=False))


@pytest.mark.parametrize(
    "lines",
    [
        # Whoever was killed in a turn ends it in no line.
        [
            turn("begin", slug="a", session="s"),
            {"what": "born"},
            turn("begin", slug="a", session="s"),
        ],
        # An answer of a person may be beside a run, in a conversation of its own.
        [
            turn("begin", slug="a", session="s"),
            turn("begin", slug="a", session="t", origin="reply"),
        ],
        [
            turn("begin", slug="a", session="s"),
            turn("end", slug="a", session="s"),
            turn("begin", slug="a", session="s"),
        ],
    ],
    ids=["killed", "an answer", "one after the other"],
)
def test_turns_that_may_be_are_not_taken_for_two_at_once(
    left: Left, lines: list[dict[str, Any]]
) -> None:
    assert compare(did(*lines)(left), over=False) == []


def test_one_running_is_what_a_kill_leaves(left: Left) -> None:
    assert compare(more_runs(1, state="running", intent=None)(left), over=False) == []


def test_pins_on_disk_that_cannot_be_read_are_a_finding(whole: Path) -> None:
    """And no crash of the long run, which goes on with its other folders."""
    path = whole / "workspace" / ".drumbeat" / "session_pins.json"
    kept = path.read_bytes()
    path.write_bytes(kept[:-9])
    try:
        found = anyio.run(lambda: violations(whole, over=True))
    finally:
        path.with_name(f"{path.name}.damaged-1").unlink(missing_ok=True)
        path.write_bytes(kept)
    assert "pins-damaged" in "".join(found)
    assert anyio.run(lambda: violations(whole, over=True)) == []
