"""What a document is called: by its content and its readers, wherever its file lies."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from contexture.types import PUBLIC, Scope

_LENGTH = 16


def document_id(content: str, readers: Iterable[str] = (PUBLIC,), writer: Scope | None = None) -> str:
    """The id of a document whose bytes have this SHA-256 and whose readers are these.

    Readers are part of it where they are not everyone: two people may load the same file for themselves, and neither
    learns of the other's.
    """
    named = sorted(set(readers))
    if named == [PUBLIC]:
        return content[:_LENGTH]
    told = "\0".join([content, *named, *outsider(named, writer)])
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def outsider(readers: Iterable[str], writer: Scope | None) -> tuple[str, ...]:
    """What tells a copy apart by its writer: nothing for one who may read it, and so sees what is there already.

    Anyone else would learn from a refusal that those readers have the same.
    """
    if writer is None or not set(readers).isdisjoint(writer.principals):
        return ()
    return ("", writer.user)
