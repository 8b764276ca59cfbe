"""Token counters: which model gets which, exactness on known texts, and chat framing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contexture.adapters.token_counters import TOKENS_PER_IMAGE, BytePairCounter, counter_for
from contexture.errors import InvalidRequest
from contexture.testing.tokens import TokenCounterConformance

CONTENT = "Which ferry leaves first?"


class TestCl100k(TokenCounterConformance):
    """The encoding of gpt-4 keeps the contract."""

    @pytest.fixture
    def counter(self):
        """The exact counter."""
        return counter_for("cl100k_base")


class TestO200k(TokenCounterConformance):
    """The encoding of gpt-5 keeps the contract."""

    @pytest.fixture
    def counter(self):
        """The exact counter."""
        return counter_for("o200k_base")


class TestClaudeEstimate(TokenCounterConformance):
    """The estimate for Claude and Gemini keeps the contract."""

    @pytest.fixture
    def counter(self):
        """The estimate."""
        return counter_for("claude-sonnet-4-5")


class TestUnknownEstimate(TokenCounterConformance):
    """The estimate for unknown models keeps the contract."""

    @pytest.fixture
    def counter(self):
        """The estimate."""
        return counter_for("somebody/some-model")


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-5", "o200k_base"),
        ("gpt-5.1-mini", "o200k_base"),
        ("GPT-4o-2024-08-06", "o200k_base"),
        ("openai/gpt-4.1-nano", "o200k_base"),
        ("openai:o3-mini", "o200k_base"),
        ("o1", "o200k_base"),
        ("azure/east/gpt-4-turbo", "cl100k_base"),
        ("gpt-4", "cl100k_base"),
        ("ft:gpt-3.5-turbo:acme::abc", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("anthropic/claude-opus-4-5", "estimate-claude-2"),
        ("bedrock/us.anthropic.claude-3-5-sonnet-20240620-v1:0", "estimate-claude-2"),
        ("gemini-2.5-pro", "estimate-claude-2"),
        ("llama3:8b", "estimate-any-2"),
        ("o100-unknown", "estimate-any-2"),
        ("o200k_base", "o200k_base"),
        ("estimate-any", "estimate-any-2"),
        ("local", "smollm2"),
        ("smollm2-135m-instruct", "smollm2"),
    ],
)
def test_a_model_is_measured_by_its_encoding(model: str, encoding: str) -> None:
    """A name, with or without its provider, leads to one encoding; estimates say that they are."""
    counter = counter_for(model)

    assert encoding == counter.encoding
    assert counter.exact == (not encoding.startswith("estimate"))


@pytest.mark.parametrize("name", ["", "  ", "openai/", "openai:", ":"])
def test_a_name_without_a_model_is_refused(name: str) -> None:
    """An empty name is the caller's mistake, not an unknown model."""
    with pytest.raises(InvalidRequest, match="is not a model name"):
        counter_for(name)


@pytest.mark.parametrize(
    ("text", "cl100k", "o200k"),
    [
        ("Hello, world!", 4, 4),
        ("Привет, мир!", 7, 5),
        ("<|endoftext|>", 7, 7),
        ("a\x00b", 3, 3),
        ("\ud800", 1, 1),
        ("\ud83d\ude00", 2, 1),
        (" " * 80, 1, 2),
    ],
)
def test_known_texts_count_exactly(text: str, cl100k: int, o200k: int) -> None:
    """Counts equal the published encodings', also for special tokens, NUL and lone surrogates."""
    assert (cl100k, o200k) == (counter_for("cl100k_base").count(text), counter_for("o200k_base").count(text))


@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base"])
def test_counts_are_the_true_ones_on_every_evaluation_text(eval_data: Path, encoding: str) -> None:
    """Not one of the texts with known counts is off by one."""
    rows = _token_truth(eval_data)
    counter = counter_for(encoding)

    assert [row[encoding] for row in rows] == [counter.count(row["text"]) for row in rows]


@pytest.mark.parametrize(
    ("estimate", "tokenizers", "tightness"),
    [("estimate-claude", ["claude2"], 1.35), ("estimate-any", ["claude2", "p50k_base"], 1.4)],
)
def test_estimates_err_upwards_but_not_far(
    eval_data: Path, estimate: str, tokenizers: list[str], tightness: float
) -> None:
    """On every text an estimate is at least the true count, and in sum it stays near it."""
    rows = _token_truth(eval_data)
    truth = [max(row[name] for name in tokenizers) for row in rows]
    counts = [counter_for(estimate).count(row["text"]) for row in rows]

    assert [row["id"] for row, count, least in zip(rows, counts, truth, strict=True) if count < least] == []
    assert sum(counts) <= tightness * sum(truth)


def test_a_message_costs_its_role_content_and_framing() -> None:
    """Three tokens a message, one for a name, and three to start the answer."""
    counter = counter_for("gpt-4o")
    plain = counter.count_messages([{"role": "user", "content": CONTENT}])
    named = counter.count_messages([{"role": "user", "content": CONTENT, "name": "anna"}])

    assert 3 == counter.count_messages([])
    assert 3 + 3 + 1 + counter.count(CONTENT) == plain
    assert plain + 1 + counter.count("anna") == named


def test_parts_count_by_what_they_hold() -> None:
    """Text parts count as their text, pictures as a fixed sum whatever their bytes, the rest as JSON."""
    counter = counter_for("gpt-4o")

    def cost(*parts: object) -> int:
        return counter.count_messages([{"role": "user", "content": list(parts)}]) - 7

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    assert counter.count(CONTENT) == cost({"type": "text", "text": CONTENT}) == cost(CONTENT)
    assert TOKENS_PER_IMAGE == cost(picture)
    assert cost({"type": "input_audio", "id": "a"}) >= counter.count("input_audio")
    assert cost(7) > 0
    assert counter.count_messages([{"role": "user", "content": {"a": 1}}]) > 7


def test_tool_calls_and_their_results_count() -> None:
    """A call's name and arguments are charged, and so is the id its result carries."""
    counter = counter_for("gpt-4o")
    arguments = json.dumps({"from": "harbour", "to": "island"})
    call = {"id": "call_1", "type": "function", "function": {"name": "ferries", "arguments": arguments}}
    silent = counter.count_messages([{"role": "assistant", "content": None}])
    calling = counter.count_messages([{"role": "assistant", "content": None, "tool_calls": [call]}])
    result = counter.count_messages([{"role": "tool", "content": "nine", "tool_call_id": "call_1"}])

    assert calling - silent >= counter.count(arguments) + counter.count("ferries")
    assert result > counter.count_messages([{"role": "tool", "content": "nine"}])


def test_a_prefix_reads_no_further_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting a long text counts only a beginning of it."""
    counter = BytePairCounter("o200k_base")
    seen: list[int] = []
    fits = BytePairCounter._fits
    monkeypatch.setattr(
        BytePairCounter, "_fits", lambda self, text, limit: seen.append(len(text)) or fits(self, text, limit)
    )
    text = "The ferry to the island leaves at nine. " * 50_000

    assert 100 == counter.count(counter.prefix(text, 100))
    assert 0 < sum(seen) < 10_000


def _token_truth(folder: Path) -> list[dict]:
    with (folder / "token-truth" / "samples.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
