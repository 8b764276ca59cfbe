"""Capsules of builds that a service made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contexture.cli.remote import Door


def fetched(door: Door, build_id: str) -> bytes:
    """The capsule of a build that a service made, in the bytes it would have here."""
    import msgspec

    from contexture.capsule import Capsule, pack_capsule

    kept = door.ask("GET", f"/v1/builds/{build_id}")
    return pack_capsule(msgspec.json.decode(msgspec.json.encode(kept["capsule"]), type=Capsule))
