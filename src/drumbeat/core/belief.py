"""Whether a clock that has leapt ahead is believed by who throws things away by it.

A machine whose clock is wrong as it starts (an empty battery, no network yet) may stand years
ahead for some minutes. Nothing that is thrown away in them comes back, and nothing is lost by
waiting: so a leap is believed once the clock has stood by it for a day. How long that is, the clock
in doubt does not say: the steady time of one process does. Between two processes there is no steady
time, so the clock is asked all the same, and one that has leapt again meanwhile is doubted anew.
"""

from datetime import datetime, timedelta

import attrs

__all__ = ["CONFIRMED", "LEAP", "Belief", "believe"]

LEAP = timedelta(days=7)
"""Further ahead than this is doubted; an engine that was off for so long waits a day as well."""

CONFIRMED = timedelta(days=1)
"""What the clock says is believed when it has stood by it for this time."""


@attrs.frozen(kw_only=True)
class Belief:
    """What is known of the wall clock: the last instant that was believed, and the doubt since.

    Aware datetimes in UTC, None for none. While there is a doubt, the clock is not believed.
    """

    believed: datetime | None = None
    doubted: datetime | None = None
    """The first look of the doubt."""
    stood: timedelta | None = None
    """How long the clock has stood by it; None when that is not known: another process doubted."""


def believe(
    belief: Belief,
    *,
    now: datetime,
    passed: timedelta = timedelta(0),
    looked: timedelta = timedelta(0),
) -> Belief:
    """What is known after a look at the clock; it is believed if that has no doubt.

    Args:
        belief: what was known before.
        now: what the clock says.
        passed: so much time has passed since `believed` for certain, whatever the clock says.
        looked: so much has passed for certain since the look that `belief` comes from.
    """
    if belief.believed is not None and now - belief.believed - passed <= LEAP:
        return Belief(believed=now)
    anew = Belief(believed=belief.believed, doubted=now, stood=timedelta(0))
    if belief.doubted is None or now < belief.doubted:
        return anew
    said = now - belief.doubted
    stood = None if belief.stood is None else belief.stood + looked
    if said - (stood or timedelta(0)) > LEAP:
        return anew
    if stood is None:
        stood = said
    if stood >= CONFIRMED:
        return Belief(believed=now)
    return attrs.evolve(belief, stood=stood)
