"""Dates as other programs spell them in tables, in ISO form."""

from __future__ import annotations

import re
from datetime import datetime

_RANGE = " → "
_ZONE = re.compile(r"\s*\([A-Z]{3,4}\)$")
_SPELLED = ("%B %d, %Y", "%B %d, %Y %I:%M %p", "%B %d, %Y %H:%M", "%Y/%m/%d", "%Y/%m/%d %H:%M")


def iso_of(text: str) -> str | None:
    """The ISO form of `November 3, 2026`, with a time or without; of a range both ends. None for anything else.

    iso_of("November 3, 2026 → November 5, 2026")   # "2026-11-03/2026-11-05"
    """
    ends = [_moment(part) for part in text.strip().split(_RANGE)]
    found = [end for end in ends if end is not None]
    return "/".join(found) if len(found) == len(ends) <= 2 else None  # noqa: PLR2004 - a range has two ends


def _moment(text: str) -> str | None:
    said = _ZONE.sub("", text.strip())
    for form in _SPELLED:
        try:
            found = datetime.strptime(said, form)  # noqa: DTZ007 - a table says no zone
        except ValueError:
            continue
        return found.isoformat(timespec="minutes") if ":" in said else found.date().isoformat()
    return None
