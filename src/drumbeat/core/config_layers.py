"""The layers of agent configuration around an automation's own block, and what they add up to."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import attrs

from drumbeat.core.agent_config import (
    AgentConfigLayer,
    credential_problem,
    is_credential_key,
    null_problem,
    read_agent_config,
    read_agent_config_block,
)
from drumbeat.core.fields import FieldReader
from drumbeat.core.frontmatter import Document, read_yaml
from drumbeat.core.messages import did_you_mean, quoted
from drumbeat.core.model import Automation, Json
from drumbeat.core.nodes import Entry, MapNode
from drumbeat.core.problem_order import in_file_order
from drumbeat.core.typed_values import is_null
from drumbeat.core.vocabulary import AGENT_CONFIG_KEYS, WRITE_AGENT_CONFIG, Key, Level
from drumbeat.errors import AutomationError, NotFound, Problem, WorkspaceError

__all__ = [
    "CONFIG_FILE",
    "ConfigLayers",
    "WorkspaceConfig",
    "config_hash",
    "merge_config",
    "provider_of",
    "read_operator_config",
    "read_workspace_config",
]

CONFIG_FILE = Level(
    name="`agent-config.yaml`",
    keys=(
        Key(
            name="default",
            form="agent-config",
            meaning="what every turn is given, below the automation's own block",
            remedy=f"{WRITE_AGENT_CONFIG} indented below it",
            default="{}",
        ),
        Key(
            name="profiles",
            form="mapping",
            meaning="by name, further layers for turns that somebody asks for by that name",
            remedy="write the name of a profile indented below it, and its settings below that",
            default="{}",
        ),
    ),
)
"""The keys of the workspace's `agent-config.yaml` (spec, section 8)."""


# ---- what layers add up to


def merge_config(*layers: Json) -> dict[str, Any]:
    """Merge layers of configuration; the later one wins.

    Two mappings are merged key by key, at any depth; everything else, a list too, replaces what
    the lower layers say as a whole (spec, section 8).

    Args:
        layers: lowest precedence first.

    Returns:
        A mapping that shares nothing with the layers: neither this call nor whoever changes the
        result changes them.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            below = merged.get(name)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                merged[name] = merge_config(below, value)
            else:
                merged[name] = _copied(value)
    return merged


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return merge_config(value)
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


def config_hash(config: Json) -> str:
    """Name a resolved configuration: equal for equal ones, whatever the order of their keys.

    Returns:
        `1:` and the SHA-256, in hexadecimal, of the configuration as JSON with sorted keys, in
        ASCII, without spaces. The number stands for this form.

    Raises:
        TypeError: a value is none of JSON's.
        ValueError: a number is infinite or none.
    """
    text = json.dumps(merge_config(config), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"1:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def provider_of(config: Json) -> str | None:
    """The provider module that a resolved configuration names: `provider.module`.

    None where it names none, which stands for the agent's own default: `provider` is missing or no
    mapping, or its `module` is missing, blank or no text.
    """
    provider = config.get("provider")
    module = provider.get("module") if isinstance(provider, Mapping) else None
    return module if isinstance(module, str) and module.strip() else None


@attrs.frozen(kw_only=True)
class ConfigLayers:
    """What stands around the automations' own blocks, as it was last read."""

    operator: Json = attrs.field(factory=dict[str, Any])
    """The file that `$AMPLIFIER_AGENT_CONFIG` names; empty where it is not set."""
    default: Json = attrs.field(factory=dict[str, Any])
    """`default:` of the workspace's `agent-config.yaml`."""
    profiles: Mapping[str, Json] = attrs.field(factory=dict[str, Json])
    """`profiles:` of the same file, by name."""

    def resolve(self, automation: Automation | None, profile: str | None = None) -> dict[str, Any]:
        """The configuration of a turn: operator < `default:` < the automation's block < profile.

        A profile wins over the file: somebody names it for this one turn, and a setting that a
        file could override would be asked for and do nothing.

        Args:
            automation: whose turn it is; None for one that belongs to none, such as a question.
            profile: for replies and questions only. A run never has one.

        Raises:
            NotFound: there is no such profile (`profile-unknown`).
        """
        block = {} if automation is None else automation.agent_config
        return merge_config(self.operator, self.default, block, self._profile(profile))

    def _profile(self, name: str | None) -> Json:
        if name is None:
            return {}
        if name in self.profiles:
            return self.profiles[name]
        known = ", ".join(map(quoted, self.profiles))
        raise NotFound(
            Problem(
                code="profile-unknown",
                message=f"there is no profile {quoted(name)}{did_you_mean(name, self.profiles)}",
                remedy=f"name one of {known}"
                if known
                else "write it below `profiles:` in agent-config.yaml, or ask without one",
            )
        )


# ---- the files


@attrs.frozen(kw_only=True)
class WorkspaceConfig:
    """What `agent-config.yaml` says."""

    default: Json = attrs.field(factory=dict[str, Any])
    profiles: Mapping[str, Json] = attrs.field(factory=dict[str, Json])


