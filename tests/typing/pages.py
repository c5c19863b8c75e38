"""Writes the Python blocks of README and the documents into files, one for each page, for mypy.

The blocks of a page are one program, as in the tests that run them, and keep their lines.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def program(page: str) -> str:
    """What the Python blocks of a page come to, with empty lines for all else."""
    lines: list[str] = []
    inside = False
    for line in page.splitlines():
        begins, ends = line == "```python", line == "```"
        inside = (inside or begins) and not ends
        lines.append(line if inside and not begins else "")
    return "\n".join(lines).rstrip() + "\n"


def pages() -> Iterator[Path]:
    """README and all documents."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def write(folder: Path) -> int:
    """Write each page that has Python blocks, and say how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("page_*.py"):
        old.unlink()
    written = 0
    for page in pages():
        code = program(page.read_text(encoding="utf-8"))
        if code.strip():
            name = page.stem.replace("-", "_").lower()
            (folder / f"page_{name}.py").write_text(code, encoding="utf-8")
            written += 1
    return written


if __name__ == "__main__":
    if not write(Path(sys.argv[1])):
        sys.exit("no page has a Python block: is this the repository?")
