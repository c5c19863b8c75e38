"""Stands for a model: it remembers each conversation by itself, and says what it remembers."""

from drumbeat import Agent, Reply, Turn


class Model(Agent):
    """Answers a question with what its own conversation was about."""

    def __init__(self) -> None:
        self.conversations: dict[str, list[str]] = {}

    async def take_turn(self, turn: Turn, /) -> Reply:
        """Remember the prompt; a reply hears what came before it."""
        said = self.conversations.setdefault(turn.session_id, [])
        said.append(turn.prompt.strip())
        if turn.origin == "reply":
            return Reply(text=f"You ask {said[-1]!r}. This began with {said[0]!r}.")
        return Reply(text=f"done with {turn.prompt.strip()!r}")
