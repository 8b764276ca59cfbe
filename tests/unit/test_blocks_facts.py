"""Facts about blocks: what is computed when they are written, and when it is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from contexture.adapters.token_counters import counter_for
from contexture.blocks.records import FactsComputer, current_facts
from contexture.testing.blocks_tree import make_block, make_page
from contexture.testing.doubles import FailingRedactor, WordRedactor
from contexture.types import Span, content_hash
from contexture.workspace import SUMMARY_BLOCKS, Block, BlockFacts, BlockType, StaleBlock

COUNTERS = (counter_for("o200k_base"), counter_for("cl100k_base"))
READER = FactsComputer(WordRedactor(("swordfish",)), COUNTERS)


def stale(of: Block | None, *above: Block, below: tuple[Block, ...] | None = None) -> StaleBlock:
    """A block that waits."""
    return StaleBlock(number=1, tenant="t", id="x", readers=(), block=of, ancestors=above, below=below)


@dataclass
class Watched:
    """A redactor that notes what it is asked about."""

    rules: str = "watched-1"
    asked: list[str] = field(default_factory=list[str])

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Finds nothing."""
        self.asked.append(text)
        return ()


def test_facts_speak_of_the_block_as_it_is_shown():
    """A list item with its mark; a line that looks like one of ours costs what its fence costs."""
    found = READER.compute(stale(make_block("x", text="### swordfish", kind=BlockType.BULLETED)))

    assert found is not None
    assert content_hash("- ### swordfish") == found.hash
    assert ("words-1", (Span(6, 15, "WORD"),)) == (found.rules, found.redactions)
    assert {each.encoding: each.count("- ###### swordfish") for each in COUNTERS} == found.tokens


def test_a_row_shows_its_cells_but_no_relations():
    """What a relation names depends on who reads."""
    database = make_block("db", kind=BlockType.DB, properties={"schema": {"City": "text", "Deal": "relation"}})
    row = make_block("r", "db", text="Acme", kind=BlockType.DB_ROW, properties={"City": "Oslo", "Deal": ["d"]})
    found = READER.compute(stale(row, database))

    assert found is not None
    assert content_hash("**Acme**\nCity: Oslo") == found.hash


def test_a_page_is_shown_by_its_summary():
    """One that everyone who may read the page shares; without one the page is shown by its title."""
    below = tuple(make_block(f"b{at}", "p", text=f"Pump {at}.") for at in range(SUMMARY_BLOCKS + 1))
    shared, mixed = READER.compute(stale(make_page("p"), below=below)), READER.compute(stale(make_page("p")))

    assert shared is not None
    assert shared.summary is not None
    assert mixed is not None
    assert (None, content_hash("p")) == (mixed.summary, mixed.hash)
    assert content_hash(shared.summary.text) == shared.hash
    assert ("o200k_base", 160) == (shared.summary.encoding, shared.summary.limit)
    assert "Pump 0.\nPump 1." in shared.summary.text
    assert shared.summary.further.startswith(shared.summary.text)
    assert "Pump 8." in shared.summary.further


def test_what_is_gone_or_cannot_be_scanned_has_no_facts():
    """A build then scans it itself, and leaves it out if that fails too."""
    failing = FactsComputer(FailingRedactor("poison"), COUNTERS)

    assert (None, None) == (READER.compute(stale(None)), failing.compute(stale(make_block("x", text="poison"))))


def test_facts_that_still_hold_are_not_computed_again():
    """Other rules or another text are scanned anew."""
    watched = Watched()
    waiting = stale(make_block("x", text="water"))
    first = FactsComputer(watched, COUNTERS).compute(waiting)
    again = FactsComputer(watched, COUNTERS).compute(replace(waiting, facts=first))
    watched.rules = "watched-2"
    ruled = FactsComputer(watched, COUNTERS).compute(replace(waiting, facts=first))
    FactsComputer(watched, COUNTERS).compute(replace(waiting, facts=ruled, block=make_block("x", text="fire")))

    assert first is again
    assert ["water", "water", "fire"] == watched.asked


def test_facts_are_believed_about_their_own_text_and_rules_only():
    """Everything else is as if nothing were known."""
    facts = BlockFacts(hash=content_hash("water"), rules="words-1")

    assert facts is current_facts(facts, "water", "words-1")
    assert [None] * 3 == [
        current_facts(None, "water", ""),
        current_facts(facts, "fire", "words-1"),
        current_facts(facts, "water", "x"),
    ]
