"""docs/events.md explains every kind of event that is made, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MADE = re.compile(
    r'(?:\.event\(|\.note\(|Event\(\s*id=0,\s*at=[^,]+,\s*kind=|_settle\(intent, "\w+", )'
    r'\s*"([a-z_]+)"'
)
_CHOSEN = re.compile(r'kind="([a-z_]+)" if [^,\n]+ else "([a-z_]+)"')


def source() -> str:
    folders = (ROOT / "src" / "drumbeat" / "runtime", ROOT / "src" / "drumbeat")
    return "\n".join(
        path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("*.py")
    )


def made() -> set[str]:
    text = source()
    chosen = {kind for pair in _CHOSEN.findall(text) for kind in pair}
    return set(_MADE.findall(text)) | chosen


def explained() -> list[str]:
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)


def test_every_kind_that_is_made_is_explained() -> None:
    assert {"run_completed", "fire_added", "automation_resumed", "delivery_abandoned"} <= made()
    assert sorted(made() - set(explained())) == []


def test_every_kind_that_is_explained_is_made_once() -> None:
    assert sorted(set(explained()) - made()) == []
    assert len(explained()) == len(set(explained()))