def read_operator_config(content: str | bytes, *, path: PurePath | None = None) -> dict[str, Any]:
    """Read the file that `$AMPLIFIER_AGENT_CONFIG` names; JSON is read as the YAML that it is.

    The whole document is one layer: what an automation writes below `agent_config:` stands at its
    top. The rules are those of `read_agent_config`.

    Args:
        content: the file, as text or as UTF-8 bytes.
        path: the file, for the problems' locations.

    Raises:
        WorkspaceError: all problems of the file.
    """
    document = _document(
        content,
        path,
        f"{WRITE_AGENT_CONFIG} as keys, or unset AMPLIFIER_AGENT_CONFIG",
    )
    layer = read_agent_config_block(document.root, path=path)
    wrapped: dict[tuple[int | None, int | None], str] = {
        (entry.key.line, entry.key.column): entry.name
        for entry in document.root
        if entry.name in (*CONFIG_FILE.names, "agent_config")
    }
    problems = (
        _unwrap(each, wrapped[each.line, each.column])
        if (each.line, each.column) in wrapped
        else each
        for each in layer.problems
    )
    _refuse(document, problems)
    return layer.values


def _unwrap(problem: Problem, name: str) -> Problem:
    if name == "profiles":
        remedy = "move it into the workspace's agent-config.yaml: this file is one layer as a whole"
    else:
        remedy = f"take `{name}:` out and write what stands below it at the left margin"
    message = f"`{name}` has no place in the file that AMPLIFIER_AGENT_CONFIG names"
    return attrs.evolve(problem, code="misplaced-key", message=message, remedy=remedy)


def read_workspace_config(content: str | bytes, *, path: PurePath | None = None) -> WorkspaceConfig:
    """Read the workspace's `agent-config.yaml`: `default:`, `profiles:`, both optional.

    Each of them, and each profile, is a layer under the rules of `read_agent_config`.

    Args:
        content: the file, as text or as UTF-8 bytes.
        path: the file, for the problems' locations.

    Raises:
        WorkspaceError: all problems of the file.
    """
    document = _document(
        content,
        path,
        "write `default:` or `profiles:` with settings indented below it; without any, delete the "
        "file",
    )
    reader = _WorkspaceConfigReader(path)
    config = reader.config(document.root)
    _refuse(document, reader.problems)
    return config


def _document(content: str | bytes, path: PurePath | None, remedy: str) -> Document:
    remedies = {
        "yaml-not-a-mapping": remedy,
        "file-too-large": "keep settings only: the file is read whole, again and again",
    }
    try:
        return read_yaml(content, path=path)
    except AutomationError as error:
        raise WorkspaceError(
            [
                attrs.evolve(each, remedy=remedies.get(each.code, each.remedy))
                for each in error.problems
            ]
        ) from error


def _refuse(document: Document, meant: Iterable[Problem]) -> None:
    problems = in_file_order(document.problems, meant)
    if problems:
        raise WorkspaceError(problems)


class _WorkspaceConfigReader(FieldReader):
    def config(self, root: MapNode) -> WorkspaceConfig:
        self.names(root, CONFIG_FILE)
        default = self.read(root, CONFIG_FILE, "default", self._default)
        profiles = self.read(root, CONFIG_FILE, "profiles", self._profiles)
        return WorkspaceConfig(default=default or {}, profiles=profiles or {})

    def _default(self, entry: Entry, _key: Key) -> dict[str, Any]:
        return self._layer(read_agent_config(entry, path=self.path, inside=("default",)))

    def _profiles(self, entry: Entry, key: Key) -> dict[str, Json] | None:
        if is_null(entry.value):
            self.problems.append(null_problem(entry, ("profiles",), path=self.path))
            return None
        profiles = self.mapping(entry, key)
        if profiles is None:
            return None
        read: dict[str, Json] = {}
        for each in profiles:
            where = ("profiles", each.name)
            if is_credential_key(each.name):
                self.problems.append(credential_problem(each, where, path=self.path))
            else:
                read[each.name] = self._layer(read_agent_config(each, path=self.path, inside=where))
        return read

    def _layer(self, layer: AgentConfigLayer) -> dict[str, Any]:
        self.problems.extend(layer.problems)
        return layer.values

    def unknown(self, entry: Entry, level: Level) -> None:
        """Report a key beside `default:` and `profiles:`, with where it belongs if anywhere."""
        if is_credential_key(entry.name):
            self.problems.append(credential_problem(entry, (entry.name,), path=self.path))
        elif entry.name in AGENT_CONFIG_KEYS:
            self.report(
                "misplaced-key",
                f"`{entry.name}` stands beside `default:`, not below it",
                "indent it below `default:`, or below a name in `profiles:`",
                entry.key,
            )
        else:
            super().unknown(entry, level)
