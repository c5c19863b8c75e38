"""The places of runs: so many, and those who come back first."""

import anyio
import pytest

from drumbeat.runtime.places import Places

pytestmark = pytest.mark.anyio


async def test_there_are_so_many_places() -> None:
    places = Places(2)
    assert [places.take(name) for name in ("a", "b", "c")] == [True, True, False]
    assert places.leave("a")
    assert places.take("c")


async def test_leaving_twice_gives_up_one_place() -> None:
    """And who has none gives up none."""
    places = Places(1)
    assert places.take("a")
    assert [places.leave("a"), places.leave("a"), places.leave("b")] == [True, False, False]
    assert [places.take("b"), places.take("c")] == [True, False]


async def test_who_comes_back_is_before_those_who_begin() -> None:
    """In the order in which they asked; one that is cancelled meanwhile takes nothing."""
    places = Places(1)
    assert places.take("holder")
    order: list[str] = []

    async def come_back(name: str) -> None:
        await places.come_back(name)
        order.append(name)

    async with anyio.create_task_group() as group:
        cancelled = anyio.CancelScope()

        async def give_up() -> None:
            with cancelled:
                await places.come_back("cancelled")

        group.start_soon(give_up)
        await anyio.wait_all_tasks_blocked()
        for name in ("first", "second"):
            group.start_soon(come_back, name)
            await anyio.wait_all_tasks_blocked()
        cancelled.cancel()
        await anyio.wait_all_tasks_blocked()
        places.leave("holder")
        assert not places.take("beginner")
        await anyio.wait_all_tasks_blocked()
        assert order == ["first"]
        places.leave("first")
    assert order == ["first", "second"]
    assert not places.take("beginner")


async def test_a_place_that_is_given_to_one_who_is_being_cancelled_is_not_lost() -> None:
    places = Places(1)
    assert places.take("holder")
    async with anyio.create_task_group() as group:
        group.start_soon(places.come_back, "cancelled")
        await anyio.wait_all_tasks_blocked()
        assert places.leave("holder")
        group.cancel_scope.cancel()
    places.leave("cancelled")  # in case it came back all the same
    assert [places.take("beginner"), places.take("other")] == [True, False]


async def test_a_place_that_is_free_is_had_at_once() -> None:
    places = Places(1)
    await places.come_back("first")
    assert not places.take("beginner")
    assert places.leave("first")
