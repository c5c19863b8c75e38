"""What `import drumbeat` costs, as a multiple of importing its own core dependencies."""

import re
import statistics
import subprocess
import sys
from importlib.metadata import requires

ROUNDS = 15
LIMIT = 1.5

TIMED = """
import importlib, time
started = time.perf_counter()
for name in {names!r}:
    importlib.import_module(name)
print(time.perf_counter() - started)
"""


def core_dependencies() -> list[str]:
    """The modules of what the package requires without any extra."""
    lines = [line for line in requires("drumbeat") or [] if "extra ==" not in line]
    return [re.split(r"[^A-Za-z0-9_.-]", line)[0] for line in lines]


def cost(names: list[str]) -> float:
    """Seconds that a fresh interpreter takes to import `names`."""
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(names=names)],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def main() -> None:
    """Measure both in turn, so that a noisy machine is noisy for both, and print the ratio."""
    dependencies = core_dependencies()
    cost(["drumbeat", *dependencies])  # compiles what was not compiled
    pairs = [(cost(["drumbeat"]), cost(dependencies)) for _ in range(ROUNDS)]
    ours = statistics.median(pair[0] for pair in pairs)
    theirs = statistics.median(pair[1] for pair in pairs)
    verdict = "within" if ours / theirs <= LIMIT else "OVER"
    print(f"core dependencies  {theirs * 1000:7.1f} ms  ({', '.join(dependencies)})")
    print(f"import drumbeat    {ours * 1000:7.1f} ms")
    print(f"ratio              {ours / theirs:7.2f}     {verdict} the limit of {LIMIT}")


if __name__ == "__main__":
    main()
