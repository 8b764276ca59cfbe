"""The contract of a token counter as a test class: subclass it, provide a `counter` fixture, inherit the tests."""
# ruff: noqa: S101 - a conformance suite asserts

import pytest

from contexture.ports import TokenCounter

TEXTS = (
    "The ferry to the island leaves at nine.\n" * 20,
    "Паром на остров отходит в девять. " * 20,
    "渡轮九点出发去岛上。" * 20,
    "👩‍👩‍👧 🏳️‍🌈 😀 " * 20,
    "def depart(at: int) -> None:\n    return None\n" * 20,
    "<|endoftext|> and \x00 and \ud800 " * 20,
)


class TokenCounterConformance:
    """What every token counter promises."""

    def test_the_empty_text_has_no_tokens(self, counter: TokenCounter) -> None:
        """The empty text has no tokens."""
        assert counter.count("") == 0

    @pytest.mark.parametrize("text", TEXTS)
    def test_every_text_can_be_counted(self, counter: TokenCounter, text: str) -> None:
        """No text is refused, special tokens count as ordinary text, and equal texts count alike."""
        assert counter.count(text) == counter.count(text) > 0

    @pytest.mark.parametrize("text", TEXTS)
    @pytest.mark.parametrize("limit", [0, 1, 2, 17, 100, 100_000])
    def test_a_prefix_fits(self, counter: TokenCounter, text: str, limit: int) -> None:
        """A prefix is a beginning of the text, within the limit, and all of it when all of it fits."""
        prefix = counter.prefix(text, limit)

        assert text.startswith(prefix)
        assert counter.count(prefix) <= limit
        assert prefix == text or counter.count(text) > limit

    @pytest.mark.parametrize("text", TEXTS)
    def test_a_prefix_is_not_shorter_than_needed(self, counter: TokenCounter, text: str) -> None:
        """A prefix of half the tokens uses at least a quarter of them."""
        half = counter.count(text) // 2

        assert counter.count(counter.prefix(text, half)) >= half // 2

    def test_framing_is_counted(self, counter: TokenCounter) -> None:
        """A prompt counts at least its contents, and every further message adds to it."""
        messages = [{"role": "user", "content": text} for text in TEXTS]
        totals = [counter.count_messages(messages[:size]) for size in range(len(messages) + 1)]

        assert totals == sorted(set(totals))
        assert totals[-1] >= sum(map(counter.count, TEXTS))
