"""Answers as the wire carries them: what a command prints does not depend on where it was computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contexture.builders.explain import Explanation
    from contexture.ledger import Degradation, Ledger


def as_sent(answer: object) -> dict[str, Any]:
    """An answer computed here, as a service would have sent it."""
    import msgspec

    from contexture.service.envelope import encoded

    return msgspec.json.decode(encoded(answer), type=dict[str, Any])


def degradations_of(answer: dict[str, Any]) -> tuple[Degradation, ...]:
    """What was lost on the way to an answer."""
    import msgspec

    from contexture.ledger import Degradation

    return msgspec.convert(answer["degradations"], tuple[Degradation, ...])


def ledger_of(answer: dict[str, Any]) -> Ledger:
    """The ledger in an answer."""
    import msgspec

    from contexture.ledger import Entry, Ledger

    entries = msgspec.convert(answer["ledger"], tuple[Entry, ...])
    return Ledger(entries=entries, degradations=degradations_of(answer))


def explanation_of(answer: dict[str, Any]) -> Explanation:
    """The explanation in an answer."""
    import msgspec

    from contexture.builders.explain import Explanation
    from contexture.ledger import Entry

    entry = msgspec.convert(answer["candidate"], Entry)
    return Explanation(entry=entry, more_tokens=answer["more_tokens"], score_needed=answer["score_needed"])
