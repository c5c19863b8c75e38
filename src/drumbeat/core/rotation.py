"""When a conversation is given up, and the fingerprint of the prompts it was held about."""

from collections.abc import Sequence
from datetime import date
from hashlib import sha256

from drumbeat.core.model import Lifecycle, Pin, Rotation, Step

__all__ = ["decide_rotation", "steps_fingerprint"]

# The version is hashed too: another framing would abandon every conversation, and has to say so.
_FRAMING = b"drumbeat-steps-1\n"


def steps_fingerprint(steps: Sequence[Step]) -> str:
    r"""Hash the ordered prompts of `steps`, and nothing else of them.

    Ids, labels, the schedule and everything else may change without abandoning a conversation
    (spec, section 7). Each prompt is framed by its length in bytes, so no two different lists
    of prompts share a framing.

    Args:
        steps: the steps in file order.

    Returns:
        A SHA-256 digest in 64 lower-case hexadecimal digits; equal for equal prompts on every
        machine and version.
    """
    digest = sha256(_FRAMING)
    for step in steps:
        # A lone surrogate cannot stand in a file, but a value built by hand has to hash as well.
        prompt = step.prompt.encode("utf-8", "surrogatepass")
        digest.update(b"%d\n" % len(prompt))
        digest.update(prompt)
    return digest.hexdigest()


def decide_rotation(
    conversation: Lifecycle,
    pin: Pin | None,
    *,
    fingerprint: str,
    provider: str | None,
    today: date,
) -> Rotation | None:
    """Say why the pinned conversation must not be resumed, or None when it may be.

    Where several reasons hold, the first of this order is given: `fresh`, `daily-boundary`,
    `steps-changed`, `provider-changed` (spec, section 7). So a `fresh` automation always says
    `fresh`, and what an author did to the file comes before what happened to its configuration.

    Args:
        conversation: the lifecycle that the file asks for.
        pin: what is pinned; None means that there is nothing to rotate.
        fingerprint: `steps_fingerprint` of the file as it is read for this run.
        provider: the provider module of the resolved configuration, never a model; None when the
            configuration names none, which stands for the agent's own default and differs from
            any named module. Case and surrounding white space do not count.
        today: the local calendar day of this run. Any other day than the pin's is a boundary,
            an earlier one too: a clock or zone that went back must not keep a conversation alive
            until a day that may be years away.

    Returns:
        The reason to rotate, or None.
    """
    if pin is None:
        return None
    if conversation == "fresh":
        return "fresh"
    if conversation == "daily" and pin.day != today:
        return "daily-boundary"
    if pin.fingerprint != fingerprint:
        return "steps-changed"
    if _module(pin.provider) != _module(provider):
        return "provider-changed"
    return None


def _module(provider: str | None) -> str:
    return (provider or "").strip().casefold()
