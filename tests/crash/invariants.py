"""What must hold whenever a host was killed, and what once more when all has come to its end."""

from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
from lives import SECRETS, Ledger

from drumbeat import Client, Event, Fire, RunRecord, SessionPins, StoreError

_ALL = 10_000_000


@attrs.frozen(kw_only=True)
class Left:
    """What a host left behind, read, and beside it what it was told and what it did."""

    fires: dict[str, Fire]
    runs: dict[str, RunRecord]
    events: list[Event]
    without_intent: list[str]
    """The runs that the library itself finds to be finished and to have no intent."""
    pins: str
    """Why they cannot be read."""
    told: list[dict[str, Any]]
    did: list[dict[str, Any]]
    mails: int
    """So many messages came."""


async def violations(folder: Path, *, over: bool) -> list[str]:
    """Read what is left with the library's own eyes and compare it with what the host was told.

    Args:
        folder: with `workspace`, and the ledgers `told` and `did`.
        over: whether the last host went to its end, so that nothing may be open any more.
    """
    return compare(await read(folder), over=over)


async def read(folder: Path) -> Left:
    """Read what is left in `folder`."""
    pins = ""
    async with Client(folder / "workspace", secrets=SECRETS) as client:
        fires = {fire.id: fire for fire in await client.fires(limit=_ALL)}
        runs = {run.run_id: run for run in await client.runs(limit=_ALL)}
        events = [event async for event in client.events(follow=False)]
        without_intent = await client.sweep()
    try:
        await SessionPins(folder / "workspace" / ".drumbeat").all()
    except StoreError as error:
        pins = str(error)
    return Left(
        fires=fires,
        runs=runs,
        events=events,
        without_intent=without_intent,
        pins=pins,
        told=Ledger.read(folder / "told"),
        did=Ledger.read(folder / "did"),
        mails=len(_mail(folder)),
    )


def compare(left: Left, *, over: bool) -> list[str]:
    """What must not be in what is left; `over` is as for `violations`."""
    fires, runs, told, did = left.fires, left.runs, left.told, left.did
    found = [f"run {run} is finished and has no intent" for run in left.without_intent]
    if left.pins:
        found.append(f"the pins cannot be read: {left.pins}")
    slots = Counter((fire.slug, fire.cause, fire.slot) for fire in fires.values())
    found += [f"{slot} stands {count} times" for slot, count in slots.items() if count > 1]
    verdicts = Counter(event.data["fire"] for event in left.events if event.kind == "fire_settled")
    found += [f"{fire} got {count} verdicts" for fire, count in verdicts.items() if count > 1]
    intents = Counter(run.intent.id for run in runs.values() if run.intent)
    found += [f"intent {intent} stands twice" for intent, count in intents.items() if count > 1]
    for run in runs.values():
        if (run.state == "running") != (run.intent is None):
            found.append(f"{run.run_id} is {run.state} and its intent {run.intent}")
        if run.fire.id not in fires:
            found.append(f"{run.run_id} belongs to a fire that is not there")
    for fire in fires.values():
        ran = runs.get(fire.run_id or "")
        if fire.verdict == "ran" and (ran is None or ran.state == "running"):
            found.append(f"{fire.id} ran, but {fire.run_id} is {ran and ran.state}")
    # One "running" is what a killed host leaves, one for each slug at most.
    going = Counter(run.slug for run in runs.values() if run.state == "running")
    found += [f"{count} runs of {slug} are going" for slug, count in going.items() if count > 1]

    found += _kept(told, fires)
    found += _delivered_once(did, runs, left.events)
    found += _never_at_once(did)
    if over:
        found += _all_settled(told, did, fires, runs, left.mails)
    return found


def _mail(folder: Path) -> list[str]:
    path = folder / "mail"
    return path.read_text().splitlines() if path.exists() else []


def _kept(told: list[dict[str, Any]], fires: dict[str, Fire]) -> list[str]:
    """Nothing that was acknowledged is lost, and one delivery is one fire."""
    found: list[str] = []
    first: dict[str, str] = {}
    for line in told:
        if "fire" in line and line["fire"] not in fires:
            found.append(f"{line} was acknowledged and is lost")
        if (
            line["what"] == "event"
            and first.setdefault(line["delivery"], line["fire"]) != line["fire"]
        ):
            found.append(f"delivery {line['delivery']} became two fires")
    return found


