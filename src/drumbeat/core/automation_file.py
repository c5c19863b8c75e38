"""An automation file's text, judged against the contract and turned into an `Automation`."""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import attrs

from drumbeat.core.agent_config import read_agent_config
from drumbeat.core.body import numbered_lists
from drumbeat.core.frontmatter import FrontMatter
from drumbeat.core.messages import did_you_mean, quoted
from drumbeat.core.model import Automation, InjectSpec, Schedule, ScheduleTrigger, Step
from drumbeat.core.nodes import Entry, MapNode, ScalarNode
from drumbeat.core.policy_file import PolicyReader, open_file
from drumbeat.core.rotation import steps_fingerprint
from drumbeat.core.schedule import parse_schedule
from drumbeat.core.vocabulary import (
    AGENT_CONFIG_KEYS,
    AUTOMATION,
    FILE,
    GUESSED,
    INJECT,
    JOB_KEYS,
    STEP,
    STEP_ID,
    TRIGGER,
    Key,
    Level,
)
from drumbeat.errors import Problem, ScheduleError

__all__ = ["AutomationSource", "read_automation", "validate_automation_content"]

_STEP_ID = re.compile(STEP_ID)
_OUTSIDE = re.compile(r"[/\\~]|[A-Za-z]:[/\\]|(?:.*[/\\])?\.\.(?:[/\\]|\Z)", re.DOTALL)
# Where a key that stands in the wrong mapping belongs; a name in two of them belongs to the last.
_HOMES = {
    **dict.fromkeys(AGENT_CONFIG_KEYS, "`agent_config`"),
    **{name: level.name for level in (INJECT, STEP, TRIGGER, AUTOMATION) for name in level.names},
}


@attrs.frozen(kw_only=True)
class AutomationSource:
    """An automation together with the text it was read from.

    `block` is the mapping below `automation:`, whose nodes know their places in the file.
    """

    automation: Automation
    front_matter: FrontMatter
    block: MapNode


def validate_automation_content(text: str | bytes, *, path: PurePath | None = None) -> Automation:
    """Judge an automation file and return what it says.

    A schedule expression outside the grammar does not refuse the file: its trigger's `schedule` is
    None (spec, section 3.1).

    Args:
        text: the file, as text or as UTF-8 bytes with or without a byte order mark.
        path: where the file lies. Its stem becomes the slug, which without a path is "".

    Returns:
        The automation, with every default filled in.

    Raises:
        AutomationError: the file breaks the contract. It carries all problems, in file order; of a
            text that cannot be read as YAML, the first that the parser met.
    """
    return read_automation(text, path=path).automation


def read_automation(text: str | bytes, *, path: PurePath | None = None) -> AutomationSource:
    """Judge an automation file as `validate_automation_content`, and keep its nodes.

    Raises:
        AutomationError: the file breaks the contract.
    """
    opened = open_file(text, path=path)
    front_matter = opened.front_matter
    reader = _AutomationReader(path)
    block = reader.block(front_matter.root)
    automation = reader.automation(block)
    reader.body(front_matter)
    opened.refuse(reader.problems)
    return AutomationSource(automation=automation, front_matter=front_matter, block=block)


