"""What a job file may ask for and an engine does not do, so that such a file is refused."""

from collections.abc import Iterator
from pathlib import PurePath

from drumbeat.core.nodes import MapNode
from drumbeat.errors import Problem


def unserved(front_matter: MapNode, path: PurePath) -> Iterator[Problem]:
    """The keys of a job that keeps the contract and would not do what it says.

    The contract knows these keys, so `validate_job_content` and the linter accept them. A loader
    does not, for as long as no engine acts on them.

    Yields:
        One problem for a `repo` (`repo-unserved`), located at the key.
    """
    entry = front_matter.find("repo")
    if entry is not None:
        yield Problem(
            code="repo-unserved",
            message="`repo` is not served by this release: nothing is cloned for its runs",
            remedy="take `repo` out; run the job by `cron` or by hand",
            path=path,
            line=entry.key.line,
            column=entry.key.column,
        )
