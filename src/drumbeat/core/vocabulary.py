"""Every key of both kinds of file: where it stands, what it takes, its default and its remedy.

The tables are the one place that knows the vocabulary. The readers of the files, the JSON schemas
for editors and the tables in the documentation all follow them.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import attrs

from drumbeat.core.messages import listed
from drumbeat.core.model import GuidanceDelivery, Kind, Lifecycle, Notify, RouteMethod
from drumbeat.core.slug import SLUG, SLUG_RULE

__all__ = [
    "AGENT_CONFIG_KEYS",
    "AUTH",
    "AUTH_FORMS",
    "AUTH_SCHEMES",
    "AUTOMATION",
    "FILE",
    "GUESSED",
    "INJECT",
    "JOB",
    "JOB_GUESSED",
    "JOB_INSTEAD",
    "JOB_KEYS",
    "REPO_REMEDY",
    "RETIRED",
    "STEP",
    "STEP_ID",
    "TRIGGER",
    "WRITE_AGENT_CONFIG",
    "Form",
    "Key",
    "Level",
    "json_schema",
]

Form: TypeAlias = Literal[
    "text",
    "boolean",
    "number",
    "choice",
    "texts",
    "text-or-texts",
    "mapping",
    "mappings",
    "agent-config",
]
"""What a key takes: one text, one word of a few, a list of texts, a mapping or a list of them."""

STEP_ID = "[a-z0-9]+(?:-[a-z0-9]+)*"
"""Lower-case letters, digits and single hyphens, as a regular expression."""

AGENT_CONFIG_KEYS = ("provider", "providers", "mcp", "skills", "debug")
"""What may stand directly in `agent_config` and in each layer below it (spec, section 8)."""

WRITE_AGENT_CONFIG = f"write {listed(AGENT_CONFIG_KEYS)}"
"""How the remedies about a layer of agent configuration begin."""

REPO_REMEDY = (
    "write an address such as `https://github.com/acme/product.git`, "
    "`git@github.com:acme/product.git` or `file:///srv/product.git`"
)
"""What to write for `repo:`."""

AUTH_SCHEMES = ("bearer", "basic", "github", "gitlab", "slack", "svix")
"""The ways of `auth` that take no variant; `hmac:<Header-Name>` is the one that does."""

AUTH_FORMS = (*AUTH_SCHEMES, "hmac:<Header-Name>")
"""Every way of `auth`, for people."""

AUTH = rf"(?:{'|'.join(AUTH_SCHEMES)}|hmac:[!#$%&'*+.^_`|~0-9A-Za-z-]{{1,100}})"
"""A way of `auth`, as a regular expression; header names are tokens (RFC 9110, section 5.6.2)."""


@attrs.frozen(kw_only=True)
class Key:
    """One key.

    `meaning` and `remedy` complete "`key`: …" for a reader who has never seen it; `default` is
    written as in the file, None where nothing stands in for a missing key. `level` describes the
    mapping, or each mapping of the list, that the key takes. `bounds` are the least and the
    greatest number that it may be.
    """

    name: str
    form: Form
    meaning: str
    remedy: str
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    level: "Level | None" = None
    nonempty: bool = False
    pattern: str | None = None
    bounds: tuple[int, int] = (1, 999_999_999)


@attrs.frozen(kw_only=True)
class Level:
    """One mapping of the file: what messages call it, and its keys."""

    name: str
    keys: tuple[Key, ...]

    def find(self, name: str) -> Key | None:
        """The key of that name, or None."""
        for key in self.keys:
            if key.name == name:
                return key
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """The keys' names, in the order of the table."""
        return tuple(key.name for key in self.keys)


TRIGGER = Level(
    name="`trigger`",
    keys=(
        Key(
            name="type",
            form="choice",
            meaning="what starts a run",
            remedy="write `type: schedule` or `type: manual`",
            required=True,
            choices=("schedule", "manual", "event"),
        ),
        Key(
            name="expression",
            form="text",
            meaning="when, for `type: schedule`, which needs it",
            remedy="write a schedule such as `expression: every 30 minutes`",
        ),
    ),
)

STEP = Level(
    name="a step",
    keys=(
        Key(
            name="id",
            form="text",
            meaning="the step's name in records, unique in its file",
            remedy="write lower-case letters, digits and single hyphens, such as `check-inbox`",
            required=True,
            pattern=STEP_ID,
        ),
        Key(
            name="prompt",
            form="text",
            meaning="all that the agent is told in this turn",
            remedy="write what the agent shall do, below `prompt: >-` if it is long",
            required=True,
        ),
        Key(
            name="label",
            form="text",
            meaning="a name for people",
            remedy="write a short name, or leave the key out",
        ),
    ),
)

INJECT = Level(
    name="an `inject` entry",
    keys=(
        Key(
            name="argv",
            form="texts",
            meaning="the tool and its arguments",
            remedy='write a list such as `argv: ["items-cli", "state"]`',
            required=True,
            nonempty=True,
        ),
        Key(
            name="label",
            form="text",
            meaning="what the agent is told this is",
            remedy="write a short name such as `label: open items`",
            required=True,
        ),
    ),
)

