"""What importing drumbeat costs, as a multiple of importing its own core dependencies."""

import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import requires

ROUNDS = 15
LIMIT = 1.5

TIMED = """
import time
started = time.perf_counter()
{code}
print(time.perf_counter() - started)
"""
ENGINE = "from drumbeat import Engine"


def core_dependencies() -> list[str]:
    """The modules of what the package requires without any extra."""
    lines = [line for line in requires("drumbeat") or [] if "extra ==" not in line]
    return [re.split(r"[^A-Za-z0-9_.-]", line)[0] for line in lines]


def cost(code: str, env: dict[str, str]) -> float:
    """Seconds that a fresh interpreter takes for an import."""
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(code=code)],
        check=True,
        capture_output=True,
        text=True,
        env=env,
    )
    return float(done.stdout)


def main() -> None:
    """Measure all in turn, so that a noisy machine is noisy for all, and print the ratios."""
    dependencies = core_dependencies()
    imports = {
        "core dependencies": f"import {', '.join(dependencies)}",
        "import drumbeat": "import drumbeat",
        ENGINE: ENGINE,
    }
    with tempfile.TemporaryDirectory() as compiled:
        # Of a checkout nothing may be compiled, or kept: what is installed is.
        env = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for code in imports.values():
            cost(code, env)
        rounds = [{name: cost(code, env) for name, code in imports.items()} for _ in range(ROUNDS)]
    # The least is what the work takes; whatever lies above it is the machine's.
    least = {name: min(times[name] for times in rounds) for name in imports}
    theirs = least["core dependencies"]
    print(f"core dependencies: {', '.join(dependencies)}")
    for name, seconds in least.items():
        print(f"{name:28} {seconds * 1000:7.1f} ms  {seconds / theirs:5.2f} times")
    verdict = "within" if least["import drumbeat"] / theirs <= LIMIT else "OVER"
    print(f"import drumbeat is {verdict} the limit of {LIMIT}")


if __name__ == "__main__":
    main()
