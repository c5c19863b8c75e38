"""What is kept of a receipt, which a host gives for a message that it delivered."""

from drumbeat.core.model import Receipt
from drumbeat.core.redaction import Redactor
from drumbeat.runtime.answers import plain_receipt


def kept_receipt(answer: object, redactor: Redactor) -> Receipt | None:
    """The receipt as it may be kept, if its host kept its word."""
    receipt = plain_receipt(answer)
    if receipt is None:
        return None
    return Receipt(
        id=None if receipt.id is None else redactor.text(receipt.id),
        url=None if receipt.url is None else redactor.text(receipt.url),
    )
