"""How a Qdrant server or cluster is reached and laid out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from contexture.errors import InvalidRequest, UnknownAdapter

_PLACE = re.compile(r"qdrant(?:\+(https?))?://([\w.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?/?")
_KEY = re.compile(r"[!-~]*")  # what fits into a header
_PORT, _LAST_PORT = 6_333, 65_535


@dataclass(frozen=True, kw_only=True, slots=True)
class QdrantOptions:
    """Where Qdrant is, and how collections are made there.

    QdrantOptions(place="qdrant://localhost:6333")
    QdrantOptions(place="qdrant+https://cluster.example.org", api_key=key, by_tenant=True, replicas=2)

    `shards` of 0 leaves their number to the server. `confirmations` is how many replicas must have a write before it
    counts; with 0, all of them, so that whichever is asked next has it. After a failure writes leave Qdrant alone for
    `pause` seconds, so that one that hangs does not hold them up; a search asks it at once.
    """

    place: str
    api_key: str = field(default="", repr=False)
    timeout: float = 10.0
    by_tenant: bool = False
    shards: int = 0
    replicas: int = 1
    confirmations: int = 0
    pause: float = 30.0

    def __post_init__(self) -> None:
        """Refuse a key that cannot be sent, without repeating it."""
        if not _KEY.fullmatch(self.api_key):
            raise InvalidRequest("the key of Qdrant has a space, a line end or another letter that no key can have")

    @property
    def url(self) -> str:
        """The address as HTTP has it."""
        found = _PLACE.fullmatch(self.place)
        if found is None or int(found[3] or _PORT) > _LAST_PORT:
            raise UnknownAdapter(
                "the address of the store names no Qdrant; write `qdrant://HOST:PORT` or `qdrant+https://HOST:PORT`, "
                "and the key as CONTEXTURE_QDRANT_API_KEY"
            )
        return f"{found[1] or 'http'}://{found[2]}:{found[3] or _PORT}"
