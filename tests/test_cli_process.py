"""`drumbeat` as a process of its own: signals, pipes, a missing extra, what an import costs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import anyio
import pytest

import drumbeat
from drumbeat import Client, RunRecord

pytest.importorskip("click")
pytest.importorskip("rich")

AUTOMATION = """\
---
automation:
  name: Waiting
  trigger: {type: manual}
  notify: always
  steps:
    - id: wait
      prompt: Wait.
---
"""
HOST = """\
import anyio
from drumbeat import Reply

def wait_for_the_test():
    with open("gate") as gate:  # a named pipe: read to its end once the test has closed it
        gate.read()

class Waiting:
    async def take_turn(self, turn):
        await anyio.to_thread.run_sync(wait_for_the_test)
        return Reply(text="It was worth the wait.")

class Endless:
    async def take_turn(self, turn):
        open("gate", "w").close()  # once the test looks for it
        await anyio.sleep_forever()
"""
CALL = [sys.executable, "-m", "drumbeat.cli"]
ENV = os.environ | {"PYTHONPATH": str(Path(drumbeat.__file__).parent.parent)}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace of one automation, with a host beside it."""
    folder = tmp_path / "ws"
    (folder / "automations").mkdir(parents=True)
    (folder / "automations/waiting.md").write_text(AUTOMATION)
    (tmp_path / "proc_host.py").write_text(HOST)
    return folder


