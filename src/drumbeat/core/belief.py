"""Whether a clock that has leapt ahead is believed by who throws things away by it.

A machine whose clock is wrong as it starts (an empty battery, no network yet) may stand years
ahead for some minutes. Nothing that is thrown away in them comes back, and nothing is lost by
waiting: so a leap is believed once the clock has stood by it for a day.
"""

from datetime import datetime, timedelta

import attrs

__all__ = ["CONFIRMED", "LEAP", "Belief", "believe"]

LEAP = timedelta(days=7)
"""Further ahead than this is doubted; an engine that was off for so long waits a day as well."""

CONFIRMED = timedelta(days=1)
"""What the clock says is believed when it still says so after this time by itself."""


@attrs.frozen(kw_only=True)
class Belief:
    """What is known of the wall clock: the last instant that was believed, and the doubt since.

    Aware datetimes in UTC, None for none. While there is a doubt, the clock is not believed.
    """

    believed: datetime | None = None
    doubted: datetime | None = None


def believe(belief: Belief, *, now: datetime, passed: timedelta = timedelta(0)) -> Belief:
    """What is known after a look at the clock; it is believed if that has no doubt.

    Args:
        belief: what was known before.
        now: what the clock says.
        passed: so much time has passed since `believed` for certain, whatever the clock says.
    """
    if belief.believed is not None and now - belief.believed - passed <= LEAP:
        return Belief(believed=now)
    if belief.doubted is None or now < belief.doubted:
        return Belief(believed=belief.believed, doubted=now)
    if now - belief.doubted >= CONFIRMED:
        return Belief(believed=now)
    return belief
