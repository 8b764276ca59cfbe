"""What a document is called: by its content and its readers, wherever its file lies."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from contexture.types import PUBLIC

_LENGTH = 16


def document_id(content: str, readers: Iterable[str] = (PUBLIC,)) -> str:
    """The id of a document whose bytes have this SHA-256 and whose readers are these.

    Readers are part of it where they are not everyone: two people may load the same file for themselves, and neither
    learns of the other's.
    """
    named = sorted(set(readers))
    if named == [PUBLIC]:
        return content[:_LENGTH]
    return sha256("\0".join([content, *named]).encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]
