"""Who takes part, set up how: what a reader of the table should know of each."""

from __future__ import annotations

from dataclasses import dataclass

OURS = "contexture"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A row of the table: which class runs it, which packages do the work, and how it was set up.

    `most` is the number of records above which it is not asked; `remark` is what a picture should say beside its time.
    """

    title: str
    module: str
    made_by: str
    packages: tuple[str, ...]
    store: str
    packer: str
    most: int
    remark: str


def _peer(
    title: str, place: str, packages: str, store: str, packer: str, *, most: int = 1_000_000, remark: str = ""
) -> Entry:
    module, _, made_by = place.partition(":")
    return Entry(
        title=title,
        module=f"benchmarks.peers.{module}",
        made_by=made_by,
        packages=tuple(packages.split()),
        store=store,
        packer=packer,
        most=most,
        remark=remark,
    )


_LOOP = "none of its own: whole texts while exact counts add up to the budget"

ENTRIES = {
    OURS: _peer(
        "Contexture",
        "ours:Ours",
        "contexture-ai rs-bpe",
        "embedded store on disk, exact search among what the reader may see, one thread",
        "optimal packing with shortened forms, the final prompt counted exactly",
    ),
    "langchain": _peer(
        "LangChain",
        "with_langchain:InMemory",
        "langchain-core langchain-classic langchain-community rank-bm25",
        "`InMemoryVectorStore` and `BM25Retriever` with lower-cased words, fused by `EnsembleRetriever`",
        "`trim_messages` with its approximate counter",
    ),
    "langchain-faiss": _peer(
        "LangChain, FAISS",
        "with_langchain:Faiss",
        "langchain-core langchain-classic langchain-community rank-bm25 faiss-cpu",
        "`FAISS` instead of `InMemoryVectorStore`",
        "`trim_messages` with tiktoken",
    ),
    "llamaindex": _peer(
        "LlamaIndex",
        "with_llamaindex:Simple",
        "llama-index-core llama-index-retrievers-bm25 bm25s",
        "`VectorStoreIndex` (default store) and `BM25Retriever`, fused by `QueryFusionRetriever` by reciprocal rank",
        "`PromptHelper.repack`, as the compact synthesizer does, with its default tokenizer; the first prompt counts",
    ),
    "llamaindex-faiss": _peer(
        "LlamaIndex, FAISS",
        "with_llamaindex:Faiss",
        "llama-index-core llama-index-retrievers-bm25 llama-index-vector-stores-faiss bm25s faiss-cpu",
        "`FaissVectorStore` instead of the default store",
        "the same with tiktoken for the model",
    ),
    "haystack": _peer(
        "Haystack",
        "with_haystack:Words",
        "haystack-ai",
        "`InMemoryDocumentStore` with BM25 and embedding retrievers, fused by `DocumentJoiner` by reciprocal rank",
        "`LostInTheMiddleRanker` with a threshold of 1,500 words, then `PromptBuilder`",
    ),
    "haystack-tokens": _peer(
        "Haystack, counted",
        "with_haystack:Tokens",
        "haystack-ai tiktoken",
        "the same",
        "a component that adds documents while `TiktokenCounter` allows, then `PromptBuilder`",
        most=10_000,  # it differs in packing only
    ),
    "chroma": _peer(
        "Chroma",
        "with_chroma:Chroma",
        "chromadb tiktoken",
        "in-process client, HNSW over vectors only: it has no hybrid search of its own in process",
        _LOOP,
        remark="vectors only",
    ),
    "lancedb": _peer(
        "LanceDB",
        "with_lancedb:Lance",
        "lancedb tiktoken",
        "table on disk with a full-text index, hybrid search with `RRFReranker`, vectors compared exactly",
        _LOOP,
    ),
    "txtai": _peer(
        "txtai",
        "with_txtai:Txtai",
        "txtai faiss-cpu tiktoken",
        "`Embeddings` with `hybrid` and `content` on, external vectors, cells of FAISS above 5,000 records",
        _LOOP,
        remark="approximate vectors",
    ),
    "mem0": _peer(
        "mem0",
        "with_mem0:Mem0",
        "mem0ai qdrant-client tiktoken",
        "`Memory.add` with `infer=False` and `Memory.search`, on its default store",
        _LOOP,
        remark="vectors only",
        most=10_000,  # it takes them one by one, each with two commits
    ),
}
