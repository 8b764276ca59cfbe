"""A Haystack retriever component over Contexture."""

from contexture.integrations._lookup import AnyContexture, Lookup, passage_metadata
from contexture.types import Candidate, Filter, Scope

try:
    from haystack import Document, component
except ImportError as missing:
    raise ImportError('HaystackRetriever needs haystack-ai: pip install "contexture-ai[haystack]"') from missing


@component
class HaystackRetriever:
    """Retrieves passages that a user may see, redacted, best first, as Haystack documents.

    pipeline.add_component("retriever", HaystackRetriever(ctx, top_k=5))
    """

    def __init__(
        self,
        engine: AnyContexture,
        *,
        top_k: int = 10,
        collection: str | None = None,
        scope: Scope | None = None,
        where: Filter | None = None,
    ) -> None:
        self._lookup = Lookup(engine=engine, k=top_k, collection=collection, scope=scope, where=where)

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, list[Document]]:
        """Return the documents under `documents`."""
        return {"documents": [_to_document(each) for each in self._lookup.run(query)]}

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str) -> dict[str, list[Document]]:
        """Return the documents under `documents`, for pipelines with an event loop."""
        return {"documents": [_to_document(each) for each in await self._lookup.run_async(query)]}


ContextureRetriever = HaystackRetriever
"""The earlier name of `HaystackRetriever`."""


def _to_document(found: Candidate) -> Document:
    return Document(id=found.id, content=found.text, meta=passage_metadata(found), score=found.score)
