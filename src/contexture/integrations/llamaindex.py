"""LlamaIndex integration: a retriever, and a postprocessor that fits the nodes of any retriever into a token budget."""

from __future__ import annotations

from typing import Any

from contexture.errors import InvalidRequest
from contexture.integrations._lookup import AnyContexture, Lookup, passage_metadata
from contexture.integrations._packing import ScoredText, TextPacker
from contexture.types import Candidate, Filter, Scope

try:
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as missing:
    raise ImportError('ContextureRetriever needs llama-index-core: pip install "contexture[llamaindex]"') from missing


class ContextureRetriever(BaseRetriever):
    """Passages that a user may see, redacted, best first, as LlamaIndex nodes.

    nodes = ContextureRetriever(ctx, k=5).retrieve("who repairs the pump?")
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
