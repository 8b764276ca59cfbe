"""Hypothesis strategies for candidates, and for the items and sections that are packed."""

from __future__ import annotations

from hypothesis import strategies as st

from contexture.pipeline.packing import PackingItem, PackingOption
from contexture.testing.strategies import WORDS, prose, times
from contexture.types import Candidate, Section


def scores() -> st.SearchStrategy[float]:
    """Scores as rankers give them; ties are likely."""
    return st.one_of(st.sampled_from((0.0, 0.25, 0.5, 1.0)), st.floats(0, 1))


@st.composite
def near_duplicates(draw: st.DrawFn) -> str:
    """One passage with up to three words replaced, so that two of them nearly coincide."""
    words = [f"word{at}" for at in range(40)]
    for at in draw(st.lists(st.integers(0, 39), max_size=3)):
        words[at] = draw(st.sampled_from(WORDS))
    return " ".join(words)


@st.composite
def candidate_lists(draw: st.DrawFn, max_size: int = 12) -> list[Candidate]:
    """Candidates with different ids, where equal keys and scores, and texts that nearly coincide, are likely."""
    ids = draw(st.lists(st.integers(0, 99), unique=True, max_size=max_size))
    return [
        Candidate(
            id=f"c{number:02}",
            key=draw(st.sampled_from(("k1", "k2", "k3", f"k-{number}"))),
            text=draw(prose() | near_duplicates()),
            score=draw(scores()),
            time=draw(st.none() | times()),
        )
        for number in ids
    ]


def packing_options() -> st.SearchStrategy[PackingOption]:
    """Forms that cost little, nothing or far too much, and are worth anything from nothing up."""
    tokens = st.integers(0, 5) | st.integers(0, 30) | st.just(10**9)
    value = st.sampled_from((0.0, 0.5, 1.0)) | st.floats(0, 10)
    return st.builds(PackingOption, tokens, value)


@st.composite
def item_lists(draw: st.DrawFn, max_size: int = 6, sections: tuple[str, ...] = ("context",)) -> list[PackingItem]:
    """Items with up to three forms each, small enough for trying every choice; some are alike."""
    count = draw(st.integers(0, max_size))
    forms = st.lists(packing_options(), max_size=3).map(tuple)
    shared = st.sampled_from(draw(st.lists(forms, min_size=1, max_size=2)))
    return [PackingItem(f"i{at}", draw(forms | shared), draw(st.sampled_from(sections))) for at in range(count)]


@st.composite
def section_lists(draw: st.DrawFn, names: tuple[str, ...] = ("focus", "semantic", "activity")) -> list[Section]:
    """Sections with and without floors, caps and weights, some of them switched off."""
    return [
        Section(
            name=name,
            floor=draw(st.integers(0, 60)),
            cap=draw(st.none() | st.integers(0, 80)),
            weight=draw(st.sampled_from((0.0, 0.5, 1.0, 3.0))),
            enabled=draw(st.booleans() | st.just(True)),
        )
        for name in names
    ]
