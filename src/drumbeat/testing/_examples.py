"""Whole values to begin a test with, of which it changes what it is about."""

import os
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs

from drumbeat.core.asked import check_span
from drumbeat.core.model import Automation, DeliveryIntent, Fire, Step, Turn

__all__ = ["example_intent", "example_turn"]

_AT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def example_turn(**changes: Any) -> Turn:
    """Return a turn as an engine would make it: the only step of a job, in a new conversation.

    `session_id`, `turn_id` and `run_id` differ from call to call, and `env` is this process's own.
    `follow_ups` takes every follow-up and runs none. The folders are the current one and a `memory`
    inside it, which need not exist.

        >>> example_turn(prompt="Say hello.", is_new=False).text
        'Say hello.'

    Args:
        changes: fields of `Turn`, by name.

    Raises:
        TypeError: a name is no field of `Turn`.
    """
    step = Step(id="prompt", prompt="Answer with one short sentence.")
    turn = Turn(
        turn_id=str(uuid4()),
        attempt=1,
        slug="example",
        session_id=str(uuid4()),
        is_new=True,
        handle=None,
        automation=Automation(
            slug="example",
            name="example",
            kind="job",
            steps=(step,),
            notify="always",
            conversation="fresh",
        ),
        run_id=str(uuid4()),
        origin="step",
        step_id=step.id,
        label=None,
        prompt=step.prompt,
        context="",
        requirements=(),
        system_prompt=None,
        skills=(),
        config={},
        memory_dir=Path.cwd() / "memory",
        follow_ups=_FollowUps(),
        env=dict(os.environ),
        cwd=Path.cwd(),
        timeout=timedelta(minutes=10),
    )
    return attrs.evolve(turn, **changes)


def example_intent(**changes: Any) -> DeliveryIntent:
    """Return an intent with the verdict `deliver`, at its first attempt, from a schedule's fire.

    `id` and `run_id` differ from call to call.

        >>> example_intent(text="Disk full.", attempt=2).text
        'Disk full.'

    Args:
        changes: fields of `DeliveryIntent`, by name.

    Raises:
        TypeError: a name is no field of `DeliveryIntent`.
    """
    run_id = str(uuid4())
    intent = DeliveryIntent(
        id=str(uuid4()),
        run_id=run_id,
        slug="example",
        name="example",
        session_id=str(uuid4()),
        fire=Fire(
            id=str(uuid4()),
            slug="example",
            cause="schedule",
            slot=_AT.isoformat(),
            due=_AT,
            created_at=_AT,
            attempt=1,
            verdict="ran",
            reason="succeeded",
            run_id=run_id,
        ),
        created_at=_AT,
        attempt=1,
        verdict="deliver",
        gate="policy-always",
        reason="notify is always",
        text="A check of the way out: please ignore.",
    )
    return attrs.evolve(intent, **changes)


class _FollowUps:
    def __init__(self) -> None:
        self._numbers = count(1)

    async def schedule(self, prompt: str, *, after: timedelta) -> Fire:
        name = f"follow-up-{next(self._numbers)}"
        return Fire(
            id=name,
            slug="example",
            cause="follow-up",
            slot=name,
            due=_AT + check_span("after", after),
            created_at=_AT,
            prompt=prompt,
            depth=1,
        )
