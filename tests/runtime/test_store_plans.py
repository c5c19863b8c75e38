"""How SQLite carries out each statement of the store: by an index, or for a reason given here."""

import ast
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.model import Sent
from drumbeat.runtime import (
    store_commits,
    store_fires,
    store_ledger,
    store_reads,
    store_retention,
)
from drumbeat.runtime.store import SqliteStore
from drumbeat.testing import check_store

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
MODULES = (store_commits, store_fires, store_ledger, store_reads, store_retention)

SORT = "USE TEMP B-TREE FOR ORDER BY"
REASONS = {
    ("SCAN leases", "UPDATE leases SET until"): "as many as runs and replies go on at once",
    (SORT, "FROM leases WHERE kind = 'slug'"): "as many as runs go on at once",
    ("SCAN marks", "DELETE FROM marks"): "once a day, and there are a few for each automation",
    ("SCAN f USING INDEX fires_open", "f.verdict IS NULL"): "open ones alone, and LIMIT ends it",
    ("SCAN f USING INDEX fires_waiting", "GROUP BY slug, cause"): "open ones alone",
    ("SCAN f", "WHERE TRUE ORDER BY f.seq DESC LIMIT"): "the latest, as many as LIMIT says",
    ("SCAN i USING INDEX intents_waiting", "i.sent = 'pending'"): "what is pending alone",
    ("SCAN intents USING INDEX intents_waiting", "sent = 'pending'"): "what is pending alone",
    ("SCAN r USING INDEX runs_latest", "WHERE TRUE ORDER BY"): "the latest, as many as LIMIT says",
    ("SCAN r USING INDEX runs_latest", "WHERE TRUE AND i.sent = ?"): "nearly all are delivered",
    ("SCAN r USING INDEX runs_latest", "r.state != 'running'"): "`sweep` looks at every run",
    (SORT, "r.seq IN (SELECT seq FROM runs"): "LIMIT of a conversation, and one receipt's",
    (SORT, "r.run_id IN (SELECT run_id FROM intents"): "what is pending, or was abandoned, alone",
    (SORT, "WHERE TRUE AND f.id = ?"): "one fire",
    ("SCAN intents USING INDEX intents_abandoned", "sent = 'abandoned'"): "those alone",
}
"""By a step and what its statement holds: why it may read one row after the other, or sort."""


def plain(sql: str) -> str:
    return " ".join(sql.split())


async def ask_everything(path: Path) -> None:
    """Let the store execute each statement that it has at least once."""
    await check_store(lambda: SqliteStore(path))
    store = SqliteStore(path)
    await store.open(holder="plans", lease=timedelta(minutes=1))
    some: list[Any] = [None, "x"]
    sents: list[Sent | None] = [None, "pending", "delivered", "abandoned"]
    for slug, target, sent in product(some, some, sents):
        await store.runs(slug=slug, target=target, sent=sent)
    for slug, payloads in product(some, (True, False)):
        await store.backlog(now=NOW, slug=slug)
        await store.fires(slug=slug, around=NOW, payloads=payloads)
        for one, alone in product(some, (True, False)):
            await store.fires(slug=slug, id=one, open=alone, payloads=payloads)
    leased = await store.claim_intent(now=NOW)
    assert leased is not None
    await store._write("unclaim", lambda ledger: ledger.unclaim_intent(leased))
    await store.close()


def written() -> Iterator[str]:
    """How each statement that the modules hold begins."""
    for module in MODULES:
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            text = node.args[0] if name == "execute" else None
            if name == "select_fires":
                text = node.args[1]
            if isinstance(text, ast.JoinedStr):
                text = text.values[0]
            if isinstance(text, ast.Constant):
                yield plain(text.value)


# The plans do not depend on what runs the loop.
@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_statement_reads_a_large_table_from_end_to_end_or_sorts_it(
    tmp_path: Path, statements: list[tuple[str, tuple[Any, ...]]]
) -> None:
    path = tmp_path / "drumbeat.db"
    await ask_everything(path)
    queries = {
        plain(sql): len(values)
        for sql, values in statements
        if re.match(r"SELECT|INSERT|UPDATE|DELETE", sql) and "sqlite_" not in sql
    }
    others = {sql for sql, _ in statements}
    for beginning in written():
        known = any(beginning in query for query in (*queries, *others))
        assert known, f"{beginning!r} was not executed: let `ask_everything` do so"
    with closing(sqlite3.connect(path)) as db:
        plans = {
            query: db.execute(f"EXPLAIN QUERY PLAN {query}", (None,) * count).fetchall()
            for query, count in queries.items()
        }
    without = [
        f"{step}: {query}"
        for query, plan in plans.items()
        for *_, step in plan
        if is_dear(step) and not has_reason(step, query)
    ]
    assert not without, "give it an index, or a reason above"
    waiting = [
        step
        for query, plan in plans.items()
        for *_, step in plan
        if "WHERE TRUE AND f.slug = ? AND f.verdict IS NULL" in query and " f " in step
    ]
    assert {*waiting} == {"SEARCH f USING INDEX fires_open_of_slug (slug=?)"}, (
        "the open ones of an automation are found among the open ones alone"
    )


def is_dear(step: str) -> bool:
    """Whether its cost may grow with everything that there is."""
    # A subquery's own steps say what it reads.
    walks = step.startswith("SCAN") and "CONSTANT ROW" not in step and "SCAN (" not in step
    # Without an index it walks through the table until it meets the least or the greatest.
    return walks or "TEMP B-TREE" in step or (step.startswith("SEARCH") and " USING " not in step)


def has_reason(step: str, query: str) -> bool:
    """Whether it is named above; over all of a table, it does not matter by which index."""
    return any(
        held in query
        and (step == known or step.startswith((f"{known} USING COV", f"{known} USING PRIMARY")))
        for known, held in REASONS
    )
