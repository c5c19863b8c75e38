"""The tokens with which what runs in a turn asks, over HTTP, for follow-ups of its own run.

Theory of operation. A token stands in memory alone, and only while its run, or reply, is going. So
there is nothing that a copy of the data folder could give away, and a crash takes every token with
it: the runs that were going are settled by the next engine, and nobody is left who could rightly
ask in their names. The price is that only the engine which runs the turn knows the token; a client
or a standby in another process cannot tell a token of that engine from a wrong one.
"""

from datetime import timedelta
from secrets import compare_digest, token_urlsafe
from typing import Protocol

import attrs

from drumbeat.core.identity import run_token
from drumbeat.core.model import Fire
from drumbeat.errors import FollowUpRefused, Problem

_BYTES = 32


class Asker(Protocol):
    """What asks for follow-ups of one run, and records that one was refused."""

    async def schedule(self, prompt: str, *, after: timedelta) -> Fire:
        """As `drumbeat.protocols.FollowUps.schedule`."""
        ...

    async def refuse(self, refusal: Problem) -> FollowUpRefused:
        """Record a refusal, and return what is to be raised."""
        ...


@attrs.frozen(kw_only=True)
class Bearer:
    """Whom a token stands for: one run of `slug`, and what it may ask for."""

    slug: str
    run_id: str
    follow_ups: Asker


@attrs.define
class RunTokens:
    """The tokens of one engine."""

    _bearers: dict[str, Bearer] = attrs.field(factory=dict)

    def mint(self, bearer: Bearer) -> str:
        """A token that stands for `bearer` until it is revoked, and is worthless for all else."""
        token = run_token(token_urlsafe(_BYTES))
        self._bearers[token] = bearer
        return token

    def revoke(self, token: str) -> None:
        """Make a token worthless; a second time does nothing."""
        self._bearers.pop(token, None)

    def find(self, token: str) -> Bearer | None:
        """Whom `token` stands for, or None; how long it takes says nothing about how near it is."""
        found = None
        given = token.encode("utf-8", "surrogatepass")
        for known, bearer in self._bearers.items():
            if compare_digest(known.encode(), given):
                found = bearer
        return found
