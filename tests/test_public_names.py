"""What a host imports from `drumbeat`."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import drumbeat

SOURCE = Path(drumbeat.__file__)


def test_every_public_name_can_be_had() -> None:
    """Each name of `__all__` loads, and only those and the version are offered."""
    for name in drumbeat.__all__:
        assert getattr(drumbeat, name) is not None
    assert set(drumbeat.__all__) <= set(dir(drumbeat))


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(drumbeat, "nonsense")  # noqa: B009  the point is the lookup by name


def test_the_three_lists_of_names_agree() -> None:
    """What type checkers read, what is offered and what is loaded are the same names."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    checked = {
        (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    loaded = {(room, name) for name, room in drumbeat._ROOM_OF.items()}
    assert checked == loaded
    assert {name for _, name in loaded} | {"__version__"} == set(drumbeat.__all__)


def test_importing_drumbeat_loads_no_room() -> None:
    """A program pays for what it asks for."""
    question = "import drumbeat, sys; print(*[m for m in sys.modules if m.startswith('drumbeat.')])"
    said = subprocess.run(
        [sys.executable, "-c", question], check=True, capture_output=True, text=True
    )
    assert said.stdout.split() == []
