"""An agent that says what a test's script says."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from inspect import isawaitable
from types import MappingProxyType
from typing import TypeAlias

import anyio.lowlevel

from drumbeat.core.model import Reply, Turn
from drumbeat.errors import AgentError
from drumbeat.protocols import Agent

__all__ = ["Said", "Scripted", "ScriptedAgent"]

Said: TypeAlias = str | Reply | Exception
"""What a scripted agent says: the text of a reply, a whole reply, or an exception to raise."""

Scripted: TypeAlias = Said | Callable[[Turn], Said | Awaitable[Said]]
"""What it says, or how it finds out from the turn; an async function may sleep on the clock."""


class ScriptedAgent(Agent):
    """An agent for tests: it answers from a script and remembers every turn it was given.

        >>> agent = ScriptedAgent({"check": "all well", "judgment": "NOTHING_TO_REPORT"})
        >>> anyio.run(agent.take_turn, example_turn(step_id="check")).text
        'all well'

    The script is looked up under these keys, the first one found counts:

    1. `"slug/step"`: the automation's slug and the step's id,
    2. `"slug/origin"`, such as `"nightly/judgment"`, for turns that belong to no step,
    3. the step's id,
    4. the origin: `inject`, `step`, `judgment`, `follow-up`, `reply`, `ask` or `draft`;

    `default` answers the rest. Under a key stands one of these:

    - a text or a `Reply`: the answer, each time;
    - an exception: raised each time, so `AgentUnavailable("busy")` is an agent that stays away;
    - a function of the turn, plain or async, that returns one of the above. To let a turn take
      time, sleep on the clock that the engine was given;
    - a sequence of these, one for each call under that key. An attempt that is tried again is a
      call of its own. Once the sequence is used up, further calls raise `AgentError` with the code
      `script-exhausted`: a script that is too short is a mistake in the test, and repeating its
      last line would hide that. For something that goes on, give a function.

    Args:
        script: answers by key.
        default: the answer to a turn for which there is no key.
    """

    turns: list[Turn]
    """Every turn in the order of the calls, those that failed or were cancelled included."""

    def __init__(
        self,
        script: Mapping[str, Scripted | Sequence[Scripted]] = MappingProxyType({}),
        default: Scripted = "ok",
    ) -> None:
        self.turns = []
        self._script: dict[str, Scripted | _Lines] = {
            # a text is a sequence too, of letters
            key: _Lines(key, said)
            if isinstance(said, Sequence) and not isinstance(said, str)
            else said
            for key, said in script.items()
        }
        self._default = default
        self._speaking: set[str] = set()

    async def take_turn(self, turn: Turn, /) -> Reply:
        """Answer as the script says.

        Raises:
            AgentError: the sequence under the turn's key is used up (code `script-exhausted`).
            AssertionError: the conversation is in the middle of another turn; an engine never does
                that (spec, section 12).
            TypeError: a function of the script returned something that cannot be said.
            Exception: whatever the script says.
        """
        self.turns.append(turn)
        if turn.session_id in self._speaking:
            msg = (
                f"two turns at once in the conversation {turn.session_id}: "
                f"{turn.turn_id} ({turn.slug}/{turn.step_id or turn.origin}) came during another"
            )
            raise AssertionError(msg)
        self._speaking.add(turn.session_id)
        try:
            await anyio.lowlevel.checkpoint()
            return await self._say(turn)
        finally:
            self._speaking.discard(turn.session_id)

    async def _say(self, turn: Turn) -> Reply:
        key, scripted = self._find(turn)
        if isinstance(scripted, _Lines):
            scripted = scripted.next_line()
        said: object = scripted
        if callable(scripted) and not isinstance(scripted, Exception):
            answer = scripted(turn)
            said = await answer if isawaitable(answer) else answer
        if isinstance(said, Exception):
            # one exception may be raised many times: it must not drag along where it was before
            raise said.with_traceback(None)
        if isinstance(said, str):
            return Reply(text=said)
        if isinstance(said, Reply):
            return said
        msg = (
            f"the script says {said!r} for {key}: "
            "give a text, a Reply, an exception, or a function that returns one of them"
        )
        raise TypeError(msg)

    def _find(self, turn: Turn) -> "tuple[str, Scripted | _Lines]":
        for name in (turn.step_id, turn.origin):
            key = f"{turn.slug}/{name}"
            if name is not None and key in self._script:
                return repr(key), self._script[key]
        for name in (turn.step_id, turn.origin):
            if name is not None and name in self._script:
                return repr(name), self._script[name]
        return "the default", self._default


class _Lines:
    def __init__(self, key: str, lines: Sequence[Scripted]) -> None:
        self._key = key
        self._count = len(lines)
        self._lines: Iterator[Scripted] = iter(tuple(lines))

    def next_line(self) -> Scripted:
        for line in self._lines:
            return line
        msg = (
            f"the script for {self._key!r} has {self._count} answers and was asked for one more: "
            "add to the sequence, or give a function for something that goes on"
        )
        raise AgentError(msg, code="script-exhausted")
