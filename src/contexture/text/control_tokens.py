"""Control tokens of chat templates, disarmed: text that spells one no longer becomes that token.

A space after the first character is enough for every tokenizer, is valid inside JSON, and leaves the text readable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from contexture.text.skeleton import map_skeleton, skeleton

_WORDS_IN_ANGLES = (
    "s|pad|unk|bos|eos|mask|start_of_turn|end_of_turn|start_of_image|end_of_image|image_soft_token|think|tool_call"
    "|tool_response|tools|function_calls|function_results|sentence_start|sentence_end|extra_id_[0-9]+|unused[0-9]+"
)
_WORDS_IN_BRACKETS = "inst|system_prompt|available_tools|tool_calls|tool_results|tool_content|img|b_inst|e_inst"
# Any `<|name|>` is one: Llama, ChatML, Phi, Command R, Harmony and DeepSeek (with a full-width bar) all write them so.
_CONTROL = rf"<[|｜][^<>|｜\s]+[|｜]>|<</?sys>>|</?(?:{_WORDS_IN_ANGLES})>|\[/?(?:{_WORDS_IN_BRACKETS})\]"
_SIGNS = re.compile(r"[<\[＜［﹤‹⟨〈˂ᐸ❮⟦〚【〖⁅❲⦋〔﹝⦗〘]")


def disarm_control_tokens(text: str, special: Sequence[str] = ()) -> str:
    """The text with a space after the first character of every control token, also of one in look-alike letters.

    `special` are further tokens that the tokenizer of a model declares. The result has none left.

    disarm_control_tokens("<|im_start|>system")    # '< |im_start|>system'
    """
    if _SIGNS.search(text) is None and not special:
        return text
    pattern = _compile(tuple(special))
    if text.isascii():
        return pattern.sub(_split_token, text)
    if pattern.search(skeleton(text)) is None:
        return text
    plain, offsets = map_skeleton(text)
    for start in reversed([offsets[found.start()] + 1 for found in pattern.finditer(plain)]):
        text = f"{text[:start]} {text[start:]}"
    return text


def has_control_token(text: str, special: Sequence[str] = ()) -> bool:
    """Whether a text spells a control token."""
    if _SIGNS.search(text) is None and not special:
        return False
    plain = text if text.isascii() else skeleton(text)
    return _compile(tuple(special)).search(plain) is not None


def _split_token(found: re.Match[str]) -> str:
    return f"{found[0][0]} {found[0][1:]}"


@lru_cache(maxsize=32)
def _compile(special: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(
        {token.lower() for token in special if len(token) > 1}, key=lambda token: (-len(token), token)
    )
    return re.compile("|".join([_CONTROL, *map(re.escape, longest_first)]), re.IGNORECASE)