class _AutomationReader(PolicyReader):
    """Reads the levels of an automation file; what it returns is whole when nothing is wrong."""

    def block(self, root: MapNode) -> MapNode:
        """The mapping below `automation:`, empty where there is none."""
        beside = [entry for entry in root if FILE.find(entry.name) is None]
        for each in beside:
            self.unknown(each, FILE)
        nothing = MapNode(entries=(), line=root.line, column=root.column)
        entry = root.find("automation")
        if entry is None:
            message = "the front matter has no `automation:`"
            self.report("key-missing", message, FILE.keys[0].remedy, root)
            return nothing
        if beside and isinstance(entry.value, ScalarNode) and entry.value.empty:
            return nothing  # its keys stand beside it, which is reported for each of them
        block = self.mapping(entry, FILE.keys[0])
        if block is None:
            return nothing
        self.names(block, AUTOMATION)
        return block

    def automation(self, block: MapNode) -> Automation:
        """What the keys below `automation:` say."""
        # One that was refused counts as off, so that nothing is held against the trigger for it.
        enabled = block.find("enabled") is None or bool(
            self.read(block, AUTOMATION, "enabled", self.boolean)
        )

        def trigger(entry: Entry, key: Key) -> tuple[ScheduleTrigger, ...]:
            return self._trigger(entry, key, enabled=enabled)

        def choice(name: str, default: str) -> Any:
            return self.read(block, AUTOMATION, name, self.choice) or default

        steps = self.read_all(block, AUTOMATION, "steps", self._steps)
        return Automation(
            slug="" if self.path is None else self.path.stem,
            path=self.path,
            kind="automation",
            name=(self.read(block, AUTOMATION, "name", self.text) or "").strip(),
            enabled=enabled,
            triggers=self.read_all(block, AUTOMATION, "trigger", trigger),
            steps=steps,
            fingerprint=steps_fingerprint(steps),
            notify=choice("notify", "auto"),
            requires=self.read_all(block, AUTOMATION, "requires", self._requires),
            inject=self.read_all(block, AUTOMATION, "inject", self._inject),
            conversation=choice("conversation", "continuous"),
            guidance_delivery=choice("guidance_delivery", "reference"),
            agent_config=self.read(block, AUTOMATION, "agent_config", self._agent_config) or {},
        )

    def body(self, front_matter: FrontMatter) -> None:
        """Refuse steps that are written as a numbered list below the front matter."""
        for line, column in numbered_lists(front_matter.body):
            self.problems.append(
                Problem(
                    code="steps-in-body",
                    message="a numbered list in the body is never run",
                    remedy="move it into `steps:` as objects with `id:` and `prompt:`; if it is no "
                    "list of steps, use dashes",
                    path=self.path,
                    line=front_matter.body_line + line,
                    column=column,
                )
            )
            return

    # ---- keys of `automation:`

    def _trigger(self, entry: Entry, key: Key, *, enabled: bool) -> tuple[ScheduleTrigger, ...]:
        mapping = self.mapping(entry, key)
        if mapping is None:
            return ()
        self.names(mapping, TRIGGER)
        kind = self.read(mapping, TRIGGER, "type", self.choice)
        type_entry, expression = mapping.find("type"), mapping.find("expression")
        if type_entry is not None and kind == "event" and enabled:
            self.report(
                "event-reserved",
                "`type: event` is reserved: it would load and then never run",
                "write `type: schedule` or `type: manual`, or set `enabled: false`",
                type_entry.value,
            )
        if kind != "schedule":
            # An expression that does nothing is a finding; one that is no text is no expression.
            if expression is not None and not isinstance(expression.value, ScalarNode):
                self.read(mapping, TRIGGER, "expression", self.text)
            return ()
        if expression is None:
            self.report(
                "key-missing",
                "`trigger` has no `expression:`, which `type: schedule` needs",
                "write a schedule such as `expression: every 30 minutes`, or `type: manual`",
                entry.key,
            )
            return ()
        text = self.read(mapping, TRIGGER, "expression", self.text)
        return () if text is None else (_schedule_trigger(text),)

    def _steps(self, entry: Entry, key: Key) -> Iterator[Step]:
        lines: dict[str, int] = {}
        for item in self.mappings(entry, key):
            self.names(item, STEP)
            step_id = self.read(item, STEP, "id", self._step_id)
            prompt = self.read(item, STEP, "prompt", self.text)
            label = self.read(item, STEP, "label", self.text)
            id_entry = item.find("id")
            if id_entry is None or step_id is None:
                continue
            if step_id in lines:
                self.report(
                    "step-id-duplicate",
                    f"the step id {quoted(step_id)} stands on line {lines[step_id]} already",
                    "give each step an id of its own",
                    id_entry.value,
                )
            lines.setdefault(step_id, id_entry.value.line)
            if prompt is not None:
                yield Step(id=step_id, prompt=prompt, label=label)

    def _step_id(self, entry: Entry, key: Key) -> str | None:
        text = self.text(entry, key)
        if text is None or _STEP_ID.fullmatch(text):
            return text
        message = f"{quoted(text)} cannot be a step id"
        self.report("step-id-invalid", message, key.remedy, entry.value)
        return None

    def _requires(self, entry: Entry, key: Key) -> Iterator[str]:
        for item in self.texts(entry, key):
            if not item.text.strip():
                self.blank_item(item, key, "name a tool or a file, or take it out")
            elif _OUTSIDE.match(item.text):
                self.report(
                    "requires-outside-workspace",
                    f"{quoted(item.text)} does not stay inside the workspace",
                    "write a path relative to the workspace, without `..`, or the bare name of a "
                    "tool",
                    item,
                )
            elif not item.text.isprintable() or item.text != item.text.strip():
                self.report(
                    "requires-invalid",
                    f"{quoted(item.text)} has spaces at its edge or characters without a shape",
                    "write the name on one line, without spaces around it",
                    item,
                )
            else:
                yield item.text

    def _inject(self, entry: Entry, key: Key) -> Iterator[InjectSpec]:
        for item in self.mappings(entry, key):
            self.names(item, INJECT)
            argv = self.read_all(item, INJECT, "argv", self._argv)
            label = self.read(item, INJECT, "label", self.text)
            if label is not None:
                yield InjectSpec(argv=argv, label=label)

    def _argv(self, entry: Entry, key: Key) -> Iterator[str]:
        for number, item in enumerate(self.texts(entry, key)):
            if number == 0 and not item.text.strip():
                self.blank_item(item, key, "name the tool to run, which comes first")
            elif item.empty:
                self.blank_item(item, key, 'write "" for an empty argument')
            else:
                yield item.text

    def _agent_config(self, entry: Entry, _key: Key) -> dict[str, Any]:
        layer = read_agent_config(entry, path=self.path)
        self.problems.extend(layer.problems)
        return layer.values

    # ---- keys that stand in the wrong place

    def unknown(self, entry: Entry, level: Level) -> None:
        """Report a key that `level` does not know, with the place where it belongs if any."""
        name = entry.name
        if self.retired(entry) or self.guessed(entry, level, GUESSED):
            return
        if name in _HOMES:
            self.report("misplaced-key", *_misplaced(name, level), entry.key)
        elif name in JOB_KEYS:
            self.report(
                "misplaced-key",
                f"`{name}` is a key of job files, and this is read as an automation file",
                "move the file to `jobs/` if it is one, else take the key out",
                entry.key,
            )
        elif level is FILE:
            self.report(
                "unknown-key",
                f"{level.name} has no key {quoted(name)}"
                f"{did_you_mean(name, (*FILE.names, *_HOMES))}",
                "correct it, or take it out: only `automation:` stands here, all else below it",
                entry.key,
            )
        else:
            super().unknown(entry, level)


def _misplaced(name: str, level: Level) -> tuple[str, str]:
    """What is wrong with a key of the vocabulary that stands in `level`, and how to mend it."""
    home = _HOMES[name]
    if level is FILE and home == AUTOMATION.name:
        return (
            f"`{name}` stands beside `automation:`, not below it",
            "indent it, so that it is part of `automation:`",
        )
    if level is FILE:
        return (
            f"`{name}` stands beside `automation:`: it belongs to {home}",
            f"move it into {home}, below `automation:`, or take it out",
        )
    if home == AUTOMATION.name:
        return (
            f"`{name}` has no place in {level.name}: it holds for the whole automation",
            "move it up, beside `name` and `trigger`",
        )
    return (
        f"`{name}` has no place in {level.name}: it belongs to {home}",
        f"move it into {home}, or take it out",
    )


def _schedule_trigger(expression: str) -> ScheduleTrigger:
    schedule: Schedule | None
    try:
        schedule = parse_schedule(expression)
    except ScheduleError:
        schedule = None  # loads, and never comes due; lint and the listing say so
    return ScheduleTrigger(expression=expression, schedule=schedule)