@contextmanager
def serving(workspace: Path) -> Iterator[subprocess.Popen[str]]:
    """`drumbeat serve`, past its start; its turns end when the pipe `gate` is closed."""
    os.mkfifo(workspace.parent / "gate")
    with subprocess.Popen(
        [*CALL, "serve", "--agent", "proc_host:Waiting", "--workspace", "ws"],
        cwd=workspace.parent,
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            read_until(process.stderr, "serving")
            yield process
        finally:
            process.kill()


def read_until(stream: IO[str], words: str) -> str:
    """The first line that holds `words`; the end of the stream is a failure."""
    for line in stream:
        if words in line:
            return line
    pytest.fail(f"the process ended without saying {words!r}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_serve_and_ends_it_well(workspace: Path, number: signal.Signals) -> None:
    """Both signals end the process with 0 and say what is going on."""
    with serving(workspace) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert f"{number.name}: draining" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_serve_says_which_webhooks_nobody_hears(workspace: Path) -> None:
    """A job that waits for an event which no door of this process lets in is not kept quiet."""
    (workspace / "jobs").mkdir()
    (workspace / "jobs/deployed.md").write_text("---\nwebhook: deployed\n---\nLook.\n")
    with serving(workspace) as process:
        assert process.stderr is not None
        assert "deployed: its webhook is not served" in read_until(process.stderr, "webhook")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.slow
def test_a_standby_says_so_until_it_takes_over(workspace: Path) -> None:
    with (
        serving(workspace) as holder,
        subprocess.Popen(
            [*CALL, "serve", "--agent", "proc_host:Waiting", "--workspace", "ws", "--standby"],
            cwd=workspace.parent,
            env=ENV,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as standby,
    ):
        try:
            assert standby.stderr is not None
            begun = read_until(standby.stderr, "standing by")
            assert f"standing by behind process {holder.pid} on " in begun
            assert "serving" not in begun
            holder.send_signal(signal.SIGTERM)
            read_until(standby.stderr, "serving; ")
        finally:
            standby.terminate()
            standby.communicate(timeout=60)


async def ask_for_a_run(workspace: Path) -> None:
    async with Client(workspace) as client:
        await client.fire("waiting")


async def the_run(workspace: Path) -> RunRecord:
    async with Client(workspace) as client:
        (record,) = await client.runs()
        return record


@pytest.mark.slow
def test_a_running_turn_ends_before_serve_does(workspace: Path) -> None:
    """SIGTERM starts nothing more, and loses nothing of what is going."""
    anyio.run(ask_for_a_run, workspace)
    with serving(workspace) as process:
        assert process.stderr is not None
        with (workspace.parent / "gate").open("w"):  # opens once the turn reads
            process.send_signal(signal.SIGTERM)
            read_until(process.stderr, "SIGTERM: draining")
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    record = anyio.run(the_run, workspace)
    assert record.state == "succeeded"
    assert record.intent is not None
    assert record.intent.text == "It was worth the wait."


@pytest.mark.slow
def test_serve_delivers_a_line_to_standard_output(workspace: Path) -> None:
    """In a pipe, each message is a JSON object on a line."""
    anyio.run(ask_for_a_run, workspace)
    with serving(workspace) as process:
        assert process.stdout is not None
        with (workspace.parent / "gate").open("w"):
            pass
        message = json.loads(process.stdout.readline())
    assert message["text"] == "It was worth the wait."
    assert message["gate"] == "policy-always"


@pytest.mark.slow
def test_a_second_signal_ends_serve_at_once(workspace: Path) -> None:
    """A turn that takes its time holds nobody who insists."""
    anyio.run(ask_for_a_run, workspace)
    with serving(workspace) as process:
        assert process.stderr is not None
        with (workspace.parent / "gate").open("w"):
            process.send_signal(signal.SIGTERM)
            read_until(process.stderr, "SIGTERM: draining")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == -signal.SIGTERM


@pytest.mark.slow
def test_ctrl_c_ends_a_run_and_leaves_a_record(workspace: Path) -> None:
    """Whoever stops `run` finds the run settled as interrupted, not lost."""
    os.mkfifo(workspace.parent / "gate")
    with subprocess.Popen(
        [*CALL, "run", "waiting", "--agent", "proc_host:Endless", "--workspace", "ws"],
        cwd=workspace.parent,
        env=ENV,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        (workspace.parent / "gate").read_text()  # opens once the turn is going
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in errors
    run = anyio.run(the_run, workspace)
    assert (run.state, run.delivery) == ("interrupted", "pending")
    assert f"{run.run_id} of waiting is recorded as interrupted" in errors
    assert "its message waits for the next engine that has a deliverer, as serve has" in errors


@pytest.mark.slow
def test_a_second_engine_is_refused_naming_the_holder(workspace: Path) -> None:
    """`run` beside `serve` on one data folder ends with 1 and a message."""
    with serving(workspace) as process:
        ended = subprocess.run(
            [*CALL, "run", "waiting", "--agent", "proc_host:Waiting", "--workspace", "ws"],
            cwd=workspace.parent,
            env=ENV,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert ended.returncode == 1
    assert str(process.pid) in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_output_goes_into_a_pipe_of_narrow_encoding(tmp_path: Path) -> None:
    """A character that the pipe cannot carry is escaped, not an error."""
    (tmp_path / "automations").mkdir()
    (tmp_path / "automations/a.md").write_text(AUTOMATION.replace("notify", "nötify"))
    ended = subprocess.run(
        [*CALL, "validate"],
        cwd=tmp_path,
        env=ENV | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1, ended.stderr
    assert "n\\xf6tify" in ended.stdout


def python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_the_remedy_is_named(missing: str) -> None:
    """No traceback: what to install, and exit code 2."""
    ended = python(
        f"import sys; sys.modules[{missing!r}] = None; from drumbeat.cli import main; main(['-h'])"
    )
    assert ended.returncode == 2
    assert "pip install '.[cli]'" in ended.stderr
    assert f"needs {missing}," in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra, library, broken",
    [
        ("web", "starlette", "drumbeat.web.doors"),
        ("imap", "imapclient", "drumbeat.imap.folder"),
    ],
)
def test_an_edge_without_its_extra_names_the_remedy(extra: str, library: str, broken: str) -> None:
    """It is the import's own error, with what to install; other modules stay what they are."""
    ended = python(f"import sys; sys.modules[{library!r}] = None; import drumbeat.{extra}")
    (*_, last) = ended.stderr.splitlines()
    assert last == (
        f"ModuleNotFoundError: drumbeat.{extra} needs {library}, which is not installed; "
        f"in a clone of the repository: pip install '.[{extra}]'"
    )
    ended = python(f"import sys; sys.modules[{broken!r}] = None; import drumbeat.{extra}")
    assert f"ModuleNotFoundError: import of {broken} halted" in ended.stderr
    assert "pip install" not in ended.stderr


def test_another_missing_module_is_not_taken_for_the_extra() -> None:
    """A broken installation shows itself."""
    ended = python(
        "import sys; sys.modules['drumbeat.cli.scaffold'] = None\n"
        "from drumbeat.cli import main; main()"
    )
    assert ended.returncode == 1
    assert "ModuleNotFoundError: import of drumbeat.cli.scaffold" in ended.stderr
    assert "pip install" not in ended.stderr


@pytest.mark.slow
def test_drumbeat_works_without_the_extra() -> None:
    """Hosts that embed the library need nothing of the command line."""
    ended = python(
        "import sys; sys.modules['click'] = sys.modules['rich'] = None\n"
        "import drumbeat, drumbeat.agents, drumbeat.deliverers, drumbeat.testing\n"
        "print('drumbeat.cli' in sys.modules)"
    )
    assert (ended.returncode, ended.stdout) == (0, "False\n"), ended.stderr
