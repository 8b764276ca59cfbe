"""Token counters by model name.

Exact counts for OpenAI's encodings and the local model, offline, and estimates on the high side for other models.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Any, cast
from unicodedata import is_normalized, normalize

from contexture.adapters.byte_pairs import load_openai_encoding
from contexture.errors import InvalidRequest
from contexture.ports import TokenCounter
from contexture.types import Message

TOKENS_PER_MESSAGE = 3
TOKENS_PER_NAME = 1
TOKENS_PER_CALL = 3
ANSWER_START_TOKENS = 3

# Cost of a 1,024 x 1,024 image at high detail; image bytes are never counted as text.
TOKENS_PER_IMAGE = 765

CountText = Callable[[str], int]


def count_framed_messages(messages: Sequence[Message], count: CountText) -> int:
    """Number of tokens of a whole prompt: every message with its role and name, and the start of the answer."""
    return ANSWER_START_TOKENS + sum(TOKENS_PER_MESSAGE + _count_message(message, count) for message in messages)


def _count_message(message: Message, count: CountText) -> int:
    name = message.get("name")
    return (
        count(str(message.get("role", "")))
        + _count_content(message.get("content"), count)
        + (TOKENS_PER_NAME + count(str(name)) if name else 0)
        + count(str(message.get("tool_call_id") or ""))
        + sum(
            TOKENS_PER_CALL + _count_part(call, count)
            for call in cast("Iterable[Any]", message.get("tool_calls") or ())
        )
    )


def _count_content(content: Any, count: CountText) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return count(content)
    if isinstance(content, Sequence):
        return sum(_count_part(part, count) for part in cast("Sequence[Any]", content))
    return count(_to_json(content))


def _count_part(part: Any, count: CountText) -> int:
    if isinstance(part, str):
        return count(part)
    if not isinstance(part, Mapping):
        return count(_to_json(part))
    fields = cast("Mapping[str, Any]", part)
    kind = str(fields.get("type", ""))
    if "image" in kind:
        return TOKENS_PER_IMAGE
    text = fields.get("text")
    return count(text) if isinstance(text, str) else count(_to_json(fields))


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


ENCODINGS = ("cl100k_base", "o200k_base")
LOCAL_MODEL_ENCODING = "smollm2"
LOCAL_TOKENS_PER_TURN = 3  # the start and the end of a turn, and the line break after it

# Ordinary prose needs fewer characters per token than this, so one window is usually enough.
WINDOW_CHARS_PER_TOKEN = 6

_MAX_CACHED_CHARS = 1_000
_MAX_CACHED_PARAGRAPH_CHARS = 8_000
_COUNT_CACHE_SIZE = 4_096

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class BytePairCounter:
    """Exact token counter for a byte-pair encoding; text that spells a special token counts as ordinary text.

    Lone surrogates count as the replacement character that a request would contain. The ranks ship inside a wheel and
    are loaded on first use.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._remembered = lru_cache(maxsize=_COUNT_CACHE_SIZE)(self._count)

    @property
    def encoding(self) -> str:
        """Name of the byte-pair encoding."""
        return self._encoding

    @property
    def exact(self) -> bool:
        """Always true."""
        return True

    def count(self, text: str) -> int:
        """Number of tokens of a text; counts of short texts are cached, because every turn counts the history again.

        Long texts are counted by paragraph and cached too: a prompt that does not fit is counted again with one
        paragraph less.
        """
        if len(text) <= _MAX_CACHED_CHARS:
            return self._remembered(text)
        parts = split_paragraphs(text)
        return sum(
            self._remembered(part) if len(part) <= _MAX_CACHED_PARAGRAPH_CHARS else self._count(part) for part in parts
        )

    def _count(self, text: str) -> int:
        bpe = load_openai_encoding(self._encoding)
        try:
            return bpe.count(text)
        except UnicodeEncodeError:
            return bpe.count(_replace_surrogates(text))

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Number of tokens of a chat with its roles, names and framing."""
        return count_framed_messages(messages, self.count)

    def prefix(self, text: str, limit: int) -> str:
        """Prefix with at most `limit` tokens that cannot be extended by one character.

        Time grows with `limit`, not with the length of the text.
        """
        if limit <= 0:
            return ""
        size = limit * WINDOW_CHARS_PER_TOKEN
        while self._fits(text[:size], limit):
            if size >= len(text):
                return text
            size *= 2
        return self._cut(text[:size], limit)

    def _fits(self, text: str, limit: int) -> bool:
        bpe = load_openai_encoding(self._encoding)
        try:
            return bpe.count_till_limit(text, limit) is not None
        except UnicodeEncodeError:
            return bpe.count(_replace_surrogates(text)) <= limit

    def _cut(self, window: str, limit: int) -> str:
        # A token boundary is nearly always right. If the cut changes how the last word splits, step by character.
        end = self._boundary(window, limit)
        while not self._fits(window[:end], limit):
            end -= 1
        while self._fits(window[: end + 1], limit):
            end += 1
        return window[:end]

    def _boundary(self, window: str, limit: int) -> int:
        bpe = load_openai_encoding(self._encoding)
        tokens = bpe.encode(LONE_SURROGATE.sub("\ufffd", window))
        for kept in range(limit, 0, -1):
            text = bpe.decode(tokens[:kept])
            if text is not None:
                return min(len(text), len(window) - 1)
        return 0


def split_paragraphs(text: str) -> Iterator[str]:
    """Split a text after each empty line that a word follows: no token spans such a boundary.

    No split before white space or a slash, because a token may span those.
    """
    start, at = 0, text.find("\n\n")
    while at >= 0:
        if not text[at + 2 : at + 3].isspace() and text[at + 2 : at + 3] not in ("", "/"):
            yield text[start : at + 2]
            start = at + 2
        at = text.find("\n\n", at + 1)
    yield text[start:]


def _replace_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, as encoding a request does."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


BEYOND_GREEK_AND_CYRILLIC = re.compile("[\u0590-\U0010ffff]")

PROPORTIONAL_STEPS = 6


class LocalModelCounter:
    """Exact token counter for the local model, by the tokenizer in its weights; raises `SourceUnavailable` without it.

    Text that spells a control token counts as ordinary text, and the model reads it as such.
    """

    def __init__(self) -> None:
        from contexture.adapters.llm import smollm2

        self._format_turn = smollm2.format_turn
        self._tokenizer = smollm2.load_tokenizer()
        self._answer_start = len(self._tokenizer.encode_chat(()))
        self._remembered = lru_cache(maxsize=_COUNT_CACHE_SIZE)(self._count)

    @property
    def encoding(self) -> str:
        """Name of the encoding."""
        return LOCAL_MODEL_ENCODING

    @property
    def exact(self) -> bool:
        """Always true."""
        return True

    @property
    def special_tokens(self) -> Sequence[str]:
        """The control tokens of the model."""
        return tuple(self._tokenizer.special)

    def count(self, text: str) -> int:
        """Number of tokens of a text; counts of short texts are cached."""
        return self._remembered(text) if len(text) <= _MAX_CACHED_PARAGRAPH_CHARS else self._count(text)

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Number of tokens of a chat in the template of the model; names and images are not part of it."""
        turns = sum(LOCAL_TOKENS_PER_TURN + self.count(turn) for turn in map(self._format_turn, messages))
        return turns + self._answer_start

    def prefix(self, text: str, limit: int) -> str:
        """Prefix with at most `limit` tokens that cannot be extended by one character."""
        if limit <= 0:
            return ""
        size = limit * WINDOW_CHARS_PER_TOKEN
        while self._count(text[:size]) <= limit:
            if size >= len(text):
                return text
            size *= 2
        end = self._tokenizer.find_boundary(LONE_SURROGATE.sub("\ufffd", text[:size]), limit)
        while self._count(text[:end]) > limit:
            end -= 1
        while self._count(text[: end + 1]) <= limit:
            end += 1
        return text[:end]

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class Margin:
    """Safety margin of an estimate over the count of the base tokenizer, which `factor` multiplies.

    `digit` is added per ASCII digit, which some tokenizers never join; `letter` per character of a script beyond Latin,
    Greek and Cyrillic; `sign` per symbol or emoji, on top of that; `byte` per UTF-8 byte beyond the first of each
    character; `fixed` once per text that is not empty.
    """

    factor: float
    digit: float = 0.0
    letter: float = 0.0
    sign: float = 0.0
    byte: float = 0.0
    fixed: int = 0
    capped: bool = True


