"""Runs one automation twice: through a busy moment, then in the same conversation."""

import tempfile
from pathlib import Path

import anyio
import structlog
from chat_agent import ChatAgent
from chat_api import ApiError, ChatApi

from drumbeat import Engine, RunRecord

AUTOMATION = """\
---
automation:
  name: Greeting
  trigger: {type: manual}
  notify: always
  agent_config:
    provider:
      module: chat
      config: {default_model: chat-large}
  steps:
    - id: greet
      prompt: Say hello, and how many messages there were before.
---
"""


async def main() -> None:
    """Write a workspace, run it, say which thread each run spoke in."""
    api = ChatApi(outages=[ApiError(429, "Too many requests.", retry_after=0.01)])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "automations", "greeting.md")
        file.parent.mkdir()
        file.write_text(AUTOMATION, encoding="utf-8")
        async with Engine(folder, agent=ChatAgent(api)) as engine:
            for _ in range(2):
                show(await engine.run("greeting"))


def show(record: RunRecord) -> None:
    """Print a run's only turn."""
    (turn,) = record.turns
    if turn.reply is None:
        print(record.state, record.failure)
    else:
        print(f"{turn.reply.handle}, attempt {turn.attempts}: {turn.reply.text}")


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    anyio.run(main)
