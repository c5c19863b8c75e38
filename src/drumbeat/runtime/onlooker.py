"""How a data folder and its engine stand, as far as others than that engine can see."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import attrs

from drumbeat.core.model import Fire, Health, RunRecord, Status
from drumbeat.errors import Problem
from drumbeat.protocols import Store
from drumbeat.runtime import requests
from drumbeat.runtime.inbox_states import inbox_states
from drumbeat.runtime.lock import EngineLock
from drumbeat.runtime.rules import Rules
from drumbeat.runtime.sign_of_life import SignOfLife, read_sign
from drumbeat.runtime.system_prompt import look_at_system_prompt
from drumbeat.runtime.threads import Threads
from drumbeat.runtime.webhook_states import webhook_states
from drumbeat.runtime.workspace import Survey

__all__ = ["Onlooker"]


@attrs.frozen(kw_only=True)
class Onlooker:
    """Sees the lock, the records, the files, and what an engine has said of itself."""

    workspace_dir: Path
    data_dir: Path
    threads: Threads

    async def status(self, store: Store | None, seen: Survey, rules: Rules) -> Status:
        """As `Client.status`.

        Raises:
            StoreError: the store could not be read.
        """
        elsewhere = await self.threads.run(rules.elsewhere, self.workspace_dir, self.data_dir)
        unruled = await look_at_system_prompt(self.workspace_dir, threads=self.threads)
        holder = await self.holder()
        sign = await self._sign(holder)
        fires: list[Fire] = []
        if store is not None:
            fires = await store.fires(open=True, limit=None, payloads=False)
        running: list[RunRecord] = []
        for fire in fires:
            if store is not None and fire.run_id is not None:
                runs = await store.runs(target=fire.run_id, limit=1, payloads=False)
                running += [run for run in runs if run.state == "running"]
        going = {run.run_id for run in running}
        return Status(
            state=_state(holder, sign),
            path=(),
            workspace=seen.workspace,
            paused={} if store is None else await requests.paused(store),
            running=tuple(running),
            stuck=(),
            waiting=tuple(fire for fire in fires if fire.run_id not in going),
            faults=_all_faults((*seen.problems, *unruled, *elsewhere), sign),
            zones={kind: (name, source) for kind, (_, name, source) in rules.zones.items()},
            inboxes=await inbox_states(store, seen.workspace, systems=rules.systems),
            webhooks=await webhook_states(store, seen.workspace),
        )

    async def health(self, store_faults: Sequence[str]) -> Health:
        """As `Client.health`; `store_faults` are the codes of what is wrong with the store."""
        holder = await self.holder()
        sign = await self._sign(holder)
        state = _state(holder, sign)
        told = () if sign is None else tuple(fault.code for fault in sign.faults)
        faults = tuple(dict.fromkeys([*store_faults, *told]))
        well = not any(code.startswith("store-") for code in faults)
        return Health(ok=state == "running" and well, state=state, faults=faults)

    async def holder(self) -> str | None:
        """Who holds the data folder at this moment."""
        return await EngineLock(self.data_dir, threads=self.threads).holder()

    async def _sign(self, holder: str | None) -> SignOfLife | None:
        """What the engine that holds the data folder says of itself."""
        if holder is None:
            return None
        sign = await self.threads.run(read_sign, self.data_dir)
        return None if sign is None or sign.holder != holder else sign


def _state(
    holder: str | None, sign: SignOfLife | None
) -> Literal["running", "draining", "stopped"]:
    if holder is None:
        return "stopped"
    return "draining" if sign is not None and sign.draining else "running"


def _all_faults(seen: tuple[Problem, ...], sign: SignOfLife | None) -> tuple[Problem, ...]:
    known = {problem.code for problem in seen}
    told = () if sign is None else sign.faults
    return (*seen, *(fault for fault in told if fault.code not in known))
