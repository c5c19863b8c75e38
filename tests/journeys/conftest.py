"""What the journeys share: a workspace on disk, and an engine on a driven clock."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace."""
    folder = tmp_path / "workspace"
    (folder / "automations").mkdir(parents=True)
    return folder


@pytest.fixture
def write(workspace: Path) -> Callable[..., None]:
    """Write an automation file from its front matter's lines below `automation:`."""

    def write(slug: str, text: str) -> None:
        lines = "\n".join(f"  {line}" if line else "" for line in text.strip().splitlines())
        content = f"---\nautomation:\n{lines}\n---\nWhat it is for.\n"
        (workspace / "automations" / f"{slug}.md").write_text(content, encoding="utf-8")

    return write
