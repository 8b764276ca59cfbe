"""Finds the lines of an article that are not part of its story: datelines, notes, bylines, captions, teasers and more.

`find_boilerplate` returns their offsets, so that the stored text stays whole. The rules are data; `RepeatedLines` adds
lines that a source repeats in unrelated articles.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from contexture.news._boilerplate_rules import (
    ENGLISH_RULES,
    RUSSIAN_RULES,
    SENTENCE_HINTS,
    BoilerplateKind,
    BoilerplateRule,
    RuleScope,
)
from contexture.text.segmentation import TextRange, split_sentences
from contexture.text.terms import extract_terms

_PREFIX_LINES = 4  # lines with text that may begin with a dateline
_LINE_BREAK = re.compile(r"\n")
_TERMINALS = ".!?…。！？"
_CLOSING_MARKS = "\"'»”’)]*"
_MIN_SENTENCE_WORDS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class BoilerplateSpan:
    """Characters `start` to `end` of a text that are boilerplate, and of which kind."""

    start: int
    end: int
    kind: BoilerplateKind


def find_boilerplate(text: str, *, is_repeated: Callable[[str], bool] | None = None) -> tuple[BoilerplateSpan, ...]:
    """The boilerplate of an article's text, in order, never overlapping; everything else is the story.

    `is_repeated` says whether the source repeats a line in unrelated articles.
    """
    found: list[BoilerplateSpan] = []
    seen, story = 0, False
    for start, end in _iter_lines(text):
        line = text[start:end]
        if is_repeated is not None and is_repeated(line):
            found.append(BoilerplateSpan(start=start, end=end, kind=BoilerplateKind.REPEATED))
            continue
        spans = list(_mark_line(text, start, end, head=not story, prefixed=seen < _PREFIX_LINES))
        found += spans
        left = end - start - sum(span.end - span.start for span in spans)
        seen += bool(left)
        story = story or (left > 0 and is_sentence(text[spans[-1].end if spans else start : end]))
    return tuple(found)


def is_sentence(text: str) -> bool:
    """Whether a text reads as a sentence and not as a heading, a name or a label: it ends as one and has some words."""
    bare = text.strip().rstrip(_CLOSING_MARKS)
    return bare.endswith(tuple(_TERMINALS)) and len(bare.split()) >= _MIN_SENTENCE_WORDS


def _iter_lines(text: str) -> Iterator[TextRange]:
    """Offsets of the lines that have text, trimmed."""
    start = 0
    for stop in [*(found.start() for found in _LINE_BREAK.finditer(text)), len(text)]:
        line = text[start:stop]
        bare = line.strip()
        if bare:
            begin = start + len(line) - len(line.lstrip())
            yield begin, begin + len(bare)
        start = stop + 1


def _mark_line(text: str, start: int, end: int, *, head: bool, prefixed: bool) -> Iterator[BoilerplateSpan]:
    kind = _match_whole_line(text, start, end, head=head)
    if kind is not None:
        yield BoilerplateSpan(start=start, end=end, kind=kind)
        return
    if prefixed:
        for rule in _rules_of(RuleScope.PREFIX, text[start:end]):
            found = rule.pattern.match(text, start, end)
            if found and found.end() > start:
                yield BoilerplateSpan(start=start, end=found.end(), kind=rule.kind)
                start = found.end()
                break
    yield from _mark_sentences(text, start, end)


def _match_whole_line(text: str, start: int, end: int, *, head: bool) -> BoilerplateKind | None:
    for rule in _rules_of(_LINE_SCOPES, text[start:end]):
        if end - start > rule.longest:
            continue
        if rule.scope is RuleScope.LINE:
            matched = rule.pattern.match(text, start, end)
        elif rule.scope is RuleScope.HEAD_LINE and not head:
            matched = None
        else:
            matched = rule.pattern.fullmatch(text, start, end)
        if matched:
            return rule.kind
    return None


def _mark_sentences(text: str, start: int, end: int) -> Iterator[BoilerplateSpan]:
    line = text[start:end]
    lowered = line.lower()
    if not any(hint in lowered for hint in SENTENCE_HINTS):
        return
    open_end: BoilerplateSpan | None = None  # grows with the sentences of its kind that follow it
    for first, last in split_sentences(line):
        sentence = line[first:last]
        kind = next(
            (
                rule.kind
                for rule in _rules_of(RuleScope.SENTENCE, sentence)
                if len(sentence) <= rule.longest and rule.pattern.search(sentence)
            ),
            None,
        )
        if kind is not None and open_end is not None and kind == open_end.kind:
            open_end = replace(open_end, end=start + last)
        else:
            if open_end is not None:
                yield open_end
            open_end = None if kind is None else BoilerplateSpan(start=start + first, end=start + last, kind=kind)
    if open_end is not None:
        yield open_end


_CYRILLIC = re.compile(r"[А-Яа-яЁё]")
_LINE_SCOPES = "lines"


def _group_rules(rules: Sequence[BoilerplateRule]) -> dict[str, tuple[BoilerplateRule, ...]]:
    found: dict[str, tuple[BoilerplateRule, ...]] = {
        scope: tuple(rule for rule in rules if rule.scope is scope) for scope in RuleScope
    }
    apart = (RuleScope.PREFIX, RuleScope.SENTENCE)
    return {**found, _LINE_SCOPES: tuple(rule for rule in rules if rule.scope not in apart)}


_ENGLISH_BY_SCOPE, _ALL_BY_SCOPE = _group_rules(ENGLISH_RULES), _group_rules((*RUSSIAN_RULES, *ENGLISH_RULES))


def _rules_of(scope: str, text: str) -> tuple[BoilerplateRule, ...]:
    """The rules of a scope; those for Russian only for a text with Cyrillic letters."""
    return (_ALL_BY_SCOPE if _CYRILLIC.search(text) else _ENGLISH_BY_SCOPE)[scope]


_MIN_HOLDERS = 4  # unrelated articles of one source that repeat a line before it counts as boilerplate
_MIN_HOLDERS_OF_LONG_LINES = 8  # background paragraphs are long, and repeated too
_LONG_LINE_CHARS = 160
_LIST_NUMBER = re.compile(r"\d+[.)]\s")
_MIN_LINE_CHARS = 8
_MAX_LINE_CHARS = 600
_MAX_LINES = 20_000  # lines remembered for each source


def _line_key(line: str) -> bytes:
    return blake2b(" ".join(line.casefold().split()).encode("utf-8", "surrogatepass"), digest_size=8).digest()


@dataclass(slots=True)
class RepeatedLines:
    """Lines of one source's articles, by hash, and the articles that hold them.

    A line is repeated once at least four articles with different titles hold it and it shares no word with most of
    their titles: background paragraphs, which a source repeats too, speak of what their articles are about.
    """

    _holders: OrderedDict[bytes, dict[str, frozenset[int]]] = field(
        default_factory=OrderedDict[bytes, dict[str, frozenset[int]]]
    )
    _repeated: set[bytes] = field(default_factory=set[bytes])

    def __contains__(self, line: object) -> bool:
        return isinstance(line, str) and _line_key(line) in self._repeated

    def learn(self, article_id: str, title: str, text: str, ignored: Collection[int] = ()) -> frozenset[str]:
        """Add the lines of an article; returns the ids of earlier articles with a line that is now repeated.

        `ignored` are terms that say nothing about a title, such as the name of the source.
        """
        terms = frozenset(extract_terms(title)) - frozenset(ignored)
        changed: set[str] = set()
        for line in {text[start:end] for start, end in _iter_lines(text)}:
            if _MIN_LINE_CHARS <= len(line) <= _MAX_LINE_CHARS and not _LIST_NUMBER.match(line):
                changed |= self._add_line(line, article_id, terms)
        while len(self._holders) > _MAX_LINES:
            self._holders.popitem(last=False)
        return frozenset(changed - {article_id})

    def _add_line(self, line: str, article_id: str, title: frozenset[int]) -> set[str]:
        key = _line_key(line)
        if key in self._repeated:
            return set()
        holders = self._holders.setdefault(key, {})
        if any(_is_same_subject(title, other) for name, other in holders.items() if name != article_id):
            return set()
        holders[article_id] = title
        if len(holders) < (_MIN_HOLDERS if len(line) < _LONG_LINE_CHARS else _MIN_HOLDERS_OF_LONG_LINES):
            return set()
        said = frozenset(extract_terms(line))
        strangers = sum(said.isdisjoint(each) for each in holders.values())
        if strangers * 4 < len(holders) * 3:
            return set()
        self._repeated.add(key)
        return set(self._holders.pop(key))


def _is_same_subject(one: frozenset[int], other: frozenset[int]) -> bool:
    return not one or not other or len(one & other) * 2 >= min(len(one), len(other))
