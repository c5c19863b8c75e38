"""What a prompt says about guidance files: which it names, whether it writes to one, and prunes it.

Theory. A prompt is prose, so this goes by words: whole ones, looked at clause by clause. Who writes
to a file says so before naming it ("append it to guidance/A.md") or, after it, of "it" or "the
file". A word that is denied ("do not remove anything") says the opposite of itself, and one that is
denied twice ("never append without pruning") says it again. A doubt keeps silent: this is advice.
"""

import re
from collections.abc import Iterator

__all__ = ["asks_to_prune", "guidance_files", "writes_guidance"]

_FILE = re.compile(r"(?<![\w./-])(?:\./)?(guidance/[\w./-]*\w)")
_SENTENCE_END = re.compile(r"[.!?;:](?=\s|$)|\n\s*\n")
_CLAUSE_END = re.compile(r"[,()]|\b(?:but|rather|instead)\b", re.IGNORECASE)
_DENIES = re.compile(
    r"\b(?:not|never|without|no|nothing|forget|fail|avoid)\b|n['\u2019]t\b", re.IGNORECASE
)
_DENIED_WITHIN = 6  # words


def _words(*stems: str) -> str:
    """Each verb in the forms in which a prompt has it; a final `e` is dropped before `-ing`."""
    forms = []
    for stem in stems:
        short = stem.removesuffix("e")
        forms.append(f"{stem}s?|{short}ing|{short}e?d")
    return rf"\b(?:{'|'.join(forms)})\b"


_WRITES = re.compile(
    _words("update", "append", "add", "extend", "record", "edit", "revise", "improve")
    + "|"
    + _words("maintain", "save", "note", "store")
    + r"|\b(?:writes?|writing|puts?|putting)\b",
    re.IGNORECASE,
)
_READS = re.compile(
    r"\b(?:read(?:ing)?|load(?:ing)?|follow(?:ing)?|consult(?:ing)?|see|per|according|from|as)\b",
    re.IGNORECASE,
)
_OF_IT = re.compile(
    r"(?:(?:\s+[\w'-]+){0,5}\s+(?:in|into|to))?\s+(?:it|them|(?:this|that|the)\s+(?:guidance\s+)?file)\b",
    re.IGNORECASE,
)
_PRUNES = re.compile(
    _words("prune", "consolidate", "condense", "shorten", "compact", "merge", "delete", "remove")
    + "|"
    + _words("dedupe", "deduplicate", "replace")
    + r"|\b(?:trim(?:s|med|ming)?|distil(?:l|ls|led|ling)?|drop(?:s|ped|ping)?|tid(?:y|ies|ied)"
    r"|tidying|cut(?:s|ting)?)\b"
    r"|\b(?:keep|stay)\w*\b.{0,40}\b(?:short|small|brief|bounded)\b",
    re.IGNORECASE | re.DOTALL,
)


def guidance_files(prompt: str) -> tuple[str, ...]:
    """The files below `guidance/` that a prompt names, each as often as it does."""
    return tuple(_FILE.findall(prompt))


def writes_guidance(prompt: str) -> bool:
    """Whether a prompt asks to write to a file below `guidance/`."""
    for sentence in _SENTENCE_END.split(prompt):
        for file in _FILE.finditer(sentence):
            before, after = sentence[: file.start()], sentence[file.end() :]
            for verb in _asked(_WRITES, before):
                if not _READS.search(before, verb.end()):
                    return True
            if any(_OF_IT.match(after, verb.end()) for verb in _asked(_WRITES, after)):
                return True
    return False


def asks_to_prune(prompt: str) -> bool:
    """Whether a prompt asks to shorten what it keeps."""
    return any(True for _ in _asked(_PRUNES, prompt))


def _asked(verbs: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The places at which one of `verbs` stands and is not denied."""
    for verb in verbs.finditer(text):
        sentence = _SENTENCE_END.split(text[: verb.start()])[-1]
        words = _CLAUSE_END.split(sentence)[-1].split()[-_DENIED_WITHIN:]
        if sum(_DENIES.search(word) is not None for word in words) % 2 == 0:
            yield verb
