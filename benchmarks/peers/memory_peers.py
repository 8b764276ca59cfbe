"""Memory modules of other libraries: each stores the messages of a dialogue and recalls them for a question.

Runs in the environment of the others: `python -m benchmarks.peers.memory_peers NAME FOLDER SCRATCH OUT`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken

BUDGETS = (500, 1_000, 2_000)
RECALLED = 100
"""Messages asked for: more than 2,000 tokens hold."""

_WRAPPERS = (("input: ", "\noutput: "), ("<message role='user'>", "</message>"))

Messages = Sequence[Mapping[str, Any]]


class Material:
    """Messages and questions by group, and the vector of every text."""

    def __init__(self, folder: Path) -> None:
        told = json.loads((folder / "material.json").read_text(encoding="utf-8"))
        self.messages: list[dict[str, Any]] = told["messages"]
        self.questions: list[dict[str, Any]] = told["questions"]
        texts = [each["text"].strip() for each in (*self.messages, *self.questions)]
        self._rows = dict(zip(texts, np.load(folder / "vectors.npy").tolist(), strict=True))

    def vector(self, text: str) -> list[float]:
        """The vector of a text, without what a library puts around it: they all compare the bare messages."""
        bare = text.strip()
        for before, after in _WRAPPERS:
            bare = bare.removeprefix(before.strip()).removesuffix(after.strip()).strip()
        return self._rows[bare]

    def groups(self) -> dict[str, list[dict[str, Any]]]:
        """The messages of each dialogue."""
        found: dict[str, list[dict[str, Any]]] = {}
        for each in self.messages:
            found.setdefault(each["group"], []).append(each)
        return found


def mem0(material: Material, scratch: Path) -> Callable[[str, str], list[str]]:
    """`Memory.add` with `infer=False` and `Memory.search`, on its default store; a dialogue is a user."""
    from mem0 import Memory
    from mem0.embeddings.base import EmbeddingBase

    class Known(EmbeddingBase):
        def __init__(self) -> None:
            """Embed nothing: the vectors are known."""

        def embed(self, text: str, memory_action: str | None = None) -> list[float]:
            del memory_action
            return material.vector(text)

    dims = len(material.vector(material.messages[0]["text"]))
    unused = {"provider": "openai", "config": {"api_key": "not-a-key"}}
    memory = Memory.from_config(
        {
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": str(scratch / "q"), "embedding_model_dims": dims},
            },
            "llm": unused,
            "embedder": unused,
            "history_db_path": str(scratch / "history.db"),
        }
    )
    memory.embedding_model = Known()
    for each in material.messages:
        memory.add(each["text"], user_id=each["group"], infer=False)

    def recall(question: str, group: str) -> list[str]:
        found = memory.search(question, top_k=RECALLED, filters={"user_id": group}, threshold=0.0)
        return [each["memory"] for each in found["results"]]

    return recall


def langchain(material: Material, scratch: Path) -> Callable[[str, str], list[str]]:
    """`VectorStoreRetrieverMemory` over the in-memory store; a memory a dialogue."""
    del scratch
    from langchain_classic.memory import VectorStoreRetrieverMemory
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    class Known(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [material.vector(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return material.vector(text)

    memories: dict[str, VectorStoreRetrieverMemory] = {}
    for group, messages in material.groups().items():
        retriever = InMemoryVectorStore(Known()).as_retriever(search_kwargs={"k": RECALLED})
        memories[group] = VectorStoreRetrieverMemory(retriever=retriever, return_docs=True)
        for each in messages:
            memories[group].save_context({"input": each["text"]}, {"output": ""})

    def recall(question: str, group: str) -> list[str]:
        found = memories[group].load_memory_variables({"prompt": question})["history"]
        return [each.page_content for each in found if not isinstance(each, str)]

    return recall


def llamaindex(  # noqa: C901 - its classes need its imports
    material: Material, scratch: Path
) -> Callable[[str, str], list[str]]:
    """`VectorMemoryBlock` over an exact store in memory; a session a dialogue."""
    del scratch
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import VectorMemoryBlock
    from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryResult

    class Known(BaseEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            return material.vector(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return material.vector(query)

        def _get_text_embedding(self, text: str) -> list[float]:
            return material.vector(text)

    class Exact(BasePydanticVectorStore):
        stores_text: bool = True
        nodes: list[Any] = []  # noqa: RUF012 - pydantic copies it

        @property
        def client(self) -> Any:
            return None

        def add(self, nodes: Any, **_: Any) -> list[str]:
            self.nodes.extend(nodes)
            return [each.node_id for each in nodes]

        def delete(self, ref_doc_id: str, **_: Any) -> None:
            raise NotImplementedError

        def query(self, query: Any, **_: Any) -> VectorStoreQueryResult:
            wanted = query.filters.filters[0].value
            held = [each for each in self.nodes if each.metadata["session_id"] == wanted]
            scores = np.array([each.embedding for each in held]) @ np.array(query.query_embedding)
            best = np.argsort(-scores, kind="stable")[: query.similarity_top_k]
            return VectorStoreQueryResult(
                nodes=[held[at] for at in best],
                similarities=scores[best].tolist(),
                ids=[held[at].node_id for at in best],
            )

    blocks: dict[str, VectorMemoryBlock] = {}

    async def load() -> None:
        for group, messages in material.groups().items():
            blocks[group] = VectorMemoryBlock(
                vector_store=Exact(), embed_model=Known(), similarity_top_k=RECALLED, retrieval_context_window=1
            )
            for each in messages:
                said = ChatMessage(role="user", content=each["text"], additional_kwargs={"session_id": group})
                await blocks[group].aput([said], from_short_term_memory=True)

    async def ask(question: str, group: str) -> str:
        return await blocks[group].aget([ChatMessage(role="user", content=question)], session_id=group)

    asyncio.run(load())
    return lambda question, group: asyncio.run(ask(question, group)).split("\n\n<message ")


PEERS: Mapping[str, tuple[Callable[[Material, Path], Callable[[str, str], list[str]]], str]] = {
    "mem0": (mem0, "mem0ai"),
    "langchain": (langchain, "langchain-classic"),
    "llamaindex": (llamaindex, "llama-index-core"),
}


def main(name: str, folder: Path, scratch: Path, out: Path) -> None:
    """Load the messages, ask every question, and write which gold messages fit each budget."""
    material = Material(folder)
    make, package = PEERS[name]
    recall, encoding = make(material, scratch), tiktoken.encoding_for_model("gpt-4o")
    rows: dict[str, list[tuple[int, int, int]]] = {str(budget): [] for budget in BUDGETS}
    texts = {each["id"]: each["text"].strip() for each in material.messages}
    for asked in material.questions:
        found = recall(asked["text"], asked["group"])
        spent = len(encoding.encode_ordinary(asked["text"]))
        costs = np.cumsum([spent, *(len(encoding.encode_ordinary(f"{text}\n\n")) for text in found)])
        for budget in BUDGETS:
            last = int(np.searchsorted(costs, budget, side="right")) - 1
            shown = "\n\n".join(found[:last])
            held = sum(texts[gold] in shown for gold in asked["gold"])
            rows[str(budget)].append((held, len(asked["gold"]), int(costs[last])))
    out.write_text(json.dumps({"rows": rows, "version": f"{package} {version(package)}"}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:5]))
