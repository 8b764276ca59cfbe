"""Pieces and nodes of anyone's making, fitted into a budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from contexture.adapters.token_counters import counter_for
from contexture.errors import InvalidRequest
from contexture.integrations.llamaindex import ContexturePostprocessor, ScoredText, TextPacker
from contexture.ledger import State

COUNTER = counter_for("gpt-4o")
LONG = "The valve was mended in May. " + " ".join(f"Then the {n}th gauge was read and noted down." for n in range(30))
WALL = "pump " * 300
PACKINGS = {limit: TextPacker(max_tokens=limit) for limit in (1, 20, 100)}


def nodes(*rows):
    """Nodes with ids a, b, c; each row is a text and a score."""
    return [
        NodeWithScore(node=TextNode(id_=name, text=text, metadata={"who": "anna@example.org"}), score=score)
        for name, (text, score) in zip("abc", rows, strict=False)
    ]


@given(
    st.sampled_from(sorted(PACKINGS)),
    st.lists(st.tuples(st.text(max_size=200), st.floats(0, 1)), max_size=6),
)
def test_what_is_packed_fits(limit, rows):
    """Joined by blank lines, the texts never cost more than the budget, and every piece has its verdict."""
    pieces = [ScoredText(id=str(at), text=text, score=score) for at, (text, score) in enumerate(rows)]
    packed = PACKINGS[limit].pack("who?", pieces)

    assert COUNTER.count("\n\n".join(piece.text for piece in packed.pieces)) == packed.tokens <= limit
    assert {entry.id for entry in packed.ledger.entries} == {piece.id for piece in pieces}


def test_a_long_node_gives_way_to_its_best_sentences():
    """What does not fit whole is shown as an extract that answers the question."""
    shown = ContexturePostprocessor(max_tokens=50).postprocess_nodes(nodes((LONG, 0.9)), query_str="valve mended")

    assert "The valve was mended in May." in shown[0].node.text
    assert COUNTER.count(shown[0].node.text) <= 50 < COUNTER.count(LONG)


def test_a_large_node_does_not_keep_smaller_ones_out():
    """What fits is shown, whatever came before it."""
    shown = ContexturePostprocessor(max_tokens=20).postprocess_nodes(nodes((WALL, 0.9), ("The pump leaks.", 0.2)))

    assert ["b"] == [each.node.node_id for each in shown]


def test_nodes_are_redacted_and_copies_dropped():
    """Personal data is hidden, a copy of a better node is left out, and what was given stays as it was."""
    before = nodes(("Mail anna@example.org about the pump.", 0.5), ("Mail anna@example.org about the pump.", 0.9))
    shown = ContexturePostprocessor(max_tokens=100).postprocess_nodes(before)

    assert [("b", "Mail <EMAIL_1> about the pump.", 0.9)] == [
        (each.node.node_id, each.node.get_content(metadata_mode=MetadataMode.LLM), each.score) for each in shown
    ]
    assert before[1].node.text == "Mail anna@example.org about the pump."


def test_nodes_that_were_redacted_before_stay_as_they_are():
    """Going through the postprocessor twice changes nothing, and a new value gets a placeholder of its own."""
    fit = ContexturePostprocessor(max_tokens=100)
    once = fit.postprocess_nodes(nodes(("Mail boris@example.org today.", 0.9), ("Ask <EMAIL_1> about it.", 0.5)))
    twice = fit.postprocess_nodes(once)

    assert ["Mail <EMAIL_2> today.", "Ask <EMAIL_1> about it."] == [each.node.text for each in once]
    assert [each.node.text for each in once] == [each.node.text for each in twice]


def test_scores_of_any_scale_order_the_nodes():
    """Scores beyond 1 are compared with the best; a node without one stands in the middle."""
    rows = (("The pump leaks.", 3.0), ("The valve is new.", 12.0), ("A gauge was read.", None))
    shown = ContexturePostprocessor(max_tokens=100).postprocess_nodes(nodes(*rows))

    assert ["b", "c", "a"] == [each.node.node_id for each in shown]


def test_two_nodes_of_one_id_are_refused():
    """They could not be told apart in the ledger."""
    twice = nodes(("x", 1.0)) * 2

    with pytest.raises(InvalidRequest, match="two nodes have the same id"):
        ContexturePostprocessor(max_tokens=10).postprocess_nodes(twice)


def test_the_ledger_says_why_a_piece_is_missing():
    """A piece that does not fit is dropped, and one that does is kept."""
    packed = PACKINGS[20].pack(
        "", [ScoredText(id="long", text=WALL, score=1.0), ScoredText(id="short", text="Yes.", score=0.1)]
    )

    assert {"long": State.DROPPED, "short": State.KEPT} == {entry.id: entry.state for entry in packed.ledger.entries}
