"""The public surface is what the API page lists, and each name works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import contexture

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_public_names_are_exactly_the_documented_ones():
    """Gaining or losing a public name is a reviewed change, never an accident."""
    documented = re.findall(r"^::: contexture\.(\w+)$", API_PAGE.read_text(), re.MULTILINE)

    assert sorted(documented) == sorted(contexture.__all__)


@pytest.mark.parametrize("name", contexture.__all__)
def test_every_public_name_leads_somewhere_and_explains_itself(name):
    """A name in `__all__` can be imported, is listed by `dir`, and has a docstring."""
    assert getattr(contexture, name).__doc__
    assert name in dir(contexture)


def test_other_names_are_refused():
    """A name that is not public is an AttributeError, as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = contexture.Nothing