AUTOMATION = Level(
    name="`automation`",
    keys=(
        Key(
            name="name",
            form="text",
            meaning="what people call it, in reports and notifications",
            remedy="write a name such as `name: Email check`",
            required=True,
        ),
        Key(
            name="enabled",
            form="boolean",
            meaning="whether its trigger counts; a disabled one is listed and runs by hand only",
            remedy="write `enabled: true` or `enabled: false`, without quotes",
            default="true",
        ),
        Key(
            name="trigger",
            form="mapping",
            meaning="what starts a run",
            remedy="write `type:` and, for a schedule, `expression:` indented below `trigger:`",
            required=True,
            level=TRIGGER,
        ),
        Key(
            name="steps",
            form="mappings",
            meaning="the turns of a run, in order",
            remedy="write a list of steps, each with `id:` and `prompt:`",
            required=True,
            level=STEP,
            nonempty=True,
        ),
        Key(
            name="notify",
            form="choice",
            meaning="who hears about a run",
            remedy=f"write {listed(get_args(Notify))}",
            default="auto",
            choices=get_args(Notify),
        ),
        Key(
            name="requires",
            form="texts",
            meaning="tools and files without which no run begins",
            remedy="write a list of tool names and workspace-relative paths",
            default="[]",
        ),
        Key(
            name="inject",
            form="mappings",
            meaning="tools whose output the agent reads before the first step",
            remedy="write a list of entries, each with `argv:` and `label:`",
            default="[]",
            level=INJECT,
        ),
        Key(
            name="conversation",
            form="choice",
            meaning="which conversation a run continues",
            remedy=f"write {listed(get_args(Lifecycle))}",
            default="continuous",
            choices=get_args(Lifecycle),
        ),
        Key(
            name="guidance_delivery",
            form="choice",
            meaning="how required files reach the agent",
            remedy=f"write {listed(get_args(GuidanceDelivery))}",
            default="reference",
            choices=get_args(GuidanceDelivery),
        ),
        Key(
            name="agent_config",
            form="agent-config",
            meaning="settings of the agent, for this automation's turns only",
            remedy=f"{WRITE_AGENT_CONFIG} indented below it",
            default="{}",
        ),
    ),
)

FILE = Level(
    name="the front matter",
    keys=(
        Key(
            name="automation",
            form="mapping",
            meaning="everything drumbeat reads",
            remedy="write `automation:` and indent the other keys below it",
            required=True,
            level=AUTOMATION,
        ),
    ),
)

JOB = Level(
    name="the front matter of a job",
    keys=(
        Key(
            name="cron",
            form="text",
            meaning="when it runs: five cron fields, in the zone of jobs",
            remedy='write five fields in quotes, such as `cron: "0 7 * * 1-5"`',
        ),
        Key(
            name="webhook",
            form="text",
            meaning="the route at which another system's event starts a run",
            remedy=f"write a name such as `webhook: deploy-check`: {SLUG_RULE}",
            pattern=SLUG,
        ),
        Key(
            name="auth",
            form="text",
            meaning="how the sender of an event proves who it is",
            remedy=f"write {listed(AUTH_FORMS)}",
            default="bearer",
            pattern=AUTH,
        ),
        Key(
            name="filter",
            form="text",
            meaning="which events start a run",
            remedy='write comparisons such as `filter: "action==opened && draft==false"`',
        ),
        Key(
            name="method",
            form="choice",
            meaning="the HTTP method of the route",
            remedy=f"write {listed(get_args(RouteMethod))}",
            default="post",
            choices=get_args(RouteMethod),
        ),
        Key(
            name="inbox",
            form="text",
            meaning="the mail system and the address at which mail starts a run",
            remedy="write the system, a colon and the address, such as `inbox: gmail:crm@acme.com`",
            pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]*:[^\s@:]+@[^\s@:]+",
        ),
        Key(
            name="allowFrom",
            form="text-or-texts",
            meaning="whose mail starts a run: addresses, and domains with an @ before them",
            remedy='list addresses or domains, such as `allowFrom: "you@acme.com, @acme.com"`',
            nonempty=True,
        ),
        Key(
            name="model",
            form="text",
            meaning="the model that answers, as the agent's provider calls it",
            remedy="write the name of a model, or leave the key out",
        ),
        Key(
            name="timeoutSeconds",
            form="number",
            meaning="how long a run may take, in seconds",
            remedy="write whole seconds from 1 to 86400, such as `timeoutSeconds: 1800`",
            bounds=(1, 86_400),
        ),
        Key(
            name="repo",
            form="text",
            meaning="a git repository that is cloned for each run and is worked in",
            remedy=REPO_REMEDY,
        ),
        Key(
            name="disabled",
            form="boolean",
            meaning="whether nothing starts it but a person",
            remedy="write `disabled: true` or `disabled: false`, without quotes",
            default="false",
        ),
    ),
)
"""The front matter of a job file; what stands below it is the prompt (spec, section 3.2)."""

