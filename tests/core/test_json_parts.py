"""How many lists and objects a JSON text has."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.json_parts import has_more_parts

PARTS = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab[]{}",\\é\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a[{"\\'), inner),
    max_leaves=20,
)


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 0


@given(PARTS, st.booleans())
def test_they_are_counted_as_whoever_reads_them_would(value: Any, ascii: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii).encode()
    parts = count(value)
    assert not has_more_parts(body, parts)
    assert parts == 0 or has_more_parts(body, parts - 1)


@pytest.mark.parametrize(
    "body, more",
    [
        (b"", False),
        (b'"[[[[', False),
        (b'"\\"[[[["', False),
        (b'"\\\\"[[[[', True),
        (b"[[[[", True),
        (b'["[[[[", []]', False),
        (b'["\xff[[[[", [', False),
        (b'"[[[[\\', False),
    ],
)
def test_what_is_no_json_is_counted_up_to_its_end(body: bytes, more: bool) -> None:
    assert has_more_parts(body, 3) is more
