"""How a run asks for a later run of its own automation (spec, section 13.3)."""

from datetime import timedelta
from uuid import uuid4

import attrs

from drumbeat.core.asked import check_span
from drumbeat.core.messages import exactly
from drumbeat.core.model import Fire
from drumbeat.errors import EngineBusy, FollowUpRefused, NotFound, Problem
from drumbeat.protocols import FollowUps
from drumbeat.runtime.log import log
from drumbeat.runtime.run_tokens import Bearer
from drumbeat.runtime.services import Services

_LONGEST_PROMPT = 65_536


@attrs.define(kw_only=True)
class RunFollowUps(FollowUps):
    """The follow-ups of one run: worthless for any other automation, and after the run's end."""

    services: Services
    fire: Fire
    """What the run is an attempt at."""
    run_id: str
    _token: str | None = attrs.field(default=None, init=False)
    _open: bool = attrs.field(default=True, init=False)
    _refused: set[str] = attrs.field(factory=set, init=False)
    """The codes of what was refused to this run and is on record."""

    def env(self) -> dict[str, str]:
        """What a turn's environment has, so that a process in it can ask over HTTP.

        The token is minted at the first call, and lives until `close`.
        """
        services = self.services
        if self._token is None:
            self._token = services.tokens.mint(
                Bearer(slug=self.fire.slug, run_id=self.run_id, follow_ups=self)
            )
        told = {
            "DRUMBEAT_RUN_TOKEN": self._token,
            "DRUMBEAT_FOLLOWUPS_URL": services.follow_ups_url,
        }
        return {name: value for name, value in told.items() if value is not None}

    def close(self) -> None:
        """Say that the run has ended: nothing more is scheduled, and the token is worthless."""
        self._open = False
        if self._token is not None:
            self.services.tokens.revoke(self._token)

    async def schedule(self, prompt: str, *, after: timedelta) -> Fire:
        """Commit a follow-up, or say which limit it is over. See `drumbeat.protocols.FollowUps`."""
        check_span("after", after)
        services, slug = self.services, self.fire.slug
        # Counted and committed by one caller at a time, or the limit would hold for none of them.
        async with services.counting:
            refusal = await self._refusal(prompt, after)
            now = services.clock.now()
            if refusal is not None:
                raise await self.refuse(refusal)
            name = f"follow-up-{uuid4()}"
            fire = Fire(
                id=name,
                slug=slug,
                cause="follow-up",
                slot=name,
                due=now + after,
                created_at=now,
                prompt=prompt,
                parent_run=self.run_id,
                depth=self.fire.depth + 1,
            )
            event = services.event(
                "follow_up_scheduled", now, slug, self.run_id, fire=name, due=fire.due.isoformat()
            )
            (stored,) = await services.store.add_fires((fire,), events=(event,))
        services.fires_changed.notify()
        return stored

    async def refuse(self, refusal: Problem) -> FollowUpRefused:
        """Record a refusal, and return what is to be raised.

        Each kind is on record by then. A run that asks again and again costs no row each time: what
        follows is counted, and written once a minute.

        Raises:
            StoreError: it could not be committed.
        """
        if refusal.code in self._refused:
            self.services.refusals.note(
                "follow_up_refused", self.fire.slug, self.run_id, code=refusal.code
            )
            return FollowUpRefused(refusal)
        event = self.services.event(
            "follow_up_refused",
            self.services.clock.now(),
            self.fire.slug,
            self.run_id,
            code=refusal.code,
            reason=refusal.message,
        )
        await self.services.store.record(events=(event,))
        self._refused.add(refusal.code)
        return FollowUpRefused(refusal)

    async def _refusal(self, prompt: str, after: timedelta) -> Problem | None:
        settings = self.services.settings
        if not self._open:
            return _no_follow_up(
                "follow-up-run-ended",
                "the run that asked has ended",
                "ask from a run that is going",
            )
        wrong = _wrong_with(prompt)
        if wrong is not None:
            return _no_follow_up(
                "follow-up-prompt-invalid",
                wrong,
                "write what the later run is to do, as text",
            )
        if not timedelta(0) <= after <= settings.follow_up_delay:
            return _no_follow_up(
                "follow-up-delay",
                f"a delay of {exactly(after)} is outside 0 s to "
                f"{exactly(settings.follow_up_delay)}",
                "ask for a delay within these bounds",
            )
        if self.fire.depth + 1 > settings.follow_up_depth:
            return _no_follow_up(
                "follow-up-too-deep",
                f"the chain is {self.fire.depth} follow-ups long, and "
                f"{settings.follow_up_depth} is the limit",
                "finish the work in this run, or say what is left in the reply",
            )
        backlog = await self.services.store.backlog(
            slug=self.fire.slug, now=self.services.clock.now()
        )
        pending = sum(waiting.follow_ups for waiting in backlog)
        if pending >= settings.follow_ups_pending:
            return _no_follow_up(
                "follow-ups-pending",
                f"{pending} follow-ups are pending, and {settings.follow_ups_pending} is the limit",
                "wait until one of them has run",
            )
        return None


