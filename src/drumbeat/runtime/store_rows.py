"""Values to text and back: the one converter of the store.

Every record carries the version of its form, so that a record outlives the release that wrote it:
a field that the record lacks takes its default, and a form that is not known is refused.
"""

import json
import re
from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import PurePath
from typing import Any, Final, TypeVar

import attrs
from cattrs import BaseValidationError, Converter

from drumbeat.errors import Problem, StoreError

__all__ = [
    "RECORD_VERSION",
    "decode",
    "decode_value",
    "encode",
    "encode_value",
    "instant",
    "storable",
]

T = TypeVar("T", bound=attrs.AttrsInstance)

RECORD_VERSION: Final = 1
"""The version of the form that `encode` writes."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    r"""Return `text` as UTF-8 can write it: a lone surrogate becomes its escape, `\udc80`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def instant(at: datetime) -> str:
    """Return `at` in UTC with a fixed width, so that the order of texts is the order of instants.

    Raises:
        ValueError: `at` is naive.
    """
    if at.utcoffset() is None:
        msg = f"an instant needs a time zone, and {at.isoformat()} has none"
        raise ValueError(msg)
    return at.astimezone(UTC).isoformat(timespec="microseconds")


@cache
def _converter() -> Converter:
    converter = Converter(prefer_attrib_converters=False, forbid_extra_keys=False)
    # Registered before `datetime`, which is a `date`: the more exact class wins on the way out.
    converter.register_unstructure_hook(date, date.isoformat)
    converter.register_structure_hook(date, lambda text, _: date.fromisoformat(text))
    converter.register_unstructure_hook(datetime, instant)
    converter.register_structure_hook(datetime, lambda text, _: datetime.fromisoformat(text))
    converter.register_unstructure_hook(timedelta, timedelta.total_seconds)
    converter.register_structure_hook(timedelta, lambda seconds, _: timedelta(seconds=seconds))
    converter.register_unstructure_hook(Decimal, str)
    converter.register_structure_hook(Decimal, lambda text, _: Decimal(text))
    converter.register_unstructure_hook(PurePath, str)
    converter.register_structure_hook(PurePath, lambda text, _: PurePath(text))
    return converter


def _dump(raw: dict[str, Any]) -> str:
    text = json.dumps(
        {"record_version": RECORD_VERSION, **raw}, ensure_ascii=False, separators=(",", ":")
    )
    # Inside a JSON string the backslash of the escape needs one of its own.
    return _SURROGATE.sub(lambda found: f"\\\\u{ord(found.group()):04x}", text)


def _load(text: str, where: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
        version = raw["record_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(where) from error
    if version != RECORD_VERSION:
        raise StoreError(
            Problem(
                code="store-newer",
                message=f"the store holds {where} in the form {version}, "
                f"and this drumbeat knows the form {RECORD_VERSION}",
                remedy="use the drumbeat release that wrote it, or a later one",
            )
        )
    return dict(raw)


def _damaged(where: str) -> StoreError:
    return StoreError(
        Problem(
            code="store-damaged",
            message=f"the store holds {where} that cannot be read",
            remedy="stop the engine, keep the file, and put a backup of it in its place",
        )
    )


def encode(value: attrs.AttrsInstance, *, without: Collection[str] = ()) -> str:
    """Return the JSON of `value`, except the fields that stand in columns of their own.

    Raises:
        TypeError: something inside is not JSON, nor an instant, duration, path or `Decimal`.
        ValueError: an instant inside is naive.
    """
    raw = _converter().unstructure(value)
    return _dump({name: part for name, part in raw.items() if name not in without})


def decode(kind: type[T], text: str, where: str, /, **given: Any) -> T:
    """Return the value that `encode` wrote, with the fields `given` from their columns.

    Args:
        kind: the class of the value.
        text: what `encode` returned.
        where: what the record is, for the message of an error.
        given: fields that are not in the record.

    Raises:
        StoreError: `store-damaged`, the record is no such value; `store-newer`, its form is not
            known.
    """
    raw = _load(text, where)
    try:
        for field in attrs.fields(kind):
            if field.name not in given and field.name in raw:
                given[field.name] = _converter().structure(raw[field.name], field.type)
        return kind(**given)
    except (BaseValidationError, ValueError, TypeError, ArithmeticError) as error:
        raise _damaged(where) from error


def encode_value(value: Any) -> str:
    """Return the JSON of a bare value, in the same versioned form.

    Raises:
        TypeError: it is not JSON, nor an instant, duration, path or `Decimal`.
    """
    return _dump({"value": _converter().unstructure(value)})


def decode_value(text: str, where: str) -> Any:
    """Return what `encode_value` wrote, as JSON has it.

    Raises:
        StoreError: as `decode`.
    """
    raw = _load(text, where)
    if "value" not in raw:
        raise _damaged(where)
    return raw["value"]
