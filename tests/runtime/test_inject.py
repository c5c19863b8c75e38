import os
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from drumbeat.core.model import InjectOutcome, InjectSpec
from drumbeat.runtime.inject import MAX_OUTPUT, run_inject

ENV = {"PATH": os.defpath}


async def shell(script: str, cwd: Path | str = "/", **options: timedelta) -> InjectOutcome:
    spec = InjectSpec(argv=("sh", "-c", script), label="state")
    return await run_inject(spec, cwd=cwd, env=ENV, **options)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "output, text",
    [
        (r"three items", "three items"),
        (r"\n  padded \r\n\n", "\n  padded \r\n\n"),
        (r"\342\202\254 5\n", "€ 5\n"),
        (r" INJECT_IDLE", " INJECT_IDLE"),
        (r"INJECT_IDLE ", "INJECT_IDLE "),
        (r"INJECT_IDLE\n\n", "INJECT_IDLE\n\n"),
        (r"inject_idle", "inject_idle"),
        (r"\357\273\277INJECT_IDLE", "\ufeffINJECT_IDLE"),
        (r"NOTHING_TO_REPORT", "NOTHING_TO_REPORT"),
    ],
)
async def test_output_is_injected_verbatim(output: str, text: str) -> None:
    """Only the token itself, with at most one line ending, is idle."""
    outcome = await shell(f"printf '{output}'; echo note >&2")
    assert (outcome.kind, outcome.code, outcome.text) == ("inject", "inject-output", text)
    assert (outcome.exit_code, outcome.stderr) == (0, "note\n")
    assert outcome.reason


@pytest.mark.anyio
@pytest.mark.parametrize("ending", ["", r"\n", r"\r\n"])
async def test_the_token_alone_is_idle(ending: str) -> None:
    outcome = await shell(f"printf 'INJECT_IDLE{ending}'")
    assert (outcome.kind, outcome.code, outcome.text) == ("idle", "inject-idle", "")
    assert outcome.reason


@pytest.mark.anyio
@pytest.mark.parametrize(
    "script, code, exit_code, said",
    [
        ("exit 3", "inject-failed", 3, "exited with code 3"),
        ("kill -9 $$", "inject-failed", -9, "was ended by SIGKILL"),
        ("printf INJECT_IDLE; exit 1", "inject-failed", 1, "exited with code 1"),
        ("printf '\\377'; exit 1", "inject-failed", 1, "exited with code 1"),
        ("true", "inject-empty", 0, "wrote nothing"),
        ("printf ' \\n\\t\\r\\n'", "inject-empty", 0, "wrote nothing"),
        ("printf 'a\\377'", "inject-not-utf8", 0, "byte 1"),
        ("yes", "inject-too-large", None, "1 MiB"),
    ],
)
async def test_anything_else_aborts(
    script: str, code: str, exit_code: int | None, said: str
) -> None:
    outcome = await shell(script)
    assert (outcome.kind, outcome.code, outcome.text) == ("abort", code, "")
    assert said in outcome.reason
    if exit_code is not None:
        assert outcome.exit_code == exit_code


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_timeout_comes_before_exit_code_and_output() -> None:
    outcome = await shell(
        "trap 'exit 0' TERM; printf INJECT_IDLE; sleep 600 & wait",
        timeout=timedelta(seconds=0.2),
    )
    assert (outcome.kind, outcome.code) == ("abort", "inject-timeout")
    assert "longer than 0.2 s" in outcome.reason


@pytest.mark.anyio
async def test_output_of_the_largest_size_is_injected() -> None:
    outcome = await shell(f"head -c {MAX_OUTPUT} /dev/zero | tr '\\0' x")
    assert (outcome.kind, len(outcome.text)) == ("inject", MAX_OUTPUT)


@pytest.mark.anyio
async def test_the_reason_ends_with_the_last_of_standard_error() -> None:
    outcome = await shell("printf '%05000d' 0 >&2; echo the cause >&2; exit 2")
    assert outcome.reason.startswith("exited with code 2; standard error ended with: …000")
    assert outcome.reason.endswith("000the cause")
    assert len(outcome.stderr) == 2_000


@pytest.mark.anyio
@pytest.mark.parametrize("argv", [("no-such-tool",), ("/no/such/tool",), (), ("",), ("sh", "\0")])
async def test_a_tool_that_cannot_be_started_aborts(argv: tuple[str, ...]) -> None:
    outcome = await run_inject(InjectSpec(argv=argv, label="x"), cwd="/", env=ENV)
    assert (outcome.kind, outcome.code) == ("abort", "inject-not-startable")
    assert (outcome.exit_code, outcome.stderr) == (None, "")
    assert outcome.reason.startswith("could not be started: ")


@pytest.mark.anyio
async def test_a_tool_has_no_standard_input() -> None:
    outcome = await shell("cat; echo end")
    assert outcome.text == "end\n"


@pytest.mark.anyio
async def test_the_tool_runs_in_the_folder_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("#!/bin/sh\npwd -P\n")
    (tmp_path / "state").chmod(0o755)
    outcome = await run_inject(InjectSpec(argv=("./state",), label="x"), cwd=tmp_path, env=ENV)
    assert outcome.text == f"{tmp_path.resolve()}\n"


@pytest.mark.anyio
async def test_without_an_environment_it_is_this_process_s_own_less_the_doors_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPEN", "seen")
    monkeypatch.setenv("AGENT_API_SECRET", "hidden")
    spec = InjectSpec(argv=("sh", "-c", "echo $OPEN$AGENT_API_SECRET"), label="x")
    assert (await run_inject(spec, cwd="/")).text == "seen\n"


@pytest.mark.slow
@pytest.mark.anyio
async def test_cancellation_passes_through_and_leaves_no_child(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(shell, "echo $$ > partial; mv partial pid; exec sleep 600", tmp_path)
            while not (tmp_path / "pid").exists():
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert group.cancel_scope.cancel_called
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