JOB_KEYS = JOB.names
"""The keys of a job file, to tell one that lies in the wrong folder."""

_BELOW = "write the prompt below the closing `---`, which is all that a job does"
_STARTS = "write `cron:`, `webhook:` or `inbox:`; a job without any of them is run by hand"
_MODEL = "write `model:`, or write the job as an automation file"
_STEPS_ONLY = "take it out, or write the job as an automation file with steps"

JOB_INSTEAD: Mapping[str, str] = {
    "automation": "move the file to `automations/` if it is one, else take the key out",
    "name": "take it out: a job is called by its file name",
    "enabled": "write `disabled: true`, or take it out",
    "trigger": _STARTS,
    "type": _STARTS,
    "expression": 'write five cron fields, such as `cron: "0 7 * * 1-5"`',
    "steps": _BELOW,
    "prompt": _BELOW,
    "notify": "take it out: what a job says is always delivered",
    "conversation": "take it out: each run of a job has a conversation of its own",
    "id": "take it out: the one step of a job is called `prompt`",
    "label": _STEPS_ONLY,
    "argv": _STEPS_ONLY,
    "agent_config": _MODEL,
    **dict.fromkeys(AGENT_CONFIG_KEYS, _MODEL),
    "requires": _STEPS_ONLY,
    "inject": _STEPS_ONLY,
    "guidance_delivery": _STEPS_ONLY,
}
"""The keys of automation files, with what to do about each that stands in a job."""

_ZONE = "take it out: the zone is the engine's, `Engine(timezone=...)` or `--timezone`"
_ZONES = dict.fromkeys(("timezone", "tz", "zone"), _ZONE)

GUESSED: Mapping[str, str] = {
    "schedule": "write `trigger:`, and below it `type: schedule` and an `expression:` such as "
    "`every 30 minutes`",
    **_ZONES,
}
"""What automation files are thought to have, without case, `_` and `-`, and what to do instead."""

JOB_GUESSED: Mapping[str, str] = {
    "schedule": 'write five cron fields, such as `cron: "0 7 * * 1-5"`',
    **_ZONES,
}
"""The same of job files."""

RETIRED: Mapping[str, str] = {
    "session": "take it out: which conversation is resumed is kept in the data folder, and "
    "`conversation:` says how long it lasts",
    "session_workspace": "take it out: an automation's turns run in the workspace it lies in",
    "prompt_caching": "take it out: caching is the agent's own business, and its settings go "
    "into `agent_config:`",
}
"""Keys that are part of no file any more, with what to do about each."""


def json_schema(kind: Kind = "automation") -> dict[str, Any]:
    """Return a JSON schema (draft 2020-12) of a file's front matter, for editors.

    It follows the tables above. What it cannot say (unique ids, the schedule grammar, paths,
    credentials, keys that need another one) is checked by `validate_automation_content` and
    `validate_job_content` alone.

    Args:
        kind: which of the two kinds of file.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"drumbeat {kind} file, front matter",
        **_level_schema(JOB if kind == "job" else FILE),
    }


# An editor reads YAML with types: to it `label: 2` is a number, `enabled: off` a text.
_SCALAR = ["string", "number", "boolean"]
_BOOLEAN = "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[Yy][Ee][Ss]|[Nn][Oo]|[Oo][Nn]|[Oo][Ff][Ff])$"


def _level_schema(level: Level) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [key.name for key in level.keys if key.required],
        "properties": {key.name: _key_schema(key) for key in level.keys},
    }


def _key_schema(key: Key) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": key.meaning, **_form_schema(key)}
    if key.default is not None:
        defaults: dict[str, Any] = {"true": True, "false": False, "[]": [], "{}": {}}
        schema["default"] = defaults.get(key.default, key.default)
    return schema


def _form_schema(key: Key) -> dict[str, Any]:
    match key.form:
        case "text":
            return {"type": _SCALAR, "pattern": f"^{key.pattern}$" if key.pattern else r"\S"}
        case "boolean":
            return {"type": ["boolean", "string"], "pattern": _BOOLEAN}
        case "number":
            least, greatest = key.bounds
            return {"type": "integer", "minimum": least, "maximum": greatest}
        case "choice":
            return {"enum": list(key.choices)}
        case "text-or-texts":
            return {
                "type": [*_SCALAR, "array"],
                "pattern": r"\S",
                "items": {"type": _SCALAR},
                "minItems": 1,
            }
        case "texts":
            items: dict[str, Any] = {"type": _SCALAR}
        case "agent-config":
            return {
                "type": "object",
                "additionalProperties": False,
                "properties": {name: {} for name in AGENT_CONFIG_KEYS},
            }
        case _:  # a mapping, or a list of them
            if key.level is None:
                msg = f"{key.name} takes mappings, so it needs a level"
                raise ValueError(msg)
            items = _level_schema(key.level)
            if key.form == "mapping":
                return items
    return {"type": "array", "items": items, **({"minItems": 1} if key.nonempty else {})}
