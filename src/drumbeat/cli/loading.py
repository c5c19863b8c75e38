"""From `module:attribute` on the command line to what it names: agent, deliverer, mail systems."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from drumbeat import Agent, Deliverer, MailSource
from drumbeat.cli.output import visible
from drumbeat.runtime.brought import check_brought


def load_agent(reference: str) -> Agent:
    """The agent that `reference` names: an instance, a class, or a factory without arguments.

    The module is imported with the current folder first on the path.

    Raises:
        click.BadParameter: no such module or attribute, or it makes no agent.
    """
    agent: Agent = _load(reference, option="--agent", method="take_turn", noun="an agent")
    return agent


def load_deliverer(reference: str) -> Deliverer:
    """The deliverer that `reference` names, found as `load_agent` finds an agent.

    Raises:
        click.BadParameter: no such module or attribute, or it makes no deliverer.
    """
    deliverer: Deliverer = _load(
        reference, option="--deliverer", method="deliver", noun="a deliverer"
    )
    return deliverer


def load_mail(reference: str) -> Mapping[str, MailSource]:
    """The mail systems that `reference` names: a mapping of names to sources, or what returns one.

    Raises:
        click.BadParameter: no such module or attribute, or it is no such mapping.
    """
    refuse = _refusal("--mail")
    found = _found(reference, refuse)
    if not isinstance(found, Mapping):
        found = _made(found, reference, "the mail systems", refuse)
    if not isinstance(found, Mapping):
        msg = f"{reference!r} gives {type(found).__name__} and no mapping of names to mail sources"
        raise refuse(msg)
    for name, source in found.items():
        if inspect.isclass(source) or not callable(getattr(source, "poll", None)):
            msg = f"{reference!r} has no mail source for {name!r}, which has a method 'poll'"
            raise refuse(msg)
        _check(f"the mail source {name!r}", source, "poll", refuse)
    return found


def _refusal(option: str) -> Callable[[str], click.BadParameter]:
    def refuse(message: str) -> click.BadParameter:
        return click.BadParameter(visible(message, lines=True), param_hint=option)

    return refuse


def _load(reference: str, *, option: str, method: str, noun: str) -> Any:
    refuse = _refusal(option)
    found = _found(reference, refuse)
    if inspect.isclass(found) or not callable(getattr(found, method, None)):
        found = _made(found, reference, noun, refuse)
    if not callable(getattr(found, method, None)):
        msg = (
            f"{reference!r} gives {type(found).__name__}, which has no method {method!r}: name "
            f"{noun}, a class of one, or a function without arguments that returns one"
        )
        raise refuse(msg)
    _check(noun, found, method, refuse)
    return found


def _check(what: str, found: Any, method: str, refuse: Callable[[str], click.BadParameter]) -> None:
    """Refuse what an engine would refuse."""
    try:
        check_brought(what, found, method)
    except TypeError as error:
        raise refuse(str(error)) from error


def _found(reference: str, refuse: Callable[[str], click.BadParameter]) -> Any:
    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        msg = f"{reference!r} is not of the form module:attribute, such as host:agent"
        raise refuse(msg)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # anything may be raised by a module of the host's
        msg = f"module {module_name!r} cannot be imported: {_told(error)}"
        raise refuse(msg) from error
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            msg = f"module {module_name!r} has no attribute {attribute!r}"
            raise refuse(msg) from error
    return found


def _made(
    factory: Any, reference: str, noun: str, refuse: Callable[[str], click.BadParameter]
) -> Any:
    if not callable(factory):
        return factory
    try:
        return factory()
    except Exception as error:  # anything may be raised by a factory of the host's
        msg = f"{reference!r} could not make {noun}: {_told(error)}"
        raise refuse(msg) from error


def _told(error: Exception) -> str:
    """An exception of the host's in one line, with the place that raised it."""
    text = f"{type(error).__name__}: {error}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")
        and frame.filename not in (__file__, importlib.__file__)
    ]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text
