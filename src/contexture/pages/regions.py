"""The regions of a page as one text, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import json

from contexture.documents import Region, RegionKind
from contexture.retrieval.prepare import mended

_DIGITS = 4  # of a box: a page is never drawn ten thousand pixels wide


def packed(regions: Sequence[Region]) -> str:
    """Regions as one text: a search reads the payloads of many pages and needs the regions of few.

    What they say is left out where the page's text holds it.
    """
    return json.encode([_packed(region) for region in regions]).decode()


def unpacked(told: str | Sequence[Sequence[Any]], text: str) -> tuple[Region, ...]:
    """The regions of a page with this text; stores of before hold them as a list."""
    return tuple(_region(text, each) for each in (json.decode(told) if isinstance(told, str) else told))


def _packed(region: Region) -> list[Any]:
    own = [] if region.end else [mended(region.text)]
    return [str(region.kind), [round(edge, _DIGITS) for edge in region.box], region.start, region.end, *own]


def _region(text: str, told: Sequence[Any]) -> Region:
    kind, box, start, end, *own = told
    left, top, right, bottom = (float(edge) for edge in box)
    said = own[0] if own else text[start:end]
    return Region(kind=RegionKind(kind), box=(left, top, right, bottom), text=said, start=start, end=end)
