"""Stands for a model: it looks at a build, and calls a tool to look again later."""

import subprocess

import anyio

from drumbeat import Agent, Reply, Turn


class Builder(Agent):
    """Sees the build end at its last look; what it saw before stands in the automation's memory."""

    def __init__(self, *, looks: int, seconds: float = 0.2) -> None:
        self.looks = looks
        self.seconds = seconds
        self.conversations: list[str] = []

    async def take_turn(self, turn: Turn, /) -> Reply:
        """Look once; call the tool as a model's harness would, in the turn's own environment."""
        self.conversations.append(turn.session_id)
        notes = turn.memory_dir / "looks.txt"
        seen = notes.read_text().splitlines() if notes.exists() else []
        notes.write_text("\n".join([*seen, turn.prompt.splitlines()[0]]))
        number = len(seen) + 1
        if number == self.looks:
            return Reply(text=f"Look {number}: the build is green.")
        tool = await anyio.run_process(
            ["look-later", str(self.seconds), f"Look {number + 1} at the build."],
            env=dict(turn.env),
            cwd=turn.cwd,
            stderr=subprocess.STDOUT,
            check=False,
        )
        said = tool.stdout.decode().strip()
        if tool.returncode:
            return Reply(text=f"Look {number}: still going, and I cannot look again ({said}).")
        return Reply(text=f"Look {number}: still going, I look again.")
