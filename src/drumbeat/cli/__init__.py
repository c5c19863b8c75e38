"""The command line, thin over the library (extra `cli`)."""

import sys
from collections.abc import Sequence

__all__ = ["main"]

_EXTRA = ("click", "rich")


def main(args: Sequence[str] | None = None) -> None:
    """Run `drumbeat` and end the process.

    Args:
        args: the words after the command's name; None for those of the process.

    Raises:
        SystemExit: always. 0 when all is well, 1 when a file has problems or a run failed, 2 when
            the command was used wrongly or the extra `cli` is not installed.
    """
    try:
        from drumbeat.cli.commands import drumbeat  # noqa: PLC0415  only here is the extra needed
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in _EXTRA:
            raise
        sys.stderr.write(
            f"drumbeat: the command line needs {missing}, which is not installed\n"
            "  in a clone of the repository: pip install '.[cli]'\n"
        )
        raise SystemExit(2) from None
    drumbeat.main(args=args, prog_name="drumbeat")