def _delivered_once(
    did: list[dict[str, Any]], runs: dict[str, RunRecord], events: list[Event]
) -> list[str]:
    """No intent is confirmed twice; what is confirmed was handed over, in rising attempts."""
    found: list[str] = []
    handed: dict[str, list[int]] = defaultdict(list)
    for line in did:
        if line["what"] == "delivered":
            handed[line["intent"]].append(line["attempt"])
    confirmed = Counter(event.data["intent"] for event in events if event.kind == "delivered")
    for intent, count in confirmed.items():
        if count > 1:
            found.append(f"{intent} is confirmed {count} times")
        if intent not in handed:
            found.append(f"{intent} is confirmed and was never handed over")
    for intent, attempts in handed.items():
        if sorted(set(attempts)) != attempts:
            found.append(f"{intent} was handed over in the attempts {attempts}")
    for run in runs.values():
        sent = run.delivery == "delivered"
        if run.intent and sent != (confirmed[run.intent.id] == 1):
            found.append(f"{run.run_id} is {run.delivery}, confirmed {confirmed[run.intent.id]}")
    return found


def _never_at_once(did: list[dict[str, Any]]) -> list[str]:
    """Within a life, one slug's turns and one conversation's turns follow each other."""
    found: list[str] = []
    going: dict[str, str] = {}
    for line in did:
        if line["what"] == "born":
            going.clear()
        if line["what"] not in ("begin", "end"):
            continue
        keys = [f"session {line['session']}"]
        if line["origin"] != "reply":  # which talks beside the runs, in a conversation of its own
            keys.append(f"slug {line['slug']}")
        if line["what"] == "end":
            for key in keys:
                going.pop(key, None)
            continue
        for key in keys:
            if key in going:
                found.append(f"two turns at once in {key}: {going[key]} and {line['run']}")
            going[key] = line["run"]
    return found


def _all_settled(
    told: list[dict[str, Any]],
    did: list[dict[str, Any]],
    fires: dict[str, Fire],
    runs: dict[str, RunRecord],
    mails: int,
) -> list[str]:
    ends = [line["at"] for line in did if line["what"] == "over"]
    if not ends:
        return ["the last host did not come to its end"]
    end = datetime.fromisoformat(ends[-1])
    settled = [fire for fire in fires.values() if fire.created_at <= end]
    found = [f"{fire.id} has no verdict" for fire in settled if fire.verdict is None]
    ran = [run for run in runs.values() if run.fire.created_at <= end]
    found += [f"{run.run_id} is still going" for run in ran if run.state == "running"]
    found += [
        f"the intent of {run.run_id} was never delivered"
        for run in ran
        if run.delivery == "pending"
    ]
    began = {line["run"] for line in did if line["what"] == "begin"}
    tries: dict[str, list[Any]] = defaultdict(list)
    for run in runs.values():
        tries[run.fire.id].append(run)
    for line in told:
        fire = fires.get(line.get("fire", ""))
        if fire is None:
            continue
        if fire.verdict != "ran":
            found.append(f"{line} was acknowledged and is {fire.verdict}")
        elif not any(run.run_id in began for run in tries[fire.id]) and not all(
            # A second interruption ends a fire (spec, section 5), and each may come before a turn.
            run.state == "interrupted"
            for run in tries[fire.id]
        ):
            found.append(f"{line} was acknowledged and no turn was ever taken for it")
    contexts = {
        line["run"]: line["context"] for line in did if line["what"] == "begin" and line["context"]
    }
    for attempts in tries.values():
        attempts.sort(key=lambda run: run.run_id)
        if len(attempts) > 2 and attempts[0].fire.cause != "inbox":
            found.append(f"{attempts[0].fire.id} had {len(attempts)} attempts")
        for before, after in pairwise(attempts):
            said = contexts.get(after.run_id)
            if before.state == "interrupted" and said is not None and "interrupted" not in said:
                found.append(f"{after.run_id} was not told that {before.run_id} was interrupted")
    batches = [fire for fire in fires.values() if fire.cause == "inbox"]
    # An inbox begins at what comes after its first look.
    due = mails - max((line["at"] for line in did if line["what"] == "mail begun"), default=0)
    if due and not batches:
        found.append(f"{due} messages came and none was read")
    return found
