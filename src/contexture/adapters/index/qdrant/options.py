"""Address and collection layout of a Qdrant server or cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from contexture.errors import InvalidRequest, UnknownAdapter

_ADDRESS_PATTERN = re.compile(r"qdrant(?:\+(https?))?://([\w.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?/?")
_API_KEY_PATTERN = re.compile(r"[!-~]*")  # characters allowed in an HTTP header
_DEFAULT_PORT, _MAX_PORT = 6_333, 65_535


@dataclass(frozen=True, kw_only=True, slots=True)
class QdrantOptions:
    """Address of Qdrant, and how collections are created there.

    QdrantOptions(place="qdrant://localhost:6333")
    QdrantOptions(place="qdrant+https://cluster.example.org", api_key=key, by_tenant=True, replicas=2)

    With `shards` 0 the server chooses their number. `confirmations` is the number of replicas that must confirm a
    write; 0 means all, so that a read from any replica sees it. After a failure, writes do not contact Qdrant for
    `pause` seconds, so that a hanging server does not delay them; a search contacts it at once.
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
        """Raise `InvalidRequest` for a key that cannot be sent; the message does not contain it."""
        if not _API_KEY_PATTERN.fullmatch(self.api_key):
            raise InvalidRequest("the key of Qdrant has a space, a line end or another letter that no key can have")

    @property
    def url(self) -> str:
        """The address as an HTTP URL; raises `UnknownAdapter` for an invalid one."""
        found = _ADDRESS_PATTERN.fullmatch(self.place)
        if found is None or int(found[3] or _DEFAULT_PORT) > _MAX_PORT:
            raise UnknownAdapter(
                "the store is not a Qdrant address; write `qdrant://HOST:PORT` or `qdrant+https://HOST:PORT`, "
                "and the key as CONTEXTURE_QDRANT_API_KEY"
            )
        return f"{found[1] or 'http'}://{found[2]}:{found[3] or _DEFAULT_PORT}"
