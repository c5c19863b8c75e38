"""What a call of a host's own comes to: its answer, or a value that says why there is none."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import anyio
import attrs
import pytest

from drumbeat import AgentError, AgentUnavailable, ContextCeiling, ConversationNotFound, Usage
from drumbeat.core.redaction import Redactor
from drumbeat.runtime.answers import Raised, answered, failure_of
from drumbeat.testing import ManualClock

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
LOST = LookupError("lost")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 2, 12, tzinfo=UTC))


async def answer() -> str:
    return "yes"


async def fail() -> str:
    raise LOST


async def fail_in_groups() -> str:
    async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
        inner.start_soon(fail)
        outer.start_soon(anyio.sleep_forever)
    return "never"


@pytest.mark.parametrize("call", [fail, fail_in_groups])
async def test_what_a_call_raises_is_a_value(
    clock: ManualClock, call: Callable[[], Awaitable[str]]
) -> None:
    """Out of its groups of one."""
    assert await answered(clock, MINUTE, call, what="a call") == Raised(how="raised", error=LOST)


async def test_an_answer_is_the_answer(clock: ManualClock) -> None:
    assert await answered(clock, MINUTE, answer, what="a call") == "yes"
    assert await answered(clock, None, answer, what="a call") == "yes"


async def test_a_call_whose_time_is_up_is_told_from_one_that_raised(clock: ManualClock) -> None:
    found: list[object] = []

    async def sleep_for_an_hour() -> None:
        await clock.sleep(timedelta(hours=1))

    async def ask() -> None:
        found.append(await answered(clock, MINUTE, sleep_for_an_hour, what="a call"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await clock.advance(MINUTE)
    (raised,) = found
    assert isinstance(raised, Raised)
    assert raised.how == "over-time"


async def test_the_cancellation_of_the_caller_passes_through(clock: ManualClock) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await answered(clock, MINUTE, anyio.sleep_forever, what="a call")
        raise AssertionError
    assert scope.cancelled_caught


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_call_that_cancels_itself_is_told_from_one_that_raised(clock: ManualClock) -> None:
    """Only asyncio lets a call raise a cancellation that nobody asked for."""

    async def cancels() -> None:
        raise anyio.get_cancelled_exc_class()

    found = await answered(clock, MINUTE, cancels, what="a call")
    assert isinstance(found, Raised)
    assert found.how == "self-cancelled"


async def test_a_driven_clock_stands_still_while_a_call_goes_on(clock: ManualClock) -> None:
    done = anyio.Event()
    began = clock.now()

    async def ask() -> None:
        await answered(clock, None, done.wait, what="a call of somebody")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(clock.advance, MINUTE)
            await anyio.wait_all_tasks_blocked()
            assert clock.now() == began
            done.set()
    assert clock.now() == began + MINUTE


def known(error: AgentError, code: str, remedy: str = "wait") -> AgentError:
    """A host's own, which says how to mend it."""
    error.problem = attrs.evolve(error.problem, code=code, remedy=remedy)
    return error


@pytest.mark.parametrize(
    "error",
    [
        known(AgentUnavailable("x" * 70_000, retry_after=timedelta(0)), "rate-limited"),
        known(ContextCeiling("x" * 70_000), "context-overflow"),
        known(ConversationNotFound("x" * 70_000), "session-expired"),
        known(AgentError("x", usage=Usage(input_tokens=1)), "said-no", "wait " * 20_000),
        known(AgentUnavailable("x", usage=7), "rate-limited"),  # type: ignore[arg-type]
    ],
    ids=["unavailable", "ceiling", "conversation", "remedy", "usage"],
)
async def test_a_failure_that_is_too_long_is_the_same_failure_cut(error: AgentError) -> None:
    """Its code above all, which tells whether two failures have one cause."""
    given = error.problem
    failure = failure_of(error, Redactor({}))
    assert isinstance(failure, type(error))
    assert (failure.code, failure.problem.remedy[:4]) == (given.code, "wait")
    assert failure.problem.message[0] == "x"
    assert max(len(failure.problem.message), len(failure.problem.remedy)) < 66_000
    assert failure.usage in (None, Usage(input_tokens=1))
    assert error.problem is given
