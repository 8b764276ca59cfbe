"""LlamaIndex integration: a retriever, and a postprocessor that fits the nodes of any retriever into a token budget."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contexture import wiring
from contexture.builders.query.request import QueryRecipe
from contexture.builders.record_blocks import make_variants
from contexture.errors import InvalidRequest
from contexture.integrations._lookup import AnyContexture, Lookup, passage_metadata
from contexture.ledger import Ledger, Trace
from contexture.pipeline.candidates import drop_near_duplicates, rank_candidates
from contexture.pipeline.fence import fence, make_fence
from contexture.pipeline.knapsack import PACKERS
from contexture.pipeline.packing import fit_prompt, make_pack_items, record_verdicts
from contexture.pipeline.redaction import Placeholders, redact_candidates
from contexture.pipeline.truncation import extract_sentences
from contexture.ports import Redactor
from contexture.text.segmentation import split_sentences
from contexture.text.simhash import simhash
from contexture.types import Candidate, Filter, Form, Scope, Variant

_SEPARATOR = "\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredText:
    """A text and its relevance from 0 to 1; `id` must be unique."""

    id: str
    text: str
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedTexts:
    """The texts that fit, best first, redacted; the ledger records the outcome of every text."""

    pieces: tuple[ScoredText, ...]
    tokens: int
    ledger: Ledger


class TextPacker:
    """Fits texts into `max_tokens` of a model: redacted, deduplicated, counted exactly with blank lines between them.

    TextPacker(max_tokens=1_000).pack("who repairs the pump?", texts)
    """

    def __init__(
        self,
        *,
        max_tokens: int,
        model: str = "gpt-4o",
        redactor: Redactor | None = None,
        recipe: QueryRecipe | None = None,
    ) -> None:
        self._limit = max_tokens
        self._counter = wiring.counter_for(model)
        self._redactor = redactor or wiring.default_redactor()
        self._recipe = recipe or QueryRecipe()

    def pack(self, question: str, pieces: Sequence[ScoredText]) -> PackedTexts:
        """Return the most valuable texts that fit, some of them as extracts that answer `question`."""
        trace = Trace()
        raw = [_to_candidate(piece) for piece in pieces]
        hidden = Placeholders()
        for piece in pieces:
            hidden.keep_written(piece.text)
        clean = redact_candidates(raw, self._redactor, hidden, trace)
        kept = drop_near_duplicates(rank_candidates(clean), trace, threshold=self._recipe.near_duplicate)
        forms = self._build_variants(question, kept)

        def choose_variants(chosen: Mapping[str, int]) -> list[tuple[Candidate, Variant]]:
            return [(each, forms[each.id][chosen[each.id]]) for each in kept if each.id in chosen]

        def count(chosen: Mapping[str, int]) -> int:
            return self._counter.count(_SEPARATOR.join(variant.text for _, variant in choose_variants(chosen)))

        fitted = fit_prompt(make_pack_items(kept, forms), self._limit, PACKERS[self._recipe.packer], count)
        chosen = choose_variants(fitted.packing.chosen)
        record_verdicts(kept, forms, {each.id: form for each, form in chosen}, trace)
        return PackedTexts(
            pieces=tuple(ScoredText(id=each.id, text=form.text, score=each.score) for each, form in chosen),
            tokens=fitted.tokens,
            ledger=trace.finish(raw),
        )

    def _build_variants(self, question: str, kept: Sequence[Candidate]) -> dict[str, list[Variant]]:
        """Return the variants of each candidate; one larger than the whole budget also gets a variant that fits."""
        forms = make_variants(
            kept,
            query=question,
            counter=self._counter,
            fence=make_fence(self._counter, version=self._recipe.fence_version),
            room=self._limit,
            sharpness=self._recipe.sharpness,
            extracts=self._recipe.extracts,
        )
        for candidate in kept:
            whole = forms[candidate.id][0]
            if min(form.tokens for form in forms[candidate.id]) > self._limit:
                forms[candidate.id] += self._extract_to_fit(question, candidate, whole)
        return forms

    def _extract_to_fit(self, question: str, candidate: Candidate, whole: Variant) -> list[Variant]:
        found = extract_sentences(candidate.text, candidate.sentences, question, self._counter, self._limit)
        if not found.text:
            return []
        text = fence(found.text)
        tokens = self._counter.count(text)
        value = whole.value * math.sqrt(tokens / whole.tokens)
        return [Variant(form=Form.EXTRACT, text=text, tokens=tokens, value=value, spans=found.spans)]


def _to_candidate(piece: ScoredText) -> Candidate:
    return Candidate(
        id=piece.id,
        key=piece.id,
        text=piece.text,
        score=piece.score,
        sentences=split_sentences(piece.text),
        simhash=simhash(piece.text),
    )


try:
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as missing:
    raise ImportError(
        'LlamaIndexRetriever needs llama-index-core: pip install "contexture-ai[llamaindex]"'
    ) from missing


class LlamaIndexRetriever(BaseRetriever):
    """Passages that a user may see, redacted, best first, as LlamaIndex nodes.

    nodes = LlamaIndexRetriever(ctx, k=5).retrieve("who repairs the pump?")
    """

    def __init__(
        self,
        engine: AnyContexture,
        *,
        k: int = 10,
        collection: str | None = None,
        scope: Scope | None = None,
        where: Filter | None = None,
    ) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - its `object_map` is a bare Dict
        self._lookup = Lookup(engine=engine, k=k, collection=collection, scope=scope, where=where)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_to_node(each) for each in self._lookup.run(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_to_node(each) for each in await self._lookup.run_async(query_bundle.query_str)]


ContextureRetriever = LlamaIndexRetriever
"""The earlier name of `LlamaIndexRetriever`."""


class ContexturePostprocessor(BaseNodePostprocessor):
    """Redacts the nodes of any retriever, drops duplicates, and keeps the most valuable ones that fit `max_tokens`.

    A model sees only the text of the returned nodes: metadata is kept, but neither redacted nor counted. Scores above 1
    are divided by the best one; a node without a score counts as 0.5. The given nodes are not changed.
    """

    max_tokens: int = Field(ge=1, description="Maximum number of tokens of all node texts together.")
    model: str = Field(default="gpt-4o", description="Model whose tokens are counted.")
    _packer: TextPacker = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        """Load the tokenizer and the redaction rules once."""
        super().model_post_init(context)
        self._packer = TextPacker(max_tokens=self.max_tokens, model=self.model)

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex lists it."""
        return "ContexturePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        given = {each.node.node_id: each for each in nodes}
        if len(given) < len(nodes):
            raise InvalidRequest("two nodes have the same id")
        best = max((each.score or 0.0 for each in nodes), default=0.0)
        pieces = [_to_scored_text(each, max(best, 1.0)) for each in nodes]
        packed = self._packer.pack(query_bundle.query_str if query_bundle else "", pieces)
        return [_to_packed_node(given[piece.id], piece) for piece in packed.pieces]


_DEFAULT_SCORE = 0.5


def _to_node(found: Candidate) -> NodeWithScore:
    return NodeWithScore(node=_make_text_node(found.id, found.text, passage_metadata(found)), score=found.score)


def _to_scored_text(given: NodeWithScore, best: float) -> ScoredText:
    score = _DEFAULT_SCORE if given.score is None else max(given.score, 0.0) / best
    return ScoredText(id=given.node.node_id, text=given.node.get_content(), score=score)


def _to_packed_node(given: NodeWithScore, piece: ScoredText) -> NodeWithScore:
    return NodeWithScore(node=_make_text_node(piece.id, piece.text, given.node.metadata), score=given.score)


def _make_text_node(name: str, text: str, metadata: dict[str, Any]) -> TextNode:
    """Build a node with metadata excluded from prompts; LlamaIndex would write it above the text."""
    return TextNode(id_=name, text=text, metadata=metadata, excluded_llm_metadata_keys=list(metadata))
