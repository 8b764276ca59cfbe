"""Contexture as it is wired: permissions, redaction, ledger, capsule and exact packing, on one thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.corpus import FIELDS, SCOPE, Owned, records
from benchmarks.peers.contestant import Answer
from benchmarks.peers.material import INSTRUCTION, TOKENS, Asked, Document, Rows, questions_in
from benchmarks.peers.prepare import Folder, chosen, embedded
from benchmarks.vectors import Synthetic

from contexture import wiring
from contexture.builders.query.request import QueryRequest
from contexture.config import Settings
from contexture.ports import Embedder, Index
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import EnsuredCollection
from contexture.types import Collection, Matrix, Record, Scope, Vector
from contexture.wiring import plugins

EMBEDDERS = ("minilm", "use")

_NAME = "documents"
_BLOCK = 1_000


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the records of some material come from: made up, so many, or read from a folder."""

    size: int = 0
    folder: Folder | None = None

    def write(self, path: Path) -> None:
        """Keep it beside the material."""
        told = {"size": self.size, "folder": self.folder and asdict(self.folder)}
        path.write_text(json.dumps(told, default=str), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Origin:
        """What `write` kept."""
        told = json.loads(path.read_text(encoding="utf-8"))
        where = told["folder"]
        folder = where and Folder(Path(where["path"]), where["asked"], Path(where["kept"]), where["records"])
        return cls(told["size"], folder)

    def blocks(self) -> Iterator[list[Owned]]:
        """Every record and on whose behalf it is written."""
        if self.folder is None:
            yield from records(self.size)
            return
        stored, _, _ = chosen(self.folder)
        for at in range(0, len(stored), _BLOCK):
            yield [Owned(SCOPE, record) for record in stored[at : at + _BLOCK]]

    def embedder(self, name: str) -> Embedder:
        """What embeds records and questions under the name of a shipped embedder."""
        return self.folder.embedder(name) if self.folder else Synthetic(plugins.load_embedder(name, threads=1))


class Given:
    """An embedder whose time is known, and which looks up the questions that were embedded beforehand."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._rows: dict[str, Vector] = {}
        self.seconds = 0.0

    @property
    def name(self) -> str:
        """The inner embedder's name."""
        return self._inner.name

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._inner.dimensions

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as the inner embedder maps them."""
        return self._inner.calibrate(cosine)

    async def learn(self, texts: Sequence[str]) -> None:
        """Embed these now."""
        self._rows |= dict(zip(texts, await embedded(self._inner, texts), strict=True))

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One row per text."""
        if len(texts) == 1 and texts[0] in self._rows:
            return self._rows[texts[0]][None, :]
        started = perf_counter()
        rows = await self._inner.embed(texts)
        self.seconds += perf_counter() - started
        return rows


class Ours:
    """The query builder over the embedded store."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._origin = Origin.read(folder / "origin.json")
        self._settings = Settings(home=scratch, search_threads=1)
        self._given = {name: Given(self._origin.embedder(name)) for name in EMBEDDERS}
        self._encoders = Encoders(specialists={"en": self._given["minilm"]}, generalist=self._given["use"])
        self._runner = asyncio.Runner()
        asked = [each.text for name in ("questions", "warm_up") for each in questions_in(folder, name)]
        for each in self._given.values():
            self._runner.run(each.learn(asked))

    def load(self, documents: Sequence[Document], vectors: Rows) -> float:
        """Prepare, scan for personal data, and write every record on behalf of whom it belongs to."""
        del documents, vectors
        self._runner.run(self._load())
        return sum(each.seconds for each in self._given.values())

    def ask(self, asked: Asked, vector: Rows) -> Answer:
        """A whole build."""
        del vector
        request = QueryRequest(query=asked.text, collection=_NAME, max_tokens=TOKENS, system=INSTRUCTION)
        # Not `Runner.run`, whose handling of signals writes out the whole result, only to throw that away.
        built = self._runner.get_loop().run_until_complete(self._builder.build(request, scope=SCOPE))
        found = sorted(built.capsule.candidates, key=lambda each: (-each.score, each.id))
        return Answer(
            ranking=list(dict.fromkeys(each.record_id for each in found)),
            prompt="\n\n".join(message["content"] for message in built.context.messages),
            shown=list(dict.fromkeys(each.record_id for each in built.context.citations)),
        )

    async def _load(self) -> None:
        store = await wiring.index(self._settings, self._encoders)
        scanner = wiring.redactor(self._settings)
        self._preparer = wiring.preparer(self._settings, self._encoders, scanner)
        made = EnsuredCollection(store, Collection(name=_NAME, fields=FIELDS))
        for block in self._origin.blocks():
            for scope in dict.fromkeys(owned.scope for owned in block):
                await made.ensure(scope)
                await self._write(store, scope, [owned.record for owned in block if owned.scope == scope])
        await store.optimize()
        search = wiring.search(self._settings, store, self._encoders)
        self._builder = wiring.query_builder(self._settings, search, scanner, wiring.SystemClock())

    async def _write(self, store: Index, scope: Scope, some: Sequence[Record]) -> None:
        await store.upsert(scope, _NAME, await self._preparer.prepare(some))
