"""Several sources of secrets as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contexture.ports import Secrets


class CombinedSecrets:
    """The secrets of every source; of two with one key the later source's is known, and the earlier's is too.

    Both must be masked, so the earlier value appears under its key with `#1`, `#2`, … behind it.
    """

    def __init__(self, sources: Sequence[Secrets]) -> None:
        self._sources = tuple(sources)

    def known(self) -> Mapping[str, str]:
        """Every key with its value."""
        found: dict[str, str] = {}
        for source in self._sources:
            for key, value in source.known().items():
                if found.get(key, value) != value:
                    found[_shadow(key, found)] = found[key]
                found[key] = value
        return found


def _shadow(key: str, taken: Mapping[str, str]) -> str:
    number = 1
    while f"{key}#{number}" in taken:
        number += 1
    return f"{key}#{number}"