@attrs.frozen(kw_only=True)
class NoFollowUps(FollowUps):
    """What a turn has that belongs to no run: there is no automation that could run later."""

    slug: str

    async def schedule(self, prompt: str, *, after: timedelta) -> Fire:
        """Refuse.

        Raises:
            FollowUpRefused: always (`follow-up-without-run`).
        """
        refusal = _no_follow_up(
            "follow-up-without-run",
            "this turn belongs to no automation, so there is none that could run later",
            "say in the answer what is to be done later",
        )
        # A command's reply counts all the same, so the log is where it can be seen.
        log.warning("follow_up_refused", slug=self.slug, code=refusal.code)
        raise FollowUpRefused(refusal)


async def ask_with_token(
    services: Services, token: str, prompt: str, *, after: timedelta, slug: str | None
) -> Fire:
    """As `Engine.follow_up`, whose docstring says what is raised."""
    bearer = bearer_of(services, token)
    asked = bearer.follow_ups
    if slug is not None and slug != bearer.slug:
        refusal = _no_follow_up(
            "follow-up-other-automation",
            f"the token belongs to a run of {bearer.slug}, and to no other automation",
            "leave the slug out: a run can ask for later runs of its own automation only",
        )
        raise await asked.refuse(refusal)
    return await asked.schedule(prompt, after=after)


def bearer_of(services: Services, token: str) -> Bearer:
    """Whom a token stands for; one that stands for nobody is counted.

    Raises:
        NotFound: it belongs to no run that is going.
    """
    bearer = services.tokens.find(token)
    if bearer is not None:
        return bearer
    code = "run-token-unknown"
    services.refusals.note("caller_refused", None, door="/followups", code=code)
    raise NotFound(
        Problem(
            code=code,
            message="the token belongs to no run that is going",
            remedy="use the DRUMBEAT_RUN_TOKEN of a turn while its run is going",
        )
    )


def token_elsewhere() -> EngineBusy:
    """What a token is answered with where no turn is taken."""
    return EngineBusy(
        Problem(
            code="run-token-elsewhere",
            message="the tokens of runs are known to the engine that runs them, which is not this",
            remedy="let `base_url` lead to the process whose engine holds the data folder",
        )
    )


def _wrong_with(prompt: object) -> str | None:
    if not isinstance(prompt, str):
        return f"the prompt is {type(prompt).__name__}, and no text"
    if not prompt.strip():
        return "the prompt is blank"
    if len(prompt) > _LONGEST_PROMPT:
        return f"the prompt is {len(prompt)} characters long, and {_LONGEST_PROMPT} is the limit"
    if "\0" in prompt:
        return "the prompt holds a null character"
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError:
        return "the prompt has half of a surrogate pair, which is no character"
    return None


def _no_follow_up(code: str, message: str, remedy: str) -> Problem:
    return Problem(code=code, message=f"no follow-up: {message}", remedy=remedy)
