"""Prepares texts that no tokenizer may refuse."""

from __future__ import annotations


def encodable(text: str) -> str:
    """The text with lone surrogates replaced by `?`, as UTF-8 cannot hold them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def head(text: str, characters: int) -> str:
    """At most so many leading characters, cut at white space when there is any in the last tenth."""
    if len(text) <= characters:
        return text
    cut = text[:characters]
    edge = max(cut.rfind(" "), cut.rfind("\n"))
    return cut[:edge] if edge >= characters * 9 // 10 else cut
