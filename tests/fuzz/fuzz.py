"""Hands damaged texts to everything that reads what others wrote, and says what came of it.

Usage: fuzz.py [--inputs 100000] [--hostile 400] [--seed 1] [--only NAME] [--keep FOLDER]. Each
parser gets `--inputs` small damaged texts, then `--hostile` ones of 64 KB. An exception that is not
documented, or an answer that breaks the contract, is a violation. CPU time is measured against the
reading of one ordinary automation file in the same run: no input of 64 KB may take more than 50
times as long, and four times as much of the slowest no more than 8 times that. With `--keep`,
violations and the slowest input of each parser are written there. Prints a line for each parser,
and ends with 1 if there was a violation or anything took too long.
"""

import argparse
import gc
import random
import sys
import time
import traceback
import tracemalloc
from collections import Counter
from pathlib import Path

from mutation import STRANGE, Mutator
from parsers import PARSERS, ROOT, Parser

from drumbeat.core.automation_file import validate_automation_content

LARGE = 64 * 1024
BOUND = 50
"""Times an ordinary file."""
STEEPEST = 8
"""Times as long for four times as much: quadratic work takes 16."""
ORDINARY = ROOT / "examples" / "first-run" / "workspace" / "automations" / "inbox-check.md"


def violation(parser: Parser, content: str | bytes) -> str | None:
    """What is wrong with the answer to one input, None when nothing is."""
    try:
        parser.answer(content)
    except Exception as error:  # noqa: BLE001  what is not documented is what is looked for
        *_, last = traceback.extract_tb(error.__traceback__)
        said = str(error).encode("ascii", "backslashreplace").decode()[:120]
        return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {said}"
    return None


def hostile(parser: Parser, seed: int | str, size: int = LARGE) -> str:
    """64 KB, or `size`, of one or two words over and over, somewhere in an example."""
    chance = random.Random(seed)
    words = [*parser.words, *STRANGE, "a", "0", "aA1-", " a"]
    unit = chance.choice(words) + chance.choice(("", "", *words))
    example = chance.choice([*parser.examples, ""])
    behind = [at + 2 for at in range(len(example)) if example.startswith((": ", "\n"), at)]
    at = chance.choice([0, len(example), *behind])
    filling = unit * (max(size - len(example), 0) // len(unit))
    closing = chance.choice(("", chance.choice(words)))
    return example[:at] + filling + closing + example[at:]


def ordinary() -> float:
    """Seconds of CPU that the reading of an ordinary automation file takes."""
    text = ORDINARY.read_text()
    taken = []
    for _ in range(25):
        begin = time.process_time()
        validate_automation_content(text)
        taken.append(time.process_time() - begin)
    return sorted(taken)[len(taken) // 2]


def spent(parser: Parser, content: str | bytes) -> tuple[float, str | None]:
    begin = time.process_time()
    wrong = violation(parser, content)
    return time.process_time() - begin, wrong


def grown(parser: Parser, seed: str, taken: float) -> tuple[float, float]:
    """How much longer four times as much takes; and the MiB that 64 KB take at most."""
    tracemalloc.start()
    violation(parser, hostile(parser, seed))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    more = min(spent(parser, hostile(parser, seed, 4 * LARGE))[0] for _ in range(3))
    return more / max(taken, 0.005), peak / 1024**2


def main() -> int:
    """Do what the module says."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=100_000, help="for each parser")
    options.add_argument("--hostile", type=int, default=400, help="of 64 KB, for each parser")
    options.add_argument("--seed", default="1")
    options.add_argument("--only", action="append", default=[])
    options.add_argument("--keep", type=Path)
    asked = options.parse_args()
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    failed, total, began = False, 0, time.process_time()
    for parser in PARSERS:
        if asked.only and parser.name not in asked.only:
            continue
        found: Counter[str] = Counter()
        mutator = Mutator(f"{asked.seed} {parser.name}", parser.examples, parser.words)
        for _ in range(asked.inputs):
            content = mutator.either()
            wrong = violation(parser, content)
            if wrong is not None:
                if wrong not in found:
                    keep(asked.keep, f"{parser.name}-{len(found)}", content)
                found[wrong] += 1
        yardstick = ordinary() if asked.hostile else 1.0
        slowest, slow, which = 0.0, "", ""
        gc.collect()
        for number in range(asked.hostile):
            seed = f"{asked.seed} {parser.name} {number}"
            text = hostile(parser, seed)
            taken, wrong = spent(parser, text)
            if taken > max(slowest, BOUND * yardstick):
                taken = min(taken, spent(parser, text)[0])  # another look: the machine is shared
            if taken > slowest:
                slowest, slow, which = taken, text, seed
            if wrong is not None:
                if wrong not in found:
                    keep(asked.keep, f"{parser.name}-{len(found)}", text)
                found[wrong] += 1
        keep(asked.keep, f"slowest-{parser.name}", slow)
        total += asked.inputs + asked.hostile
        ratio = slowest / yardstick
        growth, peak = grown(parser, which, slowest) if which else (0.0, 0.0)
        failed = failed or bool(found) or ratio > BOUND or growth > STEEPEST
        print(
            f"{parser.name}: {asked.inputs} inputs and {asked.hostile} of 64 KB, "
            f"{sum(found.values())} violations; the slowest {slowest * 1000:.1f} ms, "
            f"{ratio:.1f} times an ordinary file of {yardstick * 1000:.1f} ms, with "
            f"{peak:.1f} MiB; 4 times as much of it takes {growth:.1f} times as long",
            flush=True,
        )
        for wrong, times in found.most_common(20):
            print(f"  {times} x {wrong}", flush=True)
    print(f"{total} inputs in {time.process_time() - began:.0f} s of CPU")
    return 1 if failed else 0


def keep(folder: Path | None, name: str, content: str | bytes) -> None:
    if folder is not None:
        raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        (folder / name).write_bytes(raw)


if __name__ == "__main__":
    sys.exit(main())
