"""What runs README, documents and docstrings as tests: code is run, automation files are read."""

import logging
import os
from doctest import ELLIPSIS
from importlib import import_module
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import structlog
from hypothesis import settings
from sybil import Example, Sybil
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

# How long one example takes says more about the machine than about the code.
settings.register_profile("drumbeat", deadline=None)
# Where CI is set, Hypothesis has loaded a profile of its own: no deadline either, and the same
# examples each time.
if not os.environ.get("CI"):
    settings.load_profile("drumbeat")


def _automation_path(example: Example) -> PurePosixPath | None:
    """The path that the line above the block ends with, such as "`jobs/brief.md`:"."""
    line = example.document.text[: example.start].rstrip().rpartition("\n")[2]
    words = line.rstrip(":").split("`")
    if len(words) < 3 or words[-1]:
        return None
    path = PurePosixPath(words[-2])
    return path if path.parent.name in {"automations", "jobs"} else None


def _write_automation(example: Example) -> str | None:
    """Write a whole file to where the document says it stands; it has to load, without findings."""
    from drumbeat import lint_automation  # noqa: PLC0415  so that coverage sees the import

    path = _automation_path(example)
    if path is None:
        return None
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(str(example.parsed), encoding="utf-8")
    kind = "job" if path.parent.name == "jobs" else "automation"
    findings = lint_automation(str(example.parsed), path=path, kind=kind)
    return "\n".join(str(finding) for finding in findings) or None


def _enter_folder(namespace: dict[str, Any]) -> None:
    """Give each document a folder of its own to write in."""
    namespace["_folder"] = TemporaryDirectory()
    namespace["_home"] = Path.cwd()
    namespace["_level"] = logging.root.level
    namespace["__name__"] = "__main__"  # a block is a program, and not a module that is imported
    os.chdir(namespace["_folder"].name)


def _leave_folder(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_home"])
    namespace["_folder"].cleanup()
    # A page may show where the log goes.
    structlog.reset_defaults()
    for handler in logging.root.handlers[:]:
        if isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter):
            logging.root.removeHandler(handler)
    logging.root.setLevel(namespace["_level"])


def _import_public_names(namespace: dict[str, Any]) -> None:
    """Let examples in docstrings read as at a host that has imported what they use."""
    for package in ("drumbeat", "drumbeat.testing"):
        public = import_module(package)
        namespace.update((name, getattr(public, name)) for name in public.__all__)


_documents = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        CodeBlockParser("markdown", _write_automation),
    ],
    patterns=["README.md", "docs/*.md", "docs/decisions/*.md"],
    setup=_enter_folder,
    teardown=_leave_folder,
)
_docstrings = Sybil(
    parsers=[DocTestParser(optionflags=ELLIPSIS)],
    patterns=["src/drumbeat/*.py", "src/drumbeat/*/*.py"],
    setup=_import_public_names,
)
pytest_collect_file = (_documents + _docstrings).pytest()
