"""The tokens with which what runs in a turn asks for follow-ups (spec, section 13.3)."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat import ClaimLost, Client, EngineBusy, FollowUpRefused, NotFound, StoreError, Turn
from drumbeat.core.identity import run_token
from drumbeat.runtime.run_tokens import Bearer, RunTokens
from drumbeat.testing import ScriptedAgent

MINUTE = timedelta(minutes=1)


# ---- by themselves


def bearer(slug: str) -> Bearer:
    asker: Any = None
    return Bearer(slug=slug, run_id=f"run-{slug}", follow_ups=asker)


def test_a_token_stands_for_one_run_until_it_is_revoked() -> None:
    tokens = RunTokens()
    one, other = bearer("one"), bearer("other")
    first, second = tokens.mint(one), tokens.mint(other)
    assert (tokens.find(first), tokens.find(second)) == (one, other)
    tokens.revoke(first)
    tokens.revoke(first)
    assert (tokens.find(first), tokens.find(second)) == (None, other)


@pytest.mark.parametrize("wrong", ["", "dbrt_", "ä\ud800", run_token("A" * 43)])
def test_what_is_no_token_stands_for_nothing(wrong: str) -> None:
    tokens = RunTokens()
    token = tokens.mint(bearer("one"))
    assert tokens.find(wrong) is None
    assert tokens.find(token[:-1]) is None
    assert tokens.find(token + "A") is None


def test_tokens_cannot_be_guessed_from_one_another() -> None:
    """43 characters of each are random."""
    tokens = RunTokens()
    minted = {tokens.mint(bearer("one")) for _ in range(100)}
    assert len(minted) == 100
    assert {len(token) for token in minted} == {len(run_token("A" * 43))}


# ---- in an engine


@pytest.mark.anyio
async def test_a_token_asks_for_its_own_automation_while_its_run_goes(host: Any) -> None:
    """For no other one, and no longer: not after the run, and not after a restart."""
    host.write()
    host.write("other")
    seen: list[str] = []
    told: list[Any] = []

    async def say(turn: Turn) -> str:
        if turn.origin == "step":
            seen.append(turn.env["DRUMBEAT_RUN_TOKEN"])
            told.append(
                await engine.follow_up(seen[-1], "Again.", after=30 * MINUTE, slug=turn.slug)
            )
            with pytest.raises(FollowUpRefused) as caught:
                await engine.follow_up(seen[-1], "Again.", after=MINUTE, slug="other")
            told.append(caught.value.problem.code)
            await host.clock.sleep(MINUTE)
        return "done"

    host.agent = ScriptedAgent(default=say)
    engine = host.engine()
    async with engine:
        run = await host.fire(engine, within=2 * MINUTE)
        fire, code = told
        assert (fire.slug, fire.parent_run, fire.depth) == ("check", run.run_id, 1)
        assert code == "follow-up-other-automation"
        (refused,) = await host.events(engine, "follow_up_refused")
        assert (refused.run_id, refused.data["code"]) == (run.run_id, code)
        await host.fire(engine, "other", within=2 * MINUTE)
        assert len(set(seen)) == 2
        for token in seen:
            with pytest.raises(NotFound) as caught:
                await engine.follow_up(token, "Again.", after=MINUTE)
            assert caught.value.problem.code == "run-token-unknown"
        assert {fire.slug for fire in (await engine.status()).waiting} == {"check", "other"}
    async with host.engine() as engine:
        with pytest.raises(NotFound):
            await engine.follow_up(seen[0], "Again.", after=MINUTE)


@pytest.mark.anyio
@pytest.mark.parametrize("base_url", [None, "http://127.0.0.1:8000/"])
async def test_turns_are_told_where_to_ask_and_tools_are_not(
    host: Any, base_url: str | None
) -> None:
    """Every turn of a run has one token, a retried one too; an inject tool has none."""
    host.tool("show", "env")
    host.write(inject=[{"argv": ["show"], "label": "env"}], steps=["One.", "Two."])
    host.agent = ScriptedAgent(default="done")
    async with host.engine(base_url=base_url) as engine:
        run = await engine.run("check")
        await engine.reply(run.run_id, "And?")
    injected, one, two, reply = host.agent.turns
    assert injected.origin == "inject"
    assert "DRUMBEAT_RUN_ID" in injected.prompt
    assert "DRUMBEAT_RUN_TOKEN" not in injected.prompt
    token = one.env["DRUMBEAT_RUN_TOKEN"]
    assert {turn.env["DRUMBEAT_RUN_TOKEN"] for turn in (injected, one, two)} == {token}
    assert reply.env["DRUMBEAT_RUN_TOKEN"] != token
    url = base_url and "http://127.0.0.1:8000/followups"
    assert {turn.env.get("DRUMBEAT_FOLLOWUPS_URL") for turn in host.agent.turns} == {url}


@pytest.mark.anyio
async def test_a_reply_has_a_token_of_its_own_that_ends_with_it(host: Any) -> None:
    """What it asks for counts as asked for by the run that is answered."""
    host.write()
    fires: list[Any] = []
    tokens: list[str] = []

    async def say(turn: Turn) -> str:
        if turn.origin == "reply":
            tokens.append(turn.env["DRUMBEAT_RUN_TOKEN"])
            fires.append(await engine.follow_up(tokens[-1], "Later.", after=MINUTE))
        return "done"

    host.agent = ScriptedAgent(default=say)
    engine = host.engine()
    async with engine:
        run = await engine.run("check")
        await engine.reply(run.run_id, "Look again in a minute.")
        assert fires[0].parent_run == run.run_id
        with pytest.raises(NotFound):
            await engine.follow_up(tokens[0], "Later.", after=MINUTE)


@pytest.mark.anyio
@pytest.mark.parametrize("ends", ["fails", "cancelled", "interrupted", "claim lost"])
async def test_however_a_run_ends_its_token_ends_with_it(host: Any, ends: str) -> None:
    """Also when it can write down nothing of itself."""
    host.write()
    store = host.faulty()
    minted: list[int] = []

    async def say(turn: Turn) -> str:
        minted.append(len(engine._life.services.tokens._bearers))
        if ends == "fails":
            msg = "broken"
            raise ValueError(msg)
        if ends == "cancelled":
            await engine.cancel(turn.run_id or "", "enough")
            await host.clock.sleep(30 * MINUTE)
        if ends == "interrupted":
            await host.clock.sleep(30 * MINUTE)
        store.faults["record"] = [ClaimLost(problem("claim-lost"))]
        return "done"

    host.agent = ScriptedAgent(default=say)
    engine = host.engine(store=store)
    async with engine:
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        await engine.fire("check")
        await host.clock.advance(5 * MINUTE)
        tokens = engine._life.services.tokens
        assert minted == [1]
        if ends != "interrupted":
            assert tokens._bearers == {}
    assert tokens._bearers == {}


@pytest.mark.anyio
async def test_a_reply_that_cannot_begin_leaves_no_token(host: Any) -> None:
    host.write()
    store = host.faulty()
    async with host.engine(store=store) as engine:
        run = await engine.run("check")
        await host.clock.advance(timedelta(seconds=1))  # what its loops write as they begin
        store.faults["record"] = [NotFound(problem("run-unknown"))]
        with pytest.raises(NotFound):
            await engine.reply(run.run_id, "And?")
        assert engine._life.services.tokens._bearers == {}


def problem(code: str) -> Any:
    from drumbeat import Problem

    return Problem(code=code, message="m", remedy="r")


@pytest.mark.anyio
async def test_the_token_is_taken_out_of_all_that_is_written(host: Any) -> None:
    """In the artifacts, the record, the events and the intent, and after the run as well."""
    host.write(steps=["One.", "Two."])
    tokens: list[str] = []

    async def say(turn: Turn) -> str:
        if turn.origin == "follow-up":
            return f"it was {tokens[0]}"
        tokens.append(turn.env["DRUMBEAT_RUN_TOKEN"])
        if turn.step_id == "step-1":
            await turn.follow_ups.schedule("Look.", after=MINUTE)
            return f"I asked with {tokens[0]}"
        msg = f"curl failed: Authorization: Bearer {tokens[0]}"
        raise ValueError(msg)

    host.agent = ScriptedAgent(default=say)
    async with host.engine() as engine:
        run = await host.fire(engine)
        (later, _) = await engine.runs()
        events = [event async for event in engine.events(follow=False)]
    assert "[redacted DRUMBEAT_RUN_TOKEN]" in run.failure.message
    assert later.intent.text == "it was [redacted DRUMBEAT_RUN_TOKEN]"
    assert tokens[0] not in repr(events)
    written = [path for path in Path(host.data).rglob("*") if path.is_file()]
    assert any(path.name == "01-step.md" for path in written)
    assert [path for path in written if tokens[0].encode() in path.read_bytes()] == []


@pytest.mark.anyio
async def test_where_no_turn_is_taken_no_token_is_known(host: Any) -> None:
    """Neither a client nor a standby can tell a token from a wrong one, and both say so."""
    host.write()
    async with host.engine():
        async with Client(host.workspace) as client:
            with pytest.raises(EngineBusy) as caught:
                await client.follow_up("dbrt_x", "Again.", after=MINUTE)
        assert caught.value.problem.code == "run-token-elsewhere"
        async with host.engine(standby=True) as standby:
            with pytest.raises(EngineBusy) as caught:
                await standby.follow_up("dbrt_x", "Again.", after=MINUTE)
        assert caught.value.problem.code == "run-token-elsewhere"


@pytest.mark.anyio
async def test_what_is_answered_stands_in_the_store(host: Any) -> None:
    """A store that takes nothing is no answer."""
    host.write()
    store = host.faulty()
    raised: list[Exception] = []

    async def say(turn: Turn) -> str:
        store.faults["add_fires"] = [StoreError(problem("store-full"))]
        try:
            await engine.follow_up(turn.env["DRUMBEAT_RUN_TOKEN"], "Again.", after=MINUTE)
        except StoreError as error:
            raised.append(error)
        return "done"

    host.agent = ScriptedAgent(default=say)
    engine = host.engine(store=store)
    async with engine:
        await engine.run("check")
        assert [fire.cause for fire in await engine.fires()] == ["manual"]
    assert len(raised) == 1
