"""How the documents are built: Sphinx, MyST, furo; nothing is fetched."""

import re
from typing import Any

project = "drumbeat"
author = "The drumbeat authors"
copyright = author  # noqa: A001  Sphinx's own name for it
html_title = "drumbeat"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = [
    # a file as the documents show it, front matter included, is no language that Pygments knows
    "misc.highlighting_failure",
]

# Docstrings set code in single backquotes.
default_role = "literal"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_display_short_literal_types = True
maximum_signature_line_length = 80

# No other project's inventory is fetched, so names that are not drumbeat's are not linked.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(abc|anyio|asyncio|attr|attrs|builtins|collections|contextlib|datetime|decimal|enum|os"
        r"|pathlib|ssl|starlette|types|typing|typing_extensions|zoneinfo)\..*",
    ),
    # exceptions and types of the language itself, and type variables
    (r"py:.*", r"[A-Za-z]+"),
    # what stands in a signature as it was written
    (r"py:class", r".*[\[\]<>'\" ].*"),
]


def _fences(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Read Markdown's fences, which docstrings use, as reStructuredText's code blocks."""
    inside = False
    for index, line in enumerate(lines):
        fence = re.fullmatch(r"(\s*)```(\w*)", line)
        if fence:
            inside = not inside
            lines[index] = f"{fence[1]}.. code-block:: {fence[2]}\n" if inside else ""
        elif inside and line:
            lines[index] = f"   {line}"
    lines[:] = "\n".join(lines).split("\n")


def setup(app: Any) -> None:
    """Tell Sphinx what this file adds."""
    app.connect("autodoc-process-docstring", _fences, priority=100)
