"""The sentences that answer a question best, each saying something of its own."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.answer.commands.decompose import subject_of
from contexture.answer.commands.likeness import Likeness
from contexture.answer.commands.reading import Reading, Sentence, all_sentences

_CLOSE = 0.5  # how much worse than the best a sentence may be and still be chosen
_SAME = 0.8  # likeness at which a sentence repeats another
_LEAD = 0.1  # what the first sentence of an article is worth for being first
_COVERED = 0.75


def chosen(readings: Sequence[Reading], question: str, most: int) -> list[Sentence]:
    """At most `most` sentences that match, best first; questions are no answers, and nothing is said twice.

    Where no word matches, as across languages, the articles' first sentences stand for them.
    """
    pool = all_sentences(readings)
    like = Likeness(pool)
    wanted = subject_of(question)
    scores = {each.place: _score(each, wanted, like) for each in pool if not each.text.endswith(("?", "？"))}
    best = max(scores.values(), default=0.0)
    if not best:
        return [reading.sentences[0] for reading in readings if reading.sentences][:most]
    close = [each for each in pool if scores.get(each.place, 0.0) >= max(best * _CLOSE, 1e-9)]
    return distinct(sorted(close, key=lambda each: (-scores[each.place], each.place)), like, most)


def distinct(found: Sequence[Sentence], like: Likeness, most: int) -> list[Sentence]:
    """The first `most` of which none repeats one before it."""
    kept: list[Sentence] = []
    for sentence in found:
        if len(kept) == most:
            break
        if all(like(sentence, other) < _SAME for other in kept):
            kept.append(sentence)
    return kept


def covered(found: Sequence[Sentence], question: str, share: float = _COVERED) -> bool:
    """Whether these sentences, taken together, speak of this share of what the question names.

    Where it names nothing, any sentence will do.
    """
    wanted = subject_of(question)
    said = wanted & frozenset[int]().union(*(sentence.terms for sentence in found))
    return bool(found) and len(said) >= share * len(wanted)


def _score(sentence: Sentence, wanted: frozenset[int], like: Likeness) -> float:
    matched = like.worth(sentence.terms & wanted)
    return matched * (1 + _LEAD * sentence.lead) if matched else 0.0
