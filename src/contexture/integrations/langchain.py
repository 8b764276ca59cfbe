"""A LangChain retriever over Contexture."""

from typing import Any

from contexture.integrations._lookup import AnyContexture, Lookup, passage_metadata
from contexture.types import Candidate, Filter, Scope

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as missing:
    raise ImportError('LangChainRetriever needs langchain-core: pip install "contexture-ai[langchain]"') from missing


class LangChainRetriever(BaseRetriever):
    """Passages that a user may see, redacted, best first, as LangChain documents.

    retriever = LangChainRetriever(engine=ctx, scope=Scope(tenant="acme", user="anna"), k=5)
    documents = await retriever.ainvoke("who repairs the pump?")
    """

    engine: Any
    k: int = 10
    collection: str | None = None
    scope: Scope | None = None
    where: Filter | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        del run_manager
        return [_to_document(each) for each in self._lookup.run(query)]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        del run_manager
        return [_to_document(each) for each in await self._lookup.run_async(query)]

    @property
    def _lookup(self) -> Lookup:
        engine: AnyContexture = self.engine
        return Lookup(engine=engine, k=self.k, collection=self.collection, scope=self.scope, where=self.where)


ContextureRetriever = LangChainRetriever
"""The earlier name of `LangChainRetriever`."""


def _to_document(found: Candidate) -> Document:
    return Document(id=found.id, page_content=found.text, metadata=passage_metadata(found))
