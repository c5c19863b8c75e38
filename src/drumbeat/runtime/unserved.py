"""What a job file may ask for and an engine does not do, so that such a file is refused."""

from collections.abc import Iterator
from pathlib import PurePath

from drumbeat.core.nodes import MapNode
from drumbeat.errors import Problem

_UNSERVED_CODES = {
    "inbox": "trigger-unserved",
    "repo": "repo-unserved",
}
_LACKS = {
    "inbox": "no mail ever reaches it",
    "repo": "nothing is cloned for its runs",
}
_COMPANIONS: dict[str, tuple[str, ...]] = {"inbox": ("allowFrom",), "repo": ()}


def unserved(front_matter: MapNode, path: PurePath) -> Iterator[Problem]:
    """The keys of a job that keeps the contract and would load only to wait for ever.

    The contract knows these keys, so `validate_job_content` and the linter accept them. A loader
    does not, for as long as no engine acts on them.

    Yields:
        One problem for each `inbox` (`trigger-unserved`) and `repo`
        (`repo-unserved`), located at the key, in file order.
    """
    for entry in front_matter:
        if entry.name not in _UNSERVED_CODES:
            continue
        beside = [name for name in _COMPANIONS[entry.name] if front_matter.find(name) is not None]
        keys = ", ".join(f"`{name}`" for name in (entry.name, *beside))
        yield Problem(
            code=_UNSERVED_CODES[entry.name],
            message=f"`{entry.name}` is not served by this release: {_LACKS[entry.name]}",
            remedy=f"take {keys} out; run the job by `cron` or by hand",
            path=path,
            line=entry.key.line,
            column=entry.key.column,
        )
