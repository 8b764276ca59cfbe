"""Known secret values in what a search found: masked before anything is redacted, counted or shown."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from contexture.pipeline.mask import Mask
from contexture.ports import Secrets
from contexture.types import Candidate

NOTHING = Mask({})
"""What masks where no secret is known."""


class KnownSecrets:
    """The mask of the secrets known now; made anew only when they have changed."""

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._secrets = secrets
        self._made: tuple[Mapping[str, str], Mask] = ({}, NOTHING)

    def mask(self) -> Mask:
        """What hides them; raises whatever the source of the secrets raises, because nothing may be shown then."""
        known = dict(self._secrets.known()) if self._secrets else {}
        if known != self._made[0]:
            self._made = (known, Mask(known))
        return self._made[1]


def masked(candidate: Candidate, mask: Mask) -> Candidate:
    """The candidate with its text masked; what was computed for a text that held a value no longer holds."""
    text = mask.piece(candidate.text)
    if text == candidate.text:
        return candidate
    return replace(candidate, text=text, sentences=(), origins=(), weights=(), redactions=None, tokens={}, simhash=0)
