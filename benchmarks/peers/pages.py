"""Pages found for questions over PDF files: Contexture, LlamaIndex and LangChain with their default PDF pipelines.

`python -m benchmarks.peers.pages FOLDER`, with `pdfs/` and `queries.jsonl` as `contexture eval pages` reads them. All
have the same embedder, Granite. It needs `llama-index-core`, `llama-index-readers-file`, `langchain-community`,
`langchain-text-splitters` and `pypdf` beside this package.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import process_time

from contexture.config import Settings
from contexture.evaluation._harness import Question, load_questions, mean, recall, reciprocal_rank
from contexture.evaluation.corpus import evaluate_pages
from contexture.wiring import plugins

_CHUNKS = 60  # chunks retrieved, so that ten pages are among them
_PAGES = 10


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Vectors of Granite; a long batch is embedded sorted by length."""
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    rows: dict[int, list[float]] = {}
    for start in range(0, len(order), 64):
        some = order[start : start + 64]
        found = asyncio.run(_EMBEDDER.embed([texts[at] for at in some]))
        rows.update({at: row.tolist() for at, row in zip(some, found, strict=True)})
    return [rows[at] for at in range(len(texts))]


_EMBEDDER = plugins.load_embedder("granite", threads=1)


def rank_with_llamaindex(folder: Path, questions: Sequence[Question]) -> list[list[str]]:
    """`SimpleDirectoryReader`, the default splitter, and a `VectorStoreIndex` over the default store."""
    from llama_index.core import SimpleDirectoryReader, VectorStoreIndex
    from llama_index.core.embeddings import BaseEmbedding

    class Granite(BaseEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            return embed([query])[0]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

        def _get_text_embedding(self, text: str) -> list[float]:
            return embed([text])[0]

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return embed(texts)

    pages = SimpleDirectoryReader(str(folder / "pdfs")).load_data()
    counts = Counter[str]()
    for page in pages:  # by position: a label may be "A-1"
        counts[page.metadata["file_name"]] += 1
        page.metadata["position"] = counts[page.metadata["file_name"]]
        page.excluded_embed_metadata_keys.append("position")
    index = VectorStoreIndex.from_documents(pages, embed_model=Granite(embed_batch_size=2_000))
    retriever = index.as_retriever(similarity_top_k=_CHUNKS)
    return [
        [f"{node.metadata['file_name']}#{node.metadata['position']}" for node in retriever.retrieve(each.text)]
        for each in questions
    ]


def rank_with_langchain(folder: Path, questions: Sequence[Question]) -> list[list[str]]:
    """`PyPDFLoader`, `RecursiveCharacterTextSplitter` of the tutorial, and the `InMemoryVectorStore`."""
    from langchain_community.document_loaders import PyPDFLoader
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    class Granite(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return embed(texts)

        def embed_query(self, text: str) -> list[float]:
            return embed([text])[0]

    pages = [page for path in sorted((folder / "pdfs").glob("*.pdf")) for page in PyPDFLoader(str(path)).load()]
    chunks = RecursiveCharacterTextSplitter(chunk_size=1_000, chunk_overlap=200).split_documents(pages)
    store = InMemoryVectorStore(Granite())
    store.add_documents(chunks)
    return [
        [
            f"{Path(chunk.metadata['source']).name}#{chunk.metadata['page'] + 1}"
            for chunk in store.similarity_search(each.text, k=_CHUNKS)
        ]
        for each in questions
    ]


def score(questions: Sequence[Question], rankings: Sequence[Sequence[str]]) -> dict[str, float]:
    """Page recall at 5 and 10, and MRR; a page counts where its first chunk is."""
    pairs = [(each, list(dict.fromkeys(found))) for each, found in zip(questions, rankings, strict=True)]
    return {
        **{f"recall@{k}": mean([recall(found, each.gold, k) for each, found in pairs]) for k in (5, _PAGES)},
        "mrr@10": mean([reciprocal_rank(found, each.gold, _PAGES) for each, found in pairs]),
    }


def main(folder: Path) -> None:
    """Print a row for each."""
    questions = [each for each in load_questions(folder) if each.gold]
    for name, rank in (("LlamaIndex", rank_with_llamaindex), ("LangChain", rank_with_langchain)):
        start = process_time()
        scores = score(questions, rank(folder, questions))
        print(json.dumps({"name": name, **scores, "cpu_s": round(process_time() - start)}), flush=True)
    start = process_time()
    found = asyncio.run(evaluate_pages(folder, settings=Settings(), visual=False))
    ours = {key: found[key] for key in ("recall@5", f"recall@{_PAGES}", "mrr@10")}
    print(json.dumps({"name": "Contexture", **ours, "cpu_s": round(process_time() - start)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
