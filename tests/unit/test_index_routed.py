"""Maintenance and health of an index that routes collections to several."""

from __future__ import annotations

import pytest

from contexture.adapters.index.routed import RoutedIndex
from contexture.errors import SourceUnavailable


class Place:
    """An index that notes what it is asked to do."""

    def __init__(self, error="", failure=None):
        self.asked = []
        self._error, self._failure = error, failure

    async def optimize(self):
        """Noted."""
        self.asked.append("optimize")

    async def warm(self):
        """Noted."""
        self.asked.append("warm")

    async def check_health(self):
        """What was given."""
        if self._failure is not None:
            raise self._failure
        return self._error


async def test_every_index_is_maintained_once():
    """Also one that several collections are routed to."""
    home, pages = Place(), Place()
    routed = RoutedIndex(home, {"pages": pages, "regions": pages})
    await routed.warm()
    await routed.optimize()

    assert ["warm", "optimize"] == home.asked == pages.asked


async def test_one_failed_search_shows_and_one_failed_index_is_an_error():
    """As of a single index."""
    assert "" == await RoutedIndex(Place(), {"pages": Place()}).check_health()
    assert "no answer" == await RoutedIndex(Place(), {"pages": Place("no answer")}).check_health()
    with pytest.raises(SourceUnavailable):
        await RoutedIndex(Place("slow"), {"pages": Place(failure=SourceUnavailable("gone"))}).check_health()
