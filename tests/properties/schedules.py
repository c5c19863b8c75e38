"""Schedules through every change of the clocks, against a look at every minute.

Usage: schedules.py [--expressions 1000] [--seed 1] [--zone NAME]. For each zone and change
(`minutes.ZONES`) random expressions are asked for their slots in the two days either way, in all
the ways there are: one after the other, from any instant, counted, and as a planner gives them out.
Prints the counts and every disagreement, and ends with 1 if there is one.
"""

import argparse
import random
import sys
from bisect import bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from expressions import expression, meaning
from minutes import ZONES, Change, Minutes, changes_of

from drumbeat.core.model import Interval, Schedule
from drumbeat.core.planner import Planner
from drumbeat.core.schedule import missed_slots, next_fire, parse_schedule
from drumbeat.errors import ScheduleError

__all__ = ["check_change"]

CHAIN = 40
"""Slots that are asked for one after the other, around the change."""
LIMIT = 1000
"""Where a count stops and means "at least"."""


def check_change(
    change: Change, count: int, seed: int | str, counts: Counter[str] | None = None
) -> list[str]:
    """Check `count` random expressions around one change; what disagrees."""
    counts = Counter() if counts is None else counts
    chance = random.Random(f"{seed} {change}")
    minutes = Minutes(change)
    wrong: list[str] = []
    done = 0
    while done < count:
        text = expression(chance, change)
        try:
            schedule = parse_schedule(text)
        except ScheduleError as error:
            if error.problem.code != "cron-never":
                wrong.append(f"{text}: refused: {error.problem.message}")
            counts["refused: never comes"] += 1
            continue
        done += 1
        counts["cases"] += 1
        said = meaning(text)
        if isinstance(said, timedelta):
            found = _interval(schedule, said, minutes, chance)
        else:
            slots = minutes.slots(said)
            counts["slots"] += len(slots)
            found = _wall_clock(schedule, slots, minutes, chance, counts)
        wrong += [f"{change}: `{text}`: {one}" for one in found]
    return wrong


def _wall_clock(
    schedule: Schedule,
    slots: list[datetime],
    minutes: Minutes,
    chance: random.Random,
    counts: Counter[str],
) -> list[str]:
    zone = ZoneInfo(minutes.change.zone)
    wrong: list[str] = []

    def later(after: datetime) -> datetime | None:
        counts["questions"] += 1
        try:
            found = next_fire(schedule, after=after, zone=zone)
        except ScheduleError:
            return None
        if found <= after:
            wrong.append(f"the slot {found} is not later than {after}")
        there = found.astimezone(zone)
        if there.astimezone(UTC) != found:
            wrong.append(f"{found} does not survive its way through the zone")
        return found if found <= minutes.end else None

    # one after the other, around the change
    begin = max(0, bisect_right(slots, minutes.change.at) - CHAIN // 2)
    at = slots[begin - 1] if begin else minutes.start
    for wanted in [*slots[begin : begin + CHAIN], *([None] if begin + CHAIN >= len(slots) else [])]:
        found = later(at)
        if found != wanted:
            wrong.append(f"after {at}: {found}, not {wanted}")
        if found is None:
            break
        at = found
    # from any instant, also as the zone's own clocks show it
    for _ in range(3):
        at = minutes.start + timedelta(seconds=chance.randrange(4 * 24 * 3600))
        if chance.random() < 0.5:
            at = minutes.change.at + timedelta(seconds=chance.randrange(-7200, 7200))
        place = bisect_right(slots, at)
        wanted = slots[place] if place < len(slots) else None
        given = at.astimezone(zone) if chance.random() < 0.5 else at
        if (found := later(given)) != wanted:
            wrong.append(f"from {at}: {found}, not {wanted}")
        # and back: what was missed up to there, and the newest of it
        past = slots[:place]
        answer = missed_slots(schedule, after=minutes.start, until=given, zone=zone, limit=LIMIT)
        counts["questions"] += 1
        if answer != (min(len(past), LIMIT), past[-1] if past else None):
            wrong.append(f"missed until {at}: {answer}, not {len(past)} and {past[-1:]}")
    wrong += _planned(schedule, slots, minutes, chance)
    return wrong


def _planned(
    schedule: Schedule, slots: list[datetime], minutes: Minutes, chance: random.Random
) -> list[str]:
    """A planner that is looked at now and then gives out each slot once, folded or alone."""
    planner = Planner(zone=ZoneInfo(minutes.change.zone), catch_up=timedelta(days=10))
    try:
        planner.set("a", schedule, now=minutes.start)
    except ScheduleError:
        return [f"a planner refuses it, with {len(slots)} slots"] if slots else []
    looks = sorted(
        minutes.start + timedelta(seconds=chance.randrange(4 * 24 * 3600)) for _ in range(4)
    )
    if len(slots) <= CHAIN:
        looks = sorted([*looks, *slots])
    done = 0
    for now in [*looks, minutes.end]:
        upto = bisect_right(slots, now)
        due = planner.take(now)
        wanted = (slots[upto - 1], min(upto - done - 1, LIMIT)) if upto > done else None
        given = None if due is None else (due.slot, due.folded)
        if given != wanted:
            return [f"a planner gives {given} at {now}, not {wanted}"]
        if planner.take(now) is not None:
            return [f"a planner gives something twice at {now}"]
        done = upto
    return []


def _interval(
    schedule: Schedule, every: timedelta, minutes: Minutes, chance: random.Random
) -> list[str]:
    """Elapsed time since the last finish, whatever the clocks show; a planner waits for it."""
    zone = ZoneInfo(minutes.change.zone)
    finish = minutes.change.at + timedelta(minutes=chance.randrange(-1440, 1440))
    if not isinstance(schedule, Interval) or schedule.every != every:
        return [f"it is {schedule}"]
    wanted = finish + every
    given = finish.astimezone(zone) if chance.random() < 0.5 else finish
    answers = {
        next_fire(schedule, after=finish + timedelta(hours=1), zone=zone, last_finish=given),
        next_fire(schedule, after=given, zone=zone),
    }
    planner = Planner(zone=zone)
    planner.set("a", schedule, now=finish, first_seen=finish - every)
    planner.finished("a", finish)
    before = planner.take(wanted - timedelta(seconds=1))
    due = planner.take(wanted)
    again = planner.take(wanted + 2 * every)
    if answers != {wanted} or before is not None or due is None or due.slot != wanted or again:
        return [f"finished {finish}: {answers}, {before}, {due}, {again}, not {wanted}"]
    return []


def main() -> int:
    """Do what the module says."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--expressions", type=int, default=1000, help="for each change")
    options.add_argument("--seed", default="1")
    options.add_argument("--zone", action="append", default=[])
    asked = options.parse_args()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for zone in asked.zone or ZONES:
        for change in changes_of(zone):
            found = check_change(change, asked.expressions, asked.seed, counts)
            counts["gaps" if change.gap else "folds"] += 1
            print(f"{change}: {len(found)} disagreements", flush=True)
            for one in found[:5]:
                print(f"  {one}", flush=True)
            wrong += found
    print(f"{len(asked.zone or ZONES)} zones, {dict(counts)}, {len(wrong)} disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
