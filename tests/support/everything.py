"""A store with every kind of source: what everyone may read, and what only the board may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contexture.conversation import Memory
from contexture.documents import Page, Region, RegionKind
from contexture.engine import Contexture
from contexture.news.articles import Article
from contexture.pages.values import Document
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC, Record, Scope
from contexture.workspace import Block, BlockType

WRITER = Scope(tenant="acme", user="clerk", groups=("board",))
ANNA = Scope(tenant="acme", user="anna")
BOARD = ("group:board",)
KINDS = ("memories", "records", "pages", "news", "workspace")
TEXTS = {
    "memories": "Hanne says that the pump leaks at night.",
    "records": "Viktor repairs the pump in the workshop on Monday.",
    "pages": "The pump cost 900 crowns and the seal cost 40 crowns.",
    "news": "The pump of the harbour failed and the quay was flooded.",
    "workspace": "Order a new seal for the pump",
}
"""What everyone may read of each kind."""


async def fill(engine: Contexture, texts: Mapping[str, str], *, name: str = "open", readers: Sequence[str] = (PUBLIC,)):
    """Store these texts by kind, each as a source of its kind that these readers may read."""
    allowed = tuple(readers)
    if "memories" in texts:
        await engine.memory.remember(WRITER, [Memory(text=texts["memories"], id=f"m-{name}", readers=allowed)])
    if "records" in texts:
        record = Record(id=f"r-{name}", title=f"Note {name}", text=texts["records"], acl=allowed)
        await engine.add([record], scope=WRITER)
    if "pages" in texts:
        await engine.pages.add(WRITER, make_document(f"d-{name}", texts["pages"], allowed))
    if "news" in texts:
        article = Article(
            article_id=f"a-{name}", title=f"Harbour {name}", text=texts["news"], source="courier.example",
            published=NOON, readers=allowed,
        )  # fmt: skip
        await engine.news.add(WRITER, [article], now=NOON)
    if "workspace" in texts:
        page = Block(id=f"p-{name}", type=BlockType.PAGE, text=f"Tasks {name}", readers=allowed)
        task = Block(
            id=f"t-{name}", type=BlockType.TODO, text=texts["workspace"], parent=page.id,
            properties={"due": "2026-03-01", "done": False},
        )  # fmt: skip
        await engine.workspace.put(WRITER, [page, task], now=NOON)


def make_document(doc_id: str, text: str, readers: tuple[str, ...]) -> Document:
    """A document of one page."""
    region = Region(kind=RegionKind.TEXT, box=(0.1, 0.1, 0.9, 0.2), text=text, start=0, end=len(text))
    page = Page(number=1, text=text, regions=(region,))
    return Document(
        doc_id=doc_id, filename=f"{doc_id}.pdf", extension="pdf", source_path=f"in/{doc_id}.pdf", timestamp=NOON,
        pages=(replace(page),), readers=readers,
    )  # fmt: skip