class EstimatedCounter:
    """Token counter that adds a margin to the count of another tokenizer, so that a budget is not exceeded.

    Compatibility characters are counted in their NFKC form if that counts more, because some tokenizers expand them
    first. No capped estimate is above the number of UTF-8 bytes and the fixed part of the margin: no tokenizer that
    falls back to bytes counts more.
    """

    def __init__(self, encoding: str, base: TokenCounter, margin: Margin) -> None:
        self._encoding = encoding
        self._base = base
        self._margin = margin

    @property
    def encoding(self) -> str:
        """Name of this estimate; it changes when the margin does."""
        return self._encoding

    @property
    def exact(self) -> bool:
        """Always false."""
        return False

    def count(self, text: str) -> int:
        """Upper estimate of the tokens of a text; the margins were measured on other tokenizers."""
        if not text:
            return 0
        plain = self._with_margin(self._base.count(text), text)
        if text.isascii() or is_normalized("NFKC", text):
            return plain
        expanded = normalize("NFKC", text)
        return max(plain, self._with_margin(self._base.count(expanded), expanded))

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Estimated tokens of a chat with the framing of OpenAI's models, which is no shorter than that of others."""
        return count_framed_messages(messages, self.count)

    def prefix(self, text: str, limit: int) -> str:
        """Prefix with at most `limit` estimated tokens, and exactly `limit` if the search finds one."""
        if limit <= 0:
            return ""
        # An estimate is never below its base count, so the result lies within the base's prefix.
        window = self._base.prefix(text, limit)
        total = self.count(window)
        if total <= limit:
            return window
        return window[: self._cut(window, limit, len(window) * limit // total)]

    def _cut(self, window: str, limit: int, guess: int) -> int:
        fits, over = 0, len(window)
        used = steps = 0
        while over - fits > 1 and used < limit:
            middle = min(max(guess, fits + 1), over - 1)
            count = self.count(window[:middle])
            if count <= limit:
                fits, used = middle, count
            else:
                over = middle
            # Tokens are usually spread evenly enough for proportional steps; bisection bounds the other cases.
            steps += 1
            stride = middle * limit // count
            guess = stride if steps < PROPORTIONAL_STEPS and fits < stride < over else (fits + over) // 2
        return fits

    def _with_margin(self, tokens: int, text: str) -> int:
        margin, size = self._margin, len(text)
        estimate = tokens * margin.factor + len(_ASCII_DIGIT.findall(text)) * margin.digit
        if not text.isascii():
            size = len(text.encode("utf-8", "surrogatepass"))
            estimate += len(BEYOND_GREEK_AND_CYRILLIC.findall(text)) * margin.letter
            estimate += len(_SIGN.findall(text)) * margin.sign + (size - len(text)) * margin.byte
        whole = math.ceil(estimate)
        return (min(whole, max(tokens, size)) if margin.capped else whole) + margin.fixed


_ASCII_DIGIT = re.compile("[0-9]")
_SIGN = re.compile("[\u2010-\u2bff\U0001f000-\U0001fbff]")

# Margins over cl100k_base, one step above the smallest that keep digits, ideographs and emoji at or above every exact
# tokenizer here and Claude 2's, and every measured text (English, Russian, code, mixtures, awkward strings) at or above
# Claude 2's tokenizer, and at or above both that one and p50k_base.
# The first margins, which are not capped, count capsules that were built with them.
ESTIMATE_MARGINS = {
    "estimate-claude-2": Margin(factor=1.3, digit=0.6, letter=1.75, sign=0.7, fixed=1),
    "estimate-any-2": Margin(factor=1.4, digit=0.6, letter=0.3, sign=0.7, byte=0.7, fixed=8),
    "estimate-claude-1": Margin(factor=1.3, letter=0.4, fixed=1, capped=False),
    "estimate-any-1": Margin(factor=1.4, byte=0.7, fixed=8, capped=False),
}
_CURRENT_ESTIMATES = {"estimate-claude": "estimate-claude-2", "estimate-any": "estimate-any-2"}
_FIRST_COUNTERS = {
    "estimate-claude-2": "estimate-claude-1",
    "estimate-any-2": "estimate-any-1",
    LOCAL_MODEL_ENCODING: "estimate-any-1",
}
ESTIMATE_BASE_ENCODING = "cl100k_base"
UNKNOWN_MODEL_ENCODING = "estimate-any-2"

# The first pattern that matches one part of `provider/model` or `provider:model` decides.
MODEL_ENCODINGS = (
    ("gpt-5*", "o200k_base"),
    ("gpt-4o*", "o200k_base"),
    ("gpt-4.1*", "o200k_base"),
    ("gpt-4.5*", "o200k_base"),
    ("gpt-oss*", "o200k_base"),
    ("chatgpt-4o*", "o200k_base"),
    ("o[134]", "o200k_base"),
    ("o[134]-*", "o200k_base"),
    ("gpt-4", "cl100k_base"),
    ("gpt-4-*", "cl100k_base"),
    ("gpt-3.5*", "cl100k_base"),
    ("gpt-35*", "cl100k_base"),
    ("text-embedding-3*", "cl100k_base"),
    ("text-embedding-ada-002", "cl100k_base"),
    ("local", LOCAL_MODEL_ENCODING),
    ("smollm2-135m*", LOCAL_MODEL_ENCODING),
    ("*claude-*", "estimate-claude-2"),
    ("gemini-*", "estimate-claude-2"),
)


def counter_for(model_or_encoding: str) -> TokenCounter:
    """Token counter for a model, with or without its provider, or for an encoding name.

    Unknown names get an estimate with a wide margin, whose `exact` is False. Raises `InvalidRequest` for an empty name.
    """
    return _make_counter(_resolve_encoding(model_or_encoding))


def _resolve_encoding(model_or_encoding: str) -> str:
    name = model_or_encoding.strip().lower()
    parts = [part for part in re.split("[/:]", name) if part]
    if not parts or name.endswith(("/", ":")):
        raise InvalidRequest(f"{model_or_encoding!r} is not a model name; use one such as 'gpt-5' or 'openai/gpt-4o'")
    name = _CURRENT_ESTIMATES.get(name, name)
    return name if _is_encoding(name) else _find_encoding(parts)


def counter_of_build(model: str, encoding: str | None) -> TokenCounter:
    """Token counter that a build for this model used; None for a build of a time when its encoding was not stored."""
    if encoding is not None:
        return _make_counter(encoding) if _is_encoding(encoding) else counter_for(model)
    found = _resolve_encoding(model)
    return _make_counter(_FIRST_COUNTERS.get(found, found))


def _is_encoding(name: str) -> bool:
    return name in ENCODINGS or name in ESTIMATE_MARGINS or name == LOCAL_MODEL_ENCODING


def _find_encoding(parts: list[str]) -> str:
    return next(
        (encoding for pattern, encoding in MODEL_ENCODINGS if any(fnmatchcase(part, pattern) for part in parts)),
        UNKNOWN_MODEL_ENCODING,
    )


@cache
def _make_counter(encoding: str) -> TokenCounter:
    if encoding in ENCODINGS:
        return BytePairCounter(encoding)
    if encoding == LOCAL_MODEL_ENCODING:
        return LocalModelCounter()
    return EstimatedCounter(encoding, BytePairCounter(ESTIMATE_BASE_ENCODING), ESTIMATE_MARGINS[encoding])
