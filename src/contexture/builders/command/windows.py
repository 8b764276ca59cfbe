"""How far back a command looks."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum


class Window(StrEnum):
    """A span of time that ends now, from the narrowest to the widest; a day has two names."""

    SIX_HOURS = "6h"
    TWELVE_HOURS = "12h"
    DAY = "24h"
    ONE_DAY = "1d"
    THREE_DAYS = "3d"
    WEEK = "1w"
    TWO_WEEKS = "2w"
    MONTH = "1m"
    THREE_MONTHS = "3m"
    SIX_MONTHS = "6m"
    YEAR = "1y"

    @property
    def span(self) -> timedelta:
        """Its length; a month has 30 days, and a year 365."""
        count, unit = int(self.value[:-1]), self.value[-1]
        return count * _UNITS[unit]

    @property
    def wider(self) -> Window | None:
        """The next one that is longer, or None for the longest."""
        return next((each for each in Window if each.span > self.span), None)


_UNITS = {
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "m": timedelta(days=30),
    "y": timedelta(days=365),
}
