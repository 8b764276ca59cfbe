"""Contexture in LlamaIndex: a retriever, and a postprocessor that fits anyone's nodes into a budget."""

from __future__ import annotations

from typing import Any

from contexture.errors import InvalidRequest
from contexture.integrations.lookup import Engine, Lookup, metadata_of
from contexture.integrations.packing import Packing, Piece
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
        engine: Engine,
        *,
        k: int = 10,
        collection: str | None = None,
        scope: Scope | None = None,
        where: Filter | None = None,
    ) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - its `object_map` is a bare Dict
        self._lookup = Lookup(engine=engine, k=k, collection=collection, scope=scope, where=where)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(each) for each in self._lookup.run(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(each) for each in await self._lookup.run_async(query_bundle.query_str)]


class ContexturePostprocessor(BaseNodePostprocessor):
    """Redacts nodes of any retriever, drops copies, and keeps the most valuable ones that fit `max_tokens`.

    What a model reads of the nodes that come out is their text alone: metadata is kept, and neither redacted nor
    counted. Where scores go beyond 1 they are divided by the best one; a node without one counts as 0.5. The nodes
    given are not changed.
    """

    max_tokens: int = Field(ge=1, description="Most tokens that the texts of the nodes may have together.")
    model: str = Field(default="gpt-4o", description="Model whose tokens are counted.")
    _packing: Packing = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        """Load the tokenizer and the redaction rules once."""
        super().model_post_init(context)
        self._packing = Packing(max_tokens=self.max_tokens, model=self.model)

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
        pieces = [_piece(each, max(best, 1.0)) for each in nodes]
        packed = self._packing.run(query_bundle.query_str if query_bundle else "", pieces)
        return [_shown(given[piece.id], piece) for piece in packed.pieces]


_UNSCORED = 0.5


def _node(found: Candidate) -> NodeWithScore:
    return NodeWithScore(node=_text_node(found.id, found.text, metadata_of(found)), score=found.score)


def _piece(given: NodeWithScore, best: float) -> Piece:
    score = _UNSCORED if given.score is None else max(given.score, 0.0) / best
    return Piece(id=given.node.node_id, text=given.node.get_content(), score=score)


def _shown(given: NodeWithScore, piece: Piece) -> NodeWithScore:
    return NodeWithScore(node=_text_node(piece.id, piece.text, given.node.metadata), score=given.score)


def _text_node(name: str, text: str, metadata: dict[str, Any]) -> TextNode:
    """A node whose metadata stays out of prompts, where LlamaIndex would write it above the text."""
    return TextNode(id_=name, text=text, metadata=metadata, excluded_llm_metadata_keys=list(metadata))
