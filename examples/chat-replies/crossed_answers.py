"""Two automations post, two people answer, each the other's later message first."""

import tempfile
from pathlib import Path

import anyio
import structlog
from chat_host import Answers, ChatDeliverer
from chat_model import Model
from chat_room import Chat

from drumbeat import Engine

WORKSPACE = Path(__file__).with_name("workspace")


async def main() -> None:
    """Run both, twice; answer first the first backup, then the last sales figures; show it."""
    chat = Chat()
    with tempfile.TemporaryDirectory() as data:
        engine = Engine(WORKSPACE, agent=Model(), deliverer=ChatDeliverer(chat), data_dir=data)
        async with engine, anyio.create_task_group() as group:
            for _ in range(2):
                for slug in ("backups", "sales"):
                    await engine.run(slug)
                await engine.settled()
            first, *_, last = chat.messages
            group.start_soon(Answers(chat, engine).serve)
            await chat.post("ada", "Which one failed?", answers=first)
            await chat.post("bob", "Who bought that?", answers=last)
            chat.close()
        for began in (first, last):
            for message in chat.thread(began):
                print(f"{message.author}: {message.text}")


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    anyio.run(main)
