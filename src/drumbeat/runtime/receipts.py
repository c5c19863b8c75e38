"""What is kept of a receipt, which a host gives for a message that it delivered."""

import attrs

from drumbeat.core.model import Receipt
from drumbeat.core.redaction import Redactor


def kept_receipt(answer: object, redactor: Redactor) -> Receipt | None:
    """The receipt as it may be kept, if its host kept its word.

    Type hints bind nobody at run time.
    """
    if not isinstance(answer, Receipt):
        return None
    parts: tuple[object, ...] = (answer.id, answer.url)
    if not all(part is None or isinstance(part, str) for part in parts):
        return None
    return attrs.evolve(
        answer,
        id=None if answer.id is None else redactor.text(answer.id),
        url=None if answer.url is None else redactor.text(answer.url),
    )
