"""One layer of agent configuration: what may stand in it, and the values it stands for."""

import math
import re
import unicodedata
from pathlib import PurePath
from typing import Any

import attrs

from drumbeat.core.messages import did_you_mean, quoted, shown
from drumbeat.core.nodes import Entry, ListNode, MapNode, Node, ScalarNode, describe, problem_at
from drumbeat.core.typed_values import is_null, typed_value
from drumbeat.core.vocabulary import AGENT_CONFIG_KEYS, WRITE_AGENT_CONFIG
from drumbeat.errors import Problem

__all__ = [
    "AgentConfigLayer",
    "credential_problem",
    "is_credential_key",
    "null_problem",
    "read_agent_config",
    "read_agent_config_block",
]

_CREDENTIALS = ("apikey", "token", "secret", "authorization", "password")
_NOT_ALNUM = re.compile(r"[^a-z0-9]")


@attrs.frozen(kw_only=True)
class AgentConfigLayer:
    """What one layer says, as plain values fit for JSON, and everything that refuses it.

    `values` leaves out what was refused, so it is only fit for use when `problems` is empty.
    """

    values: dict[str, Any]
    problems: tuple[Problem, ...]


def is_credential_key(key: str) -> bool:
    """Whether a key names a credential: `api_key`, `token`, `secret`, `authorization`, `password`.

    Case and separators do not count, and a key that ends in one of these counts too, such as
    `access_token` or `clientSecret`; `max_tokens` does not (spec, section 8).
    """
    folded = _NOT_ALNUM.sub("", unicodedata.normalize("NFKC", key).casefold())
    return folded.endswith(_CREDENTIALS)


def read_agent_config(
    entry: Entry, *, path: PurePath | None = None, inside: tuple[str, ...] = ()
) -> AgentConfigLayer:
    """Read one layer that is the value of a key: an automation's block, the workspace's `default:`.

    The top keys are `AGENT_CONFIG_KEYS`. Unquoted texts are typed
    by the rules of YAML 1.2 (`true`, `1`, `1.5`, `null`), quoted ones and blocks are text. Refused
    at any depth, lists included: a null (an empty value and `~` too) and a key that names a
    credential, whose value is in no message.

    Args:
        entry: the key that the layer is the value of, such as `agent_config` or `default`.
        path: the file it stands in, for the problems' locations.
        inside: the keys that paths in messages begin with, where the layer's own place has to be
            told, such as `profiles` and a profile's name.
    """
    node = entry.value
    if isinstance(node, MapNode):
        return read_agent_config_block(node, path=path, inside=inside)
    if is_null(node):
        problem = null_problem(entry, inside or (entry.name,), path=path)
    else:
        problem = problem_at(
            node,
            "wrong-type",
            f"`{_dotted(inside or (entry.name,))}` takes a mapping, and this is {describe(node)}",
            f"{WRITE_AGENT_CONFIG} as keys, indented below it",
            path=path,
        )
    return AgentConfigLayer(values={}, problems=(problem,))


def read_agent_config_block(
    block: MapNode, *, path: PurePath | None = None, inside: tuple[str, ...] = ()
) -> AgentConfigLayer:
    """Read one layer that is a mapping by itself, as `read_agent_config` does: a whole file."""
    reader = _Reader(path)
    values: dict[str, Any] = {}
    for entry in block:
        reader.top(entry, inside, values)
    return AgentConfigLayer(values=values, problems=tuple(reader.problems))


def credential_problem(
    entry: Entry, where: tuple[str, ...], *, path: PurePath | None = None
) -> Problem:
    """Refuse a key that names a credential, at the key; its value is in no message."""
    return problem_at(
        entry.key,
        "agent-config-credential",
        f"`{_dotted(where)}` is a credential, and none may stand in a file",
        "take it out (and renew it, if it was real): credentials belong in the environment of the "
        "engine",
        path=path,
    )


def null_problem(
    entry: Entry | ScalarNode, where: tuple[str, ...], *, path: PurePath | None = None
) -> Problem:
    """Refuse a null: the value of a key, or an element of a list."""
    at: Node = entry.place if isinstance(entry, Entry) else entry
    node = entry.value if isinstance(entry, Entry) else entry
    comment = isinstance(node, ScalarNode) and node.comment_follows
    behind = ": what stands behind the # is a comment" if comment else ""
    return problem_at(
        at,
        "agent-config-null",
        f"`{_dotted(where)}` is null{behind}",
        "leave the key out to keep what a lower layer says; if it is text, put quotes around it",
        path=path,
    )


def _dotted(where: tuple[str, ...]) -> str:
    """A path of keys on one line, without anything secret: a key may be any text."""
    return shown(".".join(where), longest=200)


class _Reader:
    def __init__(self, path: PurePath | None) -> None:
        self.problems: list[Problem] = []
        self._path = path

    def top(self, entry: Entry, above: tuple[str, ...], into: dict[str, Any]) -> None:
        if entry.name in AGENT_CONFIG_KEYS or is_credential_key(entry.name):
            self._entry(entry, above, into)
        else:
            self._report(
                "agent-config-unknown-key",
                f"{quoted(entry.name)} is no part of an agent configuration"
                f"{did_you_mean(entry.name, AGENT_CONFIG_KEYS)}",
                f"{WRITE_AGENT_CONFIG}; other settings go below these",
                entry.key,
            )

    def _entry(self, entry: Entry, above: tuple[str, ...], into: dict[str, Any]) -> None:
        where = (*above, entry.name)
        if is_credential_key(entry.name):
            self.problems.append(credential_problem(entry, where, path=self._path))
        elif is_null(entry.value):
            self.problems.append(null_problem(entry, where, path=self._path))
        else:
            into[entry.name] = self._value(entry.value, where)

    def _value(self, node: Node, where: tuple[str, ...]) -> Any:
        if isinstance(node, MapNode):
            values: dict[str, Any] = {}
            for entry in node:
                self._entry(entry, where, values)
            return values
        if isinstance(node, ListNode):
            return [
                self._item(item, (*where[:-1], f"{where[-1]}[{index}]"))
                for index, item in enumerate(node.items)
            ]
        return self._scalar(node, where)

    def _item(self, node: Node, where: tuple[str, ...]) -> Any:
        if is_null(node):
            self.problems.append(null_problem(node, where, path=self._path))
            return None
        return self._value(node, where)

    def _scalar(self, node: ScalarNode, where: tuple[str, ...]) -> str | bool | int | float:
        value = typed_value(node)
        if isinstance(value, float) and not math.isfinite(value):
            self._report(
                "agent-config-number",
                f"`{_dotted(where)}` is a number that cannot be written as JSON",
                "write a finite number, or put quotes around it if it is text",
                node,
            )
        return value

    def _report(self, code: str, message: str, remedy: str, at: Node) -> None:
        self.problems.append(problem_at(at, code, message, remedy, path=self._path))
