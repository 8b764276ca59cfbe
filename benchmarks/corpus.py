"""A made-up corpus of any size: the same for the same seed, made in blocks, never held as a whole.

Every record is about one of 2,000 topics: its title opens with the topic's name, and a third of its words belong to
the topic. One record in ten is Russian, one in twenty belongs to another tenant, and one in twenty to another user.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from benchmarks.lexicon import TOPICS, WORDS, Lexicon, Places, lexicon
from msgspec.structs import replace

from contexture.types import PUBLIC, FieldType, Record, Scope

BLOCK = 1_000
SCOPE = Scope(tenant="bench", user="reader", groups=("staff",))
ELSEWHERE = Scope(tenant="elsewhere", user="stranger")
FIELDS = {"tags": FieldType.KEYWORD, "rating": FieldType.NUMBER}

_RECORD_WORDS = 60
_SENTENCE = 12
_TOPIC_SHARE = 0.3
_TOPIC_WORDS = 40
_RUSSIAN = 0.1
_FIRST = datetime(2020, 1, 1, tzinfo=UTC)
_MINUTES = 6 * 365 * 24 * 60
# Who may read a record, and from which share of the records on; the last two are hidden from SCOPE.
_READERS = (
    (0.00, (PUBLIC,)),
    (0.65, ("group:staff", "group:board")),
    (0.85, ("user:reader",)),
    (0.90, ("user:stranger",)),
    (0.95, ()),
)


@dataclass(frozen=True, slots=True)
class Owned:
    """A record and the scope on whose behalf it is written."""

    scope: Scope
    record: Record


def records(count: int, *, seed: int = 0) -> Iterator[list[Owned]]:
    """The first `count` records, block by block."""
    for first in range(0, count, BLOCK):
        yield _block(first, seed)[: count - first]


def questions(count: int, *, seed: int) -> list[str]:
    """English questions about one topic each; another seed asks other questions."""
    draw = np.random.default_rng([seed, 1])
    words = lexicon("en")
    asked: list[str] = []
    for topic in draw.integers(TOPICS, size=count).tolist():
        places = [*_of_topic(words, np.full(2, topic), draw.integers(_TOPIC_WORDS, size=2)), *_content(words, draw, 2)]
        first, second, third, fourth = (words.words[int(place)] for place in places)
        asked.append(f"how does the {words.names[topic]} {first} {third} and {second} in {fourth}?")
    return asked


def warm_up(asked: int) -> list[str]:
    """Questions to ask before `asked` measured ones, which are other questions."""
    return questions(max(5, asked // 6), seed=1)


def _block(first: int, seed: int) -> list[Owned]:
    draw = np.random.default_rng([seed, 0, first])
    topics = draw.integers(TOPICS, size=BLOCK)
    russian = draw.random(BLOCK) < _RUSSIAN
    readers = draw.random(BLOCK)
    minutes = draw.integers(_MINUTES, size=BLOCK)
    places = {lang: _places(lexicon(lang), topics, draw) for lang in ("en", "ru")}
    found: list[Owned] = []
    for at, topic in enumerate(topics.tolist()):
        lang = "ru" if russian[at] else "en"
        acl = next(acl for share, acl in reversed(_READERS) if readers[at] >= share)
        time = _FIRST + timedelta(minutes=int(minutes[at]))
        record = _record(first + at, topic, lang, places[lang][at].tolist())
        found.append(Owned(SCOPE if acl else ELSEWHERE, replace(record, acl=acl or (PUBLIC,), time=time)))
    return found


def _record(number: int, topic: int, lang: str, places: list[int]) -> Record:
    words = [lexicon(lang).words[place] for place in places]
    return Record(
        id=f"r{number:08d}",
        text=_prose(words),
        acl=(),
        title=f"{lexicon(lang).names[topic]} {' '.join(words[:3])}".capitalize(),
        kind="article",
        lang=lang,
        source=f"source-{topic % 20:02d}",
        payload={"tags": [f"tag-{topic % 50}", f"tag-{number % 7}"], "rating": topic % 5},
    )


def _places(words: Lexicon, topics: Places, draw: np.random.Generator) -> Places:
    """Which words each record of a block is made of."""
    shape = (len(topics), _RECORD_WORDS)
    general = words.drawn(draw, shape)
    own = _of_topic(words, topics[:, None], draw.integers(_TOPIC_WORDS, size=shape))
    return np.where(draw.random(shape) < _TOPIC_SHARE, own, general)


def _of_topic(words: Lexicon, topics: Places, numbers: Places) -> Places:
    """Content words of topics, spread over the whole vocabulary; topics share them."""
    return words.functions + (topics * 7_919 + numbers * 104_729) % WORDS


def _content(words: Lexicon, draw: np.random.Generator, count: int) -> Places:
    """Content words as frequent as in the records, function words left out."""
    found = words.drawn(draw, (20 * count,))
    return found[found >= words.functions][:count]


def _prose(words: list[str]) -> str:
    sentences = (" ".join(words[at : at + _SENTENCE]) for at in range(0, len(words), _SENTENCE))
    return " ".join(f"{sentence.capitalize()}." for sentence in sentences)
